//! The plan of a new version: which chunks it shares with its parent, and which tables are built.
//!
//! ```text
//! parent:  base 0..5             base 5..9      batch: parts 0..2, 2..5, 5..9
//! units:   0..5                  5..9           each is shared, gets a delta, or is merged
//! tables:  neighbouring merged units form stretches, which are divided into tables of some size;
//!          the batch's parts in all other units are packed into deltas
//! ```

use super::{
    batch::SortedPart,
    chunks::ChunkSet,
    join::Keep,
    version::{DELTAS_MAX, Layer, VersionInfo},
};
use crate::run::{Run as _, Sorted, Summary, VALUE_BYTES_MAX};
use std::ops::Range;

/// Maximum number of a chunk's deltas in [`UpdateMode::Auto`]. Each delta costs 1/256 of a device
/// read for a lookup of a key that it does not contain.
const DELTAS_AUTO_MAX: usize = 4;

/// The ratio of sizes, base to deltas, at which deltas are merged into the base. At 10, write
/// amplification is about 12: 2 for deltas, 10 for merges. Levels of LSM-trees use the same ratio
/// (LevelDB: 10; O'Neil et al., *The Log-Structured Merge-Tree*, 1996, section 3.2).
const MERGE_RATIO: u64 = 10;

/// The sizes from which on a table is not joined with its neighbours, in bytes of keys and values.
///
/// Every table has files, an index and a directory of its own, so small chunks share a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSizes {
    /// Size of a base. A merge rewrites a base as a whole. A base of less than twice this size is
    /// not divided.
    pub base_bytes_min: u64,
    /// Size of a delta. A merge of a base reads the deltas over it as a whole.
    pub delta_bytes_min: u64,
}

impl Default for TableSizes {
    /// Returns 32 MiB for a base, and 8 MiB for a delta.
    fn default() -> TableSizes {
        TableSizes { base_bytes_min: 32 << 20, delta_bytes_min: 8 << 20 }
    }
}

/// The way in which a batch becomes a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpdateMode {
    /// A delta while that is cheap, else a merge: for each base of the current version, which may
    /// have several chunks. A chunk gets at most four deltas, with at most a tenth of the bytes of its
    /// base.
    #[default]
    Auto,
    /// Merges the batch and all deltas with the bases. A base without changes is shared.
    Merge,
    /// Writes the batch as a delta, which lookups try first.
    Delta,
    /// Makes the batch the whole content of the version.
    Replace,
}

/// The plan of a version.
pub(super) struct Plan {
    /// The parent's bases that the version shares.
    pub(super) shared: Vec<Layer>,
    /// The tables to build.
    pub(super) tables: Vec<NewTable>,
}

/// A table to build.
pub(super) struct NewTable {
    pub(super) chunks: ChunkSet,
    pub(super) kind: NewKind,
    /// The entries of the batch.
    pub(super) runs: Vec<Sorted>,
}

/// The way in which a table is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewKind {
    /// A base: the parent's entries joined with the batch.
    Base(Keep),
    /// A delta: the entries of the batch.
    Delta,
}

/// Chunks that are shared, merged or get a delta together: those of one base of the parent.
struct Unit<'a> {
    chunks: Range<u32>,
    bases: &'a [Layer],
    parts: Vec<SortedPart>,
}

/// The plan for a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnitPlan {
    /// The unit is shared with the parent version.
    Share,
    Delta,
    Join(Keep),
}

/// A range of chunks that is not divided between tables, and its expected size.
struct Item {
    chunks: Range<u32>,
    bytes: u64,
}

impl Plan {
    /// Plans a version. The parts of the batch have all chunks, in order.
    pub(super) fn new(
        parent: Option<&VersionInfo>,
        parts: Vec<SortedPart>,
        mode: UpdateMode,
        sizes: TableSizes,
    ) -> Plan {
        let mut plan = Plan { shared: Vec::new(), tables: Vec::new() };
        let (mut stretch, mut delta_parts) = (Stretch::default(), Vec::new());
        for unit in units(parent, parts) {
            let unit_plan = match parent {
                None => UnitPlan::Join(Keep::Replace),
                Some(parent) => unit.plan(parent, mode),
            };
            match unit_plan {
                UnitPlan::Join(keep) => stretch.add(unit, parent, keep, sizes),
                other => {
                    plan.tables.append(&mut stretch.take(sizes));
                    plan.shared.extend_from_slice(unit.bases);
                    // The parts of a unit that is shared have no entries.
                    assert!(other == UnitPlan::Delta || unit.batch().entries_max == 0);
                    delta_parts.extend(unit.parts);
                }
            }
        }
        plan.tables.append(&mut stretch.take(sizes));
        plan.tables.append(&mut deltas(delta_parts, sizes));
        plan
    }

    /// Returns the chunks that get a new base.
    pub(super) fn rebuilt(&self) -> ChunkSet {
        let mut ranges: Vec<Range<u32>> = Vec::new();
        for table in &self.tables {
            if table.kind != NewKind::Delta {
                ranges.extend_from_slice(table.chunks.ranges());
            }
        }
        let mut rebuilt = ChunkSet::default();
        ranges.into_iter().for_each(|range| rebuilt.push(range));
        rebuilt
    }

    /// Whether the changes of all chunks are counted: none has a delta.
    pub(super) fn is_counted(&self, parent: Option<&VersionInfo>) -> bool {
        let has_delta = |layer: &Layer| {
            parent.is_some_and(|parent| parent.delta_depth_in(&layer.chunks.bounds()) > 0)
        };
        self.tables.iter().all(|table| table.kind != NewKind::Delta)
            && !self.shared.iter().any(has_delta)
    }
}

/// Divides the chunks into units. A unit ends where a base ends and a part of the batch ends.
fn units(parent: Option<&VersionInfo>, parts: Vec<SortedPart>) -> Vec<Unit<'_>> {
    let mut bases = parent.map_or(&[][..], |parent| &parent.bases);
    let mut units: Vec<Unit<'_>> = Vec::new();
    let mut open: Vec<SortedPart> = Vec::new();
    for part in parts {
        let end = part.chunks.end;
        open.push(part);
        let ended = bases.iter().take_while(|base| base.chunks.bounds().end <= end).count();
        let is_cut = ended > 0 && bases[ended - 1].chunks.bounds().end == end;
        // Without a parent, each part is a unit.
        if is_cut || parent.is_none() {
            let (own, later) = bases.split_at(ended);
            bases = later;
            let chunks = open[0].chunks.start..end;
            units.push(Unit { chunks, bases: own, parts: std::mem::take(&mut open) });
        }
    }
    assert!(open.is_empty() && bases.is_empty());
    units
}

impl Unit<'_> {
    /// Returns the summary of the batch's entries.
    fn batch(&self) -> Summary {
        let runs = self.parts.iter().filter_map(|part| part.run.as_ref());
        runs.fold(Summary::EMPTY, |sum, run| sum.union(run.summary()))
    }

    fn plan(&self, parent: &VersionInfo, mode: UpdateMode) -> UnitPlan {
        let batch = self.batch();
        let is_empty = batch.entries_max == 0;
        let depth = parent.delta_depth_in(&self.chunks);
        let deltas = delta_share(parent, &self.chunks);
        let base: u64 = self.bases.iter().map(payload).sum();
        // A delta has one more byte per value.
        let is_cheap = depth < DELTAS_AUTO_MAX
            && batch.values.max < VALUE_BYTES_MAX as u64
            && (deltas + batch.bytes_max) * MERGE_RATIO <= base;
        match mode {
            UpdateMode::Replace => UnitPlan::Join(Keep::Replace),
            UpdateMode::Merge if is_empty && depth == 0 => UnitPlan::Share,
            UpdateMode::Merge => UnitPlan::Join(Keep::Overlay),
            UpdateMode::Auto | UpdateMode::Delta if is_empty => UnitPlan::Share,
            UpdateMode::Delta if depth < DELTAS_MAX => UnitPlan::Delta,
            UpdateMode::Auto if is_cheap => UnitPlan::Delta,
            UpdateMode::Auto | UpdateMode::Delta => UnitPlan::Join(Keep::Overlay),
        }
    }
}

/// Returns the payload of the deltas in a range of chunks, in bytes. A delta that has other chunks,
/// too, counts in proportion to the number of its chunks.
fn delta_share(parent: &VersionInfo, chunks: &Range<u32>) -> u64 {
    let share = |layer: &Layer| {
        let (part, all) = (layer.chunks.count_in(chunks), layer.chunks.count());
        (u128::from(payload(layer)) * u128::from(part) / u128::from(all)) as u64
    };
    parent.deltas.iter().map(share).sum()
}

/// Returns the size of the keys and values of a layer, in bytes.
fn payload(layer: &Layer) -> u64 {
    layer.sizes.bytes_max
}

/// Neighbouring units that are merged: they are divided into tables anew.
#[derive(Default)]
struct Stretch {
    keep: Option<Keep>,
    items: Vec<Item>,
    parts: Vec<SortedPart>,
}

impl Stretch {
    fn add(&mut self, unit: Unit<'_>, parent: Option<&VersionInfo>, keep: Keep, sizes: TableSizes) {
        let kept = match (keep, parent) {
            (Keep::Overlay, Some(parent)) => {
                let base: u64 = unit.bases.iter().map(payload).sum();
                base + delta_share(parent, &unit.chunks)
            }
            _ => 0,
        };
        let bytes = kept + unit.batch().bytes_max;
        let of_parts = unit.parts.iter().map(|part| {
            let chunks = u64::from(part.chunks.end - part.chunks.start);
            let all = u64::from(unit.chunks.end - unit.chunks.start);
            let kept = (u128::from(kept) * u128::from(chunks) / u128::from(all)) as u64;
            let batch = part.run.as_ref().map_or(0, |run| run.summary().bytes_max);
            Item { chunks: part.chunks.clone(), bytes: kept + batch }
        });
        let is_large = bytes >= sizes.base_bytes_min.saturating_mul(2);
        match is_large || keep == Keep::Replace {
            true => self.items.extend(of_parts),
            false => self.items.push(Item { chunks: unit.chunks.clone(), bytes }),
        }
        self.keep = Some(keep);
        self.parts.extend(unit.parts);
    }

    /// Returns the tables of the stretch, and empties it.
    fn take(&mut self, sizes: TableSizes) -> Vec<NewTable> {
        let Stretch { keep, items, parts } = std::mem::take(self);
        let Some(keep) = keep else { return Vec::new() };
        let mut parts = parts.into_iter().peekable();
        let table = |items: Vec<Item>| {
            let chunks = items[0].chunks.start..items[items.len() - 1].chunks.end;
            let mut runs = Vec::new();
            while let Some(part) = parts.next_if(|part| part.chunks.end <= chunks.end) {
                runs.extend(part.run);
            }
            NewTable { chunks: chunks.into(), kind: NewKind::Base(keep), runs }
        };
        packed(items, sizes.base_bytes_min, |item| item.bytes).into_iter().map(table).collect()
    }
}

/// Packs the parts of a batch that have entries into deltas.
fn deltas(parts: Vec<SortedPart>, sizes: TableSizes) -> Vec<NewTable> {
    let full = parts.into_iter().filter_map(|part| part.run.map(|run| (part.chunks, run)));
    let table = |parts: Vec<(Range<u32>, Sorted)>| {
        let mut table =
            NewTable { chunks: ChunkSet::default(), kind: NewKind::Delta, runs: Vec::new() };
        for (chunks, run) in parts {
            table.chunks.push(chunks);
            table.runs.push(run);
        }
        table
    };
    let bytes = |part: &(Range<u32>, Sorted)| part.1.summary().bytes_max;
    packed(full.collect(), sizes.delta_bytes_min, bytes).into_iter().map(table).collect()
}

/// Joins neighbours into groups of at least `least` bytes. An item of that size stands alone.
fn packed<T>(items: Vec<T>, least: u64, bytes: impl Fn(&T) -> u64) -> Vec<Vec<T>> {
    let mut groups: Vec<Vec<T>> = Vec::new();
    let mut room = 0_u64;
    for item in items {
        let size = bytes(&item);
        match groups.last_mut() {
            Some(group) if room > 0 && size < least => {
                group.push(item);
                room = room.saturating_sub(size);
            }
            _ => {
                groups.push(vec![item]);
                room = least.saturating_sub(size);
            }
        }
    }
    groups
}
