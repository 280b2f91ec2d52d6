//! Crash tests: a filter is interrupted at every point by power cuts, failures and full disks.
//! Afterwards, it holds all acknowledged changes and a prefix of the others, no file is left over,
//! and it can be used.

use super::{memtable::Change, *};
use crate::{
    env::Env,
    error::{Error, ErrorKind, Result},
    filter::{Mode, PackedRun},
    fingerprints::{FingerprintBatch, Fingerprints, Universe},
    io::{Access, Disk, Fault, FaultPlan, FaultyDisk, MemoryDisk},
    key::{KeyHash, Seed},
    work::{Executor, Inline, Watch, testing::Late},
};
use std::{path::Path, sync::Arc};

const SEED: Seed = Seed(1);
/// Keys of the scripts are below this number.
const KEYS: u32 = 5000;
/// Maximum number of attempts to repeat a failed operation once the disk works again.
const ATTEMPTS_MAX: usize = 3;

pub(super) fn folder() -> &'static Path {
    Path::new("filter")
}

fn hash(key: u32) -> KeyHash {
    KeyHash::of(&key.to_le_bytes(), SEED)
}

/// An operation on a filter.
#[derive(Clone, Debug)]
enum Act {
    Apply(Change, Vec<u32>),
    Sync,
    Flush,
    Merge,
    /// Waits until no merge is due.
    Settle,
    Advance,
    /// Expires all epochs before this epoch.
    Expire(u64),
    /// Inserts a run with these keys.
    Insert(Vec<u32>),
    Query,
}

/// The operations of a test, from the creation of the filter on.
pub(super) struct Script {
    mode: Mode,
    universe: Universe,
    log: bool,
    upper_percent: u32,
    threads: usize,
    acts: Vec<Act>,
}

/// The expected content of a filter: counts of keys, epoch by epoch, newest first.
struct Model {
    mode: Mode,
    epochs: Vec<(u64, Vec<i64>)>,
}

impl Model {
    fn new(mode: Mode) -> Model {
        Model { mode, epochs: vec![(0, vec![0; KEYS as usize])] }
    }

    fn apply(&mut self, change: Change, keys: &[u32]) {
        let change = if change == Change::Insert { 1 } else { -1 };
        for &key in keys {
            let count = &mut self.epochs[0].1[key as usize];
            *count = if self.mode == Mode::Set { change } else { *count + change };
        }
    }

    /// Applies an operation that is not a change of single keys.
    fn do_other(&mut self, act: &Act) {
        match act {
            Act::Advance => {
                let number = self.epochs[0].0 + 1;
                self.epochs.insert(0, (number, vec![0; KEYS as usize]));
            }
            Act::Expire(first) => self.epochs.retain(|(number, _)| number >= first),
            Act::Insert(keys) => self.apply(Change::Insert, keys),
            Act::Apply(..) | Act::Sync | Act::Flush | Act::Merge | Act::Settle | Act::Query => {}
        }
    }

    fn counts(&self) -> Vec<u64> {
        let count = |key: usize| {
            let mut counts = self.epochs.iter().map(|(_, counts)| counts[key]);
            let count: i64 = match self.mode {
                Mode::Set => counts.find(|&count| count != 0).unwrap_or(0),
                Mode::Multiset => counts.sum(),
            };
            count.max(0).cast_unsigned()
        };
        (0..KEYS as usize).map(count).collect()
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (KeyHash::of(&self.0.to_le_bytes(), Seed(9)).high() % u64::from(bound)) as u32
    }

    fn keys(&mut self, count: u32) -> Vec<u32> {
        (0..count).map(|_| self.below(KEYS)).collect()
    }
}

/// Returns a script that makes files of all kinds, and goes through merges of all kinds.
pub(super) fn script(mode: Mode, log: bool) -> Script {
    let mut random = Random(u64::from(log) + 10 * (mode == Mode::Set) as u64);
    let mut model = Model::new(mode);
    let mut acts = Vec::new();
    for round in 0..64 {
        let count = if round < 12 { 900 } else { 1 + random.below(250) };
        let mut round_acts = vec![Act::Apply(Change::Insert, random.keys(count))];
        let mut gone = random.keys(30);
        gone.sort_unstable();
        gone.dedup();
        gone.retain(|&key| mode == Mode::Set || model.epochs[0].1[key as usize] > 0);
        round_acts.push(Act::Apply(Change::Remove, gone));
        round_acts.extend(match round {
            20 | 50 => Some(Act::Merge),
            25 | 40 => Some(Act::Advance),
            46 => Some(Act::Expire(1)),
            15 | 43 => {
                let mut keys = random.keys(300);
                keys.sort_unstable();
                keys.dedup();
                Some(Act::Insert(keys))
            }
            _ => [None, Some(Act::Sync), Some(Act::Flush), Some(Act::Flush)]
                [random.below(4) as usize]
                .clone(),
        });
        if round % 8 == 5 {
            round_acts.push(Act::Query);
        }
        if round == 10 || round == 34 {
            round_acts.push(Act::Settle);
        }
        for act in &round_acts {
            match act {
                Act::Apply(change, keys) => model.apply(*change, keys),
                other => model.do_other(other),
            }
        }
        acts.extend(round_acts);
    }
    let universe =
        if log { Universe::EXACT } else { Universe::with_size((1 << 44) + 12_345).unwrap() };
    Script { mode, universe, log, upper_percent: 20, threads: 0, acts }
}

pub(super) fn scripts() -> Vec<Script> {
    let modes = [Mode::Set, Mode::Multiset];
    modes.into_iter().flat_map(|mode| [script(mode, false), script(mode, true)]).collect()
}

impl Script {
    fn settings(&self, threads: usize) -> CascadeSettings {
        let pool = || -> Arc<dyn Executor> {
            if threads == 0 { Arc::new(Inline) } else { Arc::new(Late::new(threads, SEED)) }
        };
        CascadeSettings {
            // Enough memory for several merges at once, if there are many threads.
            memory_bytes: if threads > 2 { 256 << 20 } else { MEMORY_MIN },
            upper_percent: self.upper_percent,
            wal: self.log,
            env: Env { executor: pool(), ..Env::simulated(1) },
            ..CascadeSettings::new(Env::simulated(1))
        }
    }

    fn create(&self, disk: &Arc<dyn Disk>) -> Result<CascadeFilter> {
        let options = CascadeOptions {
            mode: self.mode,
            universe: self.universe,
            ..CascadeOptions::exact(SEED, 7)
        };
        CascadeFilter::create(folder(), &options, self.settings(self.threads).on(disk.clone()))
    }

    /// Opens the filter without background threads.
    pub(super) fn open(&self, disk: &Arc<dyn Disk>) -> Result<CascadeFilter> {
        CascadeFilter::open(folder(), self.settings(0).on(disk.clone()))
    }

    /// Returns the counts after the first `seq` changes and the first `done` other operations.
    fn counts(&self, seq: u64, done: usize) -> Vec<u64> {
        let mut model = Model::new(self.mode);
        let mut rest = seq;
        for (i, act) in self.acts.iter().enumerate() {
            match act {
                Act::Apply(change, keys) => {
                    let count = keys.len().min(usize::try_from(rest).unwrap());
                    model.apply(*change, &keys[..count]);
                    rest -= count as u64;
                }
                other if i < done => model.do_other(other),
                _ => {}
            }
        }
        model.counts()
    }
}

/// A script that is being run.
struct Session<'a> {
    script: &'a Script,
    faulty: FaultyDisk,
    disk: Arc<dyn Disk>,
    filter: Option<CascadeFilter>,
    /// Number of finished operations.
    done: usize,
    /// Number of applied changes of the next operation.
    part: usize,
    /// Sequence number of the last change that was acknowledged.
    durable: u64,
}

impl<'a> Session<'a> {
    fn new(script: &'a Script, fault: Option<Fault>) -> Session<'a> {
        let faults = fault.into_iter().collect();
        let faulty = FaultyDisk::new(FaultPlan { seed: 1, faults });
        let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
        Session { script, faulty, disk, filter: None, done: 0, part: 0, durable: 0 }
    }

    /// Runs the script to its end, or to the first error.
    fn go_on(&mut self) -> Result<()> {
        if self.filter.is_none() {
            let is_there = self.disk.exists(&folder().join("MANIFEST"))?;
            let made = if is_there {
                self.script.open(&self.disk)
            } else {
                self.script.create(&self.disk)
            };
            self.filter = Some(made?);
        }
        while self.done < self.script.acts.len() {
            let act = &self.script.acts[self.done];
            let filter = self.filter.as_mut().unwrap();
            let seq = filter.seq();
            let result = perform(self.script, filter, act, self.part);
            self.durable = self.durable.max(filter.durable_seq());
            assert!(self.durable <= filter.seq());
            if result.is_err() && matches!(act, Act::Apply(..)) {
                self.part += (filter.seq() - seq) as usize;
            }
            if matches!(act, Act::Query)
                && let Ok(counts) = &result
            {
                let seq = filter.seq();
                assert!(*counts == self.script.counts(seq, self.done), "wrong answers");
            }
            result?;
            (self.done, self.part) = (self.done + 1, 0);
        }
        Ok(())
    }

    /// Checks the filter after it was interrupted in the middle of an operation.
    #[track_caller]
    fn check_reopened(&self, disk: MemoryDisk, moment: &str) {
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let script = self.script;
        let read = Snapshot::open(&Env::on(disk.clone()), folder(), Access::Cached);
        let filter = match script.open(&disk) {
            Ok(filter) => filter,
            Err(error) => {
                let is_absent = matches!(error.kind(), ErrorKind::Absent);
                assert!(is_absent && self.filter.is_none(), "{moment}: {error}");
                let mut filter = script.create(&disk).unwrap();
                check_next(&disk, &mut filter, vec![0; KEYS as usize], moment);
                return;
            }
        };
        let seq = filter.seq();
        assert!(seq >= self.durable, "{moment}: {seq} changes are left of {}", self.durable);
        assert!(self.filter.as_ref().is_none_or(|filter| seq <= filter.seq()), "{moment}");
        let counts = counts(&filter).unwrap();
        let expected = script.counts(seq, self.done);
        let is_right = counts == expected || counts == script.counts(seq, self.done + 1);
        let wrong = counts.iter().zip(&expected).filter(|(a, b)| a != b).count();
        assert!(is_right, "{moment}: seq {seq}, {wrong} keys are wrong");
        let mut others = vec![0; KEYS as usize];
        read.unwrap().count_batch(&hashes(), &mut others).unwrap();
        assert!(others == counts, "{moment}: readers see something else");
        check_files(&disk, &filter, 0, moment);
        let mut filter = filter;
        check_next(&disk, &mut filter, counts, moment);
    }
}

fn perform(
    script: &Script,
    filter: &mut CascadeFilter,
    act: &Act,
    part: usize,
) -> Result<Vec<u64>> {
    match act {
        Act::Apply(change, keys) => {
            let hashes: Vec<KeyHash> = keys[part..].iter().map(|&key| hash(key)).collect();
            match change {
                Change::Insert => filter.insert_batch(&hashes),
                Change::Remove => filter.remove_batch(&hashes),
            }
        }
        Act::Sync => filter.sync(),
        Act::Flush => filter.flush(),
        Act::Merge => filter.merge(),
        Act::Settle => filter.wait_for_merges(),
        Act::Advance => filter.advance_epoch().map(drop),
        Act::Expire(epoch) => filter.expire_before(*epoch),
        Act::Insert(keys) => {
            let universe = script.universe;
            let mut fingerprints: Vec<u64> =
                keys.iter().map(|&key| universe.fingerprint(hash(key))).collect();
            fingerprints.sort_unstable();
            let batch = FingerprintBatch::from_sorted(fingerprints)?;
            let mut run = batch.into_run(SEED, universe);
            filter.insert_run(&mut run, keys.len() as u64)
        }
        Act::Query => return counts(filter),
    }
    .map(|()| Vec::new())
}

pub(super) fn hashes() -> Vec<KeyHash> {
    (0..KEYS).map(hash).collect()
}

fn counts(filter: &CascadeFilter) -> Result<Vec<u64>> {
    let mut counts = vec![0; KEYS as usize];
    filter.count_batch(&hashes(), &mut counts)?;
    Ok(counts)
}

/// Checks that the folder holds the files of the filter, at most `logs_max` logs, and no other
/// file.
#[track_caller]
fn check_files(disk: &Arc<dyn Disk>, filter: &CascadeFilter, logs_max: usize, moment: &str) {
    let names = disk.list(folder()).unwrap();
    let stats = filter.stats();
    let logs = names.iter().filter(|name| name.starts_with("wal-")).count();
    assert!(logs <= logs_max, "{moment}: {names:?}");
    let runs = (stats.upper_runs + stats.shards) as usize;
    assert_eq!(names.len(), 1 + runs + logs, "{moment}: {names:?}");
}

/// Checks that the filter takes further changes.
#[track_caller]
fn check_next(
    disk: &Arc<dyn Disk>,
    filter: &mut CascadeFilter,
    mut expected: Vec<u64>,
    moment: &str,
) {
    let new: Vec<u32> = (0..KEYS).filter(|&key| expected[key as usize] == 0).take(800).collect();
    filter.insert_batch(&new.iter().map(|&key| hash(key)).collect::<Vec<_>>()).unwrap();
    new.iter().for_each(|&key| expected[key as usize] = 1);
    filter.sync().unwrap();
    filter.merge().unwrap();
    assert!(counts(filter).unwrap() == expected, "{moment}: what comes next");
    check_files(disk, filter, 1, moment);
    let report = verify(&Env::on(disk.clone()), folder(), &Watch::default()).unwrap();
    assert!(report.is_sound(), "{moment}: {}", report.damage[0]);
}

/// Returns some of the first `count` moments, a part of `step`: others for another value of the
/// environment variable `HASHFOLD_TEST_SEED`. Each is named where a check fails.
fn some(count: u64, step: u64) -> impl Iterator<Item = u64> {
    let seed = std::env::var("HASHFOLD_TEST_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    (seed.unwrap_or(0) % step..count).step_by(step as usize)
}

/// Returns the number of disk operations in a whole session.
fn operations(script: &Script) -> u64 {
    let mut session = Session::new(script, None);
    session.go_on().unwrap();
    session.faulty.operations()
}

fn check_power_cut(script: &Script, operation: u64) {
    let mut session = Session::new(script, Some(Fault::PowerCut { operation }));
    let result = session.go_on();
    if let Some(filter) = &session.filter {
        session.durable = session.durable.max(filter.durable_seq());
    }
    for seed in 2 * operation..2 * operation + 2 {
        let moment = format!(
            "{:?}, log {}, power cut at {operation}, seed {seed}, at act {} {:?}",
            script.mode,
            script.log,
            session.done,
            result.as_ref().err().map(ToString::to_string)
        );
        session.check_reopened(session.faulty.after_power_cut(seed), &moment);
    }
    // A killed process loses no write that reached the page cache.
    let moment = format!("{:?}, log {}, killed at {operation}", script.mode, script.log);
    session.check_reopened(session.faulty.snapshot(), &moment);
}

#[test]
fn a_power_cut_at_any_moment_loses_nothing_that_was_acknowledged() {
    for script in &scripts() {
        let operations = operations(script);
        println!("{operations} operations");
        assert!(operations > 500);
        for operation in some(operations, 67) {
            check_power_cut(script, operation);
        }
    }
}

#[test]
#[ignore = "takes minutes"]
fn a_power_cut_at_each_moment_loses_nothing_that_was_acknowledged() {
    for script in &scripts() {
        for operation in 0..operations(script) {
            check_power_cut(script, operation);
        }
    }
}

/// Checks that the rest of the script succeeds once the disk works again.
fn check_recovers(session: &mut Session<'_>, moment: &str) {
    session.faulty.heal();
    for _ in 0..ATTEMPTS_MAX {
        if session.go_on().is_ok() {
            break;
        }
    }
    session.go_on().unwrap_or_else(|error| panic!("{moment}: {error}"));
    let script = session.script;
    let filter = session.filter.as_mut().unwrap();
    filter.flush().unwrap();
    assert_eq!(filter.durable_seq(), filter.seq());
    let expected = script.counts(u64::MAX >> 1, script.acts.len());
    assert!(counts(filter).unwrap() == expected, "{moment}: all of it");
    check_next(&session.disk, filter, expected, moment);
}

fn check_failure(script: &Script, fault: Fault) {
    let mut session = Session::new(script, Some(fault));
    let result = session.go_on();
    let moment = format!(
        "{:?}, log {}, {fault:?}, at act {} {:?}",
        script.mode,
        script.log,
        session.done,
        result.as_ref().err().map(ToString::to_string)
    );
    if let (Err(_), Some(_)) = (&result, &session.filter) {
        session.check_reopened(session.faulty.after_power_cut(3), &moment);
        session.check_reopened(session.faulty.snapshot(), &moment);
    }
    if matches!(fault, Fault::Full { .. } | Fault::FullAfter { .. }) && session.filter.is_some() {
        let count = || session.disk.list(folder()).unwrap().len();
        let files = count();
        let mut session =
            Session { faulty: session.faulty.clone(), disk: session.disk.clone(), ..session };
        for _ in 0..10 {
            let _ = session.go_on();
        }
        let now = session.disk.list(folder()).unwrap().len();
        assert!(now <= files + 1, "{moment}: {now} files, {files} before");
        check_recovers(&mut session, &moment);
        return;
    }
    check_recovers(&mut session, &moment);
}

#[test]
fn a_failure_at_any_moment_loses_nothing() {
    for script in &scripts() {
        for operation in some(operations(script), 71) {
            check_failure(script, Fault::Failure { operation });
        }
    }
}

#[test]
#[ignore = "takes minutes"]
fn a_failure_at_each_moment_loses_nothing() {
    for script in &scripts() {
        for operation in 0..operations(script) {
            check_failure(script, Fault::Failure { operation });
        }
    }
}

#[test]
fn a_full_disk_loses_nothing_and_files_do_not_pile_up() {
    for (i, script) in scripts().iter().enumerate() {
        let mut session = Session::new(script, None);
        session.go_on().unwrap();
        for write in (3 + i as u64..400).step_by(83) {
            check_failure(script, Fault::Full { write });
        }
        for bytes in (40_000 + 1000 * i as u64..2_000_000).step_by(470_001) {
            check_failure(script, Fault::FullAfter { bytes });
        }
    }
}

/// Without a log, a full disk causes an error only when the memory is full.
#[test]
fn a_full_disk_is_an_error_when_the_memory_is_full() {
    let script = &script(Mode::Set, false);
    let mut session = Session::new(script, None);
    session.filter = Some(script.create(&session.disk).unwrap());
    let full = FaultPlan::from(Fault::Full { write: 0 });
    let faulty = FaultyDisk::over(&session.faulty.snapshot(), full);
    session.filter = None;
    let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
    let mut filter = script.open(&disk).unwrap();
    let all = hashes();
    let mut errors = Vec::new();
    for hash in &all {
        if let Err(error) = filter.insert(*hash) {
            errors.push(error);
        }
    }
    // Four runs in RAM wait to be flushed, and a memtable is full.
    let seq = filter.seq() as usize;
    assert!((3000..4500).contains(&seq), "{seq} seq");
    assert_eq!(seq + errors.len(), all.len());
    let is_full = |error: &Error| error.to_string().contains("No space left");
    assert!(errors.iter().all(is_full), "{}", errors[0]);
    assert_eq!(filter.durable_seq(), 0);
    let mut found = vec![false; all.len()];
    filter.contains_batch(&all, &mut found).unwrap();
    assert_eq!(found.iter().filter(|found| **found).count(), seq);
    assert!(disk.list(folder()).unwrap().len() <= 2);
    faulty.heal();
    filter.insert_batch(&all[seq..]).unwrap();
    check_next(&disk, &mut filter, vec![1; KEYS as usize], "after a full disk");
}

/// Returns a filter with a log, on a disk with these faults. One key was inserted many times, so
/// its first log segment is full before its first memtable; then `keys` other keys were inserted.
fn with_two_logs(keys: u32, faults: Vec<Fault>) -> (FaultyDisk, CascadeFilter) {
    let faulty = FaultyDisk::new(FaultPlan { seed: 1, faults });
    let mut filter = script(Mode::Set, true).create(&(Arc::new(faulty.clone()) as _)).unwrap();
    (0..1500).for_each(|_| filter.insert(hash(KEYS)).unwrap());
    (0..keys).for_each(|key| filter.insert(hash(key)).unwrap());
    (faulty, filter)
}

/// A gap in a log persists: later changes are not acknowledged until runs hold the missing changes.
#[test]
fn a_gap_in_a_log_persists_until_runs_close_it() {
    // Two memtables are full, and are flushed at the next change. The second segment is in use.
    let (_, mut filter) = with_two_logs(0, Vec::new());
    let mut keys = 0;
    while filter.view().seq == 0 {
        filter.insert(hash(keys)).unwrap();
        keys += 1;
    }
    assert_eq!(filter.view().seq + 1, filter.seq());
    let (faulty, mut filter) = with_two_logs(keys - 1, Vec::new());
    let before = filter.seq();
    let start = faulty.operations();
    filter.remove(hash(3)).unwrap();
    let end = faulty.operations();
    // The fault is at each write of the removal in turn, then at each write that repairs the log.
    for first in start..end {
        for second in first + 1..first + 16 {
            let failures = [first, second].map(|operation| Fault::Failure { operation });
            let (faulty, mut filter) = with_two_logs(keys - 1, failures.to_vec());
            let removed = filter.remove(hash(3));
            let seq = filter.seq();
            let _ = filter.sync();
            let _ = filter.insert(hash(KEYS + 1));
            let _ = filter.sync();
            let disk: Arc<dyn Disk> = Arc::new(faulty.after_power_cut(1));
            let moment = format!("failures at {first} and {second}, {removed:?}");
            let left = script(Mode::Set, true).open(&disk);
            let left = left.unwrap_or_else(|error| panic!("{moment}: {error}"));
            assert!(left.seq() >= filter.durable_seq(), "{moment}");
            let is_gone = seq > before && left.seq() >= seq;
            assert_eq!(left.contains(hash(3)).unwrap(), !is_gone, "{moment}");
        }
    }
}

/// Returns the disk of a filter with runs of all kinds and with logs, and the counts of its keys.
pub(super) fn left_behind(script: &Script) -> (MemoryDisk, Vec<u64>) {
    let mut session = Session::new(script, None);
    let acts = script.acts.len();
    session.go_on().unwrap();
    let filter = session.filter.as_mut().unwrap();
    filter.insert_batch(&[hash(1)]).unwrap();
    filter.sync().unwrap();
    filter.insert_batch(&[hash(2)]).unwrap();
    filter.sync().unwrap();
    let mut counts = script.counts(u64::MAX >> 1, acts);
    for key in [1, 2] {
        counts[key] = if script.mode == Mode::Set { 1 } else { counts[key] + 1 };
    }
    (session.faulty.snapshot(), counts)
}

/// Checks that a read fault while a filter is opened and used causes an error, or no wrong answer.
fn check_read_fault(script: &Script, left: &MemoryDisk, expected: &[u64], fault: Fault) -> bool {
    let faulty = FaultyDisk::over(left, FaultPlan { seed: 7, faults: vec![fault] });
    let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
    let use_it = || -> Result<()> {
        let snapshot = Snapshot::open(&Env::on(disk.clone()), folder(), Access::Cached)?;
        let mut others = vec![0; KEYS as usize];
        snapshot.count_batch(&hashes(), &mut others)?;
        assert!(others == expected, "{fault:?}: readers get a wrong answer");
        let mut filter = script.open(&disk)?;
        assert!(counts(&filter)? == expected, "{fault:?}: a wrong answer");
        filter.merge()?;
        assert!(counts(&filter)? == expected, "{fault:?}: wrong when all is merged");
        let report = verify(&Env::on(disk.clone()), folder(), &Watch::default())?;
        match report.damage.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    };
    let failed = use_it().is_err();
    faulty.heal();
    let mut filter = script.open(&disk).unwrap();
    assert!(counts(&filter).unwrap() == expected, "{fault:?}: lost");
    check_next(&disk, &mut filter, expected.to_vec(), &format!("{fault:?}"));
    failed
}

#[test]
fn reads_that_go_wrong_give_an_error_or_the_right_answer() {
    for script in &scripts() {
        let (left, counts) = left_behind(script);
        let faults: [fn(u64) -> Fault; 3] = [
            |read| Fault::ReadFailure { read },
            |read| Fault::ShortRead { read },
            |read| Fault::FlippedBit { read },
        ];
        let mut failed = 0;
        for read in 0..60 {
            let fault = faults[(read % 3) as usize];
            failed += usize::from(check_read_fault(script, &left, &counts, fault(read * 2)));
        }
        println!("{failed} failed");
        assert!(failed >= 5);
    }
}

/// Background jobs run on threads, with up to four concurrent merges that end and publish in any
/// order.
#[test]
fn nothing_is_lost_with_work_in_the_background() {
    for mut script in scripts() {
        let operations = operations(&script);
        for (threads, moments) in [(2, 4), (6, 6)] {
            script.threads = threads;
            for i in 1..moments {
                let operation = operations * i / moments;
                check_power_cut(&script, operation);
                check_failure(&script, Fault::Failure { operation });
            }
        }
    }
}

#[test]
#[ignore = "takes minutes"]
fn nothing_is_lost_with_work_in_the_background_at_many_moments() {
    for mut script in scripts() {
        let operations = operations(&script);
        for threads in [1, 2, 6] {
            script.threads = threads;
            for operation in some(operations, 7) {
                check_power_cut(&script, operation);
                check_failure(&script, Fault::Failure { operation });
            }
        }
    }
}

fn built(disk: Arc<dyn Disk>, mode: Mode) -> Result<CascadeFilter> {
    let mut batch = FingerprintBatch::new();
    for i in 0..9000 {
        batch.push(i << 40, [1, 2, -1][i as usize % 3])?;
    }
    // The batches have the size of a block.
    let packed = PackedRun::build(&mut batch.into_run(SEED, Universe::EXACT))?;
    let mut run = packed.scan();
    let options = CascadeOptions::like(&run, 7, mode, 9000);
    let settings =
        CascadeSettings { memory_bytes: MEMORY_MIN, ..CascadeSettings::new(Env::simulated(1)) };
    CascadeFilter::build(folder(), &options, settings.on(disk), &mut run)
}

/// Returns whether the folder holds the filter of [`built`]; no other filter may be there.
#[track_caller]
fn check_built(disk: &Arc<dyn Disk>, mode: Mode, moment: &str) -> bool {
    let settings =
        CascadeSettings { memory_bytes: MEMORY_MIN, ..CascadeSettings::new(Env::simulated(1)) };
    let mut filter = match CascadeFilter::open(folder(), settings.on(disk.clone())) {
        Err(error) => {
            assert!(error.is_absent(), "{moment}: {error}");
            return false;
        }
        Ok(filter) => filter,
    };
    let mut all = FingerprintBatch::new();
    let mut scan = filter.snapshot().unwrap().scan().unwrap();
    while scan.append_to(&mut all).unwrap() {}
    let of_two = if mode == Mode::Set { 1 } else { 2 };
    let expected = (0..9000).filter(|i| i % 3 != 2).map(|i| (i << 40, [1, of_two][i as usize % 3]));
    assert!(all.iter().eq(expected), "{moment}");
    true
}

#[test]
fn a_build_that_fails_or_loses_power_leaves_the_whole_filter_or_none() {
    for mode in [Mode::Set, Mode::Multiset] {
        let disk = FaultyDisk::new(FaultPlan { seed: 1, faults: Vec::new() });
        let filter = built(Arc::new(disk.clone()), mode).unwrap();
        assert_eq!(filter.stats().fingerprints, 6000);
        assert!(filter.view().epochs[0].uppers.is_empty());
        assert!(filter.view().epochs[0].shards.len() > 1);
        drop(filter);
        let files = disk.list(folder()).unwrap();
        let (mut whole, mut none) = (0, 0);
        for operation in 0..disk.operations() {
            let faults = vec![Fault::Failure { operation }];
            let disk = FaultyDisk::new(FaultPlan { seed: 1, faults });
            let failed = built(Arc::new(disk.clone()), mode).map(drop);
            let moment = format!("failure at {operation}: {failed:?}");
            for seed in 0..3 {
                let disk: Arc<dyn Disk> = Arc::new(disk.after_power_cut(seed));
                if check_built(&disk, mode, &moment) {
                    whole += 1;
                } else {
                    none += 1;
                    built(disk.clone(), mode).expect(&moment);
                    assert!(check_built(&disk, mode, &moment));
                }
                assert_eq!(disk.list(folder()).unwrap(), files, "{moment}");
            }
        }
        assert!(whole > 0 && none > 10, "{whole} {none}");
    }
}
