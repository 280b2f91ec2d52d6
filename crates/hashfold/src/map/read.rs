//! Reading a group, or a part of its key range, from front to back.

use super::{
    batch::Batch,
    block::{BLOCK_SIZE, Block, BlockId},
    devices::Identity,
    item::Change,
    list::List,
    span::Stored,
};
use crate::{
    error::Result,
    io::{BlockFile, Extent},
    key::{KeyHash, Seed},
};
use std::{ops::RangeInclusive, sync::Arc};

/// The entries of a part of a group, in order of (hash, key).
#[derive(Debug)]
pub(super) struct Entries {
    batch: Batch,
    /// Number of calls of `advance`, at most the number of entries plus 1.
    steps: usize,
}

impl Entries {
    /// Reads a part of a group.
    pub(super) fn read(
        file: &dyn BlockFile,
        identity: Identity,
        part: Part<'_>,
    ) -> Result<Entries> {
        let mut batch = Batch::default();
        read_group(file, identity, part, &mut batch)?;
        Ok(Entries { batch, steps: 0 })
    }

    /// Returns the number of entries.
    pub(super) fn count(&self) -> u64 {
        self.batch.items.len() as u64
    }

    /// Goes to the next entry. Returns whether there is one.
    pub(super) fn advance(&mut self) -> bool {
        self.steps = (self.steps + 1).min(self.batch.items.len() + 1);
        self.steps <= self.batch.items.len()
    }

    /// Returns the entry to which the last call of `advance` went.
    pub(super) fn entry(&self) -> Result<Change<'_>> {
        self.batch.change(self.steps - 1)
    }
}

/// Appends the changes in lists, given newest first, to a batch: in order, with tombstones. Entries
/// that have expired are tombstones.
pub(super) fn read_lists(lists: &[Arc<List>], now: u64, batch: &mut Batch) {
    let start = batch.items.len();
    push_lists(lists, &(KeyHash::from_bits(0)..=KeyHash::from_bits(u128::MAX)), now, batch);
    batch.settle(start);
}

/// Returns the age of what is older than all lists.
fn push_lists(
    lists: &[Arc<List>],
    hashes: &RangeInclusive<KeyHash>,
    now: u64,
    batch: &mut Batch,
) -> u16 {
    let (start, mut age) = (batch.items.len(), 0);
    for list in lists {
        if age == AGES_MAX {
            age = batch.rejuvenate(start);
        }
        let sizes = list.sizes();
        batch.reserve(sizes.entries as usize, sizes.bytes as usize);
        list.for_each(|change| {
            if hashes.contains(&change.hash) {
                batch.push(Change { content: change.content.at(now), ..change }, age);
            }
        });
        age += 1;
    }
    age
}

/// Number of lists from which on their entries are settled before others come: ages have 16 bits, and a group
/// has far fewer packets.
const AGES_MAX: u16 = 1 << 15;

/// A part of a group that is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a> {
    pub(super) stored: &'a Stored,
    /// The changes in RAM, newest first. They replace those on the device.
    pub(super) lists: &'a [Arc<List>],
    /// The part of the group's key range.
    pub(super) hashes: &'a RangeInclusive<KeyHash>,
    /// The moment, in milliseconds since 1970-01-01 UTC: entries that have expired are absent.
    pub(super) now: u64,
}

/// Appends the entries of a part of a group to a batch: in order, without tombstones.
pub(super) fn read_group(
    file: &dyn BlockFile,
    identity: Identity,
    part: Part<'_>,
    batch: &mut Batch,
) -> Result<()> {
    let Part { lists, hashes, now, .. } = part;
    let start = batch.items.len();
    let age = push_lists(lists, hashes, now, batch);
    push_blocks(file, identity, (part, age), batch)?;
    batch.settle(start);
    batch.drop_tombstones(start);
    Ok(())
}

/// Appends all that blocks have of a part of a group; the newest ones get this age.
fn push_blocks(
    file: &dyn BlockFile,
    Identity { seed, id }: Identity,
    (Part { stored, hashes, now, .. }, age): (Part<'_>, u16),
    batch: &mut Batch,
) -> Result<()> {
    let blocks = stored.span_part(hashes);
    let span = stored.span.iter().filter(|_| !blocks.is_empty());
    let span = span.map(|span| (span.id(blocks.start, id), blocks.len()));
    let packets = stored.packets.iter().map(|packet| (packet.id(id), 1));
    let places: Vec<(BlockId, usize)> = packets.chain(span).collect();
    let extent = |(first, count): &(BlockId, usize)| Extent {
        offset: first.number * BLOCK_SIZE as u64,
        len: count * BLOCK_SIZE,
    };
    // The device answers in an order of its own.
    file.read_many(&mut places.iter().map(extent), &mut |i, bytes| {
        let (first, age) = (places[i].0, age + i as u16);
        let mut blocks = bytes.chunks_exact(BLOCK_SIZE).zip(first.number..);
        blocks.try_for_each(|(bytes, number)| {
            let id = BlockId { number, ..first };
            push_block(file, (bytes, id, age), (hashes, seed, now), batch)
        })
    })
}

/// Appends the entries of a block that have these hashes to a batch.
fn push_block(
    file: &dyn BlockFile,
    (bytes, id, age): (&[u8], BlockId, u16),
    (hashes, seed, now): (&RangeInclusive<KeyHash>, Seed, u64),
    batch: &mut Batch,
) -> Result<()> {
    let mut push = || {
        let block = Block::decode(bytes, id)?;
        let first = block.entries_below(*hashes.start(), seed)?;
        for i in first..block.count {
            let entry = block.entry(i, seed)?;
            if entry.hash > *hashes.end() {
                break;
            }
            batch.push(Change { content: entry.content.at(now), ..entry }, age);
        }
        Ok(())
    };
    push().map_err(|error: crate::error::Error| {
        error.at(&file.place_at(id.number * BLOCK_SIZE as u64))
    })
}

#[cfg(test)]
mod tests {
    use super::{
        super::item::{Content, Value},
        *,
    };

    /// More lists than ages have numbers, as many snapshots in a row leave them.
    #[test]
    fn the_newest_of_any_number_of_lists_counts() {
        let hash = |key: &[u8]| KeyHash::of(key, Seed(1));
        let list = |i: u32| {
            let (mut list, value) = (List::new(Seed(1)), i.to_le_bytes());
            let content = Content::lasting(Value::Inline(&value));
            let other = i.to_be_bytes();
            for key in [&b"key"[..], &other] {
                list.apply(Change { hash: hash(key), key, content }, 1, None);
            }
            Arc::new(list)
        };
        let count = u32::from(AGES_MAX) * 2 + 10;
        let lists: Vec<Arc<List>> = (0..count).map(list).collect();
        let mut batch = Batch::default();
        read_lists(&lists, 0, &mut batch);
        assert_eq!(batch.items.len(), count as usize + 1);
        let changes = (0..batch.items.len()).map(|i| batch.change(i).unwrap());
        let found: Vec<_> = changes.filter(|change| change.key == b"key").collect();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].content, Content::lasting(Value::Inline(&0_u32.to_le_bytes())));
    }
}
