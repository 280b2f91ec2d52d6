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

/// Number of runs of a tier that are merged into one run of the next tier: for tier 0, and for
/// other tiers.
const TIER_RUNS: [usize; 2] = [8, 12];
/// Maximum number of runs in one merge above the last level.
const MERGE_RUNS_MAX: usize = 16;
/// Maximum number of runs that are merged into a key range of the last level at once, because each
/// takes memory.
const DOWN_RUNS_MAX: usize = 64;
/// Maximum number of fingerprints in a merge into the last level that takes more than one shard.
const STEP_ITEMS_MAX: u64 = 6 * SHARD_ITEMS_MAX;

type Uppers<'a> = Vec<&'a Upper<Arc<RunFile>>>;

/// Returns the next merge, if one is due and may start.
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
        // The runs are merged into the last level instead.
        if !merging.has_descending() && is_due(core, view, merging, epoch) {
            return None;
        }
        let group = |part: KeyRange| full_tier(merging, epoch, part);
        let (i, runs) = (0..parts.len()).find_map(|i| Some((i, group(parts[i])?)))?;
        let mut range = parts[i];
        // A small merge includes the next key ranges.
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
        // The oldest runs are merged, so that the order of ages stays.
        let oldest = &runs[runs.len().saturating_sub(MERGE_RUNS_MAX)..];
        let is_free = oldest.iter().all(|it| !merging.is_busy(it.run.number(), range));
        (runs.len() >= enough && is_free).then(|| oldest.to_vec())
    })
}

fn numbers(runs: &[&Upper<Arc<RunFile>>]) -> Vec<u64> {
    runs.iter().map(|upper| upper.run.number()).collect()
}

/// Plans a merge of runs into the next key range of the last level. Chooses the runs first, if none
/// are chosen.
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

/// Returns the oldest runs of an epoch that are in no merge, at most as many as one merge may have.
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
    // A closed epoch gets no more changes.
    let is_closed = epoch.number < view.epochs[0].number;
    if merging.is_all_wanted() || is_closed {
        return true;
    }
    let (above, below) = items(core, epoch);
    let is_much = above * 100 >= below * u128::from(core.settings.upper_percent);
    epoch.uppers.len() >= TIER_RUNS[0] && is_much
}

/// Returns the approximate numbers of fingerprints above the last level of an epoch and in its last
/// level.
fn items(core: &Core, epoch: &Epoch<Arc<RunFile>>) -> (u128, u128) {
    let all = KeyRange::all(core.identity.universe);
    let above = epoch.uppers.iter().map(|upper| u128::from(upper.items_in(all))).sum();
    let below = epoch.shards.iter().filter_map(|shard| shard.run.as_ref());
    (above, below.map(|run| u128::from(run.facts.items)).sum())
}

/// Returns the first key range of the last level into which runs must be merged and that is not
/// being merged: whole shards, or part of a shard without a run.
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
        let items = shard.run.as_ref().map_or(0, |run| run.facts.items);
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

#[cfg(test)]
mod tests {
    use super::{
        super::{
            catalog::Identity,
            memtable::{Change, Memtable},
            recovery,
            write::write_run,
        },
        *,
    };
    use crate::{
        env::Env,
        filter::{
            Mode,
            cascade::{CascadeOptions, CascadeSettings},
        },
        key::Seed,
        work::Threads,
    };
    use std::path::Path;

    const MERGES: usize = 6;
    const HASHES: u64 = 2000;

    /// Returns a filter with nine runs above an empty last level, and threads for six merges.
    fn core() -> Core {
        let env = Env { executor: Arc::new(Threads::new(MERGES + 2)), ..Env::simulated(1) };
        let settings = CascadeSettings { memory_bytes: 1 << 30, ..CascadeSettings::new(env) };
        let identity = Identity::from(&CascadeOptions::exact(Seed(1), 7));
        let core = recovery::create(Path::new("filter"), identity, settings).unwrap();
        let hashes: Vec<u64> = (0..HASHES).map(|i| i * (u64::MAX / HASHES)).collect();
        let mut memtable = Memtable::new(Mode::Set, 1 << 12);
        memtable.apply(Change::Insert, &hashes);
        let memtable = Arc::new(memtable);
        for _ in 0..9 {
            let mut scan = memtable.scan(Seed(1), core.identity.universe);
            let run = write_run(&core, &mut scan, HASHES).unwrap().unwrap();
            let ranges = KeyRange::all(core.identity.universe).into();
            let upper = Upper { run: run.clone(), tier: 0, ranges };
            core.publish(&[run.number()], |view| view.epochs[0].uppers.insert(0, upper)).unwrap();
        }
        core
    }

    /// Begins all merges that may start, and checks that they are disjoint.
    fn begin_all(core: &Core, merging: &mut Merging) -> Vec<RangeMerge> {
        let (view, mut begun) = (core.view(), Vec::<RangeMerge>::new());
        while let Some(merge) = plan(core, &view, merging) {
            assert!(merging.begin(&merge), "{merge:?}");
            assert!(begun.iter().all(|it| !it.range.overlaps(merge.range)));
            begun.push(merge);
        }
        begun
    }

    #[test]
    fn merges_into_an_empty_last_level_begin_with_several_key_ranges_at_once() {
        let core = core();
        let mut merging = Merging::new(MERGES);
        let begun = begin_all(&core, &mut merging);
        // One place is reserved for merges above the last level.
        assert_eq!(begun.len(), MERGES - 1);
        assert!(begun.iter().all(|it| it.target == Target::LastLevel && it.runs.len() == 9));
        assert!(merging.end(&begun[2], Ok(())));
        assert_eq!(begin_all(&core, &mut merging).len(), 1);
    }

    #[test]
    fn merges_above_the_last_level_begin_with_all_key_ranges_at_once() {
        let core = core();
        let oldest = core.view().epochs[0].uppers[8].run.number();
        let mut merging = Merging::new(MERGES);
        assert!(merging.descend(vec![oldest]));
        let begun = begin_all(&core, &mut merging);
        assert_eq!(begun.len(), MERGES);
        let all = |it: &RangeMerge| it.runs.len() == 8 && !it.runs.contains(&oldest);
        assert!(begun.iter().all(|it| it.target == Target::Upper { tier: 1 } && all(it)));
        let last = begun.iter().map(|it| it.range.last).max();
        assert_eq!(last, Some(core.identity.universe.last()));
    }
}
