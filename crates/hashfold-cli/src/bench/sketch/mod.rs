//! `hashfold bench sketch`: sketches in RAM, and tables of groups on the device.

mod groups;
mod insert;
mod joint;
mod prefix;

use super::{SketchBench, measure::Report, pairs::remove_all};
use crate::failure::Result;
use hashfold::io::{Disk, OsDisk};
use std::path::Path;

pub(super) fn run(bench: &SketchBench, report: &Report) -> Result<()> {
    if wants(bench, "insert") {
        insert::run(bench, report)?;
    }
    if wants(bench, "joint") {
        joint::run(bench, report)?;
    }
    if wants(bench, "prefix") {
        within(bench, &|folder| prefix::run(bench, report, folder))?;
    }
    if wants(bench, "groups") {
        within(bench, &|folder| groups::run(bench, report, folder))?;
    }
    Ok(())
}

/// Measures in a folder, which is removed.
fn within(bench: &SketchBench, measure: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
    let folder = bench.dir.join("sketch");
    OsDisk.create_folder(&folder)?;
    let done = measure(&folder);
    let removed = remove_all(&folder);
    // The folder stays if it existed before and is not empty.
    let _ = OsDisk.remove_folder(&bench.dir);
    done.and(removed)
}

fn wants(bench: &SketchBench, group: &str) -> bool {
    bench.only.is_empty() || bench.only.iter().any(|only| only == group)
}
