//! One test suite for all disks, then tests of each disk.

use super::{
    frame::{FileKind, Footer, Header},
    os::OsLock,
    *,
};
use crate::{
    error::{Error, ErrorClass, ErrorKind, Result},
    key::Seed,
    work::{Executor, Inline, Threads},
};
use proptest::prelude::*;
use rustix::io::Errno;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::{
    env::consts,
    fmt::Debug,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Arc,
    thread,
};
use tempfile::TempDir;

/// Number of the system call that sets up a ring, on every architecture.
const IO_URING_SETUP: i64 = 425;

/// Runs a check on every disk and access mode, each with an empty folder.
fn every_back_end(check: impl Fn(&dyn Disk, Access, &Path)) {
    let temporary = TempDir::new().unwrap();
    for access in [Access::Cached, Access::Mapped, Access::Direct] {
        let folder = temporary.path().join(format!("{access:?}"));
        OsDisk.create_folder(&folder).unwrap();
        check(&OsDisk, access, &folder);
    }
    for access in [Access::Cached, Access::Mapped] {
        check(&MemoryDisk::default(), access, Path::new(""));
    }
    check(&CountingDisk::on(Arc::new(MemoryDisk::default())), Access::Cached, Path::new(""));
    check(&FaultyDisk::new(FaultPlan::default()), Access::Direct, Path::new("/"));
}

/// Creates a file of these bytes, and opens it for reading.
fn file_of(disk: &dyn Disk, access: Access, path: &Path, bytes: &[u8]) -> Arc<dyn BlockFile> {
    disk.create(path, access).unwrap().write_at(0, bytes).unwrap();
    disk.open(path, access).unwrap()
}

fn contents(disk: &dyn Disk, path: &Path) -> Option<Vec<u8>> {
    let is_there = disk.exists(path).unwrap();
    is_there
        .then(|| read_all(&*disk.open(path, Access::Cached).unwrap(), 1 << 24).unwrap().to_vec())
}

/// Returns bytes that differ from position to position.
fn noise(len: usize) -> Vec<u8> {
    let words = (0..len.div_ceil(8) as u64).map(|i| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    words.flat_map(u64::to_be_bytes).take(len).collect()
}

#[track_caller]
fn check_io<T: Debug>(result: Result<T>, errno: Errno, place: &Path) {
    let error = result.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Io, "{error}");
    let ErrorKind::Io { source, .. } = error.kind() else { panic!("{error}") };
    assert_eq!(Errno::from_io_error(source), Some(errno), "{error}");
    assert_eq!(&*error.place().unwrap().file, place);
}

#[track_caller]
fn check_past_end<T: Debug>(result: Result<T>, wanted: (u64, u64, u64)) {
    let error = result.unwrap_err();
    let ErrorKind::Truncated { expected, got } = *error.kind() else { panic!("{error}") };
    assert_eq!((error.place().unwrap().offset.unwrap(), expected, got), wanted);
}

#[test]
fn bytes_come_back_at_any_offset_and_length() {
    every_back_end(|disk, access, folder| {
        let file = disk.create(&folder.join("file"), access).unwrap();
        let bytes = noise(3 * ALIGNMENT + 1234);
        for (i, piece) in bytes.chunks(1000).enumerate().rev() {
            file.write_at(i as u64 * 1000, piece).unwrap();
        }
        file.sync().unwrap();
        let read = disk.open(&folder.join("file"), access).unwrap();
        for file in [&file, &read] {
            assert_eq!(file.size().unwrap(), bytes.len() as u64);
            for start in [0, 1, 511, 4095, 4096, 4097, 8192, bytes.len() - 1, bytes.len()] {
                for len in [0, 1, 512, 4095, 4096, 4097, 8192, bytes.len() - start] {
                    let mut got = vec![0; len.min(bytes.len() - start)];
                    file.read_at(start as u64, &mut got).unwrap();
                    assert_eq!(got, bytes[start..][..got.len()], "{start} {len} {access:?}");
                }
            }
        }
    });
}

#[test]
fn aligned_buffers_of_many_blocks_come_back() {
    every_back_end(|disk, access, folder| {
        let mut buffer = Buffer::zeroed(600 * ALIGNMENT);
        buffer.copy_from_slice(&noise(600 * ALIGNMENT));
        let file = file_of(disk, access, &folder.join("file"), &buffer);
        assert_eq!(*read_all(&*file, 1 << 30).unwrap(), *buffer);
        let mut unaligned = vec![0; buffer.len() - 2];
        file.read_at(1, &mut unaligned).unwrap();
        assert!(unaligned == buffer[1..buffer.len() - 1]);
        assert!(matches!(read_all(&*file, 100).unwrap_err().kind(), ErrorKind::Limit { .. }));
    });
}

#[test]
fn reading_past_the_end_says_where_and_how_much_is_there() {
    every_back_end(|disk, access, folder| {
        let file = file_of(disk, access, &folder.join("file"), &noise(5000));
        let mut block = Buffer::zeroed(2 * ALIGNMENT);
        check_past_end(file.read_at(4096, &mut block), (4096, 8192, 904));
        check_past_end(file.read_at(4990, &mut [0; 20]), (4990, 20, 10));
        let extents = [Extent { offset: 0, len: 4096 }, Extent { offset: 4096, len: 4096 }];
        check_past_end(
            file.read_many(&mut extents.iter().copied(), &mut |_, _| Ok(())),
            (4096, 4096, 904),
        );
        for offset in [9001, 1 << 62, i64::MAX as u64 - 10, 1 << 63, u64::MAX - 4095, u64::MAX] {
            check_past_end(file.read_at(offset, &mut [0; 20]), (offset, 20, 0));
            let read =
                file.read_many(&mut [Extent { offset, len: 4096 }].into_iter(), &mut |_, _| Ok(()));
            check_past_end(read, (offset, 4096, 0));
        }
        assert_eq!(&*file.place().file, folder.join("file"));
    });
}

#[test]
fn a_replaced_file_stays_readable_through_open_handles() {
    every_back_end(|disk, access, folder| {
        let old = file_of(disk, access, &folder.join("file"), b"old");
        let new = file_of(disk, access, &folder.join("file"), b"new one");
        let other = file_of(disk, access, &folder.join("other"), b"another");
        disk.rename(&folder.join("other"), &folder.join("file")).unwrap();
        disk.remove(&folder.join("file")).unwrap();
        for (file, bytes) in [(old, &b"old"[..]), (new, b"new one"), (other, b"another")] {
            assert_eq!(*read_all(&*file, 10).unwrap(), *bytes);
        }
        assert!(disk.list(folder).unwrap().is_empty());
    });
}

#[test]
fn names_are_made_listed_changed_and_removed() {
    every_back_end(|disk, access, folder| {
        let deep = folder.join("a/b");
        disk.create_folder(&deep).unwrap();
        disk.create_folder(&deep).unwrap();
        for name in ["z", "y", "x"] {
            file_of(disk, access, &deep.join(name), name.as_bytes());
        }
        disk.rename(&deep.join("z"), &deep.join("x")).unwrap();
        disk.rename(&deep.join("y"), &folder.join("y")).unwrap();
        disk.sync_folder(&deep).unwrap();
        disk.sync_folder(folder).unwrap();
        assert_eq!(disk.list(&deep).unwrap(), ["x"]);
        assert_eq!(disk.list(folder).unwrap(), ["a", "y"]);
        assert_eq!(contents(disk, &deep.join("x")).unwrap(), b"z");
        assert!(disk.exists(folder).unwrap());
        assert!(!disk.exists(&deep.join("y")).unwrap());
        disk.remove(&deep.join("x")).unwrap();
        disk.remove_folder(&deep).unwrap();
        assert!(disk.list(&folder.join("a")).unwrap().is_empty());
    });
}

#[test]
fn every_back_end_refuses_the_same_with_the_same_error() {
    every_back_end(|disk, access, folder| {
        let (absent, inside) = (folder.join("absent"), folder.join("absent/file"));
        check_io(disk.open(&absent, access), Errno::NOENT, &absent);
        check_io(disk.create(&inside, access), Errno::NOENT, &inside);
        check_io(disk.remove(&absent), Errno::NOENT, &absent);
        check_io(disk.rename(&absent, &folder.join("b")), Errno::NOENT, &absent);
        check_io(disk.list(&absent), Errno::NOENT, &absent);
        check_io(disk.sync_folder(&absent), Errno::NOENT, &absent);
        check_io(disk.remove_folder(&absent), Errno::NOENT, &absent);
        check_io(disk.lock(&absent), Errno::NOENT, &absent);

        let (sub, other, file) =
            (folder.join("sub"), folder.join("other"), folder.join("sub/file"));
        disk.create_folder(&sub).unwrap();
        disk.create_folder(&other).unwrap();
        let open = file_of(disk, access, &file, b"bytes");
        check_io(open.write_at(0, b"more"), Errno::BADF, &file);
        check_io(disk.create(&sub, access), Errno::ISDIR, &sub);
        check_io(disk.open(&sub, access), Errno::ISDIR, &sub);
        check_io(disk.remove(&sub), Errno::ISDIR, &sub);
        check_io(disk.rename(&file, &other), Errno::ISDIR, &file);
        check_io(disk.remove_folder(&sub), Errno::NOTEMPTY, &sub);
        check_io(disk.remove_folder(&file), Errno::NOTDIR, &file);
        check_io(disk.list(&file), Errno::NOTDIR, &file);
        check_io(disk.sync_folder(&file), Errno::NOTDIR, &file);
        check_io(disk.create_folder(&file), Errno::EXIST, &file);
        check_io(disk.create_folder(&file.join("c")), Errno::NOTDIR, &file.join("c"));
    });
}

#[test]
fn files_beyond_all_sizes_are_refused_and_change_nothing() {
    every_back_end(|disk, access, folder| {
        let path = folder.join("small");
        let file = file_of(disk, access, &path, b"small");
        let block = [0; ALIGNMENT];
        let refused = [
            file.allocate(u64::MAX),
            file.write_at(u64::MAX - 1, b"large"),
            file.write_many(&[(u64::MAX - 4095, &block)]),
        ];
        for result in refused {
            assert_eq!(result.unwrap_err().class(), ErrorClass::Io);
        }
        assert_eq!(contents(disk, &path).unwrap(), b"small");
    });
}

#[test]
fn a_lock_is_held_until_it_is_dropped() {
    every_back_end(|disk, _, folder| {
        let held = disk.lock(folder).unwrap();
        let error = disk.lock(folder).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Busy), "{error}");
        assert_eq!(&*error.place().unwrap().file, folder);
        drop(held);
        disk.lock(folder).unwrap();
    });
}

/// A process that another thread starts has the file of a lock open for a moment.
#[test]
fn a_lock_that_was_dropped_is_free_while_a_copy_of_its_file_is_open() {
    let folder = TempDir::new().unwrap();
    #[expect(clippy::disallowed_methods, reason = "the lock itself is tested")]
    let file = std::fs::File::open(folder.path()).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    let (copy, lock) = (file.try_clone().unwrap(), OsLock(file));
    assert!(OsDisk.lock(folder.path()).is_err());
    drop(lock);
    OsDisk.lock(folder.path()).unwrap();
    drop(copy);
}

/// Reads `extents`, given in blocks, and compares each with the file's bytes.
#[track_caller]
fn check_read_many(file: &dyn BlockFile, bytes: &[u8], extents: &[(usize, usize)]) {
    let extents: Vec<Extent> = extents
        .iter()
        .map(|&(start, len)| Extent { offset: (start * ALIGNMENT) as u64, len: len * ALIGNMENT })
        .collect();
    let mut shown = vec![0; extents.len()];
    file.read_many(&mut extents.iter().copied(), &mut |i, got| {
        shown[i] += 1;
        assert!(got == &bytes[extents[i].offset as usize..][..extents[i].len], "extent {i}");
        Ok(())
    })
    .unwrap();
    assert!(shown.iter().all(|&times| times == 1), "{shown:?}");
}

#[test]
fn read_many_shows_every_extent_once() {
    const BLOCKS: usize = 5000;
    let bytes = noise(BLOCKS * ALIGNMENT);
    every_back_end(|disk, access, folder| {
        let file = file_of(disk, access, &folder.join("file"), &bytes);
        check_read_many(&*file, &bytes, &[]);
        check_read_many(&*file, &bytes, &[(7, 0), (7, 1), (7, 1), (8, 0)]);
        check_read_many(&*file, &bytes, &(0..BLOCKS).map(|i| (i, 1)).collect::<Vec<_>>());
        // More extents than may be in flight: a single large one, and many together.
        check_read_many(&*file, &bytes, &[(0, BLOCKS), (1, 1), (100, 4097), (2, 4090)]);
        let extents = prop::collection::vec((0..BLOCKS - 70, 0..70usize), 0..400);
        let config = ProptestConfig { cases: 4, failure_persistence: None, ..Default::default() };
        proptest!(config, |(extents in extents)| {
            check_read_many(&*file, &bytes, &extents);
        });
    });
}

#[test]
fn extents_of_several_files_are_read_together() {
    const FILES: usize = 5;
    const BLOCKS: usize = 300;
    let bytes = noise(FILES * BLOCKS * ALIGNMENT);
    every_back_end(|disk, access, folder| {
        let files: Vec<_> = (0..FILES)
            .map(|i| {
                let part = &bytes[i * BLOCKS * ALIGNMENT..][..BLOCKS * ALIGNMENT];
                file_of(disk, access, &folder.join(format!("file{i}")), part)
            })
            .collect();
        let files: Vec<_> = files.iter().map(|file| &**file).collect();
        let wanted = |i: usize| (i * 7 % FILES, i * 31 % BLOCKS);
        let mut extents = (0..2000).map(|i| {
            let (file, block) = wanted(i);
            (file, Extent { offset: (block * ALIGNMENT) as u64, len: ALIGNMENT })
        });
        let mut seen = vec![0; 2000];
        let visit = &mut |i: usize, got: &[u8]| {
            let (file, block) = wanted(i);
            assert!(got == &bytes[(file * BLOCKS + block) * ALIGNMENT..][..ALIGNMENT]);
            seen[i] += 1;
            Ok(())
        };
        files[1].read_across(&files, &mut extents, visit).unwrap();
        assert!(seen.iter().all(|&times| times == 1));
        let past_end = Extent { offset: (BLOCKS * ALIGNMENT) as u64, len: ALIGNMENT };
        let visit = &mut |_: usize, _: &[u8]| Ok(());
        assert!(files[0].read_across(&files, &mut [(3, past_end)].into_iter(), visit).is_err());
    });
}

#[test]
fn reads_and_writes_are_counted_once() {
    let disk = CountingDisk::on(Arc::new(MemoryDisk::default()));
    let path = Path::new("f");
    let file = disk.create(path, Access::Cached).unwrap();
    file.write_at(0, &[1; 100]).unwrap();
    file.write_many(&[(100, &[2; 30]), (200, &[3; 20])]).unwrap();
    assert_eq!(disk.take(), Moved { writes: 3, written_bytes: 150, ..Moved::default() });
    let file = disk.clone().open_named(path, Access::Cached).unwrap();
    file.read_at(7, &mut [0; 10]).unwrap();
    let extents = || (0..5).map(|i| Extent { offset: i, len: 8 });
    file.read_many(&mut extents(), &mut |_, _| Ok(())).unwrap();
    file.read_across(&[&*file], &mut extents().map(|it| (0, it)), &mut |_, _| Ok(())).unwrap();
    assert_eq!(disk.take(), Moved { reads: 11, read_bytes: 90, ..Moved::default() });
    assert_eq!(disk.take(), Moved::default());
}

/// A file that refuses what begins at or behind this offset.
#[derive(Debug)]
struct Fenced(Arc<dyn BlockFile>, u64);

impl Fenced {
    fn check(&self, offset: u64) -> Result<()> {
        let refused = Error::field("offset", format!("below {}", self.1), offset);
        if offset < self.1 { Ok(()) } else { Err(refused) }
    }
}

impl FileLayer for Fenced {
    fn below(&self) -> &dyn BlockFile {
        &*self.0
    }

    fn before_read(&self, extent: Extent) -> Result<()> {
        self.check(extent.offset)
    }

    fn before_write(&self, offset: u64, _: &[u8]) -> Result<()> {
        self.check(offset)
    }

    fn before_allocate(&self, size: u64) -> Result<()> {
        self.check(size)
    }

    fn before_hole(&self, extent: Extent) -> Result<()> {
        self.check(extent.offset)
    }
}

#[test]
fn a_layer_over_a_file_refuses_before_anything_is_done() {
    every_back_end(|disk, access, folder| {
        let bytes = noise(4 * ALIGNMENT);
        let name = |name: &str| folder.join(name);
        let near = Fenced(file_of(disk, access, &name("near"), &bytes), 100);
        let far = Fenced(file_of(disk, access, &name("far"), &bytes), 200);
        let extent = |offset: u64| Extent { offset, len: 8 };
        assert!(near.read_at(99, &mut [0; 8]).is_ok() && near.read_at(100, &mut [0; 8]).is_err());
        let mut seen = Vec::new();
        let mut visit = |i: usize, got: &[u8]| {
            seen.push((i, got.to_vec()));
            Ok(())
        };
        assert!(near.read_many(&mut [0, 99, 100, 1].map(extent).into_iter(), &mut visit).is_err());
        // Each extent is up to the layer of its own file.
        let mut across =
            [(1, 199), (0, 99), (0, 100), (1, 1)].map(|(i, at)| (i, extent(at))).into_iter();
        assert!(near.read_across(&[&near, &far], &mut across, &mut visit).is_err());
        seen.sort();
        let part = |i: usize, at: usize| (i, bytes[at..][..8].to_vec());
        let mut expected = [part(0, 0), part(1, 99), part(0, 199), part(1, 99)];
        expected.sort();
        assert_eq!(seen, expected);
        let new = Fenced(disk.create(&name("new"), access).unwrap(), 100);
        assert!(new.write_many(&[(0, &[1; 8]), (100, &[1; 8])]).is_err());
        assert!(new.write_at(100, &[1; 8]).is_err() && new.allocate(100).is_err());
        assert_eq!(new.size().unwrap(), 0);
        new.write_at(99, &[1; 8]).unwrap();
        assert!(new.punch_hole(extent(100)).is_err());
        assert_eq!(contents(disk, &name("new")).unwrap()[99..], [1; 8]);
    });
}

#[test]
fn read_many_takes_extents_that_are_not_aligned() {
    let bytes = noise(50_000);
    every_back_end(|disk, access, folder| {
        let file = file_of(disk, access, &folder.join("file"), &bytes);
        let extents: Vec<Extent> =
            (0..300).map(|i| Extent { offset: i * 150, len: (i * 7) as usize }).collect();
        let visit = &mut |i: usize, got: &[u8]| {
            assert_eq!(got, &bytes[i * 150..][..i * 7]);
            Ok(())
        };
        file.read_many(&mut extents.iter().copied(), visit).unwrap();
    });
}

#[test]
fn read_many_stops_at_an_error_or_a_panic_and_works_afterwards() {
    let bytes = noise(1000 * ALIGNMENT);
    let all: Vec<(usize, usize)> = (0..1000).map(|i| (i, 1)).collect();
    let extents: Vec<Extent> =
        (0..1000).map(|i| Extent { offset: i * ALIGNMENT as u64, len: ALIGNMENT }).collect();
    every_back_end(|disk, access, folder| {
        let file = file_of(disk, access, &folder.join("file"), &bytes);
        for stop in [1, 2, 130, 1000] {
            let mut shown = 0;
            let result = file.read_many(&mut extents.iter().copied(), &mut |_, _| {
                shown += 1;
                if shown == stop { Err(ErrorKind::Stopped.into()) } else { Ok(()) }
            });
            assert!(matches!(result.unwrap_err().kind(), ErrorKind::Stopped));
            assert_eq!(shown, stop);
            check_read_many(&*file, &bytes, &all);
        }
        let mut panics = |_: usize, _: &[u8]| std::panic::resume_unwind(Box::new("on purpose"));
        let read = AssertUnwindSafe(|| file.read_many(&mut extents.iter().copied(), &mut panics));
        assert!(catch_unwind(read).is_err());
        check_read_many(&*file, &bytes, &all);
    });
}

/// Containers refuse io_uring: batches are then read by threads.
#[test]
fn every_batch_is_read_without_io_uring() {
    let filter = |action| {
        let rules = [(IO_URING_SETUP, Vec::new())].into();
        SeccompFilter::new(rules, SeccompAction::Allow, action, consts::ARCH.try_into().unwrap())
    };
    let refuse: BpfProgram = filter(SeccompAction::Errno(1)).unwrap().try_into().unwrap();
    thread::scope(|scope| {
        // The filter applies to this thread and to the threads that it starts.
        scope.spawn(|| {
            seccompiler::apply_filter(&refuse).unwrap();
            assert_eq!(check_io_uring().unwrap_err().raw_os_error(), Some(1));
            read_many_shows_every_extent_once();
            extents_of_several_files_are_read_together();
            read_many_takes_extents_that_are_not_aligned();
            read_many_stops_at_an_error_or_a_panic_and_works_afterwards();
            batches_run_side_by_side_and_inside_each_other();
        });
    });
}

#[test]
fn batches_run_side_by_side_and_inside_each_other() {
    let bytes = noise(300 * ALIGNMENT);
    let all: Vec<(usize, usize)> = (0..300).map(|i| (i, 1)).collect();
    every_back_end(|disk, access, folder| {
        let file = file_of(disk, access, &folder.join("file"), &bytes);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| check_read_many(&*file, &bytes, &all));
            }
        });
        let inner = &mut |_: usize, _: &[u8]| {
            check_read_many(&*file, &bytes, &all[..10]);
            Ok(())
        };
        file.read_many(&mut [Extent { offset: 0, len: ALIGNMENT }; 20].into_iter(), inner).unwrap();
    });
}

/// Files that change, compared with a vector of bytes.
mod changing {
    use super::*;

    const BLOCKS: usize = 24;

    #[derive(Clone, Debug)]
    enum Change {
        Write(usize, usize),
        Batch(Vec<usize>),
        Allocate(usize),
        Punch(usize, usize),
        Reopen,
    }

    fn change() -> impl Strategy<Value = Change> {
        let place = || 0..BLOCKS * ALIGNMENT;
        let len = || 0..3 * ALIGNMENT;
        prop_oneof![
            (place(), len()).prop_map(|(offset, len)| Change::Write(offset, len)),
            prop::collection::vec(0..BLOCKS, 0..BLOCKS).prop_map(Change::Batch),
            place().prop_map(Change::Allocate),
            (place(), len()).prop_map(|(offset, len)| Change::Punch(offset, len)),
            Just(Change::Reopen),
        ]
    }

    fn write(truth: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
        if !bytes.is_empty() {
            truth.resize(truth.len().max(offset + bytes.len()), 0);
            truth[offset..][..bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Makes the `i`-th change to the file and to its expected content.
    fn make(file: &dyn BlockFile, truth: &mut Vec<u8>, i: usize, change: &Change) {
        let byte = i as u8 + 1;
        match change {
            Change::Write(offset, len) => {
                file.write_at(*offset as u64, &vec![byte; *len]).unwrap();
                write(truth, *offset, &vec![byte; *len]);
            }
            Change::Batch(blocks) => {
                // No block is written twice; every other batch has unaligned offsets.
                let blocks = std::collections::BTreeSet::from_iter(blocks);
                let place = |block: usize| block * ALIGNMENT + i % 2;
                let bytes = vec![byte; ALIGNMENT];
                let writes: Vec<(u64, &[u8])> =
                    blocks.iter().map(|block| (place(**block) as u64, &bytes[..])).collect();
                file.write_many(&writes).unwrap();
                blocks.iter().for_each(|block| write(truth, place(**block), &bytes));
            }
            Change::Allocate(size) => {
                file.allocate(*size as u64).unwrap();
                truth.resize(truth.len().max(*size), 0);
            }
            Change::Punch(offset, len) => {
                file.punch_hole(Extent { offset: *offset as u64, len: *len }).unwrap();
                let end = truth.len().min(offset + len);
                truth[end.min(*offset)..end].fill(0);
            }
            Change::Reopen => {}
        }
    }

    #[test]
    fn a_file_is_what_was_written_allocated_and_punched() {
        let config = ProptestConfig { cases: 60, failure_persistence: None, ..Default::default() };
        proptest!(config, |(changes in prop::collection::vec(change(), 0..30))| {
            every_back_end(|disk, access, folder| {
                let access = if access == Access::Mapped { Access::Cached } else { access };
                let path = folder.join("file");
                let mut file = disk.create(&path, access).unwrap();
                let mut truth = Vec::new();
                for (i, change) in changes.iter().enumerate() {
                    if matches!(change, Change::Reopen) {
                        file = disk.open_to_write(&path, access).unwrap();
                    }
                    make(&*file, &mut truth, i, change);
                    assert!(*read_all(&*file, 1 << 30).unwrap() == truth, "{access:?} {change:?}");
                }
                file.sync().unwrap();
                assert!(contents(disk, &path).unwrap() == truth);
            });
        });
    }

    #[test]
    fn a_large_batch_is_written_whole() {
        const COUNT: usize = 1000;
        let bytes = noise(COUNT * ALIGNMENT);
        every_back_end(|disk, access, folder| {
            let file = disk.create(&folder.join("file"), access).unwrap();
            // The blocks in descending order, some of them together.
            let blocks = bytes.chunks(3 * ALIGNMENT).enumerate().rev();
            let writes: Vec<(u64, &[u8])> =
                blocks.map(|(i, bytes)| ((3 * i * ALIGNMENT) as u64, bytes)).collect();
            file.write_many(&writes).unwrap();
            assert!(*read_all(&*file, 1 << 30).unwrap() == bytes);
        });
    }

    #[test]
    fn a_file_that_is_open_to_read_refuses_changes_and_a_changing_one_to_be_mapped() {
        every_back_end(|disk, access, folder| {
            let (path, absent) = (folder.join("file"), folder.join("absent"));
            let file = file_of(disk, access, &path, &noise(2 * ALIGNMENT));
            check_io(file.allocate(1 << 20), Errno::BADF, &path);
            check_io(file.punch_hole(Extent { offset: 0, len: ALIGNMENT }), Errno::BADF, &path);
            let block: &[u8] = &noise(ALIGNMENT);
            check_io(file.write_many(&[(0, block), (4096, block)]), Errno::BADF, &path);
            let error = disk.open_to_write(&path, Access::Mapped).unwrap_err();
            assert!(error.to_string().contains("cannot be mapped"), "{error}");
            check_io(disk.open_to_write(&absent, Access::Direct), Errno::NOENT, &absent);
            let sub = folder.join("sub");
            disk.create_folder(&sub).unwrap();
            check_io(disk.open_to_write(&sub, Access::Cached), Errno::ISDIR, &sub);
        });
    }
}

#[test]
fn buffers_are_aligned_and_zero() {
    for len in [0, 1, 4095, 4096, 4097, 1 << 20] {
        let mut buffer = Buffer::zeroed(len);
        assert_eq!(buffer.len(), len);
        assert!(buffer.as_ptr().addr().is_multiple_of(ALIGNMENT));
        assert!(buffer.iter().all(|byte| *byte == 0));
        buffer.fill(1);
    }
}

mod framed {
    use super::*;

    const HEADER: Header =
        Header { kind: FileKind::TableData, version: 1, seed: Seed(0x1234_5678_9abc_def0), id: 99 };

    /// A framed file with a body of one block.
    fn framed(footer: &Footer) -> Vec<u8> {
        let mut bytes = HEADER.encode().to_vec();
        bytes.extend([0xab; ALIGNMENT]);
        bytes.extend(footer.encode(bytes.len() as u64));
        bytes
    }

    fn footer(fields_size: usize) -> Footer {
        Footer { fields: noise(fields_size), body_sum: 0x0bad_cafe }
    }

    fn read(bytes: &[u8]) -> Result<(Header, Footer, u64)> {
        let file = file_of(&MemoryDisk::default(), Access::Cached, Path::new("framed"), bytes);
        let answer = Header::read(&*file, FileKind::TableData).and_then(|header| {
            let (footer, start) = Footer::read(&*file)?;
            Ok((header, footer, start))
        });
        answer.inspect_err(|error| assert_eq!(&*error.place().unwrap().file, Path::new("framed")))
    }

    #[test]
    fn header_and_footer_come_back() {
        for fields_size in [0, 1, 100, 4071, 4072, 4073, 8168, 8169, 100_000] {
            let footer = footer(fields_size);
            let bytes = framed(&footer);
            assert!(bytes.len().is_multiple_of(ALIGNMENT));
            assert_eq!(read(&bytes).unwrap(), (HEADER, footer, 2 * ALIGNMENT as u64));
        }
    }

    #[test]
    fn every_flipped_bit_of_header_fields_and_tail_is_noticed() {
        for fields_size in [50, 5000] {
            let good = framed(&footer(fields_size));
            let footer_start = good.len() - fields_size - 24;
            for i in (0..64).chain(footer_start..good.len()) {
                for bit in 0..8 {
                    let mut bad = good.clone();
                    bad[i] ^= 1 << bit;
                    assert!(read(&bad).is_err(), "bit {bit} of byte {i}");
                }
            }
        }
    }

    #[test]
    fn a_file_that_was_cut_short_anywhere_is_refused() {
        let good = framed(&footer(5000));
        for len in 0..good.len() {
            assert_eq!(read(&good[..len]).unwrap_err().class(), ErrorClass::Damage, "{len}");
        }
        let blocks = framed(&footer(0)).repeat(2);
        assert!(matches!(read(&blocks).unwrap_err().kind(), ErrorKind::Truncated { .. }));
    }

    #[test]
    fn files_of_another_kind_version_or_program_are_refused() {
        let decode = |header: Header| Header::decode(&header.encode(), FileKind::TableData);
        let error = decode(Header { kind: FileKind::Manifest, ..HEADER }).unwrap_err();
        assert_eq!(
            error.to_string(),
            "is a manifest file, expected a table data file; check the path"
        );
        for version in [0, FileKind::TableData.versions().end() + 1] {
            let error = decode(Header { version, ..HEADER }).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Version { got, .. } if *got == version));
        }
        let error = read(&[b'x'; 2 * ALIGNMENT]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Magic { .. }));
    }
}

mod writing {
    use super::*;

    fn executors() -> [Arc<dyn Executor>; 3] {
        [Arc::new(Inline), Arc::new(Threads::new(1)), Arc::new(Threads::new(3))]
    }

    /// Appends pieces of these sizes. The file must hold them one after the other.
    fn check(executor: Arc<dyn Executor>, sizes: &[usize]) {
        let disk = MemoryDisk::default();
        let file = disk.create(Path::new("file"), Access::Cached).unwrap();
        let mut writer = Writer::new(file, executor);
        let mut expected = Vec::new();
        for (i, &size) in sizes.iter().enumerate() {
            let piece = vec![i as u8 + 1; size];
            writer.append(&piece).unwrap();
            expected.extend(&piece);
            assert_eq!(writer.position(), expected.len() as u64);
        }
        writer.finish().unwrap();
        let written = contents(&disk, Path::new("file")).unwrap();
        assert!(written == expected, "{sizes:?}");
    }

    #[test]
    fn the_file_is_what_was_appended() {
        for executor in executors() {
            check(executor.clone(), &[]);
            check(executor.clone(), &[UNIT_SIZE]);
            check(executor.clone(), &[UNIT_SIZE - 1, 2, 5 * UNIT_SIZE, 0]);
            check(executor.clone(), &[UNIT_SIZE / 2, 4096, 77_777].repeat(9));
        }
    }

    /// Each byte of a unit is prepared once, at its place in the file.
    #[test]
    fn units_are_prepared_before_they_are_written() {
        const START: u64 = 4096;
        for executor in executors() {
            let disk = MemoryDisk::default();
            let file = disk.create(Path::new("file"), Access::Cached).unwrap();
            let add = |offset: u64, unit: &mut [u8]| {
                for (place, byte) in (offset..).zip(unit) {
                    *byte += (place % 7) as u8;
                }
            };
            let mut writer = Writer::starting_at(START, file, executor, Arc::new(add));
            writer.append(&vec![100; 2 * UNIT_SIZE + 5]).unwrap();
            assert_eq!(writer.position(), START + 2 * UNIT_SIZE as u64 + 5);
            writer.finish().unwrap();
            let written = contents(&disk, Path::new("file")).unwrap();
            let prepared = |(i, byte): (usize, &u8)| *byte == 100 + (i % 7) as u8;
            assert!(written.iter().enumerate().skip(START as usize).all(prepared));
        }
    }

    #[test]
    fn random_pieces_make_the_file() {
        let pieces = prop::collection::vec(0..=UNIT_SIZE / 10, 0..100);
        let config = ProptestConfig { cases: 20, failure_persistence: None, ..Default::default() };
        proptest!(config, |(sizes in pieces)| check(Arc::new(Threads::new(2)), &sizes));
    }

    #[test]
    fn a_failed_write_is_reported_and_never_forgotten() {
        for executor in executors() {
            for write in 0..6 {
                let disk = FaultyDisk::new(Fault::Full { write }.into());
                let file = disk.create(Path::new("file"), Access::Cached).unwrap();
                let mut writer = Writer::new(file, executor.clone());
                let bytes = vec![1; 1 << 20];
                let appended: Vec<bool> = (0..5).map(|_| writer.append(&bytes).is_ok()).collect();
                assert!(appended.is_sorted_by(|a, b| a >= b), "{appended:?}");
                let finished = writer.finish();
                assert_eq!(finished.is_ok(), write > 4);
                if appended == [true; 5] && write < 5 {
                    check_io(finished, Errno::NOSPC, Path::new("file"));
                }
            }
        }
    }
}

mod faults {
    use super::*;

    const SEEDS: u64 = 400;

    fn path(name: &str) -> &Path {
        Path::new(name)
    }

    fn create(disk: &dyn Disk, name: &str, bytes: &[u8]) -> Arc<dyn BlockFile> {
        let file = disk.create(path(name), Access::Cached).unwrap();
        file.write_at(0, bytes).unwrap();
        file
    }

    /// A disk with a synced file "kept" of four sectors of ones.
    fn disk_with_a_file() -> (FaultyDisk, Arc<dyn BlockFile>) {
        let disk = FaultyDisk::new(FaultPlan::default());
        let file = create(&disk, "kept", &[1; 2048]);
        file.sync().unwrap();
        disk.sync_folder(path("")).unwrap();
        (disk, file)
    }

    /// Returns the different states in which `name` is found after a power cut.
    fn outcomes(disk: &FaultyDisk, name: &str) -> Vec<Option<Vec<u8>>> {
        let find = |seed| contents(&disk.after_power_cut(seed), path(name));
        let mut outcomes: Vec<_> = (0..SEEDS).map(find).collect();
        outcomes.sort();
        outcomes.dedup();
        outcomes
    }

    #[test]
    fn what_was_synced_is_there() {
        let (disk, _) = disk_with_a_file();
        assert_eq!(outcomes(&disk, "kept"), [Some(vec![1; 2048])]);
        let over = FaultyDisk::over(&disk.snapshot(), FaultPlan::default());
        assert_eq!(outcomes(&over, "kept"), [Some(vec![1; 2048])]);
    }

    #[test]
    fn an_unsynced_write_is_kept_lost_or_torn_between_sectors() {
        let (disk, file) = disk_with_a_file();
        file.write_at(0, &[2; 1536]).unwrap();
        let mut expected = Vec::new();
        for changed in [0..0, 0..512, 0..1024, 0..1536, 512..1536, 1024..1536] {
            let mut bytes = vec![1; 2048];
            bytes[changed].fill(2);
            expected.push(Some(bytes));
        }
        expected.sort();
        assert_eq!(outcomes(&disk, "kept"), expected);
        assert_eq!(contents(&disk.snapshot(), path("kept")).unwrap()[..1536], [2; 1536]);
    }

    #[test]
    fn unsynced_writes_are_lost_one_by_one_and_in_any_order() {
        let (disk, file) = disk_with_a_file();
        file.write_at(0, &[2; 100]).unwrap();
        file.write_at(0, &[3; 100]).unwrap();
        file.write_at(2048, &[4; 512]).unwrap();
        file.write_at(2560, &[5; 512]).unwrap();
        let outcomes = outcomes(&disk, "kept");
        for start in [1, 2, 3] {
            for (len, end) in [(2048, 1), (2560, 4), (3072, 5)] {
                let is_it = |bytes: &Vec<u8>| {
                    (bytes[0], bytes.len(), *bytes.last().unwrap()) == (start, len, end)
                };
                assert!(outcomes.iter().flatten().any(is_it), "{start} {len}");
            }
        }
        let hole = outcomes.iter().flatten().any(|bytes| bytes.len() == 3072 && bytes[2048] == 0);
        assert!(hole, "a lost write before a kept one leaves zeros");
    }

    #[test]
    fn writes_of_a_batch_are_lost_one_by_one() {
        let (disk, file) = disk_with_a_file();
        file.write_many(&[(512, &[2; 512]), (1536, &[3; 512])]).unwrap();
        let mut found: Vec<_> = outcomes(&disk, "kept")
            .iter()
            .flatten()
            .map(|bytes| (bytes[512], bytes[1536]))
            .collect();
        found.sort();
        assert_eq!(found, [(1, 1), (1, 3), (2, 1), (2, 3)]);
        let disk = FaultyDisk::over(&disk.snapshot(), Fault::Failure { operation: 1 }.into());
        let file = disk.open_to_write(path("kept"), Access::Direct).unwrap();
        let writes: [(u64, &[u8]); 3] = [(0, &[4; 512]), (512, &[5; 512]), (1024, &[6; 512])];
        check_io(file.write_many(&writes), Errno::IO, path("kept"));
    }

    #[test]
    fn an_unsynced_hole_is_kept_lost_or_torn() {
        let (disk, file) = disk_with_a_file();
        file.punch_hole(Extent { offset: 512, len: 1024 }).unwrap();
        let mut expected = Vec::new();
        for hole in [0..0, 512..1024, 1024..1536, 512..1536] {
            let mut bytes = vec![1; 2048];
            bytes[hole].fill(0);
            expected.push(Some(bytes));
        }
        expected.sort();
        assert_eq!(outcomes(&disk, "kept"), expected);
        file.sync().unwrap();
        assert_eq!(outcomes(&disk, "kept").len(), 1);
    }

    #[test]
    fn an_unsynced_allocation_is_kept_lost_or_torn_and_takes_no_bytes_along() {
        let (disk, file) = disk_with_a_file();
        file.allocate(4096).unwrap();
        file.write_at(2048, &[2; 512]).unwrap();
        for bytes in outcomes(&disk, "kept").into_iter().flatten() {
            let rest = bytes.get(2048..).unwrap_or_default();
            let (written, behind) = rest.split_at(rest.len().min(512));
            assert!(bytes[..2048] == [1; 2048] && behind.iter().all(|byte| *byte == 0));
            assert!(written.iter().all(|byte| *byte == written[0] && byte % 2 == 0));
        }
        let mut sizes: Vec<_> = outcomes(&disk, "kept").into_iter().flatten().collect();
        sizes.dedup_by_key(|bytes| bytes.len());
        assert!(sizes.len() > 3, "lost, torn in several places, kept");
        file.sync().unwrap();
        assert_eq!(outcomes(&disk, "kept").len(), 1);
    }

    #[test]
    fn a_full_disk_refuses_an_allocation_as_a_whole_and_no_holes() {
        for fault in [Fault::Full { write: 0 }, Fault::FullAfter { bytes: 1000 }] {
            let (kept, _) = disk_with_a_file();
            let disk = FaultyDisk::over(&kept.snapshot(), fault.into());
            let file = disk.open_to_write(path("kept"), Access::Cached).unwrap();
            check_io(file.allocate(4096), Errno::NOSPC, path("kept"));
            assert_eq!(file.size().unwrap(), 2048);
            file.punch_hole(Extent { offset: 0, len: 4096 }).unwrap();
            assert_eq!(contents(&disk, path("kept")).unwrap(), [0; 2048]);
            disk.heal();
            file.allocate(4096).unwrap();
            assert_eq!(file.size().unwrap(), 4096);
        }
    }

    #[test]
    fn a_new_file_needs_its_own_sync_and_that_of_its_folder() {
        let disk = FaultyDisk::new(FaultPlan::default());
        let file = create(&disk, "new", &[7; 100]);
        let (absent, empty, whole) = (None, Some(Vec::new()), Some(vec![7; 100]));
        assert_eq!(outcomes(&disk, "new"), [absent.clone(), empty.clone(), whole.clone()]);
        file.sync().unwrap();
        assert_eq!(outcomes(&disk, "new"), [absent, whole.clone()]);
        disk.sync_folder(path("")).unwrap();
        assert_eq!(outcomes(&disk, "new"), [whole]);
    }

    #[test]
    fn changes_of_a_folder_survive_as_a_prefix_and_a_rename_is_atomic() {
        let (disk, _) = disk_with_a_file();
        create(&disk, "a", b"a").sync().unwrap();
        create(&disk, "b", b"b").sync().unwrap();
        disk.rename(path("a"), path("kept")).unwrap();
        disk.remove(path("b")).unwrap();
        let mut found: Vec<_> = (0..SEEDS)
            .map(|seed| {
                let disk = disk.after_power_cut(seed);
                (disk.list(path("")).unwrap().join(" "), contents(&disk, path("kept")).unwrap()[0])
            })
            .collect();
        found.sort();
        found.dedup();
        let names = [("a b kept", 1), ("a kept", 1), ("b kept", b'a'), ("kept", 1), ("kept", b'a')];
        assert_eq!(found, names.map(|(names, first)| (names.to_owned(), first)));
    }

    #[test]
    fn a_durable_folder_is_there_after_a_power_cut() {
        let disk = FaultyDisk::new(FaultPlan::default());
        disk.create_folder(path("lost")).unwrap();
        create_durable_folder(&disk, path("a/b/c")).unwrap();
        disk.create_folder(path("a/b/lost")).unwrap();
        let mut names = std::collections::BTreeSet::new();
        for seed in 0..SEEDS {
            let disk = disk.after_power_cut(seed);
            assert!(disk.exists(path("a/b/c")).unwrap(), "seed {seed}");
            names.insert(disk.exists(path("a/b/lost")).unwrap());
        }
        assert_eq!(names.len(), 2, "a name that was not synced is lost sometimes");
        // It is created again without harm.
        create_durable_folder(&disk, path("a/b/c")).unwrap();
    }

    #[test]
    fn a_rename_between_folders_takes_along_what_came_before_it() {
        let disk = FaultyDisk::new(FaultPlan::default());
        disk.create_folder(path("from")).unwrap();
        disk.create_folder(path("to")).unwrap();
        disk.sync_folder(path("")).unwrap();
        create(&disk, "from/a", b"a").sync().unwrap();
        create(&disk, "from/b", b"b").sync().unwrap();
        disk.rename(path("from/b"), path("to/b")).unwrap();
        create(&disk, "from/c", b"c");
        for seed in 0..SEEDS {
            let disk = disk.after_power_cut(seed);
            let is = |name| disk.exists(path(name)).unwrap();
            assert!(!(is("from/b") && is("to/b")), "seed {seed}");
            assert!(!is("to/b") || is("from/a"), "seed {seed}");
        }
        disk.sync_folder(path("to")).unwrap();
        assert_eq!(outcomes(&disk, "to/b"), [Some(b"b".to_vec())]);
        assert_eq!(outcomes(&disk, "from/a"), [Some(b"a".to_vec())]);
        assert_eq!(outcomes(&disk, "from/c").len(), 3);
    }

    #[test]
    fn removing_a_folder_removes_its_content() {
        let disk = FaultyDisk::new(FaultPlan::default());
        disk.create_folder(path("new")).unwrap();
        create(&disk, "new/file", b"x").sync().unwrap();
        disk.sync_folder(path("new")).unwrap();
        assert_eq!(outcomes(&disk, "new/file"), [None, Some(b"x".to_vec())]);
        disk.sync_folder(path("")).unwrap();
        disk.remove(path("new/file")).unwrap();
        disk.remove_folder(path("new")).unwrap();
        disk.sync_folder(path("")).unwrap();
        assert_eq!(outcomes(&disk, "new/file"), [None]);
    }

    /// Replaces the file "current" in the way of this library.
    fn publish(disk: &dyn Disk) -> Result<()> {
        let file = disk.create(path("next"), Access::Cached)?;
        file.write_at(0, &[2; 1000])?;
        file.write_at(1000, &[2; 1000])?;
        file.sync()?;
        disk.rename(path("next"), path("current"))?;
        disk.sync_folder(path(""))
    }

    #[test]
    fn a_power_cut_at_any_operation_leaves_the_old_file_or_the_new() {
        let start = MemoryDisk::default();
        create(&start, "current", &[1; 2000]);
        let whole = FaultyDisk::over(&start, FaultPlan::default());
        publish(&whole).unwrap();
        assert_eq!(whole.operations(), 6);
        let mut found = [0, 0];
        for operation in 0..whole.operations() {
            let disk = FaultyDisk::over(&start, Fault::PowerCut { operation }.into());
            publish(&disk).unwrap_err();
            assert!(disk.list(path("")).is_err());
            assert!(disk.open(path("current"), Access::Cached).is_err());
            for seed in 0..20 {
                let bytes = contents(&disk.after_power_cut(seed), path("current")).unwrap();
                assert_eq!(bytes, [bytes[0]; 2000], "operation {operation}, seed {seed}");
                found[usize::from(bytes[0]) - 1] += 1;
            }
        }
        assert!(found[0] > 80);
        assert!(found[1] > 5);
        for seed in 0..20 {
            let bytes = contents(&whole.after_power_cut(seed), path("current")).unwrap();
            assert_eq!(bytes, [2; 2000]);
        }
    }

    #[test]
    fn an_operation_that_fails_changes_nothing() {
        for operation in 0..6 {
            let disk = FaultyDisk::new(Fault::Failure { operation }.into());
            check_io(publish(&disk), Errno::IO, path_of(operation));
            assert!(!disk.exists(path("current")).unwrap() || operation == 5);
            disk.heal();
            publish(&disk).unwrap();
        }
    }

    fn path_of(operation: u64) -> &'static Path {
        Path::new(if operation == 5 { "" } else { "next" })
    }

    #[test]
    fn a_full_disk_refuses_writes_until_there_is_room() {
        for fault in [Fault::Full { write: 1 }, Fault::FullAfter { bytes: 1500 }] {
            let disk = FaultyDisk::new(fault.into());
            check_io(publish(&disk), Errno::NOSPC, path("next"));
            let len = if matches!(fault, Fault::Full { .. }) { 1000 } else { 1500 };
            assert_eq!(contents(&disk, path("next")).unwrap(), vec![2; len]);
            disk.heal();
            publish(&disk).unwrap();
        }
    }

    #[test]
    fn the_planned_reads_fail_and_no_others() {
        let (disk, _) = disk_with_a_file();
        let faults = [
            Fault::ReadFailure { read: 1 },
            Fault::ShortRead { read: 2 },
            Fault::FlippedBit { read: 3 },
        ];
        for seed in 0..50 {
            let plan = FaultPlan { seed, faults: faults.to_vec() };
            let disk = FaultyDisk::over(&disk.snapshot(), plan);
            let file = disk.open(path("kept"), Access::Cached).unwrap();
            let read = || read_all(&*file, 2048);
            assert_eq!(*read().unwrap(), [1; 2048]);
            check_io(read(), Errno::IO, path("kept"));
            assert!(matches!(read().unwrap_err().kind(), ErrorKind::Truncated { .. }));
            let bits = read().unwrap().iter().map(|byte| (byte ^ 1).count_ones()).sum::<u32>();
            assert_eq!(bits, 1, "seed {seed}");
            assert_eq!(*read().unwrap(), [1; 2048]);
        }
    }
}

/// A name that is missing may be made later, and the path must lead to the same place then.
#[test]
fn an_absolute_path_has_no_names_that_are_missing_before_its_parents() {
    let folder = tempfile::tempdir().unwrap();
    let root = std::fs::canonicalize(folder.path()).unwrap();
    std::fs::create_dir_all(root.join("a/b")).unwrap();
    std::os::unix::fs::symlink(root.join("a/b"), root.join("link")).unwrap();
    for (path, expected) in [
        ("missing/../a/x", "a/x"),
        ("missing/more/../../link/x", "a/b/x"),
        ("link/../x/../y", "a/y"),
        ("missing/x", "missing/x"),
        ("link", "a/b"),
    ] {
        assert_eq!(OsDisk.absolute(&root.join(path)).unwrap(), root.join(expected), "{path}");
    }
}
