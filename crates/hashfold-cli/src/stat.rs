//! `hashfold stat`: what a table is and what it costs.

use crate::{
    device,
    failure::{Exit, Result},
    output::write_line,
    schema::Schema,
    units,
};
use clap::Args;
use hashfold::{
    io::Access,
    table::{IndexChoice, OpenOptions, Table, TableStats},
};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Describe a table: entries, sizes, index, columns
#[derive(Args, Debug)]
pub(crate) struct StatArgs {
    /// The folder of the table
    #[arg(value_name = "DIR")]
    table: PathBuf,
    /// As a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &StatArgs) -> Result<Exit> {
    let options = OpenOptions { data: Access::Cached, index: Access::Mapped };
    let table = Table::open(&device::disk(), &args.table, options)?;
    let (stats, schema) = (table.stats(), Schema::of(&table)?);
    if args.json {
        let mut object = to_json(stats);
        object["schema"] = json!(schema);
        write_line(object)?;
    } else {
        let rows = rows(stats).into_iter().chain([("columns", schema.describe())]);
        for (name, value) in rows {
            write_line(format_args!("{name:<12} {value}"))?;
        }
    }
    Ok(Exit::Done)
}

/// The parts of an index, with their sizes in bytes.
fn parts(stats: &TableStats) -> [(&'static str, u64); 4] {
    let index = &stats.index;
    let code = if index.choice == IndexChoice::Fences { "fences" } else { "tries" };
    [
        (code, index.coded_bytes),
        ("directory", index.directory_bytes),
        ("locations", index.location_bytes),
        ("fingerprints", index.fingerprint_bytes),
    ]
}

/// The stats as a JSON object.
pub(crate) fn to_json(stats: &TableStats) -> Value {
    let parts = parts(stats).map(|(name, bytes)| (name.to_string(), json!(bytes)));
    json!({
        "entries": stats.entries,
        "blocks": stats.blocks,
        "block_size": stats.block_size,
        "data_bytes": stats.data_bytes,
        "key_bytes": stats.key_bytes,
        "value_bytes": stats.value_bytes,
        "index": stats.index.choice.to_string(),
        "index_bytes": stats.index_bytes,
        "index_bits_per_key": stats.index_bits_per_key(),
        "index_parts_bytes": Value::Object(parts.into_iter().collect()),
        "bucket_size": stats.index.bucket_size,
        "absent_bits": stats.index.absent_bits,
        "explicit_superblocks": stats.index.explicit_superblocks,
        "generation": stats.generation,
        "seed": stats.seed.to_string(),
        "id": format!("{:#018x}", stats.id),
    })
}

fn rows(stats: &TableStats) -> Vec<(&'static str, String)> {
    vec![
        ("entries", units::count(stats.entries).to_string()),
        ("keys", sizes(stats.key_bytes, stats)),
        ("values", sizes(stats.value_bytes, stats)),
        ("data", data(stats)),
        ("index", index(stats)),
        ("memory", format!("{} for the index", units::bytes(stats.index_bytes))),
        ("seed", stats.seed.to_string()),
    ]
}

/// `8.60 MiB, 9.0 bytes each`.
fn sizes(bytes: u64, stats: &TableStats) -> String {
    let mean = bytes as f64 / stats.entries.max(1) as f64;
    format!("{}, {mean:.1} bytes each", units::bytes(bytes))
}

/// `1.00 GiB in 262,144 blocks of 4.00 KiB`.
fn data(stats: &TableStats) -> String {
    let blocks = units::counted(stats.blocks, "block", "blocks");
    let block_size = units::bytes(stats.block_size as u64);
    format!("{} in {blocks} of {block_size}", units::bytes(stats.data_bytes))
}

/// `dense, 2.61 bits a key: tries 2.40, directory 0.21`.
fn index(stats: &TableStats) -> String {
    let bits = |bytes: u64| bytes as f64 * 8.0 / stats.entries.max(1) as f64;
    let parts = parts(stats).into_iter().filter(|(_, bytes)| *bytes > 0);
    let parts: Vec<_> = parts.map(|(name, bytes)| format!("{name} {:.3}", bits(bytes))).collect();
    let choice = stats.index.choice;
    format!("{choice}, {:.3} bits a key: {}", stats.index_bits_per_key(), parts.join(", "))
}
