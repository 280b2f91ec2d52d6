//! Crash tests: a map is interrupted at every disk operation by power cuts, failures and full
//! disks, and again while it recovers. Afterwards it holds all acknowledged changes and whole
//! records of the others, up to some moment, and it can be used.

use super::{
    tests::{Model, Numbers, check, folder, tiny},
    *,
};
use crate::{
    env::Env,
    error::{ErrorClass, ErrorKind, Result},
    io::{Disk, Fault, FaultPlan, FaultyDisk, MemoryDisk},
    key::{KeyHash, Seed},
    run::Entry,
    work::{Executor, Inline, Watch, testing::Late},
};
use std::{collections::BTreeSet, sync::Arc};

const KEYS: u32 = 400;
/// Maximum number of attempts to repeat a failed operation.
const ATTEMPTS_MAX: usize = 4;

type Change = (Vec<u8>, Option<Vec<u8>>);

/// An operation on a map.
#[derive(Debug)]
enum Act {
    /// One record of changes.
    Write(Vec<Change>),
    Sync,
    Checkpoint,
    Compact,
    Get(Vec<u8>),
    Reopen,
}

/// The operations of a test, and the changes that they make.
struct Script {
    acts: Vec<Act>,
    changes: Vec<Change>,
    /// Sequence numbers at which a record ends.
    ends: BTreeSet<u64>,
    plan: Plan,
}

/// The course of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    Grow,
    /// In the second half, most changes are deletions.
    Shrink,
}

fn script(seed: u64, count: usize, plan: Plan) -> Script {
    let mut random = Numbers::new(seed);
    let mut acts = Vec::new();
    let (mut changes, mut ends) = (Vec::new(), BTreeSet::from([0]));
    while acts.len() < count {
        let shrinks = plan == Plan::Shrink && acts.len() > count / 2;
        let act = match random.below(100) {
            0..60 => {
                let count = if random.below(3) == 0 { 1 + random.below(30) } else { 1 };
                let mut change = || {
                    let is_put = random.below(4) > 0 && !(shrinks && random.below(8) > 0);
                    let value = is_put.then(|| random.value());
                    (random.key(KEYS), value)
                };
                Act::Write((0..count).map(|_| change()).collect())
            }
            60..72 => Act::Sync,
            72..77 => Act::Checkpoint,
            77..79 => Act::Compact,
            79..97 => Act::Get(random.key(KEYS)),
            _ => Act::Reopen,
        };
        if let Act::Write(record) = &act {
            changes.extend(record.iter().cloned());
            ends.insert(changes.len() as u64);
        }
        acts.push(act);
    }
    Script { acts, changes, ends, plan }
}

impl Script {
    /// Returns the entries after the first `seq` changes.
    fn model(&self, seq: u64) -> Model {
        let mut model = Model::new();
        for (key, value) in &self.changes[..seq as usize] {
            match value {
                Some(value) => drop(model.insert(key.clone(), value.clone())),
                None => drop(model.remove(key)),
            }
        }
        model
    }

    /// Returns the act that comes after the first `seq` changes.
    fn act_after(&self, seq: u64) -> usize {
        let mut count = 0;
        let is_next = |act: &Act| match act {
            Act::Write(_) if count == seq => true,
            Act::Write(record) => {
                count += record.len() as u64;
                false
            }
            _ => false,
        };
        self.acts.iter().position(is_next).unwrap_or(self.acts.len())
    }
}

fn options(disk: &Arc<dyn Disk>) -> MapOptions {
    options_with(disk, Arc::new(Inline))
}

fn options_with(disk: &Arc<dyn Disk>, executor: Arc<dyn Executor>) -> MapOptions {
    let options = tiny(Env { disk: disk.clone(), executor, ..Env::simulated(1) });
    let shape = options::Shape { buffer_bytes: 8 << 10, ..options.shape };
    MapOptions { shape, wal_bytes: 12 << 10, ..options }.durability(Durability::Buffered)
}

/// A script that is being run.
struct Session<'a> {
    script: &'a Script,
    faulty: FaultyDisk,
    disk: Arc<dyn Disk>,
    executor: Arc<dyn Executor>,
    map: Option<Map>,
    /// Index of the next act.
    next: usize,
    /// Changes before this sequence number were acknowledged as durable.
    durable: u64,
    /// Whether a map was made.
    is_made: bool,
    /// The largest number of groups that the map had.
    groups_max: u64,
}

impl<'a> Session<'a> {
    fn new(script: &'a Script, faults: Vec<Fault>) -> Session<'a> {
        let faulty = FaultyDisk::new(FaultPlan { seed: 1, faults });
        let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
        let executor = Arc::new(Inline);
        Session {
            script,
            faulty,
            disk,
            executor,
            map: None,
            next: 0,
            durable: 0,
            is_made: false,
            groups_max: 0,
        }
    }

    fn options(&self) -> MapOptions {
        options_with(&self.disk, self.executor.clone())
    }

    /// Runs the script to its end, or to the first error.
    fn go_on(&mut self) -> Result<()> {
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
            if let Act::Write(record) = act {
                assert!(changed == record.len() as u64 || changed == 0 && result.is_err());
                self.next += usize::from(changed > 0);
            }
            result?;
            self.next += usize::from(!matches!(act, Act::Write(_)));
        }
    }

    fn perform(&self, map: &Map, act: &'a Act) -> Result<()> {
        match act {
            Act::Write(record) => {
                let entry = |(key, value): &'a Change| {
                    let hash = KeyHash::of(key, map.seed());
                    Entry { hash, key, value: value.as_deref() }
                };
                let changes: Vec<Entry<'_>> = record.iter().map(entry).collect();
                write::write(map.core(), &changes).map(drop)
            }
            Act::Sync => map.sync(),
            Act::Checkpoint => map.checkpoint(),
            Act::Compact => map.compact(),
            Act::Get(key) => {
                let found = map.get(key)?;
                assert_eq!(found.as_ref(), self.script.model(map.seq()).get(key));
                Ok(())
            }
            Act::Reopen => unreachable!("the caller does it"),
        }
    }

    /// Checks the map that is left on a disk, and changes it.
    #[track_caller]
    fn check_left(&self, disk: MemoryDisk, moment: &str) {
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let map = match Map::open_with(folder(), options(&disk)) {
            Ok(map) => map,
            Err(error) => {
                assert!(error.is_absent() && !self.is_made, "{moment}: {error}");
                Map::create(folder(), options(&disk)).unwrap()
            }
        };
        let seq = map.seq();
        assert!(seq >= self.durable, "{moment}: {seq} changes are left of {}", self.durable);
        assert!(self.script.ends.contains(&seq), "{moment}: a part of a record: {seq}");
        let mut model = self.script.model(seq);
        check(&map, &model, KEYS, moment);
        let mut random = Numbers::new(seq + 77);
        for _ in 0..10 {
            let (key, value) = (random.key(KEYS), random.value());
            map.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        map.close().unwrap();
        check_names(&disk, 1, moment);
        let map = Map::open_with(folder(), options(&disk)).unwrap();
        check(&map, &model, KEYS, moment);
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
                    check(&map, &model, KEYS, moment);
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
            check(map, &self.script.model(map.seq()), KEYS, moment);
        }
    }
}

/// Checks that no file is left over, and at most `logs_max` segments of the log.
#[track_caller]
fn check_names(disk: &Arc<dyn Disk>, logs_max: usize, moment: &str) {
    let names = disk.list(folder()).unwrap();
    let count = |prefix: &str| names.iter().filter(|name| name.starts_with(prefix)).count();
    let logs = count("wal-");
    assert_eq!((count("catalog-"), count("map-data"), count("MANIFEST")), (1, 1, 1), "{moment}");
    assert!(logs <= logs_max && names.len() == 3 + logs, "{moment}: {names:?}");
}

/// Power cuts during a backup leave a whole copy or no map, and another backup works.
#[test]
fn a_power_cut_during_a_backup_leaves_a_whole_copy_or_none() {
    let script = script(4, 60, Plan::Grow);
    let mut session = Session::new(&script, Vec::new());
    session.go_on().unwrap();
    drop(session.map.take());
    let model = script.model(script.changes.len() as u64);
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
    (1..).zip(plans).map(|(seed, plan)| script(seed, 200, plan)).collect()
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
    for (i, script) in scripts().iter().enumerate() {
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
                session.check_left(session.faulty.after_power_cut(seed), &moment);
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
                session.check_left(session.faulty.after_power_cut(seed), &moment);
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
            let opened = Map::open_or_create_with(folder(), options(&disk));
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
    let map = match Map::open_with(folder(), options(&disk)) {
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
            map.get(&key).unwrap().as_ref() == model.get(&key)
        })
    };
    let candidates = session.script.ends.range(session.durable..=seq);
    assert!(candidates.rev().take(3).any(is_model), "{moment}: seq {seq}");
    assert!(map.verify(&Watch::default()).unwrap().is_sound(), "{moment}");
    map.close().unwrap();
}

#[test]
fn a_failure_of_any_operation_is_returned_and_loses_nothing() {
    let script = &scripts()[1];
    for operation in 0..operations(script) {
        let mut session = Session::new(script, vec![Fault::Failure { operation }]);
        session.finish(&format!("failure at {operation}"));
    }
}

#[test]
fn a_full_disk_stops_changes_until_there_is_space_again() {
    let script = &scripts()[2];
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
    for read in 0..400 {
        for fault in [Fault::ReadFailure { read }, Fault::ShortRead { read }] {
            let mut session = Session::new(script, vec![fault]);
            session.finish(&format!("{fault:?}"));
        }
    }
}
