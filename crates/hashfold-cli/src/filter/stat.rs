//! `hashfold filter stat`: what a filter is and what it costs.

use crate::{
    device,
    failure::{Exit, Result},
    folder,
    output::write_line,
    units,
};
use clap::Args;
use hashfold::{
    filter::{
        Mode,
        cascade::{CascadeStats, Snapshot},
    },
    fingerprints::Universe,
    io::Access,
};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Describe a filter: keys, how full it is, errors, sizes
///
/// What is durable is described, also while another process puts keys in. A key that is in several
/// runs counts several times, and so does one that was taken out, until runs are merged: after
/// `hashfold filter merge` the number of fingerprints is exact, if there is one epoch. Keys that
/// share one count once.
#[derive(Args, Debug)]
pub(crate) struct StatArgs {
    /// The folder of the filter
    #[arg(value_name = "DIR")]
    filter: PathBuf,
    /// As a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &StatArgs) -> Result<Exit> {
    folder::require_filter(&args.filter)?;
    let snapshot = Snapshot::open(device::disk().as_ref(), &args.filter, Access::Direct)?;
    let stats = snapshot.stats();
    if args.json {
        return write_line(to_json(&stats)).map(|()| Exit::Done);
    }
    for (name, value) in rows(&stats) {
        write_line(format_args!("{name:<12} {value}"))?;
    }
    Ok(Exit::Done)
}

/// `set, exact` or `set for 1,000 keys, errors 0.0004`.
pub(super) fn kind(mode: Mode, capacity: u64, universe: Universe) -> String {
    let mode = match mode {
        Mode::Set => "set",
        Mode::Multiset => "multiset",
    };
    match universe == Universe::EXACT {
        true => format!("{mode}, exact"),
        false => format!(
            "{mode} for {}, errors {:.2e} when full",
            units::counted(capacity, "key", "keys"),
            universe.expected_error(capacity)
        ),
    }
}

/// The part of the capacity that is in use; `None` in an exact filter, which has none.
fn fullness(stats: &CascadeStats) -> Option<f64> {
    (stats.universe != Universe::EXACT).then(|| stats.items as f64 / stats.capacity as f64)
}

/// Whether the number of items is exact.
pub(super) fn is_merged(stats: &CascadeStats) -> bool {
    stats.upper_runs == 0 && stats.pending == 0 && stats.epochs.len() == 1
}

fn rows(stats: &CascadeStats) -> Vec<(&'static str, String)> {
    let mut keys = units::count(stats.items).to_string();
    if !is_merged(stats) {
        keys += " at most";
    }
    if let Some(part) = fullness(stats) {
        keys += &format!(", {:.1} % full", part * 100.0);
    }
    let bits =
        format!("{}, {:.2} bits a key", units::bytes(stats.file_bytes), stats.bits_per_item());
    let runs = format!(
        "{}, and {} of the last level",
        units::counted(stats.upper_runs, "newer run", "newer runs"),
        units::counted(stats.shards, "part", "parts")
    );
    let last = stats.epochs.last().map_or(0, |epoch| epoch.number);
    let epochs = match stats.epochs.len() as u64 {
        1 => format!("1, number {last}"),
        count => format!("{}, numbers {} to {last}", units::count(count), stats.epochs[0].number),
    };
    vec![
        ("filter", kind(stats.mode, stats.capacity, stats.universe)),
        ("keys", keys),
        ("errors", format!("{:.2e} of the keys that are not in", stats.false_positive_rate())),
        ("data", bits),
        ("runs", runs),
        ("epochs", epochs),
        ("memory", format!("{} for the indexes", units::bytes(stats.memory_bytes))),
        ("seed", stats.seed.to_string()),
    ]
}

fn to_json(stats: &CascadeStats) -> Value {
    let epochs = stats.epochs.iter().map(|epoch| {
        json!({ "number": epoch.number, "items": epoch.items, "file_bytes": epoch.file_bytes })
    });
    let is_exact = stats.universe == Universe::EXACT;
    json!({
        "mode": if stats.mode == Mode::Set { "set" } else { "multiset" },
        "exact": is_exact,
        "capacity": (!is_exact).then_some(stats.capacity),
        "items": stats.items,
        "items_are_exact": is_merged(stats),
        "fullness": fullness(stats),
        "error_now": stats.false_positive_rate(),
        "error_at_capacity": (!is_exact).then(|| stats.universe.expected_error(stats.capacity)),
        "changes": stats.durable_seq,
        "file_bytes": stats.file_bytes,
        "bits_per_item": stats.bits_per_item(),
        "upper_runs": stats.upper_runs,
        "shards": stats.shards,
        "index_bytes": stats.memory_bytes,
        "epochs": epochs.collect::<Vec<_>>(),
        "seed": stats.seed.to_string(),
    })
}
