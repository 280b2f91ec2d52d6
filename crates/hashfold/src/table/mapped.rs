//! Finding entries in the checked blocks of a mapped data file: the usual lookup, in few instructions.
//!
//! A lookup has three steps, each of which reads memory that may not be in the CPU cache. One lookup
//! takes them one after the other; many lookups take each step together, and prefetch for the next
//! one (see [`super::pipeline`]):
//!
//! ```text
//! key ─hash→ index ─→ Place ── aim: head and tags ─→ Aim ── answer: entry ─→ Answer
//! ```
//!
//! Everything that is not usual is [`Answer::Unknown`]: a block that was not checked yet, an entry of
//! an earlier block, most entries that continue in the next block, damage. The general search of
//! [`super::blocks`] answers these; to all others it would give the same answer.

use super::{
    blocks::Context,
    checked::CheckedBlocks,
    index::Place,
    layout::{Arrangement, BLOCK_HEAD, BlockHead, Position},
    tags::{self, tag_of},
};
use crate::{
    key::KeyHash,
    run::prefetch::{CACHE_LINE_BYTES, prefetch},
};

/// Number of cache lines at the end of a slotted block that are prefetched: starts and tags of 60
/// entries.
const SLOT_LINES: usize = 3;

/// Number of cache lines that are prefetched around the probable place of an entry. The place of one of
/// 40 entries has a standard deviation of 2.6 entries; of 100 bytes, these are 4 lines.
const LIKELY_LINES: usize = 10;

/// The blocks of a mapped data file.
#[derive(Clone, Copy, Debug)]
pub(super) struct MappedBlocks<'a> {
    context: &'a Context,
    checked: &'a CheckedBlocks,
    /// The sizes of all keys and of all values, if they agree.
    sizes: Option<(usize, usize)>,
    /// All blocks.
    bytes: &'a [u8],
}

/// The entry that may have a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Aim<'a> {
    /// No entry has the key.
    Absent,
    /// Only the entry at this position may have the key.
    At(Position),
    /// This entry, or a later one in its block, may have the key.
    Tagged(&'a [u8], Nth),
    /// The general search finds out.
    Unknown,
}

/// An entry that has the tag of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nth {
    /// Number of entries that start in the block.
    count: u16,
    /// Number of entries that start in the block before this one.
    nth: u16,
    /// Offset of the entry.
    start: u32,
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer<'a> {
    Absent,
    Value(&'a [u8]),
    /// The value lies in two blocks.
    Parts([&'a [u8]; 2]),
    /// The general search finds out.
    Unknown,
}

impl<'a> MappedBlocks<'a> {
    /// Makes a view of the blocks of a file, all of which are in `bytes`.
    #[inline]
    pub(super) fn new(
        context: &'a Context,
        checked: &'a CheckedBlocks,
        bytes: &'a [u8],
    ) -> MappedBlocks<'a> {
        MappedBlocks { context, checked, sizes: context.layout.sizes(), bytes }
    }

    /// Returns the hash of a key.
    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash::of(key, self.context.seed)
    }

    /// Returns the offset of a block in the bytes. Of a number that no block has, the offset has no
    /// meaning.
    #[inline]
    fn start(&self, block: u64) -> usize {
        (block as usize).wrapping_mul(self.context.layout.block_size)
    }

    /// Returns a block, if it was checked.
    #[inline]
    fn block(&self, number: u64) -> Option<&'a [u8]> {
        if !self.checked.contains(number) {
            return None;
        }
        self.bytes.get(self.start(number)..)?.get(..self.context.layout.block_size)
    }

    /// Prefetches what [`MappedBlocks::aim`] reads of a place. Returns the block if it was not checked
    /// yet.
    #[inline]
    pub(super) fn prefetch_place(&self, place: Place) -> Option<u64> {
        let size = self.context.layout.block_size;
        let block = match place {
            Place::Nowhere | Place::Several => return None,
            Place::At(position) => {
                self.prefetch_at(position);
                position.block
            }
            Place::In(block) | Place::UpTo(block) => {
                let start = self.start(block);
                prefetch(self.bytes, start);
                if self.context.layout.arrangement == Arrangement::Slotted {
                    let line = |i| start.wrapping_add(size - i * CACHE_LINE_BYTES);
                    (1..=SLOT_LINES).for_each(|i| prefetch(self.bytes, line(i)));
                }
                block
            }
        };
        (!self.checked.contains(block)).then_some(block)
    }

    /// Prefetches what [`MappedBlocks::aim`] and [`MappedBlocks::answer`] read of a place, if many
    /// lookups do not overlap anyway. `part` / 256 of the block probably come before the entry: reading
    /// some lines too many costs less than waiting for the head of the block first.
    #[inline]
    pub(super) fn prefetch_alone(&self, place: Place, part: Option<u8>) {
        self.prefetch_place(place);
        if let (Place::In(block) | Place::UpTo(block), Some(part)) = (place, part) {
            let layout = &self.context.layout;
            let entries = layout.block_size - layout.entries_start;
            let middle = layout.entries_start + entries * usize::from(part) / 256;
            let start = self.start(block).wrapping_add(middle);
            let first = start.saturating_sub(LIKELY_LINES / 2 * CACHE_LINE_BYTES);
            (0..LIKELY_LINES).for_each(|i| prefetch(self.bytes, first + i * CACHE_LINE_BYTES));
        }
    }

    /// Prefetches the entry at a position: its first lines, or all of it if it continues in the next
    /// block, because such a value is copied.
    #[inline]
    fn prefetch_at(&self, Position { block, offset }: Position) {
        let layout = &self.context.layout;
        let start = self.start(block);
        let first = start.wrapping_add(offset);
        prefetch(self.bytes, first);
        prefetch(self.bytes, first.wrapping_add(CACHE_LINE_BYTES));
        let end = offset + layout.entry_size().unwrap_or(0);
        if end > layout.block_size {
            prefetch(self.bytes, start);
            let rest = first..start.wrapping_add(end + BLOCK_HEAD);
            rest.step_by(CACHE_LINE_BYTES).for_each(|at| prefetch(self.bytes, at));
        }
    }

    /// Finds the first entry that may have a key with this hash. Reads the head and the tags of its
    /// block.
    #[inline]
    pub(super) fn aim(&self, hash: KeyHash, place: Place) -> Aim<'a> {
        let number = match place {
            Place::Nowhere => return Aim::Absent,
            Place::At(position) => return Aim::At(position),
            Place::In(block) | Place::UpTo(block) => block,
            Place::Several => return Aim::Unknown,
        };
        let Some(block) = self.block(number) else { return Aim::Unknown };
        let head = BlockHead::of(block);
        if !head.suits(&self.context.layout) || (number > 0 && hash.high() <= head.before) {
            return Aim::Unknown;
        }
        self.aim_after(block, head.count, 0, hash)
    }

    /// Finds the first of the `count` entries of a block that has the tag of a hash, and is not one of
    /// the first `skipped`.
    #[inline]
    fn aim_after(&self, block: &'a [u8], count: usize, skipped: usize, hash: KeyHash) -> Aim<'a> {
        let layout = &self.context.layout;
        let Some(tags) = layout.tags_start(count) else { return Aim::Unknown };
        match tags::first_equal(block, (tags, count), skipped, tag_of(hash)) {
            None => Aim::Absent,
            Some(nth) => {
                let start = layout.start_at(block, count, nth);
                Aim::Tagged(
                    block,
                    Nth { count: count as u16, nth: nth as u16, start: start as u32 },
                )
            }
        }
    }

    /// Prefetches the entry that [`MappedBlocks::answer`] reads first.
    #[inline]
    pub(super) fn prefetch_aim(&self, aim: Aim<'_>) {
        if let Aim::Tagged(block, Nth { start, .. }) = aim {
            prefetch(block, start as usize);
            prefetch(block, start as usize + CACHE_LINE_BYTES);
        }
    }

    /// Compares a key with the entries that may have it.
    #[inline]
    pub(super) fn answer(&self, hash: KeyHash, aim: Aim<'a>, key: &[u8]) -> Answer<'a> {
        match aim {
            Aim::Absent => Answer::Absent,
            Aim::Unknown => Answer::Unknown,
            Aim::At(position) => self.compare_at(position, key).unwrap_or(Answer::Unknown),
            Aim::Tagged(block, nth) => match self.compare(block, nth, key) {
                Answer::Absent => self.search_after(block, nth, hash, key),
                found => found,
            },
        }
    }

    /// Compares a key with the entry at a position, where all entries have the same sizes; `None` if it
    /// lies in more than two blocks, or its key in more than one.
    #[inline]
    fn compare_at(&self, Position { block, offset }: Position, key: &[u8]) -> Option<Answer<'a>> {
        let (key_size, value_size) = self.sizes?;
        let (found, rest) = self.block(block)?.get(offset..)?.split_at_checked(key_size)?;
        if !is_same(found, key) {
            return Some(Answer::Absent);
        }
        if let Some(value) = rest.get(..value_size) {
            return Some(Answer::Value(value));
        }
        let next = self.block(block + 1)?.get(BLOCK_HEAD..)?.get(..value_size - rest.len())?;
        Some(Answer::Parts([rest, next]))
    }

    /// Compares a key with the entries of a block after the `nth` one that have the tag of the hash.
    #[inline(never)] // The first entry with the tag is the right one for most keys.
    fn search_after(&self, block: &'a [u8], mut nth: Nth, hash: KeyHash, key: &[u8]) -> Answer<'a> {
        loop {
            match self.aim_after(block, nth.count.into(), usize::from(nth.nth) + 1, hash) {
                Aim::Tagged(_, next) => nth = next,
                _ => return Answer::Absent,
            }
            match self.compare(block, nth, key) {
                Answer::Absent => {}
                found => return found,
            }
        }
    }

    /// Compares a key with one entry of a block.
    #[inline]
    fn compare(&self, block: &'a [u8], nth: Nth, key: &[u8]) -> Answer<'a> {
        let Nth { count, nth, start } = nth;
        let start = start as usize;
        let entry = match self.sizes {
            Some((key, value)) => {
                block.get(start..start + key + value).map(|all| all.split_at(key))
            }
            None => {
                let layout = &self.context.layout;
                let entry = layout.entry_inside(block, count.into(), nth.into(), start);
                entry.and_then(|entry| entry.parts(block))
            }
        };
        match entry {
            Some((found, value)) if is_same(found, key) => Answer::Value(value),
            Some(_) => Answer::Absent,
            None => Answer::Unknown,
        }
    }
}

/// Whether two keys are equal. Keys of 16 bytes, such as UUIDs, are compared without a loop.
#[inline]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    match (one.as_array::<16>(), other.as_array::<16>()) {
        (Some(one), Some(other)) => u128::from_ne_bytes(*one) == u128::from_ne_bytes(*other),
        _ => one == other,
    }
}
