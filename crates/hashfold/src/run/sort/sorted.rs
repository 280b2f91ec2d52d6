//! All buckets of a sort, as a run.

use super::{
    bucket::Bucket,
    distribute::Distributor,
    load::{LoadMemory, Loaded},
    options::{AHEAD_MAX, MemoryPlan},
};
use crate::{
    error::Result,
    key::Seed,
    run::{Duplicates, Entry, Run, Summary},
    work::{Inline, Pending},
};
use std::collections::VecDeque;

/// The run that a [`Sorter`](super::Sorter) returns.
#[derive(Debug)]
pub struct Sorted {
    buckets: Distributor,
    plan: MemoryPlan,
    summary: Summary,
    policy: Duplicates,
    /// The bucket that is being emitted; the next field is its memory, in bytes.
    current: Loaded,
    current_bytes: usize,
    /// The buckets after the current one.
    ahead: VecDeque<LoadingBucket>,
    /// The memory of the bucket that was emitted last, for the next one to be loaded into.
    memory: LoadMemory,
    duplicates: u64,
}

/// A bucket that is being loaded.
#[derive(Debug)]
struct LoadingBucket {
    loaded: Pending<Result<Loaded>>,
    memory_bytes: usize,
}

impl Sorted {
    pub(super) fn new(buckets: Distributor, summary: Summary, policy: Duplicates) -> Sorted {
        Sorted {
            plan: *buckets.plan(),
            current: Loaded::empty(buckets.hasher),
            buckets,
            summary,
            policy,
            current_bytes: 0,
            ahead: VecDeque::new(),
            memory: LoadMemory::empty(),
            duplicates: 0,
        }
    }

    /// Returns the number of entries that were dropped so far because a later one has the same key.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Returns the number of bytes written to the spill files so far.
    pub fn spilled_bytes(&self) -> u64 {
        self.buckets.spill.spilled_bytes()
    }

    /// Makes the next bucket the current one; returns `false` at the end.
    fn next_bucket(&mut self) -> Result<bool> {
        let emitted = std::mem::replace(&mut self.current, Loaded::empty(self.buckets.hasher));
        self.memory = emitted.into_memory();
        self.current_bytes = 0;
        if self.ahead.is_empty() {
            self.load_next()?;
        }
        let Some(next) = self.ahead.pop_front() else { return Ok(false) };
        self.current_bytes = next.memory_bytes;
        self.load_ahead()?;
        self.memory = LoadMemory::empty();
        self.current = next.loaded.wait()?;
        self.current.chunks.drain(..).for_each(|chunk| self.buckets.spill.put_back(chunk));
        self.duplicates += self.current.duplicates;
        Ok(true)
    }

    /// Starts to load the next bucket when no other one is loaded. A bucket that is too large is
    /// split first.
    fn load_next(&mut self) -> Result<()> {
        while let Some(bucket) = self.buckets.pop() {
            if bucket.memory_bytes() > self.unused_bytes() {
                self.buckets.spill.shrink();
            }
            if bucket.memory_bytes() <= self.unused_bytes() || bucket.entries == 1 {
                return self.start(bucket);
            }
            // Splitting a bucket needs chunks, so the pool grows.
            self.memory = LoadMemory::empty();
            if bucket.only_hash().is_none() {
                self.buckets.split(bucket)?;
                continue;
            }
            let entries = bucket.entries;
            // One half for the collected keys, one half for their encoded bytes.
            let bytes_max =
                self.plan.memory_bytes.saturating_sub(self.buckets.spill.memory_bytes());
            let settled = self.buckets.settle(bucket, bytes_max / 2, self.policy)?;
            let hasher = self.buckets.hasher;
            let loaded = Pending::start(&Inline, move || Loaded::settle(settled, entries, hasher));
            self.ahead.push_back(LoadingBucket { loaded, memory_bytes: bytes_max });
            return Ok(());
        }
        Ok(())
    }

    /// Starts to load more buckets, if the executor has threads and there is memory.
    fn load_ahead(&mut self) -> Result<()> {
        let ahead_max = self.buckets.spill.executor().width().min(AHEAD_MAX);
        while self.ahead.len() < ahead_max
            && let Some(bucket) = self.buckets.peek()
            && bucket.memory_bytes() <= self.unused_bytes()
            && let Some(bucket) = self.buckets.pop()
        {
            self.start(bucket)?;
        }
        Ok(())
    }

    fn start(&mut self, bucket: Bucket) -> Result<()> {
        let (hasher, policy) = (self.buckets.hasher, self.policy);
        let file = self.buckets.spill.written()?;
        let mut memory = std::mem::replace(&mut self.memory, LoadMemory::empty());
        if memory.memory_bytes() > self.unused_bytes() {
            memory = LoadMemory::empty();
        }
        let memory_bytes = bucket.memory_bytes().max(memory.memory_bytes());
        let loaded = Pending::start(&**self.buckets.spill.executor(), move || {
            Loaded::load(bucket, file.as_ref(), memory, hasher, policy)
        });
        self.ahead.push_back(LoadingBucket { loaded, memory_bytes });
        Ok(())
    }

    /// Returns the unused part of the memory budget, in bytes. Free chunks count as used: giving
    /// memory back to the system is slow, so it is done only when memory is short.
    fn unused_bytes(&self) -> usize {
        let ahead_bytes: usize = self.ahead.iter().map(|ahead| ahead.memory_bytes).sum();
        let used = self.current_bytes + ahead_bytes + self.buckets.spill.memory_bytes();
        self.plan.memory_bytes.saturating_sub(used)
    }
}

impl Run for Sorted {
    fn seed(&self) -> Seed {
        self.buckets.hasher.seed
    }

    /// Returns exact sizes; duplicates count as entries.
    fn summary(&self) -> Summary {
        self.summary
    }

    fn advance(&mut self) -> Result<bool> {
        loop {
            if self.current.advance() {
                return Ok(true);
            }
            match self.next_bucket() {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) => {
                    self.ahead.clear();
                    self.buckets.clear();
                    return Err(error);
                }
            }
        }
    }

    fn entry(&self) -> Entry<'_> {
        self.current.entry()
    }
}
