//! Reading a group, or a part of its key range, from front to back.

use super::{
    batch::{Batch, untagged},
    block::{BLOCK_SIZE, Block, BlockId},
    core::Identity,
    item::{Change, Content},
    list::List,
    span::Stored,
};
use crate::{
    error::Result,
    io::{BlockFile, Extent},
    key::{KeyHash, Seed},
    run::{Entry, Merge, Run, Summary, Tombstones},
};
use std::{ops::RangeInclusive, sync::Arc};

/// Changes in order of (hash, key), one of each key, at a moment.
#[derive(Debug)]
pub(super) struct Changes {
    merge: Merge,
    /// The moment, in milliseconds since 1970-01-01 UTC.
    now: u64,
    tombstones: Tombstones,
}

impl Changes {
    fn new(runs: Vec<Box<dyn Run>>, now: u64, tombstones: Tombstones) -> Result<Changes> {
        Ok(Changes { merge: Merge::new(runs, tombstones)?, now, tombstones })
    }

    /// Goes to the next change. Returns whether there is one.
    pub(super) fn advance(&mut self) -> Result<bool> {
        while self.merge.advance()? {
            let drops = self.tombstones == Tombstones::Drop;
            // An entry that has expired hides older entries of its key, as a tombstone does.
            if !(drops && self.change()?.content == Content::TOMBSTONE) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the change to which the last call of `advance` went.
    pub(super) fn change(&self) -> Result<Change<'_>> {
        let Entry { hash, key, value } = self.merge.entry();
        Ok(Change { hash, key, content: untagged(value)?.at(self.now) })
    }
}

/// A batch as a run, with tagged values.
#[derive(Debug)]
struct BatchRun {
    batch: Batch,
    seed: Seed,
    /// Number of calls of `advance`, at most the number of entries plus 1.
    steps: usize,
}

impl Run for BatchRun {
    fn seed(&self) -> Seed {
        self.seed
    }

    fn summary(&self) -> Summary {
        super::batch::sizes(&self.batch.items).summary()
    }

    fn advance(&mut self) -> Result<bool> {
        self.steps = (self.steps + 1).min(self.batch.items.len() + 1);
        Ok(self.steps <= self.batch.items.len())
    }

    fn entry(&self) -> Entry<'_> {
        self.batch.entry(self.steps - 1)
    }
}

/// Returns the changes in lists, given newest first, with tombstones. Entries that have expired are
/// tombstones.
pub(super) fn lists_run(lists: &[Arc<List>], seed: Seed, now: u64) -> Result<Changes> {
    let all = KeyHash::from_bits(0)..=KeyHash::from_bits(u128::MAX);
    Changes::new(list_runs(lists, &all, seed), now, Tombstones::Keep)
}

fn list_runs(
    lists: &[Arc<List>],
    hashes: &RangeInclusive<KeyHash>,
    seed: Seed,
) -> Vec<Box<dyn Run>> {
    let run = |list: &Arc<List>| BatchRun { batch: list.sorted(hashes), seed, steps: 0 };
    lists.iter().map(|list| Box::new(run(list)) as Box<dyn Run>).collect()
}

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

/// Reads a part of a group. Returns its entries, without tombstones.
pub(super) fn group_run(
    file: &dyn BlockFile,
    identity: Identity,
    part: Part<'_>,
) -> Result<Changes> {
    let Part { stored, lists, hashes, now } = part;
    let Identity { seed, id } = identity;
    let blocks = stored.span_part(hashes);
    let span = stored.span.iter().filter(|_| !blocks.is_empty());
    let span = span.map(|span| (span.id(blocks.start, id), blocks.len()));
    let packets = stored.packets.iter().map(|packet| (packet.id(id), 1));
    let places: Vec<(BlockId, usize)> = packets.chain(span).collect();
    let mut batches: Vec<Batch> = places.iter().map(|_| Batch::default()).collect();
    let extent = |(first, count): &(BlockId, usize)| Extent {
        offset: first.number * BLOCK_SIZE as u64,
        len: count * BLOCK_SIZE,
    };
    file.read_many(&mut places.iter().map(extent), &mut |i, bytes| {
        let (first, batch) = (places[i].0, &mut batches[i]);
        let mut blocks = bytes.chunks_exact(BLOCK_SIZE).zip(first.number..);
        blocks.try_for_each(|(bytes, number)| {
            take_block(file, bytes, BlockId { number, ..first }, (hashes, seed), batch)
        })
    })?;
    let mut runs = list_runs(lists, hashes, seed);
    // A merge needs a run, even if there is nothing to read.
    batches.push(Batch::default());
    let on_device = batches.into_iter().map(|batch| BatchRun { batch, seed, steps: 0 });
    runs.extend(on_device.map(|run| Box::new(run) as Box<dyn Run>));
    Changes::new(runs, now, Tombstones::Drop)
}

/// Appends the entries of a block that have these hashes to a batch.
fn take_block(
    file: &dyn BlockFile,
    bytes: &[u8],
    id: BlockId,
    (hashes, seed): (&RangeInclusive<KeyHash>, Seed),
    batch: &mut Batch,
) -> Result<()> {
    let mut take = || {
        let block = Block::decode(bytes, id)?;
        let first = block.entries_below(*hashes.start(), seed)?;
        for i in first..block.count {
            let entry = block.entry(i, seed)?;
            if entry.hash > *hashes.end() {
                break;
            }
            batch.push(entry);
        }
        Ok(())
    };
    take().map_err(|error: crate::error::Error| {
        error.at(&file.place().offset(id.number * BLOCK_SIZE as u64))
    })
}
