//! The files that describe a store, changed with right checksums.

use crate::{
    forge::{change_bytes, read_below, reframed},
    told,
};
use hashfold::{
    Env, ReadOptions, Result,
    io::{ALIGNMENT, Access, Disk, MemoryDisk, OsDisk, frame::FileKind},
    run::{Run, SortOptions},
    store::{
        DeltaReader, Gates, Pointer, Retention, StoreReader, StoreWriter, UpdateMode, Version,
        VersionFacts, verify, versions,
    },
    work::Watch,
};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
};

const FOLDER: &str = "store";
const DELTA: &str = "file.delta";

/// The golden store, file by file, and a delta file.
fn golden() -> &'static [(PathBuf, Vec<u8>)] {
    static GOLDEN: LazyLock<Vec<(PathBuf, Vec<u8>)>> = LazyLock::new(|| {
        let home = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/hashfold/tests/golden/store-v1");
        read_below(&OsDisk, Path::new(home), Path::new(""))
    });
    &GOLDEN
}

/// The golden store with one file replaced.
fn disk_with(path: &Path, bytes: &[u8]) -> Arc<dyn Disk> {
    let disk = MemoryDisk::default();
    for (golden, content) in golden() {
        let bytes = if golden == path { bytes } else { content };
        disk.create_folder(golden.parent().expect("it has a name")).expect("RAM does not fail");
        let file = disk.create(golden, Access::Cached).expect("RAM does not fail");
        file.write_at(0, bytes).expect("RAM does not fail");
    }
    Arc::new(disk)
}

/// A changed file of the golden store: the first byte chooses the kind of change, the others the
/// place and the value. Checksums are right, unless the bytes are the whole file.
fn forged(path: &Path, kind: FileKind, bytes: &[u8]) -> Option<Vec<u8>> {
    let (how, edits) = bytes.split_first()?;
    let (_, content) = golden().iter().find(|(golden, _)| golden == path)?;
    Some(match how % 8 {
        0 => edits.to_vec(),
        // These bytes as the fields of a footer.
        1 => reframed(content, kind, |_, _, fields| *fields = edits.to_vec()),
        _ => reframed(content, kind, |header, body, fields| {
            for edit in edits.chunks_exact(crate::forge::EDIT_SIZE) {
                let bytes = match (edit[0] % 8, body.is_empty()) {
                    (0, _) => &mut header[8..32],
                    (1..4, _) | (_, true) => &mut fields[..],
                    _ => &mut body[..],
                };
                change_bytes(bytes, edit);
            }
        }),
    })
}

/// The file of a version.
pub fn version(bytes: &[u8]) {
    let path = Path::new(FOLDER).join("versions/0000000002");
    let Some(bytes) = forged(&path, FileKind::Version, bytes) else { return };
    use_store(&disk_with(&path, &bytes));
}

/// The pointer, which names the current version.
pub fn pointer(bytes: &[u8]) {
    let path = Path::new(FOLDER).join("CURRENT");
    let Some(bytes) = forged(&path, FileKind::Pointer, bytes) else { return };
    use_store(&disk_with(&path, &bytes));
}

/// The block tree of a table, and a version with its root.
pub fn tree(bytes: &[u8]) {
    let (path, _) = golden().iter().find(|(path, _)| path.ends_with("TREE")).expect("there is one");
    let Some(bytes) = forged(path, FileKind::Tree, bytes) else { return };
    let disk = disk_with(path, &bytes);
    told(with_root(&disk, path, &bytes));
    use_store(&disk);
}

/// Writes the root of a forged tree to both version files, so that the tree is read.
fn with_root(disk: &Arc<dyn Disk>, path: &Path, tree: &[u8]) -> Result<()> {
    let Some(size) = tree.get(ALIGNMENT..).and_then(|bytes| bytes.first_chunk()) else {
        return Ok(());
    };
    let body = &tree[ALIGNMENT + 8..];
    let size = usize::try_from(u64::from_le_bytes(*size)).unwrap_or(usize::MAX);
    let root = blake3::hash(&body[..size.min(body.len())]);
    let name = path.parent().and_then(Path::file_name).expect("it is in a folder");
    let id = u64::from_str_radix(&name.to_string_lossy(), 16).expect("folders are named by ids");
    for number in 1..=2 {
        let path = Path::new(FOLDER).join(format!("versions/{number:010}"));
        let (_, content) =
            golden().iter().find(|(golden, _)| *golden == path).expect("it is there");
        let bytes = reframed(content, FileKind::Version, |_, _, fields| {
            let id = id.to_le_bytes();
            let at = fields.windows(id.len()).position(|window| window == id);
            // The root is at the end of a layer's 136 bytes.
            if let Some(at) = at {
                fields[at + 104..at + 136].copy_from_slice(root.as_bytes());
            }
        });
        disk.create(&path, Access::Cached)?.write_at(0, &bytes)?;
    }
    Ok(())
}

/// A delta file: read to its end, and applied.
pub fn delta(bytes: &[u8]) {
    let path = Path::new(DELTA);
    let Some(bytes) = forged(path, FileKind::Delta, bytes) else { return };
    let disk = disk_with(path, &bytes);
    told(read_delta(&disk));
    let applied = StoreWriter::open(&Env::on(disk.clone()), Path::new(FOLDER));
    told(applied.and_then(|mut writer| {
        writer.roll_back()?;
        let sort = SortOptions::within(1 << 20);
        writer.apply(path, sort, UpdateMode::Merge, VersionFacts::default(), &Watch::default())?;
        Ok(())
    }));
}

fn read_delta(disk: &Arc<dyn Disk>) -> Result<()> {
    let mut delta = DeltaReader::open(&Env::on(disk.clone()), Path::new(DELTA))?;
    let (mut entries, expected) = (0, delta.info().entries);
    while delta.next(&mut |_, _| Ok(()))? {
        entries += 1;
    }
    assert_eq!(entries, expected);
    Ok(())
}

/// Runs every operation on a store.
fn use_store(disk: &Arc<dyn Disk>) {
    let folder = Path::new(FOLDER);
    told(Pointer::read(disk.as_ref(), folder).map(|_| ()));
    for (number, info) in versions(&Env::on(disk.clone()), folder).expect("the folder is there") {
        told(info.map(|info| {
            assert!(info.entries().start() <= info.entries().end());
            assert!(info.bytes() >= info.layers().map(|layer| layer.bytes).max().unwrap_or(0));
            assert!(info.delta_depth() < info.layers().count());
            info.changes.map(|changes| changes.total());
        }));
        told(read_version(disk, number));
        let verified = verify(&Env::on(disk.clone()), folder, number, &Watch::default());
        told(verified.map(|report| {
            report.damage.into_iter().for_each(|error| {
                told(Err(error));
            });
        }));
    }
    told(StoreReader::open_with(folder, &ReadOptions::new().env(Env::on(disk.clone()))).map(
        |follower| {
            told(follower.refresh().map(|_| ()));
        },
    ));
    told(change_store(disk));
}

fn read_version(disk: &Arc<dyn Disk>, number: u64) -> Result<()> {
    let version =
        Version::open(Path::new(FOLDER), number, &ReadOptions::new().env(Env::on(disk.clone())))?;
    let keys: Vec<Vec<u8>> = (0..25).map(|i| format!("key {i}").into_bytes()).collect();
    for key in &keys {
        if let Ok(found) = version.get(key) {
            assert_eq!(version.contains(key).ok(), Some(found.is_some()));
        }
    }
    let mut shown = vec![false; keys.len()];
    let all = version.get_many(&keys, &mut |i, _| {
        assert!(!std::mem::replace(&mut shown[i], true), "each key is shown once");
        Ok(())
    });
    assert!(all.is_err() || shown.iter().all(|shown| *shown));
    for chunk in 0..version.info().shape.slots.chunks().min(64) {
        let mut run = version.scan_chunks(chunk..chunk + 1);
        while let Ok(true) = run.advance() {
            assert!(run.entry().value.is_some());
        }
    }
    Ok(())
}

/// Changes a store in every way, as far as that succeeds.
fn change_store(disk: &Arc<dyn Disk>) -> Result<()> {
    let mut writer = StoreWriter::open(&Env::on(disk.clone()), Path::new(FOLDER))?;
    let gates =
        Gates { entries_min: Some(1), change_max: Some(0.1), sample: 5, ..Gates::default() };
    for (id, mode) in (100..).zip([UpdateMode::Delta, UpdateMode::Merge]) {
        let mut write = || -> Result<()> {
            let mut batch = writer.batch(SortOptions::within(1 << 20))?;
            batch.push(b"key 1", Some(b"another"))?;
            let facts = VersionFacts { id, ..VersionFacts::default() };
            let number = writer.write(batch, mode, facts, &Watch::default())?.name.number;
            writer.report(number, &gates)?;
            writer.publish(number)
        };
        told(write());
        told(writer.roll_back().map(|_| ()));
    }
    told(writer.repair(2, Path::new("copy"), &Watch::default()).map(|_| ()));
    let rules =
        Retention { keep: 0, age_s_min: 0, now_s: 0, free_bytes_min: 0, unpublished_age_s_min: 0 };
    writer.collect(&rules, &Watch::default()).map(|_| ())
}
