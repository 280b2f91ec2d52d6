//! Maps through the public interface: golden files, other data sets made from a map, damaged files,
//! the real file system.

use crate::{
    fixture::{Files, SEED, read_files, write_files},
    store_fixture::copy_folder,
};
use hashfold::{
    DataSet, Env, ErrorClass, ReadOptions,
    io::{Access, Disk, MemoryDisk, OsDisk},
    map::{self, Durability, Expiring, MAP_MEMORY_MIN, Map, MapOptions, Write},
    run::Run,
    table::{TableBuilder, TableOptions},
    work::{ManualClock, Watch},
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type ExpiringModel = BTreeMap<Vec<u8>, Expiring>;

/// The format versions of catalogs.
const VERSIONS: [&str; 2] = ["map-v1", "map-v2"];

/// Returns the folder of a golden map of a version: `map`; `expiring`, whose entries expire; `long`, whose log has
/// a record with its changes in blocks of their own; or `spilled`, whose log has a transaction with a list of such blocks,
/// which `map/parts_tests.rs` of the library makes.
fn golden(version: &str, name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(version).join(name)
}

fn options(env: &Env) -> MapOptions {
    MapOptions::new().env(env.clone()).seed(SEED).durability(Durability::Buffered)
}

fn key(i: u64) -> Vec<u8> {
    format!("key {i}").into_bytes()
}

fn value(i: u64, round: u64) -> Vec<u8> {
    vec![(i + round) as u8; (i % 40) as usize]
}

/// Makes a map with spans of both layouts, packets with tombstones, and changes in the log only.
fn make(env: &Env, folder: &Path) -> Model {
    make_with(options(env), folder)
}

fn make_with(options: MapOptions, folder: &Path) -> Model {
    let map = Map::create(folder, options).unwrap();
    let mut model = Model::new();
    let mut put = |numbers: &mut dyn Iterator<Item = u64>, round: u64| {
        let pairs: Vec<_> = numbers.map(|i| (key(i), value(i, round))).collect();
        map.put_many(pairs.iter().map(|(key, value)| (key, value))).unwrap();
        model.extend(pairs);
    };
    put(&mut (0..3000), 1);
    map.compact().unwrap();
    put(&mut (0..3000).step_by(50), 2);
    map.checkpoint().unwrap();
    put(&mut (2990..3010), 3);
    map.checkpoint().unwrap();
    put(&mut (0..3000).step_by(500), 4);
    for i in (0..3000).step_by(300) {
        map.delete(key(i)).unwrap();
        model.remove(&key(i));
    }
    map.sync().unwrap();
    model
}

#[track_caller]
fn check(map: &Map, model: &Model) {
    let keys: Vec<Vec<u8>> = (0..3020).map(key).collect();
    for (key, found) in keys.iter().zip(map.get_many(&keys).unwrap()) {
        assert_eq!(found.as_ref(), model.get(key));
    }
    let mut scan = map.snapshot().scan();
    let mut count = 0;
    while scan.advance().unwrap() {
        let entry = scan.entry();
        assert_eq!(model.get(entry.key).map(Vec::as_slice), entry.value);
        count += 1;
    }
    assert_eq!(count, model.len());
    assert!(map.verify(&Watch::default()).unwrap().is_sound());
}

fn built() -> (Files, Model) {
    let env = Env::simulated(7);
    let model = make(&env, Path::new("map"));
    (read_files(&*env.disk, Path::new("map")), model)
}

/// Makes a map whose log has a record that is too long to have its changes itself.
fn make_long(env: &Env, folder: &Path) -> Model {
    let map = Map::create(folder, options(env)).unwrap();
    let mut model: Model = (0..300).map(|i| (key(i), value(i, 1))).collect();
    map.put_many(&model).unwrap();
    map.compact().unwrap();
    let long = |i: u64| vec![i as u8; if i == 777 { 3000 } else { 900 }];
    let pairs: Vec<_> = (200..850).map(|i| (key(i), (i % 50 > 0).then(|| long(i)))).collect();
    let changes = pairs.iter().map(|(key, value)| (key, value.as_deref()));
    let changes: Vec<Write<'_>> =
        changes.map(|(key, value)| Write { key, value, expires_at: None }).collect();
    assert!(changes.iter().map(Write::size).sum::<usize>() > 520 << 10);
    map.write(&changes).unwrap();
    map.sync().unwrap();
    for (key, value) in pairs {
        match value {
            Some(value) => _ = model.insert(key, value),
            None => _ = model.remove(&key),
        }
    }
    model
}

fn built_long() -> (Files, Model) {
    let env = Env::simulated(11);
    let model = make_long(&env, Path::new("map"));
    (read_files(&*env.disk, Path::new("map")), model)
}

/// Returns the files of all golden maps of the last version, with their names.
fn built_all() -> [(&'static str, Files); 3] {
    [("map", built().0), ("expiring", built_expiring().0), ("long", built_long().0)]
}

/// The folders of a map on two devices.
const DEVICES: [&str; 2] = ["map", "device"];

/// Makes a map of [`make`] on two devices, with short stripes. Returns the files of each.
fn built_on_devices() -> ([Files; 2], Model) {
    let env = Env::simulated(13);
    let options = options(&env).devices([DEVICES[1]]).stripe_bytes(64 << 10);
    let model = make_with(options, Path::new(DEVICES[0]));
    (DEVICES.map(|folder| read_files(&*env.disk, Path::new(folder))), model)
}

#[test]
fn a_map_on_two_devices_is_read_and_written_to() {
    let disk = MemoryDisk::default();
    for folder in DEVICES {
        copy_folder(&OsDisk, &golden("map-v2/devices", folder), &disk, Path::new(folder));
    }
    let env = Env { disk: Arc::new(disk), ..Env::simulated(8) };
    let report = map::verify(&env, Path::new("map"), &Watch::default()).unwrap();
    assert!(report.is_sound() && report.figures.entries == 3000, "{report:?}");
    let mut model = built_on_devices().1;
    let map = Map::open_with("map", options(&env)).unwrap();
    check(&map, &model);
    assert!(map.devices().unwrap().iter().all(|device| device.reads > 10));
    map.put(key(5), b"new").unwrap();
    model.insert(key(5), b"new".to_vec());
    map.compact().unwrap();
    map.close().unwrap();
    check(&Map::open_with("map", options(&env)).unwrap(), &model);
}

#[test]
fn the_same_changes_give_the_same_map_on_two_devices() {
    for (folder, made) in DEVICES.into_iter().zip(built_on_devices().0) {
        let kept = read_files(&OsDisk, &golden("map-v2/devices", folder));
        assert!(kept == made, "{folder} has other files now");
    }
}

/// Makes a map of entries, of which many expire, in spans, in packets and in the log only.
fn make_expiring(env: &Env, folder: &Path) -> ExpiringModel {
    let map = Map::create(folder, options(env)).unwrap();
    let mut model = ExpiringModel::new();
    let mut put = |numbers: &mut dyn Iterator<Item = u64>, round: u64| {
        for i in numbers {
            let size = if i % 700 == 7 { 3000 } else { i % 40 };
            let value = vec![(i + round) as u8; size as usize];
            let expires_at = (i % 3 > 0).then_some(round * 10_000 + i);
            map.write(&[Write { key: &key(i), value: Some(&value), expires_at }]).unwrap();
            model.insert(key(i), Expiring { value, expires_at });
        }
    };
    put(&mut (0..1500), 1);
    map.compact().unwrap();
    put(&mut (0..1500).step_by(25), 2);
    map.checkpoint().unwrap();
    put(&mut (1490..1510), 3);
    put(&mut (0..1500).step_by(500), 0);
    map.sync().unwrap();
    model
}

/// Checks a map against a model at a time.
#[track_caller]
fn check_expiring(map: &Map, model: &ExpiringModel, now: u64) {
    let live = |found: &&Expiring| found.expires_at.is_none_or(|time| now < time);
    let keys: Vec<Vec<u8>> = (0..1520).map(key).collect();
    let mut count = 0;
    for (key, found) in keys.iter().zip(map.get_many_expiring(&keys).unwrap()) {
        assert_eq!(found.as_ref(), model.get(key).filter(live));
        count += u64::from(found.is_some());
    }
    assert_eq!(map.count().unwrap(), count);
    let mut scan = map.snapshot().scan();
    while scan.advance().unwrap() {
        let entry = scan.entry();
        let expected = model.get(entry.key).filter(live).map(|found| &found.value[..]);
        assert_eq!(entry.value, expected);
        count -= 1;
    }
    assert_eq!(count, 0);
    assert!(map.verify(&Watch::default()).unwrap().is_sound());
}

fn built_expiring() -> (Files, ExpiringModel) {
    let env = Env::simulated(9);
    let model = make_expiring(&env, Path::new("map"));
    (read_files(&*env.disk, Path::new("map")), model)
}

/// Copies a golden map, because opening a map may change its files.
fn golden_copy(version: &str, name: &str) -> Env {
    let disk = MemoryDisk::default();
    copy_folder(&OsDisk, &golden(version, name), &disk, Path::new("map"));
    Env { disk: Arc::new(disk), ..Env::simulated(8) }
}

#[test]
fn maps_of_all_versions_are_read_and_written_to() {
    for version in VERSIONS {
        let env = golden_copy(version, "map");
        let report = map::verify(&env, Path::new("map"), &Watch::default()).unwrap();
        assert!(report.is_sound(), "{version}: {}", report.damage[0]);
        assert!(report.figures.changes > 50 && report.figures.entries == 3000);
        let mut model = built().1;
        let map = Map::open_with("map", options(&env)).unwrap();
        check(&map, &model);
        map.put(key(5), b"new").unwrap();
        model.insert(key(5), b"new".to_vec());
        map.checkpoint().unwrap();
        map.close().unwrap();
        let map = Map::open_with("map", options(&env)).unwrap();
        check(&map, &model);
        map.compact().unwrap();
        map.close().unwrap();
        check(&Map::open_with("map", options(&env)).unwrap(), &model);
    }
}

#[test]
fn a_record_whose_changes_are_in_blocks_of_their_own_is_replayed() {
    let env = golden_copy(VERSIONS[1], "long");
    let model = built_long().1;
    let map = Map::open_with("map", options(&env)).unwrap();
    check(&map, &model);
    map.checkpoint().unwrap();
    map.close().unwrap();
    check(&Map::open_with("map", options(&env)).unwrap(), &model);
    // Also what is left of it without a catalog.
    let env = golden_copy(VERSIONS[1], "long");
    env.disk.remove(&Path::new("map").join("MANIFEST")).unwrap();
    let watch = Watch::default();
    let mut left = map::salvage("map", "spill", options(&env), &watch).unwrap();
    left.write_map("mended", &watch).unwrap();
    check(&Map::open_with("mended", options(&env)).unwrap(), &model);
}

/// Returns the entries of the golden map `spilled`.
fn spilled() -> Model {
    let mut model: Model = (0..200).map(|i| (key(i), vec![1; i as usize % 40])).collect();
    for step in 0..3000 {
        let i = step * 7 % 1500;
        let size = if i == 777 { 3000 } else { 40 + i % 20 };
        model.insert(key(i), vec![(i + step / 1500) as u8; size as usize]);
    }
    (0..1500).step_by(50).for_each(|i| _ = model.remove(&key(i)));
    model
}

#[test]
fn a_transaction_whose_parts_are_in_lists_is_replayed_and_salvaged() {
    // The map has another seed than the others.
    let options = |env: &Env| MapOptions::new().env(env.clone());
    let (env, model) = (golden_copy(VERSIONS[1], "spilled"), spilled());
    let map = Map::open_with("map", options(&env)).unwrap();
    check(&map, &model);
    map.checkpoint().unwrap();
    map.close().unwrap();
    check(&Map::open_with("map", options(&env)).unwrap(), &model);
    for lost in ["MANIFEST", "catalog-"] {
        let env = golden_copy(VERSIONS[1], "spilled");
        let names = env.disk.list(Path::new("map")).unwrap();
        for name in names.iter().filter(|name| name.starts_with(lost)) {
            env.disk.remove(&Path::new("map").join(name)).unwrap();
        }
        let watch = Watch::default();
        let mut left = map::salvage("map", "spill", options(&env), &watch).unwrap();
        left.write_map("mended", &watch).unwrap();
        assert_eq!(left.losses().len(), 1, "{:?}", left.losses());
        check(&Map::open_with("mended", options(&env)).unwrap(), &model);
    }
}

#[test]
fn a_transaction_of_four_times_the_memory_budget_is_committed_within_it() {
    let env = Env::simulated(9);
    let options = options(&env).memory(MAP_MEMORY_MIN);
    let map = Map::create("map", options.clone()).unwrap();
    let count = 4 * MAP_MEMORY_MIN as u64 / 110;
    let value = |i: u64| [i.to_le_bytes(); 12].concat();
    let mut transaction = map.transaction();
    let mut most = 0;
    // The first tenth is written twice.
    for i in (0..count / 10).chain(0..count) {
        transaction.put(key(i), value(i)).unwrap();
        if i % 500 == 0 {
            most = map.stat().transaction_bytes.max(most);
            let own = i / 3;
            assert_eq!(transaction.get(key(own)).unwrap(), Some(value(own)));
            assert_eq!(map.get(key(own)).unwrap(), None);
        }
    }
    assert!((100_000..MAP_MEMORY_MIN as u64 / 8).contains(&most), "{most}");
    transaction.commit().unwrap();
    let stats = map.stat();
    assert_eq!((stats.transaction_bytes, map.background_error().is_some()), (0, false));
    assert!(stats.buffered_bytes + stats.packet_bytes < MAP_MEMORY_MIN as u64, "{stats:?}");
    let check = |map: &Map| {
        for first in (0..count).step_by(10_000) {
            let numbers = first..count.min(first + 10_000);
            let found = map.get_many(&numbers.clone().map(key).collect::<Vec<_>>()).unwrap();
            assert!(numbers.zip(found).all(|(i, found)| found == Some(value(i))), "{first}");
        }
    };
    check(&map);
    map.sync().unwrap();
    drop(map);
    let map = Map::open_with("map", options).unwrap();
    check(&map);
    assert_eq!(map.count().unwrap(), count);
}

#[test]
fn expiring_entries_of_all_versions_are_read_and_expire() {
    for version in VERSIONS {
        let clock = ManualClock::new(1);
        let env = Env { clock: Arc::new(clock.clone()), ..golden_copy(version, "expiring") };
        let model = built_expiring().1;
        let map = Map::open_with("map", options(&env)).unwrap();
        check_expiring(&map, &model, 0);
        clock.advance(Duration::from_millis(10_700));
        check_expiring(&map, &model, 10_700);
        map.compact().unwrap();
        check_expiring(&map, &model, 10_700);
        map.close().unwrap();
        clock.advance(Duration::from_millis(20_000));
        check_expiring(&Map::open_with("map", options(&env)).unwrap(), &model, 30_700);
    }
}

#[test]
fn the_same_changes_give_the_same_map() {
    for (name, made) in built_all() {
        let kept = read_files(&OsDisk, &golden(VERSIONS[1], name));
        assert_eq!(kept.keys().collect::<Vec<_>>(), made.keys().collect::<Vec<_>>());
        for (file, bytes) in &kept {
            assert!(*bytes == made[file], "{name}/{file} has other bytes now");
        }
    }
}

/// Writes the golden files: `cargo test --test it map::write_golden -- --ignored`. Only for a new
/// format version: files of a released version never change.
#[test]
#[ignore = "writes to the source tree"]
fn write_golden_files() {
    for (folder, files) in DEVICES.into_iter().zip(built_on_devices().0) {
        write_files(&OsDisk, &golden("map-v2/devices", folder), &files);
    }
    for (name, files) in built_all() {
        let folder = golden(VERSIONS[1], name);
        if OsDisk.exists(&folder).unwrap() {
            for file in OsDisk.list(&folder).unwrap() {
                OsDisk.remove(&folder.join(file)).unwrap();
            }
        }
        write_files(&OsDisk, &folder, &files);
    }
}

#[test]
fn a_table_is_made_from_a_scan() {
    let env = Env::simulated(1);
    let model = make(&env, Path::new("map"));
    let map = Map::open_with("map", options(&env)).unwrap();
    let builder = TableBuilder::with("table", TableOptions::new().env(env.clone()).seed(SEED));
    builder.unwrap().build(&mut map.snapshot().scan(), &Watch::default()).unwrap();
    let DataSet::Table(table) =
        hashfold::open_with("table", &ReadOptions::new().env(env.clone())).unwrap()
    else {
        panic!("a table was built")
    };
    assert_eq!(table.stats().entries, model.len() as u64);
    for (key, value) in &model {
        assert_eq!(table.get(key).unwrap().as_ref(), Some(value));
    }
}

/// Each flipped bit in a file of the map is an error or has no effect, never a wrong answer.
#[test]
fn a_flipped_bit_in_any_file_is_no_wrong_answer() {
    let (files, model) = built();
    let mut refused = 0;
    let used = |name: &str| if name.starts_with("wal-") { 3 * 4096 } else { usize::MAX };
    for (name, bytes) in &files {
        for at in (0..bytes.len().min(used(name))).step_by(397) {
            let env = Env::simulated(9);
            write_files(&*env.disk, Path::new("map"), &files);
            let path = Path::new("map").join(name);
            let file = env.disk.open_to_write(&path, Access::Cached).unwrap();
            file.write_at(at as u64, &[bytes[at] ^ (1 << (at % 8))]).unwrap();
            let map = match Map::open_with("map", options(&env)) {
                Ok(map) => map,
                Err(error) => {
                    assert_eq!(error.class(), ErrorClass::Damage, "{name} at {at}: {error}");
                    refused += 1;
                    continue;
                }
            };
            // The end of the log may be lost: its last record cannot be told from a torn one.
            let is_log = name.starts_with("wal-");
            for i in (0..3010).step_by(10) {
                match map.get(key(i)) {
                    Ok(found) => {
                        let is_right = is_log || found.as_ref() == model.get(&key(i));
                        assert!(is_right, "{name} at {at}");
                    }
                    Err(error) => assert_eq!(error.class(), ErrorClass::Damage, "{error}"),
                }
            }
        }
    }
    assert!(refused > 20, "{refused}");
}

/// The space on the device follows the entries: after a load, after as many updates, after deletions.
#[test]
fn a_map_takes_little_more_space_than_its_entries() {
    const COUNT: u64 = 200_000;
    let folder = tempfile::tempdir().unwrap();
    let options = MapOptions::new().memory(MAP_MEMORY_MIN).durability(Durability::Buffered);
    let map = Map::create(folder.path().join("map"), options).unwrap();
    let key = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    let check = |entries: u64, ratio_max: f64| {
        map.checkpoint().unwrap();
        let space = map.space().unwrap();
        let ratio = space.device_bytes() as f64 / (entries * 16) as f64;
        assert!(ratio < ratio_max, "{ratio}: {space:?} {:?}", map.stat());
        assert_eq!(space.log_bytes, 0);
    };
    map.put_many((0..COUNT).map(|i| (key(i), i.to_le_bytes()))).unwrap();
    check(COUNT, 1.8);
    for i in 0..COUNT {
        let number = i * i % COUNT;
        map.put(key(number), (number + 1).to_le_bytes()).unwrap();
    }
    check(COUNT, 2.2);
    (0..COUNT).filter(|i| i % 2 == 0).for_each(|i| _ = map.delete(key(i)).unwrap());
    map.compact().unwrap();
    check(COUNT / 2, 1.8);
    (0..COUNT).filter(|i| i % 50 > 0).for_each(|i| _ = map.delete(key(i)).unwrap());
    map.compact().unwrap();
    // A reserve of 256 KiB, and 16 groups with a block that is not full.
    assert!(map.space().unwrap().device_bytes() < 600 << 10, "{:?}", map.space());
}

#[test]
fn a_map_lives_on_the_real_file_system() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("map");
    for access in [Access::Cached, Access::Direct] {
        let open = || {
            let options = MapOptions::new().memory(MAP_MEMORY_MIN).access(access);
            Map::open_or_create_with(&folder, options.durability(Durability::Group)).unwrap()
        };
        let map = open();
        let round = access as u64;
        let pairs = |part: u64| {
            (part * 20_000..(part + 1) * 20_000).map(move |i| (key(i), value(i, round)))
        };
        std::thread::scope(|scope| {
            for part in 0..4 {
                let map = &map;
                scope.spawn(move || map.put_many(pairs(part)).unwrap());
            }
        });
        let keys: Vec<_> = (0..80_000).step_by(7).map(key).collect();
        let check = |map: &Map| {
            for (i, found) in map.get_many(&keys).unwrap().into_iter().enumerate() {
                assert_eq!(found, Some(value(7 * i as u64, round)));
            }
        };
        check(&map);
        drop(map);
        let map = open();
        check(&map);
        assert!(map.background_error().is_none());
        map.close().unwrap();
        check(&open());
    }
}

#[test]
fn a_file_in_place_of_the_folder_of_a_map_is_named() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    for file in [&file, &file.join("below")] {
        for opened in [Map::open_or_create(file), Map::create(file, MapOptions::new())] {
            let error = opened.unwrap_err();
            assert_eq!(error.class(), ErrorClass::Usage, "{error}");
            let message = "path is that of a file, or below a file, expected a folder";
            assert_eq!(error.to_string(), format!("{}: {message}", file.display()));
        }
    }
}
