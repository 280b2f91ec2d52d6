//! Reading a group from front to back.

use super::{
    batch::{Batch, untagged},
    block::{BLOCK_SIZE, Block, BlockId},
    core::Identity,
    item::Change,
    list::List,
    sizes::Sizes,
    span::Stored,
};
use crate::{
    error::Result,
    io::{BlockFile, Extent},
    key::Seed,
    run::{Entry, Merge, Run, Summary, Tombstones},
};
use std::sync::Arc;

/// Changes in order of (hash, key), one of each key.
#[derive(Debug)]
pub(super) struct Changes(Merge);

impl Changes {
    /// Goes to the next change. Returns whether there is one.
    pub(super) fn advance(&mut self) -> Result<bool> {
        self.0.advance()
    }

    /// Returns the change to which the last call of `advance` went.
    pub(super) fn change(&self) -> Result<Change<'_>> {
        let Entry { hash, key, value } = self.0.entry();
        Ok(Change { hash, key, value: untagged(value)? })
    }
}

/// A batch as a run, with tagged values.
#[derive(Debug)]
struct BatchRun {
    batch: Batch,
    sizes: Sizes,
    seed: Seed,
    /// Number of calls of `advance`, at most the number of entries plus 1.
    steps: usize,
}

impl Run for BatchRun {
    fn seed(&self) -> Seed {
        self.seed
    }

    fn summary(&self) -> Summary {
        self.sizes.summary()
    }

    fn advance(&mut self) -> Result<bool> {
        self.steps = (self.steps + 1).min(self.batch.items.len() + 1);
        Ok(self.steps <= self.batch.items.len())
    }

    fn entry(&self) -> Entry<'_> {
        self.batch.entry(self.steps - 1)
    }
}

/// Returns the changes in lists, given newest first, with tombstones.
pub(super) fn lists_run(lists: &[Arc<List>], seed: Seed) -> Result<Changes> {
    Merge::new(list_runs(lists, seed), Tombstones::Keep).map(Changes)
}

fn list_runs(lists: &[Arc<List>], seed: Seed) -> Vec<Box<dyn Run>> {
    let run =
        |list: &Arc<List>| BatchRun { batch: list.sorted(), sizes: list.sizes(), seed, steps: 0 };
    lists.iter().map(|list| Box::new(run(list)) as Box<dyn Run>).collect()
}

/// Reads a group. Returns its entries: changes in `lists`, given newest first, replace
/// those on the device.
pub(super) fn group_run(
    file: &dyn BlockFile,
    identity: Identity,
    stored: &Stored,
    lists: &[Arc<List>],
) -> Result<Changes> {
    let Identity { seed, id } = identity;
    let mut batches: Vec<Batch> = stored.packets.iter().map(|_| Batch::default()).collect();
    batches.push(Batch::default());
    let place = |i: usize| match stored.packets.get(i) {
        Some(packet) => (packet.block.offset(), 1),
        None => {
            stored.span.as_ref().map_or((0, 0), |span| (span.blocks.offset(), span.blocks.count))
        }
    };
    let count = stored.packets.len() + usize::from(stored.span.is_some());
    let extents = (0..count).map(place);
    let mut extents =
        extents.map(|(offset, count)| Extent { offset, len: count as usize * BLOCK_SIZE });
    file.read_many(&mut extents, &mut |i, bytes| match stored.packets.get(i) {
        Some(packet) => take_block(file, bytes, packet.id(id), (stored, seed), &mut batches[i]),
        None => {
            let span = stored.span.as_ref().expect("its extent was read");
            let blocks = bytes.chunks_exact(BLOCK_SIZE).enumerate();
            blocks.into_iter().try_for_each(|(block, bytes)| {
                take_block(file, bytes, span.id(block, id), (stored, seed), &mut batches[i])
            })
        }
    })?;
    let mut runs = list_runs(lists, seed);
    for batch in batches {
        let sizes = super::batch::sizes(&batch.items);
        runs.push(Box::new(BatchRun { batch, sizes, seed, steps: 0 }));
    }
    Merge::new(runs, Tombstones::Drop).map(Changes)
}

/// Appends the entries of a block that are in the key range of a group to a batch.
fn take_block(
    file: &dyn BlockFile,
    bytes: &[u8],
    id: BlockId,
    (stored, seed): (&Stored, Seed),
    batch: &mut Batch,
) -> Result<()> {
    let mut take = || {
        let block = Block::decode(bytes, id)?;
        let first = block.entries_below(stored.prefix.first(), seed)?;
        for i in first..block.count {
            let entry = block.entry(i, seed)?;
            if !stored.prefix.contains(entry.hash) {
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
