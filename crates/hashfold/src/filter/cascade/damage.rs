//! Damaged files: truncated, changed, or in the place of other files. The result is a clear error
//! or the right answer.

use super::{
    crash::{Script, folder, hashes, left_behind, scripts},
    *,
};
use crate::{
    checksum::crc32c,
    env::Env,
    error::{Error, ErrorClass, ErrorKind, Result},
    io::{Access, Disk, MemoryDisk, read_all},
    key::Seed,
    work::Watch,
};
use std::{collections::BTreeMap, path::Path, sync::Arc};

/// The size of a sector, in bytes: a device writes it atomically.
const SECTOR: usize = 512;

type Files = BTreeMap<String, Vec<u8>>;

fn files(disk: &dyn Disk) -> Files {
    let read = |name: String| {
        let file = disk.open(&folder().join(&name), Access::Cached).unwrap();
        let bytes = read_all(&*file, 1 << 24).unwrap().to_vec();
        (name, bytes)
    };
    disk.list(folder()).unwrap().into_iter().map(read).collect()
}

fn disk_of(files: &Files) -> Arc<dyn Disk> {
    let disk = MemoryDisk::default();
    disk.create_folder(folder()).unwrap();
    for (name, bytes) in files {
        disk.create(&folder().join(name), Access::Cached).unwrap().write_at(0, bytes).unwrap();
    }
    Arc::new(disk)
}

/// Filters with runs of all kinds and with logs.
struct Left {
    script: Script,
    files: Files,
    counts: Vec<u64>,
}

fn all_left() -> Vec<Left> {
    let left = |script: Script| {
        let (disk, counts) = left_behind(&script);
        Left { files: files(&disk), script, counts }
    };
    scripts().into_iter().map(left).collect()
}

impl Left {
    fn runs(&self) -> Vec<&String> {
        self.files.keys().filter(|name| name.starts_with("run-")).collect()
    }

    /// Returns the answers of a reader, and of the next writer after it has merged all runs.
    fn look_up(&self, disk: &Arc<dyn Disk>) -> [Result<Vec<u64>>; 2] {
        let hashes = hashes();
        let read = || {
            let mut counts = vec![0; hashes.len()];
            let snapshot = Snapshot::open(&Env::on(disk.clone()), folder(), Access::Cached)?;
            snapshot.count_batch(&hashes, &mut counts)?;
            Ok(counts)
        };
        let write = || {
            let mut counts = vec![0; hashes.len()];
            let mut filter = self.script.open(disk)?;
            filter.merge()?;
            filter.count_batch(&hashes, &mut counts)?;
            Ok(counts)
        };
        [read(), write()]
    }

    /// Checks that, with these files, no answer is wrong, errors are clear, and a check names
    /// `damaged`.
    #[track_caller]
    fn check(&self, files: &Files, damaged: &[&str], context: &str) {
        let disk = disk_of(files);
        match verify(&Env::on(disk.clone()), folder(), &Watch::default()) {
            Ok(report) => {
                let named: Vec<String> = report.damage.iter().map(file_name).collect();
                assert_eq!(named, damaged, "{context}: what the check names");
            }
            Err(error) => assert_eq!([file_name(&error).as_str()], damaged, "{context}: {error}"),
        }
        for answer in self.look_up(&disk) {
            match answer {
                Ok(counts) => assert!(counts == self.counts, "{context}: a wrong answer"),
                Err(error) => {
                    assert!(damaged.contains(&file_name(&error).as_str()), "{context}: {error}");
                }
            }
        }
    }

    /// Checks the filter with one file replaced.
    #[track_caller]
    fn check_with(&self, name: &str, bytes: Vec<u8>, is_found: bool, context: &str) {
        let mut files = self.files.clone();
        files.insert(name.to_owned(), bytes);
        let damaged: &[&str] = if is_found { &[name] } else { &[] };
        self.check(&files, damaged, &format!("{name}, {context}"));
    }
}

/// Returns the file that an error names.
fn file_name(error: &Error) -> String {
    let place = error.place().unwrap_or_else(|| panic!("{error} names no file"));
    place.file.file_name().unwrap().to_string_lossy().into_owned()
}

/// Returns the offset after the last batch of a segment, where a mark stands, followed by zeros.
fn log_end(bytes: &[u8]) -> usize {
    let last = bytes.iter().rposition(|&byte| byte != 0).unwrap_or(0);
    (last / 4096 * 4096).max(4096)
}

#[test]
fn files_that_are_cut_short_are_found() {
    for left in &all_left()[..2] {
        for (name, bytes) in left.files.iter().filter(|(name, _)| !name.starts_with("wal-")) {
            let step = if name == "MANIFEST" { SECTOR } else { 5 * SECTOR };
            for size in (0..bytes.len()).step_by(step) {
                left.check_with(name, bytes[..size].to_vec(), true, &format!("cut to {size}"));
            }
        }
    }
}

/// A truncated log is like a log after a crash: its remaining changes are there. Changes that the
/// manifest knows to be in the log are not lost silently.
#[test]
fn a_truncated_log_is_read_up_to_the_cut() {
    let left = &all_left()[1];
    let name = left.files.keys().find(|name| name.starts_with("wal-")).unwrap();
    let bytes = &left.files[name];
    for size in (0..bytes.len()).step_by(SECTOR) {
        let mut files = left.files.clone();
        files.insert(name.clone(), bytes[..size].to_vec());
        let answers = left.look_up(&disk_of(&files));
        // The header and the first batch.
        if size < 8192 {
            let is_damage = |answer: &Result<_>| {
                answer.as_ref().is_err_and(|it| it.class() == ErrorClass::Damage)
            };
            assert!(answers.iter().all(is_damage), "cut to {size}");
            continue;
        }
        let [read, written] = answers.map(Result::unwrap);
        assert!(read == written);
        let wrong = read.iter().zip(&left.counts).filter(|(a, b)| a != b).count();
        assert!(wrong <= 2 && (size < log_end(bytes) || wrong == 0));
    }
}

/// A truncated segment is like a segment after a crash, unless the manifest or a later segment says
/// that it was synced.
#[test]
fn a_later_segment_counts_only_if_nothing_is_missing_before_it() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let settings = CascadeSettings { wal: true, ..CascadeSettings::new(Env::simulated(1)) };
    let options = CascadeOptions::exact(Seed(1), 7);
    let mut filter =
        CascadeFilter::create(folder(), &options, settings.clone().on(disk.clone())).unwrap();
    // More changes than fit in one segment.
    filter.insert_batch(&hashes()[..1600]).unwrap();
    let unsynced = files(&*disk);
    filter.sync().unwrap();
    assert_eq!((filter.seq(), filter.durable_seq(), filter.stats().durable_seq), (1600, 1600, 0));
    let whole = files(&*disk);
    let [first, second] = ["wal-0000000000", "wal-0000000001"].map(str::to_owned);
    assert!(unsynced.contains_key(&first) && whole.contains_key(&second));
    let seq = |files: &Files| {
        let filter = CascadeFilter::open(folder(), settings.clone().on(disk_of(files)))?;
        let mut found = vec![false; 1600];
        filter.contains_batch(&hashes()[..1600], &mut found)?;
        let seq = filter.seq() as usize;
        assert!(found.iter().enumerate().all(|(i, &found)| found == (i < seq)));
        assert_eq!(
            verify(&Env::on(disk_of(files).clone()), folder(), &Watch::default())?.figures.logged,
            seq as u64
        );
        Ok::<_, Error>(seq)
    };
    assert_eq!(seq(&whole).unwrap(), 1600);
    // The padding of its last batch is not checked.
    let end = whole[&first].iter().rposition(|&byte| byte != 0).unwrap();
    let mut counted = 0;
    for size in (0..end).step_by(SECTOR) {
        let mut files = whole.clone();
        files.insert(first.clone(), whole[&first][..size].to_vec());
        let is_damage =
            |files: &Files| seq(files).is_err_and(|it| it.class() == ErrorClass::Damage);
        assert!(is_damage(&files), "cut to {size}");
        // Without the mark at the end of the second segment, only the manifest says that it was
        // synced.
        let end = log_end(&whole[&second]);
        files.insert(second.clone(), whole[&second][..end].to_vec());
        assert!(is_damage(&files), "cut to {size}, no mark");
        // Before the sync, the manifest does not say so either.
        files.insert("MANIFEST".into(), unsynced["MANIFEST"].clone());
        let left = seq(&files).unwrap();
        assert!(left < 1600, "cut to {size}: {left} seq");
        counted = counted.max(left);
    }
    println!("{counted} changes at most");
}

#[test]
fn flipped_bits_are_found() {
    for left in &all_left()[1..3] {
        for (name, bytes) in &left.files {
            let is_log = name.starts_with("wal-");
            let step = if is_log || name == "MANIFEST" { 97 } else { 3001 };
            for at in (0..bytes.len()).step_by(step) {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1 << (at % 8);
                if is_log {
                    check_log_flip(left, name, bytes, at);
                } else {
                    left.check_with(name, bytes, true, &format!("flipped at {at}"));
                }
            }
        }
    }
}

/// Checks a flipped bit in a log. Padding of batches and the mark at the end are not checked;
/// everything else is.
fn check_log_flip(left: &Left, name: &str, bytes: Vec<u8>, at: usize) {
    let record = at / 4096 * 4096;
    let size = u32::from_le_bytes(*left.files[name][record + 4..].first_chunk().unwrap());
    let is_padding = record > 0 && at >= record + 24 + size as usize;
    let is_mark = at >= log_end(&bytes);
    left.check_with(name, bytes, !is_padding && !is_mark, &format!("flipped at {at}"));
}

/// Returns the file with another header field and a valid checksum.
fn with_header(bytes: &[u8], at: usize, field: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + field.len()].copy_from_slice(field);
    let sum = crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn files_of_another_kind_version_seed_or_filter_are_refused() {
    type IsExpected = fn(&ErrorKind) -> bool;
    let cases: [(usize, &[u8], IsExpected); 5] = [
        (0, b"x", |kind| matches!(kind, ErrorKind::Magic { .. })),
        (8, &[2, 0], |kind| matches!(kind, ErrorKind::FileKind { .. })),
        (10, &[9, 0], |kind| matches!(kind, ErrorKind::Version { .. })),
        (16, &[77; 8], |kind| matches!(kind, ErrorKind::Mismatch { what: "seed", .. })),
        (24, &[77; 8], |kind| matches!(kind, ErrorKind::Mismatch { what: "file id", .. })),
    ];
    let left = &all_left()[1];
    for (name, bytes) in left.files.iter().filter(|(name, _)| *name != "MANIFEST") {
        for (at, field, is_expected) in cases {
            let mut files = left.files.clone();
            files.insert(name.clone(), with_header(bytes, at, field));
            for answer in left.look_up(&disk_of(&files)) {
                let error = answer.unwrap_err();
                assert!(is_expected(error.kind()), "{name}: {error}");
                assert_eq!(&file_name(&error), name);
            }
            left.check(&files, &[name], &format!("byte {at} of the header"));
        }
    }
}

#[test]
fn runs_in_each_others_places_are_all_named() {
    for left in &all_left() {
        let runs = left.runs();
        let (first, last) = (runs[0], runs[runs.len() - 1]);
        let mut files = left.files.clone();
        files.insert(first.clone(), left.files[last].clone());
        files.insert(last.clone(), left.files[first].clone());
        let disk = disk_of(&files);
        let report = verify(&Env::on(disk.clone()), folder(), &Watch::default()).unwrap();
        let mut named: Vec<String> = report.damage.iter().map(file_name).collect();
        named.sort();
        assert_eq!(named, [first.clone(), last.clone()]);
        assert!(left.look_up(&disk).iter().all(Result::is_err));
    }
}

#[test]
fn files_that_are_missing_are_named() {
    for left in &all_left() {
        for name in left.runs() {
            let mut files = left.files.clone();
            files.remove(name);
            let disk = disk_of(&files);
            let report = verify(&Env::on(disk.clone()), folder(), &Watch::default()).unwrap();
            let named: Vec<String> = report.damage.iter().map(file_name).collect();
            assert!(named.iter().eq([name]), "{named:?}");
            let errors = left.look_up(&disk).map(|answer| answer.unwrap_err());
            assert!(errors.iter().all(|error| file_name(error) == *name), "{}", errors[0]);
        }
        let mut files = left.files.clone();
        files.remove("MANIFEST");
        let errors = left.look_up(&disk_of(&files)).map(|answer| answer.unwrap_err());
        assert!(errors.iter().all(|error| matches!(error.kind(), ErrorKind::Missing { .. })));
        assert!(errors.iter().all(|error| file_name(error) == "MANIFEST"));
    }
}

/// If any file is lost, an answer is right, or an error names a file. The next writer removes no
/// file that the filter needs once the lost file is back. Issue 10, points 2 and 9.
#[test]
fn a_file_that_was_lost_and_comes_back_completes_the_filter() {
    for left in &all_left() {
        for (name, bytes) in &left.files {
            let mut files = left.files.clone();
            files.remove(name);
            let disk = disk_of(&files);
            for answer in left.look_up(&disk) {
                match answer {
                    // A segment that was created ahead is empty.
                    Ok(counts) => assert!(counts == left.counts && name.starts_with("wal-")),
                    Err(error) => assert_eq!(error.class(), ErrorClass::Damage, "{name}: {error}"),
                }
            }
            disk.create(&folder().join(name), Access::Cached).unwrap().write_at(0, bytes).unwrap();
            let answers = left.look_up(&disk);
            assert!(answers.iter().all(|it| it.as_ref().is_ok_and(|it| *it == left.counts)));
        }
    }
}

/// A manifest that was restored from an older copy does not name newer runs; a sweep must not
/// remove them.
#[test]
fn an_older_manifest_is_refused_and_removes_nothing() {
    for log in [false, true] {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
        let settings = CascadeSettings { wal: log, ..CascadeSettings::new(Env::simulated(1)) };
        let options = CascadeOptions::exact(Seed(1), 7);
        let mut filter =
            CascadeFilter::create(folder(), &options, settings.clone().on(disk.clone())).unwrap();
        let mut manifests = Vec::new();
        for part in hashes().chunks(300) {
            filter.insert_batch(part).unwrap();
            filter.flush().unwrap();
            manifests.push(files(&*disk)["MANIFEST"].clone());
        }
        filter.close().unwrap();
        let whole = files(&*disk);
        // The second-last manifest is not older than the generation in the newest run.
        for manifest in &manifests[..manifests.len() - 2] {
            let mut files = whole.clone();
            files.insert("MANIFEST".into(), manifest.clone());
            let disk = disk_of(&files);
            let opened = CascadeFilter::open(folder(), settings.clone().on(disk.clone()));
            let read = Snapshot::open(&Env::on(disk.clone()), folder(), Access::Cached);
            let verified = verify(&Env::on(disk.clone()), folder(), &Watch::default());
            for error in [opened.err(), read.err(), verified.err()] {
                let error = error.expect("an older manifest is noticed");
                assert_eq!(error.class(), ErrorClass::Damage, "{error}");
            }
            assert!(self::files(&*disk) == files, "files changed");
        }
    }
}

/// Files of other programs, and files with similar names, are not touched.
#[test]
fn files_of_other_programs_stay() {
    let left = &all_left()[0];
    let mut files = left.files.clone();
    let others =
        ["README", "run-1", "run-00000000001", "wal-", "wal-1", "MANIFEST.old", "run-0000000001x"];
    others.iter().for_each(|name| _ = files.insert((*name).to_owned(), vec![1; 10]));
    let disk = disk_of(&files);
    let answers = left.look_up(&disk).map(Result::unwrap);
    assert!(answers.iter().all(|counts| *counts == left.counts));
    assert!(others.iter().all(|name| disk.exists(&Path::new(folder()).join(name)).unwrap()));
}
