//! Small tables in `tests/golden/`, one folder each: every version that was ever released must be
//! read for as long as we claim to, and the same input must give the same bytes.

use crate::fixture::{
    CHOICES, Files, Pairs, check_holds, fixed, folder, open, options, read_files, try_build,
    variable, write_files,
};
use hashfold::{
    io::{Disk, MemoryDisk, OsDisk},
    run::SortOptions,
    table::{IndexChoice, IndexOptions, TableBuilder, TableOptions},
    work::{Executor, Inline, Threads},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

const ID: u64 = 0x600d;

struct Golden {
    name: String,
    pairs: Pairs,
    options: TableOptions,
}

/// All tables of format version 1.
fn version_1() -> Vec<Golden> {
    let mut all = Vec::new();
    for choice in CHOICES {
        let pairs = [("fixed", fixed(300, 21)), ("variable", variable(150, 22))];
        for (layout, pairs) in pairs {
            let mut options = options(choice, ID);
            options.attributes = vec![("schema".to_owned(), layout.into())];
            all.push(Golden { name: format!("v1/{layout}-{choice}"), pairs, options });
        }
    }
    let index =
        IndexOptions { choice: IndexChoice::Dense, absent_bits: 7, ..IndexOptions::default() };
    let options = TableOptions { index, block_size: 8192, ..options(IndexChoice::Dense, ID) };
    all.push(Golden { name: "v1/absent-bits".to_owned(), pairs: variable(150, 23), options });
    all
}

fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn built(golden: &Golden) -> Files {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let options = golden.options.clone();
    try_build(&disk, folder(), &golden.pairs, options, SortOptions::default()).unwrap();
    read_files(disk.as_ref(), folder())
}

#[test]
fn tables_of_version_1_are_read() {
    for golden in version_1() {
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        let table = open(&disk, &place(&golden.name)).unwrap();
        check_holds(&table, &golden.pairs);
        let stats = table.stats();
        assert_eq!((stats.id, stats.seed), (ID, golden.options.seed));
        assert_eq!(stats.index.choice, golden.options.index.choice);
        let attributes = &golden.options.attributes;
        assert_eq!(table.attribute("schema"), attributes.first().map(|(_, value)| &value[..]));
    }
}

#[test]
fn the_same_entries_give_the_same_bytes() {
    for golden in version_1() {
        let kept = read_files(&OsDisk, &place(&golden.name));
        assert!(kept == built(&golden), "{} has other bytes now", golden.name);
    }
}

/// Neither who works, nor the memory given, nor the order of input shows in the files.
#[test]
fn the_way_of_building_does_not_show() {
    let executors: [Arc<dyn Executor>; 2] = [Arc::new(Inline), Arc::new(Threads::new(3))];
    let pairs = crate::fixture::pairs(1500, 24, |_| 8, |i| 900 + (i % 9) as usize);
    let mut all = Vec::new();
    for executor in &executors {
        for memory_bytes in [hashfold::run::MEMORY_BYTES_MIN, 64 << 20] {
            let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
            let options = options(IndexChoice::Dense, ID);
            let builder =
                TableBuilder::create(disk.clone(), folder(), options, executor.clone()).unwrap();
            let sort = SortOptions { memory_bytes, ..SortOptions::default() };
            let mut sorter = builder.sorter(sort).unwrap();
            let mut push = |(key, value): (&Vec<u8>, &Vec<u8>)| {
                sorter.push(key, Some(value)).unwrap();
            };
            match all.len() % 2 {
                0 => pairs.iter().for_each(&mut push),
                _ => pairs.iter().rev().for_each(&mut push),
            }
            let mut run = sorter.finish().unwrap();
            assert_eq!(run.spilled_bytes() > 0, memory_bytes < 1 << 21);
            let summary = *run.summary();
            builder.build(&mut run, &summary).unwrap();
            all.push(read_files(disk.as_ref(), folder()));
        }
    }
    assert!(all.windows(2).all(|two| two[0] == two[1]));
}

/// Writes the golden files: `cargo test --test it golden -- --ignored`. For a new format version
/// only; the files of a version that was released stay as they are.
#[test]
#[ignore = "writes to the source tree"]
fn write_golden_files() {
    for golden in version_1() {
        let place = place(&golden.name);
        if OsDisk.exists(&place).unwrap() {
            for name in OsDisk.list(&place).unwrap() {
                OsDisk.remove(&place.join(name)).unwrap();
            }
        }
        write_files(&OsDisk, &place, &built(&golden));
    }
}
