//! Maps whose hot groups have copies on another device.

use super::{
    devices_tests::change,
    faults::Failing,
    tests::{Model, Numbers, check, folder, tiny},
    *,
};
use crate::{
    env::Env,
    error::{ErrorClass, ErrorKind},
    io::{Access, Disk, Fault, FaultPlan, FaultyDisk, MemoryDisk},
    key::KeyHash,
    work::Watch,
};
use std::{
    path::Path,
    sync::{Arc, atomic::Ordering::SeqCst},
};

const KEYS: u32 = 500;

fn options(disk: &Arc<dyn Disk>) -> MapOptions {
    tiny(Env { disk: disk.clone(), ..Env::simulated(1) }).mirrors(12 * 4096)
}

/// Makes a map on three devices.
fn made(disk: &Arc<dyn Disk>) -> (Map, Model) {
    let (mut model, mut random) = (Model::new(), Numbers::new(5));
    let map = Map::create(folder(), options(disk).devices(["b", "c"])).unwrap();
    change(&map, &mut model, KEYS, (&mut random, 2500));
    map.compact().unwrap();
    (map, model)
}

/// Looks up a key until its group has a copy.
fn heat(map: &Map, key: &[u8]) {
    let before = map.stat().mirror_blocks;
    let is_copied = (0..3000).any(|_| {
        map.get(key).unwrap();
        map.stat().mirror_blocks != before
    });
    assert!(is_copied, "{:?}", map.stat());
}

/// Returns a key with a value in a block of entries.
fn small(model: &Model) -> &Vec<u8> {
    model.iter().find(|(_, value)| value.len() < 60).unwrap().0
}

/// Returns the blocks of a copy that a key's group has.
fn copy_of(map: &Map, key: &[u8]) -> Option<Arc<space::Blocks>> {
    let group = map.core().directory.find(KeyHash::of(key, map.seed()));
    let span = group.state().stored.span.clone().unwrap();
    span.mirror.as_ref().unwrap().copy()
}

#[test]
fn a_hot_group_is_read_from_two_devices() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let (map, model) = made(&disk);
    let reads = |map: &Map| map.devices().unwrap().iter().map(|it| it.reads).collect::<Vec<_>>();
    let key = small(&model);
    heat(&map, key);
    check(&map, &model, KEYS, "with a copy");
    let before = reads(&map);
    for _ in 0..600 {
        assert_eq!(map.get(key).unwrap().as_ref(), model.get(key));
    }
    let more: Vec<u64> = reads(&map).iter().zip(&before).map(|(after, it)| after - it).collect();
    assert_eq!(more.iter().sum::<u64>(), 600);
    assert_eq!(more.iter().filter(|count| **count > 100).count(), 2, "{more:?} {before:?}");
    // Reads of a batch are in flight together.
    let before = reads(&map);
    let found = map.get_many(&vec![key; 100]).unwrap();
    assert!(found.iter().all(|value| value.as_ref() == model.get(key)));
    let more: Vec<u64> = reads(&map).iter().zip(&before).map(|(after, it)| after - it).collect();
    assert_eq!(more.iter().filter(|count| **count > 30).count(), 2, "{more:?}");
    assert!(map.background_error().is_none());
}

/// Random keys are not hot; what is hot now takes the place of what was.
#[test]
fn copies_follow_the_reads() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let (map, model) = made(&disk);
    let keys: Vec<&Vec<u8>> = model.keys().collect();
    for _ in 0..10 {
        map.get_many(&keys).unwrap();
    }
    assert_eq!(map.stat().mirror_blocks, 0, "no group is read more than others");
    let mut copied = 0;
    let mut random = Numbers::new(6);
    for round in 0..20 {
        let key = keys[random.below(keys.len() as u32) as usize];
        for _ in 0..2500 {
            map.get(key).unwrap();
        }
        copied += u32::from(copy_of(&map, key).is_some());
        let stats = map.stat();
        assert!(stats.mirror_blocks <= 12, "{round}: {stats:?}");
        assert_eq!(map.space().unwrap().mirror_bytes, stats.mirror_blocks * 4096);
    }
    assert!(copied > 15, "{copied}");
    check(&map, &model, KEYS, "after many copies");
}

#[test]
fn a_change_of_a_group_ends_its_copy_and_nothing_of_it_is_left() {
    let memory = MemoryDisk::default();
    let disk: Arc<dyn Disk> = Arc::new(memory.clone());
    let (map, mut model) = made(&disk);
    let key = small(&model).clone();
    heat(&map, &key);
    map.put(&key, b"new").unwrap();
    model.insert(key.clone(), b"new".to_vec());
    check(&map, &model, KEYS, "the change is in RAM");
    // The last checkpoint keeps the blocks that were merged.
    maintain::merge_all(map.core()).unwrap();
    assert_eq!(map.stat().mirror_blocks, 0);
    check(&map, &model, KEYS, "after a merge");
    heat(&map, &key);
    drop(map);
    // A copy is not there any more when the map is opened.
    let map = Map::open_with(folder(), options(&disk)).unwrap();
    assert_eq!(map.stat().mirror_blocks, 0);
    check(&map, &model, KEYS, "opened again");
    drop(map);
    // Nor does it confuse a salvage that has to search all blocks.
    memory.remove(&folder().join("MANIFEST")).unwrap();
    let options = options(&disk).devices(["b", "c"]);
    let mut left = salvage(folder(), "spill", options.clone(), &Watch::default()).unwrap();
    left.write_map("mended", &Watch::default()).unwrap();
    assert_eq!(left.losses().len(), 1, "{:?}", left.losses());
    let options = MapOptions { devices: Vec::new(), ..options };
    check(&Map::open_with("mended", options).unwrap(), &model, KEYS, "mended");
}

#[test]
fn a_damaged_copy_is_given_up() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let (map, model) = made(&disk);
    let key = small(&model);
    let look_up = |many: bool| match many {
        false => (0..2).map(|_| map.get(key).unwrap()).collect(),
        true => map.get_many(&[key; 40]).unwrap(),
    };
    for many in [false, true] {
        heat(&map, key);
        let copy = copy_of(&map, key).unwrap();
        let zeros = vec![0; copy.count as usize * 4096];
        map.core().space.file.write_at(copy.offset(), &zeros).unwrap();
        for value in look_up(many) {
            assert_eq!(value.as_ref(), model.get(key));
        }
        assert!(copy_of(&map, key).is_none(), "the copy was read");
    }
}

/// A copy fails after a packet was read in vain: keys whose next block was not read yet are still looked up.
#[test]
fn no_key_is_left_out_if_a_copy_fails_in_a_later_round() {
    let failing = Failing::on(MemoryDisk::default());
    let disk: Arc<dyn Disk> = Arc::new(failing.clone());
    let (map, model) = made(&disk);
    let group_of = |key: &[u8]| map.core().directory.find(KeyHash::of(key, map.seed()));
    let (key, group) = (small(&model), group_of(small(&model)));
    map.put(key, "in a packet").unwrap();
    map.checkpoint().unwrap();
    let is_beside = |it: &&Vec<u8>| *it != key && Arc::ptr_eq(&group_of(it), &group);
    heat(&map, model.keys().find(is_beside).expect("the group has several keys"));
    let stored = group.state().stored.clone();
    let copy = copy_of(&map, key).unwrap();
    let needs_two_reads = |key: &String| {
        let hash = KeyHash::of(key.as_bytes(), map.seed());
        let is_there = Arc::ptr_eq(&group_of(key.as_bytes()), &group);
        is_there && stored.places(hash, map.core().identity.id).count() > 1
    };
    let absent = (0..).map(|i| format!("absent {i}")).filter(needs_two_reads);
    let keys: Vec<String> = absent.take(8).collect();
    let place = |i| map.core().space.file.place_at(copy.offset() + i * 4096).to_string();
    *failing.faults.unreadable.lock().unwrap() = (0..copy.count).map(place).collect();
    let mut seen = [0; 8];
    map.visit_many(&keys, &mut |i, found| {
        seen[i] += 1;
        assert!(found.is_none());
        Ok(())
    })
    .unwrap();
    assert_eq!(seen, [1; 8]);
    assert!(copy_of(&map, key).is_none(), "the copy was read");
}

/// The device of a copy fails: the blocks are read from the originals, also those whose reads were to come.
#[test]
fn a_copy_that_cannot_be_read_is_no_error() {
    let failing = Failing::on(MemoryDisk::default());
    let disk: Arc<dyn Disk> = Arc::new(failing.clone());
    let (map, model) = made(&disk);
    let key = small(&model);
    let keys: Vec<&Vec<u8>> = model.keys().chain([key; 50]).chain(model.keys()).collect();
    for many in [false, true] {
        heat(&map, key);
        let copy = copy_of(&map, key).unwrap();
        let place = |i| map.core().space.file.place_at(copy.offset() + i * 4096).to_string();
        *failing.faults.unreadable.lock().unwrap() = (0..copy.count).map(place).collect();
        match many {
            false => {
                (0..2).for_each(|_| assert_eq!(map.get(key).unwrap().as_ref(), model.get(key)));
            }
            true => {
                let mut seen = vec![0; keys.len()];
                map.visit_many(&keys, &mut |i, found| {
                    seen[i] += 1;
                    assert_eq!(found.map(|it| it.value).as_ref(), model.get(keys[i]));
                    Ok(())
                })
                .unwrap();
                assert!(seen.iter().all(|count| *count == 1));
            }
        }
        assert!(copy_of(&map, key).is_none(), "the copy was read");
    }
    // Where the original cannot be read either, that is the error.
    heat(&map, key);
    let copy = copy_of(&map, key).unwrap();
    let group = map.core().directory.find(KeyHash::of(key, map.seed()));
    let (blocks, file) =
        (&group.state().stored.span.clone().unwrap().blocks, &map.core().space.file);
    let place = |i| file.place_at(i * 4096).to_string();
    let all = (0..blocks.count).flat_map(|i| [blocks.first + i, copy.first + i]);
    *failing.faults.unreadable.lock().unwrap() = all.map(place).collect();
    let error = map.get_many(&keys).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Io, "{error}");
    // The caller's own error ends the lookup, and no copy.
    failing.faults.unreadable.lock().unwrap().clear();
    heat(&map, key);
    let mut calls = 0;
    let stopped = map.visit_many(&[key; 40], &mut |_, _| {
        calls += 1;
        Err(ErrorKind::Stopped.into())
    });
    assert_eq!((stopped.is_err(), calls), (true, 1));
    assert!(copy_of(&map, key).is_some());
}

/// A write into a hole finds no space, though the file need not grow.
#[test]
fn copies_make_way_for_writes_into_holes() {
    let failing = Failing::on(MemoryDisk::default());
    let disk: Arc<dyn Disk> = Arc::new(failing.clone());
    let (map, mut model) = made(&disk);
    let key = small(&model).clone();
    heat(&map, &key);
    failing.faults.is_full.store(true, SeqCst);
    map.put(b"large", [7; 5000]).unwrap();
    model.insert(b"large".to_vec(), vec![7; 5000]);
    assert!(map.stat().mirror_blocks == 0 && !failing.faults.is_full.load(SeqCst));
    // No copy, and no error, for lack of space.
    failing.faults.is_full.store(true, SeqCst);
    for _ in 0..3000 {
        map.get(&key).unwrap();
    }
    assert!(map.stat().mirror_blocks == 0 && map.background_error().is_none());
    map.put(b"large", [8; 5000]).unwrap_err();
    failing.faults.is_full.store(false, SeqCst);
    check(&map, &model, KEYS, "on a disk with space again");
    assert_eq!(map.get(b"large").unwrap().unwrap(), [7; 5000]);
}

/// The file that says which device a folder is finds no space, though the data file has free blocks.
#[test]
fn free_blocks_and_copies_make_way_for_the_token_of_a_manifest() {
    let failing = Failing::on(MemoryDisk::default());
    let disk: Arc<dyn Disk> = Arc::new(failing.clone());
    let (map, model) = made(&disk);
    heat(&map, small(&model));
    let generation = map.core().published().generation;
    failing.faults.is_full.store(true, SeqCst);
    map.checkpoint().unwrap();
    assert!(map.core().published().is_marked && !failing.faults.is_full.load(SeqCst));
    assert_eq!((map.core().published().generation, map.stat().mirror_blocks), (generation + 1, 0));
    drop(map);
    check(&Map::open_with(folder(), options(&disk)).unwrap(), &model, KEYS, "opened again");
}

#[test]
fn copies_make_way_on_a_full_disk() {
    let faulty = FaultyDisk::new(FaultPlan::default());
    let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
    let (map, model) = made(&disk);
    let key = small(&model);
    heat(&map, key);
    let space = &map.core().space;
    let copied = map.stat().mirror_blocks;
    let mut taken = Vec::new();
    faulty.plan(Fault::Full { write: 0 });
    // All free blocks, also those of the copies.
    while let Ok(blocks) = space.take(1) {
        taken.push(blocks.first);
        std::mem::forget(blocks);
    }
    assert_eq!((map.stat().mirror_blocks, space.counts().0), (0, 0));
    assert!(taken.len() as u64 > copied);
    check(&map, &model, KEYS, "on a full disk");
}

#[test]
fn maps_without_the_option_have_no_copies() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    drop(made(&disk));
    let map = Map::open_with(folder(), options(&disk).mirrors(0)).unwrap();
    for _ in 0..3000 {
        map.get(b"key").unwrap();
    }
    assert_eq!(map.stat().mirror_blocks, 0);
    assert!(disk.open(Path::new("b/map-data"), Access::Cached).is_ok());
}
