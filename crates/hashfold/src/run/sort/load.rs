//! One bucket of a sort in memory, sorted.

use super::{
    bucket::Bucket,
    distribute::Settled,
    encode::{Encoded, EntryOffsets, Hasher},
    slot::{SLOT_BYTES, SortSlot},
    spill::SpillFile,
};
use crate::{
    error::{ErrorKind, Result},
    io::Buffer,
    key::KeyHash,
    run::{
        Duplicates, Entry,
        prefetch::{CACHE_LINE_BYTES, prefetch},
    },
};

/// Number of entries by which the prefetch runs ahead.
const PREFETCH_DISTANCE: usize = 8;

/// The memory for loading a bucket. Fresh memory costs the system as much as the sort, so the
/// memory of one bucket is reused for another.
#[derive(Debug)]
pub(super) struct LoadMemory {
    bytes: Buffer,
    slots: Vec<SortSlot>,
}

impl LoadMemory {
    pub(super) fn empty() -> LoadMemory {
        LoadMemory { bytes: Buffer::zeroed(0), slots: Vec::new() }
    }

    /// Returns the size of the memory, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.slots.capacity() * SLOT_BYTES
    }

    /// Returns memory for this many bytes and slots. The existing memory is kept unless it is too
    /// small or more than twice too large.
    fn fit(self, bytes: usize, slots: usize) -> LoadMemory {
        let fits = |have: usize, want: usize| want <= have && have / 2 <= want;
        LoadMemory {
            bytes: match fits(self.bytes.len(), bytes) {
                true => self.bytes,
                false => Buffer::zeroed(bytes),
            },
            slots: match fits(self.slots.capacity(), slots) {
                true => self.slots,
                false => Vec::with_capacity(slots),
            },
        }
    }
}

/// A bucket in memory, sorted.
#[derive(Debug)]
pub(super) struct Loaded {
    bytes: Buffer,
    slots: Vec<SortSlot>,
    /// Number of entries that were dropped because a later one has the same key.
    pub(super) duplicates: u64,
    /// The bucket's chunks, which can be reused.
    pub(super) chunks: Vec<Buffer>,
    hasher: Hasher,
    /// Index of the next slot.
    next: usize,
    /// The current entry.
    current: Option<(KeyHash, EntryOffsets)>,
}

impl Loaded {
    pub(super) fn empty(hasher: Hasher) -> Loaded {
        let LoadMemory { bytes, slots } = LoadMemory::empty();
        let chunks = Vec::new();
        Loaded { bytes, slots, duplicates: 0, chunks, hasher, next: 0, current: None }
    }

    /// Returns the memory of a bucket that has been emitted.
    pub(super) fn into_memory(self) -> LoadMemory {
        LoadMemory { bytes: self.bytes, slots: self.slots }
    }

    /// Loads and sorts a bucket.
    pub(super) fn load(
        bucket: Bucket,
        file: Option<&SpillFile>,
        memory: LoadMemory,
        hasher: Hasher,
        duplicates: Duplicates,
    ) -> Result<Loaded> {
        let (len, entries) = (bucket.bytes as usize, bucket.entries as usize);
        let memory = memory.fit(gathered_bytes(&bucket, file), entries);
        let (mut bytes, mut slots) = (memory.bytes, memory.slots);
        let chunks = gather(bucket, file, &mut bytes)?;
        index(&bytes[..len], entries, hasher, &mut slots)?;
        let mut loaded = Loaded { bytes, slots, chunks, ..Loaded::empty(hasher) };
        loaded.slots.sort_unstable();
        loaded.resolve(duplicates)?;
        Ok(loaded)
    }

    /// Sorts the keys that were collected from a bucket of `count` entries with equal hashes.
    pub(super) fn settle(settled: Settled, count: u64, hasher: Hasher) -> Result<Loaded> {
        let (keys, left) = (settled.entries.len(), settled.left);
        let len =
            |(key, value): (&Vec<u8>, &Option<Vec<u8>>)| Encoded::new(key, value.as_deref()).len();
        let mut bytes = Buffer::zeroed(settled.entries.iter().map(len).sum());
        let mut rest = &mut bytes[..];
        for (key, value) in settled.entries {
            let entry = Encoded::new(&key, value.as_deref());
            let (room, behind) = rest.split_at_mut(entry.len());
            entry.write(room);
            rest = behind;
        }
        let mut slots = Vec::with_capacity(keys);
        index(&bytes, keys, hasher, &mut slots)?;
        slots.sort_unstable();
        let duplicates = count - keys as u64 - left;
        Ok(Loaded { bytes, slots, duplicates, ..Loaded::empty(hasher) })
    }

    /// Sorts slots with equal high halves by the whole hash and the key, and keeps the last entry
    /// of each key.
    fn resolve(&mut self, duplicates: Duplicates) -> Result<()> {
        let (bytes, hasher) = (&self.bytes[..], self.hasher);
        let key = |slot: &SortSlot| {
            let offsets = EntryOffsets::read(bytes, slot.offset()).expect("it was read before");
            offsets.key(bytes)
        };
        let mut kept = 0;
        let mut start = 0;
        while start < self.slots.len() {
            let high = self.slots[start].high();
            let group = self.slots[start..].iter().take_while(|slot| slot.high() == high).count();
            let end = start + group;
            if group > 1 {
                self.slots[start..end].sort_unstable_by(|a, b| {
                    let (key_a, key_b) = (key(a), key(b));
                    let (low_a, low_b) = (hasher.hash(key_a).low(), hasher.hash(key_b).low());
                    (low_a, key_a, a.offset()).cmp(&(low_b, key_b, b.offset()))
                });
            }
            for i in start..end {
                let slot = self.slots[i];
                if i + 1 < end && key(&slot) == key(&self.slots[i + 1]) {
                    if duplicates == Duplicates::Refuse {
                        return Err(ErrorKind::DuplicateKey { key: key(&slot).into() }.into());
                    }
                    continue;
                }
                self.slots[kept] = slot;
                kept += 1;
            }
            start = end;
        }
        self.duplicates += (self.slots.len() - kept) as u64;
        self.slots.truncate(kept);
        Ok(())
    }

    /// Steps to the next entry; returns `false` at the end.
    #[inline]
    pub(super) fn advance(&mut self) -> bool {
        let Some(&slot) = self.slots.get(self.next) else {
            self.current = None;
            return false;
        };
        if let Some(ahead) = self.slots.get(self.next + PREFETCH_DISTANCE) {
            prefetch(&self.bytes, ahead.offset());
            prefetch(&self.bytes, ahead.offset() + CACHE_LINE_BYTES);
        }
        let offsets = EntryOffsets::read(&self.bytes, slot.offset()).expect("it was read before");
        self.current = Some((self.hasher.hash(offsets.key(&self.bytes)), offsets));
        self.next += 1;
        true
    }

    #[inline]
    pub(super) fn entry(&self) -> Entry<'_> {
        let (hash, offsets) = self.current.as_ref().expect("the last advance returned true");
        Entry { hash: *hash, key: offsets.key(&self.bytes), value: offsets.value(&self.bytes) }
    }
}

/// Returns the size of a bucket's chunks together, in bytes.
fn gathered_bytes(bucket: &Bucket, file: Option<&SpillFile>) -> usize {
    (bucket.spilled.len() + bucket.chunks.len()) * chunk_bytes(bucket, file)
}

fn chunk_bytes(bucket: &Bucket, file: Option<&SpillFile>) -> usize {
    match (file, bucket.chunks.front()) {
        (_, Some(chunk)) => chunk.len(),
        (Some(file), None) => file.chunk_bytes,
        (None, None) => unreachable!("a bucket's bytes are somewhere"),
    }
}

/// Copies all bytes of a bucket to `bytes`; returns its chunks.
fn gather(bucket: Bucket, file: Option<&SpillFile>, bytes: &mut [u8]) -> Result<Vec<Buffer>> {
    let chunk_bytes = chunk_bytes(&bucket, file);
    let (spilled, resident) = bytes.split_at_mut(bucket.spilled.len() * chunk_bytes);
    if let Some(file) = file {
        file.read(&bucket.spilled, spilled)?;
    }
    for (chunk, to) in bucket.chunks.iter().zip(resident.chunks_exact_mut(chunk_bytes)) {
        to.copy_from_slice(chunk);
    }
    Ok(bucket.chunks.into())
}

/// Fills `slots` with the hash and the offset of each entry.
fn index(bytes: &[u8], entries: usize, hasher: Hasher, slots: &mut Vec<SortSlot>) -> Result<()> {
    slots.clear();
    let mut offset = 0;
    while offset < bytes.len() {
        let offsets = EntryOffsets::read(bytes, offset)?;
        slots.push(SortSlot::new(hasher.hash(offsets.key(bytes)), offset));
        offset = offsets.end;
    }
    assert_eq!(slots.len(), entries);
    Ok(())
}
