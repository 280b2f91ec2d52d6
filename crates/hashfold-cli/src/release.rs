//! Releasing a version: gates, dry runs, publishing, and the printed report.

use crate::{
    failure::{Exit, Failure, Result},
    keys,
    output::write_line,
    source::{Cure, note_index_damage},
    units,
};
use clap::Args;
use hashfold::{
    Error, ErrorClass, ErrorKind,
    store::{Changes, Gates, Objection, REMOVED_KEYS_GATE, Report, StoreWriter, VersionInfo},
};
use serde_json::{Map, Value, json};
use std::{collections::HashSet, ffi::OsString, path::Path, time::Duration};

/// Options for gates: conditions that a version must meet to be published.
#[derive(Args, Debug)]
pub(crate) struct GateArgs {
    /// Minimum number of entries
    #[arg(long, value_name = "N", value_parser = units::parse_number::<u64>)]
    min_entries: Option<u64>,
    /// Accept a version without entries, or without more than half of the current version's keys
    #[arg(long)]
    allow_empty: bool,
    /// Maximum fraction of the current version's keys that are added, changed or removed: 0.1 or 10%.
    /// In a delta every entry counts as a change, and a sample of keys is looked up. Replaces the
    /// default, which refuses empty versions and those without more than half of the keys
    #[arg(long, value_name = "FRACTION", value_parser = units::parse_fraction)]
    max_change: Option<f64>,
    /// Key that must be present; may be repeated
    #[arg(long, value_name = "KEY")]
    require_key: Vec<OsString>,
    /// File with one key per line that must be present; '-' reads standard input
    #[arg(long, value_name = "FILE")]
    require_keys: Option<String>,
    /// Number of keys of the current version to look up in the new one and compare [default: 1000
    /// for a delta with --max-change, otherwise 0]
    #[arg(long, value_name = "N", value_parser = units::parse_number::<u64>)]
    sample: Option<u64>,
    /// Read all files of the version back from the device and check them; costs one read of all data
    #[arg(long)]
    read_back: bool,
}

/// Default size of the sample: measures a change of 10 % to within 1 %.
const SAMPLE: u64 = 1000;

/// Maximum fraction of the keys that a version may remove by default.
const REMOVED_MAX: f64 = 0.5;

/// Whether the gates that are there by default apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defaults {
    Apply,
    /// The user wants this version: it was current before, or is forced.
    LeftOut,
}

impl GateArgs {
    /// Returns the gates; `changes` is `None` if they were not counted.
    fn gates(&self, changes: Option<&Changes>, defaults: Defaults) -> Result<Gates> {
        let bytes = |key: &OsString| key.as_encoded_bytes().to_vec();
        let mut required_keys: Vec<Vec<u8>> = self.require_key.iter().map(bytes).collect();
        if let Some(file) = &self.require_keys {
            required_keys.extend(keys::read_lines(file)?);
        }
        let is_cautious =
            defaults == Defaults::Apply && !self.allow_empty && self.max_change.is_none();
        let sample = match (self.max_change, changes) {
            (Some(_), None) => SAMPLE,
            _ => 0,
        };
        Ok(Gates {
            entries_min: self.min_entries,
            change_max: self.max_change,
            refuse_empty: is_cautious && self.min_entries.is_none(),
            removed_max: is_cautious.then_some(REMOVED_MAX),
            required_keys,
            sample: self.sample.unwrap_or(sample),
            read_back: self.read_back,
            pause: Duration::ZERO,
        })
    }
}

/// The action for a version that passes all gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    Publish,
    /// Publish, even if the version is marked bad.
    Force,
    /// Do not publish the version.
    Keep,
}

/// A version, and the outcome of its gates.
pub(crate) struct Release {
    pub(crate) info: VersionInfo,
    report: Report,
    /// Differences from the current version, if they were counted.
    changes: Option<Changes>,
    /// Bytes of tables that are not in the current version.
    new_bytes: u64,
    is_published: bool,
    /// Whether default gates applied.
    is_cautious: bool,
}

impl Release {
    /// Checks a version against the gates. Publishes it if it passes and the intent is to publish.
    /// Marks it bad if it fails, unless it was current before.
    pub(crate) fn decide(
        writer: &mut StoreWriter,
        info: VersionInfo,
        gates: &GateArgs,
        intent: Intent,
    ) -> Result<Release> {
        // If the current version is lost, the gates that compare with it fail.
        let current = match writer.parent() {
            Err(error) if is_lost(&error) => None,
            current => current?,
        };
        let is_child = info.parent == current.as_ref().map(|current| current.name);
        let changes = info.changes.filter(|_| is_child);
        let defaults = match intent == Intent::Force || was_current(writer, info.name.number) {
            true => Defaults::LeftOut,
            false => Defaults::Apply,
        };
        let gates = gates.gates(changes.as_ref(), defaults)?;
        let report = writer.report(info.name.number, &gates)?;
        let old: HashSet<u64> =
            current.iter().flat_map(VersionInfo::layers).map(|layer| layer.table).collect();
        let new = info.layers().filter(|layer| !old.contains(&layer.table));
        let new_bytes = new.map(|layer| layer.bytes).sum();
        let is_published = intent != Intent::Keep && report.passes();
        if is_published {
            if intent == Intent::Force {
                writer.forgive(info.name.number)?;
            }
            writer.publish(info.name.number)?;
        } else if intent == Intent::Publish && !was_current(writer, info.name.number) {
            // A later publish without gates then reports that the version failed.
            writer.condemn(info.name.number)?;
        }
        let is_cautious = gates.removed_max.is_some();
        Ok(Release { info, report, changes, new_bytes, is_published, is_cautious })
    }

    /// Returns the facts as a JSON object, without the event's name.
    pub(crate) fn to_json(&self, folder: &Path) -> Map<String, Value> {
        let Release { info, report, .. } = self;
        let objections = report.objections.iter().map(|objection| {
            json!({
                "what": objection.what, "expected": objection.expected, "got": objection.got,
            })
        });
        let sample = report.sample.map(|sample| {
            json!({ "keys": sample.keys, "removed": sample.removed, "changed": sample.changed })
        });
        let object = json!({
            "store": folder.to_string_lossy(), "version": info.name.number,
            "id": format!("{:#018x}", info.name.id),
            "parent": info.parent.map(|parent| parent.number),
            "published": self.is_published,
            "entries_min": report.entries.start(), "entries_max": report.entries.end(),
            "changes": self.changes.as_ref().map(changes_json),
            "sample": sample, "failed_gates": objections.collect::<Vec<_>>(),
            "chunks": info.shape.slots.chunks(), "deltas": info.delta_depth(),
            "bytes": info.bytes(), "new_bytes": self.new_bytes,
        });
        let Value::Object(map) = object else { unreachable!("it is an object") };
        map
    }

    /// `13 entries: 3 added, 1 changed, 0 removed, 9 unchanged; 1.00 MiB, 4.00 KiB of them new`.
    pub(crate) fn describe(&self) -> String {
        let Release { info, report, .. } = self;
        let mut text = units::entries(&report.entries);
        if let Some(changes) = &self.changes {
            text += &format!(": {}", changes_text(changes));
        }
        let (bytes, new) = (units::bytes(info.bytes()), units::bytes(self.new_bytes));
        text += &format!("; {bytes}, {new} of them new");
        if let Some(sample) = &report.sample {
            text += &format!(
                "; of {} in the sample {} changed, {} removed",
                units::counted(sample.keys, "key", "keys"),
                units::count(sample.changed),
                units::count(sample.removed),
            );
        }
        text
    }

    /// Returns `published` or `not published`.
    pub(crate) fn state(&self) -> &'static str {
        if self.is_published { "published" } else { "not published" }
    }

    /// Prints each failed gate on its own line, and fails if there is one; `state` completes the
    /// message. Warns of damaged indexes, which made gates slower.
    pub(crate) fn conclude(&self, folder: &Path, state: &str, lines: Lines) -> Result<Exit> {
        note_index_damage(folder, Cure::Repair, self.report.index_damage.iter());
        let objections = &self.report.objections;
        if lines == Lines::Text {
            for objection in objections {
                write_line(format_args!("gate failed: {objection}"))?;
            }
        }
        match objections.len() as u64 {
            0 => Ok(Exit::Done),
            count => Err(Failure {
                exit: Exit::No,
                message: format!(
                    "{}: version {} {state}: {}{}",
                    folder.display(),
                    self.info.name.number,
                    units::counted(count, "gate failed", "gates failed"),
                    self.hint()
                ),
            }),
        }
    }

    /// Returns what to do if a default gate failed.
    fn hint(&self) -> &'static str {
        let is_default = |objection: &Objection| {
            objection.what == REMOVED_KEYS_GATE
                || (objection.what == "entries" && objection.got == "0")
        };
        match self.is_cautious && self.report.objections.iter().any(is_default) {
            true => "; if that is meant, give --allow-empty, or a limit with --max-change",
            false => "",
        }
    }
}

/// Returns whether a version is or was current. Such a version stays available for a rollback, even
/// if it fails gates.
fn was_current(writer: &StoreWriter, number: u64) -> bool {
    let pointer = writer.pointer();
    pointer.current == Some(number) || pointer.published.contains(&number)
}

/// Returns whether an error says that data are damaged or absent.
fn is_lost(error: &Error) -> bool {
    error.class() == ErrorClass::Damage || matches!(error.kind(), ErrorKind::Absent)
}

/// Form of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lines {
    Text,
    /// The failed gates are in a JSON object that was already printed.
    Json,
}

pub(crate) fn changes_json(changes: &Changes) -> Value {
    let &Changes { added, changed, removed, unchanged } = changes;
    json!({ "added": added, "changed": changed, "removed": removed, "unchanged": unchanged })
}

/// `3 added, 1 changed, 0 removed, 9 unchanged`.
pub(crate) fn changes_text(changes: &Changes) -> String {
    let count = units::count;
    format!(
        "{} added, {} changed, {} removed, {} unchanged",
        count(changes.added),
        count(changes.changed),
        count(changes.removed),
        count(changes.unchanged)
    )
}
