//! Files of quotient filters that are truncated, flipped or forged, or of another kind.

use crate::quotient::counts;
use hashfold::{
    ErrorClass, ErrorKind, KeyHash, Seed,
    filter::{
        Mode,
        quotient::{QuotientFilter, QuotientOptions, QuotientView},
    },
    fingerprints::{FingerprintBatch, Fingerprints},
    io::{
        ALIGNMENT, Access, Disk, Fault, FaultyDisk, MemoryDisk, OsDisk,
        frame::{FileKind, Footer, Header},
        read_all,
    },
};
use std::path::Path;

const PATH: &str = "seen.filter";

fn path() -> &'static Path {
    Path::new(PATH)
}

fn sample(mode: Mode) -> QuotientFilter {
    let options = QuotientOptions { mode, ..QuotientOptions::new(3000, 1e-3, Seed(3)) };
    let mut filter = QuotientFilter::new(&options).unwrap();
    for i in 0..2200_u32 {
        filter.insert_key(&(i % 2000).to_le_bytes()).unwrap();
    }
    for _ in 0..10 {
        filter.insert_key(b"often").unwrap();
        filter.insert_key(b"and again").unwrap();
    }
    filter
}

fn saved(filter: &QuotientFilter) -> Vec<u8> {
    let disk = MemoryDisk::default();
    filter.save(&disk, path(), 5).unwrap();
    read_all(&*disk.open(path(), Access::Cached).unwrap(), 1 << 30).unwrap().to_vec()
}

fn disk_with(bytes: &[u8]) -> MemoryDisk {
    let disk = MemoryDisk::default();
    disk.create(path(), Access::Cached).unwrap().write_at(0, bytes).unwrap();
    disk
}

fn open(bytes: &[u8]) -> hashfold::Result<QuotientView> {
    QuotientView::open(&disk_with(bytes), path(), Access::Mapped)
}

fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state ^ state >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Runs every query on a damaged filter. Each must return.
fn ask(view: &QuotientView) {
    let mut random = random(1);
    let hashes: Vec<KeyHash> =
        (0..300).map(|_| KeyHash::from_bits(u128::from(random()) << 64)).collect();
    let (mut found, mut counts) = (vec![false; hashes.len()], vec![0; hashes.len()]);
    view.contains_batch(&hashes, &mut found);
    view.count_batch(&hashes, &mut counts);
    let mut run = view.scan();
    let mut batch = FingerprintBatch::new();
    let mut batches = 0_u64;
    while let Ok(true) = run.append_to(&mut batch) {
        batches += 1;
        assert!(batches < 10_000);
    }
}

/// Changes a filter in every way.
fn use_up(filter: &mut QuotientFilter) {
    let mut random = random(8);
    let hashes: Vec<KeyHash> =
        (0..1000).map(|_| KeyHash::from_bits(u128::from(random()) << 64)).collect();
    let mut flags = vec![false; hashes.len()];
    let _ = filter.insert_batch(&hashes, &mut flags);
    filter.remove_batch(&hashes[..900], &mut flags[..900]);
    filter.grow().unwrap();
    filter.shrink().unwrap();
}

#[test]
fn files_that_were_cut_short_are_refused() {
    let bytes = saved(&sample(Mode::Multiset));
    for len in (0..bytes.len()).step_by(97).chain([bytes.len() - 1]) {
        let error = open(&bytes[..len]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Truncated { .. }), "{len}: {error}");
    }
}

#[test]
fn a_flipped_bit_is_noticed_and_harmless() {
    for mode in [Mode::Set, Mode::Multiset] {
        let good = saved(&sample(mode));
        assert!(open(&good).unwrap().verify().unwrap().is_sound());
        let mut random = random(2);
        for _ in 0..3000 {
            let bit = random() as usize % (good.len() * 8);
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let error = match open(&bad) {
                Ok(view) => {
                    ask(&view);
                    view.verify().unwrap().damage.remove(0)
                }
                Err(error) => error,
            };
            assert_eq!(error.class(), ErrorClass::Damage, "bit {bit}: {error}");
            assert!(error.to_string().starts_with(PATH), "{error}");
        }
    }
}

/// Bytes with valid checksums that this library never writes.
#[test]
fn forged_blocks_are_refused_or_sound() {
    for mode in [Mode::Set, Mode::Multiset] {
        let good = saved(&sample(mode));
        let mut random = random(6);
        for round in 0..400 {
            let mut bad = good.clone();
            let footer = bad.len() - ALIGNMENT;
            for _ in 0..=random() % 40 {
                let at = ALIGNMENT + random() as usize % (footer - ALIGNMENT);
                bad[at] = match round % 3 {
                    0 => 0,
                    1 => 0xff,
                    _ => random() as u8,
                };
            }
            if round % 50 == 0 {
                bad[ALIGNMENT..footer].fill(random() as u8 | 1);
            }
            if bad == good {
                continue;
            }
            let fields = Footer::read(&*disk_with(&bad).open(path(), Access::Cached).unwrap());
            let mut footer_of = fields.unwrap().0;
            footer_of.body_sum = hashfold::checksum::crc32c(&bad[ALIGNMENT..footer]);
            let encoded = footer_of.encode(footer as u64);
            bad[footer..].copy_from_slice(&encoded);
            let view = open(&bad).unwrap();
            ask(&view);
            match view.to_memory() {
                // Another remainder in the right order makes another valid filter.
                Ok(mut filter) => use_up(&mut filter),
                Err(error) => assert_eq!(error.class(), ErrorClass::Damage, "{error}"),
            }
        }
    }
}

#[test]
fn forged_fields_are_refused() {
    let good = saved(&sample(Mode::Multiset));
    let footer_start = good.len() - ALIGNMENT;
    let (footer, _) =
        Footer::read(&*disk_with(&good).open(path(), Access::Cached).unwrap()).unwrap();
    for field in 0..footer.fields.len() / 8 {
        for value in [0, 1, 2, 63, 64, 1 << 20, 1 << 40, 1 << 58, u64::MAX / 2, u64::MAX] {
            let mut forged = footer.clone();
            forged.fields[8 * field..][..8].copy_from_slice(&u64::to_le_bytes(value));
            if forged == footer {
                continue;
            }
            let mut bad = good[..footer_start].to_vec();
            bad.extend(forged.encode(footer_start as u64));
            if let Ok(view) = open(&bad) {
                ask(&view);
                // Values that the caller chose cannot be checked.
                let free = [4, 8].contains(&field);
                assert!(free || !view.verify().unwrap().is_sound(), "field {field}: {value}");
            }
        }
    }
}

#[test]
fn files_of_another_kind_or_version_are_refused() {
    let good = saved(&sample(Mode::Set));
    let mut other = Header::new(FileKind::Manifest, Seed(3), 5).encode().to_vec();
    other.extend(&good[ALIGNMENT..]);
    let error = open(&other).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::FileKind { expected: "quotient filter", .. }),
        "{error}"
    );
    let header = Header { version: 2, ..Header::new(FileKind::Quotient, Seed(3), 5) };
    let mut other = header.encode().to_vec();
    other.extend(&good[ALIGNMENT..]);
    let error = open(&other).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Version { got: 2, .. }), "{error}");
}

#[test]
fn a_file_of_another_seed_says_so_and_does_not_merge() {
    let filter = sample(Mode::Set);
    let header = Header::new(FileKind::Quotient, Seed(4), 5).encode();
    let mut other = header.to_vec();
    other.extend(&saved(&filter)[ALIGNMENT..]);
    let view = open(&other).unwrap();
    assert_eq!(view.seed(), Seed(4));
    let error = filter.merge(&view).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WrongSeed { .. }), "{error}");
}

/// A power cut at every write leaves the old filter or the new one.
#[test]
fn a_crash_leaves_the_old_file_or_the_new_one() {
    let (old, new) = (sample(Mode::Set), sample(Mode::Multiset));
    let before = MemoryDisk::default();
    old.save(&before, path(), 1).unwrap();
    for stop in 0..40 {
        let disk = FaultyDisk::over(&before, Fault::PowerCut { operation: stop }.into());
        let saved = new.save(&disk, path(), 2);
        for seed in 0..5 {
            let disk = disk.after_power_cut(seed);
            let view = QuotientView::open(&disk, path(), Access::Cached).unwrap();
            assert!(view.verify().unwrap().is_sound());
            let expected = if view.id() == 1 { &old } else { &new };
            assert_eq!(counts(&mut view.scan()), counts(&mut expected.scan()));
            assert!(view.id() == 2 || saved.is_err());
        }
        if saved.is_ok() {
            return;
        }
    }
    panic!("saving takes more steps than expected");
}

/// Lookups of a view check nothing, so a cut file may give wrong answers, but neither a signal nor a
/// panic, and `verify` finds it.
#[test]
fn a_mapped_filter_that_is_cut_is_found_by_verify() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join(PATH);
    sample(Mode::Multiset).save(&OsDisk, &path, 5).unwrap();
    let view = QuotientView::open(&OsDisk, &path, Access::Mapped).unwrap();
    assert!(view.verify().unwrap().is_sound());
    let file = OsDisk.open_to_write(&path, Access::Cached).unwrap();
    file.descriptor().unwrap().set_len(0).unwrap();
    let found = (0..5000_u32).filter(|i| view.contains_key(&i.to_le_bytes())).count();
    assert!(found <= 5000);
    assert!(!view.verify().unwrap().is_sound());
}
