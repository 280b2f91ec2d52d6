//! `hashfold stat`: describes a table or a version of a store, and what it costs.

use crate::{
    columns,
    failure::{Exit, Result},
    folder, map,
    options::access_name,
    output::write_line,
    source::{Accesses, Source, SourceArgs},
    stop::Stop,
    units, versions,
    wait::{MapWaitArgs, WaitArgs},
};
use clap::Args;
use hashfold::{
    ReadOptions,
    io::Access,
    options::AccessReason,
    store::{Pointer, Version, VersionInfo},
    table::{IndexChoice, TableStats},
};
use hashfold_rows::utc;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Describe a table, a version of a store, or a map: entries, sizes, index, columns
#[derive(Args, Debug)]
pub(crate) struct StatArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    wait: MapWaitArgs,
}

pub(crate) fn run(args: &StatArgs) -> Result<Exit> {
    let options = ReadOptions::new().index(Access::Mapped);
    let open = || args.source.open(options.clone());
    let source = WaitArgs::from(args.wait).retry(&Stop::never(), open)?;
    if let Source::Map(map) = &source {
        return map::print_stat(map, args.json);
    }
    let schema = source.schema()?;
    let (mut object, mut rows) = match &source {
        Source::Table(table) => {
            let mut object = to_json(table.stats());
            object["damage"] = json!(damage(&source));
            (object, rows(table.stats()))
        }
        Source::Version(version) => {
            let pointer = folder::read_pointer(&args.source.folder)?;
            let mut rows = version_rows(&pointer, version);
            rows.extend(version.damage().iter().map(|error| ("damaged", error.to_string())));
            (version_json(&pointer, version), rows)
        }
        Source::Map(_) => unreachable!("it was described above"),
    };
    let accesses = source.accesses();
    let names = accesses.0.iter().map(|(access, reason, tables)| {
        json!({ "access": access_name(*access), "reason": described(*reason), "tables": tables })
    });
    object["access"] = names.collect();
    rows.push(("access", describe_accesses(&accesses)));
    rows.extend(damage(&source).into_iter().map(|damage| ("damaged", damage)));
    if args.json {
        object["schema"] = json!(schema);
        return write_line(object).map(|()| Exit::Done);
    }
    for (name, value) in rows.into_iter().chain([("columns", columns::describe(&schema))]) {
        write_line(format_args!("{name:<12} {value}"))?;
    }
    Ok(Exit::Done)
}

/// Returns the facts about a version as a JSON object.
fn version_json(pointer: &Pointer, version: &Version) -> Value {
    let info = version.info();
    let damage = version.damage().iter().chain(version.index_damage());
    let mut object = versions::to_json(pointer, info);
    let map = object.as_object_mut().expect("it is an object");
    map.extend([
        ("tables".into(), json!(info.layers().count())),
        ("payload_bytes".into(), json!(payload_bytes(info))),
        ("block_size".into(), json!(info.shape.block_size)),
        ("index".into(), json!(info.shape.index.choice.to_string())),
        ("indexes".into(), json!(indexes(version))),
        ("index_bytes".into(), json!(version.index_bytes())),
        ("seed".into(), json!(info.seed.to_string())),
        ("damage".into(), damage.map(|error| json!(error.to_string())).collect()),
        ("store_id".into(), json!(format!("{:#018x}", info.store))),
    ]);
    object
}

/// Returns the kind of a table's index.
fn kind(stats: &TableStats) -> String {
    stats.index.map_or("none".to_owned(), |index| index.choice.to_string())
}

/// Returns the damage of indexes as text.
fn damage(source: &Source) -> Vec<String> {
    source.index_damage().into_iter().map(ToString::to_string).collect()
}

/// `mapped: the data fit in free memory`, or for tables that are read in several ways
/// `mapped, 3 of 5 tables: the data fit in free memory; direct, 2 of 5 tables: ...`.
fn describe_accesses(Accesses(accesses): &Accesses) -> String {
    let all: u64 = accesses.iter().map(|(.., tables)| tables).sum();
    let one = |(access, reason, tables): &(Access, AccessReason, u64)| {
        let part = match accesses.len() {
            1 => String::new(),
            _ => {
                format!(", {} of {}", units::count(*tables), units::counted(all, "table", "tables"))
            }
        };
        format!("{}{part}: {}", access_name(*access), described(*reason))
    };
    match accesses.is_empty() {
        true => "no table is open".to_owned(),
        false => accesses.iter().map(one).collect::<Vec<_>>().join("; "),
    }
}

/// Returns the reason for a way to read data.
fn described(reason: AccessReason) -> &'static str {
    match reason {
        AccessReason::FitsMemory => "the data fit in free memory",
        AccessReason::ExceedsMemory => "the data are larger than the free memory",
        AccessReason::MemoryUnknown => "the free memory is unknown",
        AccessReason::NoAddressSpace => {
            "the data fit in free memory, but could not be mapped: the \
             process has too little address space, or too many maps"
        }
        _ => "as chosen",
    }
}

/// Returns the kinds of index that the version's tables have, with the number of tables of each.
fn indexes(version: &Version) -> BTreeMap<String, u64> {
    let mut kinds = BTreeMap::new();
    for stats in version.table_stats() {
        *kinds.entry(kind(stats)).or_default() += 1;
    }
    kinds
}

/// `fences in 3 tables, dense in 1 table; 1.20 MiB, 2.61 bits per key (--index auto)`.
fn version_index(version: &Version) -> String {
    let info = version.info();
    let kinds = indexes(version).into_iter();
    let kinds = kinds
        .map(|(kind, count)| format!("{kind} in {}", units::counted(count, "table", "tables")));
    let kinds = kinds.collect::<Vec<_>>().join(", ");
    let stored = info.layers().map(|layer| layer.entries).sum::<u64>();
    let bits = version.index_bytes() as f64 * 8.0 / stored.max(1) as f64;
    let size = units::index_size(version.index_bytes(), bits, stored);
    format!("{kinds}; {size} (--index {})", info.shape.index.choice)
}

/// Returns the bytes of keys and values, deltas included.
fn payload_bytes(info: &VersionInfo) -> u64 {
    info.layers().map(|layer| layer.sizes.bytes_max).sum()
}

fn version_rows(pointer: &Pointer, version: &Version) -> Vec<(&'static str, String)> {
    let info = version.info();
    let parent = info.parent.map_or(String::new(), |name| format!(" from {}", name.number));
    vec![
        (
            "version",
            format!(
                "{}, {}, made {}{parent}",
                info.name.number,
                versions::state(pointer, info.name.number),
                utc(info.created_s),
            ),
        ),
        ("entries", units::range(&info.entries())),
        (
            "chunks",
            format!(
                "{}, with at most {}",
                units::count(u64::from(info.shape.slots.chunks())),
                units::counted(info.delta_depth() as u64, "delta", "deltas")
            ),
        ),
        (
            "data",
            format!(
                "{} of keys and values; {} in {} with blocks of {}",
                units::bytes(payload_bytes(info)),
                units::bytes(info.bytes()),
                units::counted(info.layers().count() as u64, "table", "tables"),
                units::bytes(info.shape.block_size as u64),
            ),
        ),
        ("index", version_index(version)),
        ("memory", format!("{} for the indexes", units::bytes(version.index_bytes()))),
        ("seed", info.seed.to_string()),
    ]
}

/// The parts of an index, with their sizes in bytes.
fn parts(stats: &TableStats) -> [(&'static str, u64); 4] {
    let index = stats.index.unwrap_or_default();
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
    let index = stats.index.unwrap_or_default();
    json!({
        "entries": stats.entries,
        "blocks": stats.blocks,
        "block_size": stats.block_size,
        "data_bytes": stats.data_bytes,
        "key_bytes": stats.key_bytes,
        "value_bytes": stats.value_bytes,
        "index": kind(stats),
        "index_bytes": stats.index_bytes,
        "index_bits_per_key": stats.index_bits_per_key(),
        "index_parts_bytes": Value::Object(parts.into_iter().collect()),
        "bucket_size": index.bucket_size,
        "absent_bits": index.absent_bits,
        "explicit_superblocks": index.explicit_superblocks,
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

/// `dense, 2.610 bits per key: tries 2.400, directory 0.210`; sizes for a handful of keys, which share
/// the fixed part of the index.
fn index(stats: &TableStats) -> String {
    if stats.index.is_none() {
        return "none".to_owned();
    }
    let has_few = stats.entries < units::FEW_KEYS;
    let shown = |bytes: u64| match has_few {
        true => units::bytes(bytes).to_string(),
        false => format!("{:.3}", bytes as f64 * 8.0 / stats.entries as f64),
    };
    let all = shown(parts(stats).iter().map(|(_, bytes)| bytes).sum());
    let parts = parts(stats).into_iter().filter(|(_, bytes)| *bytes > 0);
    let parts: Vec<_> = parts.map(|(name, bytes)| format!("{name} {}", shown(bytes))).collect();
    let unit = if has_few { "" } else { " bits per key" };
    format!("{}, {all}{unit}: {}", kind(stats), parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Issue 14: only the first table was described, and every direct one was too large.
    #[test]
    fn every_way_to_read_is_described_with_its_reason() {
        let check = |all: &[(Access, AccessReason, u64)], text: &str| {
            assert_eq!(describe_accesses(&Accesses(all.to_vec())), text);
        };
        let mapped = |tables| (Access::Mapped, AccessReason::FitsMemory, tables);
        let direct = |reason| (Access::Direct, reason, 2);
        check(&[], "no table is open");
        check(&[mapped(5)], "mapped: the data fit in free memory");
        check(&[direct(AccessReason::MemoryUnknown)], "direct: the free memory is unknown");
        check(
            &[mapped(3), direct(AccessReason::ExceedsMemory)],
            "mapped, 3 of 5 tables: the data fit in free memory; \
             direct, 2 of 5 tables: the data are larger than the free memory",
        );
    }
}
