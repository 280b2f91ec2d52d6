//! `hashfold bench sketch`: sketches in RAM, and tables of groups on the device.

mod groups;
mod insert;
mod joint;

use super::{SketchBench, in_folder, measure::Report};
use crate::failure::Result;

pub(super) fn run(bench: &SketchBench, report: &Report) -> Result<()> {
    if wants(bench, "insert") {
        insert::run(bench, report)?;
    }
    if wants(bench, "joint") {
        joint::run(bench, report)?;
    }
    if wants(bench, "groups") {
        in_folder(&bench.dir, "sketch", |folder| groups::run(bench, report, folder))?;
    }
    Ok(())
}

fn wants(bench: &SketchBench, group: &str) -> bool {
    bench.only.is_empty() || bench.only.iter().any(|only| only == group)
}
