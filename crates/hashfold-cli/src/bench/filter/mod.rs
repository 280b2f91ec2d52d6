//! `hashfold bench filter`: the cascade on the device, runs and the quotient filter in RAM.

mod cascade;
mod quotient;
mod runs;
mod variants;

use super::{FilterBench, in_folder, measure::Report, pairs::remove_all};
use crate::failure::Result;
use hashfold::io::{Disk, OsDisk};
use std::path::Path;

pub(super) fn run(bench: &FilterBench, report: &Report) -> Result<()> {
    // The cascade comes first, so that its peak RSS is its own.
    if wants(bench, &["cascade", "lookup", "variants"]) {
        in_folder(&bench.dir, "filter", |folder| on_device(bench, report, folder))?;
    }
    if wants(bench, &["run"]) {
        runs::run(bench, report)?;
    }
    if wants(bench, &["quotient"]) {
        quotient::run(bench, report)?;
    }
    Ok(())
}

fn on_device(bench: &FilterBench, report: &Report, folder: &Path) -> Result<()> {
    if wants(bench, &["cascade", "lookup"]) {
        cascade::run(bench, report, folder)?;
        remove_all(folder)?;
        OsDisk.create_folder(folder)?;
    }
    if wants(bench, &["variants"]) {
        variants::run(bench, report, folder)?;
    }
    Ok(())
}

fn wants(bench: &FilterBench, groups: &[&str]) -> bool {
    bench.only.is_empty() || bench.only.iter().any(|only| groups.contains(&only.as_str()))
}
