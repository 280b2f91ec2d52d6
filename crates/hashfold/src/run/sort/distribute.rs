//! Entries to buckets by the first bits of their hashes; a bucket that is too large is divided.

use super::{
    bucket::{Bucket, Drain},
    encode::{Encoded, Hasher},
    options::{AHEAD_MAX, MemoryPlan},
    spill::Spill,
};
use crate::{
    error::{Error, ErrorKind, Result},
    key::KeyHash,
    run::Duplicates,
};
use std::collections::BTreeMap;

/// The buckets of a sort: distributes entries to them by hash.
#[derive(Debug)]
pub(super) struct Distributor {
    pub(super) spill: Spill,
    pub(super) hasher: Hasher,
    plan: MemoryPlan,
    /// The buckets that are being filled, in hash order.
    open: Vec<Bucket>,
    /// Number of bits that a hash is shifted right by; the low bits of the result are the index of
    /// its open bucket.
    shift: u32,
    /// Whether fewer buckets are open than the plan has: they suffice for little data, and take
    /// little memory.
    is_narrow: bool,
    /// The full buckets, a stack with the next bucket on top. They come after the open buckets in hash
    /// order.
    closed: Vec<Bucket>,
}

impl Distributor {
    /// Makes a distributor that is open for entries with any hash.
    pub(super) fn new(spill: Spill, hasher: Hasher, plan: MemoryPlan) -> Distributor {
        let mut new = Distributor {
            spill,
            hasher,
            plan,
            open: Vec::new(),
            shift: 0,
            is_narrow: true,
            closed: Vec::new(),
        };
        new.open(0, 0);
        new
    }

    /// Opens `1 << bucket_bits` buckets for entries whose hashes share `prefix_bits` leading bits.
    fn open(&mut self, prefix_bits: u32, bucket_bits: u32) {
        self.open.resize_with(1 << bucket_bits, Bucket::default);
        // One bucket takes all hashes, whatever the shift is.
        self.shift = (u128::BITS - prefix_bits).saturating_sub(bucket_bits.max(1));
    }

    /// Opens more buckets, in place of the first few.
    fn widen(&mut self) -> Result<()> {
        assert!(self.closed.is_empty());
        self.is_narrow = false;
        let narrow = std::mem::take(&mut self.open);
        let bucket_bits = self.plan.wider(narrow.len().ilog2());
        self.open(0, bucket_bits);
        // A closed bucket can be spilled until it is redistributed.
        self.closed.extend(narrow.into_iter().rev());
        while let Some(bucket) = self.closed.pop() {
            self.refill(bucket)?;
        }
        self.is_narrow = bucket_bits < self.plan.bucket_bits;
        Ok(())
    }

    /// Distributes the entries of a bucket to the open buckets.
    fn refill(&mut self, bucket: Bucket) -> Result<()> {
        let mut entries = self.drain(bucket)?;
        while let Some((key, value)) = entries.next(&mut self.spill)? {
            self.push(key, value)?;
        }
        Ok(())
    }

    /// Appends an entry to its bucket.
    #[inline]
    pub(super) fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let hash = self.hasher.hash(key);
        let index = (hash.bits() >> self.shift) as usize & (self.open.len() - 1);
        self.push_to(index, hash, key, value)
    }

    #[inline]
    fn push_to(
        &mut self,
        index: usize,
        hash: KeyHash,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<()> {
        let entry = Encoded::new(key, value);
        let bucket = &mut self.open[index];
        bucket.count(hash);
        if let Some(room) = bucket.reserve(entry.len()) {
            entry.write(room);
            return Ok(());
        }
        self.push_across(index, entry)
    }

    /// Appends an entry that does not fit into the last chunk of its bucket.
    #[cold]
    fn push_across(&mut self, index: usize, entry: Encoded<'_>) -> Result<()> {
        for part in entry.parts() {
            let mut rest = self.open[index].fill(part);
            while !rest.is_empty() {
                let reserve_bytes = self.reserve_bytes();
                // A bucket that grows needs more memory to be loaded, so one batch may not be
                // enough.
                while self.spill.is_low(reserve_bytes) && self.spill_batch()? {}
                let chunk = self.spill.chunk()?;
                self.open[index].add_chunk(chunk);
                rest = self.open[index].fill(rest);
            }
        }
        if self.is_narrow
            && self.spill.memory_bytes() >= self.plan.narrow_bytes(self.open.len().ilog2())
        {
            self.widen()?;
        }
        Ok(())
    }

    /// Returns the memory for loading one bucket while the next ones are being loaded, in bytes.
    fn reserve_bytes(&self) -> usize {
        let buckets = self.open.iter().chain(&self.closed);
        let largest = buckets.map(Bucket::memory_bytes).max().unwrap_or(0);
        (1 + AHEAD_MAX) * largest
    }

    /// Spills the chunks that will be needed last; returns `false` if there are none.
    fn spill_batch(&mut self) -> Result<bool> {
        let closed = self.closed.iter_mut().map(|bucket| (bucket.chunks.len(), bucket));
        let open = self.open.iter_mut().rev().map(|bucket| (bucket.full_chunks(), bucket));
        let mut batch = Vec::with_capacity(self.plan.batch_chunks);
        for (chunks, bucket) in closed.chain(open) {
            let count = chunks.min(self.plan.batch_chunks - batch.len());
            batch.extend(bucket.spill_chunks(count, &mut self.spill));
            if batch.len() == self.plan.batch_chunks {
                break;
            }
        }
        let is_any = !batch.is_empty();
        self.spill.write(batch)?;
        Ok(is_any)
    }

    /// Ends the input.
    pub(super) fn close(&mut self) -> Result<()> {
        self.is_narrow = false;
        let open = std::mem::take(&mut self.open);
        self.closed.extend(open.into_iter().rev().filter(|bucket| bucket.entries > 0));
        self.spill.flush()?;
        self.spill.shrink();
        Ok(())
    }

    pub(super) fn plan(&self) -> &MemoryPlan {
        &self.plan
    }

    /// Returns the bucket that is next in hash order.
    pub(super) fn peek(&self) -> Option<&Bucket> {
        self.closed.last()
    }

    /// Takes the bucket that is next in hash order.
    pub(super) fn pop(&mut self) -> Option<Bucket> {
        self.closed.pop()
    }

    /// Drops all entries.
    pub(super) fn clear(&mut self) {
        self.closed.clear();
    }

    /// Starts to read a bucket entry by entry. At least half of the pool is left for new buckets.
    fn drain(&mut self, mut bucket: Bucket) -> Result<Drain> {
        while bucket.chunks.len() > self.plan.chunk_count / 2 {
            let batch = bucket.spill_chunks(self.plan.batch_chunks, &mut self.spill).collect();
            self.spill.write(batch)?;
        }
        // The chunks that have been written are free from here on.
        self.spill.flush()?;
        Ok(Drain::new(bucket))
    }

    /// Distributes the entries of a bucket, whose hashes differ, to buckets with longer prefixes.
    pub(super) fn split(&mut self, bucket: Bucket) -> Result<()> {
        assert!(bucket.only_hash().is_none());
        self.open(bucket.prefix_bits(), self.plan.bucket_bits);
        self.refill(bucket)?;
        self.close()
    }

    /// Takes the smallest keys, with their last values, out of a bucket of entries with equal
    /// hashes: as many as fit into `bytes_max`, but at least one. The other entries become a new
    /// bucket.
    pub(super) fn settle(
        &mut self,
        bucket: Bucket,
        bytes_max: usize,
        duplicates: Duplicates,
    ) -> Result<Settled> {
        let hash = bucket.only_hash().expect("a bucket to settle has one hash");
        let mut settled = Settled::default();
        // Keys from this one on are left to the new bucket.
        let mut end: Option<Vec<u8>> = None;
        self.open = vec![Bucket::default()];
        let mut entries = self.drain(bucket)?;
        while let Some((key, value)) = entries.next(&mut self.spill)? {
            if end.as_deref().is_some_and(|end| key >= end) {
                self.push_to(0, hash, key, value)?;
                continue;
            }
            if !settled.insert(key, value) && duplicates == Duplicates::Refuse {
                return Err(Error::new(ErrorKind::DuplicateKey { key: key.into() }));
            }
            while settled.bytes > bytes_max && settled.entries.len() > 1 {
                let (key, value) = settled.pop_last();
                self.push_to(0, hash, &key, value.as_deref())?;
                end = Some(key);
            }
        }
        settled.left = self.open[0].entries;
        self.close()?;
        Ok(settled)
    }
}

/// Distinct keys with the same hash, in order, and their last values.
#[derive(Debug, Default)]
pub(super) struct Settled {
    pub(super) entries: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Memory that the entries take, in bytes.
    bytes: usize,
    /// Number of entries left for later passes.
    pub(super) left: u64,
}

/// Approximate memory of an entry in the map besides its key and value, in bytes.
const MAP_ENTRY_BYTES: usize = 128;

impl Settled {
    /// Inserts an entry; returns whether the key is new.
    fn insert(&mut self, key: &[u8], value: Option<&[u8]>) -> bool {
        self.bytes += value.map_or(0, <[u8]>::len);
        let old = self.entries.insert(key.to_vec(), value.map(<[u8]>::to_vec));
        match &old {
            Some(value) => self.bytes -= value.as_ref().map_or(0, Vec::len),
            None => self.bytes += key.len() + MAP_ENTRY_BYTES,
        }
        old.is_none()
    }

    fn pop_last(&mut self) -> (Vec<u8>, Option<Vec<u8>>) {
        let (key, value) = self.entries.pop_last().expect("there is one");
        self.bytes -= key.len() + value.as_ref().map_or(0, Vec::len) + MAP_ENTRY_BYTES;
        (key, value)
    }
}
