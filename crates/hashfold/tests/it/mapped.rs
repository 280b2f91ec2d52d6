//! Mapped tables whose files are cut, replaced or grown by another program while they are open, and
//! tables whose index is gone. The result is the right answer or an error, never a signal.

use crate::{
    fixture::{
        CHOICES, Pairs, absent, build, check_holds, fixed, folder, memory, name_of, open, options,
        read_files, variable,
    },
    kill,
};
use hashfold::{
    Env, Error, ErrorClass, ReadOptions,
    io::{ALIGNMENT, Access, BlockFile, CountingDisk, Disk, OsDisk, Seal},
    run::Run as _,
    table::{IndexChoice, Table, reindex},
    work::Watch,
};
use rustix::process::{Resource, Rlimit, Signal, getpid, kill_process, setrlimit};
use std::{
    borrow::Cow,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};
use tempfile::TempDir;

fn mapped() -> ReadOptions {
    ReadOptions::new().data(Access::Mapped).index(Access::Mapped)
}

/// A table on the file system, and its content.
struct OnDisk {
    _home: TempDir,
    folder: PathBuf,
    pairs: Pairs,
}

impl OnDisk {
    fn new(pairs: Pairs, choice: IndexChoice) -> OnDisk {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("table");
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        build(&disk, &folder, &pairs, options(choice, 1));
        OnDisk { _home: home, folder, pairs }
    }

    fn open(&self) -> Table {
        Table::open_with(&self.folder, &mapped()).unwrap()
    }

    /// Returns the path of the file with this role.
    fn path(&self, role: &str) -> PathBuf {
        self.folder.join(name_of(&read_files(&OsDisk, &self.folder), role))
    }

    fn file(&self, role: &str) -> Arc<dyn BlockFile> {
        OsDisk.open_to_write(&self.path(role), Access::Cached).unwrap()
    }

    /// Looks up all keys in every way. Returns the number of errors.
    #[track_caller]
    fn look_up(&self, table: &Table) -> usize {
        let mut errors = 0;
        let mut note = |error: Error| {
            assert_eq!(error.class(), ErrorClass::Damage, "{error}");
            assert!(error.place().is_some(), "{error}");
            errors += 1;
        };
        let keys: Vec<Vec<u8>> = self.pairs.keys().cloned().chain(absent(20)).collect();
        for key in &keys {
            let right = self.pairs.get(key);
            match table.get_ref(key) {
                Ok(found) => assert_eq!(found.as_deref(), right.map(Vec::as_slice)),
                Err(error) => note(error),
            }
            match table.contains(key) {
                Ok(found) => assert_eq!(found, right.is_some()),
                Err(error) => note(error),
            }
        }
        let mut visit = |i: usize, value: Option<&[u8]>| {
            assert_eq!(value, self.pairs.get(&keys[i]).map(Vec::as_slice));
            Ok(())
        };
        table.get_many(&keys, &mut visit).unwrap_or_else(&mut note);
        errors
    }
}

fn tables() -> impl Iterator<Item = OnDisk> {
    let both = |choice| [(fixed(2000, 1), choice), (variable(600, 2), choice)];
    CHOICES.into_iter().flat_map(both).map(|(pairs, choice)| OnDisk::new(pairs, choice))
}

fn set_len(file: &dyn BlockFile, len: u64) {
    file.descriptor().unwrap().set_len(len).unwrap();
}

#[test]
fn a_mapped_file_that_is_cut_gives_errors() {
    for role in ["data", "index"] {
        for is_warm in [false, true] {
            for table in tables() {
                let (open, file) = (table.open(), table.file(role));
                if is_warm {
                    assert_eq!(table.look_up(&open), 0);
                }
                let size = file.size().unwrap();
                set_len(&*file, size - ALIGNMENT as u64);
                assert!(table.look_up(&open) > 0, "{role}");
                set_len(&*file, 1);
                assert!(table.look_up(&open) > 0);
                // Zeros are in the place of what was cut; no page is missing any more.
                set_len(&*file, size);
                assert!(table.look_up(&open) > 0);
                assert!(!open.verify(&Watch::default()).unwrap().is_sound(), "{role}");
            }
        }
    }
}

/// An error of one table does not spoil the maps of others, which take the places of closed ones.
#[test]
fn maps_are_guarded_one_by_one() {
    let table = OnDisk::new(fixed(2000, 1), IndexChoice::Fences);
    let other = OnDisk::new(fixed(2000, 1), IndexChoice::Fences);
    for _ in 0..5 {
        let held: Vec<Table> = (0..20).map(|_| other.open()).collect();
        let cut = OnDisk::new(fixed(500, 3), IndexChoice::Dense);
        let open = cut.open();
        set_len(&*cut.file("data"), 0);
        assert!(cut.look_up(&open) > 0);
        assert!(held.iter().all(|open| other.look_up(open) == 0));
        drop(open);
        assert_eq!(table.look_up(&table.open()), 0);
    }
}

#[test]
fn a_mapped_file_that_is_replaced_or_grows_stays_as_it_was() {
    for table in tables() {
        let open = table.open();
        for role in ["data", "index"] {
            let file = table.file(role);
            let size = file.size().unwrap();
            file.write_at(size, &[7; 5000]).unwrap();
            assert_eq!(table.look_up(&open), 0);
            OsDisk.create(&table.path(role), Access::Cached).unwrap();
            assert_eq!(table.look_up(&open), 0);
        }
        check_holds(&open, &table.pairs);
    }
}

#[test]
fn values_of_mapped_tables_are_borrowed_if_they_lie_in_one_block() {
    for pairs in [fixed(2000, 1), variable(600, 2)] {
        let table = OnDisk::new(pairs, IndexChoice::Auto);
        let open = table.open();
        let mut copied = 0;
        for (key, value) in &table.pairs {
            match open.get_ref(key).unwrap().unwrap() {
                Cow::Borrowed(found) => assert_eq!(found, value),
                Cow::Owned(found) => {
                    assert_eq!(found, *value);
                    copied += 1;
                }
            }
        }
        let large = table.pairs.values().filter(|value| value.len() > ALIGNMENT).count();
        assert_eq!(copied, large);
    }
}

/// Every part of a data file, damaged in every access mode, with and without the index.
#[test]
fn damage_is_found_in_every_access_mode() {
    for pairs in [fixed(400, 1), variable(150, 2)] {
        let disk = memory();
        build(&disk, folder(), &pairs, options(IndexChoice::Fences, 1));
        let files = read_files(disk.as_ref(), folder());
        let path = folder().join(name_of(&files, "data"));
        let blocks = files[&name_of(&files, "data")].len() / ALIGNMENT - 2;
        for access in [Access::Cached, Access::Mapped, Access::Direct] {
            for options in
                [ReadOptions::new().data(access), ReadOptions::new().data(access).without_index()]
            {
                for block in 1..=blocks {
                    let file = disk.open_to_write(&path, Access::Cached).unwrap();
                    let at = (block * ALIGNMENT + 300) as u64;
                    let mut byte = [0];
                    file.read_at(at, &mut byte).unwrap();
                    file.write_at(at, &[byte[0] ^ 1]).unwrap();
                    let open =
                        Table::open_with(folder(), &options.clone().env(Env::on(disk.clone())));
                    let table = open.unwrap();
                    let (mut right, mut refused) = (0, 0);
                    for (key, value) in &pairs {
                        match table.get_ref(key) {
                            Ok(found) => {
                                assert_eq!(found.as_deref(), Some(value.as_slice()));
                                right += 1;
                            }
                            Err(error) => {
                                assert_eq!(error.class(), ErrorClass::Damage, "{error}");
                                refused += 1;
                            }
                        }
                    }
                    assert!(right > 0 && refused > 0, "{right} right, {refused} refused");
                    file.write_at(at, &byte).unwrap();
                }
            }
        }
    }
}

/// Heads, tags and starts with right checksums and wrong numbers.
#[test]
fn blocks_that_lie_do_no_harm() {
    let mut random = crate::fixture::random(5);
    for pairs in [fixed(400, 1), variable(150, 2)] {
        let disk = memory();
        build(&disk, folder(), &pairs, options(IndexChoice::Fences, 1));
        let files = read_files(disk.as_ref(), folder());
        let name = name_of(&files, "data");
        let path = folder().join(&name);
        for _ in 0..400 {
            let mut bytes = files[&name].clone();
            let block = random() % (bytes.len() / ALIGNMENT - 2) as u64;
            let range = (block as usize + 1) * ALIGNMENT..(block as usize + 2) * ALIGNMENT;
            let changed = &mut bytes[range];
            for _ in 0..=random() % 3 {
                let near_the_edge = random() as usize % 200;
                let at = if random().is_multiple_of(2) {
                    4 + near_the_edge
                } else {
                    ALIGNMENT - 1 - near_the_edge
                };
                changed[at] = random() as u8;
            }
            Seal::of(block, 1).put(changed);
            disk.create(&path, Access::Cached).unwrap().write_at(0, &bytes).unwrap();
            for access in [Access::Cached, Access::Mapped] {
                for options in [
                    ReadOptions::new().data(access),
                    ReadOptions::new().data(access).without_index(),
                ] {
                    let options = options.env(Env::on(disk.clone()));
                    try_everything(&Table::open_with(folder(), &options).unwrap(), &pairs);
                }
            }
        }
    }
}

/// Reads a table in every way. Errors are damage.
#[track_caller]
fn try_everything(table: &Table, pairs: &Pairs) {
    let mut note = |error: Error| assert_eq!(error.class(), ErrorClass::Damage, "{error}");
    let keys: Vec<&Vec<u8>> = pairs.keys().collect();
    keys.iter().for_each(|key| table.get_ref(key).map(drop).unwrap_or_else(&mut note));
    table.get_many(&keys, &mut |_, _| Ok(())).unwrap_or_else(&mut note);
    let mut scan = table.scan();
    while scan.advance().unwrap_or_else(|error| {
        note(error);
        false
    }) {}
    table.verify(&Watch::default()).unwrap();
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
    for pairs in [fixed(30_000, 1), variable(20_000, 2)] {
        let counts = CountingDisk::on(memory());
        let disk: Arc<dyn Disk> = Arc::new(counts.clone());
        build(&disk, folder(), &pairs, options(IndexChoice::Fences, 1));
        let options = ReadOptions::new().without_index().env(Env::on(disk.clone()));
        let table = Table::open_with(folder(), &options).unwrap();
        assert_eq!((table.stats().index, table.stats().index_bytes), (None, 0));
        check_holds(&table, &pairs);
        let (mean, max) = reads_per_lookup(&table, &counts, &pairs);
        assert!(mean < 2.4 && max <= 6, "{mean} reads, at most {max}");
    }
}

#[test]
fn a_table_that_lost_its_index_answers_until_it_is_built_again() {
    for pairs in [Pairs::new(), fixed(1, 3), fixed(2000, 1), variable(600, 2)] {
        let disk = memory();
        build(&disk, folder(), &pairs, options(IndexChoice::Dense, 1));
        let name = name_of(&read_files(disk.as_ref(), folder()), "index");
        disk.remove(&folder().join(&name)).unwrap();
        let table = open(&disk, folder()).unwrap();
        let damage = table.index_damage().expect("the index is gone");
        assert_eq!(crate::fixture::file_of(damage), name);
        assert!(pairs.iter().all(|(key, value)| table.get(key).unwrap().as_ref() == Some(value)));
        assert!(absent(50).all(|key| table.get(key).unwrap().is_none()));
        let report = table.verify(&Watch::default()).unwrap();
        assert_eq!(report.damage.len(), 1, "verify names the index");
        let index = crate::fixture::index(IndexChoice::Fences);
        reindex(&Env::on(disk.clone()), folder(), &index, &Watch::default()).unwrap();
        let table = open(&disk, folder()).unwrap();
        assert!(table.index_damage().is_none());
        check_holds(&table, &pairs);
    }
}

/// Hashes that are far from uniform, in a run that another program made, only cost reads.
#[test]
fn few_large_and_many_small_entries_are_found_without_an_index() {
    let pairs = crate::fixture::pairs(
        3000,
        9,
        |i| 8 + (i % 5) as usize,
        |i| if i % 300 == 7 { 100_000 } else { (i % 61) as usize },
    );
    let disk = memory();
    build(&disk, folder(), &pairs, options(IndexChoice::Fences, 1));
    for access in [Access::Cached, Access::Mapped] {
        let options = ReadOptions::new().without_index().data(access).env(Env::on(disk.clone()));
        check_holds(&Table::open_with(folder(), &options).unwrap(), &pairs);
    }
    assert!(disk.exists(Path::new(folder())).unwrap());
}

/// Number of the signal for pages that cannot be read.
const SIGBUS: i32 = 7;

#[test]
fn a_signal_from_elsewhere_still_ends_the_process() {
    let table = OnDisk::new(fixed(500, 1), IndexChoice::Fences);
    let status = kill::work_alone("mapped::dies_of_a_signal_from_elsewhere", &table.folder);
    assert_eq!(status.signal(), Some(SIGBUS), "{status}");
}

#[test]
#[ignore = "a_signal_from_elsewhere_still_ends_the_process runs it in a new process"]
fn dies_of_a_signal_from_elsewhere() {
    let Some((folder, _)) = kill::task() else { return };
    let table = Table::open_with(&folder, &mapped()).unwrap();
    assert_eq!(table.get(b"absent").unwrap(), None);
    // The handler of Rust's runtime, to which the first signal goes, waits for a second one.
    loop {
        kill_process(getpid(), Signal::BUS).unwrap();
        std::thread::yield_now();
    }
}

#[test]
fn thousands_of_tables_open_with_few_descriptors() {
    let table = OnDisk::new(fixed(500, 1), IndexChoice::Fences);
    let status = kill::work_alone("mapped::opens_tables_with_few_descriptors", &table.folder);
    assert!(status.success(), "{status}");
}

#[test]
#[ignore = "thousands_of_tables_open_with_few_descriptors runs it in a new process"]
fn opens_tables_with_few_descriptors() {
    let Some((folder, _)) = kill::task() else { return };
    limit(Resource::Nofile, 64);
    let pairs = fixed(500, 1);
    for options in [mapped(), ReadOptions::new()] {
        open_many(&folder, 2000, &options, &pairs);
    }
}

#[test]
fn tables_that_do_not_fit_the_address_space_are_read_in_another_way() {
    let table = OnDisk::new(large(), IndexChoice::Fences);
    let status = kill::work_alone("mapped::opens_tables_in_little_space", &table.folder);
    assert!(status.success(), "{status}");
}

#[test]
#[ignore = "tables_that_do_not_fit_the_address_space_are_read_in_another_way runs it"]
fn opens_tables_in_little_space() {
    let Some((folder, _)) = kill::task() else { return };
    limit(Resource::As, address_space() + 16 * LARGE_TABLE as u64);
    let tables = open_many(&folder, 100, &ReadOptions::new(), &large());
    let ways: Vec<Access> = tables.iter().map(|table| table.stats().access).collect();
    assert_eq!((ways[0], ways[99]), (Access::Mapped, Access::Direct));
}

/// Size of the data of a table of which few fit in the address space of the process with limits.
const LARGE_TABLE: usize = 32 << 20;

fn large() -> Pairs {
    crate::fixture::pairs(64, 4, |_| 8, |_| LARGE_TABLE / 64)
}

fn limit(resource: Resource, max: u64) {
    setrlimit(resource, Rlimit { current: Some(max), maximum: Some(max) }).unwrap();
}

/// Opens one table many times, and looks up a key in each.
#[track_caller]
fn open_many(folder: &Path, count: usize, options: &ReadOptions, pairs: &Pairs) -> Vec<Table> {
    let open = |_| Table::open_with(folder, options).unwrap();
    let tables: Vec<Table> = (0..count).map(open).collect();
    for (table, (key, value)) in tables.iter().zip(pairs.iter().cycle()) {
        assert_eq!(table.get(key).unwrap().as_ref(), Some(value));
    }
    tables
}

/// Returns the size of the address space that this process has taken, in bytes.
fn address_space() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let size = text.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let kib: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
    kib << 10
}
