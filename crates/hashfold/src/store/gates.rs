//! Gates: conditions that a version must meet before it is published.

use super::{
    pointer::VersionName,
    read::Version,
    version::{Changes, Layer, VersionInfo},
};
use crate::{
    error::{Result, range_text},
    key::KeyHash,
    run::Run as _,
};
use std::{fmt, ops::RangeInclusive, time::Duration};

/// Number of keys that are looked up together.
const BATCH: usize = 1024;

/// Number of keys that are looked up together if there are pauses in between: as many as one lookup of a
/// client may wait for.
const BATCH_WITH_PAUSE: usize = 8;

/// The subject of the gate [`Gates::removed_max`] in an [`Objection`].
pub const REMOVED_KEYS_GATE: &str = "fraction of the keys that were removed";

/// Number of keys that are looked up to estimate how many were removed.
const REMOVED_SAMPLE: u64 = 1000;

/// The conditions that a version must meet before it is published. By default there are none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gates {
    /// Minimum number of entries.
    pub entries_min: Option<u64>,
    /// Maximum part of the current version's keys that may be added, changed or removed: 0.1 for 10
    /// %.
    pub change_max: Option<f64>,
    /// Whether a version without entries is refused.
    pub refuse_empty: bool,
    /// Maximum part of the current version's keys that may be removed. If the removed keys were not
    /// counted and may be more, 1000 keys of the current version are looked up. Without a readable
    /// current version, this gate is passed.
    pub removed_max: Option<f64>,
    /// Keys that the version must have.
    pub required_keys: Vec<Vec<u8>>,
    /// Number of keys of the current version that are looked up in the new one; 0 for no sample.
    pub sample: u64,
    /// Pause after each few keys of a sample, for a process that serves lookups meanwhile: see
    /// [`sample_changes`].
    pub pause: Duration,
    /// Whether all files are read back and compared with the hashes of the bytes that were written.
    pub read_back: bool,
}

/// A condition that a version does not meet.
#[derive(Clone, Debug, PartialEq)]
pub struct Objection {
    /// The subject of the gate.
    pub what: &'static str,
    /// The values that the gate accepts.
    pub expected: String,
    /// The value of the version.
    pub got: String,
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}, got {}", self.what, self.expected, self.got)
    }
}

/// The result of looking up keys of the current version in the new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Number of keys that were looked up.
    pub keys: u64,
    /// Number of these keys that the new version does not have.
    pub removed: u64,
    /// Number of these keys that have another value in the new version.
    pub changed: u64,
}

impl Sample {
    /// Returns the fraction of the keys that differ, 0 to 1.
    pub fn differing(&self) -> f64 {
        (self.removed + self.changed) as f64 / self.keys.max(1) as f64
    }
}

/// A comparison of a version with the current one.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The version.
    pub version: VersionName,
    /// The current version, if there is one.
    pub current: Option<VersionName>,
    /// Number of entries of the version; a range if the version has deltas.
    pub entries: RangeInclusive<u64>,
    /// Number of entries of the current version; a range if it has deltas.
    pub current_entries: Option<RangeInclusive<u64>>,
    /// Numbers of keys that differ from the current version, if that is the version's parent and
    /// they were counted.
    pub changes: Option<Changes>,
    /// The result of the sample, if a gate needs one.
    pub sample: Option<Sample>,
    /// The conditions that the version does not meet.
    pub objections: Vec<Objection>,
    /// The damage of indexes of both versions, because of which lookups took more reads.
    pub index_damage: Vec<String>,
}

impl Report {
    /// Whether the version passes all gates.
    pub fn passes(&self) -> bool {
        self.objections.is_empty()
    }
}

impl Gates {
    /// Whether a gate compares the version with the current one.
    pub(super) fn compare(&self) -> bool {
        self.change_max.is_some() || self.sample > 0
    }

    pub(super) fn check(&self, current: Option<&Version>, new: &Version) -> Result<Report> {
        let info = new.info();
        let is_child = current.is_some_and(|current| info.parent == Some(current.info().name));
        let mut report = Report {
            version: info.name,
            current: current.map(|current| current.info().name),
            entries: info.entries(),
            current_entries: current.map(|current| current.info().entries()),
            changes: info.changes.filter(|_| is_child),
            sample: None,
            objections: Vec::new(),
            index_damage: index_damage(current, new),
        };
        if let Some(current) = current
            && self.sample > 0
        {
            report.sample = Some(sample_changes(current, new, self.sample, self.pause)?);
        }
        let changed = current.map(|current| {
            let before = *current.info().entries().end();
            changed_keys(current.info(), info) as f64 / before.max(1) as f64
        });
        self.check_counts(&mut report, changed);
        if self.refuse_empty && is_empty(new)? {
            report.objections.push(Objection {
                what: "entries",
                expected: "at least 1".to_owned(),
                got: "0".to_owned(),
            });
        }
        if let (Some(most), Some(current)) = (self.removed_max, current) {
            let part = self.removed(current, new, report.changes, most)?;
            report.objections.extend(part.filter(|part| *part > most).map(|part| Objection {
                what: REMOVED_KEYS_GATE,
                expected: format!("at most {most}"),
                got: format!("{part:.6}"),
            }));
        }
        let mut missing = Vec::new();
        new.get_many(&self.required_keys, &mut |i, value| {
            missing.extend(value.is_none().then_some(i));
            Ok(())
        })?;
        missing.sort_unstable();
        report.objections.extend(missing.into_iter().map(|i| Objection {
            what: "required key",
            expected: format!("{:?}", String::from_utf8_lossy(&self.required_keys[i])),
            got: "no such key".to_owned(),
        }));
        Ok(report)
    }

    /// Returns the part of the current version's keys that a version removes; `None` if it is surely at
    /// most `most`.
    fn removed(
        &self,
        current: &Version,
        new: &Version,
        changes: Option<Changes>,
        most: f64,
    ) -> Result<Option<f64>> {
        if let Some(Changes { removed, changed, unchanged, .. }) = changes {
            return Ok(Some(removed as f64 / (removed + changed + unchanged).max(1) as f64));
        }
        if new.info().parent == Some(current.info().name) {
            let deletions = |layer: &Layer| match current
                .info()
                .deltas
                .iter()
                .any(|old| old.table == layer.table)
            {
                true => 0,
                false => layer.deletions,
            };
            // Deletions of absent keys count, too.
            let removed =
                new.info().merged.removed + new.info().deltas.iter().map(deletions).sum::<u64>();
            if removed as f64 <= *current.info().entries().start() as f64 * most {
                return Ok(None);
            }
        }
        let sample = sample_changes(current, new, REMOVED_SAMPLE, self.pause)?;
        Ok(Some(sample.removed as f64 / sample.keys.max(1) as f64))
    }

    /// Checks the number of entries, and the fraction of the keys that changed.
    fn check_counts(&self, report: &mut Report, changed: Option<f64>) {
        if let Some(least) = self.entries_min
            && *report.entries.start() < least
        {
            report.objections.push(Objection {
                what: "entries",
                expected: format!("at least {least}"),
                got: range_text(&report.entries),
            });
        }
        let Some(most) = self.change_max else { return };
        for (what, part) in [
            ("fraction of the keys that changed", changed),
            (
                "part of the sampled keys that changed",
                report.sample.map(|sample| sample.differing()),
            ),
        ] {
            if let Some(part) = part
                && part > most
            {
                let (expected, got) = (format!("at most {most}"), format!("{part:.6}"));
                report.objections.push(Objection { what, expected, got });
            }
        }
    }
}

/// Returns the damage of the indexes of two versions, each once.
fn index_damage(current: Option<&Version>, new: &Version) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for damage in current.into_iter().chain([new]).flat_map(Version::index_damage) {
        let damage = damage.to_string();
        if !all.contains(&damage) {
            all.push(damage);
        }
    }
    all
}

/// Returns the number of keys that differ from the current version. If it was not counted: an upper
/// bound for a version made from the current one, in which all entries of new deltas may be changes,
/// and else a lower bound.
fn changed_keys(current: &VersionInfo, new: &VersionInfo) -> u64 {
    match new.changes {
        _ if new.parent != Some(current.name) => {
            let (before, after) = (current.entries(), new.entries());
            let shrunk = before.start().saturating_sub(*after.end());
            shrunk.max(after.start().saturating_sub(*before.end()))
        }
        Some(changes) => changes.total(),
        None => {
            let is_new = |delta: &&Layer| current.deltas.iter().all(|old| old.table != delta.table);
            let delta: u64 = new.deltas.iter().filter(is_new).map(|delta| delta.entries).sum();
            new.merged.total() + delta
        }
    }
}

/// Whether a version has no entries. Looks for an entry if deltas leave it open.
fn is_empty(version: &Version) -> Result<bool> {
    let entries = version.info().entries();
    if *entries.start() > 0 {
        return Ok(false);
    }
    for chunks in version.parts() {
        if *entries.end() > 0 && version.scan_chunks(chunks).advance()? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Looks up about `count` keys of one version in another. The keys are spread evenly over all keys.
///
/// The first lookups in a new version read its pages, which delays lookups of other threads. With a `pause`,
/// this function waits after every 8 keys, by the clock of `current`, so that no lookup waits for many of them;
/// with a pause of zero, keys are looked up as fast as possible.
///
/// # Errors
/// Damage of the tables that the keys are in.
pub fn sample_changes(
    current: &Version,
    new: &Version,
    count: u64,
    pause: Duration,
) -> Result<Sample> {
    let mut sample = Sample::default();
    let mut keys = Vec::new();
    let batch = if pause.is_zero() { BATCH } else { BATCH_WITH_PAUSE };
    current.sample(count, &mut |key| {
        keys.push(key.to_vec());
        if keys.len() < batch {
            return Ok(());
        }
        compare(current, new, &mut keys, &mut sample)?;
        if !pause.is_zero() {
            current.clock().sleep(pause);
        }
        Ok(())
    })?;
    compare(current, new, &mut keys, &mut sample)?;
    Ok(sample)
}

/// Compares the values of some keys.
fn compare(
    current: &Version,
    new: &Version,
    keys: &mut Vec<Vec<u8>>,
    sample: &mut Sample,
) -> Result<()> {
    // Values can be large, so their hashes are kept.
    let hash = |value: &[u8]| (value.len(), KeyHash::of(value, current.info().seed));
    let mut values = vec![None; keys.len()];
    current.get_many(keys, &mut |i, value| {
        values[i] = value.map(hash);
        Ok(())
    })?;
    new.get_many(keys, &mut |i, value| {
        // A key that a delta has deleted is not a key of the current version.
        if let Some(before) = values[i] {
            sample.keys += 1;
            sample.removed += u64::from(value.is_none());
            sample.changed += u64::from(value.is_some_and(|value| hash(value) != before));
        }
        Ok(())
    })?;
    keys.clear();
    Ok(())
}
