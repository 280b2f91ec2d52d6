//! Maps against sorted maps. Groups, buffers and segments are tiny, so that flushes, merges and
//! splits happen within a hundred operations.

use super::{options::Shape, *};
use crate::{
    env::Env,
    error::{ErrorKind, Result},
    io::{Access, CountingDisk, Disk, FaultPlan, FaultyDisk, MemoryDisk},
    key::{KeyHash, Seed},
    run::{Run, VecRun},
    work::{Executor, Inline, Threads, Watch, testing::Late},
};
use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex},
};

pub(super) const SEED: Seed = Seed(11);

pub(super) fn folder() -> &'static Path {
    Path::new("map")
}

/// Returns options with tiny sizes.
pub(super) fn tiny(env: Env) -> MapOptions {
    MapOptions {
        shape: Shape {
            span_blocks_max: 4,
            flush_blocks: 2,
            packets_max: 4,
            packet_blocks_min: 2,
            first_depth: 0,
            buffer_bytes: 24 << 10,
            filter_bytes: 2000,
        },
        wal_bytes: 64 << 10,
        ..MapOptions::new().env(env).seed(SEED)
    }
}

fn on(disk: &MemoryDisk, executor: Arc<dyn Executor>) -> MapOptions {
    tiny(Env { disk: Arc::new(disk.clone()), executor, ..Env::simulated(1) })
}

/// A model of a map.
pub(super) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Random numbers that follow from a seed.
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new(seed: u64) -> Numbers {
        Numbers(seed << 32)
    }

    pub(super) fn below(&mut self, bound: u32) -> u32 {
        self.0 += 1;
        (KeyHash::of(&self.0.to_le_bytes(), Seed(9)).high() % u64::from(bound)) as u32
    }

    /// Returns one of `keys` keys.
    pub(super) fn key(&mut self, keys: u32) -> Vec<u8> {
        let number = self.below(keys);
        let mut key = number.to_le_bytes().to_vec();
        // Keys of different sizes, some of them large.
        key.resize(4 + if number.is_multiple_of(20) { 300 } else { (number % 9) as usize }, 7);
        key
    }

    pub(super) fn value(&mut self) -> Vec<u8> {
        let size = match self.below(40) {
            // Large: with blocks of its own.
            0 => 1025 + self.below(9000),
            1..5 => 900,
            _ => self.below(60),
        };
        let byte = self.below(256) as u8;
        vec![byte; size as usize]
    }
}

/// Checks that a map has the entries of a model, by all kinds of reads.
#[track_caller]
pub(super) fn check(map: &Map, model: &Model, keys: u32, moment: &str) {
    let all: Vec<Vec<u8>> = (0..keys).map(|i| Numbers(u64::from(i)).key(keys)).collect();
    let all: Vec<&Vec<u8>> = all.iter().chain(model.keys()).collect();
    let many = map.get_many(&all).unwrap();
    for (key, value) in all.iter().zip(&many) {
        assert_eq!(value.as_ref(), model.get(*key), "{moment}: get_many {key:?}");
    }
    for key in all.iter().step_by(7) {
        assert_eq!(map.get(key).unwrap().as_ref(), model.get(*key), "{moment}: get {key:?}");
    }
    let snapshot = map.snapshot();
    assert!(scanned(&snapshot) == *model, "{moment}: scan");
    for key in all.iter().step_by(11) {
        assert_eq!(snapshot.get(key).unwrap().as_ref(), model.get(*key), "{moment}: {key:?}");
    }
    let report = map.verify(&Watch::default()).unwrap();
    assert!(report.is_sound(), "{moment}: {}", report.damage[0]);
    let stats = map.stat();
    assert!(stats.entries_max >= model.len() as u64, "{moment}");
    check_ranges(map, moment);
}

/// Checks that the key ranges of the groups hold every hash once.
#[track_caller]
fn check_ranges(map: &Map, moment: &str) {
    let mut end = Some(0);
    for range in map.core().directory.map(|group| group.prefix) {
        assert_eq!(Some(range.start), end, "{moment}");
        end = range.end();
    }
    assert_eq!(end, None, "{moment}");
}

/// Returns the entries of a scan, which must ascend and have the bounds of its summary.
#[track_caller]
fn scanned(snapshot: &Snapshot) -> Model {
    let mut scan = snapshot.scan();
    let summary = scan.summary();
    let mut last = None;
    let mut found = Model::new();
    let mut bytes = 0;
    while scan.advance().unwrap() {
        let entry = scan.entry();
        let (key, value) = (entry.key.to_vec(), entry.value.unwrap().to_vec());
        assert_eq!(entry.hash, KeyHash::of(&key, SEED));
        assert!(summary.keys.min <= key.len() as u64 && key.len() as u64 <= summary.keys.max);
        assert!(summary.values.min <= value.len() as u64);
        assert!(value.len() as u64 <= summary.values.max);
        bytes += (key.len() + value.len()) as u64;
        assert!(last < Some((entry.hash, key.clone())), "entries ascend");
        last = Some((entry.hash, key.clone()));
        found.insert(key, value);
    }
    assert!(bytes <= summary.bytes_max && found.len() as u64 <= summary.entries_max);
    found
}

/// Applies random operations to a map and a model.
fn run_random(seed: u64, steps: u32, keys: u32, executor: &Arc<dyn Executor>) {
    let disk = MemoryDisk::default();
    let open = || Map::open_or_create_with(folder(), on(&disk, executor.clone())).unwrap();
    let mut map = open();
    let mut model = Model::new();
    let mut old: Option<(Snapshot, Model)> = None;
    let mut random = Numbers::new(seed);
    for step in 0..steps {
        let moment = format!("seed {seed}, step {step}");
        let shrinks = step / 250 % 3 == 2;
        match random.below(1000) {
            0..500 if !shrinks || random.below(10) == 0 => {
                let (key, value) = (random.key(keys), random.value());
                map.put(&key, &value).unwrap();
                model.insert(key, value);
            }
            0..650 => {
                let key = random.key(keys);
                map.delete(&key).unwrap();
                model.remove(&key);
            }
            650..750 => {
                let count = random.below(20);
                let pairs: Vec<_> =
                    (0..count).map(|_| (random.key(keys), random.value())).collect();
                map.put_many(pairs.iter().map(|(key, value)| (key, value))).unwrap();
                model.extend(pairs);
            }
            750..980 => {
                let key = random.key(keys);
                assert_eq!(map.get(&key).unwrap().as_ref(), model.get(&key), "{moment}");
            }
            980..985 => map.checkpoint().unwrap(),
            985..987 => map.compact().unwrap(),
            987..990 => {
                if let Some((snapshot, then)) = old.take() {
                    assert!(scanned(&snapshot) == then, "{moment}: an old snapshot");
                }
                old = Some((map.snapshot(), model.clone()));
            }
            990..995 => {
                old = None;
                if random.below(2) == 0 {
                    map.close().unwrap();
                } else {
                    drop(map);
                }
                map = open();
                check(&map, &model, keys, &moment);
            }
            _ => check(&map, &model, keys, &moment),
        }
    }
    assert!(map.background_error().is_none());
    check(&map, &model, keys, "at the end");
    drop(old);
    check_space(map, &model);
}

/// Checks that no block is lost: after a compaction, all blocks are in spans or free.
#[track_caller]
fn check_space(map: Map, model: &Model) {
    map.compact().unwrap();
    let stats = map.stat();
    assert_eq!((stats.packets, stats.buffered_entries, stats.filter_bytes), (0, 0, 0));
    assert_eq!(stats.buffered_bytes, 0);
    assert_eq!(stats.entries_max, model.len() as u64);
    let blocks = stats.file_bytes / 4096;
    let used = stats.span_blocks + stats.large_blocks;
    assert_eq!(used + stats.free_bytes / 4096 + 1, blocks, "{stats:?}");
    let large = model.values().filter(|value| value.len() > 1024).count();
    assert_eq!(stats.large_values, large as u64);
    map.close().unwrap();
}

#[test]
fn a_map_agrees_with_a_sorted_map() {
    let inline: Arc<dyn Executor> = Arc::new(Inline);
    for seed in 0..12 {
        run_random(seed, 1500, 400, &inline);
    }
    run_random(100, 6000, 4000, &inline);
}

#[test]
fn a_map_agrees_with_a_sorted_map_also_with_late_background_jobs() {
    for seed in 0..3 {
        let late: Arc<dyn Executor> = Arc::new(Late::new(2, Seed(seed)));
        run_random(200 + seed, 2000, 600, &late);
    }
}

#[test]
fn flushes_merges_splits_and_checkpoints_happen() {
    let map = Map::create(folder(), tiny(Env::simulated(1))).unwrap();
    let mut random = Numbers::new(5);
    for _ in 0..1500 {
        map.put(random.key(1000), random.value()).unwrap();
    }
    let stats = map.stat();
    assert!(stats.groups > 8 && stats.packets > 8 && stats.span_blocks > 16, "{stats:?}");
    assert!(stats.merges > 10 && stats.flushes > 10 && stats.checkpoints > 1, "{stats:?}");
    assert!(stats.filter_bytes <= 2500 && stats.buffered_bytes <= 24 << 10, "{stats:?}");
}

/// Groups shrink with the entries: some of them while entries are deleted, all by a compaction.
#[test]
fn groups_are_in_proportion_to_the_entries_after_deletions() {
    let disk = MemoryDisk::default();
    let map = Map::create(folder(), on(&disk, Arc::new(Inline))).unwrap();
    let key = |i: u32| i.to_le_bytes();
    map.put_many((0..20_000).map(|i| (key(i), [7; 8]))).unwrap();
    map.compact().unwrap();
    let (full, space) = (map.stat(), map.space().unwrap());
    assert!(full.groups > 15, "{full:?}");
    let old = map.snapshot();
    (0..20_000).filter(|i| i % 100 > 0).for_each(|i| _ = map.delete(key(i)).unwrap());
    let deleted = map.stat().groups;
    assert!(deleted < full.groups / 2, "{deleted} of {}", full.groups);
    map.compact().unwrap();
    let stats = map.stat();
    assert!(stats.groups <= 2 && stats.entries_max == 200, "{stats:?}");
    assert!(stats.address_bytes < full.address_bytes / 20, "{stats:?}");
    assert!(map.space().unwrap().catalog_bytes <= space.catalog_bytes);
    assert_eq!(scanned(&old).len(), 20_000);
    drop(old);
    let model: Model = (0..20_000).step_by(100).map(|i| (key(i).to_vec(), vec![7; 8])).collect();
    check(&map, &model, 10, "after deletions");
    map.close().unwrap();
    let map = Map::open_with(folder(), on(&disk, Arc::new(Inline))).unwrap();
    check(&map, &model, 10, "opened again");
    // It grows again.
    map.put_many((0..20_000).map(|i| (key(i), [8; 8]))).unwrap();
    map.compact().unwrap();
    assert_eq!(map.stat().groups, full.groups);
    check_space(map, &(0..20_000).map(|i| (key(i).to_vec(), vec![8; 8])).collect());
}

/// A new map has some groups already. They stay, so that little data are not merged as a whole.
#[test]
fn the_first_groups_are_not_joined() {
    let options = tiny(Env::simulated(1));
    let shape = Shape { first_depth: 3, ..options.shape };
    let map = Map::create(folder(), MapOptions { shape, ..options }).unwrap();
    map.put("key", "value").unwrap();
    map.compact().unwrap();
    assert_eq!(map.stat().groups, 8);
    check_ranges(&map, "after a compaction");
}

/// A snapshot that is taken while groups are joined and split has each key once.
#[test]
fn snapshots_beside_joins_and_splits_are_whole() {
    let executor: Arc<dyn Executor> = Arc::new(Threads::new(2));
    let map = Map::create(folder(), tiny(Env { executor, ..Env::simulated(1) })).unwrap();
    let key = |i: u32| i.to_le_bytes();
    map.put_many((0..100).map(|i| (key(i), [1; 9]))).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..6_u32 {
                let others = || (0..3000).map(|i| key(1000 + i));
                map.put_many(others().map(|key| (key, [round as u8; 30]))).unwrap();
                map.compact().unwrap();
                others().for_each(|key| _ = map.delete(key).unwrap());
                map.compact().unwrap();
            }
        });
        scope.spawn(|| {
            for _ in 0..150 {
                let snapshot = map.snapshot();
                let found = scanned(&snapshot);
                let kept = found.values().filter(|value| **value == [1; 9]);
                assert_eq!(kept.count(), 100);
            }
        });
    });
    assert!(map.background_error().is_none());
    check_ranges(&map, "at the end");
}

/// Lookups alone make a group with packets merge, in the background.
#[test]
fn lookups_in_packets_pay_for_a_merge() {
    let map = Map::create(folder(), tiny(Env::simulated(1))).unwrap();
    let mut random = Numbers::new(6);
    let keys: Vec<_> = (0..400).map(|_| random.key(1000)).collect();
    map.put_many(keys.iter().map(|key| (key, b"value"))).unwrap();
    map.compact().unwrap();
    map.put_many(keys.iter().take(10).map(|key| (key, b"newer"))).unwrap();
    map.checkpoint().unwrap();
    let before = map.stat();
    assert!(before.packets > 0);
    let mut lookups = 0;
    while map.stat().packets > 0 {
        lookups += 1;
        map.get(&keys[lookups % keys.len()]).unwrap();
        assert!(lookups < 50_000);
    }
    assert!(lookups > 20, "{lookups}");
    assert_eq!(map.get(&keys[3]).unwrap().as_deref(), Some(&b"newer"[..]));
}

/// Groups that rarely change must not keep the blocks that they shared with busy groups.
#[test]
fn blocks_with_few_live_packets_are_freed() {
    let options = tiny(Env::simulated(1));
    let shape = Shape { packets_max: 1000, filter_bytes: 1 << 20, ..options.shape };
    let map = Map::create(folder(), MapOptions { shape, ..options }).unwrap();
    let mut random = Numbers::new(12);
    let keys: Vec<_> = (0..1500).map(|_| random.key(10_000)).collect();
    map.put_many(keys.iter().map(|key| (key, [1; 60]))).unwrap();
    map.compact().unwrap();
    let is_busy = |key: &&Vec<u8>| KeyHash::of(key, SEED).high() < u64::MAX / 4;
    let (busy, quiet): (Vec<_>, Vec<_>) = keys.iter().partition(is_busy);
    let mut blocks_max = 0;
    for round in 0..40_u8 {
        for _ in 0..60 {
            map.put(busy[random.below(busy.len() as u32) as usize], [round; 60]).unwrap();
        }
        map.put(quiet[usize::from(round) * 20], [round; 60]).unwrap();
        map.checkpoint().unwrap();
        blocks_max = blocks_max.max(map.stat().packet_blocks);
    }
    let stats = map.stat();
    let live = stats.packet_entries * 70;
    assert!(blocks_max * 4096 <= 2 * live + 12 * 4096, "{blocks_max} {stats:?}");
    assert!(map.stat().packet_blocks < 30);
}

#[test]
fn a_lookup_reads_one_block() {
    let disk = CountingDisk::on(Arc::new(MemoryDisk::default()));
    let env = Env { disk: Arc::new(disk.clone()), ..Env::simulated(1) };
    let map = Map::create(folder(), tiny(env)).unwrap();
    let pairs: Vec<_> = (0..5000_u32).map(|i| (i.to_le_bytes(), [9; 12])).collect();
    map.put_many(pairs).unwrap();
    map.checkpoint().unwrap();
    disk.take();
    for i in 0..10_000_u32 {
        assert_eq!(map.get(i.to_le_bytes()).unwrap().is_some(), i < 5000);
    }
    let reads = disk.take().reads;
    // False positives of Bloom filters cost a few reads more.
    assert!((9_900..10_400).contains(&reads), "{reads}");
}

#[test]
fn long_keys_and_values_are_refused_and_the_longest_are_not() {
    let map = Map::create(folder(), tiny(Env::simulated(1))).unwrap();
    let is_limit = |result: Result<u64>| matches!(result.unwrap_err().kind(), ErrorKind::Limit { limit, got, .. } if *got == limit + 1);
    let longer = vec![1; VALUE_BYTES_MAX + 1];
    assert!(is_limit(map.put([1; KEY_BYTES_MAX + 1], "")));
    assert!(is_limit(map.put("", &longer)));
    assert!(is_limit(map.delete([1; KEY_BYTES_MAX + 1])));
    assert!(is_limit(map.put_many([("", &longer)])));
    assert_eq!((map.seq(), map.stat().blocks_written), (0, 0));
    for byte in 0..40 {
        map.put([byte; KEY_BYTES_MAX], [byte; pointer::INLINE_BYTES_MAX]).unwrap();
    }
    map.put("large", &longer[1..]).unwrap();
    map.put("", "").unwrap();
    map.compact().unwrap();
    assert_eq!(map.get([7; KEY_BYTES_MAX]).unwrap(), Some(vec![7; pointer::INLINE_BYTES_MAX]));
    assert!(map.get("large").unwrap().as_deref() == Some(&longer[1..]));
    assert_eq!(map.get("").unwrap(), Some(Vec::new()));
}

/// A backup is a map with the entries of its moment, whatever changes later.
#[test]
fn a_backup_is_the_map_at_one_moment() {
    let attributes = vec![("name".to_owned(), b"value".to_vec())];
    let env = Env::simulated(1);
    let options = tiny(env.clone());
    let map = Map::create(folder(), options.clone().attributes(attributes)).unwrap();
    let mut random = Numbers::new(21);
    let mut model = Model::new();
    for i in 0..1200 {
        let (key, value) = (random.key(400), random.value());
        if i % 5 == 0 {
            map.delete(&key).unwrap();
            model.remove(&key);
        } else {
            map.put(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
    // Entries change while they are copied.
    let writer = map.clone();
    let watch = Watch::new(move |_| writer.put("later", [5; 3000]).map(drop));
    let seq = map.seq();
    map.backup("copy", &watch).unwrap();
    assert!(map.seq() > seq);
    assert!(matches!(map.backup("copy", &watch).unwrap_err().kind(), ErrorKind::Exists));
    assert!(map.backup(folder(), &watch).unwrap_err().is_busy());
    drop((map, watch));
    let copy = Map::open_with("copy", options).unwrap();
    assert_eq!((copy.seed(), copy.attribute("name")), (SEED, Some(&b"value"[..])));
    check(&copy, &model, 400, "the copy");
    check_space(copy, &model);
}

#[test]
fn a_map_is_open_once_and_made_once() {
    let options = tiny(Env::simulated(1));
    let attributes = vec![("name".to_owned(), b"value".to_vec())];
    let map = Map::create(folder(), options.clone().attributes(attributes)).unwrap();
    assert!(Map::open_with(folder(), options.clone()).unwrap_err().is_busy());
    let snapshot = map.snapshot();
    drop(map);
    assert!(Map::open_with(folder(), options.clone()).unwrap_err().is_busy());
    drop(snapshot);
    let map = Map::open_with(folder(), options.clone()).unwrap();
    map.checkpoint().unwrap();
    drop(map);
    let map = Map::open_with(folder(), options.clone()).unwrap();
    assert_eq!((map.attribute("name"), map.attribute("x")), (Some(&b"value"[..]), None));
    drop(map);
    let error = Map::create(folder(), options.clone()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Exists), "{error}");
    let error = Map::open_with(folder(), options.clone().seed(Seed(1))).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WrongSeed { .. }), "{error}");
    assert!(Map::open_with("nothing", options.clone()).unwrap_err().is_absent());
    let error = Map::create("small", options.memory(1)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Argument { .. }), "{error}");
}

#[test]
fn a_run_of_another_seed_is_imported() {
    let map = Map::create(folder(), tiny(Env::simulated(1))).unwrap();
    let mut random = Numbers::new(7);
    let entries: Vec<_> = (0..900).map(|_| (random.key(500), Some(random.value()))).collect();
    let model: Model =
        entries.iter().map(|(key, value)| (key.clone(), value.clone().unwrap())).collect();
    map.put("gone", "1").unwrap();
    let tombstone = (b"gone".to_vec(), None);
    let mut run = VecRun::new(entries.into_iter().chain([tombstone]).collect(), Seed(3));
    map.import(&mut run, &Watch::default()).unwrap();
    assert_eq!(map.durable_seq(), map.seq());
    check(&map, &model, 500, "imported");
}

#[test]
fn changes_are_durable_as_the_options_say() {
    let make = |durability| {
        let options = tiny(Env::simulated(1)).durability(durability);
        Map::create(folder(), options).unwrap()
    };
    let map = make(Durability::Buffered);
    let seq = map.put("a", "1").unwrap();
    assert_eq!((seq, map.durable_seq()), (1, 0));
    map.wait_durable(seq).unwrap();
    assert_eq!(map.durable_seq(), 1);
    assert!(map.wait_durable(2).is_err());
    for durability in [Durability::Immediate, Durability::Group] {
        let map = make(durability);
        map.put("a", "1").unwrap();
        assert_eq!((map.durability(), map.durable_seq()), (durability, 1));
    }
}

#[test]
fn readers_and_writers_in_threads_see_whole_batches() {
    let executor: Arc<dyn Executor> = Arc::new(Threads::new(2));
    let env = Env { executor, ..Env::simulated(1) };
    let map = Map::create(folder(), tiny(env).durability(Durability::Group)).unwrap();
    let put = |round: u32| {
        let keys = (0..50_u8).map(|i| ([i], vec![round as u8; 50 + usize::from(i)]));
        map.put_many(keys).unwrap();
    };
    put(0);
    std::thread::scope(|scope| {
        scope.spawn(|| (1..100).for_each(put));
        scope.spawn(|| {
            let mut random = Numbers::new(8);
            for _ in 0..1500 {
                map.put(random.key(900), random.value()).unwrap();
            }
        });
        let read = || {
            let mut last = 0;
            for i in 0..60_u8 {
                let snapshot = map.snapshot();
                let first = snapshot.get([0]).unwrap().unwrap()[0];
                assert!(first >= last, "time goes on");
                last = first;
                let key = [i % 50];
                assert_eq!(snapshot.get(key).unwrap().unwrap()[0], first, "one batch");
                assert!(map.get(key).unwrap().unwrap()[0] >= first);
            }
        };
        scope.spawn(read);
        scope.spawn(read);
    });
    assert!(map.background_error().is_none());
    assert_eq!(map.get([7]).unwrap().unwrap(), vec![99; 57]);
    map.close().unwrap();
}

#[test]
fn a_transaction_conflicts_with_changes_of_what_it_has_read() {
    let map = Map::create(folder(), tiny(Env::simulated(1))).unwrap();
    map.put("a", "1").unwrap();
    let is_conflict = |result: Result<u64>| match result {
        Err(error) => matches!(error.kind(), ErrorKind::Conflict),
        Ok(_) => false,
    };
    let mut transaction = map.transaction();
    assert_eq!(transaction.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    transaction.put("b", "2").unwrap();
    assert_eq!(transaction.get("b").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(map.get("b").unwrap(), None);
    map.put("a", "3").unwrap();
    assert!(is_conflict(transaction.commit()));
    assert_eq!(map.get("b").unwrap(), None);

    // Keys that were only written do not conflict, and neither do changes before the read.
    let mut transaction = map.transaction();
    map.put("a", "4").unwrap();
    assert_eq!(transaction.get("a").unwrap().as_deref(), Some(&b"4"[..]));
    transaction.put("c", "5").unwrap();
    transaction.delete("a").unwrap();
    map.put("c", "6").unwrap();
    transaction.commit().unwrap();
    assert_eq!((map.get("a").unwrap(), map.get("c").unwrap()), (None, Some(b"5".to_vec())));

    // A key that was absent conflicts, too, and a transaction that only reads is checked.
    let mut transaction = map.transaction();
    assert_eq!(transaction.get("d").unwrap(), None);
    map.put("d", "7").unwrap();
    assert!(is_conflict(transaction.commit()));
}

/// Threads move amounts between accounts; the sum stays the same at every moment.
#[test]
fn transactions_in_threads_are_as_if_one_after_the_other() {
    const ACCOUNTS: u32 = 8;
    let executor: Arc<dyn Executor> = Arc::new(Threads::new(1));
    let env = Env { executor, ..Env::simulated(1) };
    let map = Map::create(folder(), tiny(env).durability(Durability::Group)).unwrap();
    map.put_many((0..ACCOUNTS).map(|i| (i.to_le_bytes(), 100_u64.to_le_bytes()))).unwrap();
    let read = |bytes: Option<Vec<u8>>| u64::from_le_bytes(bytes.unwrap().try_into().unwrap());
    let moved = Mutex::new(0);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (map, moved) = (&map, &moved);
            scope.spawn(move || {
                let mut random = Numbers::new(thread);
                for _ in 0..150 {
                    let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
                    let amount = u64::from(random.below(10));
                    let (from, to) = (from.to_le_bytes(), to.to_le_bytes());
                    map.transact(|changes| {
                        let rest = read(changes.get(from)?);
                        changes.put(from, (rest - amount.min(rest)).to_le_bytes())?;
                        let sum = read(changes.get(to)?) + amount.min(rest);
                        changes.put(to, sum.to_le_bytes())
                    })
                    .unwrap();
                    *moved.lock().unwrap() += 1;
                }
            });
        }
        for _ in 0..50 {
            let snapshot = map.snapshot();
            let sum: u64 =
                (0..ACCOUNTS).map(|i| read(snapshot.get(i.to_le_bytes()).unwrap())).sum();
            assert_eq!(sum, u64::from(ACCOUNTS) * 100);
        }
    });
    assert_eq!(*moved.lock().unwrap(), 450);
}

/// A flipped bit in any block is detected; other keys can still be read and changed.
#[test]
fn a_damaged_block_is_reported_and_does_not_stop_other_keys() {
    let disk = MemoryDisk::default();
    let map = Map::create(folder(), on(&disk, Arc::new(Inline))).unwrap();
    let mut random = Numbers::new(9);
    let pairs: Vec<_> = (0..1500).map(|_| (random.key(2000), random.value())).collect();
    map.put_many(pairs.iter().map(|(key, value)| (key, value))).unwrap();
    map.checkpoint().unwrap();
    let used = map.verify(&Watch::default()).unwrap().figures.blocks + map.stat().large_blocks;
    drop(map);
    let data = disk.open_to_write(&folder().join("map-data"), Access::Cached).unwrap();
    let (mut found, mut refused) = (0, 0);
    for block in 1..data.size().unwrap() / 4096 {
        let offset = block * 4096 + u64::from(random.below(4096));
        let mut byte = [0];
        data.read_at(offset, &mut byte).unwrap();
        data.write_at(offset, &[byte[0] ^ 4]).unwrap();
        let report = verify(&Env::on(Arc::new(disk.clone())), folder(), &Watch::default()).unwrap();
        if !report.is_sound() {
            found += 1;
            let place = report.damage[0].place().unwrap().offset.unwrap();
            assert_eq!(place / 4096, block);
            // Changes go to a copy.
            let copy = FaultyDisk::over(&disk, FaultPlan::default()).snapshot();
            let map = Map::open_with(folder(), on(&copy, Arc::new(Inline))).unwrap();
            refused += u64::from(check_damaged(&map, &pairs, &mut random) > 0);
        }
        data.write_at(offset, &byte).unwrap();
    }
    // Packets share blocks.
    assert!(found > 30 && found <= used, "{found} of {used}");
    // Some blocks have values that newer ones replace.
    assert!(refused > found / 2, "{refused} of {found}");
}

/// Reads and changes a map with a damaged block. Returns the number of keys that cannot be read.
#[track_caller]
fn check_damaged(map: &Map, pairs: &[(Vec<u8>, Vec<u8>)], random: &mut Numbers) -> usize {
    let model: Model = pairs.iter().cloned().collect();
    let mut refused = 0;
    for (key, value) in &model {
        match map.get(key) {
            Ok(found) => assert_eq!(found.as_ref(), Some(value)),
            Err(error) => {
                refused += 1;
                assert_eq!(error.class(), crate::error::ErrorClass::Damage, "{error}");
            }
        }
    }
    assert!(refused < model.len());
    for _ in 0..20 {
        let (key, value) = (random.key(400), random.value());
        map.put(&key, &value).unwrap();
        assert_eq!(map.get(&key).unwrap(), Some(value));
    }
    refused
}
