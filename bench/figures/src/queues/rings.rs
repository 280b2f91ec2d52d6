//! A ring without a lock for each pair of a producer and a consumer. A thread that finds all its rings full or empty
//! lets others run, and looks again.

use super::{CAPACITY, Consumer, Ends, Item, Producer};
use rtrb::{PushError, RingBuffer};
use std::thread::yield_now;

pub(super) fn new(producers: usize, consumers: usize) -> Ends {
    let mut ends = Ends { producers: Vec::new(), consumers: Vec::new() };
    let mut takes: Vec<Take> = (0..consumers).map(|_| Take::default()).collect();
    // All rings together hold as much as a queue.
    let capacity = CAPACITY / (producers * consumers).max(1);
    for _ in 0..producers {
        let mut put = Put::default();
        for take in &mut takes {
            let (producer, consumer) = RingBuffer::new(capacity);
            put.rings.push(producer);
            take.rings.push(consumer);
        }
        ends.producers.push(Box::new(put));
    }
    ends.consumers.extend(takes.into_iter().map(|take| Box::new(take) as _));
    ends
}

#[derive(Default)]
struct Put {
    rings: Vec<rtrb::Producer<Item>>,
    /// The ring that is tried next.
    next: usize,
}

impl Producer for Put {
    fn put(&mut self, mut item: Item) {
        loop {
            for _ in 0..self.rings.len() {
                self.next = (self.next + 1) % self.rings.len();
                match self.rings[self.next].push(item) {
                    Ok(()) => return,
                    Err(PushError::Full(full)) => item = full,
                }
            }
            yield_now();
        }
    }
}

#[derive(Default)]
struct Take {
    rings: Vec<rtrb::Consumer<Item>>,
    /// The ring that is tried next.
    next: usize,
}

impl Consumer for Take {
    fn take(&mut self) -> Option<Item> {
        loop {
            // A producer that is gone has put all: rings are read after that was seen.
            let is_ended = self.rings.iter().all(rtrb::Consumer::is_abandoned);
            for _ in 0..self.rings.len() {
                if let Ok(item) = self.rings[self.next].pop() {
                    return Some(item);
                }
                self.next = (self.next + 1) % self.rings.len();
            }
            if is_ended {
                return None;
            }
            yield_now();
        }
    }
}
