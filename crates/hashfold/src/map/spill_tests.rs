//! Transactions that exceed their memory, against sorted maps: with reads of their own writes, writes that replace
//! spilled ones, conflicts, failures, and what is left in the log.

use super::{
    core::Core,
    faults::Failing,
    tests::{Model, Numbers, Timed, Written, check_space, check_timed, folder, on, tiny},
    *,
};
use crate::{
    env::Env,
    error::{ErrorClass, ErrorKind, Result},
    io::{
        Access, BlockFile, Disk, DiskLayer, Extent, Fault, FaultPlan, FaultyDisk, FileLayer,
        MemoryDisk,
    },
    run::Run as _,
    work::{Clock as _, Inline, ManualClock, Watch},
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

const KEYS: u32 = 400;

/// A transaction beside what it must be.
struct Twin {
    transaction: Transaction,
    /// The last write of each key; `None` deletes it.
    writes: BTreeMap<Vec<u8>, Written>,
    /// For each key that was read from the map, the step of the first read.
    reads: BTreeMap<Vec<u8>, u32>,
    expires_first: u64,
    steps: u32,
}

/// A map with its transactions, and a model.
struct Both {
    map: Map,
    clock: ManualClock,
    model: Timed,
    random: Numbers,
    step: u32,
    /// The step of the last change of each key.
    changed: BTreeMap<Vec<u8>, u32>,
    /// The step of the last commit after which all reads conflict.
    all_changed: u32,
    figures: Figures,
}

/// Numbers of events.
#[derive(Debug, Default)]
struct Figures {
    own_reads: u32,
    replaced: u64,
    commits: u32,
    conflicts: u32,
    dropped: u32,
    of_all: u32,
}

impl Both {
    fn now(&self) -> u64 {
        self.clock.now().as_millis() as u64
    }

    fn begin(&mut self) -> Twin {
        let steps_max = [4, 60, 500][self.random.below(3) as usize];
        let steps = 1 + self.random.below(steps_max);
        let transaction = self.map.transaction();
        let (writes, reads) = (BTreeMap::new(), BTreeMap::new());
        Twin { transaction, writes, reads, expires_first: u64::MAX, steps }
    }

    /// Writes or reads a key in a transaction.
    fn step(&mut self, twin: &mut Twin) {
        self.step += 1;
        twin.steps -= 1;
        if self.random.below(5) > 0 {
            // Often a few keys, so that writes replace spilled ones.
            let keys = if self.random.below(3) == 0 { 20 } else { KEYS };
            let change = self.random.change(keys, self.now());
            twin.transaction.write(change.as_write()).unwrap();
            twin.writes.insert(change.key.clone(), change);
            return;
        }
        let key = match self.random.below(4) {
            0 => self.random.key(KEYS),
            _ => {
                let nth = self.random.below(KEYS) as usize % twin.writes.len().max(1);
                twin.writes.keys().nth(nth).cloned().unwrap_or_default()
            }
        };
        let found = twin.transaction.get_expiring(&key).unwrap();
        if let Some(written) = twin.writes.get(&key) {
            let mut own = Timed::default();
            own.apply(written.as_write());
            assert_eq!(found.as_ref(), own.get(&key, self.now()), "own {key:?}");
            self.figures.own_reads += u32::from(twin.transaction.has_spilled());
            return;
        }
        assert_eq!(found.as_ref(), self.model.get(&key, self.now()), "{key:?}");
        let expires_at = found.and_then(|found| found.expires_at).unwrap_or(u64::MAX);
        twin.expires_first = twin.expires_first.min(expires_at);
        twin.reads.entry(key).or_insert(self.step);
    }

    /// Commits a transaction. It conflicts if, and only if, a key that it has read has changed.
    fn commit(&mut self, twin: Twin) {
        self.step += 1;
        let Twin { transaction, writes, reads, expires_first, .. } = twin;
        let (count, has_spilled) = (transaction.count(), transaction.has_spilled());
        let is_old = |(key, read): (&Vec<u8>, &u32)| {
            self.changed.get(key).is_some_and(|change| change > read) || self.all_changed > *read
        };
        let conflicts = reads.iter().any(is_old) || self.now() >= expires_first;
        let before = self.map.seq();
        match transaction.commit() {
            Ok(seq) => {
                assert!(!conflicts);
                assert_eq!(seq, before + count);
                for (key, change) in &writes {
                    self.model.apply(change.as_write());
                    self.changed.insert(key.clone(), self.step);
                }
                if has_spilled && count > 300 {
                    self.all_changed = self.step;
                    self.figures.of_all += 1;
                }
                self.figures.commits += u32::from(has_spilled);
                self.figures.replaced += count - writes.len() as u64;
            }
            Err(error) => {
                assert!(conflicts && matches!(error.kind(), ErrorKind::Conflict), "{error}");
                assert_eq!(self.map.seq(), before);
                self.figures.conflicts += u32::from(has_spilled);
            }
        }
    }

    /// Runs a few transactions, whose steps are mixed with each other and with other changes.
    fn round(&mut self) {
        let count = 1 + self.random.below(3);
        let mut open: Vec<Twin> = (0..count).map(|_| self.begin()).collect();
        while !open.is_empty() {
            let i = self.random.below(open.len() as u32) as usize;
            if self.random.below(200) == 0 {
                self.step += 1;
                let change = self.random.change(KEYS, self.now());
                self.map.write(&[change.as_write()]).unwrap();
                self.model.apply(change.as_write());
                self.changed.insert(change.key, self.step);
                self.clock.advance(Duration::from_millis(1));
            }
            if open[i].steps > 0 {
                self.step(&mut open[i]);
            } else if self.random.below(6) == 0 {
                self.figures.dropped += u32::from(open.swap_remove(i).transaction.has_spilled());
            } else {
                let twin = open.swap_remove(i);
                self.commit(twin);
            }
        }
        assert_eq!(self.map.core().transaction_bytes(), 0);
    }
}

#[test]
fn transactions_that_spill_agree_with_a_sorted_map() {
    let mut figures = Figures::default();
    for seed in 0..8 {
        let (disk, clock) = (MemoryDisk::default(), ManualClock::new(1));
        let options = on(&disk, Arc::new(Inline));
        let env = Env { clock: Arc::new(clock.clone()), ..options.env.clone() };
        let options = options.env(env);
        let map = Map::create(folder(), options.clone()).unwrap();
        let (model, random) = (Timed::default(), Numbers::new(seed));
        let (changed, all_changed) = (BTreeMap::new(), 0);
        let mut both = Both { map, clock, model, random, step: 0, changed, all_changed, figures };
        for round in 0..30 {
            both.round();
            let moment = format!("seed {seed}, round {round}");
            if round % 5 == 4 {
                check_timed(&both.map, (&both.model, both.now()), KEYS, &moment);
            }
            if round % 10 == 9 {
                drop(both.map);
                both.map = Map::open_with(folder(), options.clone()).unwrap();
                // The log of an earlier process has no transaction that is open.
                check_timed(&both.map, (&both.model, both.now()), KEYS, &moment);
            }
        }
        assert!(both.map.background_error().is_none());
        let model = both.model.at(both.now());
        check_space(both.map, &model);
        figures = both.figures;
    }
    let Figures { own_reads, replaced, commits, conflicts, dropped, of_all } = figures;
    assert!(own_reads > 1000 && replaced > 1000 && commits > 50, "{figures:?}");
    assert!(conflicts > 15 && dropped > 20 && of_all > 10, "{figures:?}");
}

/// A disk that notes the memory of a map at each access to a file.
#[derive(Clone, Debug)]
struct Weighing {
    disk: Arc<dyn Disk>,
    scale: Arc<Scale>,
}

#[derive(Debug, Default)]
struct Scale {
    core: Mutex<Weak<Core>>,
    /// The most memory of lists and transactions, in bytes.
    most: AtomicUsize,
}

impl Scale {
    fn weigh(&self) {
        if let Some(core) = self.core.lock().unwrap().upgrade() {
            self.most.fetch_max(core.buffered_bytes() + core.transaction_bytes(), SeqCst);
        }
    }
}

impl DiskLayer for Weighing {
    fn below(&self) -> &dyn Disk {
        &*self.disk
    }

    fn over_opened(&self, file: Arc<dyn BlockFile>) -> Arc<dyn BlockFile> {
        Arc::new(WeighingFile { file, scale: self.scale.clone() })
    }
}

#[derive(Debug)]
struct WeighingFile {
    file: Arc<dyn BlockFile>,
    scale: Arc<Scale>,
}

impl FileLayer for WeighingFile {
    fn below(&self) -> &dyn BlockFile {
        &*self.file
    }

    fn before_read(&self, _: Extent) -> Result<()> {
        self.scale.weigh();
        Ok(())
    }

    fn before_write(&self, _: u64, _: &[u8]) -> Result<()> {
        self.scale.weigh();
        Ok(())
    }
}

/// Transactions of 20 times the memory for changes, beside changes in RAM.
#[test]
fn a_transaction_that_exceeds_the_memory_takes_no_more_than_its_part() {
    let memory = MemoryDisk::default();
    let scale = Arc::new(Scale::default());
    let disk = Weighing { disk: Arc::new(memory.clone()), scale: scale.clone() };
    let options = tiny(Env { disk: Arc::new(disk), ..Env::simulated(1) });
    let map = Map::create(folder(), options.clone()).unwrap();
    *scale.core.lock().unwrap() = Arc::downgrade(map.core());
    let mut random = Numbers::new(4);
    let mut model = Timed::default();
    let apply = |change: Written, model: &mut Timed| {
        model.apply(change.as_write());
        change
    };
    for _ in 0..400 {
        let change = apply(random.change(9000, 0), &mut model);
        map.write(&[change.as_write()]).unwrap();
    }
    let shape = options.shape;
    let mut transaction = map.transaction();
    let mut bytes = 0;
    while bytes < 20 * shape.buffer_bytes {
        let change = apply(random.change(9000, 0), &mut model);
        bytes += change.key.len() + change.value.as_ref().map_or(0, Vec::len);
        transaction.write(change.as_write()).unwrap();
    }
    // Parts are tiny in tests, so that their places take much memory.
    let places = transaction.places_bytes();
    assert!(places > 0 && places < bytes / 8, "{places} bytes for {bytes}");
    transaction.commit().unwrap();
    assert_eq!(map.stat().transaction_bytes, 0);
    check_timed(&map, (&model, 0), 9000, "committed");
    assert!(map.background_error().is_none());
    let most = scale.most.load(SeqCst);
    assert!(most < places + shape.buffer_bytes * 5 / 4, "{most} bytes, {places} of places");
    // From the log alone.
    let left = FaultyDisk::over(&memory, FaultPlan::default()).snapshot();
    drop(map);
    let map = Map::open_with(folder(), on(&left, Arc::new(Inline))).unwrap();
    assert!(map.core().buffered_bytes() < shape.buffer_bytes * 5 / 4);
    check_timed(&map, (&model, 0), 9000, "replayed");
}

/// Writes a few hundred changes in a transaction. After an error, the disk works again, and the write is repeated.
/// Returns the number of errors.
///
/// # Errors
/// After a sync that failed, nothing can be written.
fn write_all(
    transaction: &mut Transaction,
    changes: &[Written],
    faulty: &FaultyDisk,
) -> Result<u32> {
    let mut errors = 0;
    for change in changes {
        if let Err(error) = transaction.write(change.as_write()) {
            assert_eq!(error.class(), ErrorClass::Io, "{error}");
            errors += 1;
            faulty.heal();
            transaction.write(change.as_write())?;
        }
    }
    let mut own = Timed::default();
    changes.iter().for_each(|change| own.apply(change.as_write()));
    for Written { key, .. } in changes {
        assert_eq!(transaction.get_expiring(key).unwrap().as_ref(), own.get(key, 0));
    }
    Ok(errors)
}

/// Makes a map in which a few keys are, and returns its model.
fn small(disk: &MemoryDisk) -> Timed {
    let map = Map::create(folder(), on(disk, Arc::new(Inline))).unwrap();
    let (mut random, mut model) = (Numbers::new(5), Timed::default());
    for _ in 0..50 {
        let change = Written { expires_at: None, ..random.change(KEYS, 0) };
        map.write(&[change.as_write()]).unwrap();
        model.apply(change.as_write());
    }
    map.close().unwrap();
    model
}

fn lasting(seed: u64, count: u32) -> Vec<Written> {
    let mut random = Numbers::new(seed);
    (0..count).map(|_| Written { expires_at: None, ..random.change(KEYS, 0) }).collect()
}

#[test]
fn a_spill_that_fails_can_be_repeated_and_a_dropped_transaction_leaves_no_blocks() {
    let made = MemoryDisk::default();
    let model = small(&made);
    let changes = lasting(6, 250);
    let faults = |at| [Fault::Failure { operation: at }, Fault::Full { write: at }];
    let mut errors = [0; 2];
    for (kind, fault) in (0..90).flat_map(|at| faults(at).into_iter().enumerate()) {
        let faulty = FaultyDisk::over(&made, fault.into());
        let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
        let Ok(map) = Map::open_with(folder(), tiny(Env { disk, ..Env::simulated(1) })) else {
            continue;
        };
        let used = || {
            let (free, all) = map.core().space.counts();
            all - free
        };
        let (moment, before) = (format!("{fault:?}"), (used(), map.seq()));
        let mut transaction = map.transaction();
        let written = write_all(&mut transaction, &changes, &faulty);
        faulty.heal();
        let Ok(count) = written else {
            drop(transaction);
            assert!(map.core().check().is_err(), "{moment}");
            assert_eq!((used(), map.seq()), before, "{moment}");
            continue;
        };
        errors[kind] += count;
        assert!(used() > before.0 + 10);
        let mut model = model.clone();
        if errors[kind] % 2 == 0 {
            drop(transaction);
            assert_eq!((used(), map.seq()), before, "{moment}");
        } else {
            transaction.commit().unwrap();
            changes.iter().for_each(|change| model.apply(change.as_write()));
        }
        check_timed(&map, (&model, 0), KEYS, &moment);
        check_space(map, &model.at(0));
    }
    assert!(errors.iter().all(|errors| *errors > 10), "{errors:?}");
}

/// Reads fail one after the other while writes are spilled, looked up, checked and applied.
#[test]
fn a_commit_that_cannot_read_writes_back_changes_nothing_or_stops_the_map() {
    let made = MemoryDisk::default();
    let model = small(&made);
    let changes = lasting(7, 150);
    let (mut unchanged, mut stopped) = (0, 0);
    for read in 0..400 {
        let fault = Fault::FlippedBit { read };
        let faulty = FaultyDisk::over(&made, fault.into());
        let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
        let options = tiny(Env { disk, ..Env::simulated(1) });
        let Ok(map) = Map::open_with(folder(), options.clone()) else { continue };
        let before = map.seq();
        let mut transaction = map.transaction();
        changes.iter().for_each(|change| transaction.write(change.as_write()).unwrap());
        let moment = format!("{fault:?}");
        match transaction.commit() {
            Ok(_) => continue,
            Err(error) => assert_eq!(error.class(), ErrorClass::Damage, "{error}"),
        }
        if map.seq() == before {
            unchanged += 1;
            check_timed(&map, (&model, 0), KEYS, &moment);
            check_space(map, &model.at(0));
            continue;
        }
        stopped += 1;
        let stops = |result: Result<()>| {
            let error = result.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::FailedBefore { .. }), "{error}");
        };
        let key = &changes[0].key;
        stops(map.get(key).map(drop));
        stops(map.get_many(&[key]).map(drop));
        stops(map.contains(key).map(drop));
        stops(map.snapshot().get(key).map(drop));
        stops(map.snapshot().scan().advance().map(drop));
        stops(map.entries_from(crate::key::KeyHash::from_bits(0), 10).map(drop));
        stops(map.count().map(drop));
        stops(map.put("key", "value").map(drop));
        stops(map.transaction().get(key).map(drop));
        stops(map.checkpoint());
        assert_eq!(map.durable_seq(), map.seq(), "{moment}");
        let mut after = model.clone();
        changes.iter().for_each(|change| after.apply(change.as_write()));
        for seed in 0..3 {
            let left = on(&faulty.after_power_cut(seed), Arc::new(Inline));
            let left = Map::open_with(folder(), left).unwrap();
            check_timed(&left, (&after, 0), KEYS, &format!("{moment}, then a power cut"));
        }
        drop(map);
        let map = Map::open_with(folder(), options).unwrap();
        check_timed(&map, (&after, 0), KEYS, &moment);
    }
    assert!(unchanged > 3 && stopped > 3, "{unchanged} {stopped}");
}

/// Returns a disk with a map that has a transaction of nearly the largest size in its log, and the model.
fn longest() -> (MemoryDisk, Model) {
    let disk = MemoryDisk::default();
    let options = MapOptions { wal_bytes: 1 << 30, ..on(&disk, Arc::new(Inline)) };
    let map = Map::create(folder(), options).unwrap();
    let mut model = Model::new();
    let mut transaction = map.transaction();
    let error = (0_u32..)
        .find_map(|i| {
            let value = vec![i as u8; if i % 50 == 0 { 1500 } else { 700 }];
            transaction.put(i.to_le_bytes(), &value).err().or_else(|| {
                model.insert(i.to_le_bytes().to_vec(), value);
                None
            })
        })
        .unwrap();
    assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error}");
    assert!(model.len() as u64 > Map::TRANSACTION_BYTES_MAX / 800);
    transaction.commit().unwrap();
    assert_eq!(map.seq(), model.len() as u64);
    assert!(map.background_error().is_none());
    // Without a checkpoint.
    map.sync().unwrap();
    (FaultyDisk::over(&disk, FaultPlan::default()).snapshot(), model)
}

/// Returns what a salvage finds, and whether it reports a loss.
fn salvaged(disk: &MemoryDisk) -> (Model, bool) {
    let options = on(disk, Arc::new(Inline));
    let mut run = salvage(folder(), "spill", options, &Watch::default()).unwrap();
    let mut found = Model::new();
    while run.advance().unwrap() {
        let entry = run.entry();
        found.insert(entry.key.to_vec(), entry.value.unwrap().to_vec());
    }
    let has_losses = !run.losses().is_empty();
    (found, has_losses)
}

#[test]
fn a_transaction_of_the_largest_size_is_committed_replayed_and_salvaged() {
    let (disk, model) = longest();
    assert!(salvaged(&disk) == (model.clone(), false));
    let copy = || FaultyDisk::over(&disk, FaultPlan::default()).snapshot();
    let without = copy();
    let names = without.list(folder()).unwrap();
    for name in names.iter().filter(|name| catalog::is_catalog(name)) {
        without.remove(&folder().join(name)).unwrap();
    }
    assert!(salvaged(&without) == (model.clone(), true), "without the catalog");
    // Each damaged block is reported, and no value is wrong.
    let path = folder().join(devices::DATA_NAME);
    let blocks = disk.open(&path, Access::Cached).unwrap().size().unwrap() / 4096;
    let mut losses = 0;
    for block in (1..blocks).step_by(41) {
        let disk = copy();
        let file = disk.open_to_write(&path, Access::Cached).unwrap();
        file.write_at(block * 4096 + 100, &[9; 50]).unwrap();
        let (found, has_losses) = salvaged(&disk);
        assert!(has_losses || found == model, "block {block}");
        assert!(found.iter().all(|(key, value)| model.get(key) == Some(value)), "block {block}");
        losses += u64::from(has_losses);
        let env = on(&disk, Arc::new(Inline)).env;
        if has_losses && block % 3 == 0 {
            let report = verify(&env, folder(), &Watch::default()).unwrap();
            assert!(!report.is_sound(), "block {block}");
        }
    }
    assert!(losses > 5, "{losses}");
    let map = Map::open_with(folder(), on(&disk, Arc::new(Inline))).unwrap();
    assert_eq!(map.seq(), model.len() as u64);
    assert!(map.entries().max >= model.len() as u64);
    check_space(map, &model);
    let map = Map::open_with(folder(), on(&disk, Arc::new(Inline))).unwrap();
    assert!(model.iter().all(|(key, value)| map.get(key).unwrap().as_ref() == Some(value)));
}

/// Returns the number of blocks of the data file that are not holes.
fn allocated_blocks(disk: &MemoryDisk) -> usize {
    let file = disk.open(&folder().join(devices::DATA_NAME), Access::Cached).unwrap();
    let bytes = crate::io::read_all(&*file, u64::MAX).unwrap();
    bytes.chunks(4096).filter(|block| block.iter().any(|byte| *byte != 0)).count()
}

#[test]
fn the_space_of_a_transaction_that_is_dropped_or_conflicts_is_given_back_at_once() {
    let disk = MemoryDisk::default();
    let model = small(&disk);
    let options = MapOptions { wal_bytes: 1 << 30, ..on(&disk, Arc::new(Inline)) };
    let map = Map::open_with(folder(), options).unwrap();
    let changes = lasting(8, 3000);
    let before = allocated_blocks(&disk);
    for conflicts in [false, true] {
        let mut transaction = map.transaction();
        transaction.get("read").unwrap();
        changes.iter().for_each(|change| transaction.write(change.as_write()).unwrap());
        let most = allocated_blocks(&disk);
        assert!(most > before + 200, "{most}");
        let checkpoints = map.stat().checkpoints;
        if conflicts {
            map.put("read", "changed").unwrap();
            map.delete("read").unwrap();
            let error = transaction.commit().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Conflict), "{error}");
        } else {
            drop(transaction);
        }
        // But for a small reserve.
        let after = allocated_blocks(&disk);
        assert!(after <= before + 20, "{before}, {most}, {after}");
        assert_eq!(map.stat().checkpoints, checkpoints);
    }
    assert!(map.background_error().is_none());
    check_space(map, &model.at(0));
}

/// Transactions that are larger than what the lists may take if they cannot be flushed, on disks of all sizes.
#[test]
fn a_commit_on_a_disk_that_is_nearly_full_is_refused_or_applied_as_a_whole() {
    let made = MemoryDisk::default();
    let mut model = Model::new();
    {
        let map = Map::create(folder(), on(&made, Arc::new(Inline))).unwrap();
        let pairs = (0..3000_u32).map(|i| (i.to_le_bytes().to_vec(), vec![1; 60]));
        model.extend(pairs);
        map.put_many(&model).unwrap();
        map.compact().unwrap();
        map.close().unwrap();
    }
    let size = made.open(&folder().join(devices::DATA_NAME), Access::Cached).unwrap().size();
    let (mut refused, mut committed) = (0, 0);
    for more in (0..).step_by(37) {
        let left = FaultyDisk::over(&made, FaultPlan::default()).snapshot();
        let size_max = size.clone().unwrap() + more * 4096;
        let failing = Failing::on(left.clone());
        failing.faults.size_max.store(size_max, SeqCst);
        let disk: Arc<dyn Disk> = Arc::new(failing);
        let options = MapOptions { wal_bytes: 1 << 30, ..tiny(Env { disk, ..Env::simulated(1) }) };
        let map = Map::open_with(folder(), options.durability(Durability::Buffered)).unwrap();
        let mut transaction = map.transaction();
        let mut after = model.clone();
        let written = (0..4500_u32).try_for_each(|i| {
            let (key, value) = ((i * 7 % 4000).to_le_bytes(), vec![i as u8; 250]);
            transaction.put(key, &value)?;
            after.insert(key.to_vec(), value);
            Ok::<_, crate::error::Error>(())
        });
        let moment = format!("{more} more blocks");
        match written.and_then(|()| transaction.commit()) {
            Ok(seq) => {
                assert_eq!(map.seq(), seq);
                committed += 1;
            }
            Err(error) => {
                assert_eq!((error.class(), map.seq()), (ErrorClass::Io, 3000), "{moment}");
                refused += 1;
                after.clone_from(&model);
            }
        }
        let has = |map: &Map| {
            let found =
                |(key, value): (&Vec<u8>, &Vec<u8>)| map.get(key).unwrap().as_ref() == Some(value);
            after.iter().all(found)
        };
        assert!(has(&map), "{moment}");
        map.sync().unwrap();
        let killed = FaultyDisk::over(&left, FaultPlan::default()).snapshot();
        drop(map);
        assert!(has(&Map::open_with(folder(), on(&killed, Arc::new(Inline))).unwrap()), "{moment}");
        if committed > 5 {
            break;
        }
    }
    assert!(refused > 10, "{refused}");
}
