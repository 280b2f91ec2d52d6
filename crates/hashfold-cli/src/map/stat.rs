//! `hashfold map stat`: describes a map and what it costs.

use super::open;
use crate::{
    columns,
    failure::{Exit, Result},
    folder,
    output::write_line,
    stop::Stop,
    units,
    wait::WaitArgs,
};
use clap::Args;
use hashfold::map::{Map, MapDevice, MapOptions, MapSpace, MapStats};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Describe a map: entries, sizes, memory, columns
///
/// Changes that are not merged yet may replace or delete entries, so the number of entries is an upper
/// bound; it is exact after `hashfold map compact`.
#[derive(Args, Debug)]
pub(crate) struct StatArgs {
    /// Folder of the map
    #[arg(value_name = "DIR")]
    map: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    wait: WaitArgs,
}

pub(crate) fn run(args: &StatArgs) -> Result<Exit> {
    folder::require_map(&args.map)?;
    let open = || Ok(Map::open_with(&args.map, MapOptions::new())?);
    print(&args.wait.retry(&Stop::never(), open)?, args.json)
}

/// Prints the figures of a map.
pub(crate) fn print(map: &Map, json: bool) -> Result<Exit> {
    let (stats, space, schema) = (map.stat(), map.space()?, open::schema(map)?);
    let devices = map.devices()?;
    if json {
        let mut object = to_json(&stats, &space);
        object["seed"] = json!(map.seed().to_string());
        object["schema"] = json!(schema);
        object["devices"] = devices.iter().map(device_to_json).collect();
        return write_line(object).map(|()| Exit::Done);
    }
    let seed = map.seed().to_string();
    let own = [("seed", seed), ("columns", columns::describe(&schema))];
    for (name, value) in rows(&stats, &space).into_iter().chain(own) {
        write_line(format_args!("{name:<12} {value}"))?;
    }
    for (i, MapDevice { folder, data_bytes, .. }) in devices.iter().enumerate() {
        let (name, folder) = (format!("device {i}"), folder.display());
        write_line(format_args!("{name:<12} {} of data in {folder}", units::bytes(*data_bytes)))?;
    }
    Ok(Exit::Done)
}

fn rows(stats: &MapStats, space: &MapSpace) -> Vec<(&'static str, String)> {
    let changes = stats.packet_entries + stats.buffered_entries;
    let entries = match changes {
        0 => units::count(stats.entries_max).to_string(),
        changes => format!(
            "at most {}: {} not merged yet",
            units::count(stats.entries_max),
            units::counted(changes, "change is", "changes are")
        ),
    };
    vec![
        ("entries", entries),
        (
            "data",
            format!(
                "{} in {}, {} of them large values",
                units::bytes(space.used_bytes),
                units::counted(stats.groups, "group", "groups"),
                units::bytes(space.large_bytes)
            ),
        ),
        (
            "device",
            format!(
                "{}: the data, {} free, {} for the log, {} for the catalog",
                units::bytes(space.device_bytes()),
                units::bytes(space.free_bytes),
                units::bytes(space.log_bytes),
                units::bytes(space.catalog_bytes)
            ),
        ),
        (
            "changes",
            format!(
                "{} in {}, {} in the log",
                units::count(stats.packet_entries),
                units::counted(stats.packets, "packet", "packets"),
                units::count(stats.buffered_entries)
            ),
        ),
        (
            "memory",
            format!(
                "{} for addresses, {} for packets, {} for changes",
                units::bytes(stats.address_bytes),
                units::bytes(stats.packet_bytes),
                units::bytes(stats.buffered_bytes)
            ),
        ),
        ("seq", units::count(stats.seq).to_string()),
    ]
}

fn to_json(stats: &MapStats, space: &MapSpace) -> Value {
    json!({
        "entries_max": stats.entries_max,
        "entries_are_exact": stats.packet_entries + stats.buffered_entries == 0,
        "groups": stats.groups,
        "span_blocks": stats.span_blocks,
        "packets": stats.packets,
        "packet_entries": stats.packet_entries,
        "buffered_entries": stats.buffered_entries,
        "file_bytes": stats.file_bytes,
        "free_bytes": stats.free_bytes,
        "large_values": stats.large_values,
        "device": {
            "bytes": space.device_bytes(),
            "used_bytes": space.used_bytes,
            "large_bytes": space.large_bytes,
            "free_bytes": space.free_bytes,
            "log_bytes": space.log_bytes,
            "catalog_bytes": space.catalog_bytes,
        },
        "address_bytes": stats.address_bytes,
        "packet_bytes": stats.packet_bytes,
        "buffered_bytes": stats.buffered_bytes,
        "seq": stats.seq,
    })
}

fn device_to_json(device: &MapDevice) -> Value {
    json!({ "folder": device.folder.to_string_lossy(), "data_bytes": device.data_bytes })
}
