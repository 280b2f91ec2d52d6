//! Merging in the background: runs above the last level into fewer ones, and these into the last
//! level, a few shards at a time.
//!
//! ```text
//! flush → tier 0: ▪▪▪▪▪▪▪▪ ─→ tier 1: ▬▬▬ ─→ … ┐ when they are more than a part of the last level:
//!                                              ├→ shard after shard of it is merged with them
//! last level:  ▇▇▇▇▇▇▇│▇▇▇▇▇▇▇│▇▇▇▇▇▇▇ ────────┘
//! ```
//!
//! Runs that go down are merged for some shards, published, and for the next ones; `from` says how far
//! they are. A shard that grows too large becomes several.

use super::{
    catalog::{Epoch, Shard, Upper, View},
    core::{Core, Shared, caught},
    flush::{create, write_run},
    resident::Resident,
    run_file::{RunFile, RunWriter},
    scan::{Chain, RunScan},
};
use crate::{
    error::Result,
    filter::FingerprintMerge,
    fingerprints::{FingerprintBatch, Fingerprints, Universe},
    key::Seed,
};
use std::sync::Arc;

/// So many runs of a tier are merged into one of the next: of tier 0, and of those above.
const TIER_RUNS: [usize; 2] = [8, 12];
/// Runs that are merged at once above the last level, at most.
pub(super) const MERGE_RUNS_MAX: usize = 16;
/// Runs that go down together, at most, unless more are on their way: each takes memory.
const DOWN_RUNS_MAX: usize = 64;
/// The most fingerprints of a shard: merging one takes tens of milliseconds.
const SHARD_ITEMS_MAX: u64 = if cfg!(test) { 4096 } else { 16 << 20 };

/// Fingerprints of the last level that are merged in one step, at most: each ends with a manifest.
const STEP_ITEMS_MAX: u64 = 4 * SHARD_ITEMS_MAX;

/// Something to do.
#[derive(Clone, Debug)]
enum Task {
    /// Merge runs of one tier, the newest first.
    Up { epoch: u64, tier: u8, runs: Vec<u64> },
    /// Merge what goes down into the next shards.
    Down { epoch: u64, runs: Vec<u64> },
}

/// Which of the two kinds of work: one of each is done at a time.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Up,
    Down,
}

impl Kind {
    fn other(self) -> Kind {
        match self {
            Kind::Up => Kind::Down,
            Kind::Down => Kind::Up,
        }
    }
}

/// Starts what there is to do, in the background.
pub(super) fn start(core: &Arc<Core>) {
    for kind in [Kind::Up, Kind::Down] {
        let task = plan(core, &mut core.shared(), kind);
        if let Some(task) = task {
            spawn(core, kind, task);
        }
    }
}

fn spawn(core: &Arc<Core>, kind: Kind, task: Task) {
    let shared = core.clone();
    core.settings.executor.spawn(Box::new(move || run(&shared, kind, task)));
}

/// Does a task, and what there is to do then.
fn run(core: &Arc<Core>, kind: Kind, mut task: Task) {
    loop {
        let result = caught("merge", || execute(core, &task));
        let (next, others) = finish(core, kind, result);
        core.notify();
        if let Some(task) = others {
            spawn(core, kind.other(), task);
        }
        match next {
            None => return,
            // Other jobs of a pool get their turn.
            Some(next) if core.settings.executor.width() > 0 => return spawn(core, kind, next),
            Some(next) => task = next,
        }
    }
}

/// Ends a task; what there is to do next, of its kind and of the other.
fn finish(core: &Core, kind: Kind, result: Result<()>) -> (Option<Task>, Option<Task>) {
    let mut shared = core.shared();
    match kind {
        Kind::Up => shared.merging.clear(),
        Kind::Down => shared.is_merging_down = false,
    }
    if let Err(error) = result {
        // The next flush tries again.
        shared.merge_error = Some(error);
        shared.is_compacting = false;
        return (None, None);
    }
    // What one kind did may be what the other waited for.
    let next = plan(core, &mut shared, kind);
    (next, plan(core, &mut shared, kind.other()))
}

/// Something to do, marked as being done.
fn plan(core: &Core, shared: &mut Shared, kind: Kind) -> Option<Task> {
    if shared.is_closing {
        return None;
    }
    let task = match kind {
        Kind::Up => plan_up(core, shared),
        Kind::Down => plan_down(core, shared),
    }?;
    match &task {
        Task::Up { runs, .. } => shared.merging.clone_from(runs),
        Task::Down { .. } => shared.is_merging_down = true,
    }
    Some(task)
}

/// Runs of one tier, if there are enough of them.
fn plan_up(core: &Core, shared: &Shared) -> Option<Task> {
    if !shared.merging.is_empty() {
        return None;
    }
    let view = &shared.view;
    view.epochs.iter().find_map(|epoch| {
        let free: Vec<&Upper<Arc<RunFile>>> = epoch
            .uppers
            .iter()
            .filter(|upper| !shared.going_down.contains(&upper.run.number()))
            .collect();
        // They go down instead.
        if shared.going_down.is_empty() && is_due(core, shared, epoch) {
            return None;
        }
        free.chunk_by(|a, b| a.tier == b.tier).find_map(|runs| {
            let tier = runs[0].tier;
            let enough = TIER_RUNS[usize::from(tier).min(TIER_RUNS.len() - 1)];
            if runs.len() < enough {
                return None;
            }
            // The oldest of them: the order of ages stays.
            let oldest = &runs[runs.len().saturating_sub(MERGE_RUNS_MAX)..];
            let runs = oldest.iter().map(|upper| upper.run.number()).collect();
            Some(Task::Up { epoch: epoch.number, tier: tier.saturating_add(1), runs })
        })
    })
}

/// What goes down, or what is to do so now.
fn plan_down(core: &Core, shared: &mut Shared) -> Option<Task> {
    if shared.is_merging_down {
        return None;
    }
    let view = shared.view.clone();
    for epoch in &view.epochs {
        let is_going =
            |upper: &&Upper<Arc<RunFile>>| shared.going_down.contains(&upper.run.number());
        let going: Vec<u64> =
            epoch.uppers.iter().filter(is_going).map(|upper| upper.run.number()).collect();
        if !going.is_empty() {
            return Some(Task::Down { epoch: epoch.number, runs: going });
        }
    }
    let epoch = view.epochs.iter().find(|epoch| is_due(core, shared, epoch))?;
    // Only the oldest ones that nobody works with. If some were on their way when the filter was
    // closed, just these.
    let uppers = &epoch.uppers;
    let is_busy = |upper: &Upper<Arc<RunFile>>| shared.merging.contains(&upper.run.number());
    let first_free = uppers.iter().rposition(is_busy).map_or(0, |i| i + 1);
    let first_of_most = uppers.len().saturating_sub(DOWN_RUNS_MAX);
    let first_started = uppers.iter().position(|upper| upper.from > 0).unwrap_or(first_of_most);
    let runs = &uppers[first_free.max(first_started)..];
    let runs: Vec<u64> = runs.iter().map(|upper| upper.run.number()).collect();
    if runs.is_empty() {
        return None;
    }
    shared.going_down.clone_from(&runs);
    Some(Task::Down { epoch: epoch.number, runs })
}

/// Whether an epoch's runs are to go down.
fn is_due(core: &Core, shared: &Shared, epoch: &Epoch<Arc<RunFile>>) -> bool {
    if epoch.uppers.is_empty() {
        return false;
    }
    // Nothing is added to a closed epoch any more.
    let is_closed = epoch.number < shared.view.epochs[0].number;
    if shared.is_compacting || is_closed || epoch.uppers.iter().any(|upper| upper.from > 0) {
        return true;
    }
    let items = |run: &Arc<RunFile>| u128::from(run.facts().items);
    let above: u128 = epoch.uppers.iter().map(|upper| items(&upper.run)).sum();
    let below: u128 = epoch.shards.iter().filter_map(|shard| shard.run.as_ref()).map(items).sum();
    let is_much = above * 100 >= below * u128::from(core.settings.upper_percent);
    epoch.uppers.len() >= TIER_RUNS[0] && is_much
}

fn execute(core: &Core, task: &Task) -> Result<()> {
    let view = core.shared().view.clone();
    match task {
        Task::Up { epoch, tier, runs } => merge_up(core, &view, *epoch, *tier, runs),
        Task::Down { epoch, runs } => merge_down(core, &view, *epoch, runs),
    }
}

fn find_epoch(view: &View, number: u64) -> Option<usize> {
    view.epochs.iter().position(|epoch| epoch.number == number)
}

/// Merges runs of a tier into one of the next.
fn merge_up(core: &Core, view: &View, epoch: u64, tier: u8, runs: &[u64]) -> Result<()> {
    let Some(i) = find_epoch(view, epoch) else { return Ok(()) };
    let inputs: Vec<_> =
        view.epochs[i].uppers.iter().filter(|upper| runs.contains(&upper.run.number())).collect();
    let items = inputs.iter().map(|upper| upper.run.facts().items).sum();
    let universe = core.identity.universe;
    let unit = core.shares.merge.read_unit(inputs.len());
    let all =
        inputs.iter().map(|upper| scan(core, &upper.run, (upper.from, universe.last()), unit));
    let merge =
        FingerprintMerge::new(all.collect(), core.identity.mode)?.within(core.shares.merge.items());
    let mut merge = Polite { core, of: merge };
    let run = write_run(core, &mut merge, items)?;
    let change = |view: &View| {
        let mut view = view.clone();
        let i = find_epoch(&view, epoch)?;
        let uppers = &mut view.epochs[i].uppers;
        let first = uppers.iter().position(|upper| runs.contains(&upper.run.number()))?;
        uppers.retain(|upper| !runs.contains(&upper.run.number()));
        uppers.insert(first, Upper { run: run.clone(), tier, from: 0 });
        Some(view)
    };
    core.publish(&[run.number()], change, |_| {}).map(drop)
}

/// A stretch of a run, to be merged; `unit` bytes are read at once.
fn scan(core: &Core, run: &Arc<RunFile>, stretch: (u64, u64), unit: usize) -> RunScan {
    RunScan::new(run, stretch, unit, &core.settings.executor)
}

/// A merge that pauses while the packing of a table is urgent: somebody waits for that.
pub(super) struct Polite<'a, F> {
    pub(super) core: &'a Core,
    pub(super) of: F,
}

impl<F: Fingerprints> Fingerprints for Polite<'_, F> {
    fn seed(&self) -> Seed {
        self.of.seed()
    }

    fn universe(&self) -> Universe {
        self.of.universe()
    }

    fn append_to(&mut self, batch: &mut FingerprintBatch) -> Result<bool> {
        self.core.let_pack_go_first();
        self.of.append_to(batch)
    }
}

/// The shards that are merged in one step from the first on: with so many fingerprints at most, if
/// it is more than one shard.
fn step(epoch: &Epoch<Arc<RunFile>>, first: usize) -> &[Shard<Arc<RunFile>>] {
    let shards = &epoch.shards[first..];
    let mut items = 0;
    let fits = |shard: &&Shard<Arc<RunFile>>| {
        items += shard.run.as_ref().map_or(0, |run| run.facts().items);
        items <= STEP_ITEMS_MAX
    };
    let count = shards.iter().take_while(fits).count();
    &shards[..count.max(1)]
}

/// Merges what goes down into the next shards.
fn merge_down(core: &Core, view: &View, epoch: u64, runs: &[u64]) -> Result<()> {
    let universe = core.identity.universe;
    let Some(i) = find_epoch(view, epoch) else {
        core.shared().going_down.clear();
        return Ok(());
    };
    let epoch_now = &view.epochs[i];
    let inputs: Vec<_> =
        epoch_now.uppers.iter().filter(|upper| runs.contains(&upper.run.number())).collect();
    let from = inputs.iter().map(|upper| upper.from).max().unwrap_or(0);
    let shard = epoch_now.shards.iter().rposition(|shard| shard.start <= from).unwrap_or(0);
    let old = step(epoch_now, shard);
    let (start, count) = (old[0].start, old.len());
    let end = epoch_now.end_of(shard + count - 1, universe);
    let unit = core.shares.merge.read_unit(inputs.len() + 1);
    let scan = |run: &Arc<RunFile>| scan(core, run, (start, end), unit);
    let runs_below: Vec<&Arc<RunFile>> =
        old.iter().filter_map(|shard| shard.run.as_ref()).collect();
    let mut sources: Vec<Box<dyn Fingerprints + '_>> = Vec::new();
    sources.extend(inputs.iter().map(|upper| Box::new(scan(&upper.run)) as _));
    if !runs_below.is_empty() {
        sources.push(Box::new(Chain::new(
            core.identity.seed,
            universe,
            runs_below.iter().map(|run| scan(run)),
        )));
    }
    let mode = core.identity.mode;
    // Below the oldest epoch there is nothing that a tombstone could hide.
    let is_last = i + 1 == view.epochs.len();
    let of = if is_last {
        FingerprintMerge::last(sources, mode)
    } else {
        FingerprintMerge::new(sources, mode)
    }?;
    let mut merge = Polite { core, of: of.within(core.shares.merge.items()) };
    let part = (end - start) as f64 / universe.last() as f64;
    let above: u64 = inputs.iter().map(|upper| upper.run.facts().items).sum();
    let below: u64 = runs_below.iter().map(|run| run.facts().items).sum();
    let items = (above as f64 * part) as u64 + below;
    let shards = write_shards(core, &mut merge, start, items)?;
    let made: Vec<u64> =
        shards.iter().filter_map(|shard| Some(shard.run.as_ref()?.number())).collect();
    let is_done = end == universe.last();
    let change = |view: &View| {
        let mut view = view.clone();
        let i = find_epoch(&view, epoch)?;
        let now = &mut view.epochs[i];
        let place = now.shards.iter().position(|shard| shard.start == start)?;
        now.shards.splice(place..place + count, shards.iter().cloned());
        if is_done {
            now.uppers.retain(|upper| !runs.contains(&upper.run.number()));
        } else {
            let going = now.uppers.iter_mut().filter(|upper| runs.contains(&upper.run.number()));
            going.for_each(|upper| upper.from = end + 1);
        }
        Some(view)
    };
    let install = |shared: &mut Shared| {
        if is_done {
            shared.going_down.clear();
            shared.is_compacting &= shared.has_uppers();
        }
    };
    if !core.publish(&made, change, install)? {
        core.shared().going_down.clear();
    }
    Ok(())
}

/// Writes the new form of a shard: several shards, if it has become too large for one.
fn write_shards(
    core: &Core,
    fingerprints: &mut dyn Fingerprints,
    start: u64,
    items: u64,
) -> Result<Vec<Shard<Arc<RunFile>>>> {
    let pieces = items.div_ceil(SHARD_ITEMS_MAX).max(1);
    // A little more, so that nothing is left over for one more.
    let piece_items = items.div_ceil(pieces) + items / 64 + 1;
    let mut shards: Vec<Shard<Arc<RunFile>>> = Vec::new();
    let mut next = FingerprintBatch::new();
    let mut result = fingerprints.append_to(&mut next).map(drop);
    while result.is_ok() && !next.is_empty() {
        let start = if shards.is_empty() { Some(start) } else { next.first() }.unwrap_or(start);
        result = write_shard(core, fingerprints, &mut next, piece_items)
            .map(|run| shards.push(Shard { start, run: Some(run) }));
    }
    if let Err(error) = result {
        let made = shards.iter().filter_map(|shard| Some(shard.run.as_ref()?.number()));
        core.discard(&made.collect::<Vec<_>>());
        return Err(error);
    }
    if shards.is_empty() {
        shards.push(Shard { start, run: None });
    }
    Ok(shards)
}

/// Writes fingerprints, from those in `next` on, until there are enough; leaves the next there.
fn write_shard(
    core: &Core,
    fingerprints: &mut dyn Fingerprints,
    next: &mut FingerprintBatch,
    items: u64,
) -> Result<Arc<RunFile>> {
    // Half of the room is for the runs above.
    let spared = core.budget.bytes_max() / 2;
    let resident = Resident::plan(&core.budget, items, fingerprints.universe(), spared);
    let mut writer = create(core, resident.filter(Resident::is_whole))?;
    let number = writer.number();
    let mut fill = |writer: &mut RunWriter| {
        while !next.is_empty() && writer.items() < items {
            writer.push(next)?;
            core.add_moved(next.len() as u64);
            next.clear();
            fingerprints.append_to(next)?;
        }
        Ok(())
    };
    let run = fill(&mut writer)
        .and_then(|()| writer.finish(&*core.disk, &core.folder, core.settings.access));
    run.map(Arc::new).inspect_err(|_| core.discard(&[number]))
}
