use super::{
    encode::{KeyValue, Shape},
    load::SLOT_BYTES,
    spill::{Piece, Spill},
};
use crate::{
    error::Result,
    io::Buffer,
    key::KeyHash,
    run::prefetch::{CACHE_LINE_BYTES, prefetch},
};
use std::collections::VecDeque;

/// Entries whose hashes share a prefix, encoded one after the other, in the order they came.
///
/// The bytes are cut into chunks; the first are in the spill file, the others in memory. An entry
/// may straddle chunks.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    pub(super) spilled: Vec<Piece>,
    /// All full but the last, which may have room.
    pub(super) chunks: VecDeque<Buffer>,
    /// The bytes free in the last chunk.
    room: usize,
    /// The length of all entries.
    pub(super) bytes: u64,
    pub(super) entries: u64,
    first: Option<KeyHash>,
    /// The bits in which any hash differs from the first.
    differing: u128,
}

impl Bucket {
    /// Takes the hash of the next entry into account.
    #[inline]
    pub(super) fn count(&mut self, hash: KeyHash) {
        self.entries += 1;
        let first = *self.first.get_or_insert(hash);
        self.differing |= first.bits() ^ hash.bits();
    }

    /// The memory that it takes when it is loaded, besides its chunks.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes as usize + self.entries as usize * SLOT_BYTES
    }

    /// The number of leading bits that all hashes share.
    pub(super) fn prefix_bits(&self) -> u32 {
        self.differing.leading_zeros()
    }

    /// The hash of all entries, if they have one.
    pub(super) fn only_hash(&self) -> Option<KeyHash> {
        self.first.filter(|_| self.differing == 0)
    }

    /// The number of chunks in memory that will not change any more.
    pub(super) fn full_chunks(&self) -> usize {
        self.chunks.len() - usize::from(self.room > 0)
    }

    /// The next `len` bytes, to be filled, if the last chunk has room for them.
    #[inline]
    pub(super) fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
        if len > self.room {
            return None;
        }
        let chunk = self.chunks.back_mut()?;
        let start = chunk.len() - self.room;
        self.room -= len;
        self.bytes += len as u64;
        // Other buckets come first, so the line is there when this one's turn comes again.
        prefetch(chunk, start + len + CACHE_LINE_BYTES);
        Some(&mut chunk[start..start + len])
    }

    /// Appends as many of `bytes` as there is room for, and returns the others.
    pub(super) fn fill<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (head, rest) = bytes.split_at(bytes.len().min(self.room));
        if let Some(room) = self.reserve(head.len()) {
            room.copy_from_slice(head);
        }
        rest
    }

    /// Takes the first `count` chunks out of memory; the caller will write them to their places.
    pub(super) fn spill_chunks(
        &mut self,
        count: usize,
        spill: &mut Spill,
    ) -> impl Iterator<Item = (Piece, Buffer)> {
        self.chunks.drain(..count).map(|chunk| {
            let piece = spill.place();
            self.spilled.push(piece);
            (piece, chunk)
        })
    }

    /// Adds an empty chunk. The last one must be full.
    pub(super) fn add_chunk(&mut self, chunk: Buffer) {
        assert_eq!(self.room, 0);
        self.room = chunk.len();
        self.chunks.push_back(chunk);
    }
}

/// Takes the entries out of a bucket, in the order they came, and gives its memory and its part
/// of the spill file back on the way.
#[derive(Debug)]
pub(super) struct Drain {
    bucket: Bucket,
    /// A part of the bucket's bytes.
    window: Vec<u8>,
    /// The entry last returned ends here in the window.
    taken: usize,
    /// The length of the entries that are not in the window yet.
    unread_bytes: u64,
    /// The number of pieces of the bucket that were read.
    pieces_read: usize,
}

impl Drain {
    pub(super) fn new(bucket: Bucket) -> Drain {
        Drain { unread_bytes: bucket.bytes, bucket, window: Vec::new(), taken: 0, pieces_read: 0 }
    }

    /// The next key and value.
    pub(super) fn next(&mut self, spill: &mut Spill) -> Result<Option<KeyValue<'_>>> {
        loop {
            match Shape::read(&self.window, self.taken) {
                Ok(shape) => {
                    self.taken = shape.end;
                    return Ok(Some((shape.key(&self.window), shape.value(&self.window))));
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

    /// Appends the next piece of the bucket to what is left in the window.
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
