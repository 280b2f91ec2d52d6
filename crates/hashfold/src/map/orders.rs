//! A whole map in many orders of its threads: the locks of the map and of its background jobs are those of a
//! scheduler that tries different orders. Between two locks a thread is alone; a record of the log is
//! written, and a block is read, in one step.
//!
//! `RUSTFLAGS='--cfg hashfold_orders' cargo test -p hashfold --lib map::orders`

use super::{
    options::Shape,
    tests::{folder, tiny},
    *,
};
use crate::{
    env::Env,
    error::ErrorKind,
    run::Run as _,
    work::{Executor, Job, Random as _, SeededRandom, Watch},
};
use shuttle::{Config, Runner, scheduler::RandomScheduler, thread};
use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
};

/// Number of random orders of each case. A lookup that does not see that its group was split is found in a few
/// thousand.
const ORDERS: usize = 10_000;
/// Memory for the stack of each thread, in bytes.
const STACK_BYTES: usize = 1 << 20;
const KEYS: u8 = 24;
/// Four values fill a block.
const VALUE_SIZE: usize = 900;

/// Starts a thread of the scheduler for each job.
#[derive(Debug)]
struct Started;

impl Executor for Started {
    fn spawn(&self, job: Job) {
        drop(thread::spawn(job));
    }

    fn width(&self) -> usize {
        1
    }
}

/// Runs a case in many orders.
fn check(case: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    Runner::new(RandomScheduler::new(ORDERS), config).run(case);
}

/// Makes a map whose groups are flushed, merged and split after a few changes.
fn map() -> Arc<Map> {
    let env = Env { executor: Arc::new(Started), ..Env::simulated(1) };
    let options = tiny(env).durability(Durability::Buffered);
    let shape = Shape { span_blocks_max: 1, buffer_bytes: 12 << 10, ..options.shape };
    Arc::new(Map::create(folder(), MapOptions { shape, ..options }).unwrap())
}

fn value(version: u64) -> Vec<u8> {
    let mut value = version.to_le_bytes().to_vec();
    value.resize(VALUE_SIZE, version as u8);
    value
}

#[track_caller]
fn version(value: &[u8]) -> u64 {
    let version = u64::from_le_bytes(value[..8].try_into().unwrap());
    assert_eq!(value, self::value(version));
    version
}

/// Puts all keys with a version, as one record.
fn put_all(map: &Map, version: u64) {
    let value = value(version);
    let keys: Vec<[u8; 1]> = (0..KEYS).map(|key| [key]).collect();
    let changes: Vec<Write<'_>> = keys.iter().map(|key| Write::put(key, &value)).collect();
    map.write(&changes).unwrap();
}

/// The versions of all keys: those that a writer has begun to put, and those that it has put.
#[derive(Default)]
struct Versions([[AtomicU64; 2]; KEYS as usize]);

impl Versions {
    fn put(&self, map: &Map, key: u8) {
        let [begun, done] = &self.0[usize::from(key)];
        let version = begun.fetch_add(1, SeqCst) + 1;
        map.put([key], value(version)).unwrap();
        done.store(version, SeqCst);
    }

    /// Looks keys up, and checks that each has a version that is at least the one before the lookup.
    fn check(&self, keys: &[u8], get: impl FnOnce(&[u8]) -> Vec<Option<Vec<u8>>>) {
        let load = |i: usize| {
            let load = |key: &u8| self.0[usize::from(*key)][i].load(SeqCst);
            keys.iter().map(load).collect::<Vec<u64>>()
        };
        let done = load(1);
        let found: Vec<u64> =
            get(keys).iter().map(|value| version(value.as_ref().unwrap())).collect();
        let begun = load(0);
        for (i, key) in keys.iter().enumerate() {
            assert!(
                (done[i]..=begun[i]).contains(&found[i]),
                "{key}: {done:?} {found:?} {begun:?}"
            );
        }
    }
}

/// Lookups beside flushes, merges, splits and checkpoints find the newest versions, in blocks that no
/// other group has taken over.
#[test]
fn lookups_beside_merges_and_splits_find_the_newest_version() {
    let splits = Arc::new(AtomicUsize::new(0));
    let counted = splits.clone();
    check(move || {
        let map = map();
        put_all(&map, 0);
        let versions = Arc::new(Versions::default());
        let spawn = |act: fn(&Map, &Versions, u64), seed: u64| {
            let (map, versions) = (map.clone(), versions.clone());
            thread::spawn(move || act(&map, &versions, seed))
        };
        // Each writer has its own keys.
        let write: fn(&Map, &Versions, u64) = |map, versions, half| {
            let random = SeededRandom::new(half);
            let half = half as u8 * (KEYS / 2);
            (0..25).for_each(|_| {
                versions.put(map, half + (random.next_u64() % u64::from(KEYS / 2)) as u8);
            });
        };
        let get: fn(&Map, &Versions, u64) = |map, versions, seed| {
            let random = SeededRandom::new(seed);
            for _ in 0..12 {
                let key = (random.next_u64() % u64::from(KEYS)) as u8;
                versions.check(&[key], |keys| vec![map.get(keys).unwrap()]);
                versions.check(&[key, (key + 9) % KEYS], |keys| {
                    map.get_many(&[[keys[0]], [keys[1]]]).unwrap()
                });
            }
        };
        let care: fn(&Map, &Versions, u64) = |map, _, _| {
            map.checkpoint().unwrap();
            map.compact().unwrap();
            map.checkpoint().unwrap();
        };
        let threads =
            [spawn(write, 0), spawn(write, 1), spawn(get, 2), spawn(get, 3), spawn(care, 4)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let all: Vec<u8> = (0..KEYS).collect();
        versions.check(&all, |keys| keys.iter().map(|key| map.get([*key]).unwrap()).collect());
        counted.fetch_add(map.stat().groups as usize - 1, SeqCst);
        assert!(map.verify(&Watch::default()).unwrap().is_sound());
    });
    assert!(splits.load(SeqCst) >= ORDERS, "groups are split");
}

/// Snapshots see whole records, also of keys that merges move meanwhile.
#[test]
fn snapshots_beside_writers_see_whole_records() {
    check(|| {
        let map = map();
        put_all(&map, 0);
        let done = Arc::new(AtomicU64::new(0));
        let writer = {
            let (map, done) = (map.clone(), done.clone());
            thread::spawn(move || {
                for version in 1..8 {
                    put_all(&map, version);
                    done.store(version, SeqCst);
                }
            })
        };
        let carer = {
            let map = map.clone();
            thread::spawn(move || map.compact().unwrap())
        };
        for _ in 0..3 {
            let floor = done.load(SeqCst);
            let snapshot = map.snapshot();
            let first = version(&snapshot.get([0]).unwrap().unwrap());
            assert!(first >= floor);
            let mut scan = snapshot.scan();
            let mut count = 0;
            while scan.advance().unwrap() {
                assert_eq!(version(scan.entry().value.unwrap()), first);
                count += 1;
            }
            assert_eq!(count, KEYS);
        }
        [writer, carer].into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// Each transaction reads two keys and raises both by one if they are equal. Without isolation they differ.
#[test]
fn transactions_beside_each_other_lose_no_update() {
    let conflicts = Arc::new(AtomicUsize::new(0));
    let counted = conflicts.clone();
    check(move || {
        let map = map();
        put_all(&map, 0);
        let raise = |map: Arc<Map>, counted: Arc<AtomicUsize>| {
            thread::spawn(move || {
                let mut raised = 0;
                while raised < 6 {
                    let mut transaction = map.transaction();
                    let [first, second] =
                        [3, 17].map(|key| version(&transaction.get([key]).unwrap().unwrap()));
                    transaction.put([3], value(first + 1)).unwrap();
                    transaction.put([17], value(second + 1)).unwrap();
                    match transaction.commit() {
                        Ok(_) => {
                            assert_eq!(first, second);
                            raised += 1;
                        }
                        Err(error) => {
                            assert!(matches!(error.kind(), ErrorKind::Conflict), "{error}");
                            counted.fetch_add(1, SeqCst);
                        }
                    }
                }
            })
        };
        let threads = [(); 2].map(|()| raise(map.clone(), counted.clone()));
        let carer = {
            let map = map.clone();
            thread::spawn(move || map.compact().unwrap())
        };
        threads.into_iter().chain([carer]).for_each(|thread| thread.join().unwrap());
        let found = [3, 17].map(|key| version(&map.get([key]).unwrap().unwrap()));
        assert_eq!(found, [12, 12]);
    });
    assert!(conflicts.load(SeqCst) > ORDERS / 10, "transactions conflict");
}
