//! A full table becomes a run.

use super::{
    core::{Core, Flush, Frozen, caught},
    merges,
    resident::Resident,
    run::{Run, RunWriter},
    state::Upper,
};
use crate::{
    error::Result,
    filter::{Fingerprints, Span},
};
use std::sync::Arc;

/// Starts the flush of the frozen table, which [`Flush::Running`] stands for already.
pub(super) fn start(core: &Arc<Core>) {
    let shared = core.clone();
    core.settings.work.spawn(Box::new(move || run(&shared)));
}

fn run(core: &Arc<Core>) {
    let frozen = core.shared().frozen.clone();
    let result = caught("flush", || frozen.map_or(Ok(()), |frozen| flush(core, frozen)));
    let failed = result.is_err();
    core.shared().flush = result.map_or_else(Flush::Failed, |()| Flush::Idle);
    core.notify();
    if !failed {
        merges::start(core);
    }
}

fn flush(core: &Core, frozen: Frozen) -> Result<()> {
    let Frozen { table, told, next_log } = frozen;
    let items = table.len() as u64;
    let mut scan = table.scan(core.identity.universe);
    let run = write_run(core, &mut scan, items)?;
    drop(scan);
    let mut done = None;
    let change = |view: &super::state::View| {
        let mut view = view.clone();
        view.told = told;
        view.first_log = next_log;
        if run.facts().items > 0 {
            view.epochs[0].uppers.insert(0, Upper { run: run.clone(), tier: 0, from: 0 });
        }
        Some(view)
    };
    core.publish(&[run.number()], change, |shared| done = shared.frozen.take())?;
    if run.facts().items == 0 {
        core.discard(&[run.number()]);
    }
    drop((done, run));
    // Lookups may still have it: then it is not used again.
    if let Some(mut table) = Arc::into_inner(table) {
        table.clear();
        core.shared().spare.get_or_insert(table);
    }
    Ok(())
}

/// Writes a run of at most so many fingerprints, and keeps as much of it in memory as there is
/// room for.
pub(super) fn write_run(
    core: &Core,
    fingerprints: &mut dyn Fingerprints,
    items_max: u64,
) -> Result<Arc<Run>> {
    let resident = plan_resident(core, items_max);
    let mut writer = create(core, resident)?;
    let number = writer.number();
    let result = fill(core, &mut writer, fingerprints)
        .and_then(|()| writer.finish(&*core.disk, &core.folder, core.settings.access));
    result.map(Arc::new).inspect_err(|_| core.discard(&[number]))
}

fn fill(core: &Core, writer: &mut RunWriter, fingerprints: &mut dyn Fingerprints) -> Result<()> {
    let mut span = Span::default();
    while fingerprints.next_span(&mut span)? {
        writer.push(&span)?;
        core.add_moved(span.len() as u64);
    }
    Ok(())
}

/// A new run.
pub(super) fn create(core: &Core, resident: Option<Resident>) -> Result<RunWriter> {
    let number = core.new_number();
    let (name, io) = (core.run_name(number), core.settings.io.clone());
    RunWriter::create(&*core.disk, &core.folder, name, resident, io)
        .inspect_err(|_| core.discard(&[number]))
}

/// What stays in memory of a new run above the last level. Runs of the last level make room.
fn plan_resident(core: &Core, items: u64) -> Option<Resident> {
    let universe = core.identity.universe;
    let planned = || Resident::plan(&core.room, items, universe, 0);
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
