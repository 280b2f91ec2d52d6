//! Power cuts and failures at every point of a build: the folder holds either the old table or the
//! new one, complete, and the next build succeeds.

use crate::fixture::{
    CHOICES, FOLDER, Pairs, check_holds, file_of, fixed, folder, index, open, options, pairs,
    scanned, try_build, try_build_on, variable,
};
use hashfold::{
    Env, Error, ErrorClass, ErrorKind, ReadOptions, Result,
    io::{Disk, Fault, FaultPlan, FaultyDisk, MemoryDisk},
    run::{Duplicates, MEMORY_BYTES_MIN, Run, SortOptions},
    sketch::{GroupBuilder, GroupOptions, GroupUnion, groups},
    table::{IndexChoice, Table, TableBuilder, TableOptions, reindex},
    work::{Executor, Threads, Watch},
};
use std::{io, path::Path, sync::Arc};

/// Number of power cuts at the same point, with different outcomes for unsynced writes.
const SEEDS: u64 = 5;

const SMALL_SORT: SortOptions = SortOptions {
    memory_bytes: MEMORY_BYTES_MIN,
    cached_bytes: MEMORY_BYTES_MIN,
    duplicates: Duplicates::KeepLast,
};

type Act = dyn Fn(&Arc<dyn Disk>) -> Result<()>;

/// A change of a folder, such as building or replacing a table.
struct Change {
    before: MemoryDisk,
    /// The content of the table before and after the change, if there is a table.
    old: Option<Pairs>,
    new: Pairs,
    act: Box<Act>,
}

pub(crate) fn replacing(choice: IndexChoice, id: u64) -> TableOptions {
    options(choice, id).replace(true)
}

pub(crate) fn disk_with(pairs: &Pairs) -> MemoryDisk {
    let disk = MemoryDisk::default();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let options = options(IndexChoice::Dense, 1);
    try_build(&shared, folder(), pairs, options, SortOptions::default()).unwrap();
    disk
}

fn building(new: Pairs, sort: SortOptions, choice: IndexChoice) -> Change {
    let pairs = new.clone();
    let act = move |disk: &Arc<dyn Disk>| {
        try_build(disk, folder(), &pairs, options(choice, 2), sort).map(|_| ())
    };
    Change { before: MemoryDisk::default(), old: None, new, act: Box::new(act) }
}

fn replacing_a_table(new: Pairs, sort: SortOptions, id: u64) -> Change {
    let old = variable(90, 2);
    let pairs = new.clone();
    let act = move |disk: &Arc<dyn Disk>| {
        let options = replacing(IndexChoice::Fences, id);
        try_build(disk, folder(), &pairs, options, sort).map(|_| ())
    };
    Change { before: disk_with(&old), old: Some(old), new, act: Box::new(act) }
}

fn reindexing() -> Change {
    let pairs = variable(120, 3);
    let act = |disk: &Arc<dyn Disk>| {
        reindex(&Env::on(disk.clone()), folder(), &index(IndexChoice::Sparse), &Watch::default())
            .map(|_| ())
    };
    Change { before: disk_with(&pairs), old: Some(pairs.clone()), new: pairs, act: Box::new(act) }
}

/// Rows: a group and a key each.
type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// Returns rows of groups from `first` on, whose names have `size` bytes.
fn rows(first: usize, count: usize, size: usize) -> Rows {
    let row = |i: usize| (format!("{:0size$}", first + i / 3).into_bytes(), vec![i as u8]);
    (0..count).map(row).collect()
}

/// Adds rows to a table of groups, or makes it, as `hashfold sketch add --by` does.
fn add_groups(disk: &Arc<dyn Disk>, rows: &Rows, id: u64) -> Result<()> {
    let env = Env::on(disk.clone());
    let options = GroupOptions::new().precision(4).memory(groups::MEMORY_BYTES_MIN);
    let old = match open(disk, folder()) {
        Err(error) if matches!(error.kind(), ErrorKind::Absent) => None,
        table => Some(table?),
    };
    let table = TableOptions::new().env(env.clone()).id(id).replace(true);
    let table = table.seed(options.group_seed()).attributes(vec![options.attribute()?]);
    let builder = TableBuilder::with(folder(), table)?;
    let mut added = GroupBuilder::new(&env, builder.spill_path(), &options)?;
    rows.iter().try_for_each(|(group, key)| added.add(group, key))?;
    let mut run: Box<dyn Run> = Box::new(added.finish()?);
    if let Some(old) = &old {
        run = Box::new(GroupUnion::new(vec![Box::new(old.scan()), run], &options)?);
    }
    builder.build(&mut run, &Watch::default())?;
    Ok(())
}

/// Adds rows to groups that are there, if there are any.
fn adding_groups(old_rows: &Rows, new_rows: Rows) -> Change {
    let (before, old) = match old_rows.is_empty() {
        true => (MemoryDisk::default(), None),
        false => with_groups(&[old_rows]),
    };
    let (_, new) = with_groups(&[old_rows, &new_rows]);
    let act = move |disk: &Arc<dyn Disk>| add_groups(disk, &new_rows, 2);
    Change { before, old, new: new.expect("there are rows"), act: Box::new(act) }
}

/// Returns a disk with the groups of rows, and these groups.
fn with_groups(all: &[&Rows]) -> (MemoryDisk, Option<Pairs>) {
    let disk = MemoryDisk::default();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    for rows in all.iter().filter(|rows| !rows.is_empty()) {
        add_groups(&shared, rows, 1).unwrap();
    }
    let groups = scanned(&open(&shared, folder()).unwrap()).unwrap();
    (disk, Some(groups))
}

/// Returns each kind of change, with little data.
fn changes() -> Vec<Change> {
    let mut changes: Vec<Change> = CHOICES
        .iter()
        .map(|&choice| building(variable(100, 1), SortOptions::default(), choice))
        .collect();
    changes.push(replacing_a_table(fixed(200, 4), SortOptions::default(), 2));
    // A fixed seed and id, as in reproducible builds.
    changes.push(replacing_a_table(fixed(200, 4), SortOptions::default(), 1));
    changes.push(reindexing());
    changes.push(adding_groups(&Rows::new(), rows(0, 90, 4)));
    changes.push(adding_groups(&rows(0, 90, 4), rows(20, 60, 4)));
    changes
}

/// Returns changes that need more memory than their budget.
fn large_changes() -> Vec<Change> {
    let large = || pairs(1100, 5, |_| 8, |i| 1000 + (i % 50) as usize);
    vec![
        building(large(), SMALL_SORT, IndexChoice::Dense),
        replacing_a_table(large(), SMALL_SORT, 2),
        // Names of 5 KiB exceed the memory of the groups.
        adding_groups(&rows(0, 30, 4), rows(10, 900, 5000)),
    ]
}

impl Change {
    fn faulty(&self, fault: Fault) -> (FaultyDisk, Result<()>) {
        let faulty = FaultyDisk::over(&self.before, FaultPlan::from(fault));
        let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
        let result = (self.act)(&disk);
        (faulty, result)
    }

    /// Checks that the folder holds the old table or the new one. Returns its content.
    #[track_caller]
    fn check_old_or_new(&self, disk: &Arc<dyn Disk>) -> Option<Pairs> {
        let table = match open(disk, folder()) {
            Ok(table) => table,
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Absent), "{error}");
                assert!(self.old.is_none(), "the old table is lost");
                return None;
            }
        };
        let held = scanned(&table).unwrap();
        let is_new = held == self.new;
        assert!(is_new || self.old.as_ref() == Some(&held), "neither the old nor the new");
        check_holds(&table, &held);
        Some(held)
    }

    /// Checks that the next build succeeds and leaves only its own three files.
    #[track_caller]
    fn check_next_build(&self, disk: &Arc<dyn Disk>) {
        let next = fixed(50, 9);
        let options = replacing(IndexChoice::Dense, 3);
        try_build(disk, folder(), &next, options, SortOptions::default()).unwrap();
        check_holds(&open(disk, folder()).unwrap(), &next);
        assert_eq!(disk.list(folder()).unwrap().len(), 3);
    }

    /// Checks that the folder has only the files of the table, or does not exist.
    #[track_caller]
    fn check_no_leftovers(&self, disk: &Arc<dyn Disk>) {
        if !disk.exists(folder()).unwrap() {
            assert!(self.old.is_none());
            return;
        }
        let names = disk.list(folder()).unwrap();
        assert_eq!(names.len(), 3, "{names:?}");
    }

    /// Checks the folder after a build that failed on a device that works again.
    #[track_caller]
    fn check_after_error(&self, faulty: &FaultyDisk) -> Arc<dyn Disk> {
        faulty.heal();
        let disk: Arc<dyn Disk> = Arc::new(faulty.snapshot());
        self.check_old_or_new(&disk);
        disk
    }
}

/// Cuts the power at every operation in turn, until the change succeeds.
fn cut_everywhere(change: &Change, seeds: u64) {
    for operation in 0.. {
        let (faulty, result) = change.faulty(Fault::PowerCut { operation });
        for seed in operation * seeds..(operation + 1) * seeds {
            let disk: Arc<dyn Disk> = Arc::new(faulty.after_power_cut(seed));
            let held = change.check_old_or_new(&disk);
            if result.is_ok() {
                assert!(held.as_ref() == Some(&change.new), "what was acknowledged is lost");
            }
            change.check_next_build(&disk);
        }
        if let Err(error) = result {
            assert_eq!(error.class(), ErrorClass::Io, "{error}");
        }
        if operation >= faulty.operations() {
            assert!(operation > 5, "a build does more than that");
            return;
        }
    }
}

#[test]
fn a_power_cut_at_any_moment_leaves_the_old_table_or_the_new() {
    changes().iter().for_each(|change| cut_everywhere(change, SEEDS));
}

#[test]
fn a_power_cut_in_a_build_that_spills_leaves_the_old_table_or_the_new() {
    large_changes().iter().for_each(|change| cut_everywhere(change, 1));
}

/// A build also creates the folders above the table; they must be durable when the table is.
#[test]
fn a_table_in_new_folders_survives_a_power_cut() {
    let path = Path::new("new/folders").join(FOLDER);
    let pairs = fixed(20, 1);
    let faulty = FaultyDisk::new(FaultPlan::default());
    let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
    let options = options(IndexChoice::Dense, 1);
    try_build(&disk, &path, &pairs, options, SortOptions::default()).unwrap();
    for seed in 0..50 {
        let disk: Arc<dyn Disk> = Arc::new(faulty.after_power_cut(seed));
        check_holds(&open(&disk, &path).unwrap(), &pairs);
    }
}

/// Another process may have created the folder and not synced it.
#[test]
fn a_table_in_a_folder_that_was_just_made_survives_a_power_cut() {
    let pairs = fixed(20, 1);
    let faulty = FaultyDisk::new(FaultPlan::default());
    let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
    disk.create_folder(folder()).unwrap();
    let options = options(IndexChoice::Dense, 1);
    try_build(&disk, folder(), &pairs, options, SortOptions::default()).unwrap();
    for seed in 0..50 {
        let disk: Arc<dyn Disk> = Arc::new(faulty.after_power_cut(seed));
        check_holds(&open(&disk, folder()).unwrap(), &pairs);
    }
}

/// Checks the error of a call that the disk refused: it has the system's error and the file.
#[track_caller]
fn check_refused(error: &Error, kind: io::ErrorKind) {
    let ErrorKind::Io { source, .. } = error.kind() else { panic!("{error}") };
    assert_eq!(source.kind(), kind, "{error}");
    let place = error.place().unwrap_or_else(|| panic!("no place: {error}"));
    assert!(place.file.starts_with(FOLDER), "{error}");
}

#[track_caller]
fn check_full(change: &Change, fault: Fault) -> bool {
    let (faulty, result) = change.faulty(fault);
    let Err(error) = result else { return false };
    check_refused(&error, io::ErrorKind::StorageFull);
    let disk = change.check_after_error(&faulty);
    change.check_no_leftovers(&disk);
    true
}

#[test]
fn a_disk_that_is_full_at_any_write_loses_nothing() {
    for change in changes().iter().chain(&large_changes()) {
        let refused = (0..).take_while(|&write| check_full(change, Fault::Full { write })).count();
        assert!(refused > 2, "an index and two pieces of a manifest are written");
    }
}

/// Returns the first of the steps of this size: another one for another value of the environment
/// variable `HASHFOLD_TEST_SEED`, so that many runs of the tests reach all moments.
fn first_of(step: u64) -> u64 {
    let seed = std::env::var("HASHFOLD_TEST_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    seed.unwrap_or(0) % step
}

/// Fills the disk after each of these numbers of bytes, until the change fits.
fn fill_up(change: &Change, bytes: impl Iterator<Item = u64>) {
    let refused = bytes.take_while(|&bytes| check_full(change, Fault::FullAfter { bytes })).count();
    assert!(refused > 0, "a change writes more than that");
}

#[test]
fn a_disk_that_fills_up_in_the_midst_of_a_write_loses_nothing() {
    const STEP: u64 = 1777;
    let first = first_of(STEP);
    println!("from byte {first} on");
    for change in &changes() {
        fill_up(change, (first..).step_by(STEP as usize));
    }
}

#[test]
#[ignore = "takes minutes"]
fn a_disk_that_fills_up_after_any_byte_loses_nothing() {
    for change in &changes() {
        fill_up(change, 0..);
    }
}

#[test]
fn a_read_that_fails_loses_nothing() {
    for change in changes().iter().chain(&large_changes()) {
        for read in 0.. {
            let (faulty, result) = change.faulty(Fault::ReadFailure { read });
            let disk = change.check_after_error(&faulty);
            let Err(error) = result else { break };
            check_refused(&error, io::Error::from_raw_os_error(5).kind());
            change.check_no_leftovers(&disk);
        }
    }
}

/// A file that cannot be read now may still exist.
#[test]
fn a_read_that_fails_before_the_disk_is_full_loses_nothing() {
    for change in &changes() {
        for (read, write) in (0..6).flat_map(|read| (0..3).map(move |write| (read, write))) {
            for first in
                [Fault::ReadFailure { read }, Fault::ShortRead { read }, Fault::FlippedBit { read }]
            {
                let plan = FaultPlan { seed: read, faults: vec![first, Fault::Full { write }] };
                let faulty = FaultyDisk::over(&change.before, plan);
                let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
                let error = (change.act)(&disk).unwrap_err();
                assert!(error.place().is_some(), "{error}");
                let disk = change.check_after_error(&faulty);
                change.check_next_build(&disk);
            }
        }
    }
}

#[test]
fn a_read_that_comes_short_or_with_a_flipped_bit_loses_nothing() {
    let small = changes().into_iter().map(|change| (change, 16, 3));
    let large = large_changes().into_iter().map(|change| (change, 60, 1));
    for (change, reads, seeds) in small.chain(large) {
        for (read, seed) in (0..reads).flat_map(|read| (0..seeds).map(move |seed| (read, seed))) {
            for fault in [Fault::ShortRead { read }, Fault::FlippedBit { read }] {
                let plan = FaultPlan { seed, faults: vec![fault] };
                let faulty = FaultyDisk::over(&change.before, plan);
                let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
                if let Err(error) = (change.act)(&disk) {
                    assert_eq!(error.class(), ErrorClass::Damage, "{error}");
                    assert!(file_of(&error).contains(['-', 'M']), "{error}");
                }
                change.check_after_error(&faulty);
            }
        }
    }
}

#[test]
fn an_operation_that_fails_once_loses_nothing() {
    for change in &changes() {
        for operation in 0.. {
            let (faulty, result) = change.faulty(Fault::Failure { operation });
            let disk = change.check_after_error(&faulty);
            change.check_next_build(&disk);
            if result.is_ok() && operation >= faulty.operations() {
                break;
            }
        }
    }
}

/// A change of more data than fit memory, written by background threads.
fn changing_on_threads() -> Change {
    let executor: Arc<dyn Executor> = Arc::new(Threads::new(2));
    let old = variable(90, 2);
    let new = pairs(5000, 5, |_| 8, |i| 1000 + (i % 50) as usize);
    let pairs = new.clone();
    let act = move |disk: &Arc<dyn Disk>| {
        let options = replacing(IndexChoice::Fences, 2);
        try_build_on(executor.clone(), disk, folder(), &pairs, options, SMALL_SORT).map(|_| ())
    };
    Change { before: disk_with(&old), old: Some(old), new, act: Box::new(act) }
}

/// Background writes report their errors later.
#[test]
fn a_full_disk_loses_nothing_with_any_number_of_threads() {
    const STEP: u64 = 31;
    let first = 30 + first_of(STEP);
    println!("from write {first} on");
    let change = changing_on_threads();
    for write in (0..30).chain((first..500).step_by(STEP as usize)) {
        check_full(&change, Fault::Full { write });
    }
    assert!(check_full(&change, Fault::FullAfter { bytes: 6 << 20 }));
}

#[test]
#[ignore = "takes minutes"]
fn a_disk_that_is_full_at_any_write_of_threads_loses_nothing() {
    let change = changing_on_threads();
    let refused = (0..).take_while(|&write| check_full(&change, Fault::Full { write })).count();
    assert!(refused > 30, "a build that spills writes more");
}

/// A reader keeps the old table during the replacement and after it.
#[test]
fn readers_of_the_old_table_go_on_through_a_replacement() {
    let change = replacing_a_table(fixed(200, 4), SortOptions::default(), 2);
    let disk: Arc<dyn Disk> = Arc::new(change.before.clone());
    let old = Table::open_with(folder(), &ReadOptions::new().env(Env::on(disk.clone()))).unwrap();
    (change.act)(&disk).unwrap();
    check_holds(&old, change.old.as_ref().unwrap());
    check_holds(&open(&disk, folder()).unwrap(), &change.new);
}
