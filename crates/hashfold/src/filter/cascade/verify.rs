//! Checking a whole filter.

use super::{
    catalog::{Epoch, Identity},
    key_range::KeyRange,
    logs, recovery,
    resident::MemoryBudget,
    run_file::{Facts, RunFile},
    scan::RunScan,
};
use crate::{
    env::Env,
    error::{Error, Result},
    fingerprints::{Ascent, FingerprintBatch, Fingerprints},
    io::Access,
    verify::VerifyReport,
    work::{Executor, Inline, Watch},
};
use std::{path::Path, sync::Arc};

/// Size of one read, in bytes.
const UNIT_SIZE: usize = 1 << 20;

/// The amounts that the check of a cascade filter counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CascadeFigures {
    /// Number of runs that were read.
    pub runs: u64,
    /// Number of fingerprints that were read, with tombstones.
    pub fingerprints: u64,
    /// Number of tombstones that were read: removals that are not merged yet.
    pub tombstones: u64,
    /// Number of changes in the WAL that are not in runs yet.
    pub logged: u64,
}

/// Reads the whole filter in a folder that no writer has open. Checks every checksum, the order of
/// all fingerprints, the indexes, and the key ranges of all runs. `watch` counts fingerprints.
///
/// # Errors
/// If the manifest cannot be read, or the device fails.
pub fn verify(env: &Env, folder: &Path, watch: &Watch) -> Result<VerifyReport<CascadeFigures>> {
    let disk = &*env.disk;
    let (identity, state) = recovery::read_state(disk, folder)?;
    recovery::check_newest(disk, folder, &identity, &state)?;
    let mut report: VerifyReport<CascadeFigures> = VerifyReport::default();
    // One run is open at a time.
    let budget = MemoryBudget::unlimited();
    for epoch in &state.epochs {
        for (number, range) in ranges(epoch, &identity) {
            report.figures.runs += 1;
            let name = identity.run(number);
            let checked =
                RunFile::open(disk, folder, name, Access::Direct, &budget).and_then(|run| {
                    check(&Arc::new(run), range, &identity, &mut report.figures, watch)
                });
            report.note(checked)?;
        }
    }
    let checked = logs::replay(disk, folder, &identity, &state, &mut |_, _| Ok(()));
    report.figures.logged = report.note(checked)?.unwrap_or(state.seq) - state.seq;
    Ok(report)
}

/// Returns the runs of an epoch, and the key ranges of their fingerprints.
fn ranges(epoch: &Epoch<u64>, identity: &Identity) -> Vec<(u64, KeyRange)> {
    let all = KeyRange::all(identity.universe);
    let uppers = epoch.uppers.iter().map(|upper| (upper.run, all));
    let shards = epoch
        .shards
        .iter()
        .enumerate()
        .filter_map(|(i, shard)| Some((shard.run?, epoch.range_of(i, identity.universe))));
    uppers.chain(shards).collect()
}

fn check(
    run: &Arc<RunFile>,
    KeyRange { first: from, last: to }: KeyRange,
    identity: &Identity,
    figures: &mut CascadeFigures,
    watch: &Watch,
) -> Result<()> {
    let executor: Arc<dyn Executor> = Arc::new(Inline);
    let universe = identity.universe;
    let mut scan = RunScan::new(run, KeyRange::all(universe), UNIT_SIZE, &executor);
    let (mut here, mut ascent, mut block) = (FingerprintBatch::new(), Ascent::new(universe), 0);
    let mut got = Facts::default();
    while scan.append_to(&mut here)? {
        let place = run.place().offset(run.extent(block, 1).offset);
        ascent.check(&here.fingerprints).map_err(|error| error.at(&place))?;
        let (first, end) = (here.first().unwrap_or(from), here.last().unwrap_or(to));
        if first < from || end > to {
            let expected = format!("from {from:#x} to {to:#x}");
            let got = format!("from {first:#x} to {end:#x}");
            return Err(Error::field("fingerprints of the block", expected, got).at(&place));
        }
        let is_found = |fingerprint| run.index.candidates(fingerprint).contains(&(block as usize));
        if !is_found(first) || !is_found(end) {
            let expected = "one that leads to the block";
            return Err(Error::field("index", expected, "another").at(&place));
        }
        got.add(&here);
        figures.fingerprints += here.len() as u64;
        watch.add(here.len() as u64)?;
        here.clear();
        block += 1;
    }
    got.blocks = block;
    figures.tombstones += got.negative;
    if got != run.facts {
        let text = |facts: &Facts| {
            let Facts { blocks, items, counted, negative } = facts;
            format!("{items} in {blocks} blocks, {counted} counted, {negative} of them below 0")
        };
        return Err(Error::field("fingerprints", text(&run.facts), text(&got)).at(run.place()));
    }
    Ok(())
}
