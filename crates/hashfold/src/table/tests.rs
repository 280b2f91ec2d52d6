use super::*;
use crate::{
    io::{Disk, MemoryDisk},
    key::{KeyHash, Seed},
    run::{Run, SortOptions},
    work::Inline,
};
use std::{collections::BTreeMap, path::Path, sync::Arc};

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

const FOLDER: &str = "table";

fn memory() -> Arc<dyn Disk> {
    Arc::new(MemoryDisk::default())
}

fn options(choice: IndexChoice) -> TableOptions {
    let index = IndexOptions { choice, ..IndexOptions::default() };
    TableOptions { index, ..TableOptions::new(Seed(7), 1) }
}

fn build(disk: &Arc<dyn Disk>, folder: &Path, pairs: &Pairs, options: TableOptions) -> TableStats {
    let builder = TableBuilder::create(disk.clone(), folder, options, Arc::new(Inline)).unwrap();
    let mut sorter = builder.sorter(SortOptions::default()).unwrap();
    for (key, value) in pairs {
        sorter.push(key, Some(value)).unwrap();
    }
    let mut run = sorter.finish().unwrap();
    let summary = *run.summary();
    builder.build(&mut run, &summary).unwrap()
}

fn open(disk: &Arc<dyn Disk>, folder: &Path) -> Table {
    Table::open(disk, folder, OpenOptions::default()).unwrap()
}

/// Every key is found with its value, alone and among others; others are not; a scan gives all
/// entries in order; a check finds nothing wrong.
#[track_caller]
fn check_table(table: &Table, pairs: &Pairs) {
    assert_eq!(table.stats().entries, pairs.len() as u64);
    let absent: Vec<Vec<u8>> = (0..200_u32)
        .map(|i| format!("absent {i}").into_bytes())
        .filter(|key| !pairs.contains_key(key))
        .collect();
    for (key, value) in pairs {
        assert_eq!(table.get(key).unwrap().as_ref(), Some(value), "{}", key.escape_ascii());
    }
    for key in &absent {
        assert_eq!(table.get(key).unwrap(), None);
    }
    let keys: Vec<&Vec<u8>> = pairs.keys().chain(&absent).collect();
    let mut found = vec![None; keys.len()];
    table
        .get_many(&keys, &mut |i, value| {
            assert!(found[i].is_none(), "each key is shown once");
            found[i] = Some(value.map(<[u8]>::to_vec));
            Ok(())
        })
        .unwrap();
    for (key, found) in keys.iter().zip(found) {
        assert_eq!(found.unwrap().as_ref(), pairs.get(*key));
    }
    check_scan(table, pairs);
    let report = table.verify(&mut |_, _| Ok(())).unwrap();
    assert!(report.is_sound(), "{}", report.damage[0]);
    assert_eq!(report.entries, pairs.len() as u64);
}

#[track_caller]
fn check_scan(table: &Table, pairs: &Pairs) {
    let mut scan = table.scan();
    let mut last = None;
    let mut count = 0;
    while scan.advance().unwrap() {
        let entry = scan.entry();
        assert_eq!(entry.hash, KeyHash::of(entry.key, table.stats().seed));
        assert_eq!(pairs.get(entry.key).map(Vec::as_slice), entry.value);
        let here = Some((entry.hash, entry.key.to_vec()));
        assert!(last < here);
        last = here;
        count += 1;
    }
    assert!(!scan.advance().unwrap(), "the end is the end");
    assert_eq!(count, pairs.len());
}

const CHOICES: [IndexChoice; 4] =
    [IndexChoice::Auto, IndexChoice::Dense, IndexChoice::Sparse, IndexChoice::Fences];

/// Builds and checks a table with each index, and again with each index over the same data.
#[track_caller]
fn check(pairs: &Pairs) {
    for choice in CHOICES {
        let disk = memory();
        let folder = Path::new(FOLDER);
        let stats = build(&disk, folder, pairs, options(choice));
        check_table(&open(&disk, folder), pairs);
        let data: Vec<String> = data_files(&disk);
        for other in CHOICES {
            let index = IndexOptions { choice: other, ..IndexOptions::default() };
            let again = reindex(&disk, folder, &index).unwrap();
            assert_eq!(data_files(&disk), data);
            check_table(&open(&disk, folder), pairs);
            if other == choice {
                assert_eq!(again.index, stats.index, "a rebuilt index is the one that was built");
            }
        }
    }
}

fn data_files(disk: &Arc<dyn Disk>) -> Vec<String> {
    let names = disk.list(Path::new(FOLDER)).unwrap();
    names.into_iter().filter(|name| name.starts_with("data-")).collect()
}

/// Pairs whose sizes follow from their number.
fn pairs(count: u32, key: impl Fn(u32) -> usize, value: impl Fn(u32) -> usize) -> Pairs {
    (0..count)
        .map(|i| {
            let mut bytes = format!("{i:08}").into_bytes();
            bytes.resize(key(i).max(8), b'k');
            (bytes, (0..value(i)).map(|j| (i as usize + j) as u8).collect())
        })
        .collect()
}

#[test]
fn no_entries() {
    check(&Pairs::new());
}

#[test]
fn one_empty_entry() {
    check(&Pairs::from([(Vec::new(), Vec::new())]));
    check(&Pairs::from([(Vec::new(), b"value".to_vec())]));
}

#[test]
fn a_few_entries() {
    for count in 1..12 {
        check(&pairs(count, |_| 8, |_| 8));
    }
}

#[test]
fn equal_sizes() {
    check(&pairs(5000, |_| 16, |_| 48));
    check(&pairs(3000, |_| 9, |_| 0));
    check(&pairs(500, |_| 16, |_| 1000));
    check(&pairs(40, |_| 16, |_| 10_000));
}

#[test]
fn differing_sizes() {
    check(&pairs(4000, |i| 8 + i as usize % 7, |i| i as usize % 90));
    check(&pairs(2000, |_| 12, |i| i as usize % 500));
    check(&pairs(700, |i| 8 + i as usize % 900, |i| i as usize * 7 % 3000));
    check(&pairs(60, |i| 8 + i as usize * 1000, |i| i as usize * 3001 % 70_000));
}

#[test]
fn one_large_value_among_small_ones() {
    check(&pairs(3000, |_| 10, |i| if i == 1234 { 3 << 20 } else { 20 }));
}
