//! Stores against sorted maps.

use super::{
    join::{Join, Keep},
    *,
};
use crate::{
    env::Env,
    error::{ErrorKind, Result},
    io::{Access, CountingDisk, Disk, FaultPlan, FaultyDisk, MemoryDisk},
    key::{KeyHash, Seed},
    options::ReadOptions,
    run::{Run, SortOptions, VecRun},
    work::{
        Clock as _, Executor, Inline, ManualClock, MemoryBudget, Threads, Watch, testing::Late,
    },
};
use std::{
    collections::BTreeMap,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

const SEED: Seed = Seed(7);
const FOLDER: &str = "store";

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Every chunk has tables of its own.
const APART: TableSizes = TableSizes { base_bytes_min: 0, delta_bytes_min: 0 };

/// Creates a store in which every chunk has tables of its own.
fn create(disk: &Arc<dyn Disk>, chunks: u32, executor: Arc<dyn Executor>) -> StoreWriter {
    let attributes = vec![("schema".to_owned(), b"none".to_vec())];
    let options = StoreOptions::new().seed(SEED).id(99).chunks(chunks).attributes(attributes);
    let mut writer = StoreWriter::create(
        Path::new(FOLDER),
        options.env(Env { executor, ..Env::on(disk.clone()) }),
    )
    .unwrap();
    writer.set_table_sizes(APART);
    writer
}

fn memory_disk() -> Arc<dyn Disk> {
    Arc::new(MemoryDisk::default())
}

/// A generator of random numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (x ^ (x >> 27)) % n
    }
}

fn facts(id: u64) -> VersionFacts {
    VersionFacts { id, created_s: id, provenance: Vec::new() }
}

/// Puts and deletions of keys below `keys`.
fn random_batch(random: &mut Random, keys: u64, size: u64) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let entry = |random: &mut Random| {
        let key = format!("key {}", random.below(keys)).into_bytes();
        let value = (random.below(4) > 0)
            .then(|| vec![random.below(256) as u8; random.below(300) as usize]);
        (key, value)
    };
    (0..size).map(|_| entry(random)).collect()
}

fn write(
    writer: &mut StoreWriter,
    entries: &[(Vec<u8>, Option<Vec<u8>>)],
    mode: UpdateMode,
    id: u64,
) -> Result<VersionInfo> {
    let mut batch = writer.batch(SortOptions::within(1 << 20))?;
    for (key, value) in entries {
        batch.push(key, value.as_deref())?;
    }
    writer.write(batch, mode, facts(id), &Watch::default())
}

fn update(map: &mut Map, entries: &[(Vec<u8>, Option<Vec<u8>>)]) {
    for (key, value) in entries {
        match value {
            Some(value) => map.insert(key.clone(), value.clone()),
            None => map.remove(key),
        };
    }
}

fn open(disk: &Arc<dyn Disk>, number: u64) -> Version {
    Version::open(Path::new(FOLDER), number, &ReadOptions::new().env(Env::on(disk.clone())))
        .unwrap()
}

/// A program that writes to a store again and again reads no more of it if there are more versions. What other writers left
/// is removed when one of them has changed the store.
#[test]
fn a_further_version_costs_no_more_in_a_store_of_many() {
    let counting = CountingDisk::on(memory_disk());
    let disk: Arc<dyn Disk> = Arc::new(counting.clone());
    let env = Env::on(disk.clone());
    let mut sequence = 0;
    let mut add = |number: u64| {
        let mut writer = match number {
            1 => create(&disk, 1, Arc::new(Inline)),
            _ => StoreWriter::open_again(&env, FOLDER, sequence).unwrap(),
        };
        counting.take();
        let entries = [(b"key".to_vec(), Some(number.to_le_bytes().to_vec()))];
        let info = write(&mut writer, &entries, UpdateMode::Replace, number).unwrap();
        let reads = counting.take().reads;
        assert!(write(&mut writer, &entries, UpdateMode::Replace, number).is_err(), "same id");
        writer.publish(info.name.number).unwrap();
        sequence = writer.pointer().sequence;
        drop(writer);
        counting.take();
        drop(StoreWriter::open_again(&env, FOLDER, sequence).unwrap());
        (reads, counting.take().reads)
    };
    let few = (1..=3).map(&mut add).last();
    let many = (4..=50).map(&mut add).last();
    assert_eq!(few, many);
    let mut other = StoreWriter::open(&env, FOLDER).unwrap();
    assert!(counting.take().reads >= 50, "all versions are read");
    let left = layer::folder_of(&Path::new(FOLDER).join("tables"), 7);
    disk.create_folder(&left).unwrap();
    other.pin(1, Pin::Keep).unwrap();
    let after = other.pointer().sequence;
    drop(other);
    drop(StoreWriter::open_again(&env, FOLDER, after).unwrap());
    assert!(disk.exists(&left).unwrap());
    drop(StoreWriter::open_again(&env, FOLDER, sequence).unwrap());
    assert!(!disk.exists(&left).unwrap());
}

/// Returns all entries of some ranges of chunks, each scanned separately.
fn scan_ranges(version: &Version, ranges: impl Iterator<Item = Range<u32>>) -> Map {
    let mut map = Map::new();
    for chunks in ranges {
        let mut run = version.scan_chunks(chunks.clone());
        let mut last = KeyHash::from_bits(0);
        while run.advance().unwrap() {
            let entry = run.entry();
            assert!(entry.hash >= last);
            assert!(chunks.contains(&version.info().shape.slots.chunk_of(entry.key)));
            last = entry.hash;
            assert!(map.insert(entry.key.to_vec(), entry.value.unwrap().to_vec()).is_none());
        }
    }
    map
}

fn scan_all(version: &Version) -> Map {
    scan_ranges(version, version.parts())
}

/// Checks that a version holds exactly what a map holds, with every kind of query.
#[track_caller]
fn check(version: &Version, map: &Map, keys: u64) {
    assert!(scan_all(version) == *map);
    let chunks = version.info().shape.slots.chunks();
    assert!(scan_ranges(version, (0..chunks).map(|chunk| chunk..chunk + 1)) == *map);
    assert!(scan_ranges(version, [0..chunks / 2, chunks / 2..chunks].into_iter()) == *map);
    let asked: Vec<Vec<u8>> = (0..keys + 5).map(|i| format!("key {i}").into_bytes()).collect();
    let mut seen = 0;
    version
        .get_many(&asked, &mut |i, value| {
            assert_eq!(value, map.get(&asked[i]).map(Vec::as_slice), "{i}");
            seen += 1;
            Ok(())
        })
        .unwrap();
    assert_eq!(seen, asked.len());
    for key in &asked {
        assert_eq!(version.get(key).unwrap().as_ref(), map.get(key));
        assert_eq!(version.contains(key).unwrap(), map.contains_key(key));
    }
    assert!(version.info().entries().contains(&(map.len() as u64)));
}

/// Issue 10: a sorter read chunks before they were written, and the batch was refused as damaged.
#[test]
fn chunks_take_values_as_large_as_the_memory_of_one() {
    const CHUNKS: u32 = 4;
    for (seed, mode) in
        (0..).zip([UpdateMode::Merge, UpdateMode::Delta, UpdateMode::Replace, UpdateMode::Auto])
    {
        let disk = memory_disk();
        let mut random = Random(seed);
        let mut writer = create(&disk, CHUNKS, Arc::new(Late::new(3, Seed(seed))));
        let mut map = Map::new();
        for id in 1..3 {
            let mut entries = random_batch(&mut random, 100, 200);
            for (_, value) in entries.iter_mut().step_by(20) {
                *value = Some(vec![random.below(256) as u8; random.below(5 << 20) as usize]);
            }
            let mut batch = writer.batch(SortOptions::within((CHUNKS as usize) << 22)).unwrap();
            for (key, value) in &entries {
                batch.push(key, value.as_deref()).unwrap();
            }
            let info = writer.write(batch, mode, facts(id), &Watch::default()).unwrap();
            writer.publish(info.name.number).unwrap();
            if mode == UpdateMode::Replace {
                map.clear();
            }
            update(&mut map, &entries);
            check(&open(&disk, info.name.number), &map, 100);
        }
    }
}

/// Compares random batches in all modes with maps; every version must stay as it was.
fn agree_with_maps(chunks: u32, sizes: TableSizes, executor: &Arc<dyn Executor>, seed: u64) {
    const KEYS: u64 = 400;
    let disk = memory_disk();
    let random = &mut Random(seed);
    let mut writer = create(&disk, chunks, executor.clone());
    writer.set_table_sizes(sizes);
    let mut maps: Vec<Map> = Vec::new();
    for i in 0..14 {
        let size = [0, 3, 40, 600][random.below(4) as usize];
        let entries = random_batch(random, KEYS, size);
        let mode = [
            UpdateMode::Auto,
            UpdateMode::Merge,
            UpdateMode::Delta,
            UpdateMode::Delta,
            UpdateMode::Replace,
        ][random.below(5) as usize];
        let before = maps.last().cloned().unwrap_or_default();
        let mut after = if mode == UpdateMode::Replace { Map::new() } else { before.clone() };
        update(&mut after, &entries);
        let info = write(&mut writer, &entries, mode, 1000 + i).unwrap();
        assert_eq!(info.name.number, i + 1);
        if let Some(changes) = info.changes {
            assert_eq!(changes, count(&before, &after), "version {}, {mode:?}", i + 1);
        }
        writer.publish(info.name.number).unwrap();
        maps.push(after);
    }
    for (number, map) in (1..).zip(&maps) {
        check(&open(&disk, number), map, KEYS);
        let report =
            verify(&Env::on(disk.clone()), Path::new(FOLDER), number, &Watch::default()).unwrap();
        assert!(report.damage.is_empty(), "{:?}", report.damage);
    }
}

fn count(before: &Map, after: &Map) -> Changes {
    let mut changes = Changes::default();
    for (key, value) in after {
        match before.get(key) {
            None => changes.added += 1,
            Some(old) if old == value => changes.unchanged += 1,
            Some(_) => changes.changed += 1,
        }
    }
    changes.removed = before.keys().filter(|key| !after.contains_key(*key)).count() as u64;
    changes
}

#[test]
fn versions_agree_with_maps() {
    let inline: Arc<dyn Executor> = Arc::new(Inline);
    for seed in 0..12 {
        agree_with_maps(1, APART, &inline, seed);
        agree_with_maps(5, APART, &inline, seed);
        agree_with_maps(9, TableSizes::default(), &inline, seed);
        // Several chunks in a base, and deltas over several bases.
        let sizes = TableSizes { base_bytes_min: 12 << 10, delta_bytes_min: 24 << 10 };
        agree_with_maps(20, sizes, &inline, seed);
    }
    let threads: Arc<dyn Executor> = Arc::new(Threads::new(2));
    agree_with_maps(1, APART, &threads, 100);
    agree_with_maps(7, APART, &threads, 101);
    agree_with_maps(300, TableSizes::default(), &threads, 102);
}

/// All pairs of runs over three keys, each absent, put with one of two values or, in the new run,
/// deleted.
#[test]
fn every_small_join_agrees_with_a_map() {
    let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
    let values: [Option<&[u8]>; 3] = [Some(b"1"), Some(b"2"), None];
    let run = |mut code: usize, states: usize| {
        let mut entries = Vec::new();
        for key in keys {
            let state = code % states;
            code /= states;
            if state > 0 {
                entries.push((key.to_vec(), values[state - 1].map(<[u8]>::to_vec)));
            }
        }
        entries
    };
    for (old, new) in (0..27).flat_map(|old| (0..64).map(move |new| (old, new))) {
        let (old, new) = (run(old, 3), run(new, 4));
        let mut before = Map::new();
        update(&mut before, &old);
        for keep in [Keep::Overlay, Keep::Replace, Keep::Difference] {
            let mut after = if keep == Keep::Overlay { before.clone() } else { Map::new() };
            update(&mut after, &new);
            let sorted = |entries: &Vec<_>| VecRun::new(entries.clone(), SEED);
            let mut join = Join::new(sorted(&old), sorted(&new), keep);
            let mut out = Vec::new();
            while join.advance().unwrap() {
                let entry = join.entry();
                out.push((entry.key.to_vec(), entry.value.map(<[u8]>::to_vec)));
            }
            // A difference leads from the old state to the new one.
            let mut result = if keep == Keep::Difference { before.clone() } else { Map::new() };
            update(&mut result, &out);
            assert_eq!(result, after, "{old:?} {new:?} {keep:?}");
            assert_eq!(join.changes(), count(&before, &after), "{old:?} {new:?} {keep:?}");
            let differing = out.len() as u64;
            assert!(keep != Keep::Difference || differing == join.changes().total());
        }
    }
}

#[test]
fn a_version_that_was_rolled_back_is_not_published_by_accident() {
    let disk = memory_disk();
    let mut writer = create(&disk, 1, Arc::new(Inline));
    assert!(writer.roll_back().is_err());
    for id in 1..=3 {
        let entry = (b"key".to_vec(), Some(vec![id as u8]));
        write(&mut writer, &[entry], UpdateMode::Merge, id).unwrap();
        writer.publish(id).unwrap();
    }
    let follower = StoreReader::open_with(
        FOLDER,
        &ReadOptions::new().env(Env { disk: disk.clone(), ..Env::simulated(1) }),
    )
    .unwrap();
    let third = follower.version();
    assert_eq!(third.get(b"key").unwrap(), Some(vec![3]));
    assert!(!follower.refresh().unwrap());
    assert_eq!(writer.roll_back().unwrap(), 2);
    assert!(follower.refresh().unwrap());
    assert_eq!(follower.version().get(b"key").unwrap(), Some(vec![2]));
    assert_eq!(third.get(b"key").unwrap(), Some(vec![3]));
    assert!(matches!(writer.publish(3).unwrap_err().kind(), ErrorKind::Argument { .. }));
    assert_eq!(writer.roll_back().unwrap(), 1);
    assert!(writer.roll_back().is_err());
    writer.forgive(3).unwrap();
    writer.publish(3).unwrap();
    assert_eq!(writer.pointer().current, Some(3));
    // A version that was not published can be marked bad, too; the current one cannot.
    assert!(writer.condemn(3).is_err());
    writer.forgive(2).unwrap();
    writer.condemn(2).unwrap();
    writer.condemn(2).unwrap();
    assert!(matches!(writer.publish(2).unwrap_err().kind(), ErrorKind::Argument { .. }));
    // A number is never used twice.
    let entry = (b"key".to_vec(), Some(vec![9]));
    assert_eq!(write(&mut writer, &[entry], UpdateMode::Auto, 9).unwrap().name.number, 4);
}

#[test]
fn a_delta_file_makes_the_same_version_elsewhere() {
    for chunks in [1, 4] {
        let (here, there) = (memory_disk(), memory_disk());
        let random = &mut Random(5);
        let first = random_batch(random, 300, 500);
        let second = random_batch(random, 300, 100);
        for disk in [&here, &there] {
            let mut writer = create(disk, chunks, Arc::new(Inline));
            write(&mut writer, &first, UpdateMode::Merge, 1).unwrap();
            writer.publish(1).unwrap();
        }
        let mut writer = StoreWriter::open(&Env::on(here.clone()), Path::new(FOLDER)).unwrap();
        writer.set_attribute("schema", b"new".to_vec());
        write(&mut writer, &second, UpdateMode::Delta, 2).unwrap();
        let (old, new) = (open(&here, 1), open(&here, 2));
        let path = PathBuf::from("file.delta");
        let unwatched = Watch::default();
        let (info, changes) = diff(&Env::on(there.clone()), &old, &new, &path, &unwatched).unwrap();
        assert_eq!(changes, count(&scan_all(&old), &scan_all(&new)));
        assert_eq!((info.entries, info.deletions), (changes.total(), changes.removed));
        let mut writer = StoreWriter::open(&Env::on(there.clone()), Path::new(FOLDER)).unwrap();
        let sort = SortOptions::within(1 << 20);
        let made =
            writer.apply(&path, sort, UpdateMode::Merge, facts(77), &Watch::default()).unwrap();
        assert_eq!(made.name.id, 2);
        assert_eq!(made.attributes, [("schema".to_owned(), b"new".to_vec())]);
        writer.publish(made.name.number).unwrap();
        assert!(scan_all(&open(&there, made.name.number)) == scan_all(&new));
        // The delta does not lead from the version that is current now.
        let error =
            writer.apply(&path, sort, UpdateMode::Merge, facts(78), &Watch::default()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Mismatch { .. }), "{error}");
    }
}

#[test]
fn a_diff_reports_progress_and_can_be_cancelled() {
    let disk = memory_disk();
    let mut writer = create(&disk, 3, Arc::new(Inline));
    let entry = |i: u64| (i.to_le_bytes().to_vec(), Some(vec![0]));
    write(&mut writer, &(0..50_000).map(entry).collect::<Vec<_>>(), UpdateMode::Merge, 1).unwrap();
    writer.publish(1).unwrap();
    write(&mut writer, &(49_900..50_100).map(entry).collect::<Vec<_>>(), UpdateMode::Merge, 2)
        .unwrap();
    let (old, new) = (open(&disk, 1), open(&disk, 2));
    let diff =
        |watch: &Watch| diff(&Env::on(disk.clone()), &old, &new, Path::new("d"), watch).map(drop);
    let told = Arc::new(AtomicU64::new(0));
    let teller = told.clone();
    diff(&Watch::new(move |more| {
        teller.fetch_add(more, Relaxed);
        Ok(())
    }))
    .unwrap();
    let told = told.load(Relaxed);
    assert!((80_000..=100_100).contains(&told), "{told}");
    // The watch is called although nothing differs.
    let error = diff(&Watch::new(|_| Err(ErrorKind::Stopped.into()))).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Stopped), "{error}");
}

#[test]
fn needed_versions_stay_and_others_are_removed() {
    let disk = memory_disk();
    let mut writer = create(&disk, 1, Arc::new(Inline));
    for id in 1..=6 {
        let mode = if id == 2 { UpdateMode::Delta } else { UpdateMode::Merge };
        write(&mut writer, &[(vec![id as u8], Some(vec![1]))], mode, id).unwrap();
        if id != 5 {
            writer.publish(id).unwrap();
        }
    }
    let held = open(&disk, 3);
    writer.pin(2, Pin::Keep).unwrap();
    let all_go = Retention { now_s: 100, ..Retention::default() };
    let rules = Retention { unpublished_age_s_min: 96, ..all_go };
    let planned = writer.plan_collection(&rules).unwrap();
    let removed = writer.collect(&rules, &Watch::default()).unwrap();
    assert_eq!(removed, planned);
    assert_eq!(removed.versions, [1, 4]);
    assert_eq!(
        removed.kept,
        [(2, Reason::Pinned), (3, Reason::InUse), (5, Reason::Unpublished), (6, Reason::Current)]
    );
    // The base of version 1 is the base of version 2, too.
    assert_eq!(removed.tables, 1);
    assert_eq!(scan_all(&open(&disk, 2)).len(), 2);
    assert_eq!(scan_all(&held).len(), 3);
    drop(held);
    writer.pin(2, Pin::Release).unwrap();
    let young = Retention { age_s_min: 98, ..rules };
    let removed = writer.collect(&young, &Watch::default()).unwrap();
    assert_eq!((removed.versions, removed.tables), (vec![2], 2));
    // If the clock was set back, every version is young.
    let early = Retention { now_s: 0, age_s_min: 1, ..rules };
    assert!(writer.collect(&early, &Watch::default()).unwrap().versions.is_empty());
    let removed = writer.collect(&rules, &Watch::default()).unwrap();
    assert_eq!(removed.versions, [3]);
    // Version 5 was made 95 seconds ago, and never published.
    let planned = writer.plan_collection(&all_go).unwrap();
    let removed = writer.collect(&all_go, &Watch::default()).unwrap();
    assert_eq!((&removed.versions, &removed), (&vec![5], &planned));
    let mut tables = disk.list(&Path::new(FOLDER).join("tables")).unwrap();
    tables.retain(|name| name.len() == 16);
    assert_eq!(tables.len(), 1);
}

#[test]
fn a_version_that_was_never_current_can_be_discarded() {
    let disk = memory_disk();
    let mut writer = create(&disk, 2, Arc::new(Inline));
    let entry = |byte| vec![(vec![byte], Some(vec![byte]))];
    write(&mut writer, &entry(1), UpdateMode::Merge, 1).unwrap();
    writer.publish(1).unwrap();
    write(&mut writer, &entry(2), UpdateMode::Merge, 2).unwrap();
    let tables = || disk.list(&Path::new(FOLDER).join("tables")).unwrap().len();
    assert_eq!(tables(), 3);
    let held = open(&disk, 2);
    assert!(matches!(writer.discard(2).unwrap_err().kind(), ErrorKind::Busy));
    drop(held);
    // Version 1 shares the chunk that the batch does not touch.
    let removed = writer.discard(2).unwrap();
    assert_eq!((removed.versions, removed.tables, tables()), (vec![2], 1, 2));
    assert_eq!(scan_all(&open(&disk, 1)).len(), 1);
    assert!(matches!(writer.discard(1).unwrap_err().kind(), ErrorKind::Argument { .. }));
    assert!(matches!(writer.discard(2).unwrap_err().kind(), ErrorKind::Absent));
    // The number is used again, also by the next writer.
    assert_eq!(write(&mut writer, &entry(3), UpdateMode::Merge, 3).unwrap().name.number, 2);
    writer.discard(2).unwrap();
    drop(writer);
    let mut writer = StoreWriter::open(&Env::on(disk.clone()), Path::new(FOLDER)).unwrap();
    assert_eq!(write(&mut writer, &entry(4), UpdateMode::Merge, 4).unwrap().name.number, 2);
}

/// Issue 12: a rollback after a merge led to the same entries.
#[test]
fn a_rollback_after_a_merge_goes_to_other_entries() {
    let disk = memory_disk();
    let mut writer = create(&disk, 1, Arc::new(Inline));
    let entry = |byte| vec![(vec![byte], Some(vec![byte]))];
    let steps =
        [(vec![], UpdateMode::Merge), (entry(1), UpdateMode::Merge), (entry(2), UpdateMode::Delta)];
    for (id, (batch, mode)) in (1..).zip(steps.into_iter().chain([(vec![], UpdateMode::Merge)])) {
        let number = write(&mut writer, &batch, mode, id).unwrap().name.number;
        writer.publish(number).unwrap();
    }
    assert_eq!(writer.previous(), Some(2));
    // Version 3 has the same entries as its merge, so version 2 is the one to keep.
    let rules = Retention { keep: 1, ..Retention::default() };
    let planned = writer.plan_collection(&rules).unwrap();
    assert_eq!((planned.versions, planned.kept[0]), (vec![1, 3], (2, Reason::New)));
    assert_eq!(writer.roll_back().unwrap(), 2);
    assert_eq!(writer.pointer().bad, [3, 4]);
    assert_eq!(scan_all(&open(&disk, 2)).len(), 1);
    assert_eq!(writer.roll_back().unwrap(), 1);
    assert!(writer.roll_back().is_err());
}

#[test]
fn a_batch_that_is_applied_twice_gives_nothing_to_roll_back_to() {
    let disk = memory_disk();
    let mut writer = create(&disk, 8, Arc::new(Inline));
    let put = |keys: Range<u8>, value: &str| -> Vec<_> {
        keys.map(|key| (vec![key], Some(value.as_bytes().to_vec()))).collect()
    };
    let (first, other, wider) = (put(3..9, "two"), put(3..9, "six"), put(3..10, "two"));
    let removal: Vec<_> = (3..9).map(|key| (vec![key], None)).collect();
    let versions = [
        (put(0..200, "one"), UpdateMode::Merge, 1),
        (first.clone(), UpdateMode::Delta, 2),
        (first.clone(), UpdateMode::Delta, 2),
        (other, UpdateMode::Delta, 4),
        (first.clone(), UpdateMode::Delta, 5),
        (wider, UpdateMode::Delta, 6),
        (removal.clone(), UpdateMode::Delta, 7),
        (removal, UpdateMode::Delta, 7),
        (vec![], UpdateMode::Delta, 7),
    ];
    let (mut twin, mut depths) = (Map::new(), Vec::new());
    for ((batch, mode, content), id) in versions.into_iter().zip(1..) {
        let info = write(&mut writer, &batch, mode, id).unwrap();
        writer.publish(info.name.number).unwrap();
        let found = writer.content_of(Some(info.name.number)).unwrap();
        assert_eq!(found.number, content, "version {id}");
        depths.push(info.delta_depth());
        update(&mut twin, &batch);
        assert_eq!(scan_all(&open(&disk, id)), twin);
    }
    assert_eq!(depths, [0, 1, 1, 2, 3, 4, 5, 5, 5]);
    let used = writer.used_tables(&[]).unwrap().unwrap();
    assert_eq!(disk.list(&Path::new(FOLDER).join("tables")).unwrap().len(), used.len());
    let rolled: Vec<u64> = (0..5).map(|_| writer.roll_back().unwrap()).collect();
    assert_eq!(rolled, [6, 5, 4, 3, 1]);
}

#[test]
fn gates_refuse_empty_versions_and_those_without_most_keys() {
    let disk = memory_disk();
    let mut writer = create(&disk, 1, Arc::new(Inline));
    let keys = |keys: Range<u8>, value: Option<u8>| -> Vec<_> {
        keys.map(|key| (vec![key], value.map(|value| vec![value]))).collect()
    };
    let gates = Gates { refuse_empty: true, removed_max: Some(0.5), ..Gates::default() };
    let mut id = 0;
    let mut check = |writer: &mut StoreWriter, batch: &[_], mode, expected: &[&str]| {
        id += 1;
        let number = write(writer, batch, mode, id).unwrap().name.number;
        let objections = writer.report(number, &gates).unwrap().objections;
        let objections: Vec<String> = objections.iter().map(ToString::to_string).collect();
        assert_eq!(objections, expected, "{number}");
        if expected.is_empty() {
            writer.publish(number).unwrap();
        }
    };
    let empty = "entries: expected at least 1, got 0";
    let most = "fraction of the keys that were removed: expected at most 0.5, got ";
    check(&mut writer, &[], UpdateMode::Auto, &[empty]);
    check(&mut writer, &keys(0..100, Some(1)), UpdateMode::Auto, &[]);
    check(&mut writer, &keys(0..40, Some(2)), UpdateMode::Replace, &[&format!("{most}0.600000")]);
    check(&mut writer, &[], UpdateMode::Replace, &[empty, &format!("{most}1.000000")]);
    for mode in [UpdateMode::Merge, UpdateMode::Delta] {
        check(&mut writer, &keys(0..60, None), mode, &[&format!("{most}0.600000")]);
    }
    check(
        &mut writer,
        &keys(0..100, None),
        UpdateMode::Delta,
        &[empty, &format!("{most}1.000000")],
    );
    // Deletions of absent keys remove nothing, although the counts leave it open.
    check(&mut writer, &keys(100..250, None), UpdateMode::Delta, &[]);
    check(&mut writer, &keys(0..50, None), UpdateMode::Delta, &[]);
}

#[test]
fn a_store_without_versions_can_be_made_again_or_abandoned() {
    let disk = memory_disk();
    let mut writer = create(&disk, 1, Arc::new(Inline));
    write(&mut writer, &[(vec![1], Some(vec![1]))], UpdateMode::Merge, 1).unwrap();
    writer.discard(1).unwrap();
    drop(writer);
    let writer = create(&disk, 1, Arc::new(Inline));
    writer.abandon().unwrap();
    assert_eq!(disk.list(Path::new(FOLDER)).unwrap(), [""; 0]);
    let mut writer = create(&disk, 1, Arc::new(Inline));
    write(&mut writer, &[(vec![1], Some(vec![1]))], UpdateMode::Merge, 1).unwrap();
    // A store with versions stays.
    writer.abandon().unwrap();
    assert_eq!(scan_all(&open(&disk, 1)).len(), 1);
}

#[test]
fn a_version_that_is_gone_can_come_back_under_its_id() {
    let disk = memory_disk();
    let mut writer = create(&disk, 2, Arc::new(Inline));
    let entry = |i: u64| (i.to_le_bytes().to_vec(), Some(vec![0; 100]));
    let entries: Vec<_> = (0..100).map(entry).collect();
    write(&mut writer, &entries, UpdateMode::Merge, 1).unwrap();
    writer.publish(1).unwrap();
    write(&mut writer, &[(entries[0].0.clone(), None)], UpdateMode::Delta, 2).unwrap();
    writer.publish(2).unwrap();
    let rules = Retention {
        keep: 0,
        age_s_min: 0,
        now_s: 100,
        free_bytes_min: 0,
        unpublished_age_s_min: 0,
    };
    let removed = writer.collect(&rules, &Watch::default()).unwrap();
    // The tables of version 1 are the bases of version 2.
    assert_eq!((removed.versions, removed.tables), (vec![1], 0));
    let again = write(&mut writer, &entries[..1], UpdateMode::Merge, 1).unwrap();
    assert_eq!((again.name.number, again.entries()), (3, 100..=100));
    assert_eq!(scan_all(&open(&disk, 2)).len(), 99);
    assert_eq!(scan_all(&open(&disk, 3)).len(), 100);
}

#[test]
fn a_sample_is_as_large_as_was_asked_for() {
    for chunks in [1, 3] {
        let disk = memory_disk();
        let mut writer = create(&disk, chunks, Arc::new(Inline));
        let entry = |i: u64| (i.to_le_bytes().to_vec(), Some(vec![0; 100]));
        write(&mut writer, &(0..1000).map(entry).collect::<Vec<_>>(), UpdateMode::Merge, 1)
            .unwrap();
        let version = open(&disk, 1);
        for count in [0, 1, 7, 30, 100, 300] {
            let mut keys = std::collections::BTreeSet::new();
            let mut shown = 0;
            version
                .sample(count, &mut |key| {
                    shown += 1;
                    keys.insert(key.to_vec());
                    Ok(())
                })
                .unwrap();
            assert_eq!(keys.len(), shown, "a key comes once");
            assert!((count * 9 / 10..=count).contains(&(shown as u64)), "{shown} of {count}");
        }
    }
}

#[test]
fn nothing_is_removed_while_the_current_version_is_lost_or_damaged() {
    for damage in ["gone", "flipped"] {
        let disk = memory_disk();
        let mut writer = create(&disk, 2, Arc::new(Inline));
        for id in 1..=2 {
            let mode = if id == 1 { UpdateMode::Merge } else { UpdateMode::Delta };
            write(&mut writer, &random_batch(&mut Random(id), 300, 300), mode, id).unwrap();
            writer.publish(id).unwrap();
        }
        drop(writer);
        let version = Path::new(FOLDER).join("versions/0000000002");
        harm(disk.as_ref(), &version, damage, 0);
        let mut writer = StoreWriter::open(&Env::on(disk.clone()), Path::new(FOLDER)).unwrap();
        let rules = Retention { now_s: 100, ..Retention::default() };
        assert!(writer.collect(&rules, &Watch::default()).is_err(), "{damage}");
        let tables = disk.list(&Path::new(FOLDER).join("tables")).unwrap();
        assert_eq!(tables.len(), 4, "{damage}");
        // An earlier version can then not be compared, and can still be published.
        assert!(writer.report(1, &Gates::default()).unwrap().passes(), "{damage}");
        let gates = Gates { change_max: Some(1.0), ..Gates::default() };
        assert!(!writer.report(1, &gates).unwrap().passes(), "{damage}");
        assert_eq!(writer.roll_back().unwrap(), 1);
    }
}

#[test]
fn all_entries_of_a_delta_count_as_changes() {
    let disk = memory_disk();
    let mut writer = create(&disk, 1, Arc::new(Inline));
    let entries = |range: Range<u64>, value: Option<Vec<u8>>| {
        range.map(|i| (i.to_le_bytes().to_vec(), value.clone())).collect::<Vec<_>>()
    };
    write(&mut writer, &entries(0..1000, Some(vec![1])), UpdateMode::Merge, 1).unwrap();
    writer.publish(1).unwrap();
    let mut check = |id, batch: &[_], passes: bool| {
        let number = write(&mut writer, batch, UpdateMode::Delta, id).unwrap().name.number;
        let gates = Gates { change_max: Some(0.1), ..Gates::default() };
        assert_eq!(writer.report(number, &gates).unwrap().passes(), passes, "{id}");
    };
    check(2, &entries(0..100, Some(vec![2])), true);
    check(3, &entries(0..101, Some(vec![2])), false);
    check(4, &entries(5000..5101, Some(vec![2])), false);
    check(5, &entries(0..101, None), false);
}

/// Issue 12: changes in merged chunks did not count if other chunks got a delta.
#[test]
fn changes_of_merged_chunks_count_beside_a_delta() {
    const CHUNKS: u32 = 8;
    let disk = memory_disk();
    let mut writer = create(&disk, CHUNKS, Arc::new(Inline));
    let slots = SlotMap::new(CHUNKS).unwrap();
    let keys: Vec<Vec<u8>> = (0..2000).map(|i| format!("key {i}").into_bytes()).collect();
    let entries = |chunks: Range<u32>, value: u8| -> Vec<_> {
        let own = keys.iter().filter(|key| chunks.contains(&slots.chunk_of(key)));
        own.map(|key| (key.clone(), Some(vec![value; 50]))).collect()
    };
    write(&mut writer, &entries(0..CHUNKS, 1), UpdateMode::Merge, 1).unwrap();
    writer.publish(1).unwrap();
    // The first chunk changes as a whole, so it is merged; the last one gets a delta of one entry.
    let mut batch = entries(0..1, 2);
    let merged = batch.len() as u64;
    batch.push(entries(CHUNKS - 1..CHUNKS, 2).remove(0));
    let info = write(&mut writer, &batch, UpdateMode::Auto, 2).unwrap();
    assert_eq!((info.changes, info.deltas.len(), info.merged.changed), (None, 1, merged));
    assert_eq!(open(&disk, 2).info(), &info);
    let part = (merged + 1) as f64 / keys.len() as f64;
    for (change_max, passes) in [(part - 0.0001, false), (part + 0.0001, true)] {
        let gates = Gates { change_max: Some(change_max), ..Gates::default() };
        assert_eq!(writer.report(2, &gates).unwrap().passes(), passes, "{change_max}");
    }
}

#[test]
fn gates_refuse_versions_that_fail_them() {
    let disk = memory_disk();
    let mut writer = create(&disk, 1, Arc::new(Inline));
    let numbers = |range: Range<u64>| {
        range.map(|i| (i.to_le_bytes().to_vec(), Some(vec![1]))).collect::<Vec<_>>()
    };
    write(&mut writer, &numbers(0..10_000), UpdateMode::Merge, 1).unwrap();
    writer.publish(1).unwrap();
    write(&mut writer, &numbers(0..5000), UpdateMode::Replace, 2).unwrap();
    let open_gates = writer.report(2, &Gates::default()).unwrap();
    assert!(open_gates.passes());
    assert_eq!(open_gates.changes.unwrap().removed, 5000);
    let gates = Gates {
        entries_min: Some(6000),
        change_max: Some(0.1),
        required_keys: vec![7u64.to_le_bytes().to_vec(), 9000u64.to_le_bytes().to_vec()],
        sample: 30,
        read_back: true,
        ..Gates::default()
    };
    let report = writer.report(2, &gates).unwrap();
    let what: Vec<_> = report.objections.iter().map(|objection| objection.what).collect();
    assert_eq!(
        what,
        [
            "entries",
            "fraction of the keys that changed",
            "part of the sampled keys that changed",
            "required key"
        ]
    );
    let sample = report.sample.unwrap();
    assert!(sample.keys > 10 && sample.removed > 0 && sample.changed == 0, "{sample:?}");
}

#[test]
fn a_version_that_was_written_wrongly_is_not_published() {
    let disk = memory_disk();
    let mut writer = create(&disk, 1, Arc::new(Inline));
    let entries = random_batch(&mut Random(8), 300, 300);
    let info = write(&mut writer, &entries, UpdateMode::Merge, 1).unwrap();
    let gates = Gates { read_back: true, ..Gates::default() };
    assert!(writer.report(1, &gates).unwrap().passes());
    let table = layer_folder(&info);
    let names = disk.list(&table).unwrap();
    let data = names.iter().find(|name| name.starts_with("data-")).unwrap();
    harm(disk.as_ref(), &table.join(data), "flipped", 0);
    let report = writer.report(1, &gates).unwrap();
    assert_eq!(report.objections[0].what, "bytes read back");
    assert!(report.objections[0].got.contains(data), "{}", report.objections[0]);
}

fn layer_folder(info: &VersionInfo) -> PathBuf {
    let id = info.bases[0].table;
    Path::new(FOLDER).join("tables").join(format!("{id:016x}"))
}

#[test]
fn damage_is_named_and_mended_from_another_copy() {
    let (disk, copy) = (Arc::new(MemoryDisk::default()), "copy");
    let shared: Arc<dyn Disk> = disk.clone();
    let mut writer = create(&shared, 3, Arc::new(Inline));
    let entries = random_batch(&mut Random(8), 3000, 3000);
    write(&mut writer, &entries, UpdateMode::Merge, 1).unwrap();
    writer.publish(1).unwrap();
    let whole = scan_all(&open(&shared, 1));
    copy_folder(&*shared, Path::new(FOLDER), Path::new(copy));
    let tables = Path::new(FOLDER).join("tables");
    let names = shared.list(&tables).unwrap();
    let files: Vec<PathBuf> = names
        .iter()
        .filter(|name| name.len() == 16)
        .flat_map(|name| {
            let folder = tables.join(name);
            shared.list(&folder).unwrap().into_iter().map(move |file| folder.join(file))
        })
        .collect();
    assert_eq!(files.len(), 12);
    for (i, path) in files.iter().enumerate() {
        for damage in ["gone", "short", "flipped", "long"] {
            harm(&*shared, path, damage, i);
            let check = || {
                verify(&Env::on(shared.clone()), Path::new(FOLDER), 1, &Watch::default()).unwrap()
            };
            let report = check();
            assert!(!report.damage.is_empty(), "{} {damage}", path.display());
            for error in &report.damage {
                let place = error.place().expect("damage has a place");
                assert_eq!(&*place.file, path, "{damage}: {error}");
            }
            let mended = writer.repair(1, Path::new(copy), &Watch::default()).unwrap();
            assert!(mended.figures.mended > 0, "{} {damage}", path.display());
            assert!(check().damage.is_empty(), "{} {damage}", path.display());
        }
    }
    assert!(scan_all(&open(&shared, 1)) == whole);
}

#[test]
fn a_version_stays_while_it_is_verified() {
    let disk = memory_disk();
    let mut writer = create(&disk, 1, Arc::new(Inline));
    write(&mut writer, &[(vec![1], Some(vec![1]))], UpdateMode::Merge, 1).unwrap();
    let writer = Arc::new(Mutex::new(writer));
    let (shared, calls) = (writer.clone(), Arc::new(AtomicU64::new(0)));
    let counter = calls.clone();
    let watch = Watch::new(move |_| {
        counter.fetch_add(1, Relaxed);
        let error = shared.lock().unwrap().discard(1).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Busy));
        Ok(())
    });
    let report = verify(&Env::on(disk.clone()), Path::new(FOLDER), 1, &watch).unwrap();
    assert!(calls.load(Relaxed) > 0 && report.damage.is_empty());
    writer.lock().unwrap().discard(1).unwrap();
    let error =
        verify(&Env::on(disk.clone()), Path::new(FOLDER), 1, &Watch::default()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Absent), "{error}");
}

#[test]
fn the_file_of_a_version_is_mended_too_unless_the_copy_has_another_one() {
    let (disk, copy) = (memory_disk(), Path::new("copy"));
    let mut writer = create(&disk, 2, Arc::new(Inline));
    write(&mut writer, &random_batch(&mut Random(8), 300, 300), UpdateMode::Merge, 1).unwrap();
    writer.publish(1).unwrap();
    let whole = scan_all(&open(&disk, 1));
    copy_folder(disk.as_ref(), Path::new(FOLDER), copy);
    let version = Path::new(FOLDER).join("versions/0000000001");
    for damage in ["gone", "short", "flipped", "long"] {
        harm(disk.as_ref(), &version, damage, 0);
        let mended = writer.repair(1, copy, &Watch::default()).unwrap();
        assert_eq!((mended.figures.mended, mended.damage.len()), (1, 1), "{damage}");
        assert!(scan_all(&open(&disk, 1)) == whole, "{damage}");
    }
    // The copy loses its version and makes another one with the same number.
    for name in ["copy/versions/0000000001", "copy/CURRENT"] {
        disk.remove(Path::new(name)).unwrap();
    }
    let options = StoreOptions::new().seed(SEED).id(99).chunks(2);
    let mut other = StoreWriter::create(copy, options.env(Env::on(disk.clone()))).unwrap();
    write(&mut other, &random_batch(&mut Random(9), 300, 300), UpdateMode::Merge, 7).unwrap();
    harm(disk.as_ref(), &version, "gone", 0);
    let report = writer.repair(1, copy, &Watch::default()).unwrap();
    let [lost, other] = &report.damage[..] else { panic!("{report:?}") };
    assert!(matches!(lost.kind(), ErrorKind::Missing { .. }), "{lost}");
    assert!(matches!(other.kind(), ErrorKind::Mismatch { what: "version id", .. }), "{other}");
    assert_eq!(report.figures.mended, 0);
}

fn copy_folder(disk: &dyn Disk, from: &Path, to: &Path) {
    disk.create_folder(to).unwrap();
    for name in disk.list(from).unwrap() {
        let (from, to) = (from.join(&name), to.join(&name));
        match disk.open(&from, Access::Cached) {
            Ok(file) => {
                let bytes = crate::io::read_all(file.as_ref(), u64::MAX).unwrap();
                disk.create(&to, Access::Cached).unwrap().write_at(0, &bytes).unwrap();
            }
            Err(_) => copy_folder(disk, &from, &to),
        }
    }
}

fn harm(disk: &dyn Disk, path: &Path, damage: &str, i: usize) {
    let file = disk.open(path, Access::Cached).unwrap();
    let mut bytes = crate::io::read_all(file.as_ref(), u64::MAX).unwrap().to_vec();
    disk.remove(path).unwrap();
    match damage {
        "gone" => return,
        "short" => bytes.truncate(bytes.len() - 1 - i * 100),
        "long" => bytes.extend([0; 4096]),
        _ => {
            let at = bytes.len() / 2 + i;
            bytes[at] ^= 1;
        }
    }
    disk.create(path, Access::Cached).unwrap().write_at(0, &bytes).unwrap();
}

/// Several chunks have one base; a delta is over several bases, and stays for the chunks that are not
/// merged.
#[test]
fn a_delta_stays_for_the_chunks_that_are_not_merged() {
    const CHUNKS: u32 = 8;
    let disk = memory_disk();
    let mut writer = create(&disk, CHUNKS, Arc::new(Inline));
    writer.set_table_sizes(TableSizes { base_bytes_min: 20_000, delta_bytes_min: 1 << 20 });
    let entry = |i: u64, len: usize| (format!("key {i}").into_bytes(), Some(vec![i as u8; len]));
    let base: Vec<_> = (0..400).map(|i| entry(i, 200)).collect();
    let first = write(&mut writer, &base, UpdateMode::Auto, 1).unwrap();
    writer.publish(1).unwrap();
    let count = first.bases.len();
    assert!((2..CHUNKS as usize).contains(&count), "{count}");
    let wide: Vec<_> = (0..200).map(|i| entry(i, 1)).collect();
    let second = write(&mut writer, &wide, UpdateMode::Delta, 2).unwrap();
    writer.publish(2).unwrap();
    assert_eq!((second.bases == first.bases, second.deltas.len()), (true, 1));
    assert_eq!(second.deltas[0].chunks, (0..CHUNKS).into());
    assert_eq!(second.entries(), 400..=600);
    // One chunk gets large values, so its base is merged.
    let slots = SlotMap::new(CHUNKS).unwrap();
    let hot = |i: &u64| slots.chunk_of(&entry(*i, 0).0) == CHUNKS - 1;
    let batch: Vec<_> =
        (0..400).filter(hot).map(|i| entry(i, 300)).chain([entry(401, 0)]).collect();
    assert!(!hot(&401));
    let third = write(&mut writer, &batch, UpdateMode::Auto, 3).unwrap();
    writer.publish(3).unwrap();
    let [old, new] = &third.deltas[..] else { panic!("{:?}", third.deltas) };
    assert_eq!((old.table, old.is_part), (second.deltas[0].table, true));
    let merged = third.bases.last().unwrap().chunks.bounds();
    assert_eq!(old.chunks, (0..merged.start).into());
    assert!(new.chunks.count() == 1 && new.chunks.bounds().end <= merged.start);
    assert_eq!(third.bases[..third.bases.len() - 1], first.bases[..count - 1]);
    assert!(third.changes.is_none());
    let mut map = Map::new();
    [&base, &wide, &batch].into_iter().for_each(|entries| update(&mut map, entries));
    check(&open(&disk, 3), &map, 410);
    // A merge leaves one base for each of the parts, and no delta.
    let fourth = write(&mut writer, &[], UpdateMode::Merge, 4).unwrap();
    assert_eq!((fourth.delta_depth(), fourth.entries()), (0, 401..=401));
    check(&open(&disk, 4), &map, 410);
}

#[test]
fn a_store_of_many_chunks_has_few_tables_and_divides_them_when_they_grow() {
    const CHUNKS: u32 = 1000;
    let disk = memory_disk();
    let mut writer = create(&disk, CHUNKS, Arc::new(Inline));
    writer.set_table_sizes(TableSizes { base_bytes_min: 10_000, delta_bytes_min: 10_000 });
    let entries = |range: Range<u64>| {
        range.map(|i| (format!("key {i}").into_bytes(), Some(vec![1; 100]))).collect::<Vec<_>>()
    };
    let mut counts = Vec::new();
    for (id, from, until) in [(1, 0, 50), (2, 50, 1000), (3, 1000, 1100)] {
        let info = write(&mut writer, &entries(from..until), UpdateMode::Merge, id).unwrap();
        writer.publish(id).unwrap();
        let sizes = info.bases.iter().map(|base| base.sizes.bytes_max);
        assert!(sizes.max().unwrap() < 20_000 * 11 / 10, "tables are divided");
        counts.push(info.bases.len());
        let mut map = Map::new();
        update(&mut map, &entries(0..until));
        assert!(scan_all(&open(&disk, id)) == map);
    }
    // Without growth, a merge keeps the division.
    assert!(
        counts[0] == 1 && (6..=12).contains(&counts[1]) && counts[2] == counts[1],
        "{counts:?}"
    );
    let info = write(&mut writer, &entries(0..20), UpdateMode::Replace, 4).unwrap();
    assert_eq!((info.bases.len(), info.changes.unwrap().removed), (1, 1080));
}

/// Issue 12: a batch of lookups read from one table after the other.
#[test]
fn a_batch_of_lookups_reads_from_all_tables_at_once() {
    const CHUNKS: u32 = 16;
    let disk = FaultyDisk::new(FaultPlan::default());
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut writer = create(&shared, CHUNKS, Arc::new(Inline));
    let mut map = Map::new();
    for (id, mode) in [(1, UpdateMode::Merge), (2, UpdateMode::Delta)] {
        let entries = random_batch(&mut Random(id), 500, 2000);
        assert!(write(&mut writer, &entries, mode, id).unwrap().layers().count() >= 16);
        writer.publish(id).unwrap();
        update(&mut map, &entries);
    }
    let version = open(&shared, 2);
    let keys: Vec<Vec<u8>> = (0..505).map(|i| format!("key {i}").into_bytes()).collect();
    let (before, mut seen) = (disk.batches(), 0);
    let mut visit = |i: usize, value: Option<&[u8]>| {
        assert_eq!(value, map.get(&keys[i]).map(Vec::as_slice));
        seen += 1;
        Ok(())
    };
    version.get_many(&keys, &mut visit).unwrap();
    assert_eq!(seen, keys.len());
    // Two layers; in each, a lookup may have to read a second block.
    assert!((2..=4).contains(&(disk.batches() - before)));
}

/// Issue 15.
#[test]
fn indexes_that_do_not_fit_in_memory_are_not_read_and_shared_ones_count_once() {
    let disk = memory_disk();
    let mut writer = create(&disk, 1, Arc::new(Inline));
    let mut random = Random(15);
    write(&mut writer, &random_batch(&mut random, 5000, 9000), UpdateMode::Merge, 1).unwrap();
    writer.publish(1).unwrap();
    write(&mut writer, &random_batch(&mut random, 5000, 100), UpdateMode::Delta, 2).unwrap();
    let all = MemoryBudget::unlimited();
    let env = || ReadOptions::new().env(Env::on(disk.clone()));
    let first = Version::open(FOLDER, 1, &env().memory(all.clone())).unwrap();
    let base = all.reserved();
    assert!(base >= first.index_bytes(), "{base} {}", first.index_bytes());
    let second = Version::open_sharing(FOLDER, 2, &env().memory(all.clone()), &first).unwrap();
    let both = all.reserved();
    assert!((base + 1..=2 * base).contains(&both), "{base} {both}");
    drop(first);
    assert_eq!(all.reserved(), both, "the newer version has the base, too");
    drop(second);
    assert_eq!(all.reserved(), 0);

    let tight = MemoryBudget::new(both - 1);
    let reader = StoreReader::open_with(FOLDER, &env().memory(tight.clone())).unwrap();
    writer.publish(2).unwrap();
    let refused = reader.refresh().unwrap_err();
    let ErrorKind::Memory { needs, reserved, limit } = refused.kind() else { panic!("{refused}") };
    assert_eq!((*needs, *reserved, *limit), (both - base, base, both - 1));
    assert_eq!((reader.version().info().name.number, tight.reserved()), (1, base));
    assert!(Version::open(FOLDER, 1, &env().memory(tight.clone())).is_err());
    let mapped = env().index(Access::Mapped).memory(tight.clone());
    drop(Version::open(FOLDER, 1, &mapped).unwrap());
    drop(Version::open(FOLDER, 1, &env().without_index().memory(tight)).unwrap());
}

#[test]
fn an_open_version_is_published_without_opening_its_tables_again() {
    let disk = memory_disk();
    let mut writer = create(&disk, 1, Arc::new(Inline));
    let mut infos = Vec::new();
    for id in 1..=2 {
        let entry = [(b"key".to_vec(), Some(vec![id]))];
        infos.push(write(&mut writer, &entry, UpdateMode::Replace, id.into()).unwrap());
    }
    let second = open(&disk, 2);
    harm(disk.as_ref(), &layer_folder(&infos[1]).join("MANIFEST"), "gone", 0);
    assert!(writer.publish(2).is_err());
    writer.publish_open(&second).unwrap();
    assert_eq!(writer.pointer().current, Some(2));
    writer.publish(1).unwrap();
    writer.condemn(2).unwrap();
    assert!(writer.publish_open(&second).is_err(), "it is marked bad");
    let damaged = open(&disk, 2);
    writer.forgive(2).unwrap();
    assert!(writer.publish_open(&damaged).is_err(), "one of its tables is lost");
    let other = memory_disk();
    let mut writer = create(&other, 1, Arc::new(Inline));
    write(&mut writer, &[(b"key".to_vec(), None)], UpdateMode::Auto, 7).unwrap();
    assert!(writer.publish_open(&open(&disk, 1)).is_err(), "it is another version 1");
}

/// Issue 15: a server pauses after every few keys.
#[test]
fn a_sample_with_pauses_finds_the_same_and_takes_their_time() {
    let disk = memory_disk();
    let mut writer = create(&disk, 2, Arc::new(Inline));
    let mut random = Random(10);
    let entries = random_batch(&mut random, 4000, 9000);
    write(&mut writer, &entries, UpdateMode::Merge, 1).unwrap();
    let changes = random_batch(&mut random, 4000, 1000);
    write(&mut writer, &changes, UpdateMode::Merge, 2).unwrap();
    let clock = ManualClock::new(1);
    let env = Env { clock: Arc::new(clock.clone()), ..Env::on(disk) };
    let options = ReadOptions::new().env(env);
    let [old, new] = [1, 2].map(|number| Version::open(FOLDER, number, &options).unwrap());
    let start = clock.now();
    let at_once = sample_changes(&old, &new, 1000, Duration::ZERO).unwrap();
    assert_eq!(clock.now(), start);
    let pause = Duration::from_millis(4);
    let paused = sample_changes(&old, &new, 1000, pause).unwrap();
    assert_eq!(paused, at_once);
    assert!(paused.keys > 500 && paused.removed > 0 && paused.changed > 0, "{paused:?}");
    let pauses = (paused.keys / 8) as u32;
    assert!((pause * (pauses - 1)..=pause * (pauses + 1)).contains(&(clock.now() - start)));
}

#[test]
fn a_store_that_is_unpublished_has_no_version_until_the_next_publication() {
    let disk = memory_disk();
    let mut writer = create(&disk, 1, Arc::new(Inline));
    let entry = |value: u8| [(b"key".to_vec(), Some(vec![value]))];
    for id in [1, 2] {
        write(&mut writer, &entry(id), UpdateMode::Merge, id.into()).unwrap();
        writer.publish(id.into()).unwrap();
    }
    writer.unpublish().unwrap();
    writer.unpublish().unwrap();
    assert_eq!((writer.pointer().current, &writer.pointer().published[..]), (None, &[1, 2][..]));
    let options = ReadOptions::new().env(Env::on(disk.clone()));
    let error = StoreReader::open_with(FOLDER, &options).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unpublished), "{error}");
    writer.collect(&Retention { keep: 1, ..Retention::default() }, &Watch::default()).unwrap();
    assert_eq!(writer.pointer().published, [2], "the rules count it among those that were current");
    drop(writer);
    let mut writer = StoreWriter::open(&Env::on(disk.clone()), FOLDER).unwrap();
    writer.publish(2).unwrap();
    let reader = StoreReader::open_with(FOLDER, &options).unwrap();
    assert_eq!(reader.get("key").unwrap(), Some(vec![2]));
}

/// The front of a store: updates, a reader that follows, versions and rollback.
#[test]
fn a_reader_follows_updates_and_rollbacks_of_a_store() {
    let clock = ManualClock::new(1);
    let env = Env { clock: Arc::new(clock.clone()), ..Env::simulated(1) };
    let options = StoreOptions::new().env(env.clone());
    let store = Store::open_or_create_with(FOLDER, options.clone()).unwrap();
    assert!(store.reader().unwrap_err().is_absent(), "no version was published");
    let put = |value: &str| {
        let mut update = store.update().unwrap();
        update.put("sky", value).unwrap();
        update.delete("sea").unwrap();
        update.publish().unwrap()
    };
    clock.advance(Duration::from_secs(7));
    let first = put("blue");
    assert_eq!((first.name.number, first.created_s), (1, 7));
    let reader = store.reader().unwrap();
    let other = reader.clone();
    let second = put("black");
    assert_ne!(first.name.id, second.name.id, "ids are drawn");
    assert_eq!(reader.get("sky").unwrap().unwrap(), b"blue", "no check is due");
    clock.advance(Duration::from_secs(1));
    assert_eq!(reader.get("sky").unwrap().unwrap(), b"black");
    assert_eq!(other.get("sky").unwrap().unwrap(), b"black", "clones are one reader");
    assert!(!reader.contains("sea").unwrap());
    assert_eq!(store.roll_back().unwrap(), 1);
    assert!(reader.refresh().unwrap() && !reader.refresh().unwrap());
    assert_eq!(reader.get("sky").unwrap().unwrap(), b"blue");
    assert_eq!(store.version(2).unwrap().get("sky").unwrap().unwrap(), b"black");
    let again = Store::open_or_create_with(FOLDER, options).unwrap();
    assert_eq!(again.versions().unwrap().len(), 2);
    let update = again.update().unwrap();
    assert!(matches!(store.update().unwrap_err().kind(), ErrorKind::Busy));
    drop(update);
    assert!(Store::open_in(env, "other").unwrap_err().is_absent());
}
