//! `hashfold bench store`: making, updating and publishing versions.
//!
//! ```text
//! pairs, night (what changes) → scene (a store on the device)
//!     → update: one batch merged; sweep: batches of all sizes; growth: five in a row
//!     → delta: small batches, looked up; chunks: stores of 1, 16 and 1024 chunks
//!     → publish: what readers notice
//! ```

mod chunks;
mod delta;
mod growth;
mod night;
mod publish;
mod scene;
mod sweep;
mod update;

use super::{StoreBench, in_folder, measure::Report};
use crate::failure::Result;

pub(super) fn run(bench: &StoreBench, report: &Report) -> Result<()> {
    in_folder(&bench.dir, "store", |folder| groups(bench, report, folder))
}

fn groups(bench: &StoreBench, report: &Report, folder: &std::path::Path) -> Result<()> {
    let wants = |names: &[&str]| {
        bench.only.is_empty() || bench.only.iter().any(|only| names.contains(&only.as_str()))
    };
    if wants(&["update"]) {
        update::run(bench, report, folder)?;
    }
    if wants(&["update", "growth"]) {
        growth::run(bench, report, folder)?;
    }
    if wants(&["update", "sweep"]) {
        sweep::run(bench, report, folder)?;
    }
    if wants(&["delta"]) {
        delta::run(bench, report, folder)?;
    }
    if wants(&["chunks"]) {
        chunks::run(bench, report, folder)?;
    }
    if wants(&["publish"]) {
        publish::run(bench, report, folder)?;
    }
    Ok(())
}
