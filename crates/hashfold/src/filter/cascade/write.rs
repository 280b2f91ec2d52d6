//! Writing run files from fingerprints that are being merged.

use super::{
    catalog::Shard,
    core::Core,
    resident::Resident,
    run_file::{RunFile, RunWriter},
};
use crate::{
    error::Result,
    fingerprints::{FingerprintBatch, Fingerprints},
};
use std::sync::Arc;

/// The maximum number of fingerprints in a shard: merging it takes tenths of a second.
pub(super) const SHARD_ITEMS_MAX: u64 = if cfg!(test) { 4096 } else { 16 << 20 };

/// Writes a run of about `items` fingerprints, and keeps as much of it in memory as fits. `None` if
/// there are no fingerprints.
pub(super) fn write_run(
    core: &Core,
    fingerprints: &mut dyn Fingerprints,
    items: u64,
) -> Result<Option<Arc<RunFile>>> {
    let mut next = FingerprintBatch::new();
    if !fingerprints.append_to(&mut next)? {
        return Ok(None);
    }
    let resident = plan_resident(core, items);
    write_file(core, fingerprints, &mut next, u64::MAX, resident).map(Some)
}

/// Writes about `items` fingerprints as shards of the last level, the first of which starts at
/// `start`.
pub(super) fn write_shards(
    core: &Core,
    fingerprints: &mut dyn Fingerprints,
    start: u64,
    items: u64,
) -> Result<Vec<Shard<Arc<RunFile>>>> {
    let pieces = items.div_ceil(SHARD_ITEMS_MAX).max(1);
    // The size is slightly larger than needed, so that no small rest needs another shard.
    let piece_items = items.div_ceil(pieces) + items / 64 + 1;
    let mut shards: Vec<Shard<Arc<RunFile>>> = Vec::new();
    let mut next = FingerprintBatch::new();
    let mut result = fingerprints.append_to(&mut next).map(drop);
    while result.is_ok() && !next.is_empty() {
        let start = if shards.is_empty() { Some(start) } else { next.first() }.unwrap_or(start);
        // Half of the memory is for the runs above the last level.
        let spared = core.budget.bytes_max / 2;
        let resident = Resident::plan(&core.budget, piece_items, fingerprints.universe(), spared);
        let resident = resident.filter(Resident::is_whole);
        result = write_file(core, fingerprints, &mut next, piece_items, resident)
            .map(|run| shards.push(Shard { start, run: Some(run) }));
    }
    if let Err(error) = result {
        core.publisher.discard(&numbers(&shards));
        return Err(error);
    }
    if shards.is_empty() {
        shards.push(Shard { start, run: None });
    }
    Ok(shards)
}

/// Returns the numbers of the runs of shards.
pub(super) fn numbers(shards: &[Shard<Arc<RunFile>>]) -> Vec<u64> {
    shards.iter().filter_map(|shard| Some(shard.run.as_ref()?.number())).collect()
}

/// Writes a run file of up to `items_max` fingerprints, those in `next` first. The following
/// fingerprints are left in `next`.
fn write_file(
    core: &Core,
    fingerprints: &mut dyn Fingerprints,
    next: &mut FingerprintBatch,
    items_max: u64,
    resident: Option<Resident>,
) -> Result<Arc<RunFile>> {
    let number = core.publisher.new_number();
    let write = || {
        let name = (core.identity.run(number), core.view().generation);
        let folder = core.publisher.folder();
        let place = (&*folder.disk, &*folder.path);
        let io = core.settings.env.executor.clone();
        let mut writer = RunWriter::create(place, name, resident, &core.budget, io)?;
        while !next.is_empty() && writer.items() < items_max {
            writer.push(next)?;
            core.add_moved(next.len() as u64);
            next.clear();
            fingerprints.append_to(next)?;
        }
        writer.finish(&*folder.disk, &folder.path, core.settings.access)
    };
    write().map(Arc::new).inspect_err(|_| core.publisher.discard(&[number]))
}

/// Plans which part of a new run above the last level is kept in memory. Kept runs of the last
/// level are dropped if it needs their memory.
fn plan_resident(core: &Core, items: u64) -> Option<Resident> {
    let universe = core.identity.universe;
    let planned = || Resident::plan(&core.budget, items, universe, 0);
    planned().filter(Resident::is_whole).or_else(|| {
        let view = core.view();
        for shard in view.epochs.iter().flat_map(|epoch| &epoch.shards) {
            if let Some(run) = &shard.run {
                run.set_resident(None);
            }
        }
        planned()
    })
}
