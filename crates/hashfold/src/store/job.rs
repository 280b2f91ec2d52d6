//! Building the tables of a new version, several at once.

use super::{
    join::{Join, Keep},
    layer::{LayerBuilder, LayerKind},
    plan::{NewKind, NewTable},
    scan::scan_slots,
    tables::{is_of_table, open_layer},
    version::{Changes, Layer, VersionInfo},
};
use crate::{
    env::Env,
    error::Result,
    io::{Access, WRITER_BYTES_MAX},
    key::Seed,
    options::ReadOptions,
    run::{Merge, Run, Sorted, Tombstones, VecRun},
    table::SCAN_BYTES_MAX,
    work::{Executor, Pending},
};
use std::{
    iter, mem,
    sync::{Arc, Mutex},
};

/// Memory for reading and writing several tables at once, in bytes; in addition, a sixteenth of the
/// memory for sorting is used.
const SIDE_BYTES_MIN: usize = 8 << 20;

/// The work for one table.
pub(super) struct TableJob {
    pub(super) table: NewTable,
    /// The version whose entries are joined with the batch.
    pub(super) parent: Option<Arc<VersionInfo>>,
    pub(super) builder: LayerBuilder,
}

/// A new layer, and how a base differs from the parent's entries.
pub(super) type Built = (Layer, Option<Changes>);

/// Builds tables, several at once, while sorters use `memory_bytes`. Returns them in the order of
/// the jobs.
pub(super) fn build_all(
    jobs: Vec<TableJob>,
    executor: &dyn Executor,
    memory_bytes: usize,
) -> Result<Vec<Built>> {
    if jobs.len() <= 1 {
        return jobs.into_iter().map(TableJob::run).collect();
    }
    let lines = side_by_side(&jobs, memory_bytes).min(executor.width().max(1));
    let queue = Arc::new(Mutex::new(jobs.into_iter().enumerate()));
    let line = |_| {
        let queue = queue.clone();
        let take = move || queue.lock().expect("nothing panics under this lock").next();
        let built = iter::from_fn(take).map(|(number, job)| (number, job.run()));
        Pending::start(executor, move || built.collect::<Vec<_>>())
    };
    let pending: Vec<_> = (0..lines).map(line).collect();
    // All jobs are waited for, even after an error, so that none is still writing.
    let mut done: Vec<_> = pending.into_iter().flat_map(Pending::wait).collect();
    done.sort_unstable_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, built)| built).collect()
}

/// Returns the maximum number of tables that are built at once while sorters use `memory_bytes`.
fn side_by_side(jobs: &[TableJob], memory_bytes: usize) -> usize {
    let scans = jobs.iter().map(TableJob::scans).max().unwrap_or(0);
    let each_bytes = WRITER_BYTES_MAX + scans * SCAN_BYTES_MAX;
    ((SIDE_BYTES_MIN + memory_bytes / 16) / each_bytes).max(1)
}

impl TableJob {
    /// Returns the number of the parent's tables that the job reads.
    fn scans(&self) -> usize {
        let Some(parent) = &self.parent else { return 0 };
        let bounds = self.table.chunks.bounds();
        parent.layers().filter(|layer| layer.chunks.count_in(&bounds) > 0).count()
    }

    fn run(mut self) -> Result<Built> {
        let batch = merged(mem::take(&mut self.table.runs), self.builder.seed);
        let NewKind::Base(keep) = self.table.kind else {
            return Ok((self.builder.build(LayerKind::Delta, batch)?, None));
        };
        let old = match self.old_entries() {
            // What is replaced need not be readable; the changes are then not counted.
            Err(error) if keep == Keep::Replace && is_of_table(&error) => None,
            old => Some(old?),
        };
        let is_counted = old.is_some();
        let old = old.unwrap_or_else(|| merged(Vec::new(), self.builder.seed));
        let mut join = Join::new(old, batch, keep);
        let layer = self.builder.build(LayerKind::Base, &mut join)?;
        Ok((layer, is_counted.then(|| join.changes())))
    }

    /// Returns the entries of the parent that are joined with the batch.
    fn old_entries(&self) -> Result<Box<dyn Run>> {
        let Some(parent) = &self.parent else {
            return Ok(merged(Vec::new(), self.builder.seed));
        };
        let tables = &self.builder.tables;
        let options = ReadOptions::new().env(Env::on(self.builder.disk.clone()));
        let options = options.data(Access::Direct).index(Access::Mapped);
        let open = |layer: &Layer| open_layer(tables, parent, layer, &options).map(Arc::new);
        let slots = parent.shape.slots.slots(&self.table.chunks.bounds());
        scan_slots(parent, &slots, 0, &open, Some(&self.builder.executor))
    }
}

/// Returns the entries of some runs as one run. The runs have no key in common.
fn merged(mut runs: Vec<Sorted>, seed: Seed) -> Box<dyn Run> {
    match runs.len() {
        0 => Box::new(VecRun::new(Vec::new(), seed)),
        1 => Box::new(runs.remove(0)),
        _ => {
            let runs = runs.into_iter().map(|run| Box::new(run) as Box<dyn Run>).collect();
            Box::new(Merge::new(runs, Tombstones::Keep).expect("one batch has one seed"))
        }
    }
}
