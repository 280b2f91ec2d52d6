//! The indexes that the paper compares with: linear, extendible and lazy-split hashing, by pages.

use super::{
    buffer::{Buffer, Policy},
    device::Counts,
    groups::address,
    index::Index,
    theory::{BUCKET_RECORDS, LOAD},
};
use crate::dice::Dice;

/// Pages of overflow chains have numbers from here on.
const OVERFLOW: u64 = 1 << 40;
/// Largest number of pages of a chain.
const CHAIN_PAGES: u64 = 64;

/// Returns the number of records above which an index with so many buckets grows.
pub fn records_max(buckets: u64) -> f64 {
    LOAD * f64::from(BUCKET_RECORDS) * buckets as f64
}

/// Returns the number of pages of a chain with so many records.
fn pages(records: u32) -> u64 {
    u64::from(records.div_ceil(BUCKET_RECORDS).max(1))
}

/// Linear hashing: one bucket is split at a time, in order.
#[derive(Clone, Debug)]
pub struct Linear {
    buffer: Buffer,
    dice: Dice,
    records: u64,
    buckets: Vec<u32>,
}

impl Linear {
    pub fn new(buffer: Buffer, dice: Dice) -> Linear {
        Linear { buffer, dice, records: 0, buckets: vec![0; 2] }
    }

    pub fn set_policy(&mut self, policy: Policy) {
        self.buffer.set_policy(policy);
    }

    pub fn set_memory(&mut self, pages: usize) {
        self.buffer.resize(pages);
    }

    /// Returns the number of records of each bucket.
    #[cfg(test)]
    pub fn buckets(&self) -> &[u32] {
        &self.buckets
    }

    fn page(bucket: u64, i: u64) -> u64 {
        if i == 0 { bucket } else { OVERFLOW + bucket * CHAIN_PAGES + i }
    }

    /// Reads the first pages of a chain.
    fn fetch(&mut self, bucket: u64, count: u64) {
        (0..count).for_each(|i| self.buffer.fetch(Linear::page(bucket, i)));
    }

    fn split(&mut self) {
        let new = self.buckets.len() as u64;
        let old = new - (1 << new.ilog2());
        let records = self.buckets[old as usize];
        self.fetch(old, pages(records));
        let moved = self.dice.half(records);
        self.buckets[old as usize] = records - moved;
        self.buckets.push(moved);
        (pages(records - moved)..pages(records))
            .for_each(|i| self.buffer.forget(Linear::page(old, i)));
        (0..pages(records - moved)).for_each(|i| self.buffer.modify(Linear::page(old, i)));
        (0..pages(moved)).for_each(|i| self.buffer.create(Linear::page(new, i)));
    }

    /// Returns the bucket of a hash, its records, and the page of its chain with the record.
    fn find(&self, hash: u64) -> (u64, u64) {
        let bucket = address(hash, self.buckets.len() as u64);
        let records = self.buckets[bucket as usize];
        (bucket, self.dice.below(u64::from(records.max(1))) / u64::from(BUCKET_RECORDS))
    }
}

impl Index for Linear {
    fn insert(&mut self, hash: u64) {
        self.records += 1;
        if self.records as f64 > records_max(self.buckets.len() as u64) {
            self.split();
        }
        let bucket = address(hash, self.buckets.len() as u64);
        let records = self.buckets[bucket as usize];
        self.fetch(bucket, pages(records));
        self.buckets[bucket as usize] += 1;
        let last = Linear::page(bucket, pages(records + 1) - 1);
        if pages(records + 1) > pages(records) {
            self.buffer.create(last);
        } else {
            self.buffer.modify(last);
        }
    }

    fn update(&mut self, hash: u64) {
        let (bucket, page) = self.find(hash);
        self.fetch(bucket, page);
        self.buffer.modify(Linear::page(bucket, page));
    }

    fn search(&mut self, hash: u64) {
        let (bucket, page) = self.find(hash);
        self.fetch(bucket, page + 1);
    }

    fn miss(&mut self, hash: u64) {
        let bucket = address(hash, self.buckets.len() as u64);
        self.fetch(bucket, pages(self.buckets[bucket as usize]));
    }

    fn counts(&self) -> Counts {
        self.buffer.counts
    }

    fn fork(&self) -> Box<dyn Index> {
        Box::new(self.clone())
    }
}

/// Pages found by the low bits of a hash, each with a depth of its own.
#[derive(Clone, Debug)]
pub struct Directory {
    /// Number of the page of each value of the low bits.
    slots: Vec<u32>,
    depths: Vec<u32>,
}

impl Directory {
    pub fn new() -> Directory {
        Directory { slots: vec![0], depths: vec![0] }
    }

    pub fn find(&self, hash: u64) -> usize {
        self.slots[hash as usize & (self.slots.len() - 1)] as usize
    }

    /// Splits a page by the next bit. Returns the new page, for hashes with that bit set.
    pub fn split(&mut self, page: usize, hash: u64) -> usize {
        let depth = self.depths[page];
        if self.slots.len() == 1 << depth {
            self.slots.extend_from_within(..);
        }
        let new = self.depths.len();
        self.depths[page] += 1;
        self.depths.push(depth + 1);
        let first = (hash & ((1 << depth) - 1)) | 1 << depth;
        for slot in self.slots.iter_mut().skip(first as usize).step_by(2 << depth) {
            *slot = new as u32;
        }
        new
    }
}

/// Extendible hashing, with its directory in memory.
#[derive(Clone, Debug)]
pub struct Extendible {
    buffer: Buffer,
    dice: Dice,
    directory: Directory,
    buckets: Vec<u32>,
}

impl Extendible {
    pub fn new(buffer: Buffer, dice: Dice) -> Extendible {
        Extendible { buffer, dice, directory: Directory::new(), buckets: vec![0] }
    }
}

impl Index for Extendible {
    fn insert(&mut self, hash: u64) {
        loop {
            let bucket = self.directory.find(hash);
            self.buffer.fetch(bucket as u64);
            if self.buckets[bucket] < BUCKET_RECORDS {
                self.buckets[bucket] += 1;
                self.buffer.modify(bucket as u64);
                return;
            }
            let new = self.directory.split(bucket, hash);
            let moved = self.dice.half(self.buckets[bucket]);
            self.buckets[bucket] -= moved;
            self.buckets.push(moved);
            self.buffer.modify(bucket as u64);
            self.buffer.create(new as u64);
        }
    }

    fn update(&mut self, hash: u64) {
        self.buffer.modify(self.directory.find(hash) as u64);
    }

    fn search(&mut self, hash: u64) {
        self.buffer.fetch(self.directory.find(hash) as u64);
    }

    fn miss(&mut self, hash: u64) {
        self.search(hash);
    }

    fn counts(&self) -> Counts {
        self.buffer.counts
    }

    fn fork(&self) -> Box<dyn Index> {
        Box::new(self.clone())
    }
}

/// Lazy-split hashing: buckets are added to the lists of old ones, and all lists are split when there
/// are four times as many buckets.
#[derive(Clone, Debug)]
pub struct LazySplit {
    buffer: Buffer,
    dice: Dice,
    records: u64,
    buckets: u64,
    /// Records of each list; their number is a power of four.
    lists: Vec<u32>,
}

impl LazySplit {
    pub fn new(buffer: Buffer, dice: Dice) -> LazySplit {
        LazySplit { buffer, dice, records: 0, buckets: 1, lists: vec![0] }
    }

    fn page(&self, list: u64, i: u64) -> u64 {
        let bucket = list + i * self.lists.len() as u64;
        if bucket < self.buckets { bucket } else { OVERFLOW + list * CHAIN_PAGES + i }
    }

    fn fetch(&mut self, list: u64, count: u64) {
        (0..count).for_each(|i| self.buffer.fetch(self.page(list, i)));
    }

    fn grow(&mut self) {
        self.buckets += 1;
        if self.buckets < 4 * self.lists.len() as u64 {
            return;
        }
        let old = self.lists.len();
        let mut lists = vec![0; 4 * old];
        for list in 0..old {
            let records = self.lists[list];
            self.fetch(list as u64, pages(records));
            (4..pages(records)).for_each(|i| self.buffer.forget(self.page(list as u64, i)));
            let high = self.dice.half(records);
            for (half, first) in [(records - high, list), (high, list + 2 * old)] {
                let upper = self.dice.half(half);
                lists[first] = half - upper;
                lists[first + old] = upper;
            }
        }
        self.lists = lists;
        (0..self.buckets).for_each(|bucket| self.buffer.create(bucket));
    }

    fn find(&self, hash: u64) -> (u64, u64) {
        let list = address(hash, self.lists.len() as u64);
        let records = self.lists[list as usize];
        (list, self.dice.below(u64::from(records.max(1))) / u64::from(BUCKET_RECORDS))
    }
}

impl Index for LazySplit {
    fn insert(&mut self, hash: u64) {
        self.records += 1;
        if self.records as f64 > records_max(self.buckets) {
            self.grow();
        }
        let list = address(hash, self.lists.len() as u64);
        let records = self.lists[list as usize];
        self.fetch(list, pages(records));
        self.lists[list as usize] += 1;
        let last = self.page(list, pages(records + 1) - 1);
        if pages(records + 1) > pages(records) {
            self.buffer.create(last);
        } else {
            self.buffer.modify(last);
        }
    }

    fn update(&mut self, hash: u64) {
        let (list, page) = self.find(hash);
        self.fetch(list, page);
        self.buffer.modify(self.page(list, page));
    }

    fn search(&mut self, hash: u64) {
        let (list, page) = self.find(hash);
        self.fetch(list, page + 1);
    }

    fn miss(&mut self, hash: u64) {
        let list = address(hash, self.lists.len() as u64);
        self.fetch(list, pages(self.lists[list as usize]));
    }

    fn counts(&self) -> Counts {
        self.buffer.counts
    }

    fn fork(&self) -> Box<dyn Index> {
        Box::new(self.clone())
    }
}
