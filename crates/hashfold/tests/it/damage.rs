//! Damaged, missing, foreign and future files of tables. The result is always an error that names
//! the file, never a panic or a wrong value.

use crate::fixture::{
    CHOICES, FOLDER, Files, Pairs, absent, build, check_holds, file_of, fixed, folder, index,
    memory, name_of, open, options, random, read_files, scanned, try_build, variable, write_files,
};
use hashfold::{
    Env, Error, ErrorClass, ErrorKind, KeyHash, Result, Seed,
    checksum::crc32c,
    io::{ALIGNMENT, Access, BlockFile, Disk, MemoryDisk, OsDisk},
    manifest::{self, Manifest},
    run::{Duplicates, Entry, KEY_BYTES_MAX, Run, SortOptions, Summary, VALUE_BYTES_MAX, VecRun},
    table::{IndexChoice, Table, TableBuilder, TableOptions, reindex},
    work::Watch,
};
use std::{path::Path, sync::Arc};

/// A small table, file by file.
struct Sample {
    files: Files,
    pairs: Pairs,
}

impl Sample {
    fn new(pairs: Pairs, options: TableOptions) -> Sample {
        let disk = memory();
        build(&disk, folder(), &pairs, options);
        Sample { files: read_files(disk.as_ref(), folder()), pairs }
    }

    fn disk(&self) -> Arc<dyn Disk> {
        disk_of(&self.files)
    }

    /// Returns the table with one file changed.
    fn with(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Arc<dyn Disk> {
        let mut files = self.files.clone();
        change(files.get_mut(name).unwrap());
        disk_of(&files)
    }
}

fn disk_of(files: &Files) -> Arc<dyn Disk> {
    let disk = memory();
    write_files(disk.as_ref(), folder(), files);
    disk
}

/// Returns a table for each index and layout.
fn samples() -> Vec<Sample> {
    let both = |choice| [(fixed(400, 1), choice), (variable(150, 2), choice)];
    let all = CHOICES.into_iter().flat_map(both);
    all.map(|(pairs, choice)| Sample::new(pairs, options(choice, 1))).collect()
}

/// The roles of a table's files.
const ROLES: [&str; 3] = ["MANIFEST", "data", "index"];

/// Returns the error of opening a table, or the damage of its index, without which it opens.
#[track_caller]
fn refused(disk: &Arc<dyn Disk>) -> Error {
    match open(disk, folder()) {
        Err(error) => error,
        Ok(table) => table.index_damage().expect("the damage is noticed").clone(),
    }
}

/// Checks that opening finds damage of this file.
#[track_caller]
fn check_refused(disk: &Arc<dyn Disk>, name: &str) -> Error {
    let error = refused(disk);
    assert_eq!(error.class(), ErrorClass::Damage, "{error}");
    assert_eq!(file_of(&error), name, "{error}");
    error
}

/// Checks that an open table returns right values, or errors with a place.
#[track_caller]
fn check_right_or_error(table: &Table, pairs: &Pairs) {
    let check = |error: Error| {
        assert_eq!(error.class(), ErrorClass::Damage, "{error}");
        assert!(error.place().is_some(), "{error}");
    };
    for (key, value) in pairs {
        match table.get(key) {
            Ok(found) => assert_eq!(found.as_ref(), Some(value), "a wrong value"),
            Err(error) => check(error),
        }
    }
    for key in absent(20) {
        match table.get(&key) {
            Ok(found) => assert_eq!(found, None),
            Err(error) => check(error),
        }
    }
    let keys: Vec<&Vec<u8>> = pairs.keys().collect();
    let mut visit = |i: usize, value: Option<&[u8]>| {
        assert_eq!(value, pairs.get(keys[i]).map(Vec::as_slice));
        Ok(())
    };
    if let Err(error) = table.get_many(&keys, &mut visit) {
        check(error);
    }
    match scanned(table) {
        Ok(all) => assert!(all == *pairs),
        Err(error) => check(error),
    }
}

#[test]
fn files_that_were_cut_short_are_refused() {
    for sample in samples() {
        for (name, bytes) in &sample.files {
            let mut random = random(3);
            let some = (0..40).map(|_| random() as usize % bytes.len());
            let edges = (0..bytes.len()).step_by(ALIGNMENT).flat_map(|len| [len, len + 1]);
            for len in some.chain(edges).chain([bytes.len() - 1]) {
                let disk = sample.with(name, |bytes| bytes.truncate(len));
                let error = check_refused(&disk, name);
                assert!(matches!(error.kind(), ErrorKind::Truncated { .. }), "{len}: {error}");
            }
        }
    }
}

#[test]
fn files_that_grew_are_refused() {
    for sample in samples() {
        for name in sample.files.keys() {
            for more in [1, 24, ALIGNMENT] {
                let disk = sample.with(name, |bytes| bytes.extend(vec![0; more]));
                check_refused(&disk, name);
            }
        }
    }
}

#[test]
fn files_full_of_other_bytes_are_refused() {
    let sample = Sample::new(fixed(400, 1), options(IndexChoice::Dense, 1));
    for name in sample.files.keys() {
        for byte in [0, 0xff, b'\n'] {
            let error = check_refused(&sample.with(name, |bytes| bytes.fill(byte)), name);
            assert!(matches!(error.kind(), ErrorKind::Magic { .. }), "{error}");
        }
        let from_header_on = |bytes: &mut Vec<u8>| bytes[ALIGNMENT..].fill(0);
        let error = check_refused(&sample.with(name, from_header_on), name);
        assert!(matches!(error.kind(), ErrorKind::Field { .. }), "{error}");
    }
}

/// A disk on which one bit of a file is flipped at a time.
struct Flipper {
    disk: Arc<dyn Disk>,
    file: Arc<dyn BlockFile>,
    bytes: Vec<u8>,
}

impl Flipper {
    fn new(sample: &Sample, name: &str) -> Flipper {
        let disk = sample.disk();
        let file = disk.create(&folder().join(name), Access::Cached).unwrap();
        let bytes = sample.files[name].clone();
        file.write_at(0, &bytes).unwrap();
        Flipper { disk, file, bytes }
    }

    fn flip(&mut self, bit: usize) {
        self.bytes[bit / 8] ^= 1 << (bit % 8);
        self.file.write_at(bit as u64 / 8, &self.bytes[bit / 8..][..1]).unwrap();
    }

    /// Calls `look` while the bit is flipped.
    fn with<T>(&mut self, bit: usize, look: impl FnOnce(&Arc<dyn Disk>) -> T) -> T {
        self.flip(bit);
        let found = look(&self.disk);
        self.flip(bit);
        found
    }
}

#[test]
fn every_flipped_bit_of_a_manifest_a_header_or_a_footer_is_noticed() {
    // One sample of each layout: fixed with a dense trie, variable with fences.
    for sample in samples().iter().step_by(5) {
        for role in ROLES {
            let name = name_of(&sample.files, role);
            let mut flipper = Flipper::new(sample, &name);
            let len = flipper.bytes.len();
            let header_and_footer = (0..ALIGNMENT).chain(len - ALIGNMENT..len);
            for bit in header_and_footer.flat_map(|byte| 8 * byte..8 * byte + 8) {
                flipper.with(bit, |disk| check_refused(disk, &name));
            }
        }
    }
}

#[test]
fn every_flipped_bit_of_an_index_is_noticed() {
    for sample in samples() {
        let name = name_of(&sample.files, "index");
        let mut flipper = Flipper::new(&sample, &name);
        for bit in (ALIGNMENT * 8..flipper.bytes.len() * 8).step_by(13) {
            flipper.with(bit, |disk| check_refused(disk, &name));
        }
    }
}

/// The table opens, keys in other blocks are found, and `verify` names the damaged block.
#[test]
fn a_flipped_bit_in_a_block_is_named_and_harms_no_other_block() {
    for sample in samples() {
        let name = name_of(&sample.files, "data");
        let mut flipper = Flipper::new(&sample, &name);
        let blocks = flipper.bytes.len() - 2 * ALIGNMENT;
        let bits = (ALIGNMENT * 8..(ALIGNMENT + blocks) * 8).step_by(1201);
        for bit in bits {
            let block = (bit / 8 / ALIGNMENT * ALIGNMENT) as u64;
            flipper.with(bit, |disk| {
                let table = open(disk, folder()).unwrap();
                check_right_or_error(&table, &sample.pairs);
                let found = sample.pairs.keys().filter(|key| table.get(key).is_ok()).count();
                assert!(found > 0, "other blocks are read");
                assert!(found < sample.pairs.len(), "keys of the block are not");
                let report = table.verify(&Watch::default()).unwrap();
                assert_eq!(damaged_blocks(&report.damage), [block]);
            });
        }
    }
}

/// Returns the offsets that errors name.
#[track_caller]
fn damaged_blocks(damage: &[Error]) -> Vec<u64> {
    let offset = |error: &Error| {
        assert!(matches!(error.kind(), ErrorKind::Checksum { .. }), "{error}");
        error.place().and_then(|place| place.offset).expect("the offset is known")
    };
    damage.iter().map(offset).collect()
}

#[test]
fn a_check_names_each_damaged_block_once() {
    for sample in samples() {
        let name = name_of(&sample.files, "data");
        let blocks = sample.files[&name].len() / ALIGNMENT - 2;
        for step in [1, 2, 3] {
            let damaged: Vec<usize> = (1..=blocks).step_by(step).collect();
            let disk = sample.with(&name, |bytes| {
                damaged.iter().for_each(|block| bytes[block * ALIGNMENT + 100] ^= 1);
            });
            let report = open(&disk, folder()).unwrap().verify(&Watch::default()).unwrap();
            let expected: Vec<u64> = damaged.iter().map(|b| (b * ALIGNMENT) as u64).collect();
            assert_eq!(damaged_blocks(&report.damage), expected);
        }
    }
}

/// Blocks contain their number and the id of their table.
#[test]
fn blocks_in_each_others_place_are_noticed() {
    let sample = Sample::new(fixed(400, 1), options(IndexChoice::Dense, 1));
    let name = name_of(&sample.files, "data");
    let disk = sample.with(&name, |bytes| {
        let (one, two) = bytes[ALIGNMENT..].split_at_mut(ALIGNMENT);
        one.swap_with_slice(&mut two[..ALIGNMENT]);
    });
    let table = open(&disk, folder()).unwrap();
    check_right_or_error(&table, &sample.pairs);
    let report = table.verify(&Watch::default()).unwrap();
    assert_eq!(damaged_blocks(&report.damage), [4096, 8192]);
}

/// Returns two tables with the same layout.
fn twins(id: u64, seed: Seed) -> [Sample; 2] {
    let other = options(IndexChoice::Dense, id).seed(seed);
    [Sample::new(fixed(400, 1), options(IndexChoice::Dense, 1)), Sample::new(fixed(400, 1), other)]
}

#[test]
fn files_of_another_table_are_refused() {
    let cases = [("file id", twins(2, crate::fixture::SEED)), ("seed", twins(1, Seed(8)))];
    for (field, [ours, theirs]) in cases {
        for role in ["data", "index"] {
            let (name, other) = (name_of(&ours.files, role), name_of(&theirs.files, role));
            let disk = ours.with(&name, |bytes| bytes.clone_from(&theirs.files[&other]));
            let error = check_refused(&disk, &name);
            let ErrorKind::Mismatch { what, .. } = error.kind() else { panic!("{error}") };
            assert_eq!(*what, field);
        }
    }
    let [ours, theirs] = twins(2, crate::fixture::SEED);
    let disk = ours.with(manifest::NAME, |bytes| {
        bytes.clone_from(&theirs.files[manifest::NAME]);
    });
    check_missing(&refused(&disk), &name_of(&theirs.files, "data"));
}

#[track_caller]
fn check_missing(error: &Error, name: &str) {
    assert!(matches!(error.kind(), ErrorKind::Missing { .. }), "{error}");
    assert_eq!((error.class(), file_of(error)), (ErrorClass::Damage, name), "{error}");
}

#[test]
fn missing_files_are_named() {
    let sample = Sample::new(fixed(400, 1), options(IndexChoice::Dense, 1));
    for role in ["data", "index"] {
        let name = name_of(&sample.files, role);
        let disk = sample.disk();
        disk.remove(&folder().join(&name)).unwrap();
        check_missing(&refused(&disk), &name);
    }
    let disk = sample.disk();
    disk.remove(&folder().join(manifest::NAME)).unwrap();
    check_missing(&refused(&disk), manifest::NAME);
    let error = refused(&memory());
    assert!(matches!(error.kind(), ErrorKind::Absent), "{error}");
    assert_eq!(file_of(&error), FOLDER);
}

#[test]
fn empty_files_are_refused() {
    for sample in samples() {
        for name in sample.files.keys() {
            let error = check_refused(&sample.with(name, Vec::clear), name);
            assert!(matches!(error.kind(), ErrorKind::Truncated { .. }), "{error}");
        }
    }
}

/// Publishes a different manifest for a built table.
fn with_manifest(sample: &Sample, change: impl FnOnce(&mut Manifest)) -> Arc<dyn Disk> {
    let disk = sample.disk();
    let mut manifest = Manifest::read(disk.as_ref(), folder()).unwrap();
    change(&mut manifest);
    manifest.publish(disk.as_ref(), folder()).unwrap();
    disk
}

#[test]
fn files_of_the_wrong_kind_are_refused() {
    let sample = Sample::new(fixed(400, 1), options(IndexChoice::Dense, 1));
    let (data, index) = (name_of(&sample.files, "data"), name_of(&sample.files, "index"));
    let disk = with_manifest(&sample, |manifest| {
        let [data, index] = &mut manifest.files[..] else { panic!("two files") };
        std::mem::swap(&mut data.role, &mut index.role);
    });
    let error = check_refused(&disk, &index);
    let ErrorKind::FileKind { expected, got } = error.kind() else { panic!("{error}") };
    assert_eq!((*expected, got.as_str()), ("table data", "table index"));
    let disk = with_manifest(&sample, |manifest| {
        manifest.files[1] =
            manifest::FileEntry { role: "index".to_owned(), ..manifest.files[0].clone() };
    });
    let error = check_refused(&disk, &data);
    assert!(matches!(error.kind(), ErrorKind::FileKind { .. }), "{error}");
    let disk = sample.with(manifest::NAME, |bytes| bytes.clone_from(&sample.files[&data]));
    let error = check_refused(&disk, manifest::NAME);
    assert!(matches!(error.kind(), ErrorKind::FileKind { .. }), "{error}");
    let disk = with_manifest(&sample, |manifest| manifest.files.clear());
    assert_eq!(refused(&disk).class(), ErrorClass::Damage);
}

#[test]
fn manifests_do_not_lead_out_of_their_folder() {
    let sample = Sample::new(fixed(40, 1), options(IndexChoice::Dense, 1));
    for name in ["", "..", "../table/data", "/etc/passwd", "a/b"] {
        let disk = with_manifest(&sample, |manifest| manifest.files[0].name = name.to_owned());
        check_refused(&disk, manifest::NAME);
    }
    for name in [".", "nothing", "nul\0byte"] {
        let disk = with_manifest(&sample, |manifest| manifest.files[0].name = name.to_owned());
        assert!(refused(&disk).place().is_some(), "{name}");
    }
}

/// Writes a format version to a header, and updates the checksum.
fn set_version(bytes: &mut [u8], version: u16) {
    bytes[10..12].copy_from_slice(&version.to_le_bytes());
    let sum = crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn versions_of_the_future_and_of_no_time_are_refused() {
    let sample = Sample::new(fixed(400, 1), options(IndexChoice::Dense, 1));
    for name in sample.files.keys() {
        let newest = if name.starts_with("index") { 1 } else { 2 };
        for version in [0, newest + 1, 9, u16::MAX] {
            let disk = sample.with(name, |bytes| set_version(bytes, version));
            let error = check_refused(&disk, name);
            let ErrorKind::Version { expected, got } = error.kind() else { panic!("{error}") };
            assert_eq!((expected, *got), (&(1..=newest), version));
        }
    }
}

#[test]
fn a_file_in_place_of_the_folder_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join(FOLDER);
    OsDisk.create(&path, Access::Cached).unwrap();
    let real: Arc<dyn Disk> = Arc::new(OsDisk);
    let in_memory: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    in_memory.create(folder(), Access::Cached).unwrap();
    for (disk, path) in [(real, path.as_path()), (in_memory, folder())] {
        let errors = [
            open(&disk, path).unwrap_err(),
            reindex(&Env::on(disk.clone()), path, &index(IndexChoice::Dense), &Watch::default())
                .unwrap_err(),
            try_build(&disk, path, &fixed(1, 1), options(IndexChoice::Dense, 1), sort())
                .unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error.kind(), ErrorKind::Io { .. } | ErrorKind::Absent), "{error}");
            assert!(error.place().unwrap().file.starts_with(path), "{error}");
        }
        assert!(disk.exists(path).unwrap(), "the file is still there");
    }
}

fn sort() -> SortOptions {
    SortOptions::default()
}

fn builder(disk: &Arc<dyn Disk>, options: TableOptions) -> Result<TableBuilder> {
    TableBuilder::with(folder(), options.env(Env::on(disk.clone())))
}

#[test]
fn two_builders_do_not_build_in_one_folder() {
    let disk = memory();
    let pairs = fixed(40, 1);
    build(&disk, folder(), &pairs, options(IndexChoice::Dense, 1));
    let replacing = |id| options(IndexChoice::Dense, id).replace(true);
    let first = builder(&disk, replacing(2)).unwrap();
    let errors = [
        builder(&disk, replacing(3)).unwrap_err(),
        reindex(&Env::on(disk.clone()), folder(), &index(IndexChoice::Fences), &Watch::default())
            .unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error.kind(), ErrorKind::Busy), "{error}");
        assert_eq!(file_of(&error), FOLDER);
    }
    check_holds(&open(&disk, folder()).unwrap(), &pairs);
    drop(first);
    build(&disk, folder(), &pairs, replacing(3));
}

#[test]
fn a_table_is_replaced_only_on_request() {
    let disk = memory();
    let pairs = fixed(40, 1);
    build(&disk, folder(), &pairs, options(IndexChoice::Dense, 1));
    let error = builder(&disk, options(IndexChoice::Dense, 2)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Exists), "{error}");
    check_holds(&open(&disk, folder()).unwrap(), &pairs);
}

/// The files that a damaged manifest named are unknown, so they stay until the new table is
/// published.
#[test]
fn a_damaged_table_is_replaced_and_loses_nothing_before() {
    let sample = Sample::new(fixed(40, 1), options(IndexChoice::Dense, 1));
    let disk = sample.with(manifest::NAME, |bytes| bytes[20] ^= 1);
    let damaged = read_files(disk.as_ref(), folder());
    let error = builder(&disk, options(IndexChoice::Dense, 1)).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Damage, "{error}");
    assert!(read_files(disk.as_ref(), folder()) == damaged);
    let replacing = options(IndexChoice::Dense, 1).replace(true);
    drop(builder(&disk, replacing.clone()).unwrap());
    assert!(read_files(disk.as_ref(), folder()) == damaged);
    build(&disk, folder(), &fixed(50, 2), replacing);
    check_holds(&open(&disk, folder()).unwrap(), &fixed(50, 2));
    assert_eq!(disk.list(folder()).unwrap().len(), 3);
}

#[test]
fn a_builder_that_is_dropped_leaves_nothing() {
    let disk = memory();
    drop(builder(&disk, options(IndexChoice::Dense, 1)).unwrap());
    assert!(!disk.exists(folder()).unwrap());
    disk.create_folder(folder()).unwrap();
    let mine = folder().join("data-of-mine");
    disk.create(&mine, Access::Cached).unwrap();
    drop(builder(&disk, options(IndexChoice::Dense, 1)).unwrap());
    assert_eq!(disk.list(folder()).unwrap(), ["data-of-mine"]);
}

#[track_caller]
fn check_limit(error: &Error, limit: usize) {
    let ErrorKind::Limit { limit: found, got, .. } = error.kind() else { panic!("{error}") };
    assert_eq!((*found, *got), (limit as u64, limit as u64 + 1));
    assert_eq!(error.class(), ErrorClass::Input);
}

#[test]
fn keys_and_values_up_to_the_limit_come_back_and_larger_ones_are_refused() {
    let (key, value) = (vec![b'k'; KEY_BYTES_MAX], vec![b'v'; VALUE_BYTES_MAX]);
    let longer = |bytes: &[u8]| [bytes, b"+"].concat();
    let disk = memory();
    let builder = builder(&disk, options(IndexChoice::Dense, 1)).unwrap();
    let mut sorter = builder.sorter(sort()).unwrap();
    check_limit(&sorter.push(&longer(&key), None).unwrap_err(), KEY_BYTES_MAX);
    check_limit(&sorter.push(b"key", Some(&longer(&value))).unwrap_err(), VALUE_BYTES_MAX);
    sorter.push(&key, Some(&value)).unwrap();
    sorter.push(b"key", Some(b"value")).unwrap();
    let mut run = sorter.finish().unwrap();
    builder.build(&mut run, &Watch::default()).unwrap();
    let table = open(&disk, folder()).unwrap();
    assert!(table.get(&key).unwrap() == Some(value));
    assert_eq!(table.get(b"key").unwrap().unwrap(), b"value");
    assert!(!table.contains(longer(&key)).unwrap());
    assert!(table.verify(&Watch::default()).unwrap().is_sound());
}

/// A run may come from other code than the sorter.
#[test]
fn a_run_with_an_entry_over_the_limit_is_refused() {
    for (key_size, value_size, limit) in
        [(KEY_BYTES_MAX + 1, 1, KEY_BYTES_MAX), (1, VALUE_BYTES_MAX + 1, VALUE_BYTES_MAX)]
    {
        let disk = memory();
        let builder = builder(&disk, options(IndexChoice::Dense, 1)).unwrap();
        let entries = vec![(vec![1; key_size], Some(vec![2; value_size]))];
        let mut run = VecRun::new(entries, crate::fixture::SEED);
        check_limit(&builder.build(&mut run, &Watch::default()).unwrap_err(), limit);
        assert!(!disk.exists(folder()).unwrap());
    }
}

/// A run from foreign code, with arbitrary entries.
struct Forged(Vec<(KeyHash, &'static [u8])>, usize);

impl Run for Forged {
    fn seed(&self) -> Seed {
        crate::fixture::SEED
    }

    fn summary(&self) -> Summary {
        let mut summary = Summary::EMPTY;
        self.0.iter().for_each(|(_, key)| summary.add(key, Some(b"value")));
        summary
    }

    fn advance(&mut self) -> Result<bool> {
        self.1 += 1;
        Ok(self.1 <= self.0.len())
    }

    fn entry(&self) -> Entry<'_> {
        let (hash, key) = self.0[self.1 - 1];
        Entry { hash, key, value: Some(b"value") }
    }
}

#[track_caller]
fn build_forged(entries: Vec<(KeyHash, &'static [u8])>) -> Error {
    let disk = memory();
    let builder = builder(&disk, options(IndexChoice::Dense, 1)).unwrap();
    let error = builder.build(&mut Forged(entries, 0), &Watch::default()).unwrap_err();
    assert!(!disk.exists(folder()).unwrap(), "nothing is left");
    error
}

#[test]
fn a_run_that_does_not_ascend_is_refused() {
    let (low, high) = (KeyHash::from_bits(1), KeyHash::from_bits(2));
    for entries in [
        vec![(high, &b"a"[..]), (low, b"b")],
        vec![(low, b"b"), (low, b"a")],
        vec![(low, b"a"), (low, b"a")],
    ] {
        let error = build_forged(entries);
        assert!(matches!(error.kind(), ErrorKind::Order { .. }), "{error}");
    }
}

#[test]
fn a_key_that_comes_twice_is_refused_on_request() {
    let disk = memory();
    let builder = builder(&disk, options(IndexChoice::Dense, 1)).unwrap();
    let refusing = SortOptions { duplicates: Duplicates::Refuse, ..sort() };
    let mut sorter = builder.sorter(refusing).unwrap();
    for value in [b"1", b"2"] {
        sorter.push(b"key", Some(value)).unwrap();
    }
    let mut run = sorter.finish().unwrap();
    let error = builder.build(&mut run, &Watch::default()).unwrap_err();
    let ErrorKind::DuplicateKey { key } = error.kind() else { panic!("{error}") };
    assert_eq!(&key[..], b"key");
    assert!(!disk.exists(folder()).unwrap());
}

#[test]
fn options_outside_their_ranges_are_refused() {
    let all = [
        options(IndexChoice::Dense, 1).block_size(2048),
        options(IndexChoice::Dense, 1).block_size(5000),
        options(IndexChoice::Dense, 1).block_size(1 << 17),
        with_index(|index| index.bucket_size = 7),
        with_index(|index| index.bucket_size = 513),
        with_index(|index| index.coding_limit = 257),
        with_index(|index| index.absent_bits = 33),
        with_index(|index| (index.choice, index.absent_bits) = (IndexChoice::Fences, 1)),
    ];
    for options in all {
        let disk = memory();
        let error = builder(&disk, options).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Argument { .. }), "{error}");
        assert!(!disk.exists(Path::new(FOLDER)).unwrap());
    }
}

/// Attributes are stored in the manifest, which is read as a whole.
#[test]
fn attributes_that_are_too_large_are_refused_before_the_build() {
    for (size, fits) in [(1 << 19, true), (20 << 20, false)] {
        let disk = memory();
        let attributes = vec![("name".to_owned(), vec![b'v'; size])];
        let options = options(IndexChoice::Dense, 1).attributes(attributes);
        match try_build(&disk, folder(), &fixed(5, 1), options, sort()) {
            Ok(_) => {
                assert!(fits);
                let table = open(&disk, folder()).unwrap();
                assert_eq!(table.attribute("name").map(<[u8]>::len), Some(size));
            }
            Err(error) => {
                assert!(!fits && matches!(error.kind(), ErrorKind::Limit { .. }), "{error}");
                assert!(!disk.exists(folder()).unwrap());
            }
        }
    }
}

fn with_index(change: impl FnOnce(&mut hashfold::table::IndexOptions)) -> TableOptions {
    let mut index = index(IndexChoice::Dense);
    change(&mut index);
    options(IndexChoice::Dense, 1).index(index)
}
