//! Imports against sorted maps: interrupted by power cuts, failures and full disks, and beside other
//! changes.

use super::{
    tests::{Model, Numbers, SEED, Timed, check, check_timed, folder, tiny},
    *,
};
use crate::{
    env::Env,
    error::{Error, ErrorClass, ErrorKind, Result},
    io::{Disk, Fault, FaultPlan, FaultyDisk, MemoryDisk},
    key::{KeyHash, Seed},
    run::{Entry, Run, SortOptions, Summary, VecRun},
    work::{Executor, ManualClock, Threads, Watch},
};
use std::{sync::Arc, thread};

const KEYS: u32 = 600;

type Owned = (Vec<u8>, Option<Vec<u8>>);

/// Returns entries, of which some are tombstones and some have large values, and what a map has after them.
fn entries(seed: u64, count: u32) -> (Vec<Owned>, Model) {
    let mut random = Numbers::new(seed);
    let mut entries = Vec::new();
    let mut model = Model::new();
    for _ in 0..count {
        let key = random.key(KEYS);
        let value = (random.below(9) > 0).then(|| random.value());
        match &value {
            Some(value) => _ = model.insert(key.clone(), value.clone()),
            None => _ = model.remove(&key),
        }
        entries.push((key, value));
    }
    (entries, model)
}

fn load(map: &Map, entries: &[Owned]) -> Result<()> {
    map.import(&mut VecRun::new(entries.to_vec(), SEED), &Watch::default())
}

fn new_map() -> Map {
    Map::create(folder(), tiny(Env::simulated(1))).unwrap()
}

/// Makes random changes to a map that has the entries of a model.
#[track_caller]
fn go_on(map: &Map, model: &Model, moment: &str) {
    let (mut timed, now) = (Timed::default(), map.core().now());
    model.iter().for_each(|(key, value)| timed.apply(Write::put(key, value)));
    let mut random = Numbers::new(5);
    for _ in 0..300 {
        let change = random.change(KEYS, now);
        map.write(&[change.as_write()]).unwrap();
        timed.apply(change.as_write());
    }
    check_timed(map, (&timed, now), KEYS, moment);
    map.compact().unwrap();
    check_timed(map, (&timed, now), KEYS, moment);
}

#[test]
fn a_run_becomes_the_groups_of_an_empty_map() {
    for count in [0, 1, 7, 100, 900] {
        let disk = MemoryDisk::default();
        let options = tiny(Env { disk: Arc::new(disk), ..Env::simulated(1) });
        let map = Map::create(folder(), options.clone()).unwrap();
        let (entries, model) = entries(count.into(), count);
        load(&map, &entries).unwrap();
        let moment = format!("{count} entries");
        check(&map, &model, KEYS, &moment);
        let stats = map.stat();
        assert_eq!((stats.seq, stats.durable_seq), (1, 1), "{moment}");
        assert_eq!((stats.packets, stats.flushes, stats.merges), (0, 0, 0), "{moment}");
        assert_eq!(stats.entries_max, model.len() as u64, "{moment}");
        // Each block is written once.
        let blocks = stats.span_blocks + stats.large_blocks;
        assert_eq!(stats.blocks_written, blocks, "{moment}");
        assert!(count < 900 || stats.groups > 2, "{stats:?}");
        drop(map);
        let map = Map::open_with(folder(), options).unwrap();
        check(&map, &model, KEYS, &moment);
        go_on(&map, &model, &moment);
        map.close().unwrap();
    }
}

/// The groups of equal entries have a size between half of the limit and the limit.
#[test]
fn loaded_groups_are_neither_small_nor_full() {
    const COUNT: u64 = 200_000;
    let map = Map::create(folder(), MapOptions::new().env(Env::simulated(1)).seed(SEED)).unwrap();
    let entry = |i: u64| (i.to_le_bytes().to_vec(), Some((!i).to_le_bytes().to_vec()));
    load(&map, &(0..COUNT).map(entry).collect::<Vec<_>>()).unwrap();
    assert_eq!(map.count().unwrap(), COUNT);
    let blocks: Vec<u64> = map.core().directory.map(|group| group.state().stored.span_blocks());
    assert!(blocks.iter().all(|blocks| (20..=49).contains(blocks)), "{blocks:?}");
    for i in (0..COUNT).step_by(997) {
        assert_eq!(map.get(i.to_le_bytes()).unwrap().unwrap(), (!i).to_le_bytes());
        assert_eq!(map.get((COUNT + i).to_le_bytes()).unwrap(), None);
    }
}

#[test]
fn the_run_of_a_sorter_is_loaded_into_a_map_that_was_cleared() {
    let map = new_map();
    let (before, _) = entries(1, 500);
    load(&map, &before).unwrap();
    map.put("another", "1").unwrap();
    map.clear().unwrap();
    let (entries, model) = entries(2, 800);
    let mut sorter = map.sorter(SortOptions::within(1 << 20)).unwrap();
    entries.iter().for_each(|(key, value)| sorter.push(key, value.as_deref()).unwrap());
    let seq = map.seq();
    map.import(&mut sorter.finish().unwrap(), &Watch::default()).unwrap();
    assert_eq!(map.seq(), seq + 1, "in bulk");
    check(&map, &model, KEYS, "cleared");
    go_on(&map, &model, "cleared");
}

/// Into a map with entries, a run is put, and its tombstones delete keys.
#[test]
fn a_run_for_a_map_with_entries_is_put() {
    let map = new_map();
    let (first, mut model) = entries(1, 500);
    load(&map, &first).unwrap();
    let (second, _) = entries(2, 300);
    load(&map, &second).unwrap();
    for (key, value) in second {
        match value {
            Some(value) => _ = model.insert(key, value),
            None => _ = model.remove(&key),
        }
    }
    assert!(map.seq() > 100 && map.durable_seq() == map.seq());
    check(&map, &model, KEYS, "put");
}

/// A run that calls a function in its middle.
struct Interrupted<'a> {
    run: VecRun,
    steps: usize,
    at: &'a mut (dyn FnMut() + Send),
}

impl Run for Interrupted<'_> {
    fn seed(&self) -> Seed {
        self.run.seed()
    }

    fn summary(&self) -> Summary {
        self.run.summary()
    }

    fn advance(&mut self) -> Result<bool> {
        self.steps += 1;
        if self.steps == 200 {
            (self.at)();
        }
        self.run.advance()
    }

    fn entry(&self) -> Entry<'_> {
        self.run.entry()
    }
}

/// Imports entries, and calls `at` in the middle.
fn load_interrupted(map: &Map, entries: Vec<Owned>, at: &mut (dyn FnMut() + Send)) {
    let mut run = Interrupted { run: VecRun::new(entries, SEED), steps: 0, at };
    map.import(&mut run, &Watch::default()).unwrap();
    assert!(run.steps > 200);
}

#[test]
fn readers_see_a_load_at_its_end_and_transactions_that_saw_nothing_conflict() {
    let map = new_map();
    let (entries, model) = entries(1, 900);
    let (mut snapshot, mut transaction) = (None, None);
    load_interrupted(&map, entries, &mut || {
        assert_eq!(map.count().unwrap(), 0);
        let mut reader = map.transaction();
        assert_eq!(reader.get("absent").unwrap(), None);
        (snapshot, transaction) = (Some(map.snapshot()), Some(reader));
    });
    assert_eq!(map.seq(), 1, "in bulk");
    assert!(!snapshot.unwrap().scan().advance().unwrap());
    let mut transaction = transaction.unwrap();
    transaction.put("key", "value").unwrap();
    let error = transaction.commit().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Conflict), "{error}");
    check(&map, &model, KEYS, "beside readers");
    map.transact(|changes| changes.get("absent").map(drop)).unwrap();
}

/// A change of another thread ends a load as a bulk load.
#[test]
fn a_map_that_is_changed_during_a_load_has_the_changes_and_the_run() {
    for flushes in [false, true] {
        let disk = MemoryDisk::default();
        let options = tiny(Env { disk: Arc::new(disk), ..Env::simulated(1) });
        let map = Map::create(folder(), options.clone()).unwrap();
        let (entries, mut model) = entries(1, 900);
        load_interrupted(&map, entries, &mut || {
            map.put("beside", "1").unwrap();
            if flushes {
                map.compact().unwrap();
            }
        });
        model.insert(b"beside".to_vec(), b"1".to_vec());
        assert_eq!(map.seq(), model.len() as u64);
        check(&map, &model, KEYS, "changed meanwhile");
        drop(map);
        let map = Map::open_with(folder(), options).unwrap();
        check(&map, &model, KEYS, "opened again");
        go_on(&map, &model, "changed meanwhile");
    }
}

/// Nothing is lost, and no thread waits for ever.
#[test]
fn loads_beside_threads_that_write_and_read_lose_nothing() {
    let executor: Arc<dyn Executor> = Arc::new(Threads::new(2));
    for round in 0..20 {
        let options = tiny(Env { executor: executor.clone(), ..Env::simulated(round) });
        let map = Map::create(folder(), options.durability(Durability::Group)).unwrap();
        let (entries, mut model) = entries(round, 900);
        let beside: Vec<String> = (0..round % 4 * 50).map(|i| format!("beside {i}")).collect();
        thread::scope(|scope| {
            scope.spawn(|| beside.iter().for_each(|key| _ = map.put(key, "1").unwrap()));
            scope.spawn(|| {
                for _ in 0..20 {
                    let snapshot = map.snapshot();
                    let (mut scan, mut count) = (snapshot.scan(), 0);
                    while scan.advance().unwrap() {
                        count += 1;
                    }
                    assert!(count <= KEYS as usize + beside.len());
                }
            });
            load(&map, &entries).unwrap();
        });
        model.extend(beside.into_iter().map(|key| (key.into_bytes(), b"1".to_vec())));
        check(&map, &model, KEYS, &format!("round {round}"));
        map.close().unwrap();
    }
}

/// A run that has one key three times.
struct Repeated(u32);

impl Run for Repeated {
    fn seed(&self) -> Seed {
        SEED
    }

    fn summary(&self) -> Summary {
        Summary { entries_max: 3, ..Summary::EMPTY }
    }

    fn advance(&mut self) -> Result<bool> {
        self.0 += 1;
        Ok(self.0 <= 3)
    }

    fn entry(&self) -> Entry<'_> {
        Entry { hash: KeyHash::of(b"key", SEED), key: b"key", value: Some(&[1; 5000]) }
    }
}

#[test]
fn a_load_that_is_refused_or_stopped_leaves_an_empty_map_and_free_blocks() {
    let map = new_map();
    let check_empty = |error: Error| {
        assert_eq!((map.count().unwrap(), map.seq()), (0, 0), "{error}");
        let stats = map.stat();
        assert_eq!(stats.free_bytes + 4096, stats.file_bytes, "{error}");
    };
    let error = map.import(&mut Repeated(0), &Watch::default()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Order { .. }), "{error}");
    check_empty(error);
    let (entries, model) = entries(1, 900);
    let stop = Watch::new(|_| Err(ErrorKind::Stopped.into()));
    let error = map.import(&mut VecRun::new(entries.clone(), SEED), &stop).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Stopped), "{error}");
    check_empty(error);
    let long = [(vec![1; KEY_BYTES_MAX + 1], Some(vec![1]))];
    let error = load(&map, &[&entries[..], &long[..]].concat()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error}");
    check_empty(error);
    load(&map, &entries).unwrap();
    check(&map, &model, KEYS, "at last");
}

/// Returns disks with empty maps: a new one, and one that was cleared, whose data file has free blocks.
fn empty_maps(clock: &ManualClock) -> [MemoryDisk; 2] {
    [0, 500].map(|count| {
        let memory = MemoryDisk::default();
        let disk: Arc<dyn Disk> = Arc::new(memory.clone());
        let map = Map::create(folder(), crash::options(&disk, clock)).unwrap();
        load(&map, &entries(9, count).0).unwrap();
        map.clear().unwrap();
        map.close().unwrap();
        memory
    })
}

/// Returns the number of disk operations of opening a map, loading entries, and dropping it.
fn operations(made: &MemoryDisk, entries: &[Owned], clock: &ManualClock) -> u64 {
    let faulty = FaultyDisk::over(made, FaultPlan::default());
    let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
    load(&Map::open_with(folder(), crash::options(&disk, clock)).unwrap(), entries).unwrap();
    faulty.operations()
}

/// Checks that a map has all entries of a model or none. Returns whether it has them.
#[track_caller]
fn check_all_or_none(map: &Map, model: &Model, moment: &str) -> bool {
    let (has_all, none) = (map.count().unwrap() > 0, Model::new());
    check(map, if has_all { model } else { &none }, KEYS, moment);
    has_all
}

#[test]
fn a_power_cut_at_any_operation_of_a_load_leaves_all_entries_or_none() {
    let clock = ManualClock::new(1);
    let (entries, model) = entries(3, 700);
    for (i, made) in empty_maps(&clock).iter().enumerate() {
        let mut found = [0, 0];
        for operation in 0..operations(made, &entries, &clock) {
            let faulty = FaultyDisk::over(made, Fault::PowerCut { operation }.into());
            let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
            let opened = Map::open_with(folder(), crash::options(&disk, &clock));
            let loaded = opened.and_then(|map| load(&map, &entries));
            let left = [2 * operation, 2 * operation + 1].map(|seed| faulty.after_power_cut(seed));
            for (j, left) in left.into_iter().chain([faulty.snapshot()]).enumerate() {
                let moment = format!("map {i}, power cut at {operation}, disk {j}: {loaded:?}");
                let disk: Arc<dyn Disk> = Arc::new(left);
                let map = Map::open_with(folder(), crash::options(&disk, &clock)).unwrap();
                let has_all = check_all_or_none(&map, &model, &moment);
                assert!(has_all || loaded.is_err(), "{moment}");
                found[usize::from(has_all)] += 1;
                if !has_all {
                    load(&map, &entries).unwrap();
                    check(&map, &model, KEYS, &moment);
                }
                map.close().unwrap();
                crash::check_names(&disk, 1, &moment);
            }
        }
        assert!(found[0] > 40 && found[1] > 4, "{found:?}");
    }
}

#[test]
fn a_load_that_fails_at_any_operation_or_on_a_full_disk_changes_nothing_and_can_be_repeated() {
    let clock = ManualClock::new(1);
    let (entries, model) = entries(4, 700);
    let mut failed = [0, 0];
    for made in &empty_maps(&clock) {
        for operation in 0..operations(made, &entries, &clock) {
            let faults = [Fault::Failure { operation }, Fault::Full { write: operation }];
            for (i, fault) in faults.into_iter().enumerate() {
                let moment = format!("{fault:?}");
                let faulty = FaultyDisk::over(made, fault.into());
                let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
                let Ok(map) = Map::open_with(folder(), crash::options(&disk, &clock)) else {
                    continue;
                };
                let loaded = load(&map, &entries);
                faulty.heal();
                failed[i] += usize::from(loaded.is_err());
                let map = match loaded {
                    Ok(()) => map,
                    Err(error) => {
                        let class = error.class();
                        assert!(matches!(class, ErrorClass::Io | ErrorClass::Damage), "{error}");
                        // Lookups go on.
                        check(&map, &Model::new(), KEYS, &moment);
                        repeat(map, &entries, &model, &disk, &clock)
                    }
                };
                check(&map, &model, KEYS, &moment);
                map.close().unwrap();
            }
        }
    }
    assert!(failed.iter().all(|count| *count > 20), "{failed:?}");
}

/// Loads entries again after a failure, and opens the map again if a sync of it has failed.
fn repeat(
    map: Map,
    entries: &[Owned],
    model: &Model,
    disk: &Arc<dyn Disk>,
    clock: &ManualClock,
) -> Map {
    let Err(error) = load(&map, entries) else { return map };
    assert!(matches!(error.kind(), ErrorKind::FailedBefore { .. }), "{error}");
    drop(map);
    let map = Map::open_with(folder(), crash::options(disk, clock)).unwrap();
    if !check_all_or_none(&map, model, "opened again") {
        load(&map, entries).unwrap();
    }
    map
}
