//! All parts together, on the real file system.

use crate::fixture::{Pairs, absent, check_holds, fixed, open, options, pairs};
use hashfold::{
    Env, ErrorKind, ReadOptions,
    io::{Access, Disk, OsDisk},
    run::{Run, SortOptions},
    table::{IndexChoice, Table, TableBuilder, TableOptions, TableStats},
    work::{Executor, Threads, Watch},
};
use std::{path::Path, sync::Arc};

const ACCESSES: [Access; 3] = [Access::Cached, Access::Mapped, Access::Direct];

/// Page cache of a sort with spills, in bytes.
const CACHED_BYTES: usize = 6 << 20;

fn build(folder: &Path, pairs: &Pairs, options: TableOptions, cached_bytes: usize) -> TableStats {
    let executor: Arc<dyn Executor> = Arc::new(Threads::new(2));
    let builder =
        TableBuilder::with(folder, options.env(Env { executor, ..Env::system() })).unwrap();
    let sort = SortOptions { cached_bytes, ..SortOptions::within(4 << 20) };
    let mut sorter = builder.sorter(sort).unwrap();
    for (key, value) in pairs {
        sorter.push(key, Some(value)).unwrap();
    }
    let mut run = sorter.finish().unwrap();
    let stats = builder.build(&mut run, &Watch::default()).unwrap();
    assert!(run.spilled_bytes() > 0, "the sort had too much memory");
    stats
}

/// Checks that every key is found, in batches and some alone, and that a scan and `verify` see all
/// entries.
#[track_caller]
fn check_large(table: &Table, pairs: &Pairs) {
    let all: Vec<(&Vec<u8>, &Vec<u8>)> = pairs.iter().collect();
    for batch in all.chunks(1000) {
        let keys: Vec<&Vec<u8>> = batch.iter().map(|(key, _)| *key).collect();
        let mut shown = 0;
        let mut visit = |i: usize, value: Option<&[u8]>| {
            assert_eq!(value, Some(batch[i].1.as_slice()));
            shown += 1;
            Ok(())
        };
        table.get_many(&keys, &mut visit).unwrap();
        assert_eq!(shown, batch.len());
    }
    for (key, value) in all.iter().step_by(97) {
        assert_eq!(table.get(key).unwrap().as_ref(), Some(*value));
    }
    for key in absent(500) {
        assert!(!table.contains(&key).unwrap());
    }
    let mut scan = table.scan();
    let mut count = 0;
    while scan.advance().unwrap() {
        let entry = scan.entry();
        assert_eq!(pairs.get(entry.key).map(Vec::as_slice), entry.value);
        count += 1;
    }
    assert_eq!(count, pairs.len());
    let report = table.verify(&Watch::default()).unwrap();
    assert!(report.is_sound(), "{}", report.damage[0]);
}

fn check_all_ways(folder: &Path, pairs: &Pairs) {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    for data in ACCESSES {
        for index in ACCESSES {
            let table = Table::open_with(
                folder,
                &ReadOptions::new().data(data).index(index).env(Env::on(disk.clone())),
            )
            .unwrap();
            check_large(&table, pairs);
        }
    }
}

#[test]
fn two_hundred_thousand_entries_are_found_with_every_access_mode() {
    let home = tempfile::tempdir().unwrap();
    let pairs = pairs(200_000, 1, |i| 8 + (i % 9) as usize, |i| (i % 70) as usize);
    for (i, access) in ACCESSES.into_iter().enumerate() {
        let folder = home.path().join(format!("table-{i}"));
        let choice = [IndexChoice::Dense, IndexChoice::Sparse, IndexChoice::Fences][i];
        let cached_bytes = if access == Access::Direct { 0 } else { CACHED_BYTES };
        build(&folder, &pairs, options(choice, i as u64).access(access), cached_bytes);
        if access == Access::Direct {
            check_all_ways(&folder, &pairs);
        } else {
            let disk: Arc<dyn Disk> = Arc::new(OsDisk);
            check_large(&open(&disk, &folder).unwrap(), &pairs);
        }
    }
}

#[test]
fn a_table_stays_readable_through_an_open_handle_while_it_is_replaced() {
    let home = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let (old, new) = (fixed(150_000, 2), fixed(160_000, 3));
    build(home.path(), &old, options(IndexChoice::Dense, 1), CACHED_BYTES);
    let open_all = || {
        ACCESSES.map(|data| {
            Table::open_with(
                home.path(),
                &ReadOptions::new().data(data).index(data).env(Env::on(disk.clone())),
            )
            .unwrap()
        })
    };
    let before = open_all();
    let options = options(IndexChoice::Fences, 2).replace(true);
    let stats = build(home.path(), &new, options, CACHED_BYTES);
    assert_eq!(stats.generation, 2);
    before.iter().for_each(|table| check_large(table, &old));
    open_all().iter().for_each(|table| check_large(table, &new));
    assert_eq!(OsDisk.list(home.path()).unwrap().len(), 3, "the old files are gone by name");
}

#[test]
fn many_threads_look_up_in_one_table() {
    let home = tempfile::tempdir().unwrap();
    let pairs = fixed(120_000, 4);
    build(home.path(), &pairs, options(IndexChoice::Dense, 1), CACHED_BYTES);
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    for data in ACCESSES {
        let options = ReadOptions::new().data(data).index(Access::Cached);
        let table = Table::open_with(home.path(), &options.env(Env::on(disk.clone()))).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (table, pairs) = (&table, &pairs);
                scope.spawn(move || {
                    for (key, value) in pairs.iter().skip(thread).step_by(50) {
                        assert_eq!(table.get(key).unwrap().as_ref(), Some(value));
                    }
                });
            }
        });
    }
}

#[test]
fn a_batch_may_be_empty_name_a_key_twice_or_be_stopped() {
    let home = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let pairs = pairs(3000, 5, |_| 8, |i| if i % 100 == 0 { 20_000 } else { 30 });
    crate::fixture::build(&disk, home.path(), &pairs, options(IndexChoice::Dense, 1));
    for data in ACCESSES {
        let options = ReadOptions::new().data(data).index(Access::Cached);
        let table = Table::open_with(home.path(), &options.env(Env::on(disk.clone()))).unwrap();
        table.get_many(&[] as &[&[u8]], &mut |_, _| panic!("nothing to show")).unwrap();
        let (key, value) = pairs.first_key_value().unwrap();
        let mut shown = [false; 300];
        let mut visit = |i: usize, found: Option<&[u8]>| {
            assert_eq!(found, Some(value.as_slice()));
            shown[i] = true;
            Ok(())
        };
        table.get_many(&[key; 300], &mut visit).unwrap();
        assert_eq!(shown, [true; 300]);
        let keys: Vec<&Vec<u8>> = pairs.keys().collect();
        for count in [1, 2, 200, 2000] {
            let mut left = count;
            let mut visit = |_: usize, _: Option<&[u8]>| {
                left -= 1;
                if left == 0 { Err(ErrorKind::Stopped.into()) } else { Ok(()) }
            };
            let error = table.get_many(&keys, &mut visit).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Stopped), "{error}");
            assert_eq!(left, 0, "nothing is shown after an error");
        }
        let error = table.verify(&Watch::new(|_| Err(ErrorKind::Stopped.into()))).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Stopped), "{error}");
    }
}

#[test]
fn an_empty_table_is_a_table() {
    let home = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    crate::fixture::build(&disk, home.path(), &Pairs::new(), options(IndexChoice::Auto, 1));
    for data in ACCESSES {
        let options = ReadOptions::new().data(data).index(data);
        check_holds(
            &Table::open_with(home.path(), &options.env(Env::on(disk.clone()))).unwrap(),
            &Pairs::new(),
        );
    }
}
