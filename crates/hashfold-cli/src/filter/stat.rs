//! `hashfold filter stat`: describes a filter and what it costs.

use crate::{
    failure::{Exit, Result},
    folder,
    output::write_line,
    units,
};
use clap::Args;
use hashfold::{
    Env,
    filter::{
        Mode,
        cascade::{CascadeStats, Snapshot},
    },
    fingerprints::Universe,
    io::Access,
};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Describe a filter: keys, fill, false-positive rate, sizes
///
/// Describes what was durable when the command started; another process may insert keys meanwhile.
/// A key that is in several runs counts several times, and so does a removed key, until runs are
/// merged: after `hashfold filter merge`, with one epoch, the number of fingerprints is exact. Keys
/// that share a fingerprint count once.
#[derive(Args, Debug)]
pub(crate) struct StatArgs {
    /// Folder of the filter
    #[arg(value_name = "DIR")]
    filter: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &StatArgs) -> Result<Exit> {
    folder::require_filter(&args.filter)?;
    let snapshot = Snapshot::open(&Env::system(), &args.filter, Access::Direct)?;
    let stats = snapshot.stats();
    if args.json {
        return write_line(to_json(&stats)).map(|()| Exit::Done);
    }
    for (name, value) in rows(&stats) {
        write_line(format_args!("{name:<16} {value}"))?;
    }
    Ok(Exit::Done)
}

/// `set, exact` or `set for 1,000 keys, false-positive rate 4.00e-4 when full`.
pub(super) fn kind(mode: Mode, capacity: u64, universe: Universe) -> String {
    let mode = match mode {
        Mode::Set => "set",
        Mode::Multiset => "multiset",
    };
    match universe == Universe::EXACT {
        true => format!("{mode}, exact"),
        false => format!(
            "{mode} for {}, false-positive rate {:.2e} when full",
            units::counted(capacity, "key", "keys"),
            universe.false_positive_rate(capacity)
        ),
    }
}

/// Returns the used fraction of the capacity; `None` for an exact filter, which has no capacity.
fn fullness(stats: &CascadeStats) -> Option<f64> {
    (stats.universe != Universe::EXACT).then(|| stats.items as f64 / stats.capacity as f64)
}

/// Returns whether the number of items is exact.
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
        format!("{}, {:.2} bits per key", units::bytes(stats.file_bytes), stats.bits_per_item());
    let runs = format!(
        "{}, {} in the last level",
        units::counted(stats.upper_runs, "newer run", "newer runs"),
        units::counted(stats.shards, "shard", "shards")
    );
    let last = stats.epochs.last().map_or(0, |epoch| epoch.number);
    let epochs = match stats.epochs.len() as u64 {
        1 => format!("1, number {last}"),
        count => format!("{}, numbers {} to {last}", units::count(count), stats.epochs[0].number),
    };
    vec![
        ("filter", kind(stats.mode, stats.capacity, stats.universe)),
        ("keys", keys),
        ("false positives", format!("{:.2e} of absent keys", stats.false_positive_rate())),
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
        "false_positive_rate": stats.false_positive_rate(),
        "false_positive_rate_at_capacity": (!is_exact).then(|| stats.universe.false_positive_rate(stats.capacity)),
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
