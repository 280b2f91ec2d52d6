//! What a filter held at one moment.

use super::{
    lookup::{self, Answers, Place},
    memtable::Memtable,
    recovery,
    scan::RunScan,
    state::{Identity, View},
    stats::CascadeStats,
    wal,
};
use crate::{
    error::{Error, Result},
    filter::{Fingerprints, Items, Merge, Mode, Span, Universe},
    io::{Access, Disk},
    key::{KeyHash, Seed},
    work::Executor,
};
use std::{path::Path, sync::Arc};

/// How often a folder is read anew because its writer changed it meanwhile.
const ATTEMPTS_MAX: usize = 100;
/// Slots of the first table that takes what is in logs, and the most that one has.
const LOG_SLOTS: [usize; 2] = [1 << 12, 1 << 20];
/// One read of a scan, in bytes.
const UNIT_SIZE: usize = 256 << 10;

/// A filter as it was at one moment, to be read by any number of threads.
#[derive(Clone, Debug)]
pub struct Snapshot {
    identity: Identity,
    view: Arc<View>,
    /// What is in logs and not in runs.
    tables: Vec<Arc<Memtable>>,
}

impl Snapshot {
    pub(super) fn new(identity: Identity, view: Arc<View>, tables: Vec<Arc<Memtable>>) -> Snapshot {
        Snapshot { identity, view, tables }
    }

    /// What is durable of the filter in a folder, also while another process writes to it.
    ///
    /// # Errors
    /// `Absent` if there is none.
    pub fn open(disk: &dyn Disk, folder: &Path, access: Access) -> Result<Snapshot> {
        let mut attempts = 0;
        let mut failed = None;
        loop {
            attempts += 1;
            let read = Snapshot::read(disk, folder, access);
            let current = recovery::read_state(disk, folder)?.1;
            match read {
                // Runs that were all opened are a moment's; logs may have gone before they were
                // read.
                Ok(snapshot) if snapshot.view.first_log == current.first_log => {
                    return Ok(snapshot);
                }
                // Files go when they are replaced: then there is another manifest. Twice, because a
                // list of logs that grows meanwhile may have holes.
                Err((error, generation))
                    if generation
                        .is_none_or(|it| it == current.generation && failed == Some(it)) =>
                {
                    return Err(error);
                }
                Err((error, _)) if attempts == ATTEMPTS_MAX => return Err(error),
                Ok(snapshot) if attempts == ATTEMPTS_MAX => return Ok(snapshot),
                Err((_, generation)) => failed = generation,
                Ok(_) => failed = None,
            }
        }
    }

    /// The filter, or why not, and the generation of the manifest that was read.
    fn read(
        disk: &dyn Disk,
        folder: &Path,
        access: Access,
    ) -> std::result::Result<Snapshot, (Error, Option<u64>)> {
        let state = recovery::read_state(disk, folder).map_err(|error| (error, None))?.1;
        let opened = recovery::read(disk, folder, access).and_then(|(identity, view)| {
            let tables = read_logs(disk, folder, &identity, &view)?;
            Ok(Snapshot::new(identity, Arc::new(view), tables))
        });
        opened.map_err(|error| (error, Some(state.generation)))
    }

    /// The seed of the hashes.
    pub fn seed(&self) -> Seed {
        self.identity.seed
    }

    /// The fingerprints of the filter.
    pub fn universe(&self) -> Universe {
        self.identity.universe
    }

    /// A set or a multiset.
    pub fn mode(&self) -> Mode {
        self.identity.mode
    }

    /// The hash of a key, as all calls take it.
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash::of(key, self.seed())
    }

    /// Whether a key was in; of keys that were not, a few seem to be: see [`Universe`].
    pub fn contains(&self, hash: KeyHash) -> Result<bool> {
        let mut found = [false];
        self.contains_batch(&[hash], &mut found)?;
        Ok(found[0])
    }

    /// The same of many; `found` has one place for each.
    pub fn contains_batch(&self, hashes: &[KeyHash], found: &mut [bool]) -> Result<()> {
        assert_eq!(hashes.len(), found.len());
        let answers = self.ask(hashes)?;
        for (query, count) in answers.queries.iter().zip(answers.counts) {
            found[query.index as usize] = count > 0;
        }
        Ok(())
    }

    /// How often each key was in: 0 or 1 in a set; `counts` has one place for each.
    pub fn count_batch(&self, hashes: &[KeyHash], counts: &mut [u64]) -> Result<()> {
        assert_eq!(hashes.len(), counts.len());
        let answers = self.ask(hashes)?;
        for (query, count) in answers.queries.iter().zip(answers.counts) {
            counts[query.index as usize] = count.max(0).cast_unsigned();
        }
        Ok(())
    }

    fn ask(&self, hashes: &[KeyHash]) -> Result<Answers> {
        let Identity { mode, universe, .. } = self.identity;
        let (tables, view) = (&self.tables[..], &*self.view);
        let place = Place { mode, universe, tables, active: None, packed: &[], view };
        lookup::ask(place, hashes.iter().map(|hash| hash.high()))
    }

    /// All fingerprints, ascending, with their counts; reads are ahead on `executor`.
    pub fn scan(&self, executor: &Arc<dyn Executor>) -> Result<SnapshotScan> {
        let Identity { mode, universe, .. } = self.identity;
        // From the oldest epoch on: what one takes away of something that is gone counts for nothing.
        let mut merge: Option<Merge<Box<dyn Fingerprints>>> = None;
        for (i, epoch) in self.view.epochs.iter().enumerate().rev() {
            let mut runs: Vec<Box<dyn Fingerprints>> = Vec::new();
            if i == 0 {
                runs.extend(self.tables.iter().map(|table| Box::new(table.scan(universe)) as _));
            }
            let mut scan = |run, stretch| {
                runs.push(Box::new(RunScan::new(run, universe, stretch, UNIT_SIZE, executor)));
            };
            for upper in &epoch.uppers {
                scan(&upper.run, (upper.from, universe.last()));
            }
            for (i, shard) in epoch.shards.iter().enumerate() {
                if let Some(run) = &shard.run {
                    scan(run, (shard.start, epoch.end_of(i, universe)));
                }
            }
            runs.extend(merge.take().map(|older| Box::new(older) as _));
            merge = if runs.is_empty() { None } else { Some(Merge::last(runs, mode)?) };
        }
        Ok(SnapshotScan { universe, merge })
    }

    /// What there was of it.
    pub fn stats(&self) -> CascadeStats {
        let pending = self.tables.iter().map(|table| table.len() as u64).sum();
        CascadeStats::new(&self.identity, &self.view, pending, 0)
    }
}

/// What logs hold that runs do not, the newest table first.
fn read_logs(
    disk: &dyn Disk,
    folder: &Path,
    identity: &Identity,
    view: &View,
) -> Result<Vec<Arc<Memtable>>> {
    let mut tables: Vec<Memtable> = Vec::new();
    let logs = recovery::logs(disk, folder, view)?;
    let of = (identity.seed, identity.id);
    wal::replay(disk, folder, &logs, of, view.told, &mut |change, mut hashes| {
        while !hashes.is_empty() {
            if tables.last().is_none_or(|table| table.room() == 0) {
                let slots = LOG_SLOTS[0] << tables.len().min(8);
                tables.push(Memtable::new(identity.mode, slots.min(LOG_SLOTS[1])));
            }
            let Some(table) = tables.last_mut() else { break };
            let (now, later) = hashes.split_at(hashes.len().min(table.room()));
            table.apply(change, now);
            hashes = later;
        }
        Ok(())
    })?;
    Ok(tables.into_iter().rev().map(Arc::new).collect())
}

/// A snapshot as a run of fingerprints.
pub struct SnapshotScan {
    universe: Universe,
    merge: Option<Merge<Box<dyn Fingerprints>>>,
}

impl Fingerprints for SnapshotScan {
    fn universe(&self) -> Universe {
        self.universe
    }

    fn next_span(&mut self, span: &mut Span) -> Result<bool> {
        match &mut self.merge {
            Some(merge) => merge.next_span(span),
            None => {
                span.clear();
                Ok(false)
            }
        }
    }

    fn append_items(&mut self, items: &mut Items) -> Result<bool> {
        self.merge.as_mut().map_or(Ok(false), |merge| merge.append_items(items))
    }
}

impl std::fmt::Debug for SnapshotScan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SnapshotScan(of {} fingerprints)", self.universe.size())
    }
}
