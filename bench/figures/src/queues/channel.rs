//! The channel of crossbeam, which the pipeline of the library uses: with an item in a message, and with a batch.

use super::{BATCH, CAPACITY, Consumer, Ends, Item, Producer};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::vec;

pub(super) fn new(producers: usize, consumers: usize) -> Ends {
    let (sender, receiver) = bounded::<Item>(CAPACITY);
    Ends {
        producers: (0..producers).map(|_| Box::new(sender.clone()) as _).collect(),
        consumers: (0..consumers).map(|_| Box::new(receiver.clone()) as _).collect(),
    }
}

impl Producer for Sender<Item> {
    fn put(&mut self, item: Item) {
        self.send(item).expect("consumers end after producers");
    }
}

impl Consumer for Receiver<Item> {
    fn take(&mut self) -> Option<Item> {
        self.recv().ok()
    }
}

pub(super) fn new_batched(producers: usize, consumers: usize) -> Ends {
    let (sender, receiver) = bounded(CAPACITY / BATCH);
    let put = |_| -> Box<dyn Producer> {
        Box::new(Put { sender: sender.clone(), batch: Vec::with_capacity(BATCH) })
    };
    let take = |_| -> Box<dyn Consumer> {
        Box::new(Take { receiver: receiver.clone(), batch: Vec::new().into_iter() })
    };
    Ends {
        producers: (0..producers).map(put).collect(),
        consumers: (0..consumers).map(take).collect(),
    }
}

struct Put {
    sender: Sender<Vec<Item>>,
    batch: Vec<Item>,
}

impl Put {
    fn send(&mut self) {
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        // Without consumers, as after a panic, nobody wants it.
        let _ = self.sender.send(batch);
    }
}

impl Producer for Put {
    fn put(&mut self, item: Item) {
        self.batch.push(item);
        if self.batch.len() == BATCH {
            self.send();
        }
    }
}

impl Drop for Put {
    fn drop(&mut self) {
        self.send();
    }
}

struct Take {
    receiver: Receiver<Vec<Item>>,
    batch: vec::IntoIter<Item>,
}

impl Consumer for Take {
    fn take(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.batch.next() {
                return Some(item);
            }
            self.batch = self.receiver.recv().ok()?.into_iter();
        }
    }
}
