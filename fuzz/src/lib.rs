//! Hostile bytes for every decoder. Each decoder must return an error or a value: no panic, no
//! endless loop, no allocation by a number in the bytes.
//!
//! A target is a plain function of bytes. `fuzz_targets/` passes them to libFuzzer; the test
//! `short` runs them on stable Rust with a fixed number of inputs that follow from a seed.
//!
//! Checksums would keep nearly all inputs away from the decoders, so [`table`], [`manifest`] and
//! the targets of stores and filters write the right checksums after each change.

mod cascade;
mod deploy;
mod forge;
mod map;
mod model;
mod piece;
mod request;
mod rows;
mod sketch;
mod store;
mod summarize;
mod wal;

pub use self::{
    cascade::{filter_block, filter_log, filter_manifest, filter_model, filter_run},
    deploy::{group_pointer, signature, topology},
    map::{map, map_device, salvage},
    model::model,
    piece::piece,
    request::request,
    rows::rows,
    sketch::sketch,
    store::{delta, pointer, tree, version},
    summarize::{checkpoint, event_csv, event_json, framing, restored, scrape},
    wal::wal,
};

use self::forge::{Forgery, goldens};
use hashfold::{
    Env, Error, ReadOptions, Result,
    codec::{Decoder, VARINT_BYTES_MAX, put_varint, varint_len},
    io::{
        Access, Disk, MemoryDisk,
        frame::{FileKind, Footer, Header},
    },
    manifest::{self, Manifest},
    run::Run,
    table::{IndexChoice, IndexOptions, Table, reindex},
    work::Watch,
};
use std::{borrow::Cow, path::Path, sync::Arc};

const FOLDER: &str = "table";

const KINDS: [FileKind; 3] = [FileKind::Manifest, FileKind::TableData, FileKind::TableIndex];

/// Variable-length integers and fields of fixed size.
pub fn varint(bytes: &[u8]) {
    let mut decoder = Decoder::new(bytes);
    while let Ok(value) = decoder.varint() {
        let mut again = Vec::new();
        put_varint(&mut again, value);
        assert!(again.len() == varint_len(value) && again.len() <= VARINT_BYTES_MAX);
        assert_eq!(Decoder::new(&again).varint().expect("it was just written"), value);
    }
    let mut decoder = Decoder::new(bytes);
    while let Ok(len) = decoder.u64() {
        let left = decoder.rest().len() as u64;
        assert_eq!(decoder.bytes(len).is_ok(), len <= left);
    }
}

/// The header of a file, as it is, and with the right checksum.
pub fn header(bytes: &[u8]) {
    let mut sealed = bytes.to_vec();
    if sealed.len() >= forge::HEADER_SIZE {
        forge::seal_header(&mut sealed);
    }
    for bytes in [bytes, &sealed] {
        for kind in KINDS {
            if let Ok(header) = Header::decode(bytes, kind) {
                let again = Header::decode(&header.encode(), kind);
                assert_eq!(again.expect("it was just written"), header);
            }
        }
    }
}

/// The footer of a file of these bytes.
pub fn footer(bytes: &[u8]) {
    let disk = MemoryDisk::default();
    for bytes in [bytes, &forge::padded(bytes)] {
        let file = disk.create(Path::new("file"), Access::Cached).expect("RAM does not fail");
        file.write_at(0, bytes).expect("RAM does not fail");
        if let Ok((footer, start)) = Footer::read(file.as_ref()) {
            assert!(start as usize + footer.fields.len() <= bytes.len());
        }
    }
}

/// A manifest with these bytes as its fields, and with these bytes as its file.
pub fn manifest(bytes: &[u8]) {
    for file in [forge::framed(1, bytes), forge::framed(2, bytes), bytes.to_vec()] {
        let disk = disk_of(&[(manifest::NAME.to_owned(), file)]);
        if let Ok(manifest) = Manifest::read(disk.as_ref(), Path::new(FOLDER)) {
            manifest.publish(disk.as_ref(), Path::new(FOLDER)).expect("RAM does not fail");
            let again = Manifest::read(disk.as_ref(), Path::new(FOLDER));
            assert_eq!(again.expect("it was just written"), manifest);
        }
        use_table(&disk, &[b"key".to_vec()]);
    }
}

/// The files of a table, cut from these bytes.
pub fn files(bytes: &[u8]) {
    let golden = &goldens()[0];
    let part = bytes.len() / 3;
    for changed in 1..8 {
        let mut files = golden.files.clone();
        for (i, (_, file)) in files.iter_mut().enumerate() {
            if changed >> i & 1 == 1 {
                *file = bytes[i * part..][..part].to_vec();
            }
        }
        use_table(&disk_of(&files), &golden.keys);
    }
}

/// A golden table, changed as these bytes say, with all sizes and checksums right.
pub fn table(bytes: &[u8]) {
    let Some((first, edits)) = bytes.split_first() else { return };
    let golden = &goldens()[usize::from(*first) % goldens().len()];
    let mut forgery = Forgery::of(golden);
    edits.chunks_exact(forge::EDIT_SIZE).for_each(|edit| forgery.edit(edit));
    use_table(&disk_of(&forgery.files()), &golden.keys);
}

fn disk_of(files: &[(String, Vec<u8>)]) -> Arc<dyn Disk> {
    let disk = MemoryDisk::default();
    disk.create_folder(Path::new(FOLDER)).expect("RAM does not fail");
    for (name, bytes) in files {
        let path = Path::new(FOLDER).join(name);
        let file = disk.create(&path, Access::Cached).expect("RAM does not fail");
        file.write_at(0, bytes).expect("RAM does not fail");
    }
    Arc::new(disk)
}

/// Runs every operation on a table.
fn use_table(disk: &Arc<dyn Disk>, keys: &[Vec<u8>]) {
    told(look_up_everywhere(disk, keys));
    for choice in [IndexChoice::Dense, IndexChoice::Sparse, IndexChoice::Fences] {
        let options = IndexOptions { choice, ..IndexOptions::default() };
        if told(
            reindex(&Env::on(disk.clone()), Path::new(FOLDER), &options, &Watch::default())
                .map(|_| ()),
        ) {
            told(look_up_everywhere(disk, keys));
        }
    }
}

/// Checks that an error can be printed; returns whether there was none.
fn told(result: Result<()>) -> bool {
    let tell = |error: Error| assert!(!error.to_string().is_empty());
    result.map_err(tell).is_ok()
}

fn look_up_everywhere(disk: &Arc<dyn Disk>, keys: &[Vec<u8>]) -> Result<()> {
    for access in [Access::Direct, Access::Mapped] {
        let options = ReadOptions::new().data(access).index(access).env(Env::on(disk.clone()));
        for options in [options.clone(), options.without_index()] {
            look_up_all(&Table::open_with(Path::new(FOLDER), &options)?, keys)?;
        }
    }
    Ok(())
}

fn look_up_all(table: &Table, keys: &[Vec<u8>]) -> Result<()> {
    assert!(table.stats().index_bits_per_key() >= 0.0);
    let absent = (0..20_u64).map(|i| i.to_be_bytes().to_vec());
    let keys: Vec<Vec<u8>> = keys.iter().step_by(5).cloned().chain(absent).collect();
    for key in &keys {
        if let Ok(found) = table.get(key) {
            assert_eq!(table.contains(key).ok(), Some(found.is_some()));
            assert_eq!(table.get_ref(key).ok(), Some(found.map(Cow::Owned)));
        }
    }
    let mut shown = vec![false; keys.len()];
    let all = table.get_many(&keys, &mut |i, _| {
        assert!(!std::mem::replace(&mut shown[i], true), "each key is shown once");
        Ok(())
    });
    assert!(all.is_err() || shown.iter().all(|shown| *shown));
    let mut scan = table.scan();
    while let Ok(true) = scan.advance() {
        assert!(scan.entry().value.is_some());
    }
    let report = table.verify(&Watch::default())?;
    report.damage.into_iter().for_each(|error| {
        told(Err(error));
    });
    Ok(())
}
