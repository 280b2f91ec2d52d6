//! The writes of a transaction that are in RAM: the last one of each key.

use super::{
    Expiring, Write,
    core::Core,
    item::{Content, Value},
    large::{OWNER_BYTES, Owner},
    log::{self, RECORD_SIZE_MAX},
    lookup::resolve,
    pointer::{INLINE_BYTES_MAX, Pointer},
};
use crate::{error::Result, key::KeyHash};
use std::collections::BTreeMap;

/// Memory of a write without its key and its value, in bytes: nodes of the tree are two thirds full, and an
/// allocator takes some bytes for a key and for a value.
const WRITE_BYTES: usize = size_of::<((KeyHash, Vec<u8>), KeptWrite)>() / 2 * 3 + 32;
/// A part has a fence for each this number of bytes. A lookup reads the bytes from one fence to the next.
const FENCE_BYTES: usize = if cfg!(test) { 512 } else { 16 << 10 };

/// Writes in order of (hash, key).
#[derive(Debug, Default)]
pub(super) struct Kept {
    writes: BTreeMap<(KeyHash, Vec<u8>), KeptWrite>,
    /// Memory of the writes, in bytes.
    memory: usize,
    /// Sum of [`Write::size`].
    size: u64,
}

#[derive(Debug)]
struct KeptWrite {
    value: KeptValue,
    expires_at: Option<u64>,
}

#[derive(Debug)]
enum KeptValue {
    /// The key is deleted.
    Tombstone,
    /// The value, also if it is large.
    Bytes(Vec<u8>),
    /// The place of a large value that is on the device.
    Large(Pointer, Owner),
}

/// The first of the writes, encoded as a part of a record.
#[derive(Debug, Default)]
pub(super) struct EncodedPart {
    pub(super) bytes: Vec<u8>,
    /// The hashes of the changes.
    pub(super) hashes: Vec<KeyHash>,
    pub(super) fences: Vec<Fence>,
}

/// A place in a part where a change begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fence {
    /// The high half of the hash of the change.
    pub(super) high: u64,
    /// Offset of the change in the part.
    pub(super) offset: u32,
}

impl KeptWrite {
    /// Returns the write of a key.
    ///
    /// # Panics
    /// If it is that of a large value on the device.
    fn as_write<'a>(&'a self, key: &'a [u8]) -> Write<'a> {
        let value = match &self.value {
            KeptValue::Tombstone => None,
            KeptValue::Bytes(value) => Some(&value[..]),
            KeptValue::Large(..) => panic!("the caller has written none to the device"),
        };
        Write { key, value, expires_at: self.expires_at }
    }

    /// Returns the content as the log holds it, and the owner of a large value on the device.
    fn content(&self) -> (Content<'_>, Option<&Owner>) {
        let expires_at = self.expires_at;
        match &self.value {
            KeptValue::Tombstone => (Content::TOMBSTONE, None),
            KeptValue::Bytes(value) => (Content { value: Value::Inline(value), expires_at }, None),
            KeptValue::Large(pointer, owner) => {
                (Content { value: Value::Large(*pointer), expires_at }, Some(owner))
            }
        }
    }

    /// Returns the memory in bytes, and the maximum size when it is encoded.
    fn sizes(&self, key: &[u8]) -> (usize, u64) {
        let (memory, size) = match &self.value {
            KeptValue::Tombstone => (0, log::size_max(key, None)),
            KeptValue::Bytes(value) => (value.len(), log::size_max(key, Some(value))),
            KeptValue::Large(..) => (OWNER_BYTES, log::size_of_large(key)),
        };
        (WRITE_BYTES + key.len() + memory, size as u64)
    }
}

impl Kept {
    /// Adds a write, which replaces an older one of the key.
    pub(super) fn insert(&mut self, hash: KeyHash, Write { key, value, expires_at }: Write<'_>) {
        let value = value.map_or(KeptValue::Tombstone, |value| KeptValue::Bytes(value.to_vec()));
        let write = KeptWrite { value, expires_at };
        self.count_in(write.sizes(key));
        if let Some(replaced) = self.writes.insert((hash, key.to_vec()), write) {
            self.count_out(replaced.sizes(key));
        }
    }

    fn count_in(&mut self, (memory, size): (usize, u64)) {
        self.memory += memory;
        self.size += size;
    }

    fn count_out(&mut self, (memory, size): (usize, u64)) {
        self.memory -= memory;
        self.size -= size;
    }

    /// Returns the number of writes.
    pub(super) fn len(&self) -> usize {
        self.writes.len()
    }

    /// Returns the memory of the writes, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    /// Returns the maximum size of the encoded writes, in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the value that the writes give a key, if they have the key.
    pub(super) fn find(
        &self,
        core: &Core,
        (hash, key): (KeyHash, &[u8]),
    ) -> Result<Option<Option<Expiring>>> {
        let Some(write) = self.writes.get(&(hash, key.to_vec())) else { return Ok(None) };
        let (content, owner) = write.content();
        resolve(core, content.at(core.now()), owner).map(Some)
    }

    /// Returns the writes.
    ///
    /// # Panics
    /// If some have large values on the device.
    pub(super) fn writes(&self) -> Vec<Write<'_>> {
        self.writes.iter().map(|((_, key), write)| write.as_write(key)).collect()
    }

    /// Writes large values to blocks of their own, which frees their memory. After an error, some are
    /// written and all are still there.
    pub(super) fn write_large(&mut self, core: &Core) -> Result<()> {
        for ((_, key), write) in &mut self.writes {
            if let KeptValue::Bytes(value) = &write.value
                && value.len() > INLINE_BYTES_MAX
            {
                let (pointer, owner) = core.write_large(value)?;
                let before = write.sizes(key);
                write.value = KeptValue::Large(pointer, owner);
                let after = write.sizes(key);
                self.memory = self.memory + after.0 - before.0;
                self.size = self.size + after.1 - before.1;
            }
        }
        Ok(())
    }

    /// Encodes the first writes as a part of a record. Returns `None` if the writes are too few for a part.
    /// No large value is in RAM.
    pub(super) fn first_part(&self) -> Option<EncodedPart> {
        let mut part = EncodedPart::default();
        part.bytes.reserve_exact(RECORD_SIZE_MAX.min(self.size as usize));
        let mut fence_from = 0;
        for ((hash, key), write) in &self.writes {
            let offset = part.bytes.len();
            if offset + write.sizes(key).1 as usize > RECORD_SIZE_MAX {
                break;
            }
            if offset >= fence_from {
                part.fences.push(Fence { high: hash.high(), offset: offset as u32 });
                fence_from = offset + FENCE_BYTES;
            }
            log::encode(&mut part.bytes, key, write.content().0);
            part.hashes.push(*hash);
        }
        // A part is a large value, which has a minimum size.
        (part.bytes.len() > INLINE_BYTES_MAX).then_some(part)
    }

    /// Removes the first `count` writes. Calls `keep` with the owners of their large values.
    pub(super) fn remove_first(&mut self, count: usize, mut keep: impl FnMut(&Owner)) {
        for _ in 0..count {
            let ((_, key), write) = self.writes.pop_first().expect("there are as many writes");
            self.count_out(write.sizes(&key));
            write.content().1.into_iter().for_each(&mut keep);
        }
    }

    /// Appends all writes to the payload of a record. No large value is in RAM.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for ((_, key), write) in &self.writes {
            log::encode(out, key, write.content().0);
        }
    }

    /// Returns the owners of large values on the device.
    pub(super) fn owners(&self) -> impl Iterator<Item = &Owner> {
        self.writes.values().filter_map(|write| write.content().1)
    }
}
