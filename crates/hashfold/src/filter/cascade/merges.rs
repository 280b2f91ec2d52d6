//! Merging in the background: runs above the last level into fewer runs, and these into the last
//! level.
//!
//! ```text
//! flush → tier 0: ▪▪▪▪▪▪▪▪ ─→ tier 1: ▬▬▬ ─→ … ┐ when they are more than a part of the last level:
//!                                              ├→ shard after shard of it is merged with them
//! last level:  ▇▇▇▇▇▇▇│▇▇▇▇▇▇▇│▇▇▇▇▇▇▇ ────────┘
//! ```
//!
//! Each merge takes a key range of some runs, and several go on at the same time. Its result is
//! published on its own: then the range no longer counts in the runs that were merged. A shard that
//! grows too large becomes several.

use super::{
    catalog::{Epoch, Shard, Upper, View},
    core::{Core, Shared, caught},
    jobs::JobKind,
    key_range::KeyRange,
    merging::{RangeMerge, Target},
    plan::plan,
    run_file::RunFile,
    scan::{Chain, RunScan},
    write::{numbers, write_run, write_shards},
};
use crate::{error::Result, filter::FingerprintMerge, fingerprints::Fingerprints};
use std::sync::Arc;

/// Starts the merges that are due, after a new run or a failure.
pub(super) fn start(core: &Arc<Core>) {
    let merges = core.change(|shared| {
        shared.merging.retry();
        begin_all(core, shared)
    });
    merges.into_iter().for_each(|merge| spawn(core, merge));
}

/// Starts as many merges as are due and allowed.
fn begin_all(core: &Core, shared: &mut Shared) -> Vec<RangeMerge> {
    let mut begun = Vec::new();
    let view = shared.view().clone();
    while let Some(merge) = plan(core, &view, &mut shared.merging) {
        if !shared.merging.begin(&merge) {
            debug_assert!(false, "what is planned may start: {merge:?}");
            break;
        }
        begun.push(merge);
    }
    begun
}

fn spawn(core: &Arc<Core>, merge: RangeMerge) {
    core.spawn(JobKind::Merge, move |core| run(core, merge));
}

/// Runs a merge, then starts the merges that are due.
fn run(core: &Arc<Core>, mut merge: RangeMerge) {
    loop {
        let is_closed = core.shared().merging.is_closed();
        let result = if is_closed { Ok(()) } else { caught("merge", || execute(core, &merge)) };
        let mut next = core.change(|shared| {
            let ended = shared.merging.end(&merge, result);
            debug_assert!(ended, "it has begun");
            begin_all(core, shared)
        });
        if core.settings.executor.width() > 0 {
            // Other jobs of a pool get their turn.
            return next.into_iter().for_each(|merge| spawn(core, merge));
        }
        // In the caller there is one at a time, and no deeper call for each.
        let Some(first) = next.pop() else { return };
        next.into_iter().for_each(|merge| spawn(core, merge));
        merge = first;
    }
}

fn execute(core: &Core, merge: &RangeMerge) -> Result<()> {
    let view = core.view();
    let Some(epoch) = view.epochs.iter().find(|epoch| epoch.number == merge.epoch) else {
        return Ok(());
    };
    let is_input = |run: &RunFile| merge.runs.contains(&run.number());
    let inputs = epoch.uppers.iter().filter(|upper| is_input(&upper.run));
    let inputs: Vec<&Upper<Arc<RunFile>>> = inputs.collect();
    match merge.target {
        Target::Upper { tier } => merge_up(core, merge, &inputs, tier),
        Target::LastLevel => {
            // Below the oldest epoch there is nothing that a tombstone could hide.
            let is_last = view.epochs.last().is_some_and(|last| last.number == epoch.number);
            merge_down(core, merge, epoch, &inputs, is_last)
        }
    }
}

/// Merges runs of a tier into one of the next.
fn merge_up(
    core: &Core,
    merge: &RangeMerge,
    inputs: &[&Upper<Arc<RunFile>>],
    tier: u8,
) -> Result<()> {
    let unit = core.shares.merge.read_unit(inputs.len());
    let items = inputs.iter().map(|upper| upper.items_in(merge.range)).sum();
    let sources = inputs.iter().map(|upper| scan(core, upper, merge.range, unit)).collect();
    let mut merged =
        FingerprintMerge::new(sources, core.identity.mode)?.within(core.shares.merge.items());
    let run = write_run(core, &mut merged, items)?;
    drop(merged);
    let made: Vec<u64> = run.iter().map(|run| run.number()).collect();
    publish(core, merge, &made, |epoch| {
        let ranges = merge.range.into();
        let new = run.map(|run| Upper { run, tier, ranges });
        epoch.replace_uppers(|run| merge.runs.contains(&run.number()), merge.range, new)
    })
}

/// Merges runs into shards of the last level.
fn merge_down(
    core: &Core,
    merge: &RangeMerge,
    epoch: &Epoch<Arc<RunFile>>,
    inputs: &[&Upper<Arc<RunFile>>],
    is_last: bool,
) -> Result<()> {
    let (mode, universe, range) = (core.identity.mode, core.identity.universe, merge.range);
    let unit = core.shares.merge.read_unit(inputs.len() + 1);
    let items: u64 = inputs.iter().map(|upper| upper.items_in(range)).sum();
    let mut sources: Vec<Box<dyn Fingerprints + '_>> = Vec::new();
    sources.extend(inputs.iter().map(|upper| Box::new(scan(core, upper, range, unit)) as _));
    let below: Vec<&Arc<RunFile>> = epoch.runs_in(range, universe).collect();
    let items = items + below.iter().map(|run| run.facts().items).sum::<u64>();
    if !below.is_empty() {
        let scans = below.into_iter().map(|run| scan_run(core, run, range, unit));
        sources.push(Box::new(Chain::new(core.identity.seed, universe, scans)));
    }
    let merged = if is_last {
        FingerprintMerge::last(sources, mode)
    } else {
        FingerprintMerge::new(sources, mode)
    }?;
    let mut merged = merged.within(core.shares.merge.items());
    let shards: Vec<Shard<Arc<RunFile>>> = write_shards(core, &mut merged, range.first, items)?;
    drop(merged);
    publish(core, merge, &numbers(&shards), |epoch| {
        epoch.replace_uppers(|run| merge.runs.contains(&run.number()), range, None)?;
        epoch.replace_shards(range, universe, shards)
    })
}

/// Publishes the result of a merge, unless its epoch has expired.
fn publish(
    core: &Core,
    merge: &RangeMerge,
    made: &[u64],
    change: impl FnOnce(&mut Epoch<Arc<RunFile>>) -> Option<()>,
) -> Result<()> {
    let change = |view: &View| {
        let mut view = view.clone();
        let epoch = view.epochs.iter_mut().find(|epoch| epoch.number == merge.epoch)?;
        let changed = change(epoch);
        debug_assert!(changed.is_some(), "nothing else replaces what is being merged");
        changed.map(|()| view)
    };
    core.publish(made, change, |_| {}).map(drop)
}

/// Returns the valid fingerprints of a key range in a run; each read takes `unit` bytes.
fn scan<'a>(
    core: &'a Core,
    upper: &'a Upper<Arc<RunFile>>,
    range: KeyRange,
    unit: usize,
) -> impl Fingerprints + 'a {
    let scans = upper.ranges.within(range).map(move |it| scan_run(core, &upper.run, it, unit));
    Chain::new(core.identity.seed, core.identity.universe, scans)
}

fn scan_run(core: &Core, run: &Arc<RunFile>, range: KeyRange, unit: usize) -> RunScan {
    RunScan::new(run, range, unit, &core.settings.executor)
}
