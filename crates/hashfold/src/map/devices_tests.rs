//! Maps on several devices: against a model, and with folders that are missing, foreign, swapped,
//! moved or damaged.

use super::{
    devices::DEVICE_NAME,
    tests::{Model, Numbers, check, folder, tiny},
    *,
};
use crate::{
    env::Env,
    error::{Error, ErrorKind, Result},
    io::{Access, Disk, Fault, FaultPlan, FaultyDisk, MemoryDisk, read_all},
    manifest::FIRST_NAME,
    run::Run,
    work::Watch,
};
use std::{path::Path, sync::Arc};

const KEYS: u32 = 300;

fn options(disk: &MemoryDisk) -> MapOptions {
    tiny(Env { disk: Arc::new(disk.clone()), ..Env::simulated(1) })
}

fn copy(disk: &MemoryDisk) -> MemoryDisk {
    FaultyDisk::over(disk, FaultPlan::default()).snapshot()
}

/// Makes random changes.
pub(super) fn change(
    map: &Map,
    model: &mut Model,
    keys: u32,
    (random, count): (&mut Numbers, u32),
) {
    for _ in 0..count {
        let key = random.key(keys);
        if random.below(4) == 0 {
            map.delete(&key).unwrap();
            model.remove(&key);
        } else {
            let value = random.value();
            map.put(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
}

/// Makes a map on three devices.
fn made() -> (MemoryDisk, Model) {
    let (disk, mut model, mut random) = (MemoryDisk::default(), Model::new(), Numbers::new(3));
    let map = Map::create(folder(), options(&disk).devices(["b", "c"])).unwrap();
    change(&map, &mut model, KEYS, (&mut random, 900));
    map.compact().unwrap();
    (disk, model)
}

#[test]
fn a_folder_that_is_given_twice_is_refused_before_anything_is_made() {
    let disk = MemoryDisk::default();
    for (folders, whose) in
        [(["b", "b"], "b, that of another device"), (["b", "map"], "map, that of the map")]
    {
        let error = Map::create(folder(), options(&disk).devices(folders)).unwrap_err();
        let message = format!("folder of a device is {whose}, expected another one for each");
        assert!(error.to_string().contains(&message), "{error}");
        assert!(!disk.exists(&folder().join(devices::DATA_NAME)).unwrap());
    }
}

#[test]
fn a_map_on_several_devices_agrees_with_a_sorted_map() {
    for count in 2..5 {
        let (disk, mut random) = (MemoryDisk::default(), Numbers::new(count));
        let folders = (1..count).map(|i| format!("disks/{i}/part"));
        let mut map = Map::create(folder(), options(&disk).devices(folders)).unwrap();
        let mut model = Model::new();
        for step in 0..12 {
            change(&map, &mut model, KEYS, (&mut random, 150));
            check(&map, &model, KEYS, &format!("{count} devices, step {step}"));
            match step % 4 {
                0 => map.checkpoint().unwrap(),
                1 => map.compact().unwrap(),
                2 => {
                    drop(map);
                    map = Map::open_with(folder(), options(&disk)).unwrap();
                }
                _ => {}
            }
        }
        let devices = map.devices().unwrap();
        assert_eq!(devices.len() as u64, count);
        assert!(devices.iter().all(|device| device.reads > 0 && device.data_bytes > 10_000));
        assert_eq!(devices[1].folder, Path::new("disks/1/part"));
        let sum: u64 = devices.iter().map(|device| device.data_bytes).sum();
        let space = map.space().unwrap();
        assert_eq!(space.used_bytes + space.free_bytes, sum);
    }
}

#[test]
fn a_map_on_one_device_has_the_files_that_it_had() {
    let disk = MemoryDisk::default();
    let map = Map::create(folder(), options(&disk)).unwrap();
    assert!(map.devices().unwrap().is_empty());
    map.close().unwrap();
    let names = disk.list(folder()).unwrap();
    assert_eq!(names, ["MANIFEST", "catalog-0000000002", "map-data"]);
    let manifest = disk.open(&folder().join("MANIFEST"), Access::Cached).unwrap();
    let mut version = [0; 2];
    manifest.read_at(10, &mut version).unwrap();
    assert_eq!(version, [1, 0]);
}

fn move_files(disk: &MemoryDisk, from: &str, to: &str) {
    disk.create_folder(Path::new(to)).unwrap();
    for name in disk.list(Path::new(from)).unwrap() {
        disk.rename(&Path::new(from).join(&name), &Path::new(to).join(&name)).unwrap();
    }
}

#[test]
fn devices_that_have_moved_are_said_once() {
    let (disk, model) = made();
    move_files(&disk, "c", "elsewhere/c");
    let map = Map::open_with(folder(), options(&disk).devices(["b", "elsewhere/c"])).unwrap();
    check(&map, &model, KEYS, "with the new folder");
    map.close().unwrap();
    let map = Map::open_with(folder(), options(&disk)).unwrap();
    check(&map, &model, KEYS, "without it");
    assert_eq!(map.devices().unwrap()[2].folder, Path::new("elsewhere/c"));
}

/// Opens a map that cannot be opened.
#[track_caller]
fn refused(disk: &MemoryDisk, folders: &[&str]) -> Error {
    let options = options(disk).devices(folders.iter().copied());
    // No new map takes the place of one whose device is missing.
    Map::open_or_create_with(folder(), options).unwrap_err()
}

#[test]
fn a_missing_foreign_or_swapped_folder_is_refused_by_name() {
    let (disk, _) = made();
    let env = Env { disk: Arc::new(disk.clone()), ..Env::simulated(2) };
    let other = Map::create("other", tiny(env).devices(["x", "y"])).unwrap();
    other.close().unwrap();
    for (folders, message) in [
        (&["b", "nothing"][..], "nothing: the folder of device 2 of the map is missing"),
        (&["c", "b"], "c/map-device: index of the device is 2, expected 1"),
        (&["b", "y"], "y/map-device: file id is"),
        (&["b"], "number of folders of the map's other devices is 1, expected 2"),
        (&["b", "b"], "b: another writer has it open"),
    ] {
        let error = refused(&disk, folders).to_string();
        assert!(error.starts_with(message), "{error}");
    }
    let error = Map::open_with("b", options(&disk)).unwrap_err();
    assert!(error.to_string().contains("that of device 1"), "{error}");
    disk.remove(Path::new("c/map-device")).unwrap();
    let error = refused(&disk, &[]);
    assert!(matches!(error.kind(), ErrorKind::Missing { .. }), "{error}");
    assert_eq!(&*error.place().unwrap().file, Path::new("c/map-device"));
}

/// Copies the first folder, as a user may do with `cp`.
fn copy_first(disk: &MemoryDisk, to: &str) {
    disk.create_folder(Path::new(to)).unwrap();
    for name in disk.list(folder()).unwrap() {
        let from = disk.open(&folder().join(&name), Access::Cached).unwrap();
        let bytes = read_all(&*from, 1 << 24).unwrap();
        let copied = disk.create(&Path::new(to).join(&name), Access::Cached).unwrap();
        copied.write_at(0, &bytes).unwrap();
    }
}

#[track_caller]
fn assert_superseded(opened: Result<Map>, folder: &str) {
    let error = opened.expect_err("the folder is older than the devices");
    assert!(matches!(error.kind(), ErrorKind::Superseded { .. }), "{error}");
    let message = format!("{folder}: this folder and its device b are of different times");
    assert!(error.to_string().starts_with(&message), "{error}");
}

/// The copy that changes the map first has the devices from then on, also without a checkpoint.
#[test]
fn a_copy_of_the_first_folder_never_writes_over_the_other_ones_data() {
    for (first, second) in [("map", "twin"), ("twin", "map")] {
        for is_checkpointed in [false, true] {
            let (disk, mut model) = made();
            copy_first(&disk, "twin");
            // Lookups alone change nothing.
            for folder in ["twin", "map", "twin"] {
                check(&Map::open_with(folder, options(&disk)).unwrap(), &model, KEYS, folder);
            }
            let map = Map::open_with(first, options(&disk)).unwrap();
            change(&map, &mut model, KEYS, (&mut Numbers::new(4), 1));
            if is_checkpointed {
                map.checkpoint().unwrap();
            }
            drop(map);
            assert_superseded(Map::open_with(second, options(&disk)), second);
            let map = Map::open_with(first, options(&disk)).unwrap();
            check(&map, &model, KEYS, "the one that was changed");
            assert!(map.verify(&Watch::default()).unwrap().is_sound());
            // What the older one still has can be salvaged.
            drop(map);
            assert!(!left_in(Path::new(second), options(&disk)).unwrap().0.is_empty());
        }
    }
}

/// A transaction writes to the devices before its commit.
#[test]
fn a_copy_is_refused_from_the_first_spilled_write_on() {
    let (disk, _) = made();
    copy_first(&disk, "twin");
    let map = Map::open_with(folder(), options(&disk)).unwrap();
    let mut transaction = map.transaction();
    for i in 0..2000_u32 {
        transaction.put(i.to_le_bytes(), [1; 300]).unwrap();
    }
    assert!(transaction.has_spilled());
    drop((transaction, map));
    assert_superseded(Map::open_with("twin", options(&disk)), "twin");
    Map::open_with(folder(), options(&disk)).unwrap();
}

#[test]
fn a_map_all_of_whose_folders_have_moved_opens() {
    let (disk, mut model) = made();
    for name in ["map", "b", "c"] {
        move_files(&disk, name, &format!("moved/{name}"));
    }
    let options = options(&disk);
    let moved = options.clone().devices(["moved/b", "moved/c"]);
    let map = Map::open_with("moved/map", moved).unwrap();
    change(&map, &mut model, KEYS, (&mut Numbers::new(4), 20));
    drop(map);
    check(&Map::open_with("moved/map", options).unwrap(), &model, KEYS, "moved");
}

/// The power fails, or the process is killed, at any operation of a session. The map opens, with what was acknowledged;
/// its copy opens only if nothing was.
#[test]
fn a_crash_leaves_the_devices_to_one_copy() {
    let (made, model) = made();
    copy_first(&made, "twin");
    let (mut opened, mut refused) = (0, 0);
    for operation in 0.. {
        let faulty = FaultyDisk::over(&made, Fault::PowerCut { operation }.into());
        let env = Env { disk: Arc::new(faulty.clone()), ..Env::simulated(2) };
        let map = Map::open_with(folder(), tiny(env)).ok();
        let is_acknowledged = map.as_ref().is_some_and(|map| map.put("new", "value").is_ok());
        if map.is_some_and(|map| map.checkpoint().is_ok()) {
            break;
        }
        let after_cuts = (0..8).map(|seed| faulty.after_power_cut_of_devices(seed));
        for left in after_cuts.chain([faulty.snapshot()]) {
            match Map::open_with("twin", options(&copy(&left))) {
                Ok(map) => {
                    check(&map, &model, KEYS, &format!("the copy, cut at {operation}"));
                    assert!(!is_acknowledged, "cut at {operation}");
                    opened += 1;
                }
                error => {
                    assert_superseded(error, "twin");
                    refused += 1;
                }
            }
            let map = Map::open_with(folder(), options(&left)).unwrap();
            let found = map.get("new").unwrap();
            assert!(found.is_some() || !is_acknowledged, "cut at {operation}");
            let mut model = model.clone();
            model.extend(found.map(|value| (b"new".to_vec(), value)));
            check(&map, &model, KEYS, &format!("cut at {operation}"));
            map.put("more", "value").unwrap();
            drop(map);
            assert_superseded(Map::open_with("twin", options(&left)), "twin");
        }
    }
    assert!(opened > 20 && refused > 20, "{opened} {refused}");
}

/// No operation whose failure is returned leaves the devices to nobody, or a change that another copy may lose.
#[test]
fn devices_that_cannot_be_marked_stop_changes_until_they_can() {
    let (made, _) = made();
    copy_first(&made, "twin");
    let mut failed = 0;
    let faults = |i| [Fault::Failure { operation: i }, Fault::Full { write: i }];
    for fault in (0..80).flat_map(faults) {
        let faulty = FaultyDisk::over(&made, FaultPlan::default());
        let env = Env { disk: Arc::new(faulty.clone()), ..Env::simulated(2) };
        let mut map = Map::open_with(folder(), tiny(env.clone())).unwrap();
        let before = faulty.operations();
        faulty.plan(match fault {
            Fault::Failure { operation } => Fault::Failure { operation: before + operation },
            full => full,
        });
        for value in ["1", "2", "3"] {
            if map.put("key", value).is_ok() {
                let left = faulty.snapshot();
                assert_superseded(Map::open_with("twin", options(&left)), "twin");
                continue;
            }
            failed += 1;
            faulty.heal();
            if map.checkpoint().is_err() {
                // A sync has failed.
                drop(map);
                map = Map::open_with(folder(), tiny(env.clone())).unwrap();
            }
            map.put("key", value).unwrap();
        }
        drop(map);
        faulty.heal();
        let map = Map::open_with(folder(), tiny(env)).unwrap();
        assert_eq!(map.get("key").unwrap().unwrap(), b"3", "{fault:?}");
    }
    assert!(failed > 10, "{failed}");
}

/// A process is killed after the manifest of a new map is published.
#[test]
fn marks_of_a_first_build_are_removed_when_the_map_is_opened() {
    let (disk, model) = made();
    for folder in ["map", "b", "c"] {
        disk.create(&Path::new(folder).join(FIRST_NAME), Access::Cached).unwrap();
    }
    check(&Map::open_with(folder(), options(&disk)).unwrap(), &model, KEYS, "with marks");
    for folder in ["map", "b", "c"] {
        assert!(!disk.exists(&Path::new(folder).join(FIRST_NAME)).unwrap(), "{folder}");
    }
}

#[test]
fn a_device_that_ends_too_early_is_named() {
    let (disk, _) = made();
    let path = Path::new("b/map-data");
    let mut bytes = vec![0; 20 << 10];
    disk.open(path, Access::Cached).unwrap().read_at(0, &mut bytes).unwrap();
    disk.create(path, Access::Cached).unwrap().write_at(0, &bytes).unwrap();
    let error = refused(&disk, &[]);
    assert!(matches!(error.kind(), ErrorKind::Truncated { .. }), "{error}");
    assert_eq!(error.place().unwrap().to_string(), "b/map-data at byte 20480");
}

#[test]
fn folders_of_new_devices_are_new_and_distinct() {
    let (disk, _) = made();
    let create = |path: &str, folders: &[&str]| {
        Map::create(path, options(&disk).devices(folders.iter().copied())).unwrap_err()
    };
    let error = create("new", &["c"]);
    assert!(matches!(error.kind(), ErrorKind::Exists), "{error}");
    assert_eq!(&*error.place().unwrap().file, Path::new("c"));
    for folders in [&["d", "d"][..], &["new"], &["d", "new"]] {
        let error = create("new", folders);
        assert!(matches!(error.kind(), ErrorKind::Argument { .. }), "{error}");
    }
    let too_many: Vec<String> = (0..256).map(|i| format!("e{i}")).collect();
    let error = Map::create("new", options(&disk).devices(too_many)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Argument { .. }), "{error}");
    // None of these has left a map that is in the way.
    let map = Map::create("new", options(&disk).devices(["d"])).unwrap();
    map.close().unwrap();
}

#[test]
fn a_backup_of_several_devices_is_on_one() {
    let (disk, model) = made();
    let map = Map::open_with(folder(), options(&disk)).unwrap();
    map.backup("copy", &Watch::default()).unwrap();
    let saved = Map::open_with("copy", options(&disk)).unwrap();
    assert!(saved.devices().unwrap().is_empty());
    check(&saved, &model, KEYS, "the copy");
}

/// Returns the entries that a salvage finds, and the losses.
fn left(options: MapOptions) -> Result<(Model, Vec<Loss>)> {
    left_in(folder(), options)
}

fn left_in(folder: &Path, options: MapOptions) -> Result<(Model, Vec<Loss>)> {
    let mut run = salvage(folder, "spill", options, &Watch::default())?;
    let mut found = Model::new();
    while run.advance()? {
        found.insert(run.entry().key.to_vec(), run.entry().value.unwrap().to_vec());
    }
    Ok((found, run.losses().to_vec()))
}

#[test]
fn a_salvage_reads_all_devices_that_are_left() {
    let (disk, model) = made();
    assert!(left(options(&disk)).unwrap().0 == model);
    // Without the manifest, the caller says where the devices are.
    let headless = copy(&disk);
    headless.remove(&folder().join("MANIFEST")).unwrap();
    let (found, losses) = left(options(&headless).devices(["b", "c"])).unwrap();
    assert!(found == model && losses.len() == 1, "{losses:?}");
    let (found, losses) = left(options(&headless)).unwrap();
    assert!(found.len() < model.len() && losses.len() > 2, "{losses:?}");
    // Nor is it needed which folder is the first.
    headless.remove(&folder().join(DEVICE_NAME)).unwrap();
    let (found, _) = left(options(&headless).devices(["b", "c"])).unwrap();
    assert!(found == model);
    // Without the file that says which device a folder is, its place among the others does.
    let unnamed = copy(&disk);
    unnamed.remove(&Path::new("b").join(DEVICE_NAME)).unwrap();
    let (found, losses) = left(options(&unnamed)).unwrap();
    assert!(found == model && losses.len() == 1 && losses[0].lost == Lost::Nothing, "{losses:?}");
    // Without the folder of the first device, that of another one leads to the rest.
    let first_lost = copy(&disk);
    for name in first_lost.list(folder()).unwrap() {
        first_lost.remove(&folder().join(name)).unwrap();
    }
    for (own, others) in [("b", ["map", "c"]), ("c", ["map", "b"])] {
        let (found, _) = left_in(Path::new(own), options(&first_lost).devices(others)).unwrap();
        // The log is lost, too: some keys have the values that they had before.
        let right = found.iter().filter(|(key, value)| model.get(*key) == Some(*value)).count();
        assert!(right > model.len() / 3, "{own}: {right} of {} of {}", found.len(), model.len());
    }
    // Without a device, the entries on the others are found, and none that is wrong.
    for lost in ["b", "c", "map"] {
        let disk = copy(&disk);
        disk.remove(&Path::new(lost).join("map-data")).unwrap();
        let (found, losses) = left(options(&disk)).unwrap();
        assert!(found.iter().all(|(key, value)| model.get(key) == Some(value)), "{lost}");
        assert!(found.len() > model.len() / 3 && found.len() < model.len(), "{lost}");
        assert!(losses.iter().any(|loss| matches!(loss.lost, Lost::Entries(_))), "{losses:?}");
    }
}

#[test]
fn damage_is_reported_with_the_file_of_its_device() {
    let (disk, model) = made();
    let path = Path::new("b/map-data");
    let file = disk.open_to_write(path, Access::Cached).unwrap();
    let blocks = file.size().unwrap() / 4096;
    let mut reported = 0;
    for block in 1..blocks {
        let mut byte = [0];
        file.read_at(block * 4096 + 50, &mut byte).unwrap();
        file.write_at(block * 4096 + 50, &[byte[0] ^ 1]).unwrap();
        let map = Map::open_with(folder(), options(&disk)).unwrap();
        let report = map.verify(&Watch::default()).unwrap();
        for error in &report.damage {
            let place = error.place().unwrap().to_string();
            assert_eq!(place, format!("b/map-data at byte {}", block * 4096));
            reported += 1;
        }
        drop(map);
        file.write_at(block * 4096 + 50, &byte).unwrap();
    }
    assert!(reported > 3, "{reported}");
    let map = Map::open_with(folder(), options(&disk)).unwrap();
    check(&map, &model, KEYS, "without damage");
}
