//! Lookups in tables without an index: none was wanted, or it is lost or damaged.

use crate::fixture::{
    Pairs, absent, arrangements, build, check_holds, file_of, fixed, folder, index, memory,
    name_of, open, options, pairs, random, read_files, write_files,
};
use hashfold::{
    Env, ErrorKind, KeyHash, ReadOptions,
    io::{Access, CountingDisk, Disk},
    table::{IndexChoice, Table, reindex},
    work::Watch,
};
use std::sync::Arc;

/// Checks a table of these pairs without its index, mapped and with reads. Returns the mean number of
/// reads per lookup, and the largest.
#[track_caller]
fn check_without_index(pairs: &Pairs) -> (f64, u64) {
    let counts = CountingDisk::on(memory());
    let disk: Arc<dyn Disk> = Arc::new(counts.clone());
    build(&disk, folder(), pairs, options(IndexChoice::Fences, 1));
    let open = |access| {
        let options = ReadOptions::new().without_index().data(access);
        Table::open_with(folder(), &options.env(Env::on(disk.clone()))).unwrap()
    };
    check_holds(&open(Access::Mapped), pairs);
    let table = open(Access::Cached);
    assert_eq!((table.stats().index, table.stats().index_bytes), (None, 0));
    check_holds(&table, pairs);
    reads_per_lookup(&table, &counts, pairs)
}

/// Returns the mean number of reads per lookup, and the largest.
fn reads_per_lookup(table: &Table, counts: &CountingDisk, pairs: &Pairs) -> (f64, u64) {
    let (mut sum, mut max) = (0, 0);
    counts.take();
    for (key, value) in pairs {
        assert_eq!(table.get(key).unwrap().as_ref(), Some(value));
        let reads = counts.take().reads;
        (sum, max) = (sum + reads, max.max(reads));
    }
    (sum as f64 / pairs.len() as f64, max)
}

#[test]
fn lookups_without_an_index_take_few_reads() {
    for pairs in arrangements(20_000, 1) {
        let (mean, max) = check_without_index(&pairs);
        assert!(mean < 2.4 && max <= 6, "{mean} reads, at most {max}");
    }
}

#[test]
fn a_table_that_lost_its_index_answers_until_it_is_built_again() {
    for pairs in [vec![Pairs::new(), fixed(1, 3)], arrangements(600, 2).into()].concat() {
        let disk = memory();
        build(&disk, folder(), &pairs, options(IndexChoice::Dense, 1));
        let name = name_of(&read_files(disk.as_ref(), folder()), "index");
        disk.remove(&folder().join(&name)).unwrap();
        let table = open(&disk, folder()).unwrap();
        let damage = table.index_damage().expect("the index is gone");
        assert_eq!(file_of(damage), name);
        assert!(pairs.iter().all(|(key, value)| table.get(key).unwrap().as_ref() == Some(value)));
        assert!(absent(50).all(|key| table.get(key).unwrap().is_none()));
        let report = table.verify(&Watch::default()).unwrap();
        assert_eq!(report.damage.len(), 1, "verify names the index");
        let index = index(IndexChoice::Fences);
        reindex(&Env::on(disk.clone()), folder(), &index, &Watch::default()).unwrap();
        let table = open(&disk, folder()).unwrap();
        assert!(table.index_damage().is_none());
        check_holds(&table, &pairs);
    }
}

#[test]
fn few_large_and_many_small_entries_are_found_without_an_index() {
    let all = pairs(
        3000,
        9,
        |i| 8 + (i % 5) as usize,
        |i| if i % 300 == 7 { 100_000 } else { (i % 61) as usize },
    );
    check_without_index(&all);
}

/// Issue 14: the search read on to the end of the file, because it wanted the whole key of the last
/// entry that it saw.
#[test]
fn keys_larger_than_blocks_are_found_without_an_index() {
    for value in [0, 100] {
        let all = pairs(2000, 3, |_| 6000, |i| value * (i % 3) as usize);
        let (mean, max) = check_without_index(&all);
        // 8 guesses, 12 halvings of about 3000 blocks, and the rest of the entry.
        assert!(mean < 5.0 && max <= 8 + 12 + 2, "{mean} reads, at most {max}");
    }
}

/// Returns keys of which most have hashes in the lowest 64th of all, and few are elsewhere.
fn skewed(count: u64) -> Pairs {
    let mut random = random(11);
    let mut all = Pairs::new();
    for i in 0_u64.. {
        let key = i.to_le_bytes().to_vec();
        let hash = KeyHash::of(&key, crate::fixture::SEED).high();
        if hash < u64::MAX / 64 || random().is_multiple_of(1000) {
            all.insert(key, vec![i as u8; 40]);
        }
        if all.len() as u64 == count {
            return all;
        }
    }
    all
}

/// Interpolation is wrong each time; after some guesses the search bisects.
#[test]
fn skewed_hashes_cost_reads_and_nothing_else() {
    let (mean, max) = check_without_index(&skewed(8000));
    // 8 guesses, and 7 halvings of 97 blocks.
    assert!(mean > 5.0 && max <= 8 + 7 + 2, "{mean} reads, at most {max}");
}

#[test]
fn the_index_of_another_table_is_not_used() {
    for access in [Access::Cached, Access::Mapped, Access::Direct] {
        let (disk, other) = (memory(), memory());
        let content = arrangements(300, 2);
        for (i, all) in content.iter().enumerate() {
            let twin = options(IndexChoice::Dense, 2).replace(true);
            build(&disk, folder(), all, options(IndexChoice::Dense, 1).replace(true));
            build(&other, folder(), &content[(i + 1) % 4], twin);
            let mut files = read_files(disk.as_ref(), folder());
            let theirs = read_files(other.as_ref(), folder());
            let name = name_of(&files, "index");
            let mut bytes = theirs[&name_of(&theirs, "index")].clone();
            bytes.resize(files[&name].len(), 0);
            files.insert(name.clone(), bytes);
            write_files(disk.as_ref(), folder(), &files);
            let options = ReadOptions::new().data(access).index(access).env(Env::on(disk.clone()));
            let table = Table::open_with(folder(), &options).unwrap();
            let damage = table.index_damage().expect("it is another table's");
            assert_eq!(file_of(damage), name);
            let is_expected = matches!(
                damage.kind(),
                ErrorKind::Mismatch { .. } | ErrorKind::Truncated { .. } | ErrorKind::Field { .. }
            );
            assert!(is_expected, "{damage}");
            assert!(all.iter().all(|(key, value)| table.get(key).unwrap().as_ref() == Some(value)));
            let without = Table::open_with(folder(), &options.without_index()).unwrap();
            assert!(without.index_damage().is_none(), "it is not read");
            check_holds(&without, all);
        }
    }
}
