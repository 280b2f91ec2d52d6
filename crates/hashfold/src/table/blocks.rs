//! Finding entries in blocks that have been read.

use super::{
    checked::CheckedBlocks,
    layout::{BLOCK_HEAD, BlockHead, EntryInside, Layout, Position},
    tags::tag_of,
};
use crate::{
    error::{Error, Place, Result},
    io::Seal,
    key::{KeyHash, Seed},
};
use std::{borrow::Cow, ops::Range};

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
    /// The blocks that need not be checked again, if the file is mapped.
    checked: Option<&'a CheckedBlocks>,
}

/// The places of an entry's parts in the blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Located {
    pub(super) start: Position,
    pub(super) key: Stretch,
    pub(super) value: Stretch,
    /// The position after the entry.
    pub(super) next: Position,
}

impl Located {
    /// Returns the first block after the entry.
    #[inline]
    pub(super) fn end_block(&self) -> u64 {
        let Position { block, offset } = self.next;
        if offset == BLOCK_HEAD { block } else { block + 1 }
    }
}

/// A range of payload bytes that may continue in the next blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    start: Position,
    len: usize,
    /// The end of the payload in the first block.
    end: usize,
}

/// The result of a search in some blocks.
#[derive(Debug)]
pub(super) enum Found {
    /// The key has this entry, which lies in these blocks.
    Entry(Located),
    /// The key is not in these blocks, nor in an earlier one.
    Absent,
    /// The key is not in these blocks, but may be in an earlier one: the first of these has these
    /// high bits of the hash before it.
    Before(u64),
    /// An entry whose key may be this one continues after these blocks; it lies in the given blocks.
    /// If its key is another one, this key may be anywhere that it could have been before.
    More(Range<u64>),
}

impl From<Match> for Found {
    #[inline]
    fn from(compared: Match) -> Found {
        match compared {
            Match::Yes(entry) => Found::Entry(entry),
            Match::No => Found::Absent,
            Match::More(blocks) => Found::More(blocks),
        }
    }
}

impl<'a> DataBlocks<'a> {
    /// Makes a view of the blocks in `bytes`, the first of which has the number `first`. Each block
    /// is checked when it is used.
    pub(super) fn new(context: &'a Context, first: u64, bytes: &'a [u8]) -> DataBlocks<'a> {
        debug_assert!(bytes.len().is_multiple_of(context.layout.block_size));
        DataBlocks { context, first, bytes, checked: None }
    }

    /// Returns the same view, in which a block is checked only if it is not in `checked`, and is
    /// added to it.
    #[inline]
    pub(super) fn checked_once(self, checked: Option<&'a CheckedBlocks>) -> DataBlocks<'a> {
        DataBlocks { checked, ..self }
    }

    fn end(&self) -> u64 {
        self.first + (self.bytes.len() / self.context.layout.block_size) as u64
    }

    /// Returns the bytes of a block, if it is one of these.
    #[inline]
    fn block(&self, number: u64) -> Option<&'a [u8]> {
        let size = self.context.layout.block_size;
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?.checked_mul(size)?;
        self.bytes.get(at..)?.get(..size)
    }

    /// Checks a block and reads its head.
    ///
    /// # Panics
    /// If the block is not one of these.
    #[inline]
    pub(super) fn head(&self, number: u64) -> Result<BlockHead> {
        let block = self.block(number).expect("the block is one of these");
        let is_checked = self.checked.is_some_and(|checked| checked.contains(number));
        if !is_checked {
            self.check(number, block)?;
        }
        let head = BlockHead::read(block, self.context.layout);
        let head = head.map_err(|error| error.at(&self.start(number)))?;
        if let Some(checked) = self.checked.filter(|_| !is_checked) {
            checked.insert(number);
        }
        Ok(head)
    }

    /// Checks the checksum of a block.
    fn check(&self, number: u64, block: &[u8]) -> Result<()> {
        Seal::of(number, self.context.id)
            .check(block)
            .map_err(|error| error.at(&self.start(number)))
    }

    /// Returns the place of a block.
    fn start(&self, number: u64) -> Place {
        self.place(Position { block: number, offset: 0 })
    }

    fn place(&self, at: Position) -> Place {
        self.context.place.offset(self.context.layout.file_offset(at))
    }

    /// Locates the entry that is the `nth` one to start in the block of `at`, one of these. Where
    /// entries follow each other, it starts at `at`. Its end may be outside of these blocks.
    #[inline]
    pub(super) fn locate(&self, head: &BlockHead, nth: usize, at: Position) -> Result<Located> {
        let layout = self.context.layout;
        let outside = || {
            let expected = "inside the payload of its block";
            Error::field("entry position", expected, at.offset).at(&self.place(at))
        };
        let block = self.block(at.block).ok_or_else(outside)?;
        let (offset, end) = match layout.start_in(block, head.count, nth) {
            None => (at.offset, layout.block_size),
            Some((offset, true)) => (offset, layout.payload_end(head.count)),
            Some((offset, false)) => {
                let entry = layout.entry_inside(block, head.count, nth, offset);
                return entry.map(|entry| located(at.block, offset, entry)).ok_or_else(outside);
            }
        };
        let start = Position { offset, ..at };
        let bytes = block.get(offset..end).filter(|_| offset >= BLOCK_HEAD).ok_or_else(outside)?;
        let sizes = layout.decode_sizes(bytes).map_err(|error| error.at(&self.place(start)));
        let (key, value, used) = sizes?;
        let stretch = |from: Position, len| {
            let end = if from.block == start.block { end } else { layout.block_size };
            (Stretch { start: from, len, end }, layout.step(from, len as u64, end))
        };
        let (key, next) = stretch(layout.step(start, used as u64, end), key);
        let (value, next) = stretch(next, value);
        Ok(Located { start, key, value, next })
    }

    /// Returns the value of an entry that lies in these blocks: borrowed if it lies in one block,
    /// else copied.
    #[inline]
    pub(super) fn value(&self, entry: &Located) -> Result<Cow<'a, [u8]>> {
        if let Some(bytes) = self.contiguous(entry.value) {
            return Ok(Cow::Borrowed(bytes));
        }
        let mut bytes = Vec::new();
        if self.gather(entry.value, &mut bytes) {
            return Ok(Cow::Owned(bytes));
        }
        Err(Error::field("value", "whole", "cut off").at(&self.place(entry.start)))
    }

    /// Returns the bytes of a stretch that lies in one of these blocks.
    #[inline]
    pub(super) fn contiguous(&self, stretch: Stretch) -> Option<&'a [u8]> {
        let Stretch { start, len, end } = stretch;
        if len == 0 {
            return Some(&[]);
        }
        self.block(start.block)?.get(start.offset..end)?.get(..len)
    }

    /// Copies the bytes of a stretch to `out`; returns `false` if they continue after these blocks.
    pub(super) fn gather(&self, stretch: Stretch, out: &mut Vec<u8>) -> bool {
        out.clear();
        let Stretch { start: Position { mut block, mut offset }, len, mut end } = stretch;
        while out.len() < len {
            let Some(bytes) = self.block(block).and_then(|bytes| bytes.get(offset..end)) else {
                return false;
            };
            out.extend(&bytes[..bytes.len().min(len - out.len())]);
            (block, offset, end) = (block + 1, BLOCK_HEAD, self.context.layout.block_size);
        }
        true
    }

    /// Searches for a key in the entry that starts at `at`.
    pub(super) fn search_at(&self, at: Position, key: &[u8]) -> Result<Found> {
        let head = self.head(at.block)?;
        let nth = self.context.layout.nth_at(at.offset);
        Ok(self.compare(&self.locate(&head, nth, at)?, key)?.into())
    }

    /// Searches for a key among the entries that start in these blocks.
    pub(super) fn search(&self, hash: KeyHash, key: &[u8]) -> Result<Found> {
        let mut found = self.search_first(hash, key)?;
        for number in self.first + 1..self.end() {
            if !matches!(found, Found::Absent) {
                break;
            }
            let head = self.head(number)?;
            found = self.search_block(number, &head, hash, key)?.into();
        }
        Ok(found)
    }

    /// Searches for a key among the entries that start in the first of these blocks.
    #[inline]
    pub(super) fn search_first(&self, hash: KeyHash, key: &[u8]) -> Result<Found> {
        let number = self.first;
        let head = self.head(number)?;
        // The first block has none before it, and 0 as its `before`.
        if hash.high() < head.before {
            return Ok(Found::Before(head.before));
        }
        // Of entries with equal high bits, some may be here and some before.
        Ok(match self.search_block(number, &head, hash, key)?.into() {
            Found::Absent if hash.high() == head.before && number > 0 => Found::Before(head.before),
            found => found,
        })
    }

    /// Returns what is known about the last entry that starts in these blocks.
    pub(super) fn last_hash(&self) -> Result<Last> {
        let number = self.end() - 1;
        let head = self.head(number)?;
        if head.count == 0 {
            return Ok(Last::Before(head.before));
        }
        let mut at = Position { block: number, offset: head.first };
        let (block, mut nth) = (self.block(number).unwrap_or(&[]), head.count - 1);
        if self.context.layout.start_in(block, head.count, nth).is_none() {
            for nth in 0..head.count - 1 {
                at = self.locate(&head, nth, at)?.next;
            }
            nth = 0;
        }
        let entry = self.locate(&head, nth, at)?;
        let mut key = Vec::new();
        if self.gather(entry.key, &mut key) {
            return Ok(Last::Hash(KeyHash::of(&key, self.context.seed)));
        }
        // Reading the rest of the key would only tell what the next block's `before` tells.
        Ok(Last::Before(head.before))
    }

    /// Returns the block after an entry, which must be in the file.
    fn end_of(&self, entry: &Located) -> Result<u64> {
        let end = entry.end_block();
        if end <= self.context.blocks {
            return Ok(end);
        }
        let expected = format!("inside the file's {} blocks", self.context.blocks);
        Err(Error::field("end of the entry", expected, end).at(&self.place(entry.start)))
    }

    /// Searches for a key among the entries that start in one block: those that have its tag, or all
    /// if there are no tags.
    #[inline]
    fn search_block(
        &self,
        number: u64,
        head: &BlockHead,
        hash: KeyHash,
        key: &[u8],
    ) -> Result<Match> {
        let block = self.block(number).unwrap_or(&[]);
        let mut at = Position { block: number, offset: head.first };
        if let Some(matches) = self.context.layout.tagged(block, head.count, tag_of(hash)) {
            for nth in matches {
                match self.compare(&self.locate(head, nth, at)?, key)? {
                    Match::No => {}
                    found => return Ok(found),
                }
            }
            return Ok(Match::No);
        }
        for nth in 0..head.count {
            let entry = self.locate(head, nth, at)?;
            match self.compare(&entry, key)? {
                Match::No => {}
                found => return Ok(found),
            }
            at = entry.next;
        }
        Ok(Match::No)
    }

    /// Whether an entry may have this key, as far as its first block shows.
    #[inline]
    fn may_be(&self, entry: &Located, key: &[u8]) -> bool {
        let Stretch { start: Position { block, offset }, len, end } = entry.key;
        let here = self.block(block).and_then(|block| block.get(offset..end)).unwrap_or(&[]);
        let shown = here.len().min(key.len());
        len == key.len() && here[..shown] == key[..shown]
    }

    /// Compares the key of an entry with `key`. If they may be equal, the whole entry must have been
    /// read, and is checked.
    #[inline]
    fn compare(&self, entry: &Located, key: &[u8]) -> Result<Match> {
        if !self.may_be(entry, key) {
            return Ok(Match::No);
        }
        let end = entry.end_block();
        if end > entry.start.block + 1 {
            return self.compare_long(entry, key);
        }
        Ok(if self.contiguous(entry.key) == Some(key) { Match::Yes(*entry) } else { Match::No })
    }

    /// Compares the key of an entry that continues in a second block.
    #[cold]
    fn compare_long(&self, entry: &Located, key: &[u8]) -> Result<Match> {
        let (start, end) = (entry.start.block, self.end_of(entry)?);
        if end > self.end() {
            return Ok(Match::More(start..end));
        }
        for number in start + 1..end {
            self.head(number)?;
        }
        let mut found = Vec::new();
        let same = self.gather(entry.key, &mut found) && found == key;
        Ok(if same { Match::Yes(*entry) } else { Match::No })
    }
}

/// Returns the parts of an entry that lies in one block.
#[inline]
fn located(block: u64, offset: usize, entry: EntryInside) -> Located {
    let EntryInside { key_start, value_start, end } = entry;
    let stretch = |from: usize, to: usize| {
        let start = Position { block, offset: from };
        Stretch { start, len: to - from, end: to }
    };
    Located {
        start: Position { block, offset },
        key: stretch(key_start, value_start),
        value: stretch(value_start, end),
        next: Position { block, offset: end },
    }
}

/// The end of some blocks.
pub(super) enum Last {
    /// The last entry that starts in them has this hash.
    Hash(KeyHash),
    /// No entry starts in the last block, or the key of the last one continues after it. These are the
    /// high bits of the last hash before this block.
    Before(u64),
}

/// The result of comparing an entry with a key.
enum Match {
    Yes(Located),
    No,
    /// The entry continues after these blocks; it lies in the given blocks.
    More(Range<u64>),
}
