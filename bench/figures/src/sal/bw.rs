//! A tree of pages with chains of changes, after the Bw-tree: blind writes, a log-structured store, and
//! consolidation of a chain of eight.

use super::{
    device::Counts,
    index::Index,
    rivals::Directory,
    theory::{BUCKET_RECORDS, LOG_RECORD_SIZE, PAGE_SIZE},
};
use crate::dice::Dice;
use std::collections::BTreeMap;

/// Number of changes after which a page is written anew.
const CHAIN: u32 = 8;
/// Size of a change on the device, and in memory with its pointer and header.
const CHANGE_BYTES: u64 = LOG_RECORD_SIZE as u64;
const CHANGE_MEMORY_BYTES: u64 = 40;
/// Size of an entry of the mapping table, which is in memory.
const MAPPING_BYTES: u64 = 8;
const RECORD_BYTES: u64 = 16;
/// Size of the header of whatever is appended to the store.
const HEADER_BYTES: u64 = 32;

#[derive(Clone, Debug, Default)]
struct Leaf {
    /// Records in the page and in all changes.
    records: u32,
    /// Changes in memory, since the last flush.
    changes: u32,
    /// Changes in each flushed part of the chain.
    parts: Vec<u32>,
    /// Last use of the page and the flushed parts, if they are in memory.
    cached: Option<u64>,
    /// Last use of the changes in memory, if there are any.
    changed: Option<u64>,
}

impl Leaf {
    fn cached_bytes(&self) -> u64 {
        u64::from(self.records) * RECORD_BYTES
    }
}

/// The simulated tree. A leaf is found by the low bits of a hash, so that a hot bucket is a hot leaf.
#[derive(Clone, Debug)]
pub struct BwTree {
    memory_bytes: u64,
    used_bytes: u64,
    counts: Counts,
    dice: Dice,
    directory: Directory,
    leaves: Vec<Leaf>,
    /// Leaves by the last use of their pages, and of their changes. Copies of pages are dropped first.
    cached: BTreeMap<u64, usize>,
    changed: BTreeMap<u64, usize>,
    now: u64,
}

impl BwTree {
    pub fn new(memory_pages: usize, dice: Dice) -> BwTree {
        BwTree {
            memory_bytes: memory_pages as u64 * PAGE_SIZE as u64,
            used_bytes: 0,
            counts: Counts::default(),
            dice,
            directory: Directory::new(),
            leaves: vec![Leaf::default()],
            cached: BTreeMap::new(),
            changed: BTreeMap::new(),
            now: 0,
        }
    }

    fn append(&mut self, bytes: u64) {
        self.counts.appended_bytes += bytes + HEADER_BYTES;
    }

    /// Reads the page and the flushed parts of its chain.
    fn load(&mut self, leaf: usize) {
        self.now += 1;
        let this = &mut self.leaves[leaf];
        if let Some(stamp) = this.cached.replace(self.now) {
            self.cached.remove(&stamp);
        } else {
            self.counts.reads += 1 + this.parts.len() as u64;
            self.used_bytes += this.cached_bytes();
        }
        self.cached.insert(self.now, leaf);
    }

    fn unload(&mut self, leaf: usize) {
        let this = &mut self.leaves[leaf];
        if let Some(stamp) = this.cached.take() {
            self.cached.remove(&stamp);
            self.used_bytes -= this.cached_bytes();
        }
    }

    /// Takes the changes in memory. Returns their number.
    fn take_changes(&mut self, leaf: usize) -> u32 {
        let this = &mut self.leaves[leaf];
        if let Some(stamp) = this.changed.take() {
            self.changed.remove(&stamp);
        }
        let changes = std::mem::take(&mut this.changes);
        self.used_bytes -= u64::from(changes) * CHANGE_MEMORY_BYTES;
        changes
    }

    fn change(&mut self, hash: u64, is_new: bool) {
        let leaf = self.directory.find(hash);
        self.now += 1;
        let this = &mut self.leaves[leaf];
        this.changes += 1;
        self.used_bytes += CHANGE_MEMORY_BYTES;
        if is_new {
            this.records += 1;
            self.used_bytes += if this.cached.is_some() { RECORD_BYTES } else { 0 };
        }
        if let Some(stamp) = this.changed.replace(self.now) {
            self.changed.remove(&stamp);
        }
        self.changed.insert(self.now, leaf);
        if this.changes + this.parts.iter().sum::<u32>() >= CHAIN {
            self.consolidate(leaf, hash);
        }
        self.shrink();
    }

    fn consolidate(&mut self, leaf: usize, hash: u64) {
        self.load(leaf);
        self.take_changes(leaf);
        self.leaves[leaf].parts.clear();
        let records = self.leaves[leaf].records;
        self.append(u64::from(records) * RECORD_BYTES);
        if records > BUCKET_RECORDS {
            self.unload(leaf);
            let new = self.directory.split(leaf, hash);
            let moved = self.dice.half(records);
            self.leaves[leaf].records -= moved;
            self.leaves.push(Leaf { records: moved, ..Leaf::default() });
            debug_assert_eq!(new + 1, self.leaves.len());
            self.counts.appended_bytes += HEADER_BYTES;
        }
    }

    fn shrink(&mut self) {
        while self.used_bytes + self.leaves.len() as u64 * MAPPING_BYTES > self.memory_bytes {
            if let Some((_, &leaf)) = self.cached.first_key_value() {
                self.unload(leaf);
            } else if let Some((_, &leaf)) = self.changed.first_key_value() {
                let changes = self.take_changes(leaf);
                self.leaves[leaf].parts.push(changes);
                self.append(u64::from(changes) * CHANGE_BYTES);
            } else {
                return;
            }
        }
    }
}

impl Index for BwTree {
    fn insert(&mut self, hash: u64) {
        self.change(hash, true);
    }

    fn update(&mut self, hash: u64) {
        self.change(hash, false);
    }

    fn search(&mut self, hash: u64) {
        let leaf = self.directory.find(hash);
        let this = &self.leaves[leaf];
        let mut place = self.dice.below(u64::from(this.records.max(1)));
        if place < u64::from(this.changes) {
            return;
        }
        place -= u64::from(this.changes);
        if this.cached.is_none() {
            for (i, &part) in this.parts.iter().rev().enumerate() {
                if place < u64::from(part) {
                    self.counts.reads += i as u64 + 1;
                    return;
                }
                place -= u64::from(part);
            }
        }
        self.load(leaf);
        self.shrink();
    }

    fn miss(&mut self, hash: u64) {
        self.load(self.directory.find(hash));
        self.shrink();
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn fork(&self) -> Box<dyn Index> {
        Box::new(self.clone())
    }
}
