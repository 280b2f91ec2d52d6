//! Finding entries in blocks that have been read.

use super::layout::{BLOCK_HEAD, BlockHead, Layout, Position, unseal};
use crate::{
    error::{Error, Place, Result},
    key::{KeyHash, Seed},
};
use std::ops::Range;

/// Properties of a data file that are needed to read its blocks.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) layout: Layout,
    pub(super) id: u64,
    pub(super) seed: Seed,
    pub(super) place: Place,
    /// Number of blocks in the file.
    pub(super) blocks: u64,
}

/// Consecutive blocks of a data file.
#[derive(Clone, Copy, Debug)]
pub(super) struct DataBlocks<'a> {
    context: &'a Context,
    first: u64,
    bytes: &'a [u8],
}

/// The places of an entry's parts in the blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Located {
    pub(super) key: Stretch,
    pub(super) value: Stretch,
    /// The position after the entry.
    pub(super) next: Position,
}

impl Located {
    /// Returns the first block after the entry.
    pub(super) fn end_block(&self) -> u64 {
        let Position { block, offset } = self.next;
        if offset == BLOCK_HEAD { block } else { block + 1 }
    }
}

/// A range of payload bytes that may continue in the next blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) start: Position,
    pub(super) len: usize,
}

/// The result of a search in some blocks.
#[derive(Debug)]
pub(super) enum Found<'a> {
    /// The key has this value.
    Value(&'a [u8]),
    /// The key is not in the file.
    Absent,
    /// The key is not in these blocks, but may be in an earlier one.
    Before,
    /// The entry continues after these blocks; it lies in the given blocks.
    More(Range<u64>),
}

impl<'a> DataBlocks<'a> {
    /// Makes a view of the blocks in `bytes`, the first of which has the number `first`. Each block
    /// is checked when it is used.
    pub(super) fn new(context: &'a Context, first: u64, bytes: &'a [u8]) -> DataBlocks<'a> {
        debug_assert!(bytes.len().is_multiple_of(context.layout.block_size));
        DataBlocks { context, first, bytes }
    }

    fn end(&self) -> u64 {
        self.first + (self.bytes.len() / self.context.layout.block_size) as u64
    }

    /// Returns the bytes of a block, if it is one of these.
    fn block(&self, number: u64) -> Option<&'a [u8]> {
        let size = self.context.layout.block_size;
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?.checked_mul(size)?;
        self.bytes.get(at..)?.get(..size)
    }

    /// Checks a block and reads its head.
    ///
    /// # Panics
    /// If the block is not one of these.
    pub(super) fn head(&self, number: u64) -> Result<BlockHead> {
        let block = self.block(number).expect("the block is one of these");
        unseal(block, number, self.context.id)
            .map_err(|error| error.at(&self.place(Position { block: number, offset: 0 })))
    }

    fn place(&self, at: Position) -> Place {
        self.context.place.offset(self.context.layout.file_offset(at))
    }

    /// Locates the entry at a position in one of these blocks. Its end may be outside of them.
    #[inline]
    pub(super) fn locate(&self, at: Position) -> Result<Located> {
        let layout = self.context.layout;
        let bytes = self.block(at.block).and_then(|block| block.get(at.offset..));
        let bytes = bytes.ok_or_else(|| {
            Error::field("entry position", "inside its block", at.offset).at(&self.place(at))
        })?;
        let sizes = layout.decode_sizes(bytes).map_err(|error| error.at(&self.place(at)));
        let (key, value, used) = sizes?;
        let key = Stretch { start: layout.step(at, used as u64), len: key };
        let value = Stretch { start: layout.step(key.start, key.len as u64), len: value };
        let next = layout.step(value.start, value.len as u64);
        Ok(Located { key, value, next })
    }

    /// Returns the bytes of a stretch: borrowed if they are in one block, else copied to `scratch`;
    /// `None` if they continue after these blocks.
    #[inline]
    pub(super) fn read<'s>(&self, stretch: Stretch, scratch: &'s mut Vec<u8>) -> Option<&'s [u8]>
    where
        'a: 's,
    {
        match self.contiguous(stretch) {
            Some(bytes) => Some(bytes),
            None => self.gather(stretch, scratch).then_some(scratch),
        }
    }

    /// Returns the bytes of a stretch that lies in one of these blocks.
    #[inline]
    pub(super) fn contiguous(&self, stretch: Stretch) -> Option<&'a [u8]> {
        let Stretch { start, len } = stretch;
        if len == 0 {
            return Some(&[]);
        }
        self.block(start.block)?.get(start.offset..start.offset + len)
    }

    /// Copies the bytes of a stretch to `out`; returns `false` if they continue after these blocks.
    pub(super) fn gather(&self, stretch: Stretch, out: &mut Vec<u8>) -> bool {
        out.clear();
        let Position { mut block, mut offset } = stretch.start;
        while out.len() < stretch.len {
            let Some(bytes) = self.block(block) else { return false };
            let bytes = &bytes[offset..];
            out.extend(&bytes[..bytes.len().min(stretch.len - out.len())]);
            (block, offset) = (block + 1, BLOCK_HEAD);
        }
        true
    }

    /// Searches for a key in the entry that starts at `at`.
    pub(super) fn search_at<'s>(
        &self,
        at: Position,
        key: &[u8],
        scratch: &'s mut Vec<u8>,
    ) -> Result<Found<'s>>
    where
        'a: 's,
    {
        self.head(at.block)?;
        let entry = self.locate(at)?;
        match self.compare(&entry, at, key, scratch)? {
            Match::Yes => self.value(&entry, at, scratch),
            Match::No => Ok(Found::Absent),
            Match::More(blocks) => Ok(Found::More(blocks)),
        }
    }

    /// Searches for a key among the entries that start in these blocks.
    pub(super) fn search<'s>(
        &self,
        hash: KeyHash,
        key: &[u8],
        scratch: &'s mut Vec<u8>,
    ) -> Result<Found<'s>>
    where
        'a: 's,
    {
        for number in self.first..self.end() {
            let head = self.head(number)?;
            let mut at = Position { block: number, offset: head.first };
            for _ in 0..head.count {
                let entry = self.locate(at)?;
                if entry.key.len == key.len() && self.may_be(&entry, key) {
                    match self.compare(&entry, at, key, scratch)? {
                        Match::Yes => return self.value(&entry, at, scratch),
                        Match::No => {}
                        Match::More(blocks) => return Ok(Found::More(blocks)),
                    }
                }
                at = entry.next;
            }
            if number == self.first && number > 0 && hash.high() <= head.before {
                return Ok(Found::Before);
            }
        }
        Ok(Found::Absent)
    }

    /// Whether an entry may have this key, as far as its first block shows.
    #[inline]
    fn may_be(&self, entry: &Located, key: &[u8]) -> bool {
        let Position { block, offset } = entry.key.start;
        let here = self.block(block).and_then(|block| block.get(offset..)).unwrap_or(&[]);
        let len = here.len().min(key.len());
        here[..len] == key[..len]
    }

    /// Compares the key of an entry with `key`, once the whole entry has been read and checked.
    fn compare(
        &self,
        entry: &Located,
        at: Position,
        key: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Result<Match> {
        let end = entry.end_block();
        if end > self.context.blocks {
            let expected = format!("inside the file's {} blocks", self.context.blocks);
            return Err(Error::field("end of the entry", expected, end).at(&self.place(at)));
        }
        if end > self.end() {
            return Ok(Match::More(at.block..end));
        }
        for number in at.block + 1..end {
            self.head(number)?;
        }
        let same = self.read(entry.key, scratch).is_some_and(|found| found == key);
        Ok(if same { Match::Yes } else { Match::No })
    }

    fn value<'s>(
        &self,
        entry: &Located,
        at: Position,
        scratch: &'s mut Vec<u8>,
    ) -> Result<Found<'s>>
    where
        'a: 's,
    {
        let value = self.read(entry.value, scratch).map(Found::Value);
        value.ok_or_else(|| Error::field("value", "whole", "cut off").at(&self.place(at)))
    }
}

/// The result of comparing an entry with a key.
enum Match {
    Yes,
    No,
    /// The entry continues after these blocks; it lies in the given blocks.
    More(Range<u64>),
}
