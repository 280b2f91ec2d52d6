//! `hashfold filter stat`: describes a filter and what it costs.

use super::words;
use crate::{
    device,
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
    io::Access,
};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Describe a filter: keys, fill, false-positive rate, sizes
///
/// Describes what was durable when the command started; another process may insert keys meanwhile.
/// A filter stores a fingerprint per key in each run that the key is in, and a tombstone per removal,
/// until runs are merged. So the number of keys is an upper bound; after `hashfold filter merge`, with
/// one epoch, it is exact. Keys that share a fingerprint count once.
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

fn rows(stats: &CascadeStats) -> Vec<(&'static str, String)> {
    let runs = format!(
        "{}, {} in the last level",
        units::counted(stats.upper_runs, "newer run", "newer runs"),
        units::counted(stats.shards, "shard", "shards")
    );
    let kind = words::kind(stats.mode, stats.capacity, stats.universe);
    vec![
        ("filter", kind + &words::window(stats.window)),
        ("keys", words::fill(stats)),
        ("stored", words::fingerprints(stats.fingerprints, stats.tombstones)),
        ("false positives", words::false_positives(stats)),
        ("data", words::size(stats)),
        ("runs", runs),
        ("epochs", words::epochs(stats, device::now_s())),
        ("memory", format!("{} for the indexes", units::bytes(stats.memory_bytes))),
        ("seed", stats.seed.to_string()),
    ]
}

fn to_json(stats: &CascadeStats) -> Value {
    let epochs = stats.epochs.iter().map(|epoch| {
        json!({
            "number": epoch.number, "fingerprints": epoch.fingerprints,
            "file_bytes": epoch.file_bytes,
        })
    });
    let is_exact = words::is_exact(stats);
    json!({
        "mode": if stats.mode == Mode::Set { "set" } else { "multiset" },
        "exact": is_exact,
        "capacity": (!is_exact).then_some(stats.capacity),
        "keys_max": stats.keys_max(),
        "keys_are_exact": stats.is_merged(),
        "fingerprints": stats.fingerprints,
        "tombstones": stats.tombstones,
        "fill": (!is_exact).then(|| stats.fill()),
        "false_positive_rate": stats.false_positive_rate(),
        "false_positive_rate_promised": (!is_exact).then(|| stats.false_positive_rate_promised()),
        "changes": stats.durable_seq,
        "file_bytes": stats.file_bytes,
        "bits_per_fingerprint": stats.bits_per_fingerprint(),
        "upper_runs": stats.upper_runs,
        "shards": stats.shards,
        "index_bytes": stats.memory_bytes,
        "epochs": epochs.collect::<Vec<_>>(),
        "window_s": stats.window.map(|window| window.length().as_secs()),
        "epoch_s": stats.window.map(|window| window.epoch_length().as_secs()),
        "seed": stats.seed.to_string(),
    })
}
