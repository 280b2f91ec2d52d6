//! Damaged, missing, foreign, future and forged files of stores. The result is always an error that
//! names the file, never a panic or a wrong value.

use crate::{
    fixture::{Pairs, SEED, absent, file_of},
    store_fixture::{
        APART, Change, DELTA, changes, copy_folder, copy_of, damage, publish, read_file, scanned,
        store, store_options, try_create, try_open, try_version, try_write, updated, write_delta,
        write_file,
    },
};
use hashfold::{
    Env, Error, ErrorClass, ErrorKind, ReadOptions, Result, Seed,
    checksum::crc32c,
    io::{
        ALIGNMENT, Access, Disk, MemoryDisk,
        frame::{FileKind, Footer, Header},
    },
    run::SortOptions,
    store::{
        DeltaReader, Gates, Pin, Pointer, Reason, Retention, StoreOptions, StoreReader,
        StoreWriter, UpdateMode, Version, VersionFacts, verify, versions,
    },
    work::Watch,
};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

const KEYS: u64 = 60;

const ALL_GO: Retention = Retention {
    keep: 0,
    age_s_min: 0,
    now_s: 1 << 40,
    free_bytes_min: 0,
    unpublished_age_s_min: 0,
};

const CHUNKS: u32 = 2;

/// Edge values.
const EDGES: [u64; 10] = [0, 1, 2, 64, 65, 1 << 32, 1 << 56, 1 << 63, u64::MAX - 1, u64::MAX];

/// A store of two versions, the second a delta over the first, which is current.
struct Sample {
    disk: MemoryDisk,
    maps: [Pairs; 2],
}

fn sample() -> Sample {
    sample_of(store_options(CHUNKS))
}

fn sample_of(options: StoreOptions) -> Sample {
    let disk = MemoryDisk::default();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut writer = StoreWriter::create(store(), options.env(Env::on(shared.clone()))).unwrap();
    writer.set_table_sizes(APART);
    publish(&mut writer, &changes(1, KEYS), UpdateMode::Merge, 1);
    publish(&mut writer, &changes(2, KEYS), UpdateMode::Delta, 2);
    let first = updated(&Pairs::new(), &changes(1, KEYS));
    let second = updated(&first, &changes(2, KEYS));
    Sample { disk, maps: [first, second] }
}

impl Sample {
    fn copy(&self) -> Arc<dyn Disk> {
        Arc::new(copy_of(&self.disk))
    }

    fn with(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> Arc<dyn Disk> {
        let disk = self.copy();
        let mut bytes = read_file(&self.disk, path);
        change(&mut bytes);
        write_file(disk.as_ref(), path, &bytes);
        disk
    }
}

fn version_path(number: u64) -> PathBuf {
    store().join(format!("versions/{number:010}"))
}

fn pointer_path() -> PathBuf {
    store().join("CURRENT")
}

/// Returns the folders of the current version's tables: for each chunk, newest first.
fn tables(disk: &Arc<dyn Disk>) -> Vec<Vec<PathBuf>> {
    let info = try_version(disk, 2).unwrap().info().clone();
    let folder = |table: u64| store().join(format!("tables/{table:016x}"));
    let of_chunk = |chunk: u32| {
        let layers = info.deltas.iter().rev().chain(&info.bases);
        let own = layers.filter(|layer| layer.chunks.iter().any(|own| own == chunk));
        own.map(|layer| folder(layer.table)).collect()
    };
    (0..info.shape.slots.chunks()).map(of_chunk).collect()
}

/// Returns the file of a table with this role.
fn file_in(disk: &dyn Disk, table: &Path, role: &str) -> PathBuf {
    let names = disk.list(table).unwrap();
    table.join(names.iter().find(|name| name.starts_with(role)).unwrap())
}

fn follow(disk: &Arc<dyn Disk>) -> Result<StoreReader> {
    StoreReader::open_with(
        store(),
        &ReadOptions::new().env(Env { disk: disk.clone(), ..Env::simulated(1) }),
    )
}

#[track_caller]
fn check_told(error: &Error) {
    assert!(!error.to_string().is_empty());
    assert!(error.place().is_some(), "no place: {error}");
}

/// Checks that the error is damage of this file.
#[track_caller]
fn check_damage(error: &Error, path: &Path) {
    assert_eq!(error.class(), ErrorClass::Damage, "{error}");
    let place = error.place().unwrap_or_else(|| panic!("no place: {error}"));
    assert_eq!(&*place.file, path, "{error}");
}

/// Checks that an open version returns right values, or errors with a place.
#[track_caller]
fn check_right_or_error(version: &Version, map: &Pairs) {
    let absent: Vec<Vec<u8>> = absent(20).collect();
    let keys: Vec<&Vec<u8>> = map.keys().chain(&absent).collect();
    for key in &keys {
        match version.get(key) {
            Ok(found) => assert_eq!(found.as_ref(), map.get(*key), "a wrong value"),
            Err(error) => check_told(&error),
        }
    }
    let mut visit = |i: usize, value: Option<&[u8]>| {
        assert_eq!(value, map.get(keys[i]).map(Vec::as_slice), "a wrong value");
        Ok(())
    };
    if let Err(error) = version.get_many(&keys, &mut visit) {
        check_told(&error);
    }
    match scanned(version) {
        Ok(all) => assert!(all == *map),
        Err(error) => check_told(&error),
    }
    let info = version.info();
    assert!(info.entries().start() <= info.entries().end());
    assert!(info.bytes() >= info.layers().map(|layer| layer.bytes).max().unwrap_or(0));
    assert!(info.delta_depth() < info.layers().count());
    info.changes.map(|changes| changes.total());
}

/// Runs every operation on a store. Returns whether it could be opened for reading.
#[track_caller]
fn use_store(disk: &Arc<dyn Disk>, maps: &[Pairs; 2]) -> bool {
    let mut opened = false;
    for (number, map) in (1..).zip(maps) {
        match try_version(disk, number) {
            Ok(version) => {
                opened |= number == 2;
                check_right_or_error(&version, map);
            }
            Err(error) => check_told(&error),
        }
        match verify(&Env::on(disk.clone()), store(), number, &Watch::default()) {
            Ok(report) => report.damage.iter().for_each(check_told),
            Err(error) => check_told(&error),
        }
    }
    if let Ok(follower) = follow(disk) {
        let number = follower.version().info().name.number;
        check_right_or_error(&follower.version(), &maps[number as usize - 1]);
    }
    if let Err(error) = change_store(disk) {
        check_told(&error);
    }
    opened
}

/// Changes a store in every way, as far as the changes succeed.
fn change_store(disk: &Arc<dyn Disk>) -> Result<()> {
    let mut writer = try_open(disk)?;
    let gates = Gates {
        entries_min: Some(1),
        change_max: Some(0.1),
        required_keys: vec![b"key 1".to_vec()],
        sample: 10,
        read_back: false,
        ..Gates::default()
    };
    for mode in [UpdateMode::Auto, UpdateMode::Merge, UpdateMode::Delta, UpdateMode::Replace] {
        let made = try_write(&mut writer, &changes(3, KEYS), mode, 100 + mode as u64);
        let published = made.and_then(|info| {
            writer.report(info.name.number, &gates)?;
            writer.publish(info.name.number)?;
            writer.pin(info.name.number, Pin::Keep)
        });
        if let Err(error) = published {
            check_told(&error);
        }
        if let Err(error) = writer.roll_back() {
            check_told(&error);
        }
    }
    if let Err(error) = writer.repair(2, Path::new("copy"), &Watch::default()) {
        check_told(&error);
    }
    writer.collect(&ALL_GO, &Watch::default()).map(|_| ())
}

/// Flips one bit in every byte of a file in turn.
fn flip_everywhere(sample: &Sample, path: &Path, mut check: impl FnMut(&Arc<dyn Disk>, usize)) {
    let mut bytes = read_file(&sample.disk, path);
    let disk = sample.copy();
    for i in 0..bytes.len() {
        bytes[i] ^= 1 << (i % 8);
        write_file(disk.as_ref(), path, &bytes);
        check(&disk, i);
        bytes[i] ^= 1 << (i % 8);
    }
}

#[test]
fn every_flipped_byte_of_a_version_file_is_noticed() {
    let path = version_path(2);
    flip_everywhere(&sample(), &path, |disk, _| {
        check_damage(&try_version(disk, 2).unwrap_err(), &path);
        check_damage(&follow(disk).unwrap_err(), &path);
        let [error] = &damage(disk, 2)[..] else { panic!("one file is damaged") };
        check_damage(error, &path);
        check_damage(
            versions(&Env::on(disk.clone()), store()).unwrap()[1].1.as_ref().unwrap_err(),
            &path,
        );
    });
}

#[test]
fn every_flipped_byte_of_the_pointer_is_noticed() {
    let path = pointer_path();
    flip_everywhere(&sample(), &path, |disk, _| {
        check_damage(&Pointer::read(disk.as_ref(), store()).unwrap_err(), &path);
        check_damage(&follow(disk).unwrap_err(), &path);
        check_damage(&try_open(disk).err().unwrap(), &path);
        check_damage(
            &try_create(disk, CHUNKS).err().map_or_else(
                || panic!("a store was made over another one"),
                |error| if is_exists(&error) { follow(disk).unwrap_err() } else { error },
            ),
            &path,
        );
    });
}

fn is_exists(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Exists)
}

#[test]
fn every_flipped_byte_of_a_block_tree_is_noticed_and_harms_no_reader() {
    let sample = sample();
    let table = tables(&sample.copy())[0][1].clone();
    let path = table.join("TREE");
    let mut opened = 0;
    flip_everywhere(&sample, &path, |disk, i| {
        let [error] = &damage(disk, 2)[..] else { panic!("one file is damaged") };
        check_damage(error, &path);
        if i % 1000 == 0 {
            check_right_or_error(&try_version(disk, 2).unwrap(), &sample.maps[1]);
            opened += 1;
        }
    });
    assert!(opened > 5);
}

#[test]
fn files_that_were_cut_short_or_grew_are_refused() {
    let sample = sample();
    let tree = tables(&sample.copy())[0][1].join("TREE");
    for path in [version_path(2), pointer_path(), tree.clone()] {
        let bytes = read_file(&sample.disk, &path);
        let disk = sample.copy();
        let some = (0..bytes.len()).step_by(17);
        let edges = (0..bytes.len()).step_by(ALIGNMENT).flat_map(|len| [len, len + 1]);
        for len in some.chain(edges).chain([bytes.len() - 1, bytes.len() + 1, bytes.len() + 4096]) {
            let mut bytes = bytes.clone();
            bytes.resize(len, 0);
            write_file(disk.as_ref(), &path, &bytes);
            if path == tree {
                let [error] = &damage(&disk, 2)[..] else { panic!("one is damaged") };
                check_damage(error, &path);
            } else {
                check_damage(&follow(&disk).unwrap_err(), &path);
            }
        }
    }
}

/// Writes a format version to a header, and updates the checksum.
fn set_format(bytes: &mut [u8], version: u16) {
    bytes[10..12].copy_from_slice(&version.to_le_bytes());
    let sum = crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn formats_of_the_future_are_refused() {
    let sample = sample();
    let tree = tables(&sample.copy())[0][1].join("TREE");
    for format in [0, 2, 9, u16::MAX] {
        for path in [version_path(2), pointer_path(), tree.clone()] {
            let disk = sample.with(&path, |bytes| set_format(bytes, format));
            let error = match path == tree {
                true => damage(&disk, 2).remove(0),
                false => follow(&disk).unwrap_err(),
            };
            check_damage(&error, &path);
            let ErrorKind::Version { expected, got } = error.kind() else { panic!("{error}") };
            assert_eq!((expected, *got), (&(1..=1), format));
        }
    }
}

/// Returns a file with other footer fields and valid checksums.
fn forged(bytes: &[u8], kind: FileKind, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let disk = MemoryDisk::default();
    write_file(&disk, Path::new("file"), bytes);
    let file = disk.open(Path::new("file"), Access::Cached).unwrap();
    let header = Header::read(file.as_ref(), kind).unwrap();
    let (mut footer, start) = Footer::read(file.as_ref()).unwrap();
    change(&mut footer.fields);
    let body = &bytes[ALIGNMENT..start as usize];
    [&header.encode()[..], body, &footer.encode(start)].concat()
}

fn fields_of(disk: &dyn Disk, path: &Path) -> Vec<u8> {
    let file = disk.open(path, Access::Cached).unwrap();
    Footer::read(file.as_ref()).unwrap().0.fields
}

/// Every field of a version file, and every offset between fields, with numbers that overflow sums.
#[test]
fn forged_numbers_in_a_version_file_are_refused_or_harmless() {
    let sample = sample();
    let path = version_path(2);
    let bytes = read_file(&sample.disk, &path);
    let len = fields_of(&sample.disk, &path).len();
    let (mut refused, mut opened) = (0, 0);
    for at in (0..len - 8).step_by(4) {
        for edge in [EDGES[at / 4 % EDGES.len()], u64::MAX, 1 << 63] {
            let disk = sample.copy();
            let bytes = forged(&bytes, FileKind::Version, |fields| {
                fields[at..at + 8].copy_from_slice(&edge.to_le_bytes());
            });
            write_file(disk.as_ref(), &path, &bytes);
            match use_store(&disk, &sample.maps) {
                true => opened += 1,
                false => refused += 1,
            }
        }
    }
    assert!(refused > 50 && opened > 50, "{refused} and {opened}");
}

#[test]
fn forged_numbers_in_the_pointer_are_refused_or_harmless() {
    let sample = sample();
    let path = pointer_path();
    let bytes = read_file(&sample.disk, &path);
    let len = fields_of(&sample.disk, &path).len();
    for at in 0..=len - 8 {
        for edge in EDGES {
            let disk = sample.copy();
            let bytes = forged(&bytes, FileKind::Pointer, |fields| {
                fields[at..at + 8].copy_from_slice(&edge.to_le_bytes());
            });
            write_file(disk.as_ref(), &path, &bytes);
            use_store(&disk, &sample.maps);
        }
    }
}

/// Offsets in the fields of a version file of two chunks, each with a base and a delta of its own.
mod offset {
    pub(super) const NUMBER: usize = 8;
    pub(super) const BLOCK_SIZE: usize = 40;
    pub(super) const ABSENT_BITS: usize = 52;
    pub(super) const INDEX: usize = 56;
    pub(super) const CHANGES: usize = 57;
    pub(super) const ADDED: usize = 58;
    pub(super) const CHUNKS: usize = 90;
    pub(super) const BASE: usize = 92;
    pub(super) const DELTA: usize = BASE + 2 * LAYER_SIZE + 1;
    pub(super) const LAYER_SIZE: usize = 140;
    /// Offset in a layer.
    pub(super) const RANGES: usize = 0;
    pub(super) const FIRST_CHUNK: usize = 1;
    pub(super) const CHUNK_COUNT: usize = 2;
    pub(super) const IS_PART: usize = 3;
    pub(super) const TABLE: usize = 4;
    pub(super) const ENTRIES: usize = 12;
    pub(super) const DELETIONS: usize = 20;
    pub(super) const FIRST: usize = 28;
    pub(super) const KEY_MIN: usize = 60;
    pub(super) const KEY_MAX: usize = 68;
    pub(super) const VALUE_MAX: usize = 84;
    pub(super) const PAYLOAD: usize = 92;
    pub(super) const BYTES: usize = 100;
}

/// Each of these fields is refused when the version is opened, with the field's name.
#[test]
fn fields_outside_their_ranges_are_refused() {
    use offset::*;
    let sample = sample();
    let path = version_path(2);
    let check = |what: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let bytes = forged(&read_file(&sample.disk, &path), FileKind::Version, change);
        let disk = sample.copy();
        write_file(disk.as_ref(), &path, &bytes);
        let error = try_version(&disk, 2).unwrap_err();
        check_damage(&error, &path);
        let ErrorKind::Field { what: got, .. } = error.kind() else { panic!("{what}: {error}") };
        assert_eq!(*got, what);
    };
    let number = |at: usize, number: u64| {
        move |fields: &mut Vec<u8>| fields[at..at + 8].copy_from_slice(&number.to_le_bytes())
    };
    check("version number", &number(NUMBER, 3));
    check("version number", &number(NUMBER, 0));
    check("block size in bytes", &|fields| fields[BLOCK_SIZE + 1] = 0);
    check("block size in bytes", &|fields| fields[BLOCK_SIZE + 3] = 1);
    check("index options", &|fields| fields[ABSENT_BITS] = 33);
    check("index", &|fields| fields[INDEX] = 4);
    check("whether changes are known", &|fields| fields[CHANGES] = 2);
    check("number of keys", &number(ADDED, u64::MAX));
    check("number of chunks", &|fields| fields[CHUNKS] = 0);
    check("number of chunks", &|fields| {
        fields.splice(CHUNKS..CHUNKS + 1, [0x81, 0x80, 0x01]);
    });
    check("number of chunks", &|fields| {
        fields
            .splice(CHUNKS..CHUNKS + 1, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
    });
    // Each chunk is in one base.
    check("chunks of all bases", &|fields| fields[CHUNKS] = 3);
    check("chunks of a base", &|fields| fields[BASE + LAYER_SIZE + FIRST_CHUNK] = 0);
    check("chunks of a base", &|fields| fields[BASE + CHUNK_COUNT] = 2);
    check("chunks of a base", &|fields| fields[BASE + IS_PART] = 1);
    check("chunks of a layer", &|fields| {
        fields.splice(BASE + RANGES..BASE + IS_PART, [0]);
    });
    check("first chunk of a range", &|fields| fields[DELTA + FIRST_CHUNK] = 2);
    check("first chunk of a range", &|fields| {
        fields.splice(DELTA + RANGES..DELTA + IS_PART, [2, 0, 1, 1, 1]);
    });
    check("chunks of a range", &|fields| fields[DELTA + CHUNK_COUNT] = 0);
    check("chunks of a range", &|fields| fields[DELTA + CHUNK_COUNT] = 3);
    check("whether a table has other entries", &|fields| fields[DELTA + IS_PART] = 2);
    check("table of a layer", &|fields| {
        fields.copy_within(BASE + TABLE..BASE + TABLE + 8, DELTA + TABLE);
    });
    check("deletions", &number(DELTA + DELETIONS, u64::MAX));
    check("deletions", &number(BASE + DELETIONS, 1));
    check("number of entries", &number(DELTA + ENTRIES, u64::MAX));
    check("number of entries", &number(BASE + ENTRIES, 1 << 60));
    check("last hash", &|fields| fields[DELTA + FIRST..DELTA + FIRST + 16].fill(0xff));
    check("size of keys in bytes", &number(BASE + KEY_MAX, u64::MAX));
    check("size of keys in bytes", &number(BASE + KEY_MIN, 1 << 40));
    check("size of values in bytes", &number(BASE + VALUE_MAX, 1 << 40));
    check("payload in bytes", &number(BASE + PAYLOAD, u64::MAX));
    check("size of files in bytes", &number(BASE + BYTES, u64::MAX));
}

#[test]
fn a_pointer_with_impossible_versions_is_refused() {
    let sample = sample();
    let path = pointer_path();
    for (at, number) in [(0, u64::MAX), (8, 3), (16, 1), (16, u64::MAX), (25, 3)] {
        let bytes = forged(&read_file(&sample.disk, &path), FileKind::Pointer, |fields| {
            fields[at..at + 8].copy_from_slice(&u64::to_le_bytes(number));
        });
        let disk = sample.copy();
        write_file(disk.as_ref(), &path, &bytes);
        check_damage(&follow(&disk).unwrap_err(), &path);
        check_damage(&try_open(&disk).err().unwrap(), &path);
    }
}

/// Thousands of chunks with the maximum number of layers, all with the largest numbers.
#[test]
fn a_version_that_claims_to_be_enormous_is_refused_or_added_up() {
    let sample = sample();
    let path = version_path(2);
    let fields = fields_of(&sample.disk, &path);
    let layer = &fields[offset::BASE..offset::BASE + offset::LAYER_SIZE];
    for bytes_of_each in [1_u64 << 40, 1 << 55, u64::MAX] {
        let mut layer = layer.to_vec();
        for field in [offset::PAYLOAD, offset::BYTES] {
            layer[field..field + 8].copy_from_slice(&bytes_of_each.to_le_bytes());
        }
        let bytes = forged(&read_file(&sample.disk, &path), FileKind::Version, |fields| {
            fields.truncate(offset::CHUNKS);
            // As a variable-length integer.
            let number = |number: usize| [0x80 | number as u8, (number >> 7) as u8];
            fields.extend(number(1000));
            for (kind, count) in [(0, 1), (1, 64)] {
                // 64,000 needs a third byte.
                let layers = count * 1000;
                fields.extend([
                    0x80 | layers as u8,
                    0x80 | (layers >> 7) as u8,
                    (layers >> 14) as u8,
                ]);
                for (chunk, i) in (0..1000).flat_map(|chunk| (0..count).map(move |i| (chunk, i))) {
                    fields.push(1);
                    fields.extend(number(chunk));
                    fields.extend([1, 0]);
                    fields.extend(((chunk << 8 | i << 1 | kind) as u64).to_le_bytes());
                    fields.extend(&layer[offset::ENTRIES..]);
                }
            }
            fields.extend([0, 0]);
        });
        let disk = sample.copy();
        write_file(disk.as_ref(), &path, &bytes);
        let read = versions(&Env::on(disk.clone()), store()).unwrap().remove(1).1;
        if let Err(error) = &read {
            check_damage(error, &path);
        }
        if let Ok(info) = read {
            assert_eq!(info.bytes(), 65_000 * bytes_of_each);
            assert_eq!((info.delta_depth(), info.layers().count()), (64, 65_000));
            assert!(info.entries().end() >= info.entries().start());
        }
    }
}

#[test]
fn tables_that_are_missing_swapped_or_renamed_are_noticed() {
    let sample = sample();
    let disk = sample.copy();
    let tables = tables(&disk);
    let all: Vec<&PathBuf> = tables.iter().flatten().collect();
    for table in &all {
        let disk = sample.copy();
        remove_folder(disk.as_ref(), table);
        let error = try_version(&disk, 2).unwrap_err();
        assert!(error.place().unwrap().file.starts_with(table), "{error}");
        let damage = damage(&disk, 2);
        assert!(damage[0].place().unwrap().file.starts_with(table), "{}", damage[0]);
        use_store(&disk, &sample.maps);
    }
    for (i, one) in all.iter().enumerate() {
        for other in &all[i + 1..] {
            let disk = sample.copy();
            exchange_folders(&sample.disk, disk.as_ref(), one, other);
            let error = try_version(&disk, 2).unwrap_err();
            let file = &error.place().unwrap().file;
            assert!(file.starts_with(one) || file.starts_with(other), "{error}");
            assert_eq!(error.class(), ErrorClass::Damage, "{error}");
            assert_eq!(damage(&disk, 2).len(), 2);
            use_store(&disk, &sample.maps);
        }
    }
    let disk = sample.copy();
    copy_folder(disk.as_ref(), all[0], disk.as_ref(), &store().join("tables/0000000000000001"));
    remove_folder(disk.as_ref(), all[0]);
    assert!(try_version(&disk, 2).is_err());
    use_store(&disk, &sample.maps);
}

fn remove_folder(disk: &dyn Disk, folder: &Path) {
    for name in disk.list(folder).unwrap() {
        disk.remove(&folder.join(name)).unwrap();
    }
    disk.remove_folder(folder).unwrap();
}

fn exchange_folders(from: &dyn Disk, to: &dyn Disk, one: &Path, other: &Path) {
    for (here, there) in [(one, other), (other, one)] {
        remove_folder(to, there);
        copy_folder(from, here, to, there);
    }
}

#[test]
fn files_in_each_others_place_are_noticed() {
    let sample = sample();
    let disk = sample.copy();
    let tables = tables(&disk);
    for (one, other) in [(&tables[0][1], &tables[1][1]), (&tables[0][0], &tables[1][0])] {
        for role in ["MANIFEST", "data", "index", "TREE"] {
            let disk = sample.copy();
            let files = [one, other].map(|table| file_in(disk.as_ref(), table, role));
            let bytes = [1, 0].map(|i: usize| read_file(&sample.disk, &files[i]));
            for (file, bytes) in files.iter().zip(bytes) {
                write_file(disk.as_ref(), file, &bytes);
            }
            assert_eq!(try_version(&disk, 2).is_ok(), ["TREE", "index"].contains(&role));
            let damage = damage(&disk, 2);
            assert!(damage.len() >= 2, "{role}");
            for (error, file) in damage.iter().zip(&files) {
                check_told(error);
                assert!(damage.iter().any(|e| *e.place().unwrap().file == **file), "{role}");
            }
            use_store(&disk, &sample.maps);
        }
    }
}

#[test]
fn every_file_of_a_table_that_is_missing_or_empty_is_named() {
    let sample = sample();
    let disk = sample.copy();
    for table in tables(&disk).iter().flatten() {
        for name in disk.list(table).unwrap() {
            let path = table.join(&name);
            for is_missing in [true, false] {
                let disk = sample.copy();
                match is_missing {
                    true => disk.remove(&path).unwrap(),
                    false => write_file(disk.as_ref(), &path, &[]),
                }
                let found = damage(&disk, 2);
                assert!(found.iter().any(|error| *error.place().unwrap().file == *path), "{name}");
                let answers = name == "TREE" || name.starts_with("index");
                assert_eq!(try_version(&disk, 2).is_ok(), answers);
                use_store(&disk, &sample.maps);
            }
        }
    }
}

/// Stores that differ in one property. Their tables have the same ids.
#[test]
fn version_files_of_another_store_or_number_are_refused() {
    let ours = sample();
    let other_id = store_options(CHUNKS).id(100);
    let other_seed = store_options(CHUNKS).seed(Seed(SEED.0 + 1));
    for options in [other_id, other_seed] {
        let theirs = sample_of(options);
        let disk = ours.with(&version_path(2), |bytes| {
            *bytes = read_file(&theirs.disk, &version_path(2));
        });
        let error = follow(&disk).unwrap_err();
        check_damage(&error, &version_path(2));
        let mut writer = try_open(&disk).unwrap();
        let error = writer.publish(2).unwrap_err();
        check_damage(&error, &version_path(2));
        check_damage(
            &try_write(&mut writer, &[], UpdateMode::Auto, 9).unwrap_err(),
            &version_path(2),
        );
        // The previous version can be restored.
        assert_eq!(writer.roll_back().unwrap(), 1);
        assert!(scanned(&follow(&disk).unwrap().version()).unwrap() == ours.maps[0]);
    }
    let disk = ours.with(&version_path(2), |bytes| {
        *bytes = read_file(&ours.disk, &version_path(1));
    });
    check_damage(&follow(&disk).unwrap_err(), &version_path(2));
}

#[test]
fn a_version_that_the_pointer_names_and_is_not_there_is_named() {
    let sample = sample();
    let disk = sample.copy();
    disk.remove(&version_path(2)).unwrap();
    check_damage(&follow(&disk).unwrap_err(), &version_path(2));
    let mut writer = try_open(&disk).unwrap();
    check_damage(&try_write(&mut writer, &[], UpdateMode::Auto, 9).unwrap_err(), &version_path(2));
    check_damage(&writer.publish(2).unwrap_err(), &version_path(2));
    assert_eq!(writer.roll_back().unwrap(), 1);
    // The number of the failed version is not used again.
    assert_eq!(try_write(&mut writer, &[], UpdateMode::Auto, 9).unwrap().name.number, 3);
}

/// A store without its pointer does not count as an empty folder.
#[test]
fn a_store_is_not_made_over_versions_without_a_pointer() {
    let sample = sample();
    let disk = sample.copy();
    disk.remove(&pointer_path()).unwrap();
    check_damage(&follow(&disk).unwrap_err(), &pointer_path());
    check_damage(&try_create(&disk, CHUNKS).err().unwrap(), &pointer_path());
    assert!(scanned(&try_version(&disk, 2).unwrap()).unwrap() == sample.maps[1]);
}

/// A pointer that was restored from a copy may be older than the versions.
#[test]
fn a_number_is_not_given_twice_though_the_pointer_is_old() {
    let sample = sample();
    let disk = sample.copy();
    let old = read_file(disk.as_ref(), &pointer_path());
    let mut writer = try_open(&disk).unwrap();
    publish(&mut writer, &changes(3, KEYS), UpdateMode::Merge, 3);
    drop(writer);
    write_file(disk.as_ref(), &pointer_path(), &old);
    let mut writer = try_open(&disk).unwrap();
    assert_eq!(
        try_write(&mut writer, &changes(4, KEYS), UpdateMode::Merge, 4).unwrap().name.number,
        4
    );
    assert!(damage(&disk, 3).is_empty());
}

#[test]
fn a_damaged_version_is_kept_and_nothing_that_it_may_need_is_removed() {
    let sample = sample();
    let disk = sample.with(&version_path(1), |bytes| bytes[5000] ^= 1);
    let count = || disk.list(&store().join("tables")).unwrap().len();
    let before = count();
    let mut writer = try_open(&disk).unwrap();
    publish(&mut writer, &changes(3, KEYS), UpdateMode::Replace, 3);
    let removed = writer.collect(&ALL_GO, &Watch::default()).unwrap();
    assert_eq!((removed.versions, removed.tables), (vec![2], 0));
    assert_eq!(removed.kept, [(1, Reason::Damaged), (3, Reason::Current)]);
    assert_eq!(count(), before + CHUNKS as usize);
}

#[test]
fn there_is_one_writer() {
    let sample = sample();
    let disk = sample.copy();
    let first = try_open(&disk).unwrap();
    for error in [try_open(&disk).err().unwrap(), try_create(&disk, CHUNKS).err().unwrap()] {
        assert!(matches!(error.kind(), ErrorKind::Busy), "{error}");
        assert_eq!(file_of(&error), "store");
    }
    assert!(scanned(&follow(&disk).unwrap().version()).unwrap() == sample.maps[1]);
    drop(first);
    try_open(&disk).unwrap();
}

#[test]
fn a_version_that_is_read_is_not_removed() {
    let sample = sample();
    let disk = sample.copy();
    let held = follow(&disk).unwrap();
    let mut writer = try_open(&disk).unwrap();
    publish(&mut writer, &changes(3, KEYS), UpdateMode::Replace, 3);
    let removed = writer.collect(&ALL_GO, &Watch::default()).unwrap();
    assert_eq!((removed.versions, removed.kept[0]), (vec![1], (2, Reason::InUse)));
    assert!(scanned(&held.version()).unwrap() == sample.maps[1]);
    assert!(held.refresh().unwrap());
    // The follower drops the version at its next refresh.
    assert!(!held.refresh().unwrap());
    assert_eq!(writer.collect(&ALL_GO, &Watch::default()).unwrap().versions, [2]);
}

#[test]
fn a_clock_that_goes_back_removes_nothing_early() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let mut writer = try_create(&disk, 1).unwrap();
    for (id, created_s) in [(1, 1000), (2, 10), (3, u64::MAX), (4, 0)] {
        let batch = writer.batch(SortOptions::within(1 << 20)).unwrap();
        let facts = VersionFacts { id, created_s, provenance: Vec::new() };
        let info = writer.write(batch, UpdateMode::Auto, facts, &Watch::default()).unwrap();
        writer.publish(info.name.number).unwrap();
    }
    for now_s in [0, 5] {
        let rules = Retention { age_s_min: 100, now_s, ..ALL_GO };
        assert!(writer.collect(&rules, &Watch::default()).unwrap().versions.is_empty());
    }
    let rules = Retention { age_s_min: 100, now_s: 500, ..ALL_GO };
    assert_eq!(writer.collect(&rules, &Watch::default()).unwrap().versions, [2]);
    let rules = Retention { age_s_min: u64::MAX, now_s: u64::MAX, ..ALL_GO };
    assert!(writer.collect(&rules, &Watch::default()).unwrap().versions.is_empty());
    let rules = Retention { age_s_min: 1, now_s: u64::MAX, ..ALL_GO };
    assert_eq!(writer.collect(&rules, &Watch::default()).unwrap().versions, [1]);
}

/// The list of published versions must not forget an existing version.
#[test]
fn a_version_that_was_published_long_ago_can_be_removed() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let mut writer = try_create(&disk, 1).unwrap();
    for id in 1..=3 {
        publish(&mut writer, &changes(id, 3), UpdateMode::Merge, id);
    }
    for _ in 0..600 {
        writer.publish(2).unwrap();
        writer.publish(3).unwrap();
    }
    assert_eq!(read_file(disk.as_ref(), &pointer_path()).len(), 2 * ALIGNMENT);
    assert_eq!(writer.collect(&ALL_GO, &Watch::default()).unwrap().versions, [1, 2]);
    assert!(writer.pointer().published.is_empty() && writer.pointer().bad.is_empty());
    drop(writer);
    assert!(try_open(&disk).unwrap().pointer().published.is_empty());
}

#[test]
fn notes_that_are_too_large_for_a_version_file_are_refused() {
    let sample = sample();
    let disk = sample.copy();
    let mut writer = try_open(&disk).unwrap();
    let batch = writer.batch(SortOptions::within(1 << 20)).unwrap();
    let provenance = vec![("inputs".to_owned(), vec![b'i'; 20 << 20])];
    let facts = VersionFacts { id: 9, created_s: 9, provenance };
    let error = writer.write(batch, UpdateMode::Auto, facts, &Watch::default()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error}");
    publish(&mut writer, &changes(3, KEYS), UpdateMode::Auto, 9);
}

/// Returns the bytes of a delta file between the versions of a sample, and the file's entries.
fn delta_file(sample: &Sample) -> (Vec<u8>, Vec<Change>) {
    let disk = sample.copy();
    write_delta(&disk, 1, 2);
    (read_file(disk.as_ref(), Path::new(DELTA)), read_delta(&disk).unwrap())
}

fn read_delta(disk: &Arc<dyn Disk>) -> Result<Vec<Change>> {
    let mut delta = DeltaReader::open(&Env::on(disk.clone()), Path::new(DELTA))?;
    let mut entries = Vec::new();
    let mut visit = |key: &[u8], value: Option<&[u8]>| {
        entries.push((key.to_vec(), value.map(<[u8]>::to_vec)));
        Ok(())
    };
    while delta.next(&mut visit)? {}
    assert!(!delta.next(&mut |_, _| panic!("nothing comes after the end")).unwrap());
    Ok(entries)
}

#[test]
fn every_flipped_byte_of_a_delta_file_is_noticed() {
    let sample = sample();
    let (mut bytes, _) = delta_file(&sample);
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    for i in 0..bytes.len() {
        bytes[i] ^= 1 << (i % 8);
        write_file(disk.as_ref(), Path::new(DELTA), &bytes);
        check_damage(&read_delta(&disk).unwrap_err(), Path::new(DELTA));
        bytes[i] ^= 1 << (i % 8);
    }
    for len in (0..bytes.len()).step_by(17).chain([bytes.len() - 1, bytes.len() + 4096]) {
        let mut bytes = bytes.clone();
        bytes.resize(len, 0);
        write_file(disk.as_ref(), Path::new(DELTA), &bytes);
        check_damage(&read_delta(&disk).unwrap_err(), Path::new(DELTA));
    }
}

/// A section may contain any sizes, with a valid checksum.
#[test]
fn forged_delta_files_are_refused_and_change_nothing() {
    let sample = sample();
    let (bytes, entries) = delta_file(&sample);
    let section = ALIGNMENT + 8;
    let size = u32::from_le_bytes(*bytes[ALIGNMENT..].first_chunk().unwrap()) as usize;
    let there: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    publish(&mut try_create(&there, CHUNKS).unwrap(), &changes(1, KEYS), UpdateMode::Merge, 1);
    let whole = copy_of(there.as_ref());
    let mut refused = 0;
    for at in (0..size - 8).step_by(5) {
        let mut bytes = bytes.clone();
        let edge = EDGES[at % EDGES.len()];
        bytes[section + at..section + at + 8].copy_from_slice(&edge.to_le_bytes());
        let sum = crc32c(&bytes[section..section + size]);
        bytes[ALIGNMENT + 4..section].copy_from_slice(&sum.to_le_bytes());
        let disk: Arc<dyn Disk> = Arc::new(copy_of(&whole));
        write_file(disk.as_ref(), Path::new(DELTA), &bytes);
        match read_delta(&disk) {
            Ok(read) => assert_eq!(read.len(), entries.len()),
            Err(error) => {
                check_told(&error);
                let mut writer = try_open(&disk).unwrap();
                let sort = SortOptions::within(1 << 20);
                let path = Path::new(DELTA);
                let facts = VersionFacts::default();
                let error = writer
                    .apply(path, sort, UpdateMode::Merge, facts, &Watch::default())
                    .unwrap_err();
                assert_eq!(file_of(&error), DELTA);
                assert_eq!(writer.numbers().unwrap(), [1]);
                refused += 1;
            }
        }
    }
    assert!(refused > 5);
    for at in [0, 8, 16, 24] {
        let bytes = forged(&bytes, FileKind::Delta, |fields| {
            fields[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        });
        let disk: Arc<dyn Disk> = Arc::new(copy_of(&whole));
        write_file(disk.as_ref(), Path::new(DELTA), &bytes);
        let mut writer = try_open(&disk).unwrap();
        let sort = SortOptions::within(1 << 20);
        let error = writer.apply(
            Path::new(DELTA),
            sort,
            UpdateMode::Merge,
            VersionFacts::default(),
            &Watch::default(),
        );
        check_damage(&error.unwrap_err(), Path::new(DELTA));
    }
}

/// The first version's deltas are missing, the second's exist: shared chunks are counted exactly.
#[test]
fn a_difference_counts_shared_chunks_with_deltas_exactly() {
    let sample = sample();
    let disk = sample.copy();
    let mut writer = try_open(&disk).unwrap();
    // One key, in one chunk.
    let put = [(b"key 1".to_vec(), Some(b"new".to_vec()))];
    try_write(&mut writer, &put, UpdateMode::Delta, 3).unwrap();
    let [old, new] = [2, 3].map(|number| try_version(&disk, number).unwrap());
    assert!(old.info().bases == new.info().bases);
    let (info, counted) = write_delta(&disk, 2, 3);
    assert_eq!((info.entries, counted.total()), (1, 1));
    let unchanged = updated(&sample.maps[1], &put).len() as u64 - 1;
    assert_eq!(counted.unchanged, unchanged);
}

#[test]
fn a_read_that_fails_is_an_error_of_the_device() {
    let sample = sample();
    let plan = hashfold::io::FaultPlan::from(hashfold::io::Fault::ReadFailure { read: 3 });
    let faulty = hashfold::io::FaultyDisk::over(&sample.disk, plan);
    let disk: Arc<dyn Disk> = Arc::new(faulty);
    let error = follow(&disk).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Io, "{error}");
    let ErrorKind::Io { source, .. } = error.kind() else { panic!("{error}") };
    assert_ne!(source.kind(), io::ErrorKind::NotFound);
}
