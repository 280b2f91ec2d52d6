//! The chunks of one bucket of a sort, in memory and spilled.

use super::{
    encode::{EntryOffsets, KeyValue},
    slot::SLOT_BYTES,
    spill::{Spill, SpillChunk},
};
use crate::{
    error::Result,
    io::Buffer,
    key::KeyHash,
    run::prefetch::{CACHE_LINE_BYTES, prefetch},
};
use std::collections::VecDeque;

/// Entries whose hashes share a prefix, encoded in the order of their arrival.
///
/// The bytes are cut into chunks: the first chunks are in the spill file, the others in memory. An
/// entry may straddle chunks.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    pub(super) spilled: Vec<SpillChunk>,
    /// The chunks in memory. All but the last are full.
    pub(super) chunks: VecDeque<Buffer>,
    /// Number of free bytes in the last chunk.
    room: usize,
    /// Size of all entries, in bytes.
    pub(super) bytes: u64,
    pub(super) entries: u64,
    first: Option<KeyHash>,
    /// The bits in which some hash differs from the first hash.
    differing: u128,
}

impl Bucket {
    /// Counts the next entry, which has this hash.
    #[inline]
    pub(super) fn count(&mut self, hash: KeyHash) {
        self.entries += 1;
        let first = *self.first.get_or_insert(hash);
        self.differing |= first.bits() ^ hash.bits();
    }

    /// Returns the memory that loading the bucket takes besides its chunks, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes as usize + self.entries as usize * SLOT_BYTES
    }

    /// Returns the number of leading bits that all hashes share.
    pub(super) fn prefix_bits(&self) -> u32 {
        self.differing.leading_zeros()
    }

    /// Returns the hash of the entries if they all have the same hash.
    pub(super) fn only_hash(&self) -> Option<KeyHash> {
        self.first.filter(|_| self.differing == 0)
    }

    /// Returns the number of full chunks in memory; these will not change any more.
    pub(super) fn full_chunks(&self) -> usize {
        self.chunks.len() - usize::from(self.room > 0)
    }

    /// Returns the next `len` bytes, for the caller to fill, if they fit into the last chunk.
    #[inline]
    pub(super) fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
        if len > self.room {
            return None;
        }
        let chunk = self.chunks.back_mut()?;
        let start = chunk.len() - self.room;
        self.room -= len;
        self.bytes += len as u64;
        // Entries of other buckets will come first, so this line has time to arrive.
        prefetch(chunk, start + len + CACHE_LINE_BYTES);
        Some(&mut chunk[start..start + len])
    }

    /// Appends as many of `bytes` as fit into the last chunk, and returns the remaining bytes.
    pub(super) fn fill<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (head, rest) = bytes.split_at(bytes.len().min(self.room));
        if let Some(room) = self.reserve(head.len()) {
            room.copy_from_slice(head);
        }
        rest
    }

    /// Takes the first `count` chunks out of memory, with a place in the spill file for each; the
    /// caller must write them there.
    pub(super) fn spill_chunks(
        &mut self,
        count: usize,
        spill: &mut Spill,
    ) -> impl Iterator<Item = (SpillChunk, Buffer)> {
        self.chunks.drain(..count).map(|chunk| {
            let piece = spill.place();
            self.spilled.push(piece);
            (piece, chunk)
        })
    }

    /// Adds an empty chunk. The last chunk must be full.
    pub(super) fn add_chunk(&mut self, chunk: Buffer) {
        assert_eq!(self.room, 0);
        self.room = chunk.len();
        self.chunks.push_back(chunk);
    }
}

/// A reader that takes the entries out of a bucket in the order of their arrival. It frees the
/// bucket's memory and its part of the spill file on the way.
#[derive(Debug)]
pub(super) struct Drain {
    bucket: Bucket,
    /// The bytes of the bucket that are being read.
    window: Vec<u8>,
    /// Offset in the window after the last returned entry.
    taken: usize,
    /// Size of the entries that are not in the window yet, in bytes.
    unread_bytes: u64,
    /// Number of pieces of the bucket that have been read.
    pieces_read: usize,
}

impl Drain {
    pub(super) fn new(bucket: Bucket) -> Drain {
        Drain { unread_bytes: bucket.bytes, bucket, window: Vec::new(), taken: 0, pieces_read: 0 }
    }

    /// Returns the next key and value.
    pub(super) fn next(&mut self, spill: &mut Spill) -> Result<Option<KeyValue<'_>>> {
        loop {
            match EntryOffsets::read(&self.window, self.taken) {
                Ok(offsets) => {
                    self.taken = offsets.end;
                    return Ok(Some((offsets.key(&self.window), offsets.value(&self.window))));
                }
                Err(error) if self.unread_bytes == 0 => {
                    let is_end = self.taken == self.window.len();
                    return if is_end { Ok(None) } else { Err(error) };
                }
                // The next entry goes on in the next piece.
                Err(_) => self.extend(spill)?,
            }
        }
    }

    /// Appends the next piece of the bucket to the rest of the window.
    fn extend(&mut self, spill: &mut Spill) -> Result<()> {
        self.window.drain(..self.taken);
        self.taken = 0;
        let len = self.unread_bytes.min(spill.chunk_bytes() as u64);
        let chunk = match self.bucket.spilled.get(self.pieces_read) {
            Some(&piece) => spill.take_back(piece)?,
            None => self.bucket.chunks.pop_front().expect("pieces hold all bytes"),
        };
        self.pieces_read += 1;
        self.unread_bytes -= len;
        self.window.extend_from_slice(&chunk[..len as usize]);
        spill.put_back(chunk);
        Ok(())
    }
}
