//! Group-bys against a naive twin, in tiny memories, and with damage.

use super::{options::MemoryPlan, *};
use crate::{
    env::Env,
    error::{ErrorClass, ErrorKind, Result},
    io::{Fault, FaultPlan, FaultyDisk, MemoryDisk},
    key::{KeyHash, Seed},
    run::{Run, Summary, VecRun},
    sketch::{Family, Hll},
    work::{Executor, Inline, Random as _, SeededRandom, Threads},
};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

/// A group and a key.
type Row = (Vec<u8>, u64);
/// Groups and their values, in the order of a run.
type Groups = Vec<(Vec<u8>, Vec<u8>)>;

/// A memory in which a few rows fill a shard, and three segments are merged.
const TINY: MemoryPlan =
    MemoryPlan { shard_bits: 1, shard_bytes: 6000, inbox_bytes: 200, block_bytes: 64, fan_in: 3 };
const SEED: Seed = Seed(5);

fn env(executor: Arc<dyn Executor>) -> Env {
    Env { executor, ..Env::on(Arc::new(MemoryDisk::default())) }
}

fn options(precision: u8) -> GroupOptions {
    GroupOptions::new().precision(precision).seed(SEED)
}

/// Rows of groups of very different sizes; some keys come several times.
fn rows(random: &SeededRandom, count: usize, groups: u64) -> Vec<Row> {
    let row = |_| {
        // The first of two numbers below a limit that is random, too, is often small.
        let limit = random.next_u64() % groups + 1;
        let group = random.next_u64() % limit;
        (
            format!("group {}", group * group).into_bytes(),
            random.next_u64() % (count as u64 / 2 + 1),
        )
    };
    (0..count).map(row).collect()
}

fn drain(mut run: impl Run) -> Result<(Groups, Summary)> {
    let (mut all, mut summary, mut last) = (Vec::new(), Summary::EMPTY, None);
    while run.advance()? {
        let entry = run.entry();
        let place = (entry.hash, entry.key.to_vec());
        assert_eq!(entry.hash, KeyHash::of(entry.key, run.seed()));
        assert!(last.as_ref().is_none_or(|last| *last < place), "the run ascends");
        last = Some(place);
        let value = entry.value.unwrap();
        summary.add(entry.key, Some(value));
        all.push((entry.key.to_vec(), value.to_vec()));
    }
    Ok((all, summary))
}

/// Groups rows with a plan. Returns the groups and the amounts.
fn group(
    env: &Env,
    plan: MemoryPlan,
    options: &GroupOptions,
    rows: &[Row],
) -> Result<(Groups, GroupStats)> {
    let mut builder = GroupBuilder::with_plan(env, "spill".as_ref(), options, plan)?;
    rows.iter().try_for_each(|(group, key)| builder.add(group, &key.to_le_bytes()))?;
    let run = builder.finish()?;
    let (stats, count, summary) = (run.stats(), run.group_count(), run.summary());
    let (groups, exact) = drain(run)?;
    assert_eq!((groups.len() as u64, summary), (count, exact));
    Ok((groups, stats))
}

/// The sketches of a map from groups to sets of keys.
fn naive(options: &GroupOptions, rows: &[Row]) -> Groups {
    let mut sets: HashMap<&[u8], HashSet<u64>> = HashMap::new();
    for (group, key) in rows {
        sets.entry(group).or_default().insert(*key);
    }
    let mut groups = BTreeMap::new();
    for (group, keys) in sets {
        let mut sketch = Hll::of_family(options.family, options.precision).unwrap();
        keys.iter().for_each(|key| _ = sketch.insert(&key.to_le_bytes()));
        groups.insert((KeyHash::of(group, options.seed), group.to_vec()), sketch.to_bytes());
    }
    groups.into_iter().map(|((_, group), value)| (group, value)).collect()
}

const FAMILIES: [Family; 4] = [
    Family::Hashfold(Seed(3)),
    Family::Redis,
    Family::Postgres { regwidth: 5 },
    Family::DataSketches,
];

/// Rows without a key, in any order among others and spilled with them.
#[test]
fn a_group_without_keys_is_there() {
    let (random, mut empty) = (SeededRandom::new(8), 0);
    for (precision, count, groups) in [(4, 60, 40), (9, 3000, 2000), (14, 300, 10)] {
        let rows = rows(&random, count, groups);
        let options = options(precision);
        let has_key = |key: &u64| !key.is_multiple_of(3);
        let env = env(Arc::new(Inline));
        let mut builder = GroupBuilder::with_plan(&env, "spill".as_ref(), &options, TINY).unwrap();
        let mut sketches: BTreeMap<(KeyHash, &[u8]), Hll> = BTreeMap::new();
        for (group, key) in &rows {
            let place = (KeyHash::of(group, options.seed), &group[..]);
            let sketch = sketches.entry(place).or_insert_with(|| Hll::new(precision).unwrap());
            if has_key(key) {
                builder.add(group, &key.to_le_bytes()).unwrap();
                sketch.insert(&key.to_le_bytes());
            } else {
                builder.add_group(group).unwrap();
            }
        }
        let (got, _) = drain(builder.finish().unwrap()).unwrap();
        let expected =
            sketches.iter().map(|((_, group), sketch)| (group.to_vec(), sketch.to_bytes()));
        assert!(got == expected.collect::<Groups>(), "{precision} {count}");
        empty += sketches.values().filter(|sketch| sketch.is_empty()).count();
    }
    assert!(empty > 20, "{empty} groups have no keys");
}

#[test]
fn groups_have_the_sketches_of_a_naive_map() {
    let random = SeededRandom::new(1);
    for executor in [Arc::new(Inline) as Arc<dyn Executor>, Arc::new(Threads::new(3))] {
        for precision in [4, 9, 14] {
            for (count, groups) in [(0, 1), (1, 1), (50, 3), (3000, 1), (3000, 20), (8000, 6000)] {
                for family in FAMILIES {
                    let options = options(precision).family(family);
                    let rows = rows(&random, count, groups);
                    let (got, stats) =
                        group(&env(executor.clone()), TINY, &options, &rows).unwrap();
                    assert!(got == naive(&options, &rows), "{precision} {count} {groups}");
                    assert_eq!(stats.rows, count as u64);
                }
            }
        }
    }
}

/// The result does not depend on the memory, and less memory spills more.
#[test]
fn any_memory_gives_the_same_groups() {
    let rows = rows(&SeededRandom::new(2), 30_000, 500);
    let (env, options) = (env(Arc::new(Inline)), options(12));
    let expected = naive(&options, &rows);
    let mut spilled = u64::MAX;
    for (shard_bits, shard_bytes, fan_in) in
        [(0, 5000, 2), (1, 6000, 3), (2, 20_000, 4), (3, 1 << 22, 8)]
    {
        let plan = MemoryPlan { shard_bits, shard_bytes, fan_in, ..TINY };
        let (got, stats) = group(&env, plan, &options, &rows).unwrap();
        assert!(got == expected, "{plan:?}");
        assert!(stats.spilled_bytes <= spilled, "{plan:?}: {stats:?}");
        spilled = stats.spilled_bytes;
    }
}

#[test]
fn the_union_of_any_parts_is_the_group_by_of_all_rows() {
    let random = SeededRandom::new(3);
    let env = env(Arc::new(Inline));
    for (case, precision) in [(1, 5), (2, 8), (3, 10), (5, 10), (8, 14)] {
        let rows = rows(&random, 2000, 50);
        let mut parts = vec![Vec::new(); case];
        for row in &rows {
            parts[random.next_u64() as usize % case].push(row.clone());
        }
        let options = options(precision);
        let mut runs: Vec<Box<dyn Run>> = Vec::new();
        for part in &parts {
            let mut builder =
                GroupBuilder::with_plan(&env, "spill".as_ref(), &options, TINY).unwrap();
            let hash = |key: &u64| options.family.hash(&key.to_le_bytes());
            builder.add_hashes(part.iter().map(|(group, key)| (group, hash(key)))).unwrap();
            runs.push(Box::new(builder.finish().unwrap()));
        }
        let union = GroupUnion::new(runs, &options.precision(precision)).unwrap();
        let bound = union.summary();
        let (got, summary) = drain(union).unwrap();
        assert!(got == naive(&options, &rows), "{case} parts");
        assert!(bound.bytes_max >= summary.bytes_max && bound.entries_max >= summary.entries_max);
        assert!(bound.values.min <= summary.values.min && bound.values.max >= summary.values.max);
    }
}

#[test]
fn a_union_has_the_lowest_precision() {
    let random = SeededRandom::new(4);
    let env = env(Arc::new(Inline));
    let (few, many) = (rows(&random, 2000, 30), rows(&random, 3000, 30));
    let run = |rows: &[Row], precision| -> Box<dyn Run> {
        let entries = naive(&options(precision), rows);
        let entries = entries.into_iter().map(|(group, value)| (group, Some(value)));
        Box::new(VecRun::new(entries.collect(), SEED))
    };
    let runs = vec![run(&few, 14), run(&many, 10)];
    let union = GroupUnion::new(runs, &options(10)).unwrap();
    let all = [few, many].concat();
    assert!(drain(union).unwrap().0 == naive(&options(10), &all));
    assert!(group(&env, TINY, &options(10), &all).unwrap().0 == naive(&options(10), &all));
}

fn single(group: &str, value: Vec<u8>, seed: Seed) -> Box<dyn Run> {
    Box::new(VecRun::new(vec![(group.into(), Some(value))], seed))
}

#[test]
fn a_sketch_that_cannot_be_united_is_named_by_its_group() {
    let sketch = |family, precision| {
        let mut sketch = Hll::of_family(family, precision).unwrap();
        (0..100_u64).for_each(|i| _ = sketch.insert(&i.to_le_bytes()));
        sketch.to_bytes()
    };
    let family = options(10).family;
    let good = sketch(family, 10);
    let refused = |bad: Vec<u8>| {
        let runs = vec![single("other", good.clone(), SEED), single("paris", bad, SEED)];
        drain(GroupUnion::new(runs, &options(10).family(family)).unwrap()).unwrap_err()
    };
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let error = refused(bad);
        let ErrorKind::Value { key, .. } = error.kind() else { panic!("{error}") };
        assert_eq!(&**key, b"paris");
        assert_eq!(error.class(), ErrorClass::Damage, "{error}");
    }
    for (bad, words) in [
        (sketch(Family::Redis, 10), "hash function of a sketch"),
        (sketch(family, 9), "10 or more"),
        (Vec::new(), "size of a sketch"),
    ] {
        let message = refused(bad).to_string();
        assert!(message.contains("\"paris\"") && message.contains(words), "{message}");
    }
    let other_seed = vec![single("a", good.clone(), SEED), single("a", good.clone(), Seed(6))];
    assert!(GroupUnion::new(other_seed, &options(10).family(family)).is_err());
    assert!(GroupUnion::new(Vec::new(), &options(10).family(family)).is_err());
}

/// Tombstones have no sketch; a group that has only tombstones is left out.
#[test]
fn tombstones_are_left_out_of_a_union() {
    let sketch = Hll::new(10).unwrap().to_bytes();
    let old = VecRun::new(vec![(b"a".to_vec(), Some(sketch.clone())), (b"b".to_vec(), None)], SEED);
    let new = VecRun::new(vec![(b"a".to_vec(), None)], SEED);
    let runs: Vec<Box<dyn Run>> = vec![Box::new(old), Box::new(new)];
    let union = GroupUnion::new(runs, &options(10)).unwrap();
    assert_eq!(drain(union).unwrap().0, [(b"a".to_vec(), sketch)]);
}

/// A run that does not ascend.
#[test]
fn a_union_of_runs_that_do_not_ascend_is_an_error() {
    struct Same;
    impl Run for Same {
        fn seed(&self) -> Seed {
            SEED
        }
        fn summary(&self) -> Summary {
            Summary::EMPTY
        }
        fn advance(&mut self) -> Result<bool> {
            Ok(true)
        }
        fn entry(&self) -> crate::run::Entry<'_> {
            crate::run::Entry { hash: KeyHash::of(b"a", SEED), key: b"a", value: None }
        }
    }
    let union = GroupUnion::new(vec![Box::new(Same)], &options(10)).unwrap();
    assert!(matches!(drain(union).unwrap_err().kind(), ErrorKind::Order { .. }));
}

#[test]
fn the_memory_stays_within_its_budget() {
    let random = SeededRandom::new(5);
    for (memory, count, groups) in
        [(1 << 20, 200_000, 100_000), (1 << 20, 300_000, 5), (12 << 20, 600_000, 200_000)]
    {
        let mut builder = GroupBuilder::new(
            &env(Arc::new(Threads::new(2))),
            "spill",
            &options(14).memory(memory),
        )
        .unwrap();
        for _ in 0..count {
            let group = (random.next_u64() % groups).to_le_bytes();
            builder.add_hash(&group, random.next_u64()).unwrap();
        }
        let run = builder.finish().unwrap();
        let stats = run.stats();
        assert!(stats.memory_bytes <= memory && stats.memory_bytes > memory / 4, "{stats:?}");
        drain(run).unwrap();
    }
    let too_small = GroupOptions::new().memory(MEMORY_BYTES_MIN - 1);
    assert!(GroupBuilder::new(&env(Arc::new(Inline)), "spill", &too_small).is_err());
    assert!(GroupBuilder::new(&env(Arc::new(Inline)), "spill", &options(3)).is_err());
}

/// Groups that are longer than a block, an inbox and a shard.
#[test]
fn long_groups_are_grouped_too() {
    let rows: Vec<Row> =
        (0..200).map(|i| (vec![b'x'; i as usize % 7 * 9000 + i as usize % 3], i / 2)).collect();
    let options = options(6);
    let (got, _) = group(&env(Arc::new(Inline)), TINY, &options, &rows).unwrap();
    assert!(got == naive(&options, &rows));
    let mut builder = GroupBuilder::new(&env(Arc::new(Inline)), "spill", &options).unwrap();
    assert!(builder.add(&[0; 65_536], b"key").is_err());
}

/// Every fault of the spill is an error of some call, and never a wrong group.
#[test]
fn faults_of_the_spill_are_errors() {
    let rows = rows(&SeededRandom::new(6), 1500, 300);
    let options = options(8);
    let expected = naive(&options, &rows);
    let outcome = |fault: Fault| {
        let disk = FaultyDisk::new(FaultPlan::from(fault));
        group(&Env::on(Arc::new(disk)), TINY, &options, &rows)
    };
    for number in 0..40 {
        for fault in [
            Fault::Failure { operation: number },
            Fault::Full { write: number },
            Fault::ReadFailure { read: number },
            Fault::ShortRead { read: number },
            Fault::FlippedBit { read: number },
        ] {
            assert!(outcome(fault).is_err(), "{fault:?}");
        }
    }
    assert!(outcome(Fault::ReadFailure { read: 1 << 40 }).unwrap().0 == expected);
}

#[test]
fn calls_after_a_failure_fail() {
    let disk = FaultyDisk::new(FaultPlan::from(Fault::Full { write: 3 }));
    let env = Env::on(Arc::new(disk));
    let mut builder = GroupBuilder::with_plan(&env, "spill".as_ref(), &options(10), TINY).unwrap();
    let mut add = |i: u32| builder.add(&i.to_le_bytes(), b"key");
    let failed = (0..10_000).find(|i| add(*i).is_err()).unwrap();
    assert!((failed..failed + 1000).any(|i| add(i).is_err()));
    assert!(builder.finish().is_err());
}

#[test]
fn the_attribute_says_what_the_values_are() {
    let (name, value) = options(11).family(Family::Redis).attribute().unwrap();
    let empty = Hll::from_bytes(&value).unwrap();
    assert_eq!(
        (&name[..], empty.precision(), empty.family()),
        (GROUPS_ATTRIBUTE, 11, Family::Redis)
    );
    assert!(empty.is_empty());
}
