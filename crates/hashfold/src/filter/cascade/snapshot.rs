//! Snapshots: the state of a filter at one moment.

use super::{
    catalog::{Epoch, Identity, Shard, Upper, View},
    key_range::KeyRange,
    logs,
    lookup::{self, Answers, Sources},
    memtable::Memtable,
    options::{CascadeSettings, MergeShare, READ_UNIT_MIN, check_memory},
    ram_runs::RamRun,
    recovery,
    resident::MemoryBudget,
    run_file::RunFile,
    scan::{Chain, RunScan},
    stats::CascadeStats,
};
use crate::{
    env::Env,
    error::{Error, ErrorKind, Place, Result},
    filter::{FingerprintMerge, Mode, PackedRun},
    fingerprints::{Fingerprints, Universe},
    io::{Access, Disk},
    key::{KeyHash, Seed},
    work::Executor,
};
use std::{path::Path, sync::Arc};

/// Maximum number of attempts to read a folder that its writer changes meanwhile.
const ATTEMPTS_MAX: usize = 100;
/// Minimum and maximum number of slots of a memtable for changes in logs.
const LOG_SLOTS: [usize; 2] = [1 << 12, if cfg!(test) { 1 << 13 } else { 1 << 20 }];
/// The memtable takes at most one part in N of the memory for changes in logs.
const LOG_TABLE_PART: usize = 4;

/// The state of a filter at one moment. Threads can share it.
#[derive(Clone, Debug)]
pub struct Snapshot {
    identity: Identity,
    view: Arc<View>,
    logged: Logged,
    memory: SnapshotShares,
    /// The executor that reads ahead.
    executor: Arc<dyn Executor>,
}

/// The changes in logs that are not in runs.
#[derive(Clone, Debug, Default)]
struct Logged {
    /// The newest changes.
    table: Option<Arc<Memtable>>,
    /// Packed memtables, newest first.
    ram_runs: Vec<RamRun>,
    /// Sequence number of the last change.
    seq: u64,
}

/// The division of a snapshot's memory budget. Sizes are in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct SnapshotShares {
    /// Memory of the indexes of runs: a quarter of the budget.
    pub(super) indexes: usize,
    /// Memory of the changes in logs: half of the budget.
    pub(super) logs: usize,
    /// Memory of a scan: an eighth of the budget. The last eighth is for lookups.
    pub(super) scan: MergeShare,
}

impl SnapshotShares {
    pub(super) fn of(memory_bytes: usize) -> SnapshotShares {
        SnapshotShares {
            indexes: memory_bytes / 4,
            logs: memory_bytes / 2,
            scan: MergeShare(memory_bytes / 8),
        }
    }
}

impl Snapshot {
    /// Returns a snapshot of runs alone.
    pub(super) fn new(identity: Identity, view: Arc<View>, settings: &CascadeSettings) -> Snapshot {
        let memory = SnapshotShares::of(settings.memory_bytes);
        let executor = settings.env.executor.clone();
        Snapshot { identity, view, logged: Logged::default(), memory, executor }
    }

    /// Opens the durable state of the filter in a folder, even while another process writes to it.
    /// If the filter has a [`Window`](super::Window), keys that are too old by the clock of `env` are
    /// absent.
    ///
    /// The memory grows with the filter: 4 bytes per block of 4096 bytes of its runs, and the
    /// changes in its logs. [`Snapshot::open_within`] takes a limit.
    ///
    /// `Absent` if there is no filter; `Busy` if another process changed it during each of 100
    /// attempts.
    pub fn open(env: &Env, folder: &Path, access: Access) -> Result<Snapshot> {
        Snapshot::open_with(env, folder, access, SnapshotShares::of(usize::MAX))
    }

    /// Opens a filter as [`Snapshot::open`] does, with a memory budget in bytes of at least
    /// [`MEMORY_MIN`](super::MEMORY_MIN). If the indexes of large runs do not fit,
    /// lookups read several blocks of such a run instead of one. Memory in addition to the budget:
    /// at most 16 MiB for reads in flight, and 3 MiB and 24 bytes per key for each thread that
    /// looks up many keys.
    ///
    /// # Errors
    /// `Absent` if there is no filter, and a bad argument if the changes in the filter's logs that
    /// are not in runs yet do not fit in half of the memory.
    pub fn open_within(
        env: &Env,
        folder: &Path,
        access: Access,
        memory_bytes: usize,
    ) -> Result<Snapshot> {
        check_memory(memory_bytes)?;
        Snapshot::open_with(env, folder, access, SnapshotShares::of(memory_bytes))
    }

    pub(super) fn open_with(
        env: &Env,
        folder: &Path,
        access: Access,
        memory: SnapshotShares,
    ) -> Result<Snapshot> {
        let (disk, mut failed) = (&*env.disk, None);
        for attempt in 1.. {
            let generation = recovery::read_state(disk, folder)?.1.generation;
            let read = Snapshot::read(env, folder, access, memory);
            let current = recovery::read_state(disk, folder)?.1;
            match read {
                // Segments may have been removed before they were read. In that case, the runs of
                // the current manifest hold all of their changes.
                Ok(snapshot) if snapshot.view.logged == 0 || snapshot.logged.seq >= current.seq => {
                    return Ok(snapshot);
                }
                // Files are removed after a newer manifest is published. The error must occur
                // twice, because a list of segments that grows meanwhile may have gaps.
                Err(error) if generation == current.generation && failed == Some(generation) => {
                    return Err(error);
                }
                // The snapshot may lack changes that were durable before this call, or files may be
                // missing because the writer removed them.
                _ if attempt == ATTEMPTS_MAX => {
                    return Err(Error::new(ErrorKind::Busy).at(&Place::file(folder)));
                }
                Ok(_) => failed = None,
                Err(_) => failed = Some(generation),
            }
        }
        unreachable!("attempts are bounded")
    }

    fn read(env: &Env, folder: &Path, access: Access, memory: SnapshotShares) -> Result<Snapshot> {
        let (disk, executor) = (&*env.disk, env.executor.clone());
        let budget = MemoryBudget::new(memory.indexes);
        let (identity, mut view) = recovery::read(disk, folder, access, &budget)?;
        let mut logged = read_logs(disk, folder, &identity, &view, memory.logs)?;
        if let Some(window) = identity.window {
            let newest = view.epochs[0].number;
            view.advance(window, env.clock.unix_time());
            if view.epochs.iter().all(|epoch| epoch.number != newest) {
                logged = Logged { seq: logged.seq, ..Logged::default() };
            }
        }
        Ok(Snapshot { identity, view: Arc::new(view), logged, memory, executor })
    }

    /// Returns the seed that keys are hashed with.
    pub fn seed(&self) -> Seed {
        self.identity.seed
    }

    /// Returns the universe of the fingerprints.
    pub fn universe(&self) -> Universe {
        self.identity.universe
    }

    /// Returns whether the filter is a set or a multiset.
    pub fn mode(&self) -> Mode {
        self.identity.mode
    }

    /// Hashes a key with the filter's seed.
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash::of(key, self.seed())
    }

    /// Whether a key may have been present. No key that was present is missed; [`Universe`] gives
    /// the false-positive rate.
    pub fn contains(&self, hash: KeyHash) -> Result<bool> {
        let mut found = [false];
        self.contains_batch(&[hash], &mut found)?;
        Ok(found[0])
    }

    /// Looks up many keys, with many device reads in flight. `found[i]` is set to whether
    /// `hashes[i]` may have been present.
    pub fn contains_batch(&self, hashes: &[KeyHash], found: &mut [bool]) -> Result<()> {
        self.look_up(hashes)?.fill(found, |count| count > 0);
        Ok(())
    }

    /// Counts many keys, with many device reads in flight. `counts[i]` is set to the count of
    /// `hashes[i]`: 0 or 1 in a set.
    pub fn count_batch(&self, hashes: &[KeyHash], counts: &mut [u64]) -> Result<()> {
        self.look_up(hashes)?.fill(counts, |count| count.max(0).cast_unsigned());
        Ok(())
    }

    fn look_up(&self, hashes: &[KeyHash]) -> Result<Answers> {
        let Identity { mode, universe, .. } = self.identity;
        let Logged { table, ram_runs, .. } = &self.logged;
        let (active, view) = (table.as_deref(), &*self.view);
        let sources = Sources { mode, universe, immutable: None, active, ram_runs, view };
        lookup::look_up(sources, hashes.iter().map(|hash| hash.high()))
    }

    /// Returns all fingerprints in ascending order, with their counts. Reads ahead in the
    /// background.
    pub fn scan(&self) -> Result<impl Fingerprints + use<>> {
        let (memory, sources) = (self.memory.scan, self.sources());
        self.scan_in(memory.read_unit(sources), memory.items() / sources)
    }

    /// Returns all fingerprints as [`Snapshot::scan`] does, in reads of 16 KiB: for callers that stop
    /// early, such as samples. Up to 48 KiB of each run are read that are not used.
    pub fn scan_prefix(&self) -> Result<impl Fingerprints + use<>> {
        self.scan_in(READ_UNIT_MIN, 0)
    }

    /// Returns the number of runs that a scan merges.
    fn sources(&self) -> usize {
        let sources: usize = self.view.epochs.iter().map(|epoch| epoch.uppers.len() + 1).sum();
        // The result of each epoch is also a source for the next epoch.
        sources + self.view.epochs.len() + self.logged.ram_runs.len()
    }

    /// Returns all fingerprints, with `unit` bytes in each read and `items` bytes of memory for the
    /// fingerprints of each run.
    fn scan_in(&self, unit: usize, items: usize) -> Result<impl Fingerprints + use<>> {
        let Identity { seed, mode, universe, .. } = self.identity;
        let executor = &self.executor;
        // The oldest epoch first: a removal in one epoch does not affect keys that expired.
        let mut merge: Option<FingerprintMerge<Box<dyn Fingerprints>>> = None;
        for (i, epoch) in self.view.epochs.iter().enumerate().rev() {
            let mut runs: Vec<Box<dyn Fingerprints>> = Vec::new();
            if i == 0 {
                runs.extend(self.logged.scans(seed, universe));
            }
            for Upper { run, ranges, .. } in &epoch.uppers {
                let stretches = ranges.iter().map(|range| (run.clone(), range)).collect();
                runs.push(Box::new(chain(stretches, &self.identity, unit, executor)));
            }
            runs.push(Box::new(shards(epoch, &self.identity, unit, executor)));
            runs.extend(merge.take().map(|older| Box::new(older) as _));
            let memory = items.saturating_mul(runs.len());
            merge = Some(FingerprintMerge::last(runs, mode)?.within(memory));
        }
        Ok(merge.expect("a filter has an epoch"))
    }

    /// Returns the statistics of the filter at that moment.
    pub fn stats(&self) -> CascadeStats {
        let Logged { table, ram_runs, .. } = &self.logged;
        let table = table.as_ref().map_or(0, |table| table.len() as u64);
        let pending = table + ram_runs.iter().map(|it| it.run.len()).sum::<u64>();
        CascadeStats::new(&self.identity, &self.view, pending, 0)
    }
}

impl Logged {
    /// Returns the runs of the log's changes, newest first.
    fn scans(&self, seed: Seed, universe: Universe) -> impl Iterator<Item = Box<dyn Fingerprints>> {
        let table = self.table.iter().map(move |table| Box::new(table.scan(seed, universe)) as _);
        table.chain(self.ram_runs.iter().map(|it| Box::new(it.run.clone().scan_shared()) as _))
    }

    /// Packs the memtable.
    ///
    /// # Errors
    /// If there is not enough memory for the packed run and another memtable.
    fn pack(
        &mut self,
        (seed, universe): (Seed, Universe),
        seq: u64,
        bytes_max: usize,
    ) -> Result<()> {
        if let Some(table) = self.table.take() {
            let run = Arc::new(PackedRun::build(&mut table.scan(seed, universe))?);
            self.ram_runs.insert(0, RamRun { run, seq });
        }
        let bytes: usize = self.ram_runs.iter().map(|it| it.run.bytes()).sum();
        if bytes <= bytes_max - bytes_max / LOG_TABLE_PART {
            return Ok(());
        }
        let expected = "more: the changes in the filter's logs do not fit in half of it; close or \
                        flush the filter, or give more";
        Err(Error::argument("memory", expected, format!("{} bytes", 2 * bytes_max)))
    }
}

/// Returns the last level of an epoch as one run.
fn shards(
    epoch: &Epoch<Arc<RunFile>>,
    identity: &Identity,
    unit: usize,
    executor: &Arc<dyn Executor>,
) -> impl Fingerprints + use<> {
    let stretch = |(i, shard): (usize, &Shard<Arc<RunFile>>)| {
        Some((shard.run.clone()?, epoch.range_of(i, identity.universe)))
    };
    let stretches = epoch.shards.iter().enumerate().filter_map(stretch).collect();
    chain(stretches, identity, unit, executor)
}

/// Returns ascending key ranges of runs as one run.
fn chain(
    stretches: Vec<(Arc<RunFile>, KeyRange)>,
    &Identity { seed, universe, .. }: &Identity,
    unit: usize,
    executor: &Arc<dyn Executor>,
) -> impl Fingerprints + use<> {
    let executor = executor.clone();
    let scan = move |(run, range)| RunScan::new(&run, range, unit, &executor);
    Chain::new(seed, universe, stretches.into_iter().map(scan))
}

/// Reads the changes in logs that are not in runs, in `bytes_max` bytes of memory.
fn read_logs(
    disk: &dyn Disk,
    folder: &Path,
    identity: &Identity,
    view: &View,
    bytes_max: usize,
) -> Result<Logged> {
    let &Identity { seed, mode, universe, .. } = identity;
    let fits = |slots: &usize| Memtable::bytes_max(mode, *slots) <= bytes_max / LOG_TABLE_PART;
    let mut next_slots = LOG_SLOTS[0];
    let mut logged = Logged { seq: view.seq, ..Logged::default() };
    let mut table: Option<Memtable> = None;
    logs::replay(disk, folder, identity, view, &mut |change, mut hashes| {
        while !hashes.is_empty() {
            if let Some(full) = table.take_if(|table| table.free() == 0) {
                logged.table = Some(Arc::new(full));
                logged.pack((seed, universe), logged.seq, bytes_max)?;
                next_slots = Some(2 * next_slots).filter(fits).unwrap_or(next_slots);
                next_slots = next_slots.min(LOG_SLOTS[1]);
            }
            let table = table.get_or_insert_with(|| Memtable::new(mode, next_slots));
            let (now, later) = hashes.split_at(hashes.len().min(table.free()));
            table.apply(change, now);
            logged.seq += now.len() as u64;
            hashes = later;
        }
        Ok(())
    })?;
    logged.table = table.map(Arc::new);
    Ok(logged)
}
