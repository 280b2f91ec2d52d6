//! Salvages of maps with damaged, missing and unreadable parts, against what was in the map.

use super::*;
use crate::{
    env::Env,
    error::{ErrorKind, Result},
    io::{Access, BlockFile, Disk, Fault, FaultyDisk, MemoryDisk},
    key::KeyHash,
    map::{
        Durability, Map, MapOptions, Write,
        block::{BLOCK_SIZE, Block, BlockKind},
        checkpoint::Goal,
        maintain, options,
        tests::{Model, Numbers, SEED, check, folder, tiny},
    },
    run::Run,
    work::Watch,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

const KEYS: u32 = 150;

fn options(disk: &MemoryDisk) -> MapOptions {
    let env = Env { disk: Arc::new(disk.clone()), ..Env::simulated(1) };
    tiny(env).durability(Durability::Buffered)
}

/// The contents that a map had.
#[derive(Default)]
struct History {
    model: Model,
    /// All values that each key had.
    values: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>,
    /// Keys that changed since the last checkpoint.
    logged: BTreeSet<Vec<u8>>,
}

impl History {
    fn change(&mut self, map: &Map, random: &mut Numbers) {
        let key = random.key(KEYS);
        self.logged.insert(key.clone());
        if random.below(5) == 0 {
            map.delete(&key).unwrap();
            self.model.remove(&key);
            return;
        }
        self.put(map, key, random.value());
    }

    fn put(&mut self, map: &Map, key: Vec<u8>, value: Vec<u8>) {
        map.put(&key, &value).unwrap();
        self.values.entry(key.clone()).or_default().insert(value.clone());
        self.model.insert(key, value);
    }
}

/// Makes a map with spans, packets, large values and changes that only the log has.
fn make(seed: u64) -> (MemoryDisk, History) {
    let disk = MemoryDisk::default();
    let attributes = vec![("name".to_owned(), b"value".to_vec())];
    let map = Map::create(folder(), options(&disk).attributes(attributes)).unwrap();
    let mut random = Numbers::new(seed);
    let mut history = History::default();
    history.put(&map, b"large".to_vec(), vec![1; 9000]);
    history.put(&map, b"also large".to_vec(), vec![2; 2000]);
    for count in [250, 40] {
        (0..count).for_each(|_| history.change(&map, &mut random));
        if count > 100 {
            map.compact().unwrap();
        } else {
            map.checkpoint().unwrap();
        }
        history.logged.clear();
    }
    // Several batches in the log.
    for _ in 0..4 {
        (0..5).for_each(|_| history.change(&map, &mut random));
        map.sync().unwrap();
    }
    (disk, history)
}

/// Returns a copy of a disk.
fn copy(disk: &MemoryDisk) -> MemoryDisk {
    FaultyDisk::over(disk, crate::io::FaultPlan::default()).snapshot()
}

/// Returns what is left of the map on a disk.
#[track_caller]
fn left(disk: &MemoryDisk) -> Result<(Model, Vec<Loss>)> {
    let mut run = salvage(folder(), "spill", options(disk), &Watch::default())?;
    let mut found = Model::new();
    let mut last = None;
    while run.advance()? {
        let entry = run.entry();
        assert!(last < Some((entry.hash, entry.key.to_vec())), "entries ascend");
        last = Some((entry.hash, entry.key.to_vec()));
        found.insert(entry.key.to_vec(), entry.value.unwrap().to_vec());
    }
    let summary = run.summary();
    assert!(summary.entries_max >= found.len() as u64);
    assert!(found.values().all(|value| value.len() as u64 <= summary.values.max));
    Ok((found, run.losses().to_vec()))
}

/// Checks that keys have their newest values, except for the excused ones, which have old values or
/// none. `may_come_back` says that deleted keys may have old values, too.
#[track_caller]
fn check_left(
    (found, losses): &(Model, Vec<Loss>),
    history: &History,
    excused: &BTreeSet<Vec<u8>>,
    may_come_back: bool,
    moment: &str,
) {
    for (key, value) in &history.model {
        let is_right = found.get(key) == Some(value) || excused.contains(key);
        assert!(is_right, "{moment}: {key:?}: {losses:?}");
    }
    for (key, value) in found {
        assert!(history.values[key].contains(value), "{moment}: {key:?} never had this value");
        let is_right = history.model.get(key) == Some(value)
            || excused.contains(key)
            || may_come_back && !history.model.contains_key(key);
        assert!(is_right, "{moment}: {key:?}: {losses:?}");
    }
    assert!(losses.iter().all(|loss| !loss.to_string().is_empty()));
}

/// Checks that losses are reported if there are some.
#[track_caller]
fn check_reported((found, losses): &(Model, Vec<Loss>), history: &History, moment: &str) {
    assert!(!losses.is_empty() || *found == history.model, "{moment}: a loss is not reported");
}

fn bytes_of(file: &dyn BlockFile) -> Vec<u8> {
    crate::io::read_all(file, u64::MAX).unwrap().to_vec()
}

/// Returns the keys with entries in a block of the data file; all large ones for a block of a value.
fn keys_in(bytes: &[u8], number: u64, id: u64, history: &History) -> BTreeSet<Vec<u8>> {
    let Some(id) = found::id_of(bytes, number, id) else { return BTreeSet::new() };
    if id.kind == BlockKind::Large {
        let is_large = |(_, value): &(&Vec<u8>, &Vec<u8>)| value.len() > 1024;
        return history.model.iter().filter(is_large).map(|(key, _)| key.clone()).collect();
    }
    let Ok(block) = Block::decode(bytes, id) else { return BTreeSet::new() };
    (0..block.count).map(|i| block.entry(i, SEED).unwrap().key.to_vec()).collect()
}

/// Flips a bit in every `step`-th byte of each file, and in all bytes of the heads of blocks.
fn check_flipped_bits(seed: u64, step: usize) {
    let (disk, history) = make(seed);
    let none = BTreeSet::new();
    let id = crate::manifest::Manifest::read(&disk, folder()).unwrap().id;
    let (mut flips, mut reported) = (0, 0);
    for name in disk.list(folder()).unwrap() {
        let file = disk.open_to_write(&folder().join(&name), Access::Cached).unwrap();
        let bytes = bytes_of(&*file);
        let is_tried = |at: &usize| at.is_multiple_of(step) || step < 200 && at % BLOCK_SIZE < 32;
        // The rest of a segment is zeros.
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        for at in (0..used).filter(is_tried) {
            file.write_at(at as u64, &[bytes[at] ^ 1 << (at % 8)]).unwrap();
            let moment = format!("{name} at {at}");
            let found = left(&disk).unwrap();
            let number = at / BLOCK_SIZE;
            let block = &bytes[number * BLOCK_SIZE..][..BLOCK_SIZE];
            match &*name {
                "map-data" => {
                    let excused = keys_in(block, number as u64, id, &history);
                    check_left(&found, &history, &excused, false, &moment);
                }
                name if name.starts_with("wal-") => {
                    check_left(&found, &history, &history.logged, false, &moment);
                }
                _ => check_left(&found, &history, &none, true, &moment),
            }
            check_reported(&found, &history, &moment);
            flips += 1;
            reported += usize::from(!found.1.is_empty());
            file.write_at(at as u64, &bytes[at..=at]).unwrap();
        }
    }
    // Other flips were in free blocks.
    assert!(reported > flips / 4, "{reported} of {flips}");
}

#[test]
fn a_flipped_bit_loses_only_what_it_touches() {
    check_flipped_bits(3, 397);
}

#[test]
#[ignore = "takes minutes"]
fn a_flipped_bit_in_any_byte_loses_only_what_it_touches() {
    (3..6).for_each(|seed| check_flipped_bits(seed, 1));
}

#[test]
fn a_sound_map_is_returned_whole_and_written_to_a_new_one() {
    for seed in 1..6 {
        let (disk, history) = make(seed);
        let moment = format!("seed {seed}");
        let (found, losses) = left(&disk).unwrap();
        assert!(found == history.model && losses.is_empty(), "{moment}: {losses:?}");
        let watch = Watch::default();
        let mut run = salvage(folder(), "spill", options(&disk), &watch).unwrap();
        assert_eq!(run.write_map("new", &watch).unwrap(), history.model.len() as u64);
        drop(run);
        let new = Map::open_with("new", options(&disk)).unwrap();
        assert_eq!((new.seed(), new.attribute("name")), (SEED, Some(&b"value"[..])));
        check(&new, &history.model, KEYS, &moment);
        // The old one is as it was.
        let old = Map::open_with(folder(), options(&disk)).unwrap();
        check(&old, &history.model, KEYS, &moment);
        let busy = salvage(folder(), "spill", options(&disk), &watch).unwrap_err();
        assert!(busy.is_busy());
    }
    let disk = MemoryDisk::default();
    assert!(
        salvage("nothing", "spill", options(&disk), &Watch::default()).unwrap_err().is_absent()
    );
}

#[test]
fn entries_expire_in_the_new_map_too_and_cleared_ones_stay_away() {
    const LATER: u64 = 1 << 50;
    let (disk, watch) = (MemoryDisk::default(), Watch::default());
    let map = Map::create(folder(), options(&disk)).unwrap();
    map.put("cleared", "1").unwrap();
    let change = Write { expires_at: Some(LATER), ..Write::put(b"key", b"2") };
    map.prepare_cleared(&[change]).unwrap().apply().unwrap();
    map.put_expiring("large", [3; 3000], LATER).unwrap();
    map.close().unwrap();
    let mut run = salvage(folder(), "spill", options(&disk), &watch).unwrap();
    assert_eq!(run.write_map("new", &watch).unwrap(), 2);
    drop(run);
    let new = Map::open_with("new", options(&disk)).unwrap();
    for (key, size) in [("key", 1), ("large", 3000)] {
        let found = new.get_expiring(key).unwrap().unwrap();
        assert_eq!((found.value.len(), found.expires_at), (size, Some(LATER)));
    }
    assert_eq!(new.get("cleared").unwrap(), None);
}

/// The changes of a record that is too long for the log, of which a block of a part is damaged: only those of this part
/// are lost. After a checkpoint, the parts are gone while their record and older ones are still in the log.
#[test]
fn damaged_parts_cost_their_changes_and_old_ones_bring_nothing_back() {
    let disk = MemoryDisk::default();
    let options_of = options(&disk);
    // Two groups: a checkpoint of one leaves the changes of the other in the log.
    let shape = options::Shape { first_depth: 1, ..options_of.shape };
    let map = Map::create(folder(), MapOptions { shape, ..options_of }).unwrap();
    let mut keys = (0..).map(|i| format!("key {i}"));
    let is_low = |key: &String| KeyHash::of(key.as_bytes(), SEED).high() >> 63 == 0;
    let other = keys.find(|key| !is_low(key)).unwrap();
    let keys: Vec<String> = keys.filter(is_low).take(100).collect();
    map.put(&keys[7], "old").unwrap();
    map.put(&keys[90], "old").unwrap();
    let pairs: Vec<_> = (0..).zip(keys).map(|(i, key)| (key, vec![i; 200])).collect();
    let changes: Vec<Write<'_>> =
        pairs.iter().map(|(key, value)| Write::put(key.as_bytes(), value)).collect();
    let end = map.write(&changes).unwrap();
    map.sync().unwrap();
    let owners: Vec<u64> =
        map.core().logged.lock().unwrap().iter().map(|(_, it)| it.first).collect();
    assert!(owners.len() > 3, "{owners:?}");
    let model: Model =
        pairs.iter().map(|(key, value)| (key.clone().into_bytes(), value.clone())).collect();

    let damaged = copy(&disk);
    damage(&damaged, &owners[1..2]);
    let (found, losses) = left(&damaged).unwrap();
    assert!(losses.iter().any(|loss| matches!(loss.lost, Lost::Records(_))), "{losses:?}");
    let kept = found.iter().filter(|(key, value)| model.get(*key) == Some(*value)).count();
    assert!((60..100).contains(&kept), "{kept}");

    // The change of the other group keeps the segment.
    map.put(&other, "1").unwrap();
    maintain::checkpoint(map.core(), Goal::Before(end)).unwrap();
    assert!(map.core().logged.lock().unwrap().is_empty());
    map.sync().unwrap();
    let without = copy(&disk);
    damage(&without, &owners);
    let names = without.list(folder()).unwrap();
    let is_gone = |name: &&String| *name == "MANIFEST" || name.starts_with("catalog-");
    names.iter().filter(is_gone).for_each(|name| without.remove(&folder().join(name)).unwrap());
    let (mut found, _) = left(&without).unwrap();
    assert_eq!(found.remove(other.as_bytes()), Some(b"1".to_vec()));
    assert!(found == model, "{:?}", found.values().find(|value| value.len() < 200));
}

/// Overwrites blocks of the data file.
fn damage(disk: &MemoryDisk, blocks: &[u64]) {
    let file = disk.open_to_write(&folder().join("map-data"), Access::Cached).unwrap();
    for block in blocks {
        file.write_at(block * BLOCK_SIZE as u64, &[0; BLOCK_SIZE]).unwrap();
    }
}

#[test]
fn lost_files_cost_what_only_they_have() {
    let (disk, history) = make(7);
    let (none, all) = (BTreeSet::new(), history.values.keys().cloned().collect());
    let names = disk.list(folder()).unwrap();
    let of =
        |prefix: &str| names.iter().filter(|name| name.starts_with(prefix)).collect::<Vec<_>>();
    let cases = [
        (vec![of("MANIFEST")], &none, false),
        (vec![of("catalog-")], &none, true),
        (vec![of("MANIFEST"), of("catalog-")], &none, true),
        (vec![of("wal-")], &history.logged, false),
        (vec![of("map-data")], &all, false),
        (vec![of("map-data"), of("MANIFEST")], &all, true),
    ];
    for (lost, excused, may_come_back) in cases {
        let disk = copy(&disk);
        for name in lost.iter().flatten() {
            disk.remove(&folder().join(name)).unwrap();
        }
        let found = left(&disk).unwrap();
        let moment = format!("{lost:?}");
        check_left(&found, &history, excused, may_come_back, &moment);
        assert!(!found.0.is_empty());
        // Nothing says that a log was there.
        if !lost[0][0].starts_with("wal-") {
            check_reported(&found, &history, &moment);
            assert!(!found.1.is_empty(), "{moment}");
        }
    }
}

#[test]
fn a_data_file_that_was_cut_short_has_its_first_blocks() {
    let (disk, history) = make(8);
    let path = folder().join("map-data");
    let bytes = bytes_of(&*disk.open(&path, Access::Cached).unwrap());
    let id = crate::manifest::Manifest::read(&disk, folder()).unwrap().id;
    for end in 0..bytes.len() / BLOCK_SIZE {
        let disk = copy(&disk);
        let (kept, gone) = bytes.split_at(end * BLOCK_SIZE);
        disk.create(&path, Access::Cached).unwrap().write_at(0, kept).unwrap();
        let blocks = (end as u64..).zip(gone.chunks(BLOCK_SIZE));
        let excused = blocks.flat_map(|(i, block)| keys_in(block, i, id, &history)).collect();
        let (found, moment) = (left(&disk).unwrap(), format!("{end} blocks"));
        check_left(&found, &history, &excused, false, &moment);
        check_reported(&found, &history, &moment);
    }
}

#[test]
fn a_read_that_fails_once_is_repeated() {
    let (disk, history) = make(9);
    for read in 0..40 {
        let faulty = FaultyDisk::over(&disk, Fault::ReadFailure { read }.into());
        let env = Env { disk: Arc::new(faulty), ..Env::simulated(1) };
        let mut run = salvage(folder(), "spill", tiny(env), &Watch::default()).unwrap();
        let mut found = Model::new();
        while run.advance().unwrap() {
            found.insert(run.entry().key.to_vec(), run.entry().value.unwrap().to_vec());
        }
        assert!(found == history.model && run.losses().is_empty(), "{read}: {:?}", run.losses());
    }
}

/// Without a catalog, spans say which older blocks they replace.
#[test]
fn few_deleted_keys_come_back_without_a_catalog() {
    let disk = MemoryDisk::default();
    let map = Map::create(folder(), options(&disk)).unwrap();
    let key = |i: u32| i.to_le_bytes();
    map.put_many((0..4000).map(|i| (key(i), [1; 20]))).unwrap();
    map.compact().unwrap();
    (0..4000).filter(|i| i % 2 == 0).for_each(|i| _ = map.delete(key(i)).unwrap());
    map.compact().unwrap();
    map.put_many((0..4000).filter(|i| i % 4 == 1).map(|i| (key(i), [2; 20]))).unwrap();
    map.close().unwrap();
    for name in disk.list(folder()).unwrap().iter().filter(|name| *name != "map-data") {
        disk.remove(&folder().join(name)).unwrap();
    }
    let (found, losses) = left(&disk).unwrap();
    for i in 0..4000_u32 {
        let expected = [None, Some([2; 20]), None, Some([1; 20])][i as usize % 4];
        let found = found.get(&key(i)[..]);
        assert!(
            found.map(Vec::as_slice) == expected.as_ref().map(<[u8; 20]>::as_slice) || i % 2 == 0
        );
    }
    let back = found.keys().filter(|key| key[0] % 2 == 0).count();
    assert!(back < 200, "{back}");
    assert!(losses.iter().any(|loss| loss.lost == Lost::Catalog));
}

#[test]
fn a_power_cut_while_the_new_map_is_written_leaves_none() {
    let (disk, history) = make(10);
    for operation in 0.. {
        let faulty = FaultyDisk::over(&disk, Fault::PowerCut { operation }.into());
        let env = Env { disk: Arc::new(faulty.clone()), ..Env::simulated(1) };
        let run = salvage(folder(), "spill", tiny(env), &Watch::default());
        let written = run.and_then(|mut run| run.write_map("new", &Watch::default()));
        if written.is_ok() {
            assert!(operation > 10, "{operation}");
            return;
        }
        let left = faulty.after_power_cut(operation);
        match Map::open_with("new", options(&left)) {
            Ok(new) => check(&new, &history.model, KEYS, "the new map is published last"),
            Err(error) => assert!(error.is_absent(), "{operation}: {error}"),
        }
        let mut run = salvage(folder(), "spill", options(&left), &Watch::default()).unwrap();
        match run.write_map("new", &Watch::default()) {
            Ok(count) => assert_eq!(count, history.model.len() as u64),
            Err(error) => assert!(matches!(error.kind(), ErrorKind::Exists), "{error}"),
        }
    }
}
