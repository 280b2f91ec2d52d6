//! Records of the log whose changes are in blocks of their own: forged ones, and a golden map.

use super::{
    item::{Content, Value},
    tests::{folder, on, tiny},
    *,
};
use crate::{
    env::Env,
    error::ErrorClass,
    io::{Access, CountingDisk, Disk, FaultPlan, FaultyDisk, MemoryDisk, OsDisk, read_all},
    run::Run as _,
    wal::{self, WalFiles},
    work::{Inline, Watch},
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A log may be forged: with the right checksums, it names parts and lists again and again.
#[test]
fn a_log_that_names_a_part_twice_is_damaged_and_is_read_once() {
    let disk = MemoryDisk::default();
    let options = MapOptions { wal_bytes: 1 << 30, ..on(&disk, Arc::new(Inline)) };
    let map = Map::create(folder(), options.clone()).unwrap();
    let core = map.core();
    let mut part = Vec::new();
    let content = Content::lasting(Value::Inline(&[7; 500]));
    (0..7).for_each(|i| log::encode(&mut part, &[i], content));
    let (pointer, _part) = core.write_large(&part).unwrap();
    let part = log::Part { count: 7, pointer };
    let mut places = Vec::new();
    (0..80).for_each(|_| log::encode_part(&mut places, part));
    let (pointer, _list) = core.write_large(&places).unwrap();
    let list = log::Part { count: 7 * 80, pointer };
    let mut lists = Vec::new();
    (0..150).for_each(|_| log::encode_list(&mut lists, list));
    core.sync_data().unwrap();
    let copy = || FaultyDisk::over(&disk, FaultPlan::default()).snapshot();
    let twice = [&places[..places.len() / 80 * 2], &lists[..lists.len() / 150], &lists];
    let mut made = Vec::new();
    for (payload, count) in twice.into_iter().zip([14, 560, 560 * 150]) {
        let disk = copy();
        let map = Map::open_with(folder(), on(&disk, Arc::new(Inline))).unwrap();
        map.core().log().append(count, payload).unwrap();
        map.sync().unwrap();
        drop(map);
        made.push(disk);
    }
    for (disk, named) in made.iter().zip([2, 80, 80 + 149]) {
        let error = Map::open_with(folder(), on(disk, Arc::new(Inline))).unwrap_err();
        assert_eq!(error.class(), ErrorClass::Damage, "{error}");
        let names = disk.list(folder()).unwrap();
        let without = FaultyDisk::over(disk, FaultPlan::default()).snapshot();
        let catalogs = names.iter().filter(|name| catalog::is_catalog(name));
        catalogs.for_each(|name| without.remove(&folder().join(name)).unwrap());
        for disk in [disk, &without] {
            let counting = CountingDisk::on(Arc::new(disk.clone()));
            let options = tiny(Env { disk: Arc::new(counting.clone()), ..Env::simulated(1) });
            let mut run = salvage(folder(), "spill", options, &Watch::default()).unwrap();
            let mut count = 0;
            while run.advance().unwrap() {
                assert_eq!(run.entry().value, Some(&[7; 500][..]));
                count += 1;
            }
            assert_eq!(count, 7);
            let lost = run.losses().iter().filter(|loss| matches!(loss.lost, Lost::Records(_)));
            assert!((named - 1..named + 2).contains(&lost.count()), "{:?}", run.losses());
            // Far less than as often as the part is named.
            let read = counting.take().read_bytes;
            assert!(read < 8 << 20, "{read}");
        }
    }
    drop(map);
}

/// Files by their names.
type Files = BTreeMap<String, Vec<u8>>;

/// Returns the folder of the golden map whose log has a transaction with a list of parts. Parts and lists are short in
/// tests only: the public interface makes lists of transactions above some hundred MiB.
fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/map-v2/spilled")
}

fn files(disk: &dyn Disk, folder: &Path) -> Files {
    let read = |name: String| {
        let file = disk.open(&folder.join(&name), Access::Cached).unwrap();
        let bytes = read_all(&*file, u64::MAX).unwrap().to_vec();
        (name, bytes)
    };
    disk.list(folder).unwrap().into_iter().map(read).collect()
}

/// Makes the golden map; `tests/it/map.rs` has its entries.
fn make_golden(disk: &MemoryDisk) {
    let options = MapOptions { wal_bytes: 1 << 30, ..on(disk, Arc::new(Inline)) };
    let map = Map::create(folder(), options.durability(Durability::Buffered)).unwrap();
    let key = |i: u64| format!("key {i}");
    (0..200).for_each(|i| _ = map.put(key(i), vec![1; i as usize % 40]).unwrap());
    map.compact().unwrap();
    let mut transaction = map.transaction();
    for step in 0..3000_u64 {
        let i = step * 7 % 1500;
        if i.is_multiple_of(50) {
            transaction.delete(key(i)).unwrap();
            continue;
        }
        let size = if i == 777 { 3000 } else { 40 + i % 20 };
        let value = vec![(i + step / 1500) as u8; size as usize];
        transaction.put(key(i), value).unwrap();
    }
    transaction.commit().unwrap();
    map.sync().unwrap();
}

#[test]
fn the_same_transaction_gives_the_same_parts_and_lists() {
    let disk = MemoryDisk::default();
    make_golden(&disk);
    let map = Map::open_with(folder(), on(&disk, Arc::new(Inline))).unwrap();
    let identity = map.core().identity;
    let (seed, id) = (identity.seed, identity.id);
    drop(map);
    let (mut lists, mut parts) = (0, 0);
    let log = WalFiles { disk: &disk, folder: folder(), seed, id };
    let mut count = |record: wal::Record<'_>| {
        log::decode(record.payload, record.count, seed, |logged| {
            match logged {
                log::Logged::List(_) => lists += 1,
                log::Logged::Part(_) => parts += 1,
                _ => {}
            }
            Ok(())
        })
    };
    wal::salvage(log, 0..0, &mut count).unwrap();
    assert!(lists > 0 && parts > 0, "{lists} {parts}");
    let disk = MemoryDisk::default();
    make_golden(&disk);
    let (kept, made) = (files(&OsDisk, &golden()), files(&disk, folder()));
    assert_eq!(kept.keys().collect::<Vec<_>>(), made.keys().collect::<Vec<_>>());
    assert!(kept.iter().all(|(name, bytes)| *bytes == made[name]), "it has other bytes now");
}

/// Writes the golden files: `cargo test --lib parts_tests::write_golden -- --ignored`. Only for a new format version:
/// files of a released version never change.
#[test]
#[ignore = "writes to the source tree"]
fn write_golden_files() {
    let disk = MemoryDisk::default();
    make_golden(&disk);
    if OsDisk.exists(&golden()).unwrap() {
        let names = OsDisk.list(&golden()).unwrap();
        names.iter().for_each(|name| OsDisk.remove(&golden().join(name)).unwrap());
    } else {
        OsDisk.create_folder(&golden()).unwrap();
    }
    for (name, bytes) in files(&disk, folder()) {
        let file = OsDisk.create(&golden().join(name), Access::Cached).unwrap();
        file.write_at(0, &bytes).unwrap();
    }
}
