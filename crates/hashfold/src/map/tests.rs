//! Maps against sorted maps. Groups, buffers and segments are tiny, so that flushes, merges and
//! splits happen within a hundred operations.

use super::{options::Shape, *};
use crate::{
    env::Env,
    error::{ErrorKind, Result},
    io::{Access, CountingDisk, Disk, FaultPlan, FaultyDisk, MemoryDisk},
    key::{KeyHash, Seed},
    run::{Run, VecRun},
    work::{Clock, Executor, Inline, Job, ManualClock, Signal, Threads, Watch, testing::Late},
};
use std::{
    collections::BTreeMap,
    fmt::Display,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
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
            transaction_bytes: 6 << 10,
            packet_bytes: 12_000,
            spare_bytes: 16 << 10,
        },
        wal_bytes: 64 << 10,
        stripe_bytes: 7 * 4096,
        ..MapOptions::new().env(env).seed(SEED)
    }
}

pub(super) fn on(disk: &MemoryDisk, executor: Arc<dyn Executor>) -> MapOptions {
    tiny(Env { disk: Arc::new(disk.clone()), executor, ..Env::simulated(1) })
}

/// A model of a map.
pub(super) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A model of a map whose entries may expire.
#[derive(Clone, Default)]
pub(super) struct Timed(BTreeMap<Vec<u8>, Expiring>);

impl Timed {
    pub(super) fn apply(&mut self, change: Write<'_>) {
        let Write { key, value, expires_at } = change;
        match value.map(<[u8]>::to_vec) {
            Some(value) => _ = self.0.insert(key.to_vec(), Expiring { value, expires_at }),
            None => _ = self.0.remove(key),
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns all entries, also expired ones.
    pub(super) fn into_entries(self) -> impl Iterator<Item = (Vec<u8>, Expiring)> {
        self.0.into_iter()
    }

    pub(super) fn get(&self, key: &[u8], now: u64) -> Option<&Expiring> {
        self.0.get(key).filter(|found| found.expires_at.is_none_or(|time| now < time))
    }

    /// Returns the entries that have not expired.
    pub(super) fn at(&self, now: u64) -> Model {
        let live = self.0.keys().filter_map(|key| Some((key, self.get(key, now)?)));
        live.map(|(key, found)| (key.clone(), found.value.clone())).collect()
    }
}

/// Random numbers that follow from a seed.
pub(super) struct Numbers(pub(super) u64);

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

    /// Returns how long an entry lives, in milliseconds: often short, sometimes not at all.
    pub(super) fn expiry(&mut self) -> u64 {
        let longest = [1, 30, 300, 3000][self.below(4) as usize];
        self.below(longest).into()
    }

    /// Returns a change.
    pub(super) fn change(&mut self, keys: u32, now: u64) -> Written {
        let key = self.key(keys);
        let value = (self.below(4) > 0).then(|| self.value());
        let expires_at = (self.below(3) == 0).then(|| now + self.expiry());
        Written { key, value, expires_at }
    }
}

/// A change with its bytes.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) key: Vec<u8>,
    pub(super) value: Option<Vec<u8>>,
    pub(super) expires_at: Option<u64>,
}

impl Written {
    pub(super) fn as_write(&self) -> Write<'_> {
        let Written { key, value, expires_at } = self;
        Write { key, value: value.as_deref(), expires_at: *expires_at }
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
    check_pages(map, model, moment);
    let report = map.verify(&Watch::default()).unwrap();
    assert!(report.is_sound(), "{moment}: {}", report.damage[0]);
    let stats = map.stat();
    assert!(stats.entries_max >= model.len() as u64, "{moment}");
    assert!(map.entries().max >= model.len() as u64, "{moment}");
    assert_eq!(map.count().unwrap(), model.len() as u64, "{moment}");
    check_ranges(map, moment);
}

/// Checks that the key ranges of the groups hold every hash once.
#[track_caller]
pub(super) fn check_ranges(map: &Map, moment: impl Display) {
    let mut end = Some(0);
    for range in map.core().directory.map(|group| group.prefix) {
        assert_eq!(Some(range.start), end, "{moment}");
        end = range.end();
    }
    assert_eq!(end, None, "{moment}");
}

/// Checks that a map has the entries of a model at a time.
#[track_caller]
pub(super) fn check_timed(map: &Map, (model, now): (&Timed, u64), keys: u32, moment: &str) {
    check(map, &model.at(now), keys, moment);
    let keys: Vec<&Vec<u8>> = model.0.keys().collect();
    for (key, found) in keys.iter().zip(map.get_many_expiring(&keys).unwrap()) {
        assert_eq!(found.as_ref(), model.get(key, now), "{moment}: {key:?}");
    }
    // Expired entries may be there still.
    assert!(map.entries().min <= model.0.len() as u64, "{moment}");
}

/// Checks pages of entries, and a scan from a hash on.
#[track_caller]
fn check_pages(map: &Map, model: &Model, moment: &str) {
    let mut expected: Vec<_> = model.iter().collect();
    expected.sort_by_key(|(key, _)| KeyHash::of(key, SEED));
    let hash_at = |i: usize| {
        let hash = expected.get(i).map(|(key, _)| KeyHash::of(key, SEED));
        hash.unwrap_or(KeyHash::from_bits(u128::MAX))
    };
    let check_page = |at: usize, limit: usize| {
        let page = map.entries_from(hash_at(at), limit).unwrap();
        let found = page.iter().map(|(key, found)| (key, &found.value));
        let expected = expected[at..].iter().copied().take(limit);
        assert!(found.eq(expected), "{moment}: {limit} from {at} on");
    };
    let part = model.len() / 3;
    (0..=model.len()).step_by(part + 1).for_each(|at| check_page(at, part + 1));
    check_page(part, 3);
    check_page(model.len() - part, 1);
    check_page(0, 0);
    let mut scan = map.snapshot().scan_from(hash_at(part));
    for (key, value) in &expected[part..] {
        assert!(scan.advance().unwrap(), "{moment}");
        assert_eq!(
            (scan.entry().key, scan.entry().value),
            (&key[..], Some(&value[..])),
            "{moment}"
        );
    }
    assert!(!scan.advance().unwrap(), "{moment}");
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

/// Applies random operations to a map and a model. A step takes a millisecond.
fn run_random(seed: u64, steps: u32, keys: u32, executor: &Arc<dyn Executor>) {
    let disk = MemoryDisk::default();
    let clock = ManualClock::new(1);
    let options = on(&disk, executor.clone());
    let env = Env { clock: Arc::new(clock.clone()), ..options.env.clone() };
    let options = options.env(env);
    let open = || Map::open_or_create_with(folder(), options.clone()).unwrap();
    let now = || clock.now().as_millis() as u64;
    let mut map = open();
    let mut model = Timed::default();
    let mut old: Option<(Snapshot, Model)> = None;
    let mut random = Numbers::new(seed);
    for step in 0..steps {
        let moment = format!("seed {seed}, step {step}");
        let shrinks = step / 250 % 3 == 2;
        clock.advance(Duration::from_millis(1));
        match random.below(1000) {
            0..400 if !shrinks || random.below(10) == 0 => {
                let (key, value) = (random.key(keys), random.value());
                map.put(&key, &value).unwrap();
                model.apply(Write::put(&key, &value));
            }
            400..500 => {
                let (key, value) = (random.key(keys), random.value());
                let time = now() + random.expiry();
                map.put_expiring(&key, &value, time).unwrap();
                model.apply(Write { expires_at: Some(time), ..Write::put(&key, &value) });
            }
            0..650 => {
                let key = random.key(keys);
                map.delete(&key).unwrap();
                model.apply(Write::delete(&key));
            }
            650..700 => {
                let count = random.below(20);
                let pairs: Vec<_> =
                    (0..count).map(|_| (random.key(keys), random.value())).collect();
                map.put_many(pairs.iter().map(|(key, value)| (key, value))).unwrap();
                pairs.iter().for_each(|(key, value)| model.apply(Write::put(key, value)));
            }
            700..750 => {
                let changes: Vec<_> =
                    (0..random.below(20)).map(|_| random.change(keys, now())).collect();
                let changes: Vec<Write<'_>> = changes.iter().map(Written::as_write).collect();
                let seq = map.seq();
                assert_eq!(map.write(&changes).unwrap(), seq + changes.len() as u64);
                changes.into_iter().for_each(|change| model.apply(change));
            }
            750..980 => {
                let key = random.key(keys);
                let found = map.get_expiring(&key).unwrap();
                assert_eq!(found.as_ref(), model.get(&key, now()), "{moment}");
            }
            980..985 => map.checkpoint().unwrap(),
            985..987 => map.compact().unwrap(),
            987..990 => {
                if let Some((snapshot, then)) = old.take() {
                    assert!(scanned(&snapshot) == then, "{moment}: an old snapshot");
                }
                old = Some((map.snapshot(), model.at(now())));
            }
            990..995 => {
                old = None;
                if random.below(2) == 0 {
                    map.close().unwrap();
                } else {
                    drop(map);
                }
                map = open();
                check_timed(&map, (&model, now()), keys, &moment);
            }
            995..996 => {
                let change = random.change(keys, now());
                map.prepare_cleared(&[change.as_write()]).unwrap().apply().unwrap();
                model.clear();
                model.apply(change.as_write());
                check_timed(&map, (&model, now()), keys, &moment);
            }
            996..998 => {
                if random.below(2) == 0 {
                    map.clear().unwrap();
                    model.clear();
                }
                let count = random.below(400);
                let changes: Vec<_> = (0..count).map(|_| random.change(keys, 0)).collect();
                let entry = |change: &Written| (change.key.clone(), change.value.clone());
                let mut run = VecRun::new(changes.iter().map(entry).collect(), SEED);
                map.import(&mut run, &Watch::default()).unwrap();
                for change in &changes {
                    model.apply(Write { expires_at: None, ..change.as_write() });
                }
                check_timed(&map, (&model, now()), keys, &moment);
            }
            _ => check_timed(&map, (&model, now()), keys, &moment),
        }
    }
    assert!(map.background_error().is_none());
    check_timed(&map, (&model, now()), keys, "at the end");
    drop(old);
    check_space(map, &model.at(now()));
}

/// Checks that no block is lost: after a compaction, all blocks are in spans or free.
#[track_caller]
pub(super) fn check_space(map: Map, model: &Model) {
    map.compact().unwrap();
    let stats = map.stat();
    assert_eq!((stats.packets, stats.buffered_entries, stats.packet_bytes), (0, 0, 0));
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
    assert!(stats.packet_bytes <= 13_000 && stats.buffered_bytes <= 24 << 10, "{stats:?}");
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
    assert!(deleted < full.groups, "{deleted} of {}", full.groups);
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
    assert!(map.stat().groups > 15, "{:?}", map.stat());
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

/// Each snapshot ends the lists of all groups. They are flushed before lookups have many to search.
#[test]
fn many_snapshots_leave_few_lists() {
    let map = Map::create(folder(), tiny(Env::simulated(1))).unwrap();
    let snapshots: Vec<Snapshot> = (0..100_u8)
        .map(|i| {
            map.put(b"key", [i]).unwrap();
            map.snapshot()
        })
        .collect();
    for group in map.core().directory.all() {
        assert!(group.state().immutable.len() <= 9, "{}", group.state().immutable.len());
    }
    for (i, snapshot) in snapshots.iter().enumerate() {
        assert_eq!(snapshot.get(b"key").unwrap(), Some(vec![i as u8]));
    }
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
    let shape = Shape { packets_max: 1000, packet_bytes: 1 << 20, ..options.shape };
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
fn whether_a_key_is_present_needs_no_large_value() {
    let disk = CountingDisk::on(Arc::new(MemoryDisk::default()));
    let env = Env { disk: Arc::new(disk.clone()), ..Env::simulated(1) };
    let map = Map::create(folder(), tiny(env)).unwrap();
    (0..20_u8).for_each(|i| _ = map.put([i], vec![i; 1 << 20]).unwrap());
    (0..10_u8).for_each(|i| _ = map.delete([2 * i]).unwrap());
    for is_in_ram in [true, false] {
        disk.take();
        (0..30_u8).for_each(|i| assert_eq!(map.contains([i]).unwrap(), i < 20 && i % 2 == 1));
        let bytes = disk.take().read_bytes;
        assert!(bytes <= 30 * 4096, "in RAM: {is_in_ram}: {bytes} bytes were read");
        map.compact().unwrap();
    }
}

#[test]
fn large_values_are_read_one_by_one_until_the_visitor_stops() {
    const SIZE: usize = 1 << 20;
    let disk = CountingDisk::on(Arc::new(MemoryDisk::default()));
    let env = Env { disk: Arc::new(disk.clone()), ..Env::simulated(1) };
    let map = Map::create(folder(), tiny(env)).unwrap();
    (0..6_u8).for_each(|i| _ = map.put([i], vec![i; SIZE]).unwrap());
    (10..20_u8).for_each(|i| _ = map.put([i], [i]).unwrap());
    for is_in_ram in [true, false] {
        let keys: Vec<[u8; 1]> = (0..30).map(|i| [i % 25]).collect();
        let mut seen = [0; 30];
        map.visit_many(&keys, &mut |i, found| {
            seen[i] += 1;
            let expected = match keys[i][0] {
                large @ 0..6 => Some(vec![large; SIZE]),
                small @ 10..20 => Some(vec![small]),
                _ => None,
            };
            assert_eq!(found.map(|found| found.value), expected);
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, [1; 30], "in RAM: {is_in_ram}");
        disk.take();
        let mut bytes = 0;
        let stopped = map.visit_many(&keys, &mut |_, found| {
            bytes += found.map_or(0, |found| found.value.len());
            if bytes > 2 * SIZE { Err(ErrorKind::Stopped.into()) } else { Ok(()) }
        });
        assert!(matches!(stopped.unwrap_err().kind(), ErrorKind::Stopped));
        let read = disk.take().read_bytes;
        assert!(read < 7 * SIZE as u64 / 2, "in RAM: {is_in_ram}: {read} bytes were read");
        map.checkpoint().unwrap();
    }
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
    let place = error.place().map(|place| &*place.file);
    assert_eq!(place, Some(folder()), "{error}");
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
    // A transaction may differ from its map.
    for (of_map, durability, durable) in [
        (Durability::Buffered, Durability::Immediate, 1),
        (Durability::Buffered, Durability::Group, 1),
        (Durability::Immediate, Durability::Buffered, 0),
    ] {
        let map = make(of_map);
        let mut transaction = map.transaction();
        transaction.set_durability(durability);
        transaction.put("a", "1").unwrap();
        transaction.commit().unwrap();
        assert_eq!((map.durability(), map.durable_seq()), (of_map, durable));
    }
}

/// An executor that runs jobs when it is told to.
#[derive(Debug, Default)]
struct Held(Mutex<HeldJobs>);

#[derive(Default)]
struct HeldJobs(Vec<Job>);

impl std::fmt::Debug for HeldJobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HeldJobs({})", self.0.len())
    }
}

impl Executor for Held {
    fn spawn(&self, job: Job) {
        self.0.lock().unwrap().0.push(job);
    }

    fn width(&self) -> usize {
        1
    }
}

impl Held {
    fn take(&self) -> Vec<Job> {
        std::mem::take(&mut self.0.lock().unwrap().0)
    }
}

/// A maintenance job waits for a thread, while many commits run.
#[test]
fn a_put_does_not_wait_for_maintenance_to_begin() {
    let held = Arc::new(Held::default());
    // No checkpoint is due before RAM is full.
    let options = tiny(Env { executor: held.clone(), ..Env::simulated(1) }).wal_bytes(1 << 30);
    let map = Map::create(folder(), options.durability(Durability::Group)).unwrap();
    let mut maintenance = None;
    for i in 0..10_000_u32 {
        map.put(i.to_le_bytes(), [1; 40]).unwrap();
        let mut jobs = held.take();
        if map.stat().buffered_bytes > 18 << 10 {
            maintenance = jobs.pop();
        }
        jobs.into_iter().for_each(|job| job());
        if maintenance.is_some() {
            break;
        }
    }
    for i in 0..40 {
        let seq = map.put("key", [i]).unwrap();
        held.take().into_iter().for_each(|job| job());
        assert_eq!(map.durable_seq(), seq);
    }
    assert_eq!(map.stat().merges, 0);
    maintenance.unwrap()();
    assert_eq!(map.stat().merges, 1);
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

/// Threads move amounts between accounts, as often as it takes; the sum stays the same at every moment.
/// What single transactions read is checked in `transactions.rs`.
#[test]
fn transactions_that_are_run_again_after_conflicts_lose_nothing() {
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

/// A clock that is set by the test, also backwards.
#[derive(Debug, Default)]
struct SetClock(AtomicU64);

impl Clock for SetClock {
    fn now(&self) -> Duration {
        self.unix_time()
    }

    fn unix_time(&self) -> Duration {
        Duration::from_millis(self.0.load(SeqCst))
    }

    fn wait(&self, _: &Signal, _: u64, _: Duration) {}
}

/// Makes a map with a clock.
fn with_clock() -> (Map, Arc<SetClock>) {
    let clock = Arc::new(SetClock::default());
    let options = tiny(Env { clock: clock.clone(), ..Env::simulated(1) });
    (Map::create(folder(), options).unwrap(), clock)
}

/// Checks by all kinds of reads that a key has this value, or none.
#[track_caller]
fn check_key(map: &Map, key: &str, expected: Option<(&str, Option<u64>)>) {
    let expected = expected.map(|(value, expires_at)| Expiring { value: value.into(), expires_at });
    assert_eq!(map.get_expiring(key).unwrap(), expected);
    assert_eq!(map.get_many_expiring(&[key]).unwrap().pop(), Some(expected.clone()));
    assert_eq!(map.contains(key).unwrap(), expected.is_some());
    assert_eq!(map.transaction().get_expiring(key).unwrap(), expected);
    assert_eq!(map.snapshot().get_expiring(key).unwrap(), expected);
    let page = map.entries_from(KeyHash::from_bits(0), 1000).unwrap();
    assert_eq!(
        page.into_iter().find(|found| found.0 == key.as_bytes()).map(|found| found.1),
        expected
    );
    let value = expected.map(|found| found.value);
    assert_eq!(scanned(&map.snapshot()).get(key.as_bytes()), value.as_ref());
}

/// Whether the entry and an older one are in RAM, in a packet or in a span.
#[test]
fn an_expired_entry_is_absent_and_hides_older_ones() {
    let nothing = |_: &Map| {};
    let flush = |map: &Map| map.checkpoint().unwrap();
    let merge = |map: &Map| map.compact().unwrap();
    let steps: [&dyn Fn(&Map); 3] = [&nothing, &flush, &merge];
    for (older, newer) in
        steps.iter().flat_map(|older| steps.iter().map(move |newer| (older, newer)))
    {
        let (map, clock) = with_clock();
        map.put("other", "there").unwrap();
        map.put("key", "older").unwrap();
        older(&map);
        map.put_expiring("key", "newer", 10).unwrap();
        newer(&map);
        check_key(&map, "key", Some(("newer", Some(10))));
        clock.0.store(9, SeqCst);
        check_key(&map, "key", Some(("newer", Some(10))));
        let snapshot = map.snapshot();
        clock.0.store(10, SeqCst);
        check_key(&map, "key", None);
        check_key(&map, "other", Some(("there", None)));
        assert_eq!(map.count().unwrap(), 1);
        for step in steps {
            step(&map);
            check_key(&map, "key", None);
        }
        assert_eq!(map.entries(), EntryBounds { min: 1, max: 1 });
        assert_eq!(snapshot.get("key").unwrap().as_deref(), Some(&b"newer"[..]));
        assert_eq!(scanned(&snapshot).len(), 2);
        // A map that goes on without an expiry.
        map.put("key", "lasting").unwrap();
        clock.0.store(100, SeqCst);
        check_key(&map, "key", Some(("lasting", None)));
    }
}

#[test]
fn a_clock_that_goes_back_revives_nothing() {
    let (map, clock) = with_clock();
    map.put_expiring("key", "value", 10).unwrap();
    clock.0.store(10, SeqCst);
    check_key(&map, "key", None);
    clock.0.store(5, SeqCst);
    check_key(&map, "key", None);
    map.put_expiring("key", "value", 10).unwrap();
    check_key(&map, "key", None);
    map.put_expiring("key", "value", 11).unwrap();
    check_key(&map, "key", Some(("value", Some(11))));
}

#[test]
fn a_transaction_sees_expiry_and_conflicts_with_it() {
    let (map, clock) = with_clock();
    map.put_expiring("key", "1", 10).unwrap();
    let mut transaction = map.transaction();
    transaction.put_expiring("new", "2", 20).unwrap();
    assert_eq!(transaction.get_expiring("new").unwrap().unwrap().expires_at, Some(20));
    assert_eq!(transaction.get_expiring("key").unwrap().unwrap().expires_at, Some(10));
    clock.0.store(10, SeqCst);
    let error = transaction.commit().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Conflict));
    let mut transaction = map.transaction();
    assert_eq!(transaction.get("key").unwrap(), None);
    transaction.put_expiring("new", "2", 20).unwrap();
    transaction.commit().unwrap();
    check_key(&map, "new", Some(("2", Some(20))));
    let mut transaction = map.transaction();
    transaction.put_expiring("gone", "3", 10).unwrap();
    assert_eq!(transaction.get("gone").unwrap(), None);
}

#[test]
fn a_backup_keeps_when_entries_expire() {
    let (map, clock) = with_clock();
    map.put_expiring("short", "1", 10).unwrap();
    map.put_expiring("long", "2", 20).unwrap();
    map.put_expiring("large", vec![b'3'; 5000], 20).unwrap();
    clock.0.store(10, SeqCst);
    map.backup("copy", &Watch::default()).unwrap();
    let options = map.core().options.clone();
    let copy = Map::open_with("copy", options).unwrap();
    assert_eq!(copy.entries(), EntryBounds { min: 2, max: 2 });
    check_key(&copy, "long", Some(("2", Some(20))));
    check_key(&copy, "large", Some((&"3".repeat(5000), Some(20))));
    clock.0.store(20, SeqCst);
    assert_eq!(copy.count().unwrap(), 0);
    copy.compact().unwrap();
    assert_eq!((copy.stat().entries_max, copy.stat().large_values), (0, 0));
}

/// Groups that do not change any more get rid of expired entries, too, also after an opening.
#[test]
fn a_span_of_which_much_has_expired_is_merged_in_the_background() {
    let (map, clock) = with_clock();
    let keys = 0..2000_u32;
    let time = |i: u32| if i.is_multiple_of(3) { 1000 } else { 3000 };
    for i in keys.clone() {
        map.put_expiring(i.to_le_bytes(), [7; 20], time(i)).unwrap();
    }
    map.compact().unwrap();
    let options = map.core().options.clone();
    map.close().unwrap();
    let map = Map::open_with(folder(), options).unwrap();
    let entries_after = |time: u64| {
        clock.0.store(time, SeqCst);
        map.checkpoint().unwrap();
        // A lookup starts the merges that are due.
        map.get_many(&["key"]).unwrap();
        map.entries().max
    };
    assert_eq!([999, 2999].map(entries_after), [2000, 2000]);
    assert_eq!(entries_after(3000), 0);
    assert!(map.background_error().is_none());
}

#[test]
fn changes_are_written_all_or_none_and_the_last_of_a_key_wins() {
    let map = Map::create(folder(), tiny(Env::simulated(1))).unwrap();
    map.put("old", "1").unwrap();
    let changes = [
        Write::put(b"a", b"1"),
        Write::delete(b"old"),
        Write { expires_at: Some(50), ..Write::put(b"b", b"1") },
        Write::put(b"a", b"2"),
        Write { expires_at: Some(50), ..Write::delete(b"c") },
        Write::delete(b"b"),
    ];
    assert_eq!(map.write(&changes).unwrap(), 7);
    assert_eq!(map.write(&[]).unwrap(), 7);
    check(&map, &Model::from([(b"a".to_vec(), b"2".to_vec())]), 0, "written");
    // More than may be written together.
    let put = Write::put(b"much", &[7; 1000]);
    let puts = vec![put; Map::WRITE_BYTES_MAX / put.size() + 1];
    let error = map.write(&puts).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error}");
    assert_eq!((map.seq(), map.get("much").unwrap()), (7, None));
}

/// Changes of ten times the memory for changes, with large values and deletions among them, in one record of
/// the log: its parts are in blocks of their own.
#[test]
fn changes_that_exceed_a_record_and_the_memory_are_written_all_or_none() {
    let disk = MemoryDisk::default();
    let mut random = Numbers::new(3);
    let mut model = Timed::default();
    let written = |count: u32, random: &mut Numbers| -> Vec<Written> {
        (0..count).map(|_| random.change(2000, 0)).collect()
    };
    let map = Map::create(folder(), on(&disk, Arc::new(Inline))).unwrap();
    let first = written(300, &mut random);
    first.iter().for_each(|change| model.apply(change.as_write()));
    for change in &first {
        map.write(&[change.as_write()]).unwrap();
    }
    let many = written(3000, &mut random);
    let changes: Vec<Write<'_>> = many.iter().map(Written::as_write).collect();
    let size: usize = changes.iter().map(Write::size).sum();
    assert!(size > 10 * tiny(Env::simulated(1)).shape.buffer_bytes);

    // A transaction, whose last change of a key counts.
    let mut transaction = map.transaction();
    assert_eq!(transaction.get(changes[0].key).unwrap(), map.get(changes[0].key).unwrap());
    for Write { key, value, expires_at } in &changes {
        match (value, expires_at) {
            (None, _) => transaction.delete(key),
            (Some(value), None) => transaction.put(key, value),
            (Some(value), Some(time)) => transaction.put_expiring(key, value, *time),
        }
        .unwrap();
    }
    let before = map.seq();
    let seq = transaction.commit().unwrap();
    assert!(seq > before + 1000);
    changes.iter().for_each(|change| model.apply(*change));
    assert!(map.stat().buffered_bytes <= 2 * tiny(Env::simulated(1)).shape.buffer_bytes as u64);
    assert!(map.background_error().is_none());
    check_timed(&map, (&model, 0), 2000, "a transaction");

    // Again, and from the log.
    let more = written(3000, &mut random);
    let changes: Vec<Write<'_>> = more.iter().map(Written::as_write).collect();
    map.write(&changes).unwrap();
    changes.iter().for_each(|change| model.apply(*change));
    let left = FaultyDisk::over(&disk, FaultPlan::default()).snapshot();
    map.sync().unwrap();
    drop(map);
    let map = Map::open_with(folder(), on(&disk, Arc::new(Inline))).unwrap();
    check_timed(&map, (&model, 0), 2000, "opened again");
    drop(map);
    // Only what the log has: without a checkpoint.
    let map = Map::open_with(folder(), on(&left, Arc::new(Inline))).unwrap();
    assert_eq!(map.seq(), seq + 3000);
    check_timed(&map, (&model, 0), 2000, "replayed");
    map.checkpoint().unwrap();
    assert!(map.verify(&Watch::default()).unwrap().is_sound());
}

#[test]
fn bounds_on_the_number_of_entries_are_close() {
    let map = Map::create(folder(), tiny(Env::simulated(1))).unwrap();
    let check = |min, max, count| {
        assert_eq!(map.entries(), EntryBounds { min, max });
        assert_eq!(map.count().unwrap(), count);
    };
    check(0, 0, 0);
    map.put_many([("a", "1"), ("b", "1"), ("c", "1")]).unwrap();
    map.put("a", "two").unwrap();
    map.delete("b").unwrap();
    map.delete("d").unwrap();
    check(2, 2, 2);
    map.checkpoint().unwrap();
    check(0, 4, 2);
    map.compact().unwrap();
    check(2, 2, 2);
    map.put("e", "1").unwrap();
    map.put("a", "3").unwrap();
    map.delete("c").unwrap();
    check(2, 4, 2);
}

/// A page near the end of a large group reads a few blocks of it, and writes nothing.
#[test]
fn a_page_of_entries_reads_little() {
    let disk = CountingDisk::on(Arc::new(MemoryDisk::default()));
    let env = Env { disk: Arc::new(disk.clone()), ..Env::simulated(1) };
    let options = tiny(env);
    let shape = Shape { span_blocks_max: 64, ..options.shape };
    let map = Map::create(folder(), MapOptions { shape, ..options }).unwrap();
    map.put_many((0..5000_u32).map(|i| (i.to_le_bytes(), [9; 12]))).unwrap();
    map.compact().unwrap();
    map.put_many((0..100_u32).map(|i| (i.to_le_bytes(), [8; 12]))).unwrap();
    disk.take();
    let mut next = Some(KeyHash::from_bits(0));
    let mut found = 0;
    let mut pages = 0;
    while let Some(first) = next {
        let page = map.entries_from(first, 100).unwrap();
        found += page.len();
        pages += 1;
        let last = page.last().map(|(key, _)| KeyHash::of(key, SEED).bits() >> 78);
        next = last
            .filter(|_| page.len() >= 100)
            .and_then(|last| (last + 1).checked_mul(1 << 78).map(KeyHash::from_bits));
    }
    assert_eq!(found, 5000);
    let counts = disk.take();
    // About 220 entries fit in a block.
    assert!(counts.read_bytes <= pages * 5 * 4096, "{counts:?}");
    assert_eq!(counts.writes, 0);
    assert_eq!(map.entries_from(KeyHash::from_bits(0), usize::MAX).unwrap().len(), 5000);
}

#[test]
fn a_map_that_is_cleared_is_empty_and_its_snapshots_are_not() {
    let disk = MemoryDisk::default();
    let options = on(&disk, Arc::new(Inline));
    let map = Map::create(folder(), options.clone()).unwrap();
    let mut random = Numbers::new(30);
    let mut model = Model::new();
    for _ in 0..1500 {
        let (key, value) = (random.key(1000), random.value());
        map.put(&key, &value).unwrap();
        model.insert(key, value);
    }
    assert!(map.stat().groups > 8);
    let snapshot = map.snapshot();
    let mut transaction = map.transaction();
    transaction.get("absent").unwrap();
    assert_eq!(map.clear().unwrap(), 1501);
    assert!(matches!(transaction.commit().unwrap_err().kind(), ErrorKind::Conflict));
    check(&map, &Model::new(), 1000, "cleared");
    let stats = map.stat();
    assert_eq!((stats.groups, stats.large_values, stats.buffered_bytes), (1, 0, 0));
    assert!(scanned(&snapshot) == model, "the snapshot");
    drop(snapshot);
    map.put("new", "1").unwrap();
    let model = Model::from([(b"new".to_vec(), b"1".to_vec())]);
    check(&map, &model, 1000, "after a put");
    drop(map);
    let map = Map::open_with(folder(), options).unwrap();
    check(&map, &model, 1000, "opened again");
    check_space(map, &model);
}

#[test]
fn a_map_is_cleared_and_paged_beside_readers_and_writers_in_threads() {
    let executor: Arc<dyn Executor> = Arc::new(Threads::new(2));
    let env = Env { executor, ..Env::simulated(1) };
    let map = Map::create(folder(), tiny(env).durability(Durability::Group)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2_u8 {
            let map = &map;
            scope.spawn(move || {
                let mut random = Numbers::new(thread.into());
                for i in 0..1500 {
                    // Both keys or none, whatever is cleared between.
                    let (key, value) = (random.key(900), random.value());
                    let twin = [&key[..], &[thread; 2]].concat();
                    let key = [&key[..], &[thread; 1]].concat();
                    map.write(&[Write::put(&key, &value), Write::put(&twin, &value)]).unwrap();
                    if i % 50 == 0 {
                        let snapshot = map.snapshot();
                        let found = [&key, &twin].map(|key| snapshot.get(key).unwrap());
                        assert_eq!(found[0], found[1], "{thread} {i}");
                    }
                }
            });
        }
        scope.spawn(|| (0..30).for_each(|_| _ = map.clear().unwrap()));
        scope.spawn(|| {
            for _ in 0..60 {
                let page = map.entries_from(KeyHash::from_bits(0), 2000).unwrap();
                let hashes = page.iter().map(|(key, _)| KeyHash::of(key, SEED));
                assert!(hashes.is_sorted());
                map.entries();
            }
        });
    });
    assert!(map.background_error().is_none());
    assert_eq!(map.count().unwrap(), scanned(&map.snapshot()).len() as u64);
    map.clear().unwrap();
    check(&map, &Model::new(), 900, "cleared");
    check_space(map, &Model::new());
}

/// Each process that changes a map begins a segment of the log, which takes its full size.
#[test]
fn processes_that_end_without_a_checkpoint_leave_few_segments() {
    let disk = MemoryDisk::default();
    let options = || on(&disk, Arc::new(Inline));
    let segments = || {
        let names = disk.list(folder()).unwrap();
        names.iter().filter(|name| name.starts_with("wal-")).count()
    };
    drop(Map::create(folder(), options()).unwrap());
    let mut model = Model::new();
    for i in 0..100_u32 {
        let map = Map::open_with(folder(), options()).unwrap();
        map.put(i.to_le_bytes(), "value").unwrap();
        model.insert(i.to_le_bytes().to_vec(), b"value".to_vec());
        drop(map);
        assert!(segments() < 10, "{} after {i}", segments());
    }
    let map = Map::open_with(folder(), options()).unwrap();
    check(&map, &model, 10, "at the end");
    map.close().unwrap();
    assert_eq!(segments(), 0);
}

/// A sync takes at least 4 KiB of the log, so changes that are few take much of it.
#[test]
fn the_log_of_changes_that_are_synced_one_by_one_is_bounded() {
    let disk = MemoryDisk::default();
    let map = Map::create(folder(), on(&disk, Arc::new(Inline))).unwrap();
    let mut most = 0;
    for i in 0..2000_u32 {
        map.put((i % 10).to_le_bytes(), "value").unwrap();
        most = most.max(map.space().unwrap().log_bytes);
    }
    // Eight times 64 KiB; half of a segment of this test's size is batches.
    assert!(most < 1200 << 10, "{most}");
    assert!(map.stat().checkpoints > 5, "{:?}", map.stat());
}

/// Changes that are in the log only are durable, and are counted.
#[test]
fn a_check_counts_the_changes_that_only_the_log_has() {
    let disk = MemoryDisk::default();
    let options = on(&disk, Arc::new(Inline));
    let map = Map::create(folder(), options.clone()).unwrap();
    map.put("anna", "1").unwrap();
    map.put("ben", "2").unwrap();
    let figures = |map: &Map| map.verify(&Watch::default()).unwrap().figures;
    assert_eq!((figures(&map).logged, figures(&map).changes), (2, 0));
    drop(map);
    let report = verify(&options.env, folder(), &Watch::default()).unwrap();
    assert_eq!((report.figures.logged, report.figures.blocks), (2, 0));
    let map = Map::open_with(folder(), options).unwrap();
    map.compact().unwrap();
    assert_eq!((figures(&map).logged, figures(&map).entries), (0, 2));
}
