//! `hashfold versions`: lists the versions of a store.

use crate::{
    failure::{Exit, Result},
    folder,
    output::write_line,
    release::changes_json,
    units,
};
use clap::Args;
use hashfold::{
    Env, Error,
    store::{self, Pointer, VersionInfo},
};
use hashfold_rows::utc;
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// List the versions of a store: state, entries, deltas, size, date, parent
///
/// States: current; published (was current before); rolled back (was current, and is marked bad);
/// failed (did not pass a gate); unpublished (`--no-publish`, or the update was killed before it
/// published). `hashfold gc` removes failed and unpublished versions after a time.
#[derive(Args, Debug)]
pub(crate) struct VersionsArgs {
    /// Folder of the store
    #[arg(value_name = "DIR")]
    store: PathBuf,
    /// Print one JSON object per version, with changes and notes
    #[arg(long)]
    json: bool,
}

const COLUMNS: [&str; 8] =
    ["number", "state", "entries", "chunks", "deltas", "size", "created", "parent"];
/// Columns that are aligned to the left.
const WORDS: [&str; 2] = ["state", "created"];

pub(crate) fn run(args: &VersionsArgs) -> Result<Exit> {
    let pointer = folder::read_pointer(&args.store)?;
    let versions = store::versions(&Env::system(), &args.store)?;
    if args.json {
        for (number, info) in &versions {
            write_line(match info {
                Ok(info) => to_json(&pointer, info),
                Err(error) => json!({
                    "number": number, "state": "damaged", "error": error.to_string(),
                }),
            })?;
        }
        return Ok(Exit::Done);
    }
    let mut rows = vec![COLUMNS.map(String::from)];
    rows.extend(versions.iter().map(|(number, info)| row(&pointer, *number, info)));
    let width = |i: usize| rows.iter().map(|row| row[i].len()).max().unwrap_or_default();
    let widths = [0, 1, 2, 3, 4, 5, 6, 7].map(width);
    for row in &rows {
        let cells = row.iter().zip(widths).zip(COLUMNS).map(|((text, width), column)| match WORDS
            .contains(&column)
        {
            true => format!("{text:<width$}"),
            false => format!("{text:>width$}"),
        });
        write_line(cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(Exit::Done)
}

fn row(
    pointer: &Pointer,
    number: u64,
    info: &hashfold::Result<VersionInfo>,
) -> [String; COLUMNS.len()] {
    match info {
        Ok(info) => [
            number.to_string(),
            words(pointer, number),
            units::range(&info.entries()),
            units::count(u64::from(info.shape.slots.chunks())).to_string(),
            info.delta_depth().to_string(),
            units::bytes(info.bytes()).to_string(),
            utc(info.created_s),
            info.parent.map_or("-".into(), |parent| parent.number.to_string()),
        ],
        Err(error) => damaged_row(number, error),
    }
}

fn damaged_row(number: u64, error: &Error) -> [String; COLUMNS.len()] {
    let mut row = COLUMNS.map(|_| String::new());
    row[0] = number.to_string();
    row[1] = format!("damaged: {}", error.kind());
    row
}

/// Returns the state of a version: `current`, `published` (was current), `rolled back` (was current,
/// and is marked bad), `failed` (a gate failed) or `unpublished`.
pub(crate) fn state(pointer: &Pointer, number: u64) -> &'static str {
    if pointer.current == Some(number) {
        "current"
    } else {
        match (pointer.published.contains(&number), pointer.bad.contains(&number)) {
            (true, false) => "published",
            (true, true) => "rolled back",
            (false, true) => "failed",
            (false, false) => "unpublished",
        }
    }
}

fn words(pointer: &Pointer, number: u64) -> String {
    let pinned = if pointer.pinned.contains(&number) { ", pinned" } else { "" };
    format!("{}{pinned}", state(pointer, number))
}

/// Returns the facts about a version that its file has, as a JSON object.
pub(crate) fn to_json(pointer: &Pointer, info: &VersionInfo) -> Value {
    let number = info.name.number;
    let mut provenance = Map::new();
    for (name, value) in &info.provenance {
        let values = provenance.entry(name).or_insert_with(|| json!([]));
        let values = values.as_array_mut().expect("all values are lists");
        values.push(json!(String::from_utf8_lossy(value)));
    }
    json!({
        "number": number,
        "id": format!("{:#018x}", info.name.id),
        "state": state(pointer, number),
        "pinned": pointer.pinned.contains(&number),
        "entries_min": info.entries().start(),
        "entries_max": info.entries().end(),
        "chunks": info.shape.slots.chunks(),
        "deltas": info.delta_depth(),
        "bytes": info.bytes(),
        "created": utc(info.created_s),
        "created_s": info.created_s,
        "parent": info.parent.map(|parent| parent.number),
        "changes": info.changes.as_ref().map(changes_json),
        "provenance": provenance,
    })
}
