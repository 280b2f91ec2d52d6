//! Transactions, other changes and snapshots in several threads: what they have read and written is
//! recorded, and checked to be as if they had come one after the other.

use super::{
    histories::{Committed, Key, Versions, check_numbers, check_serial},
    options::Shape,
    tests::{Numbers, folder, tiny},
    *,
};
use crate::{
    env::Env,
    error::ErrorKind,
    io::{Disk, MemoryDisk},
    run::Run as _,
    work::Threads,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

const THREADS: u64 = 3;
const ROUNDS: u32 = 120;
const KEYS: Key = 150;
/// Most transactions are about the first few keys.
const HOT_KEYS: Key = 6;
/// Size of a value without its padding, in bytes.
const VALUE_BYTES_MIN: usize = 12;

/// Returns the bytes of a value.
fn encoded(key: Key, id: u64, padding: usize) -> Vec<u8> {
    let mut bytes = [&id.to_le_bytes()[..], &key.to_le_bytes()].concat();
    bytes.resize(VALUE_BYTES_MIN + padding, id as u8);
    bytes
}

fn decoded(key: Key, bytes: &[u8]) -> u64 {
    let id = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(bytes == encoded(key, id, bytes.len() - VALUE_BYTES_MIN), "a value of key {key}");
    id
}

/// A transaction that is open.
struct Open {
    transaction: Transaction,
    record: Committed,
    steps: u32,
    reads_only: bool,
}

/// A thread, and all that it has done and found.
struct Recorder<'a> {
    map: &'a Map,
    /// Logical time, of all threads.
    time: &'a AtomicU64,
    thread: u64,
    random: Numbers,
    /// Number of values that were made.
    values: u64,
    history: Vec<Committed>,
    /// The part of that for snapshots, of which each is a transaction that only reads.
    snapshots: Vec<Committed>,
    conflicts: u64,
    /// Number of transactions whose writes were spilled.
    spilled: u64,
    groups_max: u64,
}

impl<'a> Recorder<'a> {
    fn new(map: &'a Map, time: &'a AtomicU64, thread: u64, seed: u64) -> Recorder<'a> {
        let random = Numbers::new(seed * 16 + thread);
        let (history, snapshots) = (Vec::new(), Vec::new());
        Recorder {
            map,
            time,
            thread,
            random,
            values: 0,
            history,
            snapshots,
            conflicts: 0,
            spilled: 0,
            groups_max: 0,
        }
    }

    fn tick(&self) -> u64 {
        self.time.fetch_add(1, SeqCst)
    }

    fn key(&mut self) -> Key {
        let keys = if self.random.below(4) > 0 { HOT_KEYS } else { KEYS };
        self.random.below(keys)
    }

    /// Returns a new value of a key: its number and its bytes.
    fn value(&mut self, key: Key) -> (u64, Vec<u8>) {
        self.values += 1;
        let id = self.thread << 32 | self.values;
        let padding = match self.random.below(30) {
            // Large: with blocks of its own.
            0 => 1100,
            _ => 100 + self.random.below(600),
        };
        (id, encoded(key, id, padding as usize))
    }

    fn begin(&mut self, kind: &str) -> Committed {
        let name = format!("{kind} of thread {}", self.thread);
        Committed { name, began: self.tick(), ..Committed::default() }
    }

    /// Runs a few transactions, whose steps and other changes are mixed, and uses a snapshot that is
    /// older.
    fn round(&mut self) {
        let (snapshot, record) = self.take_snapshot();
        let count = 1 + self.random.below(3);
        let mut open: Vec<Open> = (0..count).map(|_| self.begin_transaction()).collect();
        while !open.is_empty() {
            let i = self.random.below(open.len() as u32) as usize;
            if self.random.below(12) == 0 {
                self.change();
            } else if open[i].steps == 0 {
                self.commit(open.swap_remove(i));
            } else {
                self.step(&mut open[i]);
            }
        }
        self.read_snapshot(&snapshot, record);
        self.groups_max = self.groups_max.max(self.map.stat().groups);
    }

    fn begin_transaction(&mut self) -> Open {
        let record = self.begin("transaction");
        let transaction = self.map.transaction();
        let (steps, reads_only) = (1 + self.random.below(5), self.random.below(4) == 0);
        Open { transaction, record, steps, reads_only }
    }

    /// Reads or writes a key.
    fn step(&mut self, open: &mut Open) {
        let Open { transaction, record, steps, reads_only } = open;
        *steps -= 1;
        let key = self.key();
        let name = key.to_le_bytes();
        match self.random.below(5) {
            0 | 1 if !*reads_only => {
                let (id, bytes) = self.value(key);
                transaction.put(name, bytes).unwrap();
                record.writes.insert(key, Some(id));
            }
            2 if !*reads_only => {
                transaction.delete(name).unwrap();
                record.writes.insert(key, None);
            }
            _ => {
                let found = transaction.get(name).unwrap().map(|bytes| decoded(key, &bytes));
                match record.writes.get(&key) {
                    Some(own) => assert_eq!(found, *own, "{record} reads {key}"),
                    None => record.reads.push((key, found)),
                }
            }
        }
    }

    fn commit(&mut self, open: Open) {
        let Open { transaction, mut record, .. } = open;
        // Writes that were spilled and then replaced count, too.
        record.changes = transaction.count();
        let is_spilled = transaction.has_spilled();
        match transaction.commit() {
            Ok(seq) => {
                self.spilled += u64::from(is_spilled);
                self.record(record, seq);
            }
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Conflict), "{error}");
                self.conflicts += 1;
            }
        }
    }

    fn record(&mut self, record: Committed, seq: u64) {
        self.history.push(Committed { seq, ended: self.tick(), ..record });
    }

    /// Makes a change that is no transaction.
    fn change(&mut self) {
        let mut record = self.begin("change");
        let map = self.map;
        let key = self.key();
        let seq = match self.random.below(40) {
            0 => {
                record.writes = (0..KEYS).map(|key| (key, None)).collect();
                record.changes = 1;
                return self.record(record, map.clear().unwrap());
            }
            1..10 => {
                let (id, bytes) = self.value(key);
                record.writes.insert(key, Some(id));
                map.put(key.to_le_bytes(), bytes).unwrap()
            }
            10..18 => {
                record.writes.insert(key, None);
                map.delete(key.to_le_bytes()).unwrap()
            }
            _ => self.change_some(&mut record),
        };
        record.changes = record.writes.len() as u64;
        self.record(record, seq);
    }

    /// Puts a few keys, few enough for one record of the log, and deletes some of them perhaps.
    fn change_some(&mut self, record: &mut Committed) -> u64 {
        let count = 2 + self.random.below(4);
        let deletes = self.random.below(2) == 0;
        let keys: BTreeSet<Key> = (0..count).map(|_| self.random.below(KEYS)).collect();
        let mut changes = Vec::new();
        for key in keys {
            let is_deletion = deletes && self.random.below(3) == 0;
            let value = (!is_deletion).then(|| self.value(key));
            record.writes.insert(key, value.as_ref().map(|(id, _)| *id));
            changes.push((key.to_le_bytes(), value.map(|(_, bytes)| bytes)));
        }
        if deletes {
            let write = |key, value| Write { key, value, expires_at: None };
            let changes = changes.iter().map(|(key, value)| write(&key[..], value.as_deref()));
            return self.map.write(&changes.collect::<Vec<_>>()).unwrap();
        }
        let puts = changes.into_iter().map(|(key, value)| (key, value.unwrap()));
        self.map.put_many(puts).unwrap()
    }

    fn take_snapshot(&mut self) -> (Snapshot, Committed) {
        let record = self.begin("snapshot");
        let snapshot = self.map.snapshot();
        let (seq, ended) = (snapshot.seq(), self.tick());
        (snapshot, Committed { seq, ended, ..record })
    }

    /// Reads all keys of a snapshot, one by one or by a scan.
    fn read_snapshot(&mut self, snapshot: &Snapshot, mut record: Committed) {
        let mut found = BTreeMap::new();
        if self.random.below(2) == 0 {
            let mut scan = snapshot.scan();
            while scan.advance().unwrap() {
                let entry = scan.entry();
                let key = Key::from_le_bytes(entry.key.try_into().unwrap());
                found.insert(key, decoded(key, entry.value.unwrap()));
            }
            assert!(found.keys().all(|key| *key < KEYS));
        } else {
            for key in 0..KEYS {
                let value = snapshot.get(key.to_le_bytes()).unwrap();
                found.extend(value.map(|bytes| (key, decoded(key, &bytes))));
            }
        }
        record.reads = (0..KEYS).map(|key| (key, found.get(&key).copied())).collect();
        self.snapshots.push(record);
    }
}

/// Events in the runs of all seeds.
#[derive(Debug, Default)]
struct Figures {
    transactions: usize,
    conflicts: u64,
    spilled: u64,
    snapshots: usize,
    merges: u64,
    checkpoints: u64,
    groups_max: u64,
}

/// Runs the threads over a new map, and checks what they have recorded.
fn check(seed: u64, figures: &mut Figures) {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let env = Env { disk, executor: Arc::new(Threads::new(1)), ..Env::simulated(seed) };
    let options = tiny(env).durability(Durability::Group);
    let shape = Shape { transaction_bytes: 1 << 10, ..options.shape };
    let options = MapOptions { shape, ..options };
    let map = Map::create(folder(), options.clone()).unwrap();
    let time = AtomicU64::new(0);
    let recorder = |thread| Recorder::new(&map, &time, thread, seed);
    let mut recorders: Vec<Recorder<'_>> = (0..THREADS).map(recorder).collect();
    std::thread::scope(|scope| {
        for recorder in &mut recorders {
            scope.spawn(|| (0..ROUNDS).for_each(|_| recorder.round()));
        }
    });
    let (mut history, mut snapshots) = (Vec::new(), Vec::new());
    for recorder in recorders {
        figures.conflicts += recorder.conflicts;
        figures.spilled += recorder.spilled;
        figures.groups_max = figures.groups_max.max(recorder.groups_max);
        history.extend(recorder.history);
        snapshots.extend(recorder.snapshots);
    }
    assert!(map.background_error().is_none());
    let stats = map.stat();
    figures.merges += stats.merges;
    figures.checkpoints += stats.checkpoints;
    map.close().unwrap();
    let map = Map::open_with(folder(), options).unwrap();
    assert_eq!(map.seq(), stats.seq);
    let mut last = Recorder::new(&map, &time, THREADS, seed);
    let (snapshot, record) = last.take_snapshot();
    last.read_snapshot(&snapshot, record);
    snapshots.append(&mut last.snapshots);
    figures.transactions += history.len();
    figures.snapshots += snapshots.len();
    check_history(&history, &snapshots, stats.seq)
        .unwrap_or_else(|found| panic!("seed {seed}: {found}"));
}

/// Checks the transactions of all threads and their snapshots. `end` is the number of changes.
fn check_history(history: &[Committed], snapshots: &[Committed], end: u64) -> Result<(), String> {
    check_serial(&[history, snapshots].concat())?;
    check_numbers(history, end)?;
    let writers: Vec<_> = history.iter().filter(|writer| writer.changes > 0).collect();
    let ends: BTreeSet<u64> = writers.iter().map(|writer| writer.seq).chain([0]).collect();
    if let Some(snapshot) = snapshots.iter().find(|snapshot| !ends.contains(&snapshot.seq)) {
        return Err(format!("a part of a transaction: {snapshot}"));
    }
    // The log has the order in which transactions took effect: a crash leaves the first of them.
    let versions = Versions::of(history);
    for reader in writers.into_iter().chain(snapshots) {
        let seq = reader.seq - reader.changes;
        for (key, found) in &reader.reads {
            let expected = versions.at(*key, seq);
            if *found != expected {
                return Err(format!("key {key} was {expected:?} after {seq} changes: {reader}"));
            }
        }
    }
    Ok(())
}

#[test]
fn transactions_and_snapshots_in_threads_are_as_if_one_after_the_other() {
    let mut figures = Figures::default();
    (1..=16).for_each(|seed| check(seed, &mut figures));
    assert!(figures.transactions > 8000 && figures.snapshots > 4000, "{figures:?}");
    assert!(figures.conflicts > 300 && figures.spilled > 300, "{figures:?}");
    assert!(figures.merges > 80 && figures.checkpoints > 32, "{figures:?}");
    assert!(figures.groups_max > 1, "{figures:?}");
}
