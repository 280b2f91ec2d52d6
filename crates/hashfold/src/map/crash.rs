//! Crash tests: a map is interrupted at every disk operation by power cuts, failures and full
//! disks, and again while it recovers. Afterwards it holds all acknowledged changes and whole
//! records of the others, up to some moment, and it can be used.

use super::{
    tests::{Numbers, Timed, Written, check, check_timed, folder, tiny},
    *,
};
use crate::{
    env::Env,
    error::{ErrorClass, ErrorKind, Result},
    io::{Disk, Fault, FaultPlan, FaultyDisk, MemoryDisk},
    key::Seed,
    work::{Clock as _, Executor, Inline, ManualClock, SeededRandom, Watch, testing::Late},
};
use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};

const KEYS: u32 = 400;
/// Maximum number of attempts to repeat a failed operation.
const ATTEMPTS_MAX: usize = 4;

/// An operation on a map.
#[derive(Debug)]
enum Act {
    /// One record of changes.
    Write(Vec<Written>),
    /// A transaction with writes of different keys, which are spilled if they are many.
    Transaction(Vec<Written>),
    /// A transaction with such writes that is dropped.
    Abandon(Vec<Written>),
    /// One record that deletes all keys and then makes changes.
    Clear(Vec<Written>),
    /// Lets this number of milliseconds pass.
    Wait(u64),
    Sync,
    Checkpoint,
    Compact,
    Get(Vec<u8>),
    Reopen,
}

/// The operations of a test, and the changes that they make.
pub(super) struct Script {
    pub(super) seed: u64,
    acts: Vec<Act>,
    /// `None` deletes all keys.
    changes: Vec<Option<Written>>,
    /// Sequence numbers at which a record ends.
    pub(super) ends: BTreeSet<u64>,
    plan: Plan,
    pub(super) durability: Durability,
    /// Number of devices.
    pub(super) devices: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) acts: usize,
    pub(super) keys: u32,
}

/// The course of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    Grow,
    /// In the first half, all changes are puts; in the second half, most are deletions.
    Shrink,
}

impl Act {
    /// Returns the number of changes that the act makes.
    fn changes(&self) -> u64 {
        match self {
            Act::Write(record) | Act::Transaction(record) => record.len() as u64,
            Act::Clear(record) => 1 + record.len() as u64,
            _ => 0,
        }
    }
}

pub(super) fn script(seed: u64, size: Size, plan: Plan) -> Script {
    let keys = size.keys;
    let mut random = Numbers::new(seed);
    let mut acts = Vec::new();
    let (mut changes, mut ends) = (Vec::new(), BTreeSet::from([0]));
    while acts.len() < size.acts {
        let shrinks = plan == Plan::Shrink && acts.len() > size.acts / 2;
        let act = match random.below(100) {
            0..60 => {
                let is_long = shrinks || random.below(3) == 0;
                let count = if is_long { 1 + random.below(30) } else { 1 };
                let mut change = || {
                    let mut change = random.change(keys, acts.len() as u64);
                    if plan == Plan::Shrink {
                        let value = (!shrinks || random.below(30) == 0).then(|| random.value());
                        (change.value, change.expires_at) = (value, None);
                    }
                    change
                };
                let record: Vec<Written> = (0..count).map(|_| change()).collect();
                if is_long { in_some_way(record, &mut random) } else { Act::Write(record) }
            }
            60..62 => Act::Wait(1 + u64::from(random.below(40))),
            62..64 if plan == Plan::Grow => {
                let count = random.below(2) * random.below(20);
                let change = |_| random.change(keys, acts.len() as u64);
                Act::Clear((0..count).map(change).collect())
            }
            62..72 => Act::Sync,
            72..77 => Act::Checkpoint,
            77..79 => Act::Compact,
            79..97 => Act::Get(random.key(keys)),
            _ => Act::Reopen,
        };
        match &act {
            Act::Write(record) | Act::Transaction(record) => {
                changes.extend(record.iter().cloned().map(Some));
            }
            Act::Clear(record) => {
                changes.push(None);
                changes.extend(record.iter().cloned().map(Some));
            }
            _ => {}
        }
        ends.insert(changes.len() as u64);
        acts.push(act);
    }
    acts.push(Act::Compact);
    Script { seed, acts, changes, ends, plan, durability: Durability::Buffered, devices: 1 }
}

/// Returns an act that writes a record, or writes it in vain.
fn in_some_way(mut record: Vec<Written>, random: &mut Numbers) -> Act {
    let way = random.below(8);
    if way >= 4 {
        return Act::Write(record);
    }
    let mut keys = BTreeSet::new();
    record.retain(|change| keys.insert(change.key.clone()));
    if way == 3 { Act::Abandon(record) } else { Act::Transaction(record) }
}

impl Script {
    /// Returns the folders of all devices but the first.
    fn folders(&self) -> Vec<String> {
        (1..self.devices).map(|i| format!("device-{i}")).collect()
    }

    /// Returns what power cuts at one moment leave.
    pub(super) fn after_power_cut(&self, faulty: &FaultyDisk, seed: u64) -> MemoryDisk {
        match self.devices {
            1 => faulty.after_power_cut(seed),
            _ => faulty.after_power_cut_of_devices(seed),
        }
    }

    /// Returns the entries after the first `seq` changes.
    pub(super) fn model(&self, seq: u64) -> Timed {
        let mut model = Timed::default();
        for change in &self.changes[..seq as usize] {
            match change {
                Some(change) => model.apply(change.as_write()),
                None => model.clear(),
            }
        }
        model
    }

    /// Returns the act that comes after the first `seq` changes.
    fn act_after(&self, seq: u64) -> usize {
        let mut count = 0;
        let is_next = |act: &Act| {
            let is_next = act.changes() > 0 && count == seq;
            count += act.changes();
            is_next
        };
        self.acts.iter().position(is_next).unwrap_or(self.acts.len())
    }
}

pub(super) fn options(disk: &Arc<dyn Disk>, clock: &ManualClock) -> MapOptions {
    options_with(disk, Arc::new(Inline), clock)
}

fn options_with(
    disk: &Arc<dyn Disk>,
    executor: Arc<dyn Executor>,
    clock: &ManualClock,
) -> MapOptions {
    let clock = Arc::new(clock.clone());
    let options = tiny(Env { disk: disk.clone(), executor, clock, ..Env::simulated(1) });
    let shape = options::Shape { buffer_bytes: 10 << 10, transaction_bytes: 1500, ..options.shape };
    MapOptions { shape, wal_bytes: 12 << 10, ..options }.durability(Durability::Buffered)
}

/// A script that is being run.
pub(super) struct Session<'a> {
    script: &'a Script,
    pub(super) faulty: FaultyDisk,
    disk: Arc<dyn Disk>,
    executor: Arc<dyn Executor>,
    pub(super) clock: ManualClock,
    pub(super) map: Option<Map>,
    /// Index of the next act.
    next: usize,
    /// Changes before this sequence number were acknowledged as durable.
    pub(super) durable: u64,
    /// Whether a map was made.
    pub(super) is_made: bool,
    /// The largest number of groups that the map had.
    groups_max: u64,
    /// Number of transactions that were applied in part only.
    partial: u64,
}

impl<'a> Session<'a> {
    pub(super) fn new(script: &'a Script, faults: Vec<Fault>) -> Session<'a> {
        Session::over(script, &MemoryDisk::default(), faults)
    }

    /// Makes a session that goes on with what is on a disk.
    pub(super) fn over(script: &'a Script, left: &MemoryDisk, faults: Vec<Fault>) -> Session<'a> {
        let faulty = FaultyDisk::over(left, FaultPlan { seed: 1, faults });
        let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
        let (executor, clock) = (Arc::new(Inline), ManualClock::new(1));
        Session {
            script,
            faulty,
            disk,
            executor,
            clock,
            map: None,
            next: 0,
            durable: 0,
            is_made: false,
            groups_max: 0,
            partial: 0,
        }
    }

    fn options(&self) -> MapOptions {
        let options = options_with(&self.disk, self.executor.clone(), &self.clock);
        let random = Arc::new(SeededRandom::new(self.script.seed));
        let env = Env { random, ..options.env.clone() };
        let options = options.env(env).durability(self.script.durability);
        // Every other time, the manifest says where the devices are.
        let says = !self.is_made || self.next.is_multiple_of(2);
        if says { options.devices(self.script.folders()) } else { options }
    }

    pub(super) fn now(&self) -> u64 {
        self.clock.now().as_millis() as u64
    }

    /// Runs the script to its end, or to the first error.
    pub(super) fn go_on(&mut self) -> Result<()> {
        loop {
            if self.map.is_none() {
                let map = Map::open_or_create_with(folder(), self.options())?;
                let seq = map.seq();
                assert!(seq >= self.durable && self.script.ends.contains(&seq), "{seq}");
                self.next = self.script.act_after(seq);
                (self.map, self.is_made) = (Some(map), true);
            }
            let Some(act) = self.script.acts.get(self.next) else { return Ok(()) };
            let map = self.map.as_ref().unwrap();
            if matches!(act, Act::Reopen) {
                let seq = map.seq();
                self.map.take().unwrap().close()?;
                self.durable = seq;
                self.next += 1;
                let map = Map::open_with(folder(), self.options())?;
                assert_eq!(map.seq(), seq);
                self.map = Some(map);
                continue;
            }
            let before = map.seq();
            let result = self.perform(map, act);
            self.groups_max = self.groups_max.max(map.stat().groups);
            self.durable = self.durable.max(map.durable_seq());
            // A change is applied as a whole, also if a later step fails.
            let changed = map.seq() - before;
            assert!(changed == act.changes() || changed == 0 && result.is_err());
            self.next += usize::from(changed > 0);
            result?;
            self.next += usize::from(act.changes() == 0);
        }
    }

    fn perform(&self, map: &Map, act: &'a Act) -> Result<()> {
        match act {
            Act::Write(record) => {
                let changes: Vec<Write<'_>> = record.iter().map(Written::as_write).collect();
                map.write(&changes).map(drop)
            }
            Act::Transaction(record) => self.transaction(map, record)?.commit().map(drop),
            Act::Abandon(record) => self.transaction(map, record).map(drop),
            Act::Clear(record) => {
                let changes: Vec<Write<'_>> = record.iter().map(Written::as_write).collect();
                map.prepare_cleared(&changes)?.apply().map(drop)
            }
            Act::Wait(milliseconds) => {
                self.clock.advance(Duration::from_millis(*milliseconds));
                Ok(())
            }
            Act::Sync => map.sync(),
            Act::Checkpoint => map.checkpoint(),
            Act::Compact => map.compact(),
            Act::Get(key) => {
                let found = map.get_expiring(key)?;
                assert_eq!(found.as_ref(), self.script.model(map.seq()).get(key, self.now()));
                Ok(())
            }
            Act::Reopen => unreachable!("the caller does it"),
        }
    }

    /// Begins a transaction, writes in it, and reads what it has written.
    fn transaction(&self, map: &Map, record: &[Written]) -> Result<Transaction> {
        let mut transaction = map.transaction();
        let mut model = Timed::default();
        for change in record.iter().map(Written::as_write) {
            transaction.write(change)?;
            model.apply(change);
        }
        for Written { key, .. } in record.iter().step_by(3) {
            let found = transaction.get_expiring(key)?;
            assert_eq!(found.as_ref(), model.get(key, self.now()));
        }
        Ok(transaction)
    }

    /// Checks the map that is left on a disk, and changes it.
    #[track_caller]
    fn check_left(&self, disk: MemoryDisk, moment: &str) {
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let map = match Map::open_with(folder(), options(&disk, &self.clock)) {
            Ok(map) => map,
            Err(error) => {
                assert!(error.is_absent() && !self.is_made, "{moment}: {error}");
                let options = options(&disk, &self.clock).devices(self.script.folders());
                Map::create(folder(), options).unwrap()
            }
        };
        let seq = map.seq();
        assert!(seq >= self.durable, "{moment}: {seq} changes are left of {}", self.durable);
        assert!(self.script.ends.contains(&seq), "{moment}: a part of a record: {seq}");
        let mut model = self.script.model(seq);
        check_timed(&map, (&model, self.now()), KEYS, moment);
        let mut random = Numbers::new(seq + 77);
        for _ in 0..10 {
            let (key, value) = (random.key(KEYS), random.value());
            map.put(&key, &value).unwrap();
            model.apply(Write::put(&key, &value));
        }
        map.close().unwrap();
        check_names(&disk, 1, moment);
        let map = Map::open_with(folder(), options(&disk, &self.clock)).unwrap();
        check_timed(&map, (&model, self.now()), KEYS, moment);
    }

    /// Runs the rest of the script, with another attempt after each error. The disk works again.
    #[track_caller]
    fn finish(&mut self, moment: &str) {
        for _ in 0..ATTEMPTS_MAX {
            let result = self.go_on();
            self.faulty.heal();
            match result {
                Ok(()) => {
                    let map = self.map.take().unwrap();
                    let model = self.script.model(self.script.changes.len() as u64);
                    check_timed(&map, (&model, self.now()), KEYS, moment);
                    map.close().unwrap();
                    // A segment that could not be recycled stays until the map is opened again.
                    check_names(&self.disk, 2, moment);
                    return;
                }
                Err(error) => {
                    assert!(
                        matches!(error.class(), ErrorClass::Io | ErrorClass::Damage),
                        "{error}"
                    );
                    if self.map.as_ref().is_some_and(|map| map.core().check_whole().is_err()) {
                        // A transaction is applied in part, and reads are refused.
                        self.partial += 1;
                        assert!(self.map.take().unwrap().get("key").is_err());
                        continue;
                    }
                    self.check_reads(moment);
                    if matches!(error.kind(), ErrorKind::FailedBefore { .. }) {
                        self.map = None;
                    }
                }
            }
        }
        panic!("{moment}: it does not work again");
    }

    /// Checks that reads go on after a failure.
    #[track_caller]
    fn check_reads(&self, moment: &str) {
        if let Some(map) = &self.map {
            check_timed(map, (&self.script.model(map.seq()), self.now()), KEYS, moment);
        }
    }
}

/// Checks that no file is left over, and at most `logs_max` segments of the log.
#[track_caller]
pub(super) fn check_names(disk: &Arc<dyn Disk>, logs_max: usize, moment: &str) {
    let mut names = disk.list(folder()).unwrap();
    names.retain(|name| name != devices::DEVICE_NAME);
    for other in disk.list(Path::new("")).unwrap() {
        if other.starts_with("device-") {
            let names = disk.list(Path::new(&other)).unwrap();
            assert_eq!(names, ["map-data", "map-device"], "{moment}: {other}");
        }
    }
    let count = |prefix: &str| names.iter().filter(|name| name.starts_with(prefix)).count();
    let logs = count("wal-");
    assert_eq!((count("catalog-"), count("map-data"), count("MANIFEST")), (1, 1, 1), "{moment}");
    assert!(logs <= logs_max && names.len() == 3 + logs, "{moment}: {names:?}");
}

/// Power cuts during a backup leave a whole copy or no map, and another backup works.
#[test]
fn a_power_cut_during_a_backup_leaves_a_whole_copy_or_none() {
    let script = script(4, Size { acts: 60, keys: KEYS }, Plan::Grow);
    let mut session = Session::new(&script, Vec::new());
    session.go_on().unwrap();
    drop(session.map.take());
    let clock = session.clock.clone();
    let model = script.model(script.changes.len() as u64).at(session.now());
    let options = |disk: &Arc<dyn Disk>| options(disk, &clock);
    let made = session.faulty.snapshot();
    let (mut copies, mut cuts) = (0, 0);
    for operation in 0.. {
        let faulty = FaultyDisk::over(&made, Fault::PowerCut { operation }.into());
        let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
        let back_up = |disk: &Arc<dyn Disk>| {
            Map::open_with(folder(), options(disk))?.backup("copy", &Watch::default())
        };
        if back_up(&disk).is_ok() {
            assert!(cuts > 15 && copies > 0, "{cuts} {copies}");
            return;
        }
        cuts += 1;
        let left: Arc<dyn Disk> = Arc::new(faulty.after_power_cut(operation));
        let moment = format!("power cut at {operation} of a backup");
        match Map::open_with("copy", options(&left)) {
            Ok(copy) => {
                copies += 1;
                check(&copy, &model, KEYS, &moment);
            }
            Err(error) => {
                assert!(error.is_absent(), "{moment}: {error}");
                back_up(&left).unwrap();
                check(&Map::open_with("copy", options(&left)).unwrap(), &model, KEYS, &moment);
            }
        }
        check(&Map::open_with(folder(), options(&left)).unwrap(), &model, KEYS, &moment);
    }
}

fn scripts() -> Vec<Script> {
    let plans = [Plan::Grow, Plan::Grow, Plan::Shrink];
    let size = Size { acts: 200, keys: KEYS };
    (1..).zip(plans).map(|(seed, plan)| script(seed, size, plan)).collect()
}

/// Returns scripts for maps on two and three devices.
fn scripts_of_devices() -> Vec<Script> {
    let plans = [(2, Plan::Grow), (3, Plan::Shrink)];
    let size = Size { acts: 200, keys: KEYS };
    let scripts = (9..).zip(plans);
    scripts.map(|(seed, (devices, plan))| Script { devices, ..script(seed, size, plan) }).collect()
}

/// Returns the number of operations, of writes and of reads in a whole session.
fn operations(script: &Script) -> u64 {
    let mut session = Session::new(script, Vec::new());
    session.go_on().unwrap();
    let stats = session.map.as_ref().unwrap().stat();
    assert!(session.groups_max > 1, "{stats:?}");
    assert!(script.plan == Plan::Grow || session.groups_max > stats.groups, "{stats:?}");
    session.faulty.operations()
}

#[test]
fn a_power_cut_at_any_operation_loses_nothing_that_was_acknowledged() {
    cut_at_any_operation(&scripts());
}

/// The devices lose their unsynced writes independently of each other.
#[test]
fn a_power_cut_of_several_devices_loses_nothing_that_was_acknowledged() {
    cut_at_any_operation(&scripts_of_devices());
}

fn cut_at_any_operation(scripts: &[Script]) {
    for (i, script) in scripts.iter().enumerate() {
        let operations = operations(script);
        assert!(operations > 300, "{operations}");
        for operation in 0..operations {
            let mut session = Session::new(script, vec![Fault::PowerCut { operation }]);
            let result = session.go_on();
            let message = result.err().map(|error| error.to_string());
            drop(session.map.take());
            for seed in [2 * operation, 2 * operation + 1] {
                let moment =
                    format!("script {i}, power cut at {operation}, seed {seed}: {message:?}");
                session.check_left(script.after_power_cut(&session.faulty, seed), &moment);
            }
            if operation % 4 == 0 {
                let moment = format!("script {i}, killed at {operation}: {message:?}");
                session.check_left(session.faulty.snapshot(), &moment);
            }
        }
    }
}

/// Background jobs run at other times in each run, so the operation at which the power fails is
/// another one, too. The result must be right in any case.
#[test]
fn a_power_cut_beside_background_jobs_loses_nothing_that_was_acknowledged() {
    for (i, script) in scripts().iter().enumerate() {
        for operation in (0..operations(script)).step_by(7) {
            let mut session = Session::new(script, vec![Fault::PowerCut { operation }]);
            session.executor = Arc::new(Late::new(2, Seed(operation)));
            let result = session.go_on();
            let message = result.err().map(|error| error.to_string());
            drop(session.map.take());
            for seed in [operation, operation + 1] {
                let moment =
                    format!("script {i}, power cut at {operation}, seed {seed}: {message:?}");
                session.check_left(script.after_power_cut(&session.faulty, seed), &moment);
            }
        }
    }
}

#[test]
fn a_power_cut_during_recovery_loses_nothing_either() {
    let script = &scripts()[0];
    let operations = operations(script);
    let mut cuts = 0;
    for operation in (0..operations).step_by(9) {
        let mut session = Session::new(script, vec![Fault::PowerCut { operation }]);
        let _ = session.go_on();
        drop(session.map.take());
        let left = session.faulty.after_power_cut(operation);
        for second in 0.. {
            let fault = Fault::PowerCut { operation: second };
            let faulty = FaultyDisk::over(&left, fault.into());
            let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
            let opened = Map::open_or_create_with(folder(), options(&disk, &session.clock));
            let done = opened.and_then(|map| {
                map.put("second", "life")?;
                map.delete("second")?;
                map.close()
            });
            if done.is_ok() {
                break;
            }
            cuts += 1;
            let moment = format!("power cuts at {operation} and at {second} of recovery");
            check_second(&session, faulty.after_power_cut(second), &moment);
        }
    }
    assert!(cuts > 200, "{cuts}");
}

/// Checks the map after a second power cut. The two changes of the recovered map cancel each other.
#[track_caller]
fn check_second(session: &Session<'_>, disk: MemoryDisk, moment: &str) {
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let map = match Map::open_with(folder(), options(&disk, &session.clock)) {
        Ok(map) => map,
        Err(error) => {
            assert!(error.is_absent() && !session.is_made, "{moment}: {error}");
            return;
        }
    };
    let seq = map.seq();
    assert!(seq >= session.durable, "{moment}");
    map.delete("second").unwrap();
    let is_model = |seq: &u64| {
        let model = session.script.model(*seq);
        (0..KEYS).all(|i| {
            let key = Numbers::new(u64::from(i)).key(KEYS);
            map.get_expiring(&key).unwrap().as_ref() == model.get(&key, session.now())
        })
    };
    let candidates = session.script.ends.range(session.durable..=seq);
    assert!(candidates.rev().take(3).any(is_model), "{moment}: seq {seq}");
    assert!(map.verify(&Watch::default()).unwrap().is_sound(), "{moment}");
    map.close().unwrap();
}

#[test]
fn a_failure_of_any_operation_is_returned_and_loses_nothing() {
    for script in [&scripts()[1], &scripts_of_devices()[0]] {
        for operation in 0..operations(script) {
            let mut session = Session::new(script, vec![Fault::Failure { operation }]);
            session.finish(&format!("failure at {operation}"));
        }
    }
}

#[test]
fn a_full_disk_stops_changes_until_there_is_space_again() {
    fill(&scripts()[2]);
}

/// The files of a map on several devices do not grow at one moment.
#[test]
fn full_devices_stop_changes_until_there_is_space_again() {
    fill(&scripts_of_devices()[1]);
}

fn fill(script: &Script) {
    for write in 0.. {
        let mut session = Session::new(script, vec![Fault::Full { write }]);
        let Err(error) = session.go_on() else {
            assert!(write > 150, "{write}");
            break;
        };
        let moment = format!("disk full from write {write} on: {error}");
        session.check_reads(&moment);
        session.faulty.heal();
        session.finish(&moment);
    }
}

#[test]
fn a_failed_read_is_an_error_and_no_wrong_answer() {
    let script = &scripts()[0];
    let mut partial = 0;
    for read in 0..400 {
        for fault in [Fault::ReadFailure { read }, Fault::ShortRead { read }] {
            let mut session = Session::new(script, vec![fault]);
            session.finish(&format!("{fault:?}"));
            partial += session.partial;
        }
    }
    assert!(partial > 5, "{partial}");
}

/// Processes that end without a checkpoint, one after the other, also on a disk that is full when
/// they begin: no two of them use a number for a write.
#[test]
fn no_number_of_a_write_occurs_twice() {
    let memory = MemoryDisk::default();
    let disk: Arc<dyn Disk> = Arc::new(memory.clone());
    let clock = ManualClock::new(1);
    let mut random = Numbers::new(40);
    let map = Map::create(folder(), options(&disk, &clock)).unwrap();
    let mut left = memory;
    let by_creator = 1..map.core().next_write();
    let mut used = Vec::from([by_creator]);
    drop(map);
    for process in 0..12_u64 {
        let is_full = process % 4 == 3;
        let faults = if is_full { vec![Fault::Full { write: 0 }] } else { Vec::new() };
        let faulty = FaultyDisk::over(&left, FaultPlan { seed: 1, faults });
        let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
        let options = options(&disk, &clock);
        // A full disk has no room for changes of the log that RAM cannot hold.
        let shape = options::Shape { buffer_bytes: 14 << 10, ..options.shape };
        let options = MapOptions { wal_bytes: 1 << 30, shape, ..options };
        let map = Map::open_with(folder(), options).unwrap();
        // As before the first write.
        checkpoint::own_numbers(map.core());
        // As if it made so many writes without a checkpoint that they exceed the numbers which the next process skips.
        for _ in 0..process % 5 {
            let first = map.core().next_write();
            map.core().skip_writes(1 << 27);
            used.push(first..map.core().next_write());
            checkpoint::own_numbers(map.core());
        }
        let first = map.core().next_write();
        faulty.heal();
        match process % 3 {
            // Large values whose changes in the log are lost.
            0 => drop(map.put("large", [1; 3000])),
            // Merges of what is there.
            1 => maintain::merge_all(map.core()).unwrap(),
            _ => (0..200).for_each(|_| drop(map.put(random.key(KEYS), random.value()))),
        }
        used.push(first..map.core().next_write());
        left = faulty.after_power_cut(process);
    }
    used.sort_by_key(|range| range.start);
    assert!(used.windows(2).all(|pair| pair[0].end <= pair[1].start), "{used:?}");
    assert!(used.iter().filter(|range| !range.is_empty()).count() >= 8, "{used:?}");
    assert!(map_is_sound(left, &clock));
}

fn map_is_sound(left: MemoryDisk, clock: &ManualClock) -> bool {
    let disk: Arc<dyn Disk> = Arc::new(left);
    let map = Map::open_with(folder(), options(&disk, clock)).unwrap();
    map.verify(&Watch::default()).unwrap().is_sound()
}
