//! Logs compared with lists of appended records: power cuts at every operation, failures, full
//! disks, damage, several threads.

use super::{
    batch::{BATCH_SIZE_MAX, HEAD_SIZE, Head},
    *,
};
use crate::{
    env::Env,
    error::{ErrorClass, Result},
    io::{ALIGNMENT, Access, Disk, Extent, Fault, FaultPlan, FaultyDisk, MemoryDisk, read_all},
    key::Seed,
    work::{Executor, Inline, Threads, testing::Late},
};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
};
use tempfile::TempDir;

const SEGMENT_SIZE: u64 = (BATCH_SIZE_MAX + 4 * ALIGNMENT) as u64;
const ID: u64 = 77;

fn home(disk: &(impl Disk + Clone + 'static)) -> WalFolder {
    let env = Env::on(Arc::new(disk.clone()));
    WalFolder { env, folder: "".into(), seed: Seed(5), id: ID }
}

/// Returns the number of changes and the payload of the record with this sequence number.
fn record(seq: u64) -> (u64, Vec<u8>) {
    let len = match seq % 7 {
        0 => 0,
        3 => 5000,
        _ => (seq * 37 % 300) as usize,
    };
    let bytes = (0..len as u64).map(|i| (seq.wrapping_mul(31) + i) as u8).collect();
    (1 + seq % 3, bytes)
}

/// Appends the next record; returns the sequence number after it.
fn append(wal: &Wal) -> Result<u64> {
    let (count, payload) = record(wal.end());
    wal.append(count, &payload)
}

/// Checks that replay returns all records from `from` on, in order and once. Returns the end of the
/// log.
fn check_records(home: &WalFolder, from: u64) -> Result<u64> {
    let mut next = None;
    let found = replay(home.files(), from..from, &mut |found| {
        let (count, payload) = record(found.seq);
        assert!(found.count == count && found.payload == payload, "record {}", found.seq);
        assert!(next.unwrap_or(found.seq) == found.seq && found.end() > from);
        assert!(next.is_some() || found.seq <= from, "{} follows {from}", found.seq);
        next = Some(found.end());
        Ok(())
    })?;
    assert_eq!(found.end, next.unwrap_or(from));
    Ok(found.end)
}

fn open(disk: &(impl Disk + Clone + 'static), from: u64) -> Result<Wal> {
    Wal::open(home(disk), Segments::of_size(SEGMENT_SIZE), from..from, &mut |_| Ok(()))
}

/// The sequence numbers up to which a log must hold changes.
#[derive(Clone, Copy, Debug, Default)]
struct Promise {
    /// Changes before this sequence number are durable elsewhere.
    truncated: u64,
    committed: u64,
    appended: u64,
}

/// Appends, commits, ends segments, truncates and marks, until a call fails.
fn act(wal: &Wal, promise: &mut Promise, rounds: u64) -> Result<()> {
    for round in 0..rounds {
        for _ in 0..1 + round % 5 {
            // The record may be in the log although its append failed.
            promise.appended = wal.end() + record(wal.end()).0;
            append(wal)?;
        }
        if round % 4 != 2 {
            wal.commit(wal.end())?;
            promise.committed = wal.end();
        }
        if round % 9 == 8 {
            wal.rotate()?;
        }
        if round % 7 == 6 {
            promise.truncated = promise.committed - 3;
            wal.truncate(promise.truncated)?;
        }
        if round % 5 == 4 {
            wal.mark()?;
        }
    }
    Ok(())
}

/// Checks that a disk keeps the promise, and that the log can be written further.
fn check_promise(disk: &MemoryDisk, promise: Promise) {
    let Promise { truncated, committed, appended } = promise;
    let end = check_records(&home(disk), truncated).unwrap();
    assert!((committed..=appended).contains(&end), "{end}: {promise:?}");
    let wal = open(disk, truncated).unwrap();
    assert_eq!(wal.end(), end);
    let mut promise = Promise { truncated, committed: end, appended: end };
    act(&wal, &mut promise, 12).unwrap();
    drop(wal);
    assert_eq!(check_records(&home(disk), promise.truncated).unwrap(), promise.appended);
}

#[test]
fn a_power_cut_at_any_operation_loses_nothing_that_was_committed() {
    const ROUNDS: u64 = 40;
    let whole = FaultyDisk::new(FaultPlan::default());
    act(&open(&whole, 0).unwrap(), &mut Promise::default(), ROUNDS).unwrap();
    for operation in 0..whole.operations() {
        let disk = FaultyDisk::new(Fault::PowerCut { operation }.into());
        let mut promise = Promise::default();
        let ended = open(&disk, 0).and_then(|wal| act(&wal, &mut promise, ROUNDS));
        assert!(ended.is_err() || operation + 1 == whole.operations());
        for seed in 0..6 {
            check_promise(&disk.after_power_cut(seed), promise);
        }
    }
}

#[test]
fn a_power_cut_while_a_log_is_opened_after_one_loses_nothing_either() {
    for operation in 0..60 {
        let disk = FaultyDisk::new(Fault::PowerCut { operation: 40 + operation }.into());
        let mut promise = Promise::default();
        let _ = open(&disk, 0).and_then(|wal| act(&wal, &mut promise, 40));
        for seed in 0..4 {
            let left = disk.after_power_cut(seed);
            for second in 0..8 {
                let again = FaultyDisk::over(&left, Fault::PowerCut { operation: second }.into());
                let mut promise = promise;
                let _ = open(&again, promise.truncated).and_then(|wal| {
                    promise.appended = promise.appended.max(wal.end());
                    act(&wal, &mut promise, 5)
                });
                check_promise(&again.after_power_cut(seed + 10), promise);
            }
        }
    }
}

/// A killed process leaves records that the next process can read, but that are not durable.
#[test]
fn records_that_a_killed_process_left_are_durable_before_others_follow_them() {
    for rounds in 1..12 {
        let disk = FaultyDisk::new(FaultPlan::default());
        let wal = open(&disk, 0).unwrap();
        for _ in 0..rounds {
            (0..4).for_each(|_| _ = append(&wal).unwrap());
            wal.rotate().unwrap();
        }
        drop(wal);
        let wal = open(&disk, 0).unwrap();
        let end = append(&wal).unwrap();
        wal.commit(end).unwrap();
        for seed in 0..20 {
            assert_eq!(check_records(&home(&disk.after_power_cut(seed)), 0).unwrap(), end);
        }
    }
}

/// A failed log refuses all further calls. After it is opened again, it works.
#[test]
fn failures_and_full_disks_lose_nothing_that_was_committed() {
    let whole = FaultyDisk::new(FaultPlan::default());
    act(&open(&whole, 0).unwrap(), &mut Promise::default(), 40).unwrap();
    let failures = (0..whole.operations()).map(|operation| Fault::Failure { operation });
    let full = (0..whole.operations()).map(|write| Fault::Full { write });
    for fault in failures.chain(full) {
        let disk = FaultyDisk::new(fault.into());
        let mut promise = Promise::default();
        if let Ok(wal) = open(&disk, 0)
            && act(&wal, &mut promise, 40).is_err()
        {
            disk.heal();
            // Either no segment could be created, or the log has failed for good.
            match wal.commit(wal.end()) {
                Ok(()) => promise.committed = wal.end(),
                Err(_) => assert!(append(&wal).is_err() && wal.commit(wal.end()).is_err()),
            }
            promise.appended = promise.appended.max(wal.end());
        }
        disk.heal();
        check_promise(&disk.snapshot(), promise);
        check_promise(&disk.after_power_cut(1), promise);
    }
}

/// Segments that a log did not continue from are gone for good: after another crash, no later log
/// continues from them either.
#[test]
fn a_segment_that_was_cut_off_never_comes_back() {
    let lost = FaultyDisk::new(FaultPlan::default());
    let wal = open(&lost, 0).unwrap();
    for _ in 0..2 {
        wal.append(5, b"never committed").unwrap();
        wal.rotate().unwrap();
    }
    drop(wal);
    let mut cut_off = 0;
    for seed in 0..200 {
        let disk = FaultyDisk::over(&lost.after_power_cut(seed), FaultPlan::default());
        let wal = open(&disk, 0).unwrap();
        if wal.end() > 0 {
            continue;
        }
        cut_off += 1;
        wal.append(10, b"half of it is durable elsewhere").unwrap();
        drop(wal);
        for seed in 0..20 {
            assert_eq!(open(&disk.after_power_cut(seed), 5).unwrap().end(), 5);
        }
    }
    assert!(cut_off > 10);
}

#[test]
fn numbers_beyond_the_last_are_refused_and_such_files_are_ignored() {
    let disk = MemoryDisk::default();
    let wal = open(&disk, u64::MAX - 1).unwrap();
    assert!(wal.commit(u64::MAX).unwrap_err().to_string().contains("the end of the log"));
    assert_eq!(wal.append(1, b"the last").unwrap(), u64::MAX);
    assert_eq!(wal.append(1, b"one more").unwrap_err().class(), ErrorClass::Input);
    wal.commit(u64::MAX).unwrap();

    let disk = MemoryDisk::default();
    disk.create(Path::new("wal-18446744073709551615"), Access::Cached).unwrap();
    for end in 1..4 {
        let wal = open(&disk, 0).unwrap();
        assert_eq!(wal.append(1, b"a change").unwrap(), end);
        wal.commit(end).unwrap();
    }
}

#[test]
fn a_sync_that_failed_is_never_tried_again() {
    let disk = FaultyDisk::new(FaultPlan::default());
    act(&open(&disk, 0).unwrap(), &mut Promise::default(), 3).unwrap();
    let operations = disk.operations();
    let disk = FaultyDisk::new(Fault::Failure { operation: operations }.into());
    let wal = open(&disk, 0).unwrap();
    let mut promise = Promise::default();
    act(&wal, &mut promise, 3).unwrap();
    append(&wal).unwrap();
    wal.commit(wal.end()).unwrap_err();
    let before = disk.operations();
    for _ in 0..3 {
        let error = wal.commit(wal.end()).unwrap_err();
        assert!(error.to_string().contains("after an earlier failure"), "{error}");
        append(&wal).unwrap_err();
        wal.mark().unwrap();
    }
    assert_eq!(disk.operations(), before);
    wal.commit(promise.committed).unwrap();
}

/// Returns the offsets and sizes of the batches of each segment.
fn batches(disk: &MemoryDisk) -> Vec<(String, Vec<(usize, usize)>)> {
    let batches_of = |name: String| {
        let file = disk.open(Path::new(&name), Access::Cached).unwrap();
        let bytes = read_all(&*file, u64::MAX).unwrap();
        let mut offset = ALIGNMENT;
        let mut found = Vec::new();
        while let Some(head) = bytes.get(offset..).and_then(|bytes| Head::decode(bytes).ok())
            && head.size > 0
        {
            found.push((offset, HEAD_SIZE + head.size));
            offset += head.padded_size() as usize;
        }
        (name, found)
    };
    disk.list(Path::new("")).unwrap().into_iter().map(batches_of).collect()
}

/// Returns a log of several segments whose records are all committed and marked.
fn marked() -> (MemoryDisk, u64) {
    let disk = MemoryDisk::default();
    let wal = open(&disk, 0).unwrap();
    for i in 0..12 {
        append(&wal).unwrap();
        append(&wal).unwrap();
        wal.commit(wal.end()).unwrap();
        if i % 5 == 4 {
            wal.rotate().unwrap();
        }
    }
    let end = wal.end();
    drop(wal);
    (disk, end)
}

#[test]
fn every_flipped_bit_of_a_batch_that_was_committed_is_damage() {
    let (disk, end) = marked();
    for (name, batches) in batches(&disk) {
        let file = disk.open_to_write(Path::new(&name), Access::Cached).unwrap();
        for (offset, len) in batches {
            // All of the head, and some of the other bytes.
            let places = (0..HEAD_SIZE).chain((HEAD_SIZE..len).step_by(97)).chain([len - 1]);
            for (i, place) in places.map(|place| (offset + place) as u64).enumerate() {
                let mut byte = [0];
                file.read_at(place, &mut byte).unwrap();
                file.write_at(place, &[byte[0] ^ 1 << (i % 8)]).unwrap();
                let error = check_records(&home(&disk), 0).unwrap_err();
                assert_eq!(error.class(), ErrorClass::Damage, "{error}");
                file.write_at(place, &byte).unwrap();
            }
        }
    }
    assert_eq!(check_records(&home(&disk), 0).unwrap(), end);
}

/// Returns the sequence numbers of the records that a salvage returns, and of the changes that it
/// misses.
fn salvaged(disk: &(impl Disk + Clone + 'static)) -> (Vec<u64>, Vec<std::ops::Range<u64>>) {
    let mut seqs: Vec<u64> = Vec::new();
    let lost = salvage(home(disk).files(), 0..0, &mut |found| {
        let (count, payload) = record(found.seq);
        assert!(found.count == count && found.payload == payload, "record {}", found.seq);
        assert!(seqs.last().is_none_or(|last| *last < found.seq));
        seqs.push(found.seq);
        Ok(())
    });
    (seqs, lost.unwrap().seqs)
}

#[test]
fn a_salvage_returns_the_records_of_all_intact_batches() {
    let (disk, _) = marked();
    let (all, lost) = salvaged(&disk);
    assert!(all.len() == 24 && lost.is_empty(), "{lost:?}");
    let mut record = 0;
    for (name, batches) in batches(&disk) {
        let file = disk.open_to_write(Path::new(&name), Access::Cached).unwrap();
        for (offset, _) in batches {
            let place = (offset + HEAD_SIZE) as u64;
            let mut byte = [0];
            file.read_at(place, &mut byte).unwrap();
            file.write_at(place, &[byte[0] ^ 1]).unwrap();
            // Each commit was one batch of two records.
            let (seqs, lost) = salvaged(&disk);
            let end = all.get(record + 2).copied().unwrap_or(lost[0].end);
            assert!(lost.len() == 1 && lost[0] == (all[record]..end), "{lost:?}");
            let expected = all.iter().filter(|seq| !lost[0].contains(seq));
            assert!(seqs.iter().eq(expected), "{seqs:?}");
            file.write_at(place, &byte).unwrap();
            record += 2;
        }
    }
    assert_eq!(record, 24);
}

/// A salvage takes a crash for damage no more than another reader does.
#[test]
fn a_salvage_after_a_power_cut_returns_what_another_reader_returns() {
    let whole = FaultyDisk::new(FaultPlan::default());
    act(&open(&whole, 0).unwrap(), &mut Promise::default(), 25).unwrap();
    for operation in 0..whole.operations() {
        let disk = FaultyDisk::new(Fault::PowerCut { operation }.into());
        let mut promise = Promise::default();
        let _ = open(&disk, 0).and_then(|wal| act(&wal, &mut promise, 25));
        for seed in 0..4 {
            let disk = disk.after_power_cut(seed);
            for _ in 0..2 {
                let from = promise.truncated;
                let mut expected = Vec::new();
                let found = replay(home(&disk).files(), from..from, &mut |record| {
                    expected.push(record.seq);
                    Ok(())
                });
                found.unwrap();
                let mut seqs = Vec::new();
                let lost = salvage(home(&disk).files(), from..from, &mut |record| {
                    seqs.push(record.seq);
                    Ok(())
                });
                let lost = lost.unwrap();
                assert!(seqs == expected && lost.seqs.is_empty(), "{operation} {seed}: {lost:?}");
                // Once more with another log behind the cut.
                let wal = open(&disk, from).unwrap();
                promise.committed = wal.end();
                act(&wal, &mut promise, 3).unwrap();
            }
        }
    }
}

#[test]
fn a_lost_segment_is_damage_unless_it_is_not_needed() {
    let (disk, end) = marked();
    let mut segments = batches(&disk);
    segments.retain(|(_, batches)| !batches.is_empty());
    assert!(segments.len() > 2);
    // Only the caller can know that the last segment existed.
    {
        let (disk, _) = marked();
        disk.remove(Path::new(&segments[segments.len() - 1].0)).unwrap();
        let left = check_records(&home(&disk), 0).unwrap();
        assert!(left < end);
        let files = disk.list(Path::new("")).unwrap();
        for needed in [0..left + 1, left..end] {
            let opened =
                Wal::open(home(&disk), Segments::of_size(SEGMENT_SIZE), needed, &mut |_| Ok(()));
            assert_eq!(opened.unwrap_err().class(), ErrorClass::Damage);
        }
        assert_eq!(disk.list(Path::new("")).unwrap(), files);
        assert_eq!(open(&disk, end).unwrap().end(), end);
    }
    for (name, _) in &segments[..segments.len() - 1] {
        let (disk, _) = marked();
        disk.remove(Path::new(name)).unwrap();
        let error = check_records(&home(&disk), 0).unwrap_err();
        assert_eq!(error.class(), ErrorClass::Damage, "{error}");
        assert!(open(&disk, 0).is_err());
        assert_eq!(check_records(&home(&disk), end).unwrap(), end);
    }
}

#[test]
fn logs_of_others_are_refused() {
    let (disk, _) = marked();
    for other in [WalFolder { seed: Seed(6), ..home(&disk) }, WalFolder { id: 78, ..home(&disk) }] {
        let error = replay(other.files(), 0..0, &mut |_| Ok(())).unwrap_err();
        assert!(matches!(error.kind(), crate::error::ErrorKind::Mismatch { .. }), "{error}");
    }
}

/// Bytes of an earlier use of a segment are never replayed, wherever the current use ends.
#[test]
fn recycled_segments_show_nothing_of_their_earlier_life() {
    let disk = MemoryDisk::default();
    let wal = open(&disk, 0).unwrap();
    let mut from = 0;
    for i in 0..300 {
        append(&wal).unwrap();
        wal.commit(wal.end()).unwrap();
        if i % 11 == 10 {
            wal.rotate().unwrap();
            assert_eq!(check_records(&home(&disk), from).unwrap(), wal.end());
            from = wal.end();
            wal.truncate(from).unwrap();
        }
    }
    let (end, segments) = (wal.end(), disk.list(Path::new("")).unwrap());
    assert!(segments.len() <= 5, "{segments:?}");
    let first: u64 = segments[0].trim_start_matches("wal-").parse().unwrap();
    assert!(first > 20, "{segments:?}");
    drop(wal);
    assert_eq!(check_records(&home(&disk), end).unwrap(), end);
}

#[test]
fn records_of_all_sizes_come_back_and_longer_ones_are_refused() {
    let disk = MemoryDisk::default();
    let wal = open(&disk, 10).unwrap();
    let sizes: Vec<usize> = (0..4200).chain(PAYLOAD_SIZE_MAX - 100..=PAYLOAD_SIZE_MAX).collect();
    for &size in &sizes {
        wal.append(2, &vec![size as u8; size]).unwrap();
        wal.commit(wal.end()).unwrap();
    }
    let error = wal.append(1, &vec![0; PAYLOAD_SIZE_MAX + 1]).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Input, "{error}");
    let mut shown = sizes.iter();
    let found = replay(home(&disk).files(), 10..10, &mut |record| {
        let size = *shown.next().unwrap();
        assert!(record.count == 2 && record.payload == vec![size as u8; size]);
        Ok(())
    });
    assert_eq!(found.unwrap().end, 10 + 2 * sizes.len() as u64);
    assert!(shown.next().is_none());
}

/// Commits from several threads at once, on slow disks and executors.
#[test]
fn what_any_thread_committed_is_durable() {
    const THREADS: u64 = 8;
    const COMMITS: u64 = 60;
    let executors: [Arc<dyn Executor>; 3] =
        [Arc::new(Inline), Arc::new(Threads::new(2)), Arc::new(Late::new(2, Seed(3)))];
    for executor in executors {
        let disk = FaultyDisk::new(FaultPlan::default());
        let env = Env { disk: Arc::new(disk.clone()), executor, ..Env::system() };
        let wal = Wal::open(
            WalFolder { env, ..home(&disk) },
            Segments::of_size(SEGMENT_SIZE),
            0..0,
            &mut |_| Ok(()),
        );
        let wal = wal.unwrap();
        let (committed, is_done) = (AtomicU64::new(0), AtomicBool::new(false));
        let check = |disk: &MemoryDisk, least: u64| {
            let mut next = 0;
            let found = replay(home(disk).files(), 0..0, &mut |record| {
                assert_eq!(record.seq, next);
                next = record.end();
                Ok(())
            });
            assert!(found.unwrap().end >= least);
        };
        thread::scope(|scope| {
            let writers: Vec<_> = (0..THREADS)
                .map(|i| {
                    let (wal, committed) = (&wal, &committed);
                    scope.spawn(move || {
                        for size in 0..COMMITS {
                            let seq = wal.append(1, &vec![i as u8; size as usize]).unwrap();
                            wal.commit(seq).unwrap();
                            assert!(wal.durable_seq() >= seq);
                            committed.fetch_max(seq, SeqCst);
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                for seed in 0.. {
                    let least = committed.load(SeqCst);
                    check(&disk.after_power_cut(seed), least);
                    check(&disk.snapshot(), least);
                    if is_done.load(SeqCst) {
                        break;
                    }
                }
            });
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            is_done.store(true, SeqCst);
        });
        assert_eq!(wal.end(), THREADS * COMMITS);
        check(&disk.after_power_cut(0), wal.end());
    }
}

#[test]
fn a_reader_beside_a_writer_sees_all_that_was_committed() {
    let folder = TempDir::new().unwrap();
    let env = Env { executor: Arc::new(Threads::new(1)), ..Env::system() };
    let home = WalFolder { env, folder: folder.path().into(), seed: Seed(1), id: ID };
    let wal = Wal::open(home.clone(), Segments::of_size(SEGMENT_SIZE), 0..0, &mut |_| Ok(()));
    let (wal, is_done) = (wal.unwrap(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(SeqCst) {
                let least = wal.durable_seq();
                assert!(check_records(&home, 0).unwrap() >= least);
            }
        });
        for i in 0..200 {
            append(&wal).unwrap();
            if i % 3 > 0 {
                wal.commit(wal.end()).unwrap();
            }
        }
        is_done.store(true, SeqCst);
    });
    wal.commit(wal.end()).unwrap();
    assert_eq!(check_records(&home, 0).unwrap(), wal.end());
}

/// Batches that were never committed, with arbitrary holes in the file.
#[test]
fn what_was_not_committed_is_a_prefix_of_what_was_appended() {
    let disk = MemoryDisk::default();
    let wal = open(&disk, 0).unwrap();
    append(&wal).unwrap();
    wal.commit(wal.end()).unwrap();
    for _ in 0..8 {
        (0..3).for_each(|_| _ = append(&wal).unwrap());
        wal.rotate().unwrap();
    }
    for (name, batches) in batches(&disk) {
        for (offset, len) in batches {
            let (copy, _) = (copy_of(&disk), ());
            let file = copy.open_to_write(Path::new(&name), Access::Cached).unwrap();
            file.punch_hole(Extent { offset: offset as u64, len }).unwrap();
            let is_first = name == "wal-0000000000" && offset == ALIGNMENT;
            let found = check_records(&home(&copy), 0);
            assert_eq!(found.is_err(), is_first, "{found:?} {name} {offset}");
            if !is_first {
                check_promise(&copy, Promise { appended: wal.end(), ..Promise::default() });
            }
        }
    }
}

fn copy_of(disk: &MemoryDisk) -> MemoryDisk {
    FaultyDisk::over(disk, FaultPlan::default()).snapshot()
}
