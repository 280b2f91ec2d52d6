//! The files of a cascade filter, changed with right checksums, and a filter compared with a map.

use crate::{
    forge::{EDIT_SIZE, change_bytes, read_below, reframed},
    wal::{HEAD_SIZE, USED, seal_batches},
};
use hashfold::{
    Env, Error, KeyHash, Result, Seed,
    checksum::crc32c,
    filter::{
        Mode,
        cascade::{self, CascadeFilter, CascadeOptions, CascadeSettings, Snapshot},
    },
    fingerprints::{FingerprintBatch, Fingerprints, Universe},
    io::{ALIGNMENT, Access, Disk, MemoryDisk, OsDisk, Seal, frame::FileKind},
    manifest::Manifest,
    work::Watch,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
};

const FOLDER: &str = "filter";
/// The id of the golden filters.
const ID: u64 = 0x600d;
/// Number of keys of the model.
const KEYS: u64 = 256;

type Files = Vec<(PathBuf, Vec<u8>)>;

/// The golden set and the golden multiset, file by file.
fn goldens() -> &'static [Files; 2] {
    static GOLDENS: LazyLock<[Files; 2]> = LazyLock::new(|| {
        let home =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/hashfold/tests/golden/cascade-v1");
        ["set", "multiset"]
            .map(|name| read_below(&OsDisk, &Path::new(home).join(name), Path::new("")))
    });
    &GOLDENS
}

/// A golden filter with one file changed: the first byte chooses the filter, and the file among
/// those whose names start with `role`.
fn with_changed(
    prefix: &str,
    bytes: &[u8],
    change: impl FnOnce(&mut Vec<u8>, u64, &[u8]),
) -> Option<Arc<dyn Disk>> {
    let (choice, rest) = bytes.split_first()?;
    let mut files = goldens()[usize::from(choice % 2)].clone();
    let is_one = |(path, _): &&mut (PathBuf, Vec<u8>)| path.to_string_lossy().starts_with(prefix);
    let mut found: Vec<_> = files.iter_mut().filter(is_one).collect();
    let chosen = usize::from(choice / 2) % found.len();
    let (path, content) = &mut *found[chosen];
    let number = path.to_string_lossy().rsplit('-').next().and_then(|it| it.parse().ok());
    change(content, number.unwrap_or(0), rest);
    let disk = MemoryDisk::default();
    disk.create_folder(Path::new(FOLDER)).expect("RAM does not fail");
    for (path, content) in files {
        let file = disk.create(&Path::new(FOLDER).join(path), Access::Cached);
        file.and_then(|file| file.write_at(0, &content)).expect("RAM does not fail");
    }
    Some(Arc::new(disk))
}

fn number_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |it| u64::from_le_bytes(*it))
}

/// A run of blocks and an index that are changed, with right checksums.
pub fn filter_run(bytes: &[u8]) {
    let disk = with_changed("run-", bytes, |content, number, edits| {
        *content = reframed(content, FileKind::FilterRun, |header, body, fields| {
            let blocks = number_at(fields, 8) as usize;
            for edit in edits.chunks_exact(EDIT_SIZE) {
                let (packed, index) = body.split_at_mut(blocks * ALIGNMENT);
                let bytes = match edit[0] % 8 {
                    0 => &mut header[8..32],
                    1 | 2 => &mut fields[..],
                    3 => index,
                    _ => packed,
                };
                change_bytes(bytes, edit);
            }
            seal_run(body, blocks, number, fields);
        });
    });
    disk.iter().for_each(use_filter);
}

/// A run whose first block is these bytes.
pub fn filter_block(bytes: &[u8]) {
    let disk = with_changed("run-", bytes, |content, number, block| {
        *content = reframed(content, FileKind::FilterRun, |_, body, fields| {
            let blocks = number_at(fields, 8) as usize;
            let len = block.len().min(ALIGNMENT - 4);
            body[4..ALIGNMENT].fill(0);
            body[4..4 + len].copy_from_slice(&block[..len]);
            // The first bits of the first fingerprint, if they can be read.
            let (bucket, low_bits) = (number_at(body, 8), u32::from(body[16]));
            let first = bucket.checked_shl(low_bits).unwrap_or(0);
            let shift = (64 - number_at(fields, 0).leading_zeros()).saturating_sub(32);
            let prefix = ((first >> shift) as u32).to_le_bytes();
            body[blocks * ALIGNMENT..][..4].copy_from_slice(&prefix);
            seal_run(body, blocks, number, fields);
        });
    });
    disk.iter().for_each(use_filter);
}

fn seal_run(body: &mut [u8], blocks: usize, number: u64, fields: &mut [u8]) {
    let (packed, index) = body.split_at_mut(blocks * ALIGNMENT);
    for (i, block) in packed.chunks_exact_mut(ALIGNMENT).enumerate() {
        Seal::of(i as u64, ID.wrapping_add(number)).put(block);
    }
    let end = fields.len().min(44);
    fields[end - 4..end].copy_from_slice(&crc32c(index).to_le_bytes());
}

/// A log whose records are changed, with right checksums as far as the batches can be followed.
pub fn filter_log(bytes: &[u8]) {
    let disk = with_changed("wal-", bytes, |content, number, edits| {
        content.truncate(USED);
        for edit in edits.chunks_exact(EDIT_SIZE) {
            let batch = (1 + usize::from(edit[1]) % (USED / ALIGNMENT - 1)) * ALIGNMENT;
            match edit[0] % 4 {
                0 => change_bytes(&mut content[batch + 4..batch + HEAD_SIZE], edit),
                _ => change_bytes(&mut content[batch + HEAD_SIZE..batch + HEAD_SIZE + 16], edit),
            }
        }
        seal_batches(content, ID, number);
    });
    disk.iter().for_each(use_filter);
}

/// A manifest whose attribute is changed, or is these bytes.
pub fn filter_manifest(bytes: &[u8]) {
    let Some((how, edits)) = bytes.get(1..).and_then(<[u8]>::split_first) else { return };
    let disk = with_changed("MANIFEST", bytes, |content, _, _| {
        *content = reframed(content, FileKind::Manifest, |header, _, fields| {
            for edit in edits.chunks_exact(EDIT_SIZE) {
                match edit[0] % 8 {
                    0 => change_bytes(&mut header[8..32], edit),
                    _ => change_bytes(fields, edit),
                }
            }
        });
    });
    let Some(disk) = disk else { return };
    let folder = Path::new(FOLDER);
    if how % 4 == 0
        && let Ok(mut manifest) = Manifest::read(disk.as_ref(), folder)
    {
        let attribute = manifest.attributes.iter_mut().find(|(name, _)| name == "cascade");
        attribute.into_iter().for_each(|(_, value)| *value = edits.to_vec());
        manifest.publish(disk.as_ref(), folder).expect("RAM does not fail");
    }
    use_filter(&disk);
}

/// Checks that an error can be printed and is not a caught panic.
fn checked<T>(result: Result<T>) -> Option<T> {
    let tell = |error: Error| assert!(!error.to_string().contains("panic"), "{error}");
    result.map_err(tell).ok()
}

fn hashes(keys: u64, seed: Seed) -> Vec<KeyHash> {
    (0..keys).map(|key| KeyHash::of(&key.to_le_bytes(), seed)).collect()
}

/// Runs every operation on a filter.
fn use_filter(disk: &Arc<dyn Disk>) {
    let folder = Path::new(FOLDER);
    checked(read(disk));
    let report = checked(cascade::verify(&Env::on(disk.clone()), folder, &Watch::default()));
    for error in report.into_iter().flat_map(|report| report.damage) {
        checked::<()>(Err(error));
    }
    checked(write(disk));
}

fn read(disk: &Arc<dyn Disk>) -> Result<()> {
    let snapshot = Snapshot::open(&Env::on(disk.clone()), Path::new(FOLDER), Access::Cached)?;
    assert!(snapshot.stats().bits_per_fingerprint() >= 0.0);
    assert!(snapshot.stats().false_positive_rate() >= 0.0);
    let hashes = hashes(KEYS, snapshot.seed());
    let mut counts = vec![0; hashes.len()];
    let many = checked(snapshot.count_batch(&hashes, &mut counts));
    for (hash, count) in hashes.iter().zip(counts).step_by(7) {
        let found = checked(snapshot.contains(*hash));
        assert!(many.is_none() || found == Some(count > 0));
    }
    let (mut scan, mut batch) = (snapshot.scan()?, FingerprintBatch::new());
    while scan.append_to(&mut batch)? {
        assert!(!batch.is_empty());
        batch.clear();
    }
    Ok(())
}

fn settings(log: bool) -> CascadeSettings {
    CascadeSettings {
        memory_bytes: cascade::MEMORY_MIN,
        wal: log,
        ..CascadeSettings::new(Env::simulated(1))
    }
}

fn write(disk: &Arc<dyn Disk>) -> Result<()> {
    let mut filter = CascadeFilter::open(Path::new(FOLDER), on(disk.clone(), settings(true)))?;
    let hashes = hashes(KEYS, filter.seed());
    let half = hashes.len() / 2;
    checked(filter.insert_batch(&hashes[..half]));
    checked(filter.remove_batch(&hashes[half..]));
    checked(filter.sync());
    let mut is_new = vec![false; hashes.len()];
    checked(filter.insert_unique_batch(&hashes, &mut is_new));
    checked(filter.flush());
    checked(filter.merge());
    checked(filter.advance_epoch());
    checked(filter.expire_before(filter.epoch()));
    checked(filter.merge());
    assert!(filter.durable_seq() <= filter.seq());
    filter.close()
}

/// Runs the operations that these bytes encode, two bytes each, and compares the filter with a map
/// after each opening.
pub fn filter_model(bytes: &[u8]) {
    let Some((options, acts)) = bytes.split_first() else { return };
    let mode = if options % 2 == 0 { Mode::Set } else { Mode::Multiset };
    let log = options / 2 % 2 == 0;
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let universe = if options / 4 % 2 == 0 { 1 << 64 } else { 1 << 45 };
    let universe = Universe::with_size(universe).expect("it is in range");
    let options = CascadeOptions { mode, universe, ..CascadeOptions::exact(Seed(1), ID) };
    let folder = Path::new(FOLDER);
    let made = CascadeFilter::create(folder, &options, on(disk.clone(), settings(log)));
    let mut filter = made.expect("RAM does not fail");
    let mut counts = BTreeMap::new();
    let hashes = hashes(KEYS, Seed(1));
    for act in acts.chunks_exact(2) {
        if act[0] % 16 == 0 {
            filter.sync().expect("RAM does not fail");
            drop(filter);
            let opened = CascadeFilter::open(folder, on(disk.clone(), settings(log)));
            filter = opened.expect("it was synced");
            check(&mut filter, &hashes, &counts);
        } else {
            perform(&mut filter, mode, act, &hashes, &mut counts);
        }
    }
    check(&mut filter, &hashes, &counts);
}

fn perform(
    filter: &mut CascadeFilter,
    mode: Mode,
    act: &[u8],
    hashes: &[KeyHash],
    counts: &mut BTreeMap<u8, u64>,
) {
    let key = act[1];
    let hash = hashes[usize::from(key)];
    let count = counts.entry(key).or_default();
    let result = match act[0] % 16 {
        1 => filter.flush(),
        2 => filter.merge(),
        3 => filter.sync(),
        4 => filter.advance_epoch().map(drop),
        5 => filter.insert_unique(hash).map(|is_new| {
            assert_eq!(is_new, *count == 0);
            *count = (*count).max(1);
        }),
        6..9 if mode == Mode::Set || *count > 0 => {
            *count = count.saturating_sub(1);
            filter.remove(hash)
        }
        _ => {
            *count = if mode == Mode::Set { 1 } else { *count + 1 };
            filter.insert(hash)
        }
    };
    result.expect("RAM does not fail");
}

fn check(filter: &mut CascadeFilter, hashes: &[KeyHash], expected: &BTreeMap<u8, u64>) {
    let expected: Vec<u64> =
        (0..=u8::MAX).map(|key| expected.get(&key).copied().unwrap_or(0)).collect();
    let mut counts = vec![0; hashes.len()];
    filter.count_batch(hashes, &mut counts).expect("RAM does not fail");
    assert_eq!(counts, expected);
    let snapshot = filter.snapshot().expect("RAM does not fail");
    snapshot.count_batch(hashes, &mut counts).expect("RAM does not fail");
    assert_eq!(counts, expected);
}

fn on(disk: Arc<dyn Disk>, settings: CascadeSettings) -> CascadeSettings {
    CascadeSettings { env: Env { disk, ..settings.env }, ..settings }
}
