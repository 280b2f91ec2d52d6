//! Several devices, each of which serves its requests one after the other.
//!
//! A fixed number of operations is in flight. Each sends its next request when the last one has ended. Time is
//! that of the NVMe cost table, in nanoseconds.

use super::device::{Device, NVME};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

/// Number of operations in flight.
pub const IN_FLIGHT: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
}

/// The size of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    Page,
    /// A group of this number of pages.
    Group(u64),
}

impl Size {
    pub fn pages(self) -> u64 {
        match self {
            Size::Page => 1,
            Size::Group(pages) => pages,
        }
    }
}

/// The requests of one device.
#[derive(Clone, Debug, Default)]
struct Queue {
    /// The ends of reads, in order. Reads that have ended may be among them.
    reads: VecDeque<u64>,
    /// The end of the last request.
    idle_at: u64,
    /// Numbers of reads and writes so far.
    counts: [u64; 2],
}

#[derive(Clone, Debug)]
pub struct Array {
    queues: Vec<Queue>,
    /// When the request of each operation in flight ends, and the number of the operation.
    pending: BinaryHeap<Reverse<(u64, usize)>>,
    now: u64,
}

impl Array {
    pub fn new(devices: usize) -> Array {
        Array {
            queues: vec![Queue::default(); devices],
            pending: (0..IN_FLIGHT).map(|operation| Reverse((0, operation))).collect(),
            now: 0,
        }
    }

    pub fn devices(&self) -> usize {
        self.queues.len()
    }

    pub fn now(&self) -> u64 {
        self.now
    }

    /// Waits for the first request that ends. Returns the number of its operation, below [`IN_FLIGHT`].
    pub fn next(&mut self) -> usize {
        let Reverse((end, operation)) = self.pending.pop().expect("operations are in flight");
        self.now = self.now.max(end);
        operation
    }

    /// Lets an operation wait until `end`.
    pub fn wait(&mut self, operation: usize, end: u64) {
        self.pending.push(Reverse((end, operation)));
    }

    /// Sends a request to a device. Returns when it ends.
    pub fn send(&mut self, device: usize, kind: Kind, size: Size) -> u64 {
        let queue = &mut self.queues[device];
        queue.idle_at = queue.idle_at.max(self.now) + nanoseconds(&NVME, kind, size);
        queue.counts[kind as usize] += 1;
        if kind == Kind::Read {
            queue.reads.push_back(queue.idle_at);
        }
        queue.idle_at
    }

    /// Returns the number of reads in flight on a device.
    pub fn reads_in_flight(&mut self, device: usize) -> usize {
        let reads = &mut self.queues[device].reads;
        while reads.front().is_some_and(|&end| end <= self.now) {
            reads.pop_front();
        }
        reads.len()
    }

    /// Returns how long a device is busy with what it has, in nanoseconds.
    pub fn busy_for(&self, device: usize) -> u64 {
        self.queues[device].idle_at.saturating_sub(self.now)
    }

    pub fn reads(&self, device: usize) -> u64 {
        self.queues[device].counts[Kind::Read as usize]
    }

    /// Returns the number of reads and writes of a device.
    pub fn requests(&self, device: usize) -> u64 {
        self.queues[device].counts.iter().sum()
    }

    /// Returns when all devices are idle, in microseconds.
    pub fn end(&self) -> f64 {
        self.queues.iter().map(|queue| queue.idle_at).max().unwrap_or(0) as f64 / 1e3
    }
}

fn nanoseconds(costs: &Device, kind: Kind, size: Size) -> u64 {
    let microseconds = match kind {
        Kind::Read => costs.read_pages(size.pages()),
        Kind::Write => costs.write_pages(size.pages()),
    };
    (microseconds * 1e3).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    /// All requests in a list, searched from its beginning.
    struct NaiveArray {
        sent: Vec<(usize, Kind, u64)>,
        pending: Vec<(u64, usize)>,
        now: u64,
    }

    impl NaiveArray {
        fn next(&mut self) -> usize {
            self.pending.sort_unstable();
            let (end, operation) = self.pending.remove(0);
            self.now = self.now.max(end);
            operation
        }

        fn sent_to(&self, device: usize) -> impl Iterator<Item = (Kind, u64)> {
            let mine = self.sent.iter().filter(move |(on, _, _)| *on == device);
            mine.map(|&(_, kind, end)| (kind, end))
        }

        fn send(&mut self, device: usize, kind: Kind, size: Size) -> u64 {
            let before = self.sent_to(device).map(|(_, end)| end).max().unwrap_or(0);
            let cost = match (kind, size) {
                (Kind::Read, Size::Page) => 68_000,
                (Kind::Write, Size::Page) => 54_000,
                (Kind::Read, Size::Group(_)) => 85_000,
                (Kind::Write, Size::Group(_)) => 75_000,
            };
            self.sent.push((device, kind, before.max(self.now) + cost));
            before.max(self.now) + cost
        }
    }

    #[test]
    fn queues_agree_with_a_list_of_all_requests() {
        let dice = Dice::new(1);
        let pending = (0..IN_FLIGHT).map(|operation| (0, operation)).collect();
        let (mut array, mut naive) =
            (Array::new(3), NaiveArray { sent: Vec::new(), pending, now: 0 });
        for _ in 0..2000 {
            let operation = naive.next();
            assert_eq!((array.next(), array.now()), (operation, naive.now));
            let device = dice.below(3).min(dice.below(3)) as usize;
            let kind = if dice.chance(0.7) { Kind::Read } else { Kind::Write };
            let size = if dice.chance(0.8) { Size::Page } else { Size::Group(16) };
            let end = naive.send(device, kind, size);
            assert_eq!(array.send(device, kind, size), end);
            array.wait(operation, end);
            naive.pending.push((end, operation));
            for device in 0..3 {
                let sent = || naive.sent_to(device);
                let in_flight = sent().filter(|&(kind, end)| kind == Kind::Read && end > naive.now);
                assert_eq!(array.reads_in_flight(device), in_flight.count());
                assert_eq!(array.requests(device) as usize, sent().count());
                let idle_at = sent().map(|(_, end)| end).max().unwrap_or(0);
                assert_eq!(array.busy_for(device), idle_at.saturating_sub(naive.now));
            }
        }
    }
}
