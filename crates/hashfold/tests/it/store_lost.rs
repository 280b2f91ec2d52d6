//! Stores that lost a file, or got an older file from a copy, or both: no verb harms a remaining
//! version, `verify` names the lost files, and a copy restores all of them. Issue 10: points 2, 3,
//! 9 and 10.

use crate::{
    fixture::Pairs,
    store_fixture::{
        changes, copy_folder, copy_of, damage, files_below, publish, read_file, scanned, store,
        try_create, try_open, try_version, try_write, updated, write_file,
    },
};
use hashfold::{
    Env, Error, ErrorClass, ErrorKind, ReadOptions, Result,
    io::{Disk, Fault, FaultPlan, FaultyDisk, MemoryDisk},
    store::{
        CurrentFrom, Mending, Pin, Pointer, Retention, StoreReader, StoreWriter, UpdateMode,
        versions,
    },
    work::Watch,
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

const KEYS: u64 = 40;
const CHUNKS: u32 = 2;
const COPY: &str = "copy";

/// Rules that keep no version.
const ALL_GO: Retention = Retention {
    keep: 0,
    age_s_min: 0,
    now_s: 1 << 40,
    free_bytes_min: 0,
    unpublished_age_s_min: 0,
};

/// A store with four versions (4 is current, 1 is pinned, 3 is bad) and its copy in the folder
/// `copy`.
struct Sample {
    disk: MemoryDisk,
    maps: Vec<Pairs>,
    /// The content of `CURRENT` after each change, oldest first.
    pointers: Vec<Vec<u8>>,
}

fn sample() -> Sample {
    let disk = MemoryDisk::default();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut writer = try_create(&shared, CHUNKS).unwrap();
    let (mut maps, mut pointers) = (Vec::new(), Vec::new());
    let mut map = Pairs::new();
    for id in 1..=4 {
        let mode = if id == 2 { UpdateMode::Delta } else { UpdateMode::Merge };
        publish(&mut writer, &changes(id, KEYS), mode, id);
        pointers.push(read_file(&disk, &pointer_path()));
        map = updated(&map, &changes(id, KEYS));
        maps.push(map.clone());
    }
    writer.pin(1, Pin::Keep).unwrap();
    writer.condemn(3).unwrap();
    drop(writer);
    copy_folder(&disk, store(), &disk, Path::new(COPY));
    Sample { disk, maps, pointers }
}

fn pointer_path() -> PathBuf {
    store().join("CURRENT")
}

fn version_path(number: u64) -> PathBuf {
    store().join(format!("versions/{number:010}"))
}

impl Sample {
    fn copy(&self) -> Arc<dyn Disk> {
        Arc::new(copy_of(&self.disk))
    }

    fn without(&self, path: &Path) -> Arc<dyn Disk> {
        let disk = self.copy();
        disk.remove(path).unwrap();
        disk
    }

    /// Checks that every version that can be opened has its old content. Returns the number of
    /// these versions.
    #[track_caller]
    fn check_rest(&self, disk: &Arc<dyn Disk>, context: &str) -> usize {
        let mut whole = 0;
        for (number, map) in (1..).zip(&self.maps) {
            if let Ok(version) = try_version(disk, number) {
                match scanned(&version) {
                    Ok(held) => assert!(held == *map, "{context}: version {number}"),
                    Err(error) => assert_eq!(error.class(), ErrorClass::Damage, "{context}"),
                }
                whole += 1;
            }
        }
        whole
    }

    /// Checks that all versions exist and are complete.
    #[track_caller]
    fn check_whole(&self, disk: &Arc<dyn Disk>, context: &str) {
        assert_eq!(self.check_rest(disk, context), self.maps.len(), "{context}");
        for (number, info) in versions(&Env::on(disk.clone()), store()).unwrap() {
            info.unwrap_or_else(|error| panic!("{context}: {error}"));
            assert!(damage(disk, number).is_empty(), "{context}: version {number}");
        }
    }
}

type Verb = fn(&mut StoreWriter) -> Result<()>;

/// Verbs that never remove a version; each may fail.
const VERBS: [(&str, Verb); 7] = [
    ("open", |_| Ok(())),
    ("update", |writer| {
        let id = 100 + writer.pointer().newest;
        let info = try_write(writer, &changes(5, KEYS), UpdateMode::Auto, id)?;
        writer.publish(info.name.number)
    }),
    ("publish", |writer| writer.publish(4)),
    ("roll back", |writer| writer.roll_back().map(|_| ())),
    ("pin", |writer| writer.pin(2, Pin::Keep)),
    ("condemn", |writer| match writer.pointer().current {
        Some(3) => writer.condemn(2),
        _ => writer.condemn(3),
    }),
    ("repair", |writer| writer.repair(4, Path::new(COPY), &Watch::default()).map(|_| ())),
];

fn mend(disk: &Arc<dyn Disk>, copy: Option<&str>) -> Result<Mending> {
    StoreWriter::mend(&Env::on(disk.clone()), store(), copy.map(Path::new), None)
}

/// Repairs all files that the copy can restore.
fn mend_all(disk: &Arc<dyn Disk>) -> Result<()> {
    let mut mending = mend(disk, Some(COPY))?;
    for number in mending.writer.numbers()? {
        mending.writer.repair(number, Path::new(COPY), &Watch::default())?;
    }
    Ok(())
}

/// Checks that the error is damage, or refuses the call.
#[track_caller]
fn check_told(error: &Error, context: &str) {
    assert!(error.place().is_some(), "{context}: {error}");
    assert_ne!(error.class(), ErrorClass::Io, "{context}: {error}");
}

#[test]
fn every_file_that_is_lost_is_named_and_no_verb_makes_it_worse() {
    let sample = sample();
    for path in files_below(&sample.disk, store()).keys() {
        for (name, verb) in VERBS {
            let context = format!("{} lost, {name}", path.display());
            let disk = sample.without(path);
            let named =
                versions(&Env::on(disk.clone()), store()).unwrap().iter().any(|(number, info)| {
                    info.is_err()
                        || damage(&disk, *number)
                            .iter()
                            .any(|error| *error.place().unwrap().file == **path)
                });
            let is_pointer = *path == pointer_path();
            assert_eq!(named, !is_pointer, "{context}: a check names what is lost");
            match try_open(&disk).and_then(|mut writer| verb(&mut writer)) {
                Ok(()) => assert!(!is_pointer, "{context}"),
                Err(error) => check_told(&error, &context),
            }
            sample.check_rest(&disk, &context);
            // With the file restored, all versions are there: nothing else was lost.
            let bytes = read_file(&sample.disk, path);
            if !is_pointer {
                write_file(disk.as_ref(), path, &bytes);
                sample.check_whole(&disk, &context);
            }
        }
    }
}

#[test]
fn every_file_that_is_lost_comes_back_from_a_copy() {
    let sample = sample();
    let before = files_below(&sample.disk, store());
    for path in before.keys() {
        let disk = sample.without(path);
        let mended = mend_all(&disk);
        mended.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        sample.check_whole(&disk, &path.display().to_string());
        let pointer = Pointer::read(disk.as_ref(), store()).unwrap();
        assert_eq!((pointer.current, &pointer.pinned[..]), (Some(4), &[1][..]));
        assert_eq!(files_below(disk.as_ref(), store()).len(), before.len());
    }
}

/// A pointer that was restored from an older copy neither blocks the store nor loses a version.
#[test]
fn an_older_pointer_is_raised_by_every_verb() {
    let sample = sample();
    for (i, old) in sample.pointers.iter().enumerate() {
        for (name, verb) in VERBS {
            let context = format!("CURRENT after version {}, {name}", i + 1);
            let disk = sample.copy();
            write_file(disk.as_ref(), &pointer_path(), old);
            let mut writer = try_open(&disk).unwrap();
            let unlisted: Vec<u64> = (i as u64 + 2..=4).collect();
            assert_eq!(writer.unlisted(), unlisted, "{context}: it says so");
            if let Err(error) = verb(&mut writer) {
                // There may be no version to roll back to.
                assert!(name == "roll back" && i == 0, "{context}: {error}");
            }
            drop(writer);
            sample.check_whole(&disk, &context);
            assert!(try_open(&disk).unwrap().numbers().unwrap().len() >= 4, "{context}");
            StoreReader::open_with(store(), &ReadOptions::new().env(Env::on(disk.clone())))
                .unwrap();
        }
    }
}

/// An older pointer and another missing file at once.
#[test]
fn an_older_pointer_and_a_lost_file_harm_no_version() {
    let sample = sample();
    let all = files_below(&sample.disk, store());
    for (i, old) in (1..).zip(&sample.pointers) {
        for path in all.keys().filter(|path| **path != pointer_path()) {
            // Only the copy names this version.
            if *path == version_path(4) && i < 4 {
                continue;
            }
            for (name, verb) in VERBS {
                let context = format!("older CURRENT, {} lost, {name}", path.display());
                let disk = sample.without(path);
                write_file(disk.as_ref(), &pointer_path(), old);
                let before = sample.check_rest(&disk, &context);
                if let Err(error) = try_open(&disk).and_then(|mut writer| verb(&mut writer)) {
                    check_told(&error, &context);
                }
                assert!(sample.check_rest(&disk, &context) >= before, "{context}");
                mend_all(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
                assert!(
                    StoreReader::open_with(store(), &ReadOptions::new().env(Env::on(disk.clone())))
                        .is_ok(),
                    "{context}"
                );
            }
        }
    }
}

#[test]
fn a_lost_version_stops_sweeping_until_it_is_given_up() {
    let sample = sample();
    let disk = sample.without(&version_path(2));
    let mut writer = try_open(&disk).unwrap();
    let removed = writer.collect(&ALL_GO, &Watch::default()).unwrap();
    assert_eq!((removed.versions, removed.tables), (vec![3], 0));
    assert!(removed.kept.contains(&(2, hashfold::store::Reason::Lost)));
    for number in [1, 4, 9] {
        let error = writer.give_up(number).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Argument { .. }), "{error}");
    }
    writer.give_up(2).unwrap();
    let before = disk.list(&store().join("tables")).unwrap().len();
    drop(writer);
    let writer = try_open(&disk).unwrap();
    assert_eq!(writer.numbers().unwrap(), [1, 4]);
    assert!(disk.list(&store().join("tables")).unwrap().len() < before);
}

/// The previous version is lost: an older one is published only on request.
#[test]
fn rolling_back_to_a_lost_version_is_refused() {
    let sample = sample();
    let disk = sample.without(&version_path(2));
    let mut writer = try_open(&disk).unwrap();
    let error = writer.roll_back().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Missing { .. }), "{error}");
    assert_eq!(&*error.place().unwrap().file, version_path(2));
    assert_eq!(writer.pointer().current, Some(4));
    writer.publish(1).unwrap();
}

#[test]
fn a_pointer_is_made_from_the_version_files_where_there_is_no_copy() {
    let sample = sample();
    for is_damaged in [false, true] {
        let disk = sample.without(&pointer_path());
        if is_damaged {
            write_file(disk.as_ref(), &pointer_path(), b"damaged");
        }
        let mending = mend(&disk, None).unwrap();
        assert_eq!(mending.current_from, Some(CurrentFrom::Versions));
        assert_eq!((mending.report.damage.len(), mending.report.figures.mended), (1, 1));
        let pointer = mending.writer.pointer();
        // Each version was made from the previous one, which was current then. It is unknown
        // whether the last version passed its gates.
        assert_eq!((pointer.current, pointer.newest), (Some(3), 4));
        assert_eq!((&pointer.published[..], &pointer.pinned[..]), (&[1, 2][..], &[1, 2, 3, 4][..]));
        drop(mending);
        sample.check_whole(&disk, "mended");
        let mut writer = try_open(&disk).unwrap();
        assert!(writer.collect(&ALL_GO, &Watch::default()).unwrap().versions.is_empty());
        assert_eq!(writer.roll_back().unwrap(), 2);
    }
    let disk = sample.without(&pointer_path());
    let asked = StoreWriter::mend(&Env::on(disk.clone()), store(), None, Some(2)).unwrap();
    assert_eq!(asked.writer.pointer().current, Some(2));
}

#[test]
fn a_copy_that_is_no_copy_is_refused_though_nothing_is_damaged() {
    let sample = sample();
    let disk = sample.copy();
    let error = mend(&disk, Some("nope")).err().unwrap();
    assert!(error.is_absent(), "{error}");
    let other: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let options = crate::store_fixture::store_options(CHUNKS).id(7);
    StoreWriter::create(store(), options.env(Env::on(other.clone()))).unwrap();
    copy_folder(other.as_ref(), store(), disk.as_ref(), Path::new("other"));
    for is_lost in [false, true] {
        if is_lost {
            disk.remove(&pointer_path()).unwrap();
        }
        let error = mend(&disk, Some("other")).err().unwrap();
        assert!(matches!(error.kind(), ErrorKind::Mismatch { .. }), "{error}");
        assert_eq!(&*error.place().unwrap().file, Path::new("other"));
        assert_eq!(disk.exists(&pointer_path()).unwrap(), !is_lost);
    }
}

/// A file of a newer format is not damaged: an older Hashfold neither replaces nor removes it.
#[test]
fn files_of_a_newer_format_are_neither_mended_nor_given_up() {
    let sample = sample();
    for path in [pointer_path(), version_path(2)] {
        let mut bytes = read_file(&sample.disk, &path);
        bytes[10..12].copy_from_slice(&9_u16.to_le_bytes());
        let sum = hashfold::checksum::crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&sum.to_le_bytes());
        let disk = sample.copy();
        write_file(disk.as_ref(), &path, &bytes);
        let mut errors = vec![mend(&disk, Some(COPY)).err().unwrap()];
        if path == pointer_path() {
            errors.extend(mend(&disk, None).err());
            assert_eq!(errors.len(), 2);
        } else {
            let mut writer = try_open(&disk).unwrap();
            let error = writer.give_up(2).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Argument { .. }), "{error}");
            writer.collect(&ALL_GO, &Watch::default()).unwrap();
        }
        let is_version = |error: &Error| matches!(error.kind(), ErrorKind::Version { .. });
        assert!(errors.iter().all(is_version), "{errors:?}");
        assert_eq!(read_file(disk.as_ref(), &path), bytes);
    }
}

/// Files that the copy lacks are reported as damaged; all others are repaired.
#[test]
fn a_copy_that_lacks_something_mends_the_rest() {
    let sample = sample();
    let disk = sample.copy();
    let tables = disk.list(&store().join("tables")).unwrap();
    let files = |folder: &Path| {
        let in_table = |table: &String| {
            let names = disk.list(&folder.join("tables").join(table)).unwrap();
            let data = names.into_iter().find(|name| name.starts_with("data-")).unwrap();
            folder.join("tables").join(table).join(data)
        };
        tables.iter().map(in_table).collect::<Vec<_>>()
    };
    let (ours, theirs) = (files(store()), files(Path::new(COPY)));
    ours.iter().for_each(|path| disk.remove(path).unwrap());
    disk.remove(&theirs[0]).unwrap();
    write_file(disk.as_ref(), &theirs[1], b"damaged");
    disk.remove(&version_path(1)).unwrap();
    disk.remove(&Path::new(COPY).join("versions/0000000001")).unwrap();
    mend_all(&disk).unwrap();
    let missing = |paths: &[PathBuf]| {
        paths.iter().filter(|path| !disk.exists(path).unwrap()).cloned().collect::<Vec<_>>()
    };
    let of_version_1: Vec<u64> =
        try_version(&sample.copy(), 1).unwrap().info().layers().map(|layer| layer.table).collect();
    for path in missing(&ours) {
        let is_of_version_1 =
            of_version_1.iter().any(|id| path.to_string_lossy().contains(&format!("{id:016x}")));
        assert!(ours[..2].contains(&path) || is_of_version_1, "{}", path.display());
    }
    assert!(!damage(&disk, 1).is_empty());
}

/// A copy that was made after `CURRENT` was restored from an older copy names the lost versions.
#[test]
fn an_older_pointer_is_replaced_by_that_of_a_newer_copy() {
    let sample = sample();
    // Without version 4, the pointer that was current before it matches the existing versions.
    for (i, old) in (1..=2).zip(&sample.pointers) {
        for number in i + 1..=4 {
            let disk = sample.without(&version_path(number));
            write_file(disk.as_ref(), &pointer_path(), old);
            let mending = mend(&disk, Some(COPY)).unwrap();
            assert_eq!(mending.current_from, Some(CurrentFrom::Copy));
            drop(mending);
            mend_all(&disk).unwrap();
            sample.check_whole(&disk, &format!("CURRENT after version {i}, {number} lost"));
            let pointer = Pointer::read(disk.as_ref(), store()).unwrap();
            assert_eq!((pointer.current, &pointer.bad[..]), (Some(4), &[3][..]));
        }
    }
    // The pointer of a copy that was changed separately is not used.
    let disk = sample.copy();
    let there: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    copy_folder(disk.as_ref(), store(), there.as_ref(), store());
    let mut writer = try_open(&there).unwrap();
    publish(&mut writer, &changes(7, KEYS), UpdateMode::Merge, 7);
    drop(writer);
    copy_folder(there.as_ref(), store(), disk.as_ref(), Path::new("other"));
    let mut writer = try_open(&disk).unwrap();
    publish(&mut writer, &changes(8, KEYS), UpdateMode::Merge, 8);
    drop(writer);
    write_file(disk.as_ref(), &pointer_path(), &sample.pointers[3]);
    assert_eq!(mend(&disk, Some("other")).unwrap().current_from, None);
}

/// After a power cut, a failure or a full disk during a repair, the next call repairs everything.
#[test]
fn mending_that_is_interrupted_anywhere_is_done_at_once_the_next_time() {
    let sample = sample();
    let broken = sample.without(&pointer_path());
    broken.remove(&version_path(2)).unwrap();
    let table = broken.list(&store().join("tables")).unwrap().remove(0);
    let table = store().join("tables").join(table);
    for name in broken.list(&table).unwrap() {
        broken.remove(&table.join(name)).unwrap();
    }
    broken.remove_folder(&table).unwrap();
    let broken = copy_of(broken.as_ref());
    let faults = [
        |operation| Fault::PowerCut { operation },
        |operation| Fault::Failure { operation },
        |operation| Fault::Full { write: operation },
    ];
    for fault in faults {
        for operation in 0.. {
            let faulty = FaultyDisk::over(&broken, FaultPlan::from(fault(operation)));
            let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
            let result = mend_all(&disk);
            for seed in 0..2 {
                let disk: Arc<dyn Disk> = Arc::new(faulty.after_power_cut(seed));
                let context = format!("{:?}, seed {seed}", fault(operation));
                mend_all(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
                sample.check_whole(&disk, &context);
            }
            if result.is_ok() && (operation >= faulty.operations() || operation > 400) {
                break;
            }
        }
    }
}

/// Foreign names in a store stay, and cause no failure.
#[test]
fn foreign_files_in_a_store_are_left_alone() {
    let sample = sample();
    let disk = sample.copy();
    let table = disk.list(&store().join("tables")).unwrap().remove(0);
    let folders = [
        "tables/x",
        "tables/x/deep",
        "versions/x.new",
        "versions/y",
        "versions/0000000009.new",
        "z",
    ];
    for folder in folders {
        disk.create_folder(&store().join(folder)).unwrap();
    }
    let notes = ["tables/x/note", "tables/note", "versions/note", "note"];
    let beside = format!("tables/{table}/note");
    for note in notes.iter().copied().chain([beside.as_str()]) {
        write_file(disk.as_ref(), &store().join(note), b"mine");
    }
    let mut writer = try_open(&disk).unwrap();
    publish(&mut writer, &changes(5, KEYS), UpdateMode::Replace, 5);
    writer.pin(1, Pin::Release).unwrap();
    let removed = writer.collect(&ALL_GO, &Watch::default()).unwrap();
    assert_eq!(removed.versions, [1, 2, 3, 4]);
    drop(writer);
    drop(try_open(&disk).unwrap());
    for path in folders.iter().chain(&notes).copied().chain([beside.as_str()]) {
        assert!(disk.exists(&store().join(path)).unwrap(), "{path}");
    }
    assert_eq!(disk.list(&store().join("tables").join(&table)).unwrap(), ["note"]);
}
