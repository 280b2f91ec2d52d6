//! `hashfold sketch show DIR`: what a table of groups is.

use super::Groups;
use crate::{failure::Result, output::write_line, units};
use hashfold::sketch::Hll;
use serde_json::json;
use std::path::Path;

/// Describes a table of groups.
pub(in crate::sketch) fn show(folder: &Path, json: bool) -> Result<()> {
    let groups = Groups::open(folder)?;
    let (stats, empty) = (groups.table.stats(), Hll::of_family(groups.family, groups.precision)?);
    let per_group = stats.value_bytes as f64 / stats.entries.max(1) as f64;
    if json {
        return write_line(json!({
            "groups": stats.entries, "by": groups.by, "precision": groups.precision,
            "registers": empty.register_count(), "hash": groups.family.to_string(),
            "standard_error": empty.standard_error(), "seed": stats.seed.to_string(),
            "bytes": stats.data_bytes, "sketch_bytes": stats.value_bytes,
            "index_bytes": stats.index_bytes,
        }));
    }
    let registers = units::count(empty.register_count() as u64);
    for (name, value) in [
        ("groups", format!("{} by {}", units::count(stats.entries), groups.by)),
        ("precision", format!("{}, {registers} registers", groups.precision)),
        ("error", format!("{} standard error", units::percent(empty.standard_error()))),
        ("hash", groups.family.to_string()),
        (
            "size",
            format!(
                "{}, index {}",
                units::bytes(stats.data_bytes),
                units::bytes(stats.index_bytes)
            ),
        ),
        ("per sketch", format!("{} on average", units::bytes(per_group.round() as u64))),
    ] {
        write_line(format_args!("{name:<14} {value}"))?;
    }
    Ok(())
}
