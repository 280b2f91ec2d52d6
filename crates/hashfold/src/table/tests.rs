//! Tables against a sorted map.

use super::*;
use crate::{
    env::Env,
    error::{ErrorKind, Result},
    io::{Access, Disk, MemoryDisk, frame::Footer, read_all},
    key::{KeyHash, Seed},
    options::ReadOptions,
    run::{Duplicates, Entry, Merge, Run, SortOptions, Summary, Tombstones, VecRun},
    work::Watch,
};
use std::{collections::BTreeMap, path::Path, sync::Arc};

pub(super) type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

pub(super) const FOLDER: &str = "table";
const SEED: Seed = Seed(7);

pub(super) fn memory() -> Arc<dyn Disk> {
    Arc::new(MemoryDisk::default())
}

pub(super) fn options(choice: IndexChoice) -> TableOptions {
    let index = IndexOptions { choice, ..IndexOptions::default() };
    TableOptions::new().seed(SEED).id(1).index(index)
}

pub(super) fn build(
    disk: &Arc<dyn Disk>,
    folder: &Path,
    pairs: &Pairs,
    options: TableOptions,
) -> TableStats {
    let builder = TableBuilder::with(folder, options.env(Env::on(disk.clone()))).unwrap();
    let mut sorter = builder.sorter(SortOptions::default()).unwrap();
    for (key, value) in pairs {
        sorter.push(key, Some(value)).unwrap();
    }
    let mut run = sorter.finish().unwrap();
    builder.build(&mut run, &Watch::default()).unwrap()
}

fn open(disk: &Arc<dyn Disk>, folder: &Path) -> Table {
    open_as(ReadOptions::new(), disk, folder)
}

pub(super) fn open_as(options: ReadOptions, disk: &Arc<dyn Disk>, folder: &Path) -> Table {
    Table::open_with(folder, &options.env(Env::on(disk.clone()))).unwrap()
}

/// Returns the ways of reading a table: block by block and mapped, with its index and without it.
fn ways() -> impl Iterator<Item = ReadOptions> {
    [Access::Direct, Access::Mapped].into_iter().flat_map(|access| {
        let options = ReadOptions::new().data(access).index(access);
        [options.clone(), options.without_index()]
    })
}

/// Checks that every key is found with its value, alone and among others, that absent keys are not
/// found, that a scan returns all entries in order, and that `verify` finds no damage.
#[track_caller]
fn check_table(table: &Table, pairs: &Pairs) {
    assert_eq!(table.stats().entries, pairs.len() as u64);
    let absent: Vec<Vec<u8>> = (0..200_u32)
        .map(|i| format!("absent {i}").into_bytes())
        .filter(|key| !pairs.contains_key(key))
        .collect();
    for (key, value) in pairs {
        assert_eq!(table.get(key).unwrap().as_ref(), Some(value), "{}", key.escape_ascii());
        assert_eq!(table.get_ref(key).unwrap().as_deref(), Some(value.as_slice()));
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
    let report = table.verify(&Watch::default()).unwrap();
    assert!(report.is_sound(), "{}", report.damage[0]);
    assert_eq!(report.figures.entries, pairs.len() as u64);
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

pub(super) const CHOICES: [IndexChoice; 4] =
    [IndexChoice::Auto, IndexChoice::Dense, IndexChoice::Sparse, IndexChoice::Fences];

/// Builds and checks a table with each index, and again with each index over the same data.
#[track_caller]
fn check(pairs: &Pairs) {
    for choice in CHOICES {
        let disk = memory();
        let folder = Path::new(FOLDER);
        let stats = build(&disk, folder, pairs, options(choice));
        ways().for_each(|way| check_table(&open_as(way, &disk, folder), pairs));
        let data: Vec<String> = data_files(&disk);
        for other in CHOICES {
            let index = IndexOptions { choice: other, ..IndexOptions::default() };
            let again = reindex(&Env::on(disk.clone()), folder, &index, &Watch::default()).unwrap();
            assert_eq!(data_files(&disk), data);
            check_table(&open(&disk, folder), pairs);
            if other == choice {
                assert_eq!(again.index.map(|it| it.choice), stats.index.map(|it| it.choice));
            }
        }
    }
}

fn data_files(disk: &Arc<dyn Disk>) -> Vec<String> {
    let names = disk.list(Path::new(FOLDER)).unwrap();
    names.into_iter().filter(|name| name.starts_with("data-")).collect()
}

/// Pairs whose sizes are functions of their number.
pub(super) fn pairs(count: u32, key: impl Fn(u32) -> usize, value: impl Fn(u32) -> usize) -> Pairs {
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

/// Issue 14: the last entry of a block seemed to be the one that was sought, because the part of its
/// key in that block was equal, and the search ended there. Without an index, and with fences, keys of
/// other blocks were reported as absent.
#[test]
fn an_entry_that_seems_right_does_not_end_the_search() {
    let with_prefix = |value: fn(usize) -> usize| -> Pairs {
        let pair = |i| (format!("{}{i:020}", "p".repeat(40)).into_bytes(), vec![1; value(i)]);
        (0..1500).map(pair).collect()
    };
    check(&with_prefix(|_| 1003));
    check(&with_prefix(|i| 950 + i % 101));
}

/// Issue 14: the position of a rank could be behind the end of the data, which ended the process.
#[test]
fn more_entries_than_fit_in_the_blocks_are_damage() {
    // The largest numbers of entries of a block, tagged and packed.
    for (key, value, per_block) in [(16, 48, 62), (8, 1, 453)] {
        let disk = memory();
        build(&disk, Path::new(FOLDER), &pairs(1000, |_| key, |_| value), options(CHOICES[1]));
        let path = Path::new(FOLDER).join(&data_files(&disk)[0]);
        let file = disk.open(&path, Access::Cached).unwrap();
        let bytes = read_all(file.as_ref(), u64::MAX).unwrap();
        let (mut footer, start) = Footer::read(file.as_ref()).unwrap();
        let blocks = u64::from_le_bytes(footer.fields[40..48].try_into().unwrap());
        let entries = blocks * per_block + 1;
        let payload = blocks * (4096 - layout::BLOCK_HEAD as u64);
        assert!(entries <= payload / (key + value) as u64, "their bytes would fit");
        footer.fields[32..40].copy_from_slice(&entries.to_le_bytes());
        let file = disk.create(&path, Access::Cached).unwrap();
        file.write_at(0, &bytes[..start as usize]).unwrap();
        file.write_at(start, &footer.encode(start)).unwrap();
        let options = ReadOptions::new().data(Access::Mapped).env(Env::on(disk.clone()));
        let error = Table::open_with(FOLDER, &options).unwrap_err();
        let ErrorKind::Field { what, .. } = error.kind() else { panic!("{error}") };
        assert_eq!(*what, "number of entries");
    }
}

#[test]
fn one_large_value_among_small_ones() {
    check(&pairs(3000, |_| 10, |i| if i == 1234 { 3 << 20 } else { 20 }));
}

#[test]
fn every_block_size() {
    let pairs = pairs(1500, |i| 8 + i as usize % 5, |i| i as usize % 1200);
    for block_size in [4096, 8192, 16384, 32768, BLOCK_SIZE_MAX] {
        let disk = memory();
        let options = options(IndexChoice::Auto).block_size(block_size);
        build(&disk, Path::new(FOLDER), &pairs, options);
        check_table(&open(&disk, Path::new(FOLDER)), &pairs);
    }
}

/// Two keys of 32 bytes with the same XXH3-128 hash and the seed of [`options`]. XXH3 multiplies
/// two factors of the first half. Each key makes another factor zero, so both products are zero.
/// The sums of the halves, which are mixed in, are made equal.
pub(super) fn colliding_pair(number: u64) -> [Vec<u8>; 2] {
    const SECRET: [u64; 2] = [0xbe4b_a423_396c_feb8, 0x1cad_21f7_2c81_017c];
    let zeros = [SECRET[0].wrapping_add(SEED.0), SECRET[1].wrapping_sub(SEED.0)];
    let key = |low: u64, high: u64| [low, high, number, 0].map(u64::to_le_bytes).concat();
    let other = zeros[0].wrapping_add(number).wrapping_sub(zeros[1]);
    let keys = [key(zeros[0], number), key(other, zeros[1])];
    assert_eq!(KeyHash::of(&keys[0], SEED), KeyHash::of(&keys[1], SEED));
    keys
}

#[test]
fn keys_that_share_a_hash_are_both_found() {
    let mut pairs = pairs(2000, |_| 32, |_| 20);
    for number in 0..100 {
        for (i, key) in colliding_pair(number).into_iter().enumerate() {
            pairs.insert(key, vec![number as u8 + i as u8; 20]);
        }
    }
    check(&pairs);
    // The same check where entries differ in size, and where one of the two keys is absent.
    for (i, value) in pairs.values_mut().enumerate() {
        value.resize(i % 300, 1);
    }
    check(&pairs);
    let [here, not_here] = colliding_pair(1000);
    pairs.insert(here, b"here".to_vec());
    check(&pairs);
    let disk = memory();
    build(&disk, Path::new(FOLDER), &pairs, options(IndexChoice::Auto));
    assert_eq!(open(&disk, Path::new(FOLDER)).get(&not_here).unwrap(), None);
}

#[test]
fn the_last_of_equal_keys_wins_or_is_refused() {
    for duplicates in [Duplicates::KeepLast, Duplicates::Refuse] {
        let disk = memory();
        let options = options(IndexChoice::Auto);
        let folder = Path::new(FOLDER);
        let builder = TableBuilder::with(folder, options.env(Env::on(disk.clone()))).unwrap();
        let mut sorter =
            builder.sorter(SortOptions { duplicates, ..SortOptions::default() }).unwrap();
        for value in ["first", "second"] {
            sorter.push(b"key", Some(value.as_bytes())).unwrap();
        }
        let mut run = sorter.finish().unwrap();
        let built = builder.build(&mut run, &Watch::default());
        if duplicates == Duplicates::Refuse {
            assert!(matches!(built.unwrap_err().kind(), ErrorKind::DuplicateKey { .. }));
            assert!(!disk.exists(folder).unwrap());
        } else {
            built.unwrap();
            let value = open(&disk, folder).get(b"key").unwrap();
            assert_eq!(value.as_deref(), Some(&b"second"[..]));
        }
    }
}

#[test]
fn absent_bits_tell_most_absent_keys_without_a_read() {
    let pairs = pairs(5000, |_| 8, |_| 100);
    let disk = memory();
    let mut options = options(IndexChoice::Auto);
    options.index.absent_bits = 8;
    let stats = build(&disk, Path::new(FOLDER), &pairs, options);
    assert_eq!(stats.index.map(|it| (it.choice, it.absent_bits)), Some((IndexChoice::Dense, 8)));
    let table = open(&disk, Path::new(FOLDER));
    check_table(&table, &pairs);
    let reads =
        (0..10_000_u32).filter(|i| table.would_read(format!("absent {i}").as_bytes())).count();
    // 1 in 256 of 10,000 lookups is 39.
    assert!((10..90).contains(&reads), "{reads} reads");
}

#[track_caller]
fn refused(result: Result<TableBuilder>) -> ErrorKindName {
    name(result.expect_err("it is refused").kind())
}

type ErrorKindName = &'static str;

fn name(kind: &ErrorKind) -> ErrorKindName {
    match kind {
        ErrorKind::Exists => "exists",
        ErrorKind::Busy => "busy",
        ErrorKind::Argument { .. } => "argument",
        ErrorKind::Absent => "absent",
        _ => "other",
    }
}

#[test]
fn a_table_is_replaced_only_on_demand_and_by_one_builder() {
    let (disk, folder) = (memory(), Path::new(FOLDER));
    let create = |replace| {
        let options = options(IndexChoice::Auto).replace(replace).id(2);
        TableBuilder::with(folder, options.env(Env::on(disk.clone())))
    };
    let old = pairs(10, |_| 8, |_| 8);
    build(&disk, folder, &old, options(IndexChoice::Auto));
    assert_eq!(refused(create(false)), "exists");
    let held = create(true).unwrap();
    assert_eq!(refused(create(true)), "busy");
    drop(held);
    let table = open(&disk, folder);
    let new = pairs(20, |_| 9, |_| 9);
    build(&disk, folder, &new, options(IndexChoice::Auto).replace(true).id(2));
    check_table(&table, &old);
    check_table(&open(&disk, folder), &new);
    assert_eq!(disk.list(folder).unwrap().len(), 3, "manifest, data and index");
}

#[test]
fn options_outside_their_ranges_are_refused() {
    let mut all = vec![options(IndexChoice::Auto); 6];
    all[0].block_size = 4095;
    all[1].block_size = 1 << 17;
    all[2].index.bucket_size = 7;
    all[3].index.coding_limit = CODING_LIMIT_MAX + 1;
    all[4].index.absent_bits = ABSENT_BITS_MAX + 1;
    all[5].index = IndexOptions { choice: IndexChoice::Fences, absent_bits: 4, ..all[5].index };
    for options in all {
        let disk = memory();
        let created = TableBuilder::with(Path::new(FOLDER), options.env(Env::on(disk.clone())));
        assert_eq!(refused(created), "argument");
        assert!(!disk.exists(Path::new(FOLDER)).unwrap());
    }
}

#[test]
fn missing_names_are_reported_as_absent() {
    let disk = memory();
    for folder in [Path::new("nowhere"), Path::new("empty")] {
        let error =
            Table::open_with(folder, &ReadOptions::new().env(Env::on(disk.clone()))).unwrap_err();
        assert_eq!(name(error.kind()), "absent");
        let error =
            reindex(&Env::on(disk.clone()), folder, &IndexOptions::default(), &Watch::default())
                .unwrap_err();
        assert_eq!(name(error.kind()), "absent");
        assert!(!disk.exists(folder).unwrap());
    }
}

/// A run that fails after a number of entries.
struct Broken<R>(R, u32);

impl<R: Run> Run for Broken<R> {
    fn seed(&self) -> Seed {
        self.0.seed()
    }

    fn summary(&self) -> Summary {
        self.0.summary()
    }

    fn advance(&mut self) -> Result<bool> {
        self.1 = self.1.checked_sub(1).ok_or(ErrorKind::Stopped)?;
        self.0.advance()
    }

    fn entry(&self) -> Entry<'_> {
        self.0.entry()
    }
}

/// A run with the summary of another run.
struct Misled(VecRun, Summary);

impl Run for Misled {
    fn seed(&self) -> Seed {
        self.0.seed()
    }

    fn summary(&self) -> Summary {
        self.1
    }

    fn advance(&mut self) -> Result<bool> {
        self.0.advance()
    }

    fn entry(&self) -> Entry<'_> {
        self.0.entry()
    }
}

#[test]
fn a_run_of_another_seed_is_refused_and_changes_nothing() {
    let disk = memory();
    let folder = Path::new(FOLDER);
    let options = options(IndexChoice::Auto);
    let builder = TableBuilder::with(folder, options.env(Env::on(disk.clone()))).unwrap();
    let other = Seed(SEED.0 + 1);
    let error = builder.build(&mut VecRun::new(Vec::new(), other), &Watch::default()).unwrap_err();
    let ErrorKind::WrongSeed { expected, got } = *error.kind() else { panic!("{error}") };
    assert_eq!((expected, got), (SEED, other));
    assert!(!disk.exists(folder).unwrap());
}

#[test]
fn a_build_that_is_stopped_or_misled_leaves_nothing() {
    let entries = |count: u32| {
        let entry = |i: u32| (i.to_le_bytes().to_vec(), Some(vec![0; 10 + i as usize / 90]));
        VecRun::new((0..count).map(entry).collect(), SEED)
    };
    let check = |run: &mut dyn Run| {
        let disk = memory();
        let folder = Path::new("some/folder");
        let options = options(IndexChoice::Auto);
        let builder = TableBuilder::with(folder, options.env(Env::on(disk.clone()))).unwrap();
        let error = builder.build(run, &Watch::default()).unwrap_err();
        assert!(!disk.exists(folder).unwrap());
        error
    };
    let stopped = check(&mut Broken(entries(100), 50));
    assert!(matches!(stopped.kind(), ErrorKind::Stopped));
    // The summary says that all values have the same size; the last ones do not.
    let misled = check(&mut Misled(entries(100), entries(90).summary()));
    assert_eq!(name(misled.kind()), "argument");
}

#[test]
fn a_merge_of_a_scan_and_a_change_is_as_good_as_a_new_build() {
    let (disk, folder) = (memory(), Path::new(FOLDER));
    let old = pairs(3000, |_| 8, |i| i as usize % 50);
    build(&disk, folder, &old, options(IndexChoice::Auto));
    let table = open(&disk, folder);
    let mut new = old.clone();
    let mut changes = Vec::new();
    for (i, key) in old.keys().enumerate().filter(|(i, _)| i % 7 == 0) {
        let value = (i % 2 == 0).then(|| vec![1; 30]);
        match &value {
            Some(value) => drop(new.insert(key.clone(), value.clone())),
            None => drop(new.remove(key)),
        }
        changes.push((key.clone(), value));
    }
    let changes = VecRun::new(changes, SEED);
    let runs: Vec<Box<dyn Run>> = vec![Box::new(changes), Box::new(table.scan())];
    let mut merge = Merge::new(runs, Tombstones::Drop).unwrap();
    let merged = options(IndexChoice::Auto).replace(true).id(2);
    let builder = TableBuilder::with(folder, merged.env(Env::on(disk.clone()))).unwrap();
    builder.build(&mut merge, &Watch::default()).unwrap();
    check_table(&open(&disk, folder), &new);
}

#[test]
fn a_build_that_fails_leaves_the_files_of_a_table_that_lost_its_manifest() {
    let (disk, folder) = (memory(), Path::new(FOLDER));
    let old = pairs(100, |_| 8, |_| 8);
    build(&disk, folder, &old, options(IndexChoice::Auto));
    let (manifest, saved) = (folder.join(crate::manifest::NAME), Path::new("saved"));
    disk.rename(&manifest, saved).unwrap();
    let before = disk.list(folder).unwrap();
    for end_early in [true, false] {
        let new = options(IndexChoice::Auto);
        let builder = TableBuilder::with(folder, new.env(Env::on(disk.clone()))).unwrap();
        if end_early {
            drop(builder);
        } else {
            let run = VecRun::new(vec![(b"key".to_vec(), Some(b"value".to_vec()))], SEED);
            builder.build(&mut Broken(run, 1), &Watch::default()).unwrap_err();
        }
        assert_eq!(disk.list(folder).unwrap(), before);
    }
    disk.rename(saved, &manifest).unwrap();
    check_table(&open(&disk, folder), &old);
}

/// The entry fills its block, so there is no place for the next one.
#[test]
fn a_block_that_counts_too_many_entries_is_damage_and_not_the_end() {
    let disk = memory();
    let pairs = Pairs::from([(vec![1; 16], vec![2; 4096 - layout::BLOCK_HEAD - 16])]);
    build(&disk, Path::new(FOLDER), &pairs, options(IndexChoice::Dense));
    let names = disk.list(Path::new(FOLDER)).unwrap();
    let path = Path::new(FOLDER).join(names.iter().find(|name| name.starts_with("data-")).unwrap());
    let file = disk.open(&path, Access::Cached).unwrap();
    let mut bytes = read_all(file.as_ref(), u64::MAX).unwrap();
    let block = &mut bytes[4096..8192];
    assert_eq!(block[6..8], [1, 0]);
    block[6] = 2;
    crate::io::Seal::of(0, 1).put(block);
    disk.create(&path, Access::Cached).unwrap().write_at(0, &bytes).unwrap();
    let table = open(&disk, Path::new(FOLDER));
    let mut scan = table.scan();
    assert!(scan.advance().unwrap());
    assert!(matches!(scan.advance().unwrap_err().kind(), ErrorKind::Field { .. }));
}

#[test]
fn pushed_entries_are_found_and_the_last_of_equal_keys_wins() {
    let env = Env::simulated(1);
    let options = || TableOptions::new().env(env.clone());
    let mut builder = TableBuilder::with(FOLDER, options()).unwrap();
    builder.push("sky", "grey").unwrap();
    builder.push(b"grass", [1, 2, 3]).unwrap();
    builder.push("sky", "blue").unwrap();
    let table = builder.finish().unwrap();
    assert_eq!(table.get("sky").unwrap().unwrap(), b"blue");
    assert_eq!(table.get("grass").unwrap().unwrap(), [1, 2, 3]);
    assert!(!table.contains("sea").unwrap());
    assert_eq!(refused(TableBuilder::with(FOLDER, options())), "exists");
    let empty = TableBuilder::with("empty", options()).unwrap().finish().unwrap();
    assert_eq!(empty.stats().entries, 0);
    let (stats, other) = (table.stats(), empty.stats());
    assert!(stats.seed != other.seed && stats.id != other.id, "both are drawn");
}
