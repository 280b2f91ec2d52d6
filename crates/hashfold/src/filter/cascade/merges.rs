//! Merging in the background: runs above the last level are merged into fewer runs, and then into
//! the last level.
//!
//! ```text
//! flush → tier 0: ▪▪▪▪▪▪▪▪ ─→ tier 1: ▬▬▬ ─→ … ┐ when they are more than a part of the last level:
//!                                              ├→ shard after shard of it is merged with them
//! last level:  ▇▇▇▇▇▇▇│▇▇▇▇▇▇▇│▇▇▇▇▇▇▇ ────────┘
//! ```
//!
//! Each merge takes a key range of some runs, and several merges run at the same time. The result
//! of a merge is published on its own; then the range no longer counts in the merged runs. A shard
//! that grows too large becomes several shards.

use super::{
    catalog::{Epoch, Identity, Upper, View},
    core::{Core, Shared, caught},
    jobs::JobKind,
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
        if core.settings.env.executor.width() > 0 {
            // In a pool, other jobs get their turn first.
            return next.into_iter().for_each(|merge| spawn(core, merge));
        }
        // Without a pool, merges run one after the other in this loop, not recursively.
        let Some(first) = next.pop() else { return };
        next.into_iter().for_each(|merge| spawn(core, merge));
        merge = first;
    }
}

/// Merges, writes the result, and publishes it.
fn execute(core: &Core, merge: &RangeMerge) -> Result<()> {
    let (view, range) = (core.view(), merge.range);
    let Identity { seed, universe, mode, .. } = core.identity;
    let Some(epoch) = view.epochs.iter().find(|epoch| epoch.number == merge.epoch) else {
        return Ok(());
    };
    let is_down = merge.target == Target::LastLevel;
    let inputs = epoch.uppers.iter().filter(|upper| merge.runs.contains(&upper.run.number()));
    let inputs: Vec<&Upper<Arc<RunFile>>> = inputs.collect();
    let below: Vec<&Arc<RunFile>> = epoch.runs_in(range, universe).filter(|_| is_down).collect();
    let above: u64 = inputs.iter().map(|upper| upper.items_in(range)).sum();
    let items = above + below.iter().map(|run| run.facts.items).sum::<u64>();
    let unit = core.shares.merge.read_unit(inputs.len() + usize::from(is_down));
    let scan = |run: &Arc<RunFile>, it| RunScan::new(run, it, unit, &core.settings.env.executor);
    let mut sources: Vec<Box<dyn Fingerprints + '_>> = Vec::new();
    for upper in inputs {
        let scans = upper.ranges.within(range).map(move |it| scan(&upper.run, it));
        sources.push(Box::new(Chain::new(seed, universe, scans)));
    }
    if !below.is_empty() {
        let scans = below.into_iter().map(|run| scan(run, range));
        sources.push(Box::new(Chain::new(seed, universe, scans)));
    }
    // Below the oldest epoch, no fingerprint is left that a tombstone could hide.
    let is_last = view.epochs.last().is_some_and(|last| last.number == epoch.number);
    let merged = match is_down && is_last {
        true => FingerprintMerge::last(sources, mode),
        false => FingerprintMerge::new(sources, mode),
    };
    let mut merged = merged?.within(core.shares.merge.items());
    let is_input = |run: &Arc<RunFile>| merge.runs.contains(&run.number());
    match merge.target {
        Target::Upper { tier } => {
            let run = write_run(core, &mut merged, items)?;
            let made: Vec<u64> = run.iter().map(|run| run.number()).collect();
            let new = run.map(|run| Upper { run, tier, ranges: range.into() });
            publish(core, merge, &made, |epoch| epoch.replace_uppers(is_input, range, new))
        }
        Target::LastLevel => {
            let shards = write_shards(core, &mut merged, range.first, items)?;
            publish(core, merge, &numbers(&shards), |epoch| {
                epoch.replace_uppers(is_input, range, None)?;
                epoch.replace_shards(range, universe, shards)
            })
        }
    }
}

/// Makes the result of a merge current, unless its epoch has expired.
fn publish(
    core: &Core,
    merge: &RangeMerge,
    made: &[u64],
    change: impl FnOnce(&mut Epoch<Arc<RunFile>>) -> Option<()>,
) -> Result<()> {
    let change = |view: &mut View| {
        let epoch = view.epochs.iter_mut().find(|epoch| epoch.number == merge.epoch)?;
        let changed = change(epoch);
        debug_assert!(changed.is_some(), "nothing else replaces what is being merged");
        changed
    };
    core.publish_if(made, change, |_| {}).map(drop)
}
