//! The figures and numbers of Bender et al., *Don't Thrash: How to Cache your Hash on Flash*
//! (2011), measured with our quotient and cascade filters.

mod insertions;
mod lookups;
#[path = "../../../peers/src/filter/paper.rs"]
mod paper_filter;
mod quotient;
mod tombstones;

pub use self::{
    insertions::{draw as draw_figure_3, figure_3},
    lookups::{draw as draw_lookups, lookups},
    quotient::{draw as draw_quotient, quotient},
    tombstones::{draw as draw_tombstones, tombstones},
};

use crate::{Options, Result, builds::THREADS, hashes::pick, measure::ensure, sheet::Sheet};
use hashfold::{
    Env, KeyHash, Seed,
    filter::cascade::{CascadeFilter, CascadeOptions, CascadeSettings},
    work::{Executor, Inline, Threads},
};
use std::sync::Arc;

/// Default folder of the results.
const FOLDER: &str = "results/cascade";
/// False-positive rate of the filters in the paper, section 3.
const ERROR_RATE: f64 = 0.0004;
/// Number of keys in a batch.
const BATCH: u64 = 4096;
/// Memory of a filter in MiB, as in the paper.
const MEMORY_MIB: usize = 256;
/// Memory of a filter in MiB for quick runs.
const TINY_MEMORY_MIB: usize = 16;

/// Returns the hash of a numbered key.
fn hash(i: u64, seed: u64) -> KeyHash {
    KeyHash::of(&i.to_le_bytes(), Seed(seed))
}

/// Returns the options of the paper's set with this number of keys.
fn options_for(keys: u64, options: &Options) -> Result<CascadeOptions> {
    Ok(CascadeOptions::new(Seed(options.seed), 1, keys, ERROR_RATE)?)
}

/// Returns settings with background jobs, or with all jobs inside the insertions that cause them.
fn settings(memory_mib: usize, is_inline: bool) -> CascadeSettings {
    let executor: Arc<dyn Executor> =
        if is_inline { Arc::new(Inline) } else { Arc::new(Threads::new(4 + THREADS)) };
    let env = Env { executor, ..Env::system() };
    CascadeSettings { memory_bytes: memory_mib << 20, ..CascadeSettings::new(env) }
}

/// Looks up some of the keys from `first` to `end`, which must all be present.
fn check_present(filter: &CascadeFilter, first: u64, end: u64, seed: u64) -> Result<()> {
    const LOOKUPS: u64 = 10_000;
    let asked = (0..LOOKUPS).map(|i| hash(first + pick(i, seed, end - first), seed));
    let found = count_found(filter, &asked.collect::<Vec<_>>())?;
    ensure(found == LOOKUPS, || format!("{found} of {LOOKUPS} keys were found"))
}

fn count_found(filter: &CascadeFilter, hashes: &[KeyHash]) -> Result<u64> {
    let mut found = vec![false; hashes.len()];
    filter.contains_batch(hashes, &mut found)?;
    Ok(found.iter().filter(|found| **found).count() as u64)
}

/// Adds the notes of all sheets about the device.
fn note_means(sheet: &mut Sheet, memory_mib: usize, device: String) {
    sheet.note("memory", format!("{memory_mib} MiB"));
    sheet.note("device", device);
    sheet.note(
        "threads",
        format!("one that inserts, 4 for work in the background, {THREADS} for reads and writes"),
    );
    sheet.note("paper machine", crate::paper::CASCADE_MACHINE);
}
