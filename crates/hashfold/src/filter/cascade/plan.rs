//! Choosing the next merge: a key range of some runs.

use super::{
    catalog::{Epoch, Upper, View},
    core::Core,
    key_range::KeyRange,
    merging::{Merging, RangeMerge, Target},
    run_file::RunFile,
    write::SHARD_ITEMS_MAX,
};
use std::sync::Arc;

/// The number of runs of a tier that are merged into one of the next: of tier 0, and of others.
const TIER_RUNS: [usize; 2] = [8, 12];
/// The maximum number of runs in one merge above the last level.
const MERGE_RUNS_MAX: usize = 16;
/// The maximum number of runs that are merged into a key range of the last level at once: each
/// takes memory.
const DOWN_RUNS_MAX: usize = 64;
/// The maximum number of fingerprints in a merge into the last level, if it is more than one shard.
const STEP_ITEMS_MAX: u64 = 6 * SHARD_ITEMS_MAX;

type Uppers<'a> = Vec<&'a Upper<Arc<RunFile>>>;

/// The next merge, if one is due and may start.
pub(super) fn plan(core: &Core, view: &View, merging: &mut Merging) -> Option<RangeMerge> {
    plan_up(core, view, merging).or_else(|| plan_down(core, view, merging))
}

/// Plans a merge of runs of one tier in a key range that has enough of them.
fn plan_up(core: &Core, view: &View, merging: &Merging) -> Option<RangeMerge> {
    if !merging.may_start(Target::Upper { tier: 0 }) {
        return None;
    }
    let parts = KeyRange::cut(core.identity.universe, core.shares.merges_max);
    view.epochs.iter().find_map(|epoch| {
        // They are merged into the last level instead.
        if !merging.has_descending() && is_due(core, view, merging, epoch) {
            return None;
        }
        let group = |part: KeyRange| full_tier(merging, epoch, part);
        let (i, runs) = (0..parts.len()).find_map(|i| Some((i, group(parts[i])?)))?;
        let mut range = parts[i];
        // A small merge takes the next parts along.
        for part in &parts[i + 1..] {
            let wider = KeyRange { last: part.last, ..range };
            let items: u64 = runs.iter().map(|upper| upper.items_in(wider)).sum();
            if items > SHARD_ITEMS_MAX
                || group(*part).is_none_or(|it| numbers(&it) != numbers(&runs))
            {
                break;
            }
            range = wider;
        }
        let target = Target::Upper { tier: runs[0].tier.saturating_add(1) };
        Some(RangeMerge { epoch: epoch.number, runs: numbers(&runs), range, target })
    })
}

/// Returns the oldest runs of a tier that has enough of them in a key range, unless one is busy
/// there.
fn full_tier<'a>(
    merging: &Merging,
    epoch: &'a Epoch<Arc<RunFile>>,
    range: KeyRange,
) -> Option<Uppers<'a>> {
    let here = epoch
        .uppers
        .iter()
        .filter(|upper| upper.ranges.overlaps(range) && !merging.is_descending(upper.run.number()));
    let here: Uppers<'a> = here.collect();
    here.chunk_by(|a, b| a.tier == b.tier).find_map(|runs| {
        let enough = TIER_RUNS[usize::from(runs[0].tier).min(TIER_RUNS.len() - 1)];
        // The oldest of them: the order of ages stays.
        let oldest = &runs[runs.len().saturating_sub(MERGE_RUNS_MAX)..];
        let is_free = oldest.iter().all(|it| !merging.is_busy(it.run.number(), range));
        (runs.len() >= enough && is_free).then(|| oldest.to_vec())
    })
}

fn numbers(runs: &[&Upper<Arc<RunFile>>]) -> Vec<u64> {
    runs.iter().map(|upper| upper.run.number()).collect()
}

/// Plans a merge of runs into the next key range of the last level; chooses the runs if there are
/// none.
fn plan_down(core: &Core, view: &View, merging: &mut Merging) -> Option<RangeMerge> {
    if !merging.may_start(Target::LastLevel) {
        return None;
    }
    if !merging.has_descending() {
        let epoch = view.epochs.iter().find(|epoch| is_due(core, view, merging, epoch))?;
        let runs = oldest_free(core, merging, epoch);
        if runs.is_empty() || !merging.descend(runs) {
            return None;
        }
    }
    view.epochs.iter().find_map(|epoch| {
        let is_descending = |it: &&Upper<Arc<RunFile>>| merging.is_descending(it.run.number());
        let runs: Uppers<'_> = epoch.uppers.iter().filter(is_descending).collect();
        let range = next_step(core, merging, epoch, &runs)?;
        let runs: Uppers<'_> = runs.into_iter().filter(|it| it.ranges.overlaps(range)).collect();
        let target = Target::LastLevel;
        Some(RangeMerge { epoch: epoch.number, runs: numbers(&runs), range, target })
    })
}

/// Returns the oldest runs of an epoch that are in no merge, as many as one merge may have.
fn oldest_free(core: &Core, merging: &Merging, epoch: &Epoch<Arc<RunFile>>) -> Vec<u64> {
    let universe = core.identity.universe;
    let parts = KeyRange::cut(universe, core.shares.merges_max);
    let mut depths = vec![0; parts.len()];
    let oldest = epoch.uppers.iter().rev().take_while(|upper| {
        for (depth, part) in depths.iter_mut().zip(&parts) {
            *depth += usize::from(upper.ranges.overlaps(*part));
        }
        let is_shallow = depths.iter().all(|&depth| depth <= DOWN_RUNS_MAX);
        is_shallow && !merging.is_busy(upper.run.number(), KeyRange::all(universe))
    });
    oldest.map(|upper| upper.run.number()).collect()
}

/// Whether the runs of an epoch should be merged into its last level.
fn is_due(core: &Core, view: &View, merging: &Merging, epoch: &Epoch<Arc<RunFile>>) -> bool {
    if epoch.uppers.is_empty() {
        return false;
    }
    // Nothing is added to a closed epoch any more.
    let is_closed = epoch.number < view.epochs[0].number;
    if merging.is_all_wanted() || is_closed {
        return true;
    }
    let (above, below) = items(core, epoch);
    let is_much = above * 100 >= below * u128::from(core.settings.upper_percent);
    epoch.uppers.len() >= TIER_RUNS[0] && is_much
}

/// Returns the approximate number of fingerprints above the last level of an epoch, and in it.
fn items(core: &Core, epoch: &Epoch<Arc<RunFile>>) -> (u128, u128) {
    let all = KeyRange::all(core.identity.universe);
    let above = epoch.uppers.iter().map(|upper| u128::from(upper.items_in(all))).sum();
    let below = epoch.shards.iter().filter_map(|shard| shard.run.as_ref());
    (above, below.map(|run| u128::from(run.facts().items)).sum())
}

/// Returns the first key range of the last level into which runs must be merged and that is in no
/// merge: whole shards, or parts of a shard without a run.
fn next_step(
    core: &Core,
    merging: &Merging,
    epoch: &Epoch<Arc<RunFile>>,
    runs: &[&Upper<Arc<RunFile>>],
) -> Option<KeyRange> {
    let universe = core.identity.universe;
    let (above, below) = items(core, epoch);
    let share = (above + below) / core.shares.merges_max as u128;
    let items_max = (share as u64).clamp(SHARD_ITEMS_MAX, STEP_ITEMS_MAX);
    let parts = KeyRange::cut(universe, core.shares.merges_max);
    let cells = epoch.shards.iter().enumerate().flat_map(|(i, shard)| {
        let range = epoch.range_of(i, universe);
        let whole = shard.run.is_some().then_some(range);
        let cut = parts.iter().filter_map(move |part| part.common(range));
        let cut = cut.filter(|_| shard.run.is_none());
        let items = shard.run.as_ref().map_or(0, |run| run.facts().items);
        whole.into_iter().chain(cut).map(move |cell| (cell, items))
    });
    let mut step: Option<(KeyRange, u64)> = None;
    for (cell, below) in cells {
        let is_wanted = runs.iter().any(|upper| upper.ranges.overlaps(cell))
            && !merging.is_last_level_busy(epoch.number, cell);
        let above = || runs.iter().map(|upper| upper.items_in(cell)).sum::<u64>();
        step = match step {
            None if is_wanted => Some((cell, below + above())),
            None => None,
            Some((range, items)) => {
                let items = items + below + above();
                if !is_wanted || items > items_max {
                    return Some(range);
                }
                Some((KeyRange { last: cell.last, ..range }, items))
            }
        };
    }
    step.map(|(range, _)| range)
}
