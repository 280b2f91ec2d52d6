//! The files of a map, changed with right checksums.

use crate::{
    forge::{EDIT_SIZE, change_bytes, read_below, seal_header},
    wal::{HEAD_SIZE, USED, seal_batches},
};
use hashfold::{
    Env, ErrorClass, ErrorKind, KeyHash, Result,
    checksum::crc32c,
    io::{ALIGNMENT, Access, Disk, MemoryDisk, OsDisk, Seal, frame::Footer},
    manifest::Manifest,
    map::{self, Map, MapOptions},
    run::Run,
    work::Watch,
};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
};

const FOLDER: &str = "map";
/// The kind of a block of a large value.
const LARGE: u8 = 3;
/// Size of the head of such a block, in bytes.
const LARGE_HEAD: usize = 32;
/// Size of the place of a short part, in bytes.
const PLACE: usize = 22;

type Files = Vec<(PathBuf, Vec<u8>)>;

/// The golden maps, file by file: of each version one without and one with entries that expire; and two
/// with a record whose changes are in blocks of their own, one of them with a list of these.
fn golden() -> &'static [Files; 6] {
    static GOLDEN: LazyLock<[Files; 6]> = LazyLock::new(|| {
        let home = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/hashfold/tests/golden");
        let of_version_2 =
            ["map", "expiring", "long", "spilled"].map(|name| format!("map-v2/{name}"));
        let [a, b, c, d] = of_version_2;
        ["map-v1/map".into(), "map-v1/expiring".into(), a, b, c, d]
            .map(|name: String| read_below(&OsDisk, &Path::new(home).join(name), Path::new("")))
    });
    &GOLDEN
}

/// Returns a golden map with its files changed: a catalog, a block, the log or the manifest. The number
/// of bytes after the last edit chooses the map.
fn changed(bytes: &[u8]) -> Files {
    let mut files = golden()[bytes.len() % EDIT_SIZE % 6].clone();
    let id = manifest_of(&files).id;
    for edit in bytes.chunks_exact(EDIT_SIZE) {
        let prefix =
            ["catalog-", "catalog-", "map-data", "map-data", "wal-"][usize::from(edit[0]) % 5];
        let is_it =
            |(path, _): &&mut (PathBuf, Vec<u8>)| path.to_string_lossy().starts_with(prefix);
        let Some((path, content)) = files.iter_mut().find(is_it) else { continue };
        match prefix {
            "catalog-" => change_catalog(content, edit),
            "map-data" => change_block(content, id, edit),
            _ => {
                let number =
                    path.to_string_lossy().rsplit('-').next().and_then(|it| it.parse().ok());
                content.truncate(USED);
                let batches = content.len() / ALIGNMENT - 1;
                let batch = (1 + usize::from(edit[1]) % batches) * ALIGNMENT;
                let (from, len) = if edit[1] < 64 { (4, HEAD_SIZE - 4) } else { (HEAD_SIZE, 64) };
                change_bytes(&mut content[batch + from..batch + from + len], edit);
                seal_batches(content, id, number.unwrap_or(0));
            }
        }
    }
    with_sizes(&files)
}

/// Changes the body or the fields of a catalog.
fn change_catalog(content: &mut Vec<u8>, edit: &[u8]) {
    let tail = content.len() - 24;
    let fields_size = u32::from_le_bytes(*content[tail..].first_chunk().expect("4 bytes")) as usize;
    let footer_size = (fields_size + 24).next_multiple_of(ALIGNMENT);
    let mut fields = content[tail - fields_size..tail].to_vec();
    content.truncate(content.len() - footer_size);
    match edit[1] % 8 {
        0 => change_bytes(&mut fields, edit),
        1 => change_bytes(&mut content[16..32], edit),
        _ => {
            let len = fields.get(8..16).and_then(|size| size.first_chunk());
            let len = len.map_or(0, |size| u64::from_le_bytes(*size)) as usize;
            let body = &mut content[ALIGNMENT..];
            let len = len.min(body.len());
            change_bytes(&mut body[..len], edit);
        }
    }
    seal_header(content);
    let body_sum = crc32c(&content[ALIGNMENT..]);
    content.extend(Footer { fields, body_sum }.encode(content.len() as u64));
}

/// Changes a block, and seals it as the write that it belongs to.
fn change_block(content: &mut [u8], id: u64, edit: &[u8]) {
    let blocks = content.len() / ALIGNMENT;
    let number = 1 + usize::from(edit[1]) % (blocks - 1);
    let block = &mut content[number * ALIGNMENT..][..ALIGNMENT];
    let write = u64::from_le_bytes(*block[16..].first_chunk().expect("8 bytes"));
    let len = if edit[1].is_multiple_of(2) { 64 } else { ALIGNMENT };
    match (block[4], edit[2] % 2) {
        // A list of parts names one of its first parts again.
        (LARGE, 0) => {
            let [from, to] = [edit[3], edit[4]].map(|i| LARGE_HEAD + usize::from(i) % 80 * PLACE);
            block.copy_within(from..from + PLACE, to);
        }
        _ => change_bytes(&mut block[4..len], edit),
    }
    Seal { number: number as u64, file_id: id, epoch: write }.put(block);
}

fn on_disk(files: &Files) -> Arc<dyn Disk> {
    let disk = MemoryDisk::default();
    disk.create_folder(Path::new(FOLDER)).expect("RAM does not fail");
    for (path, content) in files {
        let file = disk.create(&Path::new(FOLDER).join(path), Access::Cached);
        file.and_then(|file| file.write_at(0, content)).expect("RAM does not fail");
    }
    Arc::new(disk)
}

fn manifest_of(files: &Files) -> Manifest {
    Manifest::read(&*on_disk(files), Path::new(FOLDER)).expect("it is the golden manifest")
}

/// Returns the files with a manifest that has their sizes.
fn with_sizes(files: &Files) -> Files {
    let disk = on_disk(files);
    let mut manifest = manifest_of(files);
    for entry in &mut manifest.files {
        let file = files.iter().find(|(path, _)| *path == Path::new(&entry.name));
        entry.size = file.map_or(0, |(_, content)| content.len() as u64);
    }
    manifest.publish(&*disk, Path::new(FOLDER)).expect("RAM does not fail");
    read_below(&*disk, Path::new(FOLDER), Path::new(""))
}

/// A map whose catalog, blocks and log are changed, with right checksums as far as they can be
/// followed.
pub fn map(bytes: &[u8]) {
    let env = Env { disk: on_disk(&changed(bytes)), ..Env::simulated(1) };
    let used = use_map(&env);
    if let Err(error) = used {
        assert_eq!(error.class(), ErrorClass::Damage, "{error}");
    }
}

/// A map that is changed as [`map`] changes it, of which files may be missing. All that is left can be
/// read, and is a map.
pub fn salvage(bytes: &[u8]) {
    let Some((missing, edits)) = bytes.split_first() else { return };
    let mut files = changed(edits);
    let prefixes = ["MANIFEST", "catalog-", "map-data", "wal-"];
    files.retain(|(path, _)| {
        let is_it = |prefix: &&str| path.to_string_lossy().starts_with(*prefix);
        let place = prefixes.iter().position(is_it);
        place.is_none_or(|place| missing >> place & 1 == 0)
    });
    let env = Env { disk: on_disk(&files), ..Env::simulated(1) };
    if let Err(error) = use_remains(&env) {
        let is_lost = error.is_absent() || error.class() == ErrorClass::Damage;
        // A log alone passes for that of a filter.
        let is_log = files.iter().all(|(path, _)| path.to_string_lossy().starts_with("wal-"));
        let is_other = matches!(error.kind(), ErrorKind::WrongKind { .. });
        assert!(is_lost || is_log && is_other, "{error}");
    }
}

/// A map on two devices, with these bytes as the fields of the file that says which device a folder is:
/// the first byte chooses the folder.
pub fn map_device(bytes: &[u8]) {
    let Some((first, fields)) = bytes.split_first() else { return };
    let home =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/hashfold/tests/golden/map-v2/devices");
    let disk = MemoryDisk::default();
    for folder in ["map", "device"] {
        disk.create_folder(Path::new(folder)).expect("RAM does not fail");
        for (path, mut content) in read_below(&OsDisk, &Path::new(home).join(folder), Path::new(""))
        {
            let is_chosen = (folder == "map") == first.is_multiple_of(2);
            if is_chosen && path == Path::new("map-device") {
                content.truncate(ALIGNMENT);
                let footer = Footer { fields: fields.to_vec(), body_sum: 0 };
                content.extend(footer.encode(ALIGNMENT as u64));
            }
            let file = disk.create(&Path::new(folder).join(path), Access::Cached);
            file.and_then(|file| file.write_at(0, &content)).expect("RAM does not fail");
        }
    }
    let env = Env { disk: Arc::new(disk), ..Env::simulated(1) };
    if let Err(error) = use_remains(&env).and_then(|()| use_map(&env)) {
        assert_eq!(error.class(), ErrorClass::Damage, "{error}");
    }
}

fn use_remains(env: &Env) -> Result<()> {
    let options = MapOptions::new().env(env.clone()).memory(map::MAP_MEMORY_MIN);
    let watch = Watch::default();
    let mut run = map::salvage(FOLDER, "spill", options.clone(), &watch)?;
    let mut count = 0;
    while run.advance()? {
        count += u64::from(run.entry().value.is_some());
    }
    run.losses().iter().for_each(|loss| assert!(!loss.to_string().is_empty()));
    drop(run);
    let mut run = map::salvage(FOLDER, "spill", options.clone(), &watch)?;
    assert_eq!(run.write_map("new", &watch)?, count);
    let report = Map::open_with("new", options)?.verify(&watch)?;
    assert!(report.is_sound() && report.figures.entries == count, "{:?}", report.damage);
    Ok(())
}

/// Reads and changes a map. Damage may stop any step.
fn use_map(env: &Env) -> Result<()> {
    map::verify(env, Path::new(FOLDER), &Watch::default())?;
    let map = Map::open_with(FOLDER, MapOptions::new().env(env.clone()))?;
    let _ = map.stat();
    for i in 0..20 {
        // Damage of one block says nothing about the others.
        let _ = map.get(format!("key {}", i * 150));
        map.put(format!("key {i}"), "new")?;
    }
    let mut scan = map.snapshot().scan();
    while scan.advance()? {}
    map.entries_from(KeyHash::from_bits(1 << 120), 10)?;
    map.count()?;
    map.compact()?;
    map.clear()?;
    assert_eq!(map.count()?, 0);
    Ok(())
}
