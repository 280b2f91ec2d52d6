//! Snapshots beside writers in many orders of their threads: tests of the code of the tables on the locks and threads
//! of a scheduler that tries different orders. Between two locks a thread is alone, as it is in a table.

use super::{
    AppendStats, GroupStats, MemoryOptions, Slot, ahead, append_shard, division, index, line,
    mix::{self, unmix},
    order, owners, place, scratch, slabs,
};
use crate::{
    key::Seed,
    run::Run as _,
    work::{Random as _, SeededRandom, Watch},
};
use shuttle::{Config, Runner, scheduler::RandomScheduler, thread};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

mod sync {
    pub(super) use shuttle::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
}

#[path = "append_snapshot.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is used and public where it belongs")]
mod append_snapshot;
#[path = "append_table.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is used and public where it belongs")]
mod append_table;
#[path = "group_snapshot.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is used and public where it belongs")]
mod group_snapshot;
#[path = "group_table.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is used and public where it belongs")]
mod group_table;
#[path = "shards.rs"]
mod shards;

use self::{
    append_snapshot::AppendSnapshot, append_table::AppendTable, group_snapshot::GroupSnapshot,
    group_table::GroupTable,
};

/// Number of random orders of each case, in a run of all tests and in one of this test alone.
const ORDERS: usize = 150;
const ORDERS_SLOW: usize = 20_000;
/// Memory for the stack of each thread, in bytes.
const STACK_BYTES: usize = 256 << 10;
/// Number of changes beside the snapshots.
const CHANGES: usize = 60;
const SEED: Seed = Seed(5);

/// Runs a case in many orders.
fn check(orders: usize, case: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    Runner::new(RandomScheduler::new(orders), config).run(case);
}

fn options() -> MemoryOptions {
    MemoryOptions { shards: 2, seed: SEED, ..MemoryOptions::default() }
}

/// The number of changes that one writer has begun, and that it has done.
#[derive(Clone, Default)]
struct Progress(Arc<[AtomicUsize; 2]>);

impl Progress {
    /// Makes a change.
    fn change(&self, change: impl FnOnce()) {
        self.0[0].fetch_add(1, SeqCst);
        change();
        self.0[1].fetch_add(1, SeqCst);
    }

    /// Takes a snapshot; also returns the numbers of changes that it can have.
    fn snapshot<T>(&self, take: impl FnOnce() -> T) -> (T, std::ops::RangeInclusive<usize>) {
        let done = self.0[1].load(SeqCst);
        let snapshot = take();
        (snapshot, done..=self.0[0].load(SeqCst))
    }
}

/// A change of a table: a key, and its new value or none.
type Change<K, V> = (K, Option<V>);

/// Returns the table after each number of changes.
fn states<K: Ord + Clone, V: Clone>(
    first: &[(K, V)],
    changes: &[Change<K, V>],
) -> Vec<BTreeMap<K, V>> {
    let mut state: BTreeMap<K, V> = first.iter().cloned().collect();
    let mut states = vec![state.clone()];
    for (key, value) in changes {
        match value {
            Some(value) => state.insert(key.clone(), value.clone()),
            None => state.remove(key),
        };
        states.push(state.clone());
    }
    states
}

/// Whether what was read is the table after some number of changes in the range.
#[track_caller]
fn check_read<K: Ord, V: PartialEq>(
    read: &BTreeMap<K, V>,
    states: &[BTreeMap<K, V>],
    changes: std::ops::RangeInclusive<usize>,
) {
    let is_one = states[changes.clone()].iter().any(|state| state == read);
    assert!(is_one, "the table after none of {changes:?} changes");
}

/// A key of a table of groups, most of which are in one group, which grows.
fn key(random: &SeededRandom) -> u64 {
    let number = random.next_u64();
    let region = if number.is_multiple_of(3) { number >> 32 & 255 } else { 1 };
    let rest = (number >> 8) % 90;
    unmix(region << 56 | rest.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 8, SEED)
}

/// One thread changes a table; two others read snapshots, each as of one moment.
fn groups() {
    let random = SeededRandom::new(1);
    let first: Vec<_> = (0..60).map(|i| (key(&random), i)).collect();
    let change = |i| (key(&random), (random.next_u64() % 4 != 3).then_some(1000 + i));
    let changes: Vec<Change<u64, u64>> = (0..CHANGES as u64).map(change).collect();
    let states = Arc::new(states(&first, &changes));
    let table = GroupTable::new(options()).unwrap();
    table.put_many(&first).unwrap();
    let progress = Progress::default();
    let reader = |_| {
        let (table, progress, states) = (table.clone(), progress.clone(), states.clone());
        thread::spawn(move || {
            let (snapshot, changes) = progress.snapshot(|| table.snapshot().unwrap());
            check_read(&read_groups(snapshot), &states, changes);
        })
    };
    let readers: Vec<_> = (0..2).map(reader).collect();
    for (key, value) in changes {
        progress.change(|| {
            let changed = match value {
                Some(value) => table.put(key, value),
                None => table.remove(key),
            };
            changed.unwrap();
        });
    }
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    assert_eq!(table.stat().snapshot_bytes, 0);
    check_read(&read_groups(table.snapshot().unwrap()), &states, CHANGES..=CHANGES);
}

fn read_groups(mut snapshot: GroupSnapshot) -> BTreeMap<u64, u64> {
    let (mut all, mut group) = (BTreeMap::new(), Vec::new());
    while snapshot.next_group(&mut group) {
        for (key, value) in &group {
            assert_eq!(all.insert(*key, *value), None, "each key once");
        }
    }
    all
}

/// One thread changes values, which move and grow; one compacts them; one reads a snapshot as of one moment.
fn values() {
    let random = SeededRandom::new(2);
    let entry = || {
        let byte = b'a' + (random.next_u64() % 20) as u8;
        (vec![byte; 3], vec![byte; (random.next_u64() % 60) as usize])
    };
    let first: Vec<_> = (0..30).map(|_| entry()).collect();
    let change = |_| {
        let (key, value) = entry();
        (key, (random.next_u64() % 4 != 3).then_some(value))
    };
    let changes: Vec<Change<Vec<u8>, Vec<u8>>> = (0..CHANGES).map(change).collect();
    let states = Arc::new(states(&first, &changes));
    let table = AppendTable::new(options()).unwrap();
    table.put_many(&first).unwrap();
    let progress = Progress::default();
    let reader = {
        let (table, progress, states) = (table.clone(), progress.clone(), states.clone());
        thread::spawn(move || {
            let (snapshot, changes) = progress.snapshot(|| table.snapshot().unwrap());
            check_read(&read_values(snapshot), &states, changes);
        })
    };
    let compacting = table.clone();
    let compaction = thread::spawn(move || compacting.compact(&Watch::default()).unwrap());
    for (key, value) in changes {
        progress.change(|| {
            let changed = match (value, table.get(&key)) {
                (None, _) => table.remove(&key),
                // A value that begins with the one before is appended to.
                (Some(value), Some(before)) if value.starts_with(&before) => {
                    table.append(&key, &value[before.len()..]).map(|()| true)
                }
                (Some(value), _) => table.put(&key, &value),
            };
            changed.unwrap();
        });
    }
    reader.join().unwrap();
    compaction.join().unwrap();
    check_read(&read_values(table.snapshot().unwrap()), &states, CHANGES..=CHANGES);
}

fn read_values(snapshot: AppendSnapshot) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (mut all, mut run) = (BTreeMap::new(), snapshot.scan());
    while run.advance().unwrap() {
        let entry = run.entry();
        let before = all.insert(entry.key.to_vec(), entry.value.unwrap().to_vec());
        assert_eq!(before, None, "each key once");
    }
    all
}

#[test]
fn snapshots_have_all_of_one_moment_in_every_order_of_threads() {
    check(ORDERS, groups);
    check(ORDERS, values);
}

#[test]
#[ignore = "takes minutes"]
fn snapshots_have_all_of_one_moment_in_many_more_orders_of_threads() {
    check(ORDERS_SLOW, groups);
    check(ORDERS_SLOW, values);
}
