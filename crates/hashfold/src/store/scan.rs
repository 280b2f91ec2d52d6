//! The entries of a version in a range of slots, as a run.

use super::{
    chunks::common,
    delta::Untagged,
    in_slots::{InSlots, SlotSet},
    slot::SLOTS,
    version::{Layer, VersionInfo},
};
use crate::{
    error::{Error, Result},
    key::Seed,
    run::{Entry, Merge, Run, Summary, Tombstones, VecRun},
    table::{Table, TableScan},
    work::Executor,
};
use std::{ops::Range, sync::Arc};

/// Returns the entries of a version in a range of slots as one run without deletions. Leaves out hashes
/// with lower high bits than `from`. Reads ahead on the executor, if there is one. If only a part of a base is in the range, the number of its
/// entries in the summary of the run is an estimate.
pub(super) fn scan_slots(
    info: &VersionInfo,
    slots: &Range<u32>,
    from: u64,
    open: &dyn Fn(&Layer) -> Result<Arc<Table>>,
    executor: Option<&Arc<dyn Executor>>,
) -> Result<Box<dyn Run>> {
    let scan = |layer: &Layer| -> Result<TableScan> {
        let scan = open(layer)?.scan().starting_from(from)?.with_summary(layer.sizes);
        Ok(match executor {
            Some(executor) => scan.reading_ahead(executor.clone()),
            None => scan,
        })
    };
    let own = |layer: &Layer| {
        let ranges = layer.chunks.ranges().iter().map(|range| info.shape.slots.slots(range));
        SlotSet::of(ranges.map(|range| common(&range, slots)))
    };
    let mut runs: Vec<Box<dyn Run>> = Vec::new();
    for delta in info.deltas.iter().rev() {
        let wanted = own(delta);
        match wanted.count() {
            0 => {}
            SLOTS => runs.push(Box::new(Untagged(scan(delta)?))),
            _ => {
                let sizes = share(delta, &wanted, info);
                runs.push(Box::new(InSlots::new(Untagged(scan(delta)?), wanted, sizes)));
            }
        }
    }
    for base in &info.bases {
        let (wanted, all) = (own(base), info.shape.slots.slots(&base.chunks.bounds()));
        match wanted.count() {
            0 => {}
            count if count == all.end - all.start => runs.push(Box::new(scan(base)?)),
            _ => {
                let sizes = share(base, &wanted, info);
                runs.push(Box::new(InSlots::new(scan(base)?, wanted, sizes)));
            }
        }
    }
    match runs.len() {
        0 => Ok(Box::new(VecRun::new(Vec::new(), info.seed))),
        1 => Ok(runs.remove(0)),
        _ => Ok(Box::new(Merge::new(runs, Tombstones::Drop)?)),
    }
}

/// Returns the expected summary of a layer's entries in some of its slots.
fn share(layer: &Layer, wanted: &SlotSet, info: &VersionInfo) -> Summary {
    let slots = layer.chunks.ranges().iter().map(|range| info.shape.slots.slots(range));
    let all: u32 = slots.map(|slots| slots.end - slots.start).sum();
    let part = |number: u64| {
        (u128::from(number) * u128::from(wanted.count())).div_ceil(u128::from(all)) as u64
    };
    let Summary { entries_max, bytes_max, .. } = layer.sizes;
    Summary { entries_max: part(entries_max), bytes_max: part(bytes_max), ..layer.sizes }
}

/// A run whose first step fails: that of a version whose tables cannot be opened.
pub(super) struct Broken {
    pub(super) error: Option<Error>,
    pub(super) seed: Seed,
}

impl Run for Broken {
    fn seed(&self) -> Seed {
        self.seed
    }

    fn summary(&self) -> Summary {
        Summary::EMPTY
    }

    fn advance(&mut self) -> Result<bool> {
        self.error.take().map_or(Ok(false), Err)
    }

    fn entry(&self) -> Entry<'_> {
        panic!("the last advance returned true")
    }
}
