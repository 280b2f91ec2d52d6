//! Packing and flushing in the background: an immutable memtable becomes a run in RAM, at most a
//! quarter as large; several runs in RAM become one run file.

use super::{
    catalog::{Upper, View},
    core::{Core, caught},
    jobs::JobKind,
    key_range::KeyRange,
    merges,
    packing::Immutable,
    ram_runs::RamRun,
    write::write_run,
};
use crate::{
    error::Result,
    filter::{FingerprintMerge, PackedRun},
};
use std::sync::Arc;

/// The maximum number of runs in RAM that are written as one run file.
const FLUSH_RUNS_MAX: usize = 16;

/// Starts to pack the queued memtable.
pub(super) fn start_pack(core: &Arc<Core>) {
    core.spawn(JobKind::Pack, |core| {
        let immutable = core.change(|shared| shared.packing.begin());
        let Some(immutable) = immutable else { return };
        if let Err(error) = caught("pack", || pack(core, immutable)) {
            let failed = core.change(|shared| shared.packing.failed(error));
            debug_assert!(failed, "it is running until now");
        }
        core.end_urgency();
        start_flush(core);
    });
}

/// Packs a memtable, and replaces it by the run in RAM.
fn pack(core: &Core, Immutable { memtable, seq }: Immutable) -> Result<()> {
    let mut scan = memtable.scan(core.identity.seed, core.identity.universe);
    let spare = core.change(|shared| shared.ram_runs.take_spare());
    let run = match spare {
        None => PackedRun::build_with_room(&mut scan, core.shares.ram_run)?,
        Some(mut run) => {
            run.rebuild(&mut scan)?;
            run
        }
    };
    drop(scan);
    let run = RamRun { run: Arc::new(run), seq };
    let packed = core.change(|shared| {
        shared.ram_runs.push(run);
        shared.packing.packed()
    });
    // If lookups still use the memtable, its memory is not reused.
    let spare = Arc::into_inner(memtable).map(|mut memtable| {
        memtable.clear();
        memtable
    });
    let recycled = core.change(|shared| shared.packing.recycled(spare));
    debug_assert!(packed && recycled, "it is running until now");
    Ok(())
}

/// Starts to flush runs in RAM, if a flush is due and none is running.
pub(super) fn start_flush(core: &Arc<Core>) {
    let is_due =
        core.change(|shared| shared.ram_runs.is_due(&core.shares) && shared.ram_runs.begin_flush());
    if is_due {
        core.spawn(JobKind::Flush, flush_all);
    }
}

/// Flushes as long as a flush is due.
fn flush_all(core: &Arc<Core>) {
    let next = || core.change(|shared| shared.ram_runs.next_batch(FLUSH_RUNS_MAX, &core.shares));
    while let Some(runs) = next() {
        if let Err(error) = caught("flush", || flush(core, runs)) {
            let failed = core.change(|shared| shared.ram_runs.flush_failed(error));
            debug_assert!(failed, "it is running until now");
            return;
        }
        merges::start(core);
    }
}

/// Writes runs in RAM as one run file.
fn flush(core: &Core, runs: Vec<RamRun>) -> Result<()> {
    let Some(seq) = runs.first().map(|newest| newest.seq) else { return Ok(()) };
    let items = runs.iter().map(|it| it.run.len()).sum();
    let all = runs.iter().map(|it| it.run.scan()).collect();
    let mut merge =
        FingerprintMerge::new(all, core.identity.mode)?.within(core.shares.merge.items());
    let run = write_run(core, &mut merge, items)?;
    drop(merge);
    let made: Vec<u64> = run.iter().map(|run| run.number()).collect();
    let change = |view: &mut View| {
        (view.seq, view.logged) = (seq, core.shared().logged);
        let ranges = KeyRange::all(core.identity.universe).into();
        view.epochs[0].uppers.splice(0..0, run.map(|run| Upper { run, tier: 0, ranges }));
        Some(())
    };
    core.publish_if(&made, change, |shared| shared.ram_runs.flushed(runs.len()))?;
    // The memory of runs that lookups still use is not reused.
    let spares = runs.into_iter().filter_map(|it| Arc::into_inner(it.run));
    core.change(|shared| shared.ram_runs.keep_spares(spares, &core.shares));
    Ok(())
}
