//! Cascades against maps of fingerprints. Memtables and shards are small, so that few keys go
//! through all levels.

use super::{options::MergeShare, snapshot::SnapshotShares, *};
use crate::{
    env::Env,
    error::ErrorKind,
    filter::Mode,
    fingerprints::{FingerprintBatch, Fingerprints, Universe},
    io::{Access, Disk, MemoryDisk},
    key::{KeyHash, Seed},
    work::{Executor, Inline, Threads, Watch},
};
use std::{collections::BTreeMap, path::Path, sync::Arc};

const FOLDER: &str = "filter";

/// A filter and its expected content.
struct Pair {
    disk: Arc<dyn Disk>,
    filter: CascadeFilter,
    twin: Twin,
    random: u64,
}

/// Counts of fingerprints per epoch, newest epoch first.
struct Twin {
    mode: Mode,
    universe: Universe,
    epochs: Vec<(u64, BTreeMap<u64, i64>)>,
}

impl Twin {
    fn apply(&mut self, hash: KeyHash, change: i64) {
        let (_, counts) = &mut self.epochs[0];
        let count = counts.entry(self.universe.fingerprint(hash)).or_default();
        *count = if self.mode == Mode::Set { change } else { *count + change };
    }

    fn count(&self, fingerprint: u64) -> u64 {
        let counts = self.epochs.iter().map(|(_, counts)| counts.get(&fingerprint).copied());
        let mut counts = counts.map(|count| count.unwrap_or(0));
        let count = match self.mode {
            Mode::Set => counts.find(|&count| count != 0).unwrap_or(0),
            Mode::Multiset => counts.rev().fold(0, |sum, count| (sum + count).max(0)),
        };
        count.max(0).cast_unsigned()
    }

    /// Returns the fingerprints that are present, with their counts.
    fn all(&self) -> BTreeMap<u64, u64> {
        let fingerprints = self.epochs.iter().flat_map(|(_, counts)| counts.keys());
        let all = fingerprints.map(|&fingerprint| (fingerprint, self.count(fingerprint)));
        all.filter(|(_, count)| *count > 0).collect()
    }
}

fn settings(threads: usize, log: bool) -> CascadeSettings {
    let pool = |count| -> Arc<dyn Executor> {
        if count == 0 { Arc::new(Inline) } else { Arc::new(Threads::new(count)) }
    };
    CascadeSettings {
        // Enough memory for several merges at once, if there are many threads.
        memory_bytes: if threads > 3 { 256 << 20 } else { MEMORY_MIN },
        wal: log,
        env: Env { executor: pool(threads), ..Env::simulated(1) },
        ..CascadeSettings::new(Env::simulated(1))
    }
}

/// Returns the hash of a numbered key. Small numbers have different fingerprints, also in a
/// universe that is not exact.
fn hash(i: u64) -> KeyHash {
    KeyHash::of(&i.to_le_bytes(), Seed(1))
}

#[track_caller]
fn check_same(counts: &[u64], expected: &[u64]) {
    assert_eq!(counts.len(), expected.len());
    let wrong = counts.iter().zip(expected).zip(0..).filter(|((a, b), _)| a != b);
    let wrong: Vec<((&u64, &u64), u32)> = wrong.take(20).collect();
    assert!(wrong.is_empty(), "counts, those expected, keys: {wrong:?}");
}

fn items(run: &mut dyn Fingerprints) -> BTreeMap<u64, u64> {
    let mut all = FingerprintBatch::new();
    while run.append_to(&mut all).unwrap() {}
    all.iter().map(|(fingerprint, count)| (fingerprint, count.cast_unsigned())).collect()
}

impl Pair {
    fn new(mode: Mode, universe: Universe, settings: CascadeSettings) -> Pair {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
        let options = CascadeOptions { mode, universe, ..CascadeOptions::exact(Seed(1), 7) };
        let filter =
            CascadeFilter::create(Path::new(FOLDER), &options, settings.on(disk.clone())).unwrap();
        let twin = Twin { mode, universe, epochs: vec![(0, BTreeMap::new())] };
        Pair { disk, filter, twin, random: 1 }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash(self.random).low() % below
    }

    /// Applies random changes of keys below `keys`. In a multiset, only present keys are removed.
    fn apply(&mut self, batches: u64, keys: u64) {
        for _ in 0..batches {
            let size = 1 + self.random(700);
            let hashes: Vec<KeyHash> = (0..size).map(|_| hash(self.random(keys))).collect();
            match self.random(8) {
                0 => {
                    let hashes: Vec<KeyHash> = hashes
                        .into_iter()
                        .filter(|&hash| {
                            let fingerprint = self.twin.universe.fingerprint(hash);
                            let is_in = self.twin.count(fingerprint) > 0;
                            if self.twin.mode == Mode::Set || is_in {
                                self.twin.apply(hash, -1);
                            }
                            self.twin.mode == Mode::Set || is_in
                        })
                        .collect();
                    self.filter.remove_batch(&hashes).unwrap();
                }
                1 => {
                    let mut removed = vec![false; hashes.len()];
                    self.filter.remove_present_batch(&hashes, &mut removed).unwrap();
                    for (&hash, removed) in hashes.iter().zip(removed) {
                        let was_in = self.twin.count(self.twin.universe.fingerprint(hash)) > 0;
                        assert_eq!(removed, was_in);
                        if removed {
                            self.twin.apply(hash, -1);
                        }
                    }
                }
                2 if self.twin.mode == Mode::Set => {
                    let mut is_new = vec![false; hashes.len()];
                    self.filter.insert_unique_batch(&hashes, &mut is_new).unwrap();
                    for (&hash, is_new) in hashes.iter().zip(is_new) {
                        let was_in = self.twin.count(self.twin.universe.fingerprint(hash)) > 0;
                        assert_eq!(is_new, !was_in);
                        if is_new {
                            self.twin.apply(hash, 1);
                        }
                    }
                }
                _ => {
                    hashes.iter().for_each(|&hash| self.twin.apply(hash, 1));
                    self.filter.insert_batch(&hashes).unwrap();
                }
            }
        }
    }

    fn check(&mut self, keys: u64) {
        let hashes: Vec<KeyHash> = (0..keys + 1000).map(hash).collect();
        let universe = self.twin.universe;
        let expected: Vec<u64> =
            hashes.iter().map(|&hash| self.twin.count(universe.fingerprint(hash))).collect();
        let mut counts = vec![0; hashes.len()];
        self.filter.count_batch(&hashes, &mut counts).unwrap();
        check_same(&counts, &expected);
        let one = self.random(keys);
        assert_eq!(self.filter.count(hash(one)).unwrap(), expected[one as usize]);
        let snapshot = self.filter.snapshot().unwrap();
        assert_eq!(items(&mut snapshot.scan().unwrap()), self.twin.all());
        let other =
            Snapshot::open(&Env::on(self.disk.clone()), Path::new(FOLDER), Access::Cached).unwrap();
        other.count_batch(&hashes, &mut counts).unwrap();
        check_same(&counts, &expected);
        // With the thinnest indexes and the smallest reads.
        let shares = SnapshotShares { indexes: 0, logs: 1 << 20, scan: MergeShare(0) };
        let folder = Path::new(FOLDER);
        let thin = Snapshot::open_with(&Env::on(self.disk.clone()), folder, Access::Cached, shares)
            .unwrap();
        thin.count_batch(&hashes, &mut counts).unwrap();
        check_same(&counts, &expected);
        assert_eq!(items(&mut thin.scan().unwrap()), self.twin.all());
        let report =
            verify(&Env::on(self.disk.clone()), Path::new(FOLDER), &Watch::default()).unwrap();
        assert!(report.is_sound(), "{:?}", report.damage);
    }

    fn reopen(self, settings: CascadeSettings) -> Pair {
        let Pair { disk, filter, twin, random } = self;
        filter.close().unwrap();
        let filter = CascadeFilter::open(Path::new(FOLDER), settings.on(disk.clone())).unwrap();
        Pair { disk, filter, twin, random }
    }

    fn names(&self) -> Vec<String> {
        self.disk.list(Path::new(FOLDER)).unwrap()
    }
}

fn check(mode: Mode, universe: Universe, threads: usize, log: bool) {
    let mut pair = Pair::new(mode, universe, settings(threads, log));
    let keys = 20_000;
    pair.check(keys);
    for _ in 0..6 {
        pair.apply(40, keys);
        pair.check(keys);
        pair.apply(20, keys);
        pair = pair.reopen(settings(threads, log));
    }
    pair.filter.merge().unwrap();
    assert_eq!(pair.filter.stats().upper_runs, 0);
    assert_eq!(pair.filter.stats().fingerprints, pair.twin.all().len() as u64);
    assert!(pair.filter.stats().shards > 1);
    pair.check(keys);
    let stats = pair.filter.stats();
    let logs = pair.names().iter().filter(|name| name.starts_with("wal")).count();
    assert!(logs <= 1);
    assert_eq!(pair.names().len() as u64, 1 + stats.upper_runs + stats.shards + logs as u64);
}

fn universe() -> Universe {
    Universe::with_size((1 << 44) + 12_345).unwrap()
}

#[test]
fn a_set_agrees_with_a_map() {
    check(Mode::Set, universe(), 0, false);
    check(Mode::Set, Universe::EXACT, 0, true);
    for _ in 0..5 {
        check(Mode::Set, universe(), 3, false);
    }
    check(Mode::Set, universe(), 3, true);
    check(Mode::Set, universe(), 8, false);
    check(Mode::Set, Universe::EXACT, 8, true);
}

#[test]
fn a_multiset_agrees_with_a_map() {
    check(Mode::Multiset, universe(), 0, false);
    check(Mode::Multiset, Universe::EXACT, 3, true);
    check(Mode::Multiset, universe(), 8, false);
}

#[test]
fn epochs_expire_one_by_one() {
    for mode in [Mode::Set, Mode::Multiset] {
        let keys = 5000;
        let mut pair = Pair::new(mode, universe(), settings(0, false));
        for epoch in 1..6 {
            pair.apply(20, keys);
            pair.check(keys);
            assert_eq!(pair.filter.advance_epoch().unwrap(), epoch);
            pair.twin.epochs.insert(0, (epoch, BTreeMap::new()));
            pair.apply(20, keys);
            pair.filter.expire_before(epoch.saturating_sub(1)).unwrap();
            pair.twin.epochs.retain(|(number, _)| number + 1 >= epoch);
            pair.check(keys);
            pair = pair.reopen(settings(0, false));
        }
    }
}

#[test]
fn what_is_there_is_not_made_again_and_what_is_not_is_not_opened() {
    let pair = Pair::new(Mode::Set, universe(), settings(0, false));
    let folder = Path::new(FOLDER);
    let create = |disk: &Arc<dyn Disk>| {
        let options = CascadeOptions::exact(Seed(1), 7);
        CascadeFilter::create(folder, &options, settings(0, false).on(disk.clone()))
    };
    let busy = create(&pair.disk).unwrap_err();
    assert!(matches!(busy.kind(), ErrorKind::Busy), "{busy}");
    let busy = CascadeFilter::open(folder, settings(0, false).on(pair.disk.clone())).unwrap_err();
    assert!(matches!(busy.kind(), ErrorKind::Busy), "{busy}");
    let Pair { disk, filter, .. } = pair;
    filter.close().unwrap();
    let exists = create(&disk).unwrap_err();
    assert!(matches!(exists.kind(), ErrorKind::Exists), "{exists}");
    let absent = CascadeFilter::open(Path::new("other"), settings(0, false).on(disk)).unwrap_err();
    assert!(matches!(absent.kind(), ErrorKind::Absent), "{absent}");
}

/// Changes that cancel each other out leave nothing in the memtable, but they have sequence
/// numbers.
#[test]
fn changes_that_cancel_each_other_out_are_durable() {
    for log in [false, true] {
        let mut pair = Pair::new(Mode::Multiset, universe(), settings(0, log));
        for round in 1..4 {
            pair.filter.insert(hash(1)).unwrap();
            pair.filter.remove(hash(1)).unwrap();
            pair.filter.sync().unwrap();
            assert_eq!(pair.filter.durable_seq(), 2 * round);
            // The filter is not closed, so its log is replayed.
            let Pair { disk, filter, twin, random } = pair;
            drop(filter);
            let open = || CascadeFilter::open(Path::new(FOLDER), settings(0, log).on(disk.clone()));
            assert_eq!(open().unwrap().seq(), 2 * round);
            pair = Pair { filter: open().unwrap(), disk, twin, random };
        }
        pair.filter.insert(hash(2)).unwrap();
        pair.filter.flush().unwrap();
        assert_eq!(pair.filter.durable_seq(), 7);
        assert_eq!(pair.filter.count(hash(2)).unwrap(), 1);
    }
}

/// All combinations of changes of a key in three runs, with and without removals, and with any of
/// the runs in memory.
#[test]
fn the_newest_run_with_a_key_decides() {
    for (with_removals, in_memory) in (0..64).map(|i| (i % 8, i / 8)) {
        let mut pair = Pair::new(Mode::Set, universe(), settings(0, false));
        for run in 0..3 {
            for key in 0..27 {
                match key / 3_u64.pow(run) % 3 {
                    0 => {
                        pair.filter.insert(hash(key)).unwrap();
                        pair.twin.apply(hash(key), 1);
                    }
                    1 if with_removals >> run & 1 == 1 => {
                        pair.filter.remove(hash(key)).unwrap();
                        pair.twin.apply(hash(key), -1);
                    }
                    _ => {}
                }
            }
            pair.filter.flush().unwrap();
        }
        let view = pair.filter.view();
        assert_eq!(view.runs().count(), 3);
        for (i, run) in view.runs().enumerate() {
            if in_memory >> i & 1 == 0 {
                run.set_resident(None);
            }
        }
        pair.check(27);
    }
}

/// Issue 10: a filter's memory stays within its share for all inputs.
#[test]
fn kept_data_stay_within_the_memory_budget() {
    for threads in [0, 2] {
        let settings = settings(threads, false);
        let memory_max = settings.memory_bytes as u64 * 3 / 4;
        let mut pair = Pair::new(Mode::Set, Universe::EXACT, settings);
        for _ in 0..200 {
            pair.apply(3, 1 << 40);
            let bytes = pair.filter.stats().memory_bytes;
            assert!(bytes <= memory_max, "{bytes} of {memory_max}");
        }
    }
}

/// A snapshot packs the changes of logs while it reads them, and refuses changes that do not fit.
#[test]
fn a_snapshot_reads_logs_within_its_memory_budget() {
    for mode in [Mode::Set, Mode::Multiset] {
        let settings = CascadeSettings { memory_bytes: 64 << 20, ..settings(0, true) };
        let mut pair = Pair::new(mode, universe(), settings);
        let hashes: Vec<KeyHash> = (0..3000).map(hash).collect();
        let mut expected = vec![0; hashes.len()];
        pair.filter.insert_batch(&hashes).unwrap();
        pair.filter.flush().unwrap();
        pair.filter.insert_batch(&hashes[1000..]).unwrap();
        pair.filter.remove_batch(&hashes[2000..]).unwrap();
        pair.filter.sync().unwrap();
        let count = u64::from(mode == Mode::Multiset);
        for (i, expected) in expected.iter_mut().enumerate() {
            *expected = if i < 1000 {
                1
            } else if i < 2000 {
                1 + count
            } else {
                count
            };
        }
        let open = |logs| {
            let shares = SnapshotShares { indexes: 0, logs, scan: MergeShare(0) };
            Snapshot::open_with(
                &Env::on(pair.disk.clone()),
                Path::new(FOLDER),
                Access::Cached,
                shares,
            )
        };
        let snapshot = open(1 << 20).unwrap();
        let mut counts = vec![0; hashes.len()];
        snapshot.count_batch(&hashes, &mut counts).unwrap();
        assert_eq!(counts, expected);
        let in_filter = expected.iter().filter(|&&count| count > 0).count();
        assert_eq!(items(&mut snapshot.scan().unwrap()).len(), in_filter);
    }
}

#[test]
fn filters_and_snapshots_can_be_shared_between_threads() {
    fn check<T: Send + Sync>() {}
    check::<CascadeFilter>();
    check::<Snapshot>();
}

/// Issue 12: removals counted as keys.
#[test]
fn statistics_count_tombstones_apart_and_bound_the_number_of_keys() {
    for mode in [Mode::Set, Mode::Multiset] {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
        let folder = Path::new(FOLDER);
        let options =
            CascadeOptions { mode, ..CascadeOptions::new(Seed(1), 7, 500, 0.01).unwrap() };
        let mut filter =
            CascadeFilter::create(folder, &options, settings(0, false).on(disk.clone())).unwrap();
        let hashes: Vec<KeyHash> = (0..1000).map(hash).collect();
        filter.insert_batch(&hashes).unwrap();
        filter.flush().unwrap();
        filter.remove_batch(&hashes[..400]).unwrap();
        filter.flush().unwrap();
        let stats = filter.stats();
        let (all, removed) = (stats.fingerprints, stats.tombstones);
        assert!((1380..=1400).contains(&all) && (390..=400).contains(&removed), "{stats:?}");
        assert_eq!((stats.keys_max(), stats.is_merged()), (all - removed, false));
        let figures = verify(&Env::on(disk), folder, &Watch::default()).unwrap().figures;
        assert_eq!((figures.fingerprints, figures.tombstones), (all, removed));
        filter.merge().unwrap();
        let stats = filter.stats();
        assert!(stats.is_merged() && stats.tombstones == 0);
        assert!((580..=600).contains(&stats.keys_max()), "{stats:?}");
        // 600 keys in a filter for 500: the rate is above the promised one by the same factor.
        assert!((stats.fill() - stats.keys_max() as f64 / 500.0).abs() < 1e-9);
        assert!((stats.false_positive_rate_promised() - 0.01).abs() < 1e-6);
        assert!((stats.false_positive_rate() / 0.01 - stats.fill()).abs() < 1e-3);
    }
}

#[test]
fn removals_of_absent_keys_have_no_effect_if_presence_is_looked_up() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let options = CascadeOptions { mode: Mode::Multiset, ..CascadeOptions::exact(Seed(1), 7) };
    let folder = Path::new(FOLDER);
    let mut filter = CascadeFilter::create(folder, &options, settings(0, false).on(disk)).unwrap();
    filter.insert_batch(&[hash(1), hash(2), hash(2)]).unwrap();
    let mut removed = [true; 6];
    let batch = [3, 2, 1, 2, 1, 2].map(hash);
    filter.remove_present_batch(&batch, &mut removed).unwrap();
    assert_eq!(removed, [false, true, true, true, false, false]);
    filter.insert_batch(&[1, 2, 3].map(hash)).unwrap();
    let mut counts = [0; 3];
    filter.count_batch(&[1, 2, 3].map(hash), &mut counts).unwrap();
    assert_eq!(counts, [1, 1, 1]);
}

/// Issue 13: benchmarks stopped their clocks while merges were running.
#[test]
fn no_merge_is_due_after_waiting_for_merges() {
    for threads in [0, 1, 5] {
        let settings = settings(threads, false);
        let mut pair = Pair::new(Mode::Set, Universe::EXACT, settings);
        for _ in 0..4 {
            pair.apply(30, 20_000);
            pair.filter.wait_for_merges().unwrap();
            assert_eq!(pair.filter.durable_seq(), pair.filter.seq());
            let runs = |filter: &CascadeFilter| {
                filter.view().runs().map(|run| run.number()).collect::<Vec<u64>>()
            };
            let before = runs(&pair.filter);
            // This would start merges that are due.
            pair.filter.wait_for_merges().unwrap();
            assert_eq!(runs(&pair.filter), before, "{threads} threads");
        }
        pair.check(20_000);
    }
}

/// Issue 12: keys became durable, and visible to snapshots, only at a flush that waits.
#[test]
fn a_flush_in_the_background_makes_all_changes_so_far_durable() {
    for threads in [0, 3] {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
        let (folder, options) = (Path::new(FOLDER), CascadeOptions::exact(Seed(1), 7));
        let settings = settings(threads, false).on(disk.clone());
        let mut filter = CascadeFilter::create(folder, &options, settings).unwrap();
        for step in 1..=30 {
            let keys: Vec<KeyHash> = (0..step * 40).map(hash).collect();
            filter.insert_batch(&keys).unwrap();
            filter.start_flush().unwrap();
            let seq = filter.seq();
            // Further changes do not delay it.
            filter.insert(hash(1 << 40)).unwrap();
            while filter.durable_seq() < seq {
                std::thread::yield_now();
            }
            let snapshot = Snapshot::open(&Env::on(disk.clone()), folder, Access::Cached).unwrap();
            let mut found = vec![false; keys.len()];
            snapshot.contains_batch(&keys, &mut found).unwrap();
            assert!(found.iter().all(|found| *found), "{threads} threads, step {step}");
        }
    }
}
