//! A full table is packed: it becomes a run in memory, a quarter as large or less. When there are
//! several of those, they are merged into one on the device.

use super::{
    catalog::{Upper, View},
    core::{Core, Errand, Frozen, Packed, caught},
    merges::{self, MERGE_RUNS_MAX, Polite},
    resident::Resident,
    run_file::{RunFile, RunWriter},
};
use crate::{
    error::Result,
    filter::{FingerprintMerge, PackedRun},
    fingerprints::{FingerprintBatch, Fingerprints},
};
use std::{mem, sync::Arc};

/// Starts to pack the frozen table, which [`Errand::Running`] stands for already.
pub(super) fn start_pack(core: &Arc<Core>) {
    let shared = core.clone();
    core.settings.executor.spawn(Box::new(move || {
        let frozen = shared.begin_pack();
        let result = caught("pack", || frozen.map_or(Ok(()), |frozen| pack(&shared, frozen)));
        shared.end_pack(result);
        let is_due = shared.shared().is_flush_due(&shared.shares);
        if is_due {
            start_flush(&shared);
        }
    }));
}

/// Packs a table, and puts the run in its place.
fn pack(core: &Core, frozen: Frozen) -> Result<()> {
    let Frozen { table, end } = frozen;
    let mut scan = table.scan(core.identity.seed, core.identity.universe);
    let spare = core.shared().spare_packed.pop();
    let run = match spare {
        None => PackedRun::build_with_room(&mut scan, core.shares.packed_one)?,
        Some(mut run) => {
            run.rebuild(&mut scan)?;
            run
        }
    };
    drop(scan);
    let done = {
        let mut shared = core.shared();
        Arc::make_mut(&mut shared.packed).insert(0, Packed { run: Arc::new(run), end });
        shared.frozen.take()
    };
    drop(done);
    // Lookups may still have it: then it is not used again.
    if let Some(mut table) = Arc::into_inner(table) {
        table.clear();
        core.shared().spare.get_or_insert(table);
    }
    Ok(())
}

/// Starts to flush what is packed, if nobody is about it.
pub(super) fn start_flush(core: &Arc<Core>) {
    if !mem::replace(&mut core.shared().flush, Errand::Running).is_running() {
        let shared = core.clone();
        core.settings.executor.spawn(Box::new(move || flush_all(&shared)));
    }
}

/// Flushes for as long as there is enough.
fn flush_all(core: &Arc<Core>) {
    loop {
        let packed = {
            let mut shared = core.shared();
            if !shared.is_flush_due(&core.shares) {
                shared.flush = Errand::Idle;
                break;
            }
            // The oldest.
            shared.packed[shared.packed.len().saturating_sub(MERGE_RUNS_MAX)..].to_vec()
        };
        if let Err(error) = caught("flush", || flush(core, packed)) {
            core.shared().flush = Errand::Failed(error);
            break;
        }
        merges::start(core);
    }
    core.notify();
}

/// Writes packed runs as one.
fn flush(core: &Core, packed: Vec<Packed>) -> Result<()> {
    let Some(end) = packed.first().map(|packed| packed.end) else { return Ok(()) };
    let items = packed.iter().map(|packed| packed.run.len()).sum();
    let all = packed.iter().map(|packed| packed.run.scan()).collect();
    let merge = FingerprintMerge::new(all, core.identity.mode)?.within(core.shares.merge.items());
    let mut merge = Polite { core, of: merge };
    let run = write_run(core, &mut merge, items)?;
    drop(merge);
    let change = |view: &View| {
        let mut view = view.clone();
        (view.seq, view.first_log) = (end.seq, end.next_log);
        if run.facts().items > 0 {
            view.epochs[0].uppers.insert(0, Upper { run: run.clone(), tier: 0, from: 0 });
        }
        Some(view)
    };
    core.publish(&[run.number()], change, |shared| {
        let left = shared.packed.len() - packed.len();
        Arc::make_mut(&mut shared.packed).truncate(left);
    })?;
    if run.facts().items == 0 {
        core.discard(&[run.number()]);
    }
    // Lookups may still have some.
    let spare = packed.into_iter().filter_map(|packed| Arc::into_inner(packed.run));
    core.shared().spare(spare, &core.shares);
    Ok(())
}

/// Writes a run of at most so many fingerprints, and keeps as much of it in memory as there is
/// room for.
pub(super) fn write_run(
    core: &Core,
    fingerprints: &mut dyn Fingerprints,
    items_max: u64,
) -> Result<Arc<RunFile>> {
    let resident = plan_resident(core, items_max);
    let mut writer = create(core, resident)?;
    let number = writer.number();
    let result = fill(core, &mut writer, fingerprints)
        .and_then(|()| writer.finish(&*core.disk, &core.folder, core.settings.access));
    result.map(Arc::new).inspect_err(|_| core.discard(&[number]))
}

fn fill(core: &Core, writer: &mut RunWriter, fingerprints: &mut dyn Fingerprints) -> Result<()> {
    let mut items = FingerprintBatch::new();
    while fingerprints.append_to(&mut items)? {
        writer.push(&items)?;
        core.add_moved(items.len() as u64);
        items.clear();
    }
    Ok(())
}

/// A new run.
pub(super) fn create(core: &Core, resident: Option<Resident>) -> Result<RunWriter> {
    let number = core.new_number();
    let name = (core.run_name(number), core.generation());
    let io = core.settings.executor.clone();
    RunWriter::create((&*core.disk, &core.folder), name, resident, &core.budget, io)
        .inspect_err(|_| core.discard(&[number]))
}

/// What stays in memory of a new run above the last level. Runs of the last level make room.
fn plan_resident(core: &Core, items: u64) -> Option<Resident> {
    let universe = core.identity.universe;
    let planned = || Resident::plan(&core.budget, items, universe, 0);
    planned().filter(Resident::is_whole).or_else(|| {
        let view = core.shared().view.clone();
        for shard in view.epochs.iter().flat_map(|epoch| &epoch.shards) {
            if let Some(run) = &shard.run {
                run.set_resident(None);
            }
        }
        drop(view);
        planned()
    })
}
