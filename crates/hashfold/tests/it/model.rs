//! Random tables and updates compared with a map in memory.

use crate::fixture::{Pairs, check_holds, folder, memory, open, scanned};
use hashfold::{
    Env, Seed,
    io::Disk,
    run::{Duplicates, KEY_BYTES_MAX, MEMORY_BYTES_MIN, Merge, SortOptions, Tombstones, VecRun},
    table::{IndexChoice, IndexOptions, Table, TableBuilder, TableOptions, TableStats, reindex},
    work::{Executor, Inline, Threads, Watch},
};
use proptest::{
    collection::vec,
    prelude::{Just, ProptestConfig, Strategy, any, prop_oneof},
    proptest,
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};
use std::{path::Path, sync::Arc};

/// A put, or a deletion.
type Change = (Vec<u8>, Option<Vec<u8>>);

/// Sizes of keys and values of one batch.
#[derive(Clone, Copy, Debug)]
enum Sizes {
    Fixed(usize, usize),
    Small,
    Mixed,
}

fn sizes() -> impl Strategy<Value = Sizes> {
    prop_oneof![
        2 => (1..20_usize, 0..100_usize).prop_map(|(key, value)| Sizes::Fixed(key, value)),
        1 => (1..9_usize, 500..9000_usize).prop_map(|(key, value)| Sizes::Fixed(key, value)),
        2 => Just(Sizes::Small),
        2 => Just(Sizes::Mixed),
    ]
}

/// Returns bytes of random length: a random head, and a tail derived from it.
fn bytes(lens: impl Strategy<Value = usize>) -> impl Strategy<Value = Vec<u8>> {
    (lens, any::<u64>())
        .prop_map(|(len, head)| head.to_le_bytes().into_iter().cycle().take(len).collect())
}

/// Returns keys from a small set, so that some occur twice.
fn key(sizes: Sizes) -> impl Strategy<Value = Vec<u8>> {
    let lens = match sizes {
        Sizes::Fixed(key, _) => (key..key + 1).boxed(),
        Sizes::Small => (0..12_usize).boxed(),
        Sizes::Mixed => prop_oneof![
            20 => 0..40_usize,
            1 => 3000..10_000_usize,
            1 => Just(KEY_BYTES_MAX)
        ]
        .boxed(),
    };
    (lens, 0..700_u64)
        .prop_map(|(len, number)| number.to_le_bytes().into_iter().cycle().take(len).collect())
}

fn value(sizes: Sizes) -> impl Strategy<Value = Vec<u8>> {
    match sizes {
        Sizes::Fixed(_, value) => bytes(value..value + 1).boxed(),
        Sizes::Small => bytes(0..60_usize).boxed(),
        Sizes::Mixed => bytes(prop_oneof![
            20 => 0..300_usize,
            3 => 300..6000_usize,
            1 => 60_000..200_000_usize
        ])
        .boxed(),
    }
}

fn batch(sizes: Sizes, deletes: bool) -> impl Strategy<Value = Vec<Change>> {
    let deletes_one_in = if deletes { 3 } else { 1000 };
    let change = (key(sizes), value(sizes), 0..deletes_one_in)
        .prop_map(move |(key, value, luck)| (key, (!deletes || luck > 0).then_some(value)));
    vec(change, 0..600)
}

#[derive(Clone, Debug)]
struct Case {
    options: TableOptions,
    memory_bytes: usize,
    threads: usize,
    other_index: IndexChoice,
    batches: Vec<Vec<Change>>,
}

fn options() -> impl Strategy<Value = TableOptions> {
    let choice = prop_oneof![
        Just(IndexChoice::Auto),
        Just(IndexChoice::Dense),
        Just(IndexChoice::Sparse),
        Just(IndexChoice::Fences)
    ];
    let knobs = (8..513_u32, 0..257_u32, prop_oneof![Just(0), 0..33_u32]);
    (any::<u64>(), choice, knobs, 12..17_u32).prop_map(|(seed, choice, knobs, block_bits)| {
        let (bucket_size, coding_limit, absent_bits) = knobs;
        let takes = matches!(choice, IndexChoice::Auto | IndexChoice::Dense);
        let absent_bits = if takes { absent_bits } else { 0 };
        TableOptions::new()
            .seed(Seed(seed))
            .id(1)
            .index(IndexOptions { choice, bucket_size, coding_limit, absent_bits })
            .block_size(1 << block_bits)
            .replace(true)
    })
}

fn case() -> impl Strategy<Value = Case> {
    let other =
        prop_oneof![Just(IndexChoice::Dense), Just(IndexChoice::Sparse), Just(IndexChoice::Fences)];
    let batches = sizes().prop_flat_map(|sizes| {
        (batch(sizes, false), vec(batch(sizes, true), 1..3))
            .prop_map(|(first, others)| [vec![first], others].concat())
    });
    let memory = prop_oneof![Just(MEMORY_BYTES_MIN), Just(64 << 20)];
    (options(), memory, 0..3_usize, other, batches).prop_map(
        |(options, memory_bytes, threads, other_index, batches)| Case {
            options,
            memory_bytes,
            threads,
            other_index,
            batches,
        },
    )
}

impl Case {
    fn executor(&self) -> Arc<dyn Executor> {
        match self.threads {
            0 => Arc::new(Inline),
            count => Arc::new(Threads::new(count)),
        }
    }

    fn builder(&self, disk: &Arc<dyn Disk>, folder: &Path) -> TableBuilder {
        let options = self.options.clone();
        TableBuilder::with(
            folder,
            options.env(Env { executor: self.executor(), ..Env::on(disk.clone()) }),
        )
        .unwrap()
    }

    /// Builds a table from one batch.
    fn build(&self, disk: &Arc<dyn Disk>, folder: &Path, batch: &[Change]) -> TableStats {
        let builder = self.builder(disk, folder);
        let sort = SortOptions {
            memory_bytes: self.memory_bytes,
            duplicates: Duplicates::KeepLast,
            ..SortOptions::default()
        };
        let mut sorter = builder.sorter(sort).unwrap();
        for (key, value) in batch {
            sorter.push(key, value.as_deref()).unwrap();
        }
        let mut run = sorter.finish().unwrap();
        builder.build(&mut run, &Watch::default()).unwrap()
    }

    /// Builds a new table from the entries of the old table and one batch.
    fn update(&self, disk: &Arc<dyn Disk>, folder: &Path, old: &Table, batch: &[Change]) {
        let builder = self.builder(disk, folder);
        let batch = VecRun::new(batch.to_vec(), builder.seed());
        let runs: Vec<Box<dyn hashfold::run::Run>> = vec![Box::new(batch), Box::new(old.scan())];
        let mut merge = Merge::new(runs, Tombstones::Drop).unwrap();
        builder.build(&mut merge, &Watch::default()).unwrap();
    }
}

fn apply(pairs: &mut Pairs, batch: &[Change]) {
    for (key, value) in batch {
        match value {
            Some(value) => pairs.insert(key.clone(), value.clone()),
            None => pairs.remove(key),
        };
    }
}

/// Builds and updates a table step by step, then builds the final state at once.
fn check(case: &Case) {
    let disk = memory();
    let mut pairs = Pairs::new();
    for (i, batch) in case.batches.iter().enumerate() {
        apply(&mut pairs, batch);
        if i == 0 {
            case.build(&disk, folder(), batch);
        } else {
            let old = open(&disk, folder()).unwrap();
            case.update(&disk, folder(), &old, batch);
        }
        check_holds(&open(&disk, folder()).unwrap(), &pairs);
    }
    let full = Path::new("full");
    let all: Vec<Change> = pairs.iter().map(|(k, v)| (k.clone(), Some(v.clone()))).collect();
    case.build(&disk, full, &all);
    let (updated, full) = (open(&disk, folder()).unwrap(), open(&disk, full).unwrap());
    assert!(scanned(&updated).unwrap() == scanned(&full).unwrap());
    check_holds(&full, &pairs);
    let index = IndexOptions { choice: case.other_index, ..IndexOptions::default() };
    reindex(&Env::on(disk.clone()), folder(), &index, &Watch::default()).unwrap();
    check_holds(&open(&disk, folder()).unwrap(), &pairs);
}

#[test]
fn a_table_and_its_updates_agree_with_a_map() {
    let config = ProptestConfig { cases: 40, failure_persistence: None, ..Default::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    runner
        .run(&case(), |case| {
            check(&case);
            Ok(())
        })
        .unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..Default::default() })]

    /// New cases in each run; a failure prints its case.
    #[test]
    fn a_table_and_its_updates_agree_with_a_map_today(case in case()) {
        check(&case);
    }
}
