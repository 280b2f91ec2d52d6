//! Mapped tables whose files are cut, replaced or grown by another program while they are open. The
//! result is the right answer or an error, never a signal.

use crate::{
    fixture::{
        CHOICES, Pairs, absent, arrangements, build, check_holds, fixed, folder, memory, name_of,
        options, read_files, slotted, tagged,
    },
    kill,
};
use hashfold::{
    AccessReason, Env, Error, ErrorClass, ErrorKind, ReadOptions,
    io::{ALIGNMENT, Access, BlockFile, Disk, OsDisk, Seal},
    run::Run as _,
    table::{IndexChoice, Table},
    work::Watch,
};
use rustix::process::{Resource, Rlimit, Signal, getpid, getrlimit, kill_process, setrlimit};
use std::{
    borrow::Cow,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
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

    /// Looks up all keys in every way. Returns the number of errors, each of which says that a map is
    /// lost.
    #[track_caller]
    fn look_up(&self, table: &Table) -> usize {
        let mut errors = 0;
        let mut note = |error: Error| {
            check_lost(&error);
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

/// Checks that an error says that a map is lost, and not that the zeros in its place are damaged.
#[track_caller]
pub(crate) fn check_lost(error: &Error) {
    assert_eq!(error.class(), ErrorClass::Damage, "{error}");
    assert!(error.place().is_some(), "{error}");
    let ErrorKind::Field { what, .. } = error.kind() else { panic!("{error}") };
    assert_eq!(*what, "mapped file", "{error}");
}

fn tables() -> impl Iterator<Item = OnDisk> {
    let all = |choice| arrangements(600, 2).map(|pairs| OnDisk::new(pairs, choice));
    CHOICES.into_iter().flat_map(all)
}

pub(crate) fn set_len(file: &dyn BlockFile, len: u64) {
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

/// Issue 14: each lost page took a map of its own, until the process had too many and ended.
#[test]
fn no_number_of_lost_pages_ends_the_process() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("sparse");
    let size = LOST_PAGES * 2 * ALIGNMENT as u64;
    set_len(&*OsDisk.create(&path, Access::Cached).unwrap(), size);
    let status = kill::work_alone("mapped::reads_lost_pages", &path);
    assert!(status.success(), "{status}");
}

/// Number of lost pages that are read: more than a process may have maps.
const LOST_PAGES: u64 = 200_000;

#[test]
#[ignore = "no_number_of_lost_pages_ends_the_process runs it in a new process"]
fn reads_lost_pages() {
    let Some((path, _)) = kill::task() else { return };
    let mapped = OsDisk.open(&path, Access::Mapped).unwrap();
    let read = |page| mapped.read_at(page * ALIGNMENT as u64, &mut [0]);
    read(2 * LOST_PAGES - 1).unwrap();
    set_len(&*OsDisk.open_to_write(&path, Access::Cached).unwrap(), ALIGNMENT as u64);
    assert!(!mapped.is_lost(), "no page was missed yet");
    // From the front, from the back, and in between.
    for page in (0..LOST_PAGES).map(|page| 2 * page + 1).chain([2, LOST_PAGES, 4]) {
        check_lost(&read(page).unwrap_err());
    }
    assert!(mapped.is_lost());
}

#[test]
fn every_lookup_in_a_lost_map_is_refused() {
    for pairs in [tagged(4000, 1), slotted(2000, 2)] {
        let table = OnDisk::new(pairs, IndexChoice::Fences);
        let open = table.open();
        set_len(&*table.file("data"), ALIGNMENT as u64);
        let keys = table.pairs.len() + 20;
        // The one error more is that of `get_many`.
        assert_eq!(table.look_up(&open), 2 * keys + 1);
    }
}

/// A cut inside the last page makes no page unreadable: the rest of the page is zeros.
#[test]
fn a_file_that_is_cut_inside_a_page_gives_errors() {
    for role in ["data", "index"] {
        for table in tables() {
            let (open, file) = (table.open(), table.file(role));
            let size = file.size().unwrap();
            for left in [size - 1, size - ALIGNMENT as u64 + 1, ALIGNMENT as u64 / 2] {
                set_len(&*file, left);
                assert!(table.look_up(&open) > 0, "{role}");
            }
        }
    }
}

/// No page is missing when the file is read: those that came back are zeros.
#[test]
fn a_file_that_is_cut_and_grows_again_before_it_is_read_gives_errors() {
    for role in ["data", "index"] {
        for table in tables() {
            for left in [0, 5000] {
                let (bytes, open) = (read_files(&OsDisk, &table.folder), table.open());
                let (file, name) = (table.file(role), name_of(&bytes, role));
                set_len(&*file, left);
                set_len(&*file, bytes[&name].len() as u64);
                assert!(table.look_up(&open) > 0, "{role}");
                file.write_at(0, &bytes[&name]).unwrap();
            }
        }
    }
}

#[test]
fn a_file_that_is_cut_during_lookups_gives_errors_from_then_on() {
    for table in tables() {
        let (open, file) = (table.open(), table.file("data"));
        let keys: Vec<&Vec<u8>> = table.pairs.keys().collect();
        let look_up = || {
            open.get_many(&keys, &mut |i, value| {
                assert!(value.is_some_and(|value| value.len() == table.pairs[keys[i]].len()));
                Ok(())
            })
        };
        let size = file.size().unwrap();
        thread::scope(|scope| {
            let rounds = scope.spawn(|| {
                let mut whole = 0;
                loop {
                    match look_up() {
                        Ok(()) => whole += 1,
                        Err(error) => return (whole, error),
                    }
                }
            });
            (1..=size / 4096).rev().for_each(|pages| set_len(&*file, (pages - 1) * 4096));
            let (_, error) = rounds.join().unwrap();
            check_lost(&error);
        });
        check_lost(&look_up().unwrap_err());
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
    for pairs in arrangements(600, 2) {
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

/// Heads, tags and starts with right checksums and wrong numbers.
#[test]
fn blocks_that_lie_do_no_harm() {
    let mut random = crate::fixture::random(5);
    for pairs in arrangements(200, 2) {
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
        thread::yield_now();
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
        open_many(&folder, THOUSANDS, &options, &pairs);
    }
}

#[test]
fn tables_that_do_not_fit_the_address_space_are_read_in_another_way() {
    let table = OnDisk::new(large(), IndexChoice::Dense);
    let status = kill::work_alone("mapped::opens_tables_in_little_space", &table.folder);
    assert!(status.success(), "{status}");
}

#[test]
#[ignore = "tables_that_do_not_fit_the_address_space_are_read_in_another_way runs it"]
fn opens_tables_in_little_space() {
    let Some((folder, _)) = kill::task() else { return };
    let files = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: files, maximum: files }).unwrap();
    // What is left after 16 maps, nearly the size of another one, is for the indexes of all tables.
    limit(Resource::As, address_space() + 17 * LARGE_TABLE as u64 - (1 << 20));
    let tables = open_many(&folder, THOUSANDS, &ReadOptions::new(), &large());
    let way = |table: &Table| (table.stats().access, table.stats().access_reason);
    assert_eq!(way(&tables[0]), (Access::Mapped, AccessReason::FitsMemory));
    assert_eq!(way(&tables[THOUSANDS - 1]), (Access::Direct, AccessReason::NoAddressSpace));
}

/// Size of the data of a table of which few fit in the address space of the process with limits.
const LARGE_TABLE: usize = 32 << 20;

fn large() -> Pairs {
    crate::fixture::pairs(64, 4, |_| 8, |_| LARGE_TABLE / 64)
}

fn limit(resource: Resource, max: u64) {
    setrlimit(resource, Rlimit { current: Some(max), maximum: Some(max) }).unwrap();
}

/// Number of tables that are open at once.
const THOUSANDS: usize = 2000;

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

#[test]
fn a_mapped_table_is_brought_into_memory_piece_by_piece_and_a_watch_can_stop_it() {
    let on_disk = OnDisk::new(slotted(20_000, 1), IndexChoice::Dense);
    let table = on_disk.open();
    let size = on_disk.file("data").size().unwrap();
    let seen = Arc::new(AtomicU64::new(0));
    let count = seen.clone();
    table
        .warm(&Watch::new(move |bytes| {
            count.fetch_add(bytes, Relaxed);
            Ok(())
        }))
        .unwrap();
    assert_eq!(seen.load(Relaxed), size);
    assert_eq!(on_disk.look_up(&table), 0);
    let stopped = table.warm(&Watch::new(|_| Err(ErrorKind::Stopped.into()))).unwrap_err();
    assert!(matches!(stopped.kind(), ErrorKind::Stopped), "{stopped}");
    set_len(&*on_disk.file("data"), ALIGNMENT as u64);
    check_lost(&table.warm(&Watch::default()).unwrap_err());

    let read = Table::open_with(&on_disk.folder, &ReadOptions::new().data(Access::Direct));
    assert!(read.is_err(), "the file was cut");
    let whole = OnDisk::new(slotted(100, 2), IndexChoice::Dense);
    let read = ReadOptions::new().data(Access::Direct);
    let unmapped = Table::open_with(&whole.folder, &read).unwrap();
    unmapped.warm(&Watch::new(|_| panic!("nothing is mapped"))).unwrap();
}
