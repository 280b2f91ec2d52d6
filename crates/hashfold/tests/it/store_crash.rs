//! Power cuts and failures at every point of a change of a store: every listed version is complete,
//! the current version is the old or the new one, acknowledged changes are durable, and the next
//! writer works.

use crate::{
    fixture::Pairs,
    store_fixture::{
        APART, Change as Put, DELTA, changes, copy_folder, copy_of, damage, publish, read_file,
        scanned, store, try_create, try_open, try_version, try_write, updated, write_delta,
        write_file,
    },
};
use hashfold::{
    Env, ErrorClass, ErrorKind, ReadOptions, Result,
    io::{Access, Disk, Fault, FaultPlan, FaultyDisk, MemoryDisk},
    run::SortOptions,
    store::{
        DeltaReader, Pin, Pointer, Retention, SlotMap, StoreReader, StoreWriter, TableSizes,
        UpdateMode, VersionFacts, VersionInfo, copy, incoming_path, is_complete, table_path,
        verify, version_path, versions,
    },
    work::Watch,
};
use std::{collections::BTreeMap, io, path::Path, sync::Arc};

/// Number of power cuts at the same point, with different outcomes for unsynced writes.
const SEEDS: u64 = 2;

const KEYS: u64 = 40;

/// Rules that keep no version.
const ALL_GO: Retention = Retention {
    keep: 0,
    age_s_min: 0,
    now_s: 1 << 40,
    free_bytes_min: 0,
    unpublished_age_s_min: 0,
};

/// The number of chunks of a store, and the sizes of its tables.
#[derive(Clone, Copy, Debug)]
struct Form {
    chunks: u32,
    sizes: TableSizes,
}

/// One chunk; a table for each chunk; bases of several chunks, and deltas that are wider than a
/// base.
const FORMS: [Form; 3] = [
    Form { chunks: 1, sizes: APART },
    Form { chunks: 3, sizes: APART },
    Form { chunks: 6, sizes: TableSizes { base_bytes_min: 500, delta_bytes_min: 600 } },
];

impl Form {
    fn create(self, disk: &Arc<dyn Disk>) -> Result<StoreWriter> {
        let mut writer = try_create(disk, self.chunks)?;
        writer.set_table_sizes(self.sizes);
        Ok(writer)
    }

    fn open(self, disk: &Arc<dyn Disk>) -> Result<StoreWriter> {
        let mut writer = try_open(disk)?;
        writer.set_table_sizes(self.sizes);
        Ok(writer)
    }
}

/// An operation on a store, for the first time or repeated.
type Act = dyn Fn(&mut StoreWriter, u64) -> Result<()>;

/// A change of a store.
struct Change {
    name: &'static str,
    form: Form,
    before: MemoryDisk,
    /// The content of the current version before and after the change, if there is one.
    old: Option<Pairs>,
    new: Option<Pairs>,
    /// The content of each version that may be listed at any time, by id.
    versions: BTreeMap<u64, Pairs>,
    act: Box<Act>,
}

/// The result of a change on a disk with a fault.
struct Outcome {
    faulty: FaultyDisk,
    /// The disk, as a trait object.
    disk: Arc<dyn Disk>,
    /// The writer that made the change, if the store could be opened.
    writer: Option<StoreWriter>,
    result: Result<()>,
}

/// A store with several published versions; the second is a delta.
struct Sample {
    disk: MemoryDisk,
    /// The content of each version, from the first one on.
    maps: Vec<Pairs>,
}

fn shared(disk: &MemoryDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

fn sample(form: Form, count: u64) -> Sample {
    let disk = MemoryDisk::default();
    let mut writer = form.create(&shared(&disk)).unwrap();
    let mut maps = vec![Pairs::new()];
    for id in 1..=count {
        let mode = if id == 2 { UpdateMode::Delta } else { UpdateMode::Merge };
        publish(&mut writer, &changes(id, KEYS), mode, id);
        maps.push(updated(&maps[maps.len() - 1], &changes(id, KEYS)));
    }
    maps.remove(0);
    Sample { disk, maps }
}

impl Sample {
    /// Returns a change after which the last version stays current.
    fn change(&self, name: &'static str, form: Form, act: Box<Act>) -> Change {
        Change {
            name,
            form,
            before: self.disk.clone(),
            old: self.maps.last().cloned(),
            new: self.maps.last().cloned(),
            versions: (1..).zip(self.maps.iter().cloned()).collect(),
            act,
        }
    }
}

fn creating(form: Form) -> Change {
    let act = |writer: &mut StoreWriter, attempt: u64| {
        try_write(writer, &changes(1, KEYS), UpdateMode::Auto, 10 + attempt).map(|_| ())
    };
    let map = updated(&Pairs::new(), &changes(1, KEYS));
    Change {
        name: "create and write",
        form,
        before: MemoryDisk::default(),
        old: None,
        new: None,
        versions: (10..14).map(|id| (id, map.clone())).collect(),
        act: Box::new(act),
    }
}

fn writing(name: &'static str, form: Form, mode: UpdateMode) -> Change {
    let sample = sample(form, 2);
    let put: Vec<Put> = changes(3, KEYS);
    let act = move |writer: &mut StoreWriter, attempt: u64| {
        try_write(writer, &put, mode, 10 + attempt).map(|_| ())
    };
    let mut change = sample.change(name, form, Box::new(act));
    let before = if mode == UpdateMode::Replace { Pairs::new() } else { sample.maps[1].clone() };
    let map = updated(&before, &changes(3, KEYS));
    change.versions.extend((10..14).map(|id| (id, map.clone())));
    change
}

fn publishing(form: Form, count: u64) -> Change {
    let sample = sample(form, count);
    let disk = shared(&sample.disk);
    let writer = if count == 0 { form.create(&disk) } else { form.open(&disk) };
    let mut writer = writer.unwrap();
    let put = changes(count + 1, KEYS);
    let info = try_write(&mut writer, &put, UpdateMode::Merge, count + 1).unwrap();
    let act = move |writer: &mut StoreWriter, _| writer.publish(info.name.number);
    let mut change = sample.change("publish", form, Box::new(act));
    let map = updated(&sample.maps.last().cloned().unwrap_or_default(), &put);
    change.new = Some(map.clone());
    change.versions.insert(count + 1, map);
    change
}

/// Rolls back from the third version to the second. A repeated attempt publishes the second version
/// by its number.
fn rolling_back(form: Form) -> Change {
    let sample = sample(form, 3);
    let act = |writer: &mut StoreWriter, _| match writer.pointer().current {
        Some(2) => writer.publish(2),
        _ => writer.roll_back().map(|_| ()),
    };
    let mut change = sample.change("roll back", form, Box::new(act));
    change.new = Some(sample.maps[1].clone());
    change
}

fn pinning(form: Form) -> Change {
    let act = |writer: &mut StoreWriter, _| writer.pin(1, Pin::Keep);
    sample(form, 2).change("pin", form, Box::new(act))
}

fn collecting(form: Form) -> Change {
    let act = |writer: &mut StoreWriter, _| writer.collect(&ALL_GO, &Watch::default()).map(|_| ());
    sample(form, 4).change("collect", form, Box::new(act))
}

fn applying(form: Form) -> Change {
    let sample = sample(form, 3);
    let disk = shared(&sample.disk);
    write_delta(&disk, 2, 3);
    let there = self::sample(form, 2);
    write_file(&there.disk, Path::new(DELTA), &read_file(disk.as_ref(), Path::new(DELTA)));
    let act = |writer: &mut StoreWriter, _| {
        // The caller may have got an error for this version.
        for number in writer.numbers()? {
            if writer.version(number)?.name.id == 3 {
                return writer.publish(number);
            }
        }
        let sort = SortOptions::within(1 << 20);
        let facts = VersionFacts::default();
        let made =
            writer.apply(Path::new(DELTA), sort, UpdateMode::Merge, facts, &Watch::default())?;
        writer.publish(made.name.number)
    };
    let mut change = there.change("apply", form, Box::new(act));
    change.new = Some(sample.maps[2].clone());
    change.versions.insert(3, sample.maps[2].clone());
    change
}

/// Adopts a version of a copy of the store, one of whose tables is in the store already.
fn adopting(form: Form) -> Change {
    let there = sample(form, 3);
    let here = sample(form, 2);
    let act = move |writer: &mut StoreWriter, _| {
        let bytes = read_file(&there.disk, &version_path(store(), 3));
        let info = VersionInfo::from_bytes(&bytes, 3)?;
        transfer(&there.disk, writer.env().disk.as_ref(), &info)?;
        writer.adopt(&bytes, 3)?;
        writer.publish(3)
    };
    let mut change = here.change("adopt", form, Box::new(act));
    let map = updated(here.maps.last().expect("there are versions"), &changes(3, KEYS));
    change.new = Some(map.clone());
    change.versions.insert(3, map);
    change
}

/// Copies the tables of a version that a store lacks to where incoming tables are collected, and syncs
/// them.
fn transfer(from: &MemoryDisk, to: &dyn Disk, info: &VersionInfo) -> Result<()> {
    for layer in info.layers() {
        if is_complete(to, &table_path(store(), layer.table), layer)? {
            continue;
        }
        let (source, folder) =
            (table_path(store(), layer.table), incoming_path(store(), layer.table));
        to.create_folder(&folder)?;
        for name in from.list(&source)? {
            let file = to.create(&folder.join(&name), Access::Cached)?;
            file.write_at(0, &read_file(from, &source.join(&name)))?;
            file.sync()?;
        }
        to.sync_folder(&folder)?;
    }
    Ok(())
}

/// Rewrites the store with another number of chunks.
fn rechunking(form: Form) -> Change {
    let sample = sample(form, 2);
    let act = |writer: &mut StoreWriter, attempt: u64| {
        let facts = VersionFacts { id: 10 + attempt, ..VersionFacts::default() };
        let sort = SortOptions::within(1 << 20);
        writer.rechunk(SlotMap::new(5)?, sort, facts, &Watch::default()).map(drop)
    };
    let mut change = sample.change("another number of chunks", form, Box::new(act));
    change.versions.extend((10..14).map(|id| (id, sample.maps[1].clone())));
    change
}

/// Merges some chunks and adds a delta to others, while an older delta has all of them.
fn merging_a_part() -> Change {
    let form = FORMS[2];
    let disk = MemoryDisk::default();
    let mut writer = form.create(&shared(&disk)).unwrap();
    writer.set_table_sizes(TableSizes { base_bytes_min: 20 << 10, delta_bytes_min: 1 << 20 });
    let base: Vec<Put> =
        changes(1, KEYS).into_iter().map(|(key, _)| (key, Some(vec![b'1'; 2000]))).collect();
    publish(&mut writer, &base, UpdateMode::Merge, 1);
    publish(&mut writer, &changes(2, KEYS), UpdateMode::Delta, 2);
    let first = updated(&Pairs::new(), &base);
    let sample = Sample { disk, maps: vec![first.clone(), updated(&first, &changes(2, KEYS))] };
    // The values of one chunk are large, and the others small.
    let slots = SlotMap::new(form.chunks).unwrap();
    let put: Vec<Put> = changes(3, KEYS)
        .into_iter()
        .map(|(key, value)| match slots.chunk_of(&key) {
            0 => (key, Some(vec![b'3'; 2000])),
            _ => (key, value.map(|_| vec![b'3'])),
        })
        .collect();
    let map = updated(&sample.maps[1], &put);
    let act = move |writer: &mut StoreWriter, attempt: u64| {
        let made = try_write(writer, &put, UpdateMode::Auto, 10 + attempt)?;
        assert!(made.bases.len() > 1 && made.deltas.len() == 2 && made.deltas[0].is_part);
        Ok(())
    };
    let mut change = sample.change("merge a part", form, Box::new(act));
    change.versions.extend((10..14).map(|id| (id, map.clone())));
    change
}

/// Returns every change of a store in which no version is ever damaged.
fn all_changes() -> Vec<Change> {
    let of = |form| {
        vec![
            creating(form),
            writing("merge", form, UpdateMode::Merge),
            writing("delta", form, UpdateMode::Delta),
            writing("replace", form, UpdateMode::Replace),
            publishing(form, 0),
            publishing(form, 2),
            rolling_back(form),
            pinning(form),
            collecting(form),
            applying(form),
            adopting(form),
            rechunking(form),
        ]
    };
    FORMS.into_iter().flat_map(of).chain([merging_a_part()]).collect()
}

impl Change {
    fn start(&self, disk: &Arc<dyn Disk>) -> Result<StoreWriter> {
        match Pointer::read(disk.as_ref(), store()) {
            Ok(pointer) if pointer.current.is_some() => self.form.open(disk),
            Ok(_) if !versions(&Env::on(disk.clone()), store())?.is_empty() => self.form.open(disk),
            Err(error) if !error.is_absent() => Err(error),
            _ => self.form.create(disk),
        }
    }

    fn faulty(&self, fault: Fault) -> Outcome {
        let faulty = FaultyDisk::over(&self.before, FaultPlan::from(fault));
        let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
        match self.start(&disk) {
            Ok(mut writer) => {
                let result = (self.act)(&mut writer, 0);
                Outcome { faulty, disk, writer: Some(writer), result }
            }
            Err(error) => Outcome { faulty, disk, writer: None, result: Err(error) },
        }
    }

    /// Checks that every version is complete and that the current version is the old or the new
    /// one. Returns its content.
    #[track_caller]
    fn check_whole(&self, disk: &Arc<dyn Disk>, moment: &str) -> Option<Pairs> {
        let context = format!("{}, {:?}, {moment}", self.name, self.form);
        if disk.exists(&store().join("versions")).unwrap() {
            for (number, info) in versions(&Env::on(disk.clone()), store()).unwrap() {
                let info = info.unwrap_or_else(|error| panic!("{context}: {error}"));
                let version = try_version(disk, number);
                let version = version.unwrap_or_else(|error| panic!("{context}: {error}"));
                let held = scanned(&version).unwrap();
                assert!(held == self.versions[&info.name.id], "{context}: version {number}");
                let damage = damage(disk, number);
                assert!(damage.is_empty(), "{context}: {}", damage[0]);
            }
        }
        let follower =
            StoreReader::open_with(store(), &ReadOptions::new().env(Env::on(disk.clone())));
        let held = match follower {
            Ok(follower) => Some(scanned(&follower.version()).unwrap()),
            Err(error) if error.is_absent() => None,
            Err(error) => panic!("{context}: {error}"),
        };
        assert!(held == self.old || held == self.new, "{context}: neither the old nor the new");
        held
    }

    /// Checks that the next writer finds nothing unknown, and that the change can be repeated.
    #[track_caller]
    fn check_next(&self, disk: &Arc<dyn Disk>, attempt: u64, moment: &str) {
        let context = format!("{}, {:?}, {moment}", self.name, self.form);
        let mut writer = self.start(disk).unwrap_or_else(|error| panic!("{context}: {error}"));
        check_no_leftovers(disk, &context);
        (self.act)(&mut writer, attempt).unwrap_or_else(|error| panic!("{context}: {error}"));
        check_no_leftovers(disk, &context);
        assert!(self.check_whole(disk, moment) == self.new, "{context}: done again");
    }
}

/// Checks that the store has only the files of its versions.
#[track_caller]
fn check_no_leftovers(disk: &Arc<dyn Disk>, context: &str) {
    let mut tables = Vec::new();
    for (number, info) in versions(&Env::on(disk.clone()), store()).unwrap() {
        tables.extend(info.unwrap().layers().map(|layer| format!("{:016x}", layer.table)));
        assert!(disk.exists(&store().join(format!("versions/{number:010}"))).unwrap());
    }
    tables.sort_unstable();
    tables.dedup();
    let sorted = |folder: &str| {
        let mut names = disk.list(&store().join(folder)).unwrap();
        names.sort_unstable();
        names
    };
    assert_eq!(sorted("tables"), tables, "{context}");
    let mut names = sorted("");
    // Incoming tables are left for the transfer that brings them.
    names.retain(|name| name != "incoming");
    assert_eq!(names, ["CURRENT", "tables", "versions"], "{context}");
    assert_eq!(
        sorted("versions").len(),
        versions(&Env::on(disk.clone()), store()).unwrap().len(),
        "{context}"
    );
    for table in tables {
        let names = sorted(&format!("tables/{table}"));
        assert_eq!(names.len(), 4, "{context}: {names:?}");
    }
}

/// Injects a fault at each operation of a change in turn, until the change succeeds, and calls `at`
/// each time.
fn everywhere(change: &Change, fault: fn(u64) -> Fault, mut at: impl FnMut(u64, Outcome)) {
    for operation in 0.. {
        let outcome = change.faulty(fault(operation));
        let is_through = operation >= outcome.faulty.operations();
        at(operation, outcome);
        if is_through {
            assert!(operation > 2, "{} does more than that", change.name);
            return;
        }
    }
}

const POWER_CUT: fn(u64) -> Fault = |operation| Fault::PowerCut { operation };
const FAILURE: fn(u64) -> Fault = |operation| Fault::Failure { operation };

/// Returns the seeds of the power cuts at an operation.
fn seeds(operation: u64) -> std::ops::Range<u64> {
    operation * SEEDS..(operation + 1) * SEEDS
}

#[test]
fn a_power_cut_at_any_moment_leaves_whole_versions() {
    for change in &all_changes() {
        everywhere(change, POWER_CUT, |operation, Outcome { faulty, result, .. }| {
            for seed in seeds(operation) {
                let moment = format!("power cut at operation {operation}, seed {seed}");
                let disk: Arc<dyn Disk> = Arc::new(faulty.after_power_cut(seed));
                let held = change.check_whole(&disk, &moment);
                if result.is_ok() {
                    assert!(held == change.new, "{}, {moment}: it is lost", change.name);
                }
                change.check_next(&disk, 1, &moment);
            }
            if let Err(error) = result {
                assert_eq!(error.class(), ErrorClass::Io, "{error}");
            }
        });
    }
}

/// The effects of a killed process are visible but may not be durable; the next writer removes
/// nothing that a power cut may bring back into use.
#[test]
fn a_process_that_is_killed_and_a_power_cut_later_leave_whole_versions() {
    for change in &all_changes() {
        everywhere(change, POWER_CUT, |operation, outcome| {
            let Outcome { faulty, disk, writer, .. } = outcome;
            drop(writer);
            faulty.heal();
            let moment = format!("killed at operation {operation}");
            change.check_whole(&disk, &moment);
            let mut writer = change.start(&disk).unwrap();
            collect_or_panic(&mut writer, change, &moment);
            for seed in seeds(operation) {
                let disk: Arc<dyn Disk> = Arc::new(faulty.after_power_cut(seed));
                change.check_whole(&disk, &format!("{moment}, seed {seed}"));
            }
        });
    }
}

/// The next process may publish a version whose name is not durable yet.
#[test]
fn a_version_of_a_process_that_was_killed_can_be_published_and_lasts() {
    let changes = FORMS.map(|form| [creating(form), writing("merge", form, UpdateMode::Merge)]);
    let mut published = 0;
    for change in changes.as_flattened() {
        everywhere(change, POWER_CUT, |operation, outcome| {
            let Outcome { faulty, disk, writer, .. } = outcome;
            drop(writer);
            faulty.heal();
            let mut writer = change.start(&disk).unwrap();
            let Some(newest) = writer.numbers().unwrap().pop() else { return };
            if writer.pointer().current == Some(newest) {
                return;
            }
            writer.publish(newest).unwrap();
            published += 1;
            for seed in seeds(operation) {
                let disk: Arc<dyn Disk> = Arc::new(faulty.after_power_cut(seed));
                let follower =
                    StoreReader::open_with(store(), &ReadOptions::new().env(Env::on(disk.clone())))
                        .unwrap();
                let info = follower.version().info().clone();
                assert_eq!(info.name.number, newest, "{}, seed {seed}", change.name);
                let held = scanned(&follower.version()).unwrap();
                assert!(held == change.versions[&info.name.id]);
            }
        });
    }
    assert!(published >= 4);
}

#[track_caller]
fn collect_or_panic(writer: &mut StoreWriter, change: &Change, moment: &str) {
    let collected = writer.collect(&ALL_GO, &Watch::default());
    collected.unwrap_or_else(|error| panic!("{}, {moment}: {error}", change.name));
}

/// One system call fails; the same writer continues.
#[test]
fn an_operation_that_fails_once_harms_no_version_and_the_writer_goes_on() {
    for change in &all_changes() {
        everywhere(change, FAILURE, |operation, outcome| {
            let Outcome { faulty, disk, writer, result } = outcome;
            let moment = format!("failure of operation {operation}");
            change.check_whole(&disk, &moment);
            if let Some(mut writer) = writer {
                if let Err(error) = result {
                    assert_eq!(error.class(), ErrorClass::Io, "{error}");
                    let again = (change.act)(&mut writer, 1);
                    again.unwrap_or_else(|error| panic!("{}, {moment}: {error}", change.name));
                }
                for seed in seeds(operation) {
                    let disk: Arc<dyn Disk> = Arc::new(faulty.after_power_cut(seed));
                    let held = change.check_whole(&disk, &format!("{moment}, seed {seed}"));
                    assert!(held == change.new, "{}, {moment}: it is lost", change.name);
                }
            }
            faulty.heal();
            change.check_next(&disk, 2, &moment);
        });
    }
}

/// After an error it is unknown what is durable; files that may be needed are not removed.
#[test]
fn a_failure_then_a_collection_then_a_power_cut_leave_whole_versions() {
    for change in &all_changes() {
        everywhere(change, FAILURE, |operation, outcome| {
            let Outcome { faulty, disk, writer, result } = outcome;
            let (Some(mut writer), Err(_)) = (writer, result) else { return };
            let moment = format!("failure of operation {operation}");
            collect_or_panic(&mut writer, change, &moment);
            change.check_whole(&disk, &moment);
            for seed in seeds(operation) {
                let disk: Arc<dyn Disk> = Arc::new(faulty.after_power_cut(seed));
                change.check_whole(&disk, &format!("{moment}, seed {seed}"));
            }
        });
    }
}

#[test]
fn a_full_disk_harms_no_version() {
    for change in &all_changes() {
        for write in 0.. {
            let outcome = change.faulty(Fault::Full { write });
            let Outcome { faulty, disk, writer, result } = outcome;
            let moment = format!("full at write {write}");
            change.check_whole(&disk, &moment);
            let Err(error) = result else { break };
            let ErrorKind::Io { source, .. } = error.kind() else { panic!("{moment}: {error}") };
            assert_eq!(source.kind(), io::ErrorKind::StorageFull, "{moment}: {error}");
            faulty.heal();
            if let Some(mut writer) = writer {
                let again = (change.act)(&mut writer, 1);
                again.unwrap_or_else(|error| panic!("{}, {moment}: {error}", change.name));
                assert!(change.check_whole(&disk, &moment) == change.new, "{moment}");
            }
            change.check_next(&disk, 2, &moment);
        }
    }
}

#[test]
fn a_store_in_new_folders_survives_a_power_cut() {
    let path = Path::new("new/folders/store");
    let faulty = FaultyDisk::new(FaultPlan::default());
    let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
    let options = crate::store_fixture::store_options(1);
    let mut writer = StoreWriter::create(path, options.env(Env::on(disk.clone()))).unwrap();
    publish(&mut writer, &changes(1, KEYS), UpdateMode::Auto, 1);
    for seed in 0..50 {
        let disk: Arc<dyn Disk> = Arc::new(faulty.after_power_cut(seed));
        let follower =
            StoreReader::open_with(path, &ReadOptions::new().env(Env::on(disk.clone()))).unwrap();
        let expected = updated(&Pairs::new(), &changes(1, KEYS));
        assert!(scanned(&follower.version()).unwrap() == expected);
    }
}

#[test]
fn a_delta_file_that_was_written_survives_a_power_cut() {
    let sample = sample(FORMS[1], 2);
    let faulty = FaultyDisk::over(&sample.disk, FaultPlan::default());
    let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
    let path = Path::new(DELTA);
    let (info, _) = write_delta(&disk, 1, 2);
    for seed in 0..50 {
        let disk = faulty.after_power_cut(seed);
        let mut delta = DeltaReader::open(&Env::on(Arc::new(disk)), path).unwrap();
        let mut entries = 0;
        while delta.next(&mut |_, _| Ok(())).unwrap() {
            entries += 1;
        }
        assert_eq!(entries, info.entries);
    }
}

/// A version whose tables are all damaged, each in another way, and a whole copy.
fn damaged(form: Form) -> MemoryDisk {
    let sample = sample(form, 2);
    copy_folder(&sample.disk, store(), &sample.disk, Path::new("copy"));
    let disk = shared(&sample.disk);
    let tables = store().join("tables");
    for (i, table) in disk.list(&tables).unwrap().iter().enumerate() {
        let folder = tables.join(table);
        for (j, name) in disk.list(&folder).unwrap().iter().enumerate() {
            let path = folder.join(name);
            let mut bytes = read_file(disk.as_ref(), &path);
            match (i + j) % 5 {
                0 => disk.remove(&path).unwrap(),
                1 => bytes.truncate(bytes.len() / 2),
                2 => bytes[4096] ^= 1,
                3 => bytes.extend([0; 100]),
                _ => continue,
            }
            if (i + j) % 5 > 0 {
                write_file(disk.as_ref(), &path, &bytes);
            }
        }
    }
    copy_of(disk.as_ref())
}

#[track_caller]
fn check_nothing_half_mended(disk: &dyn Disk) {
    let tables = store().join("tables");
    for table in disk.list(&tables).unwrap() {
        let names = disk.list(&tables.join(&table)).unwrap();
        assert!(names.iter().all(|name| !name.ends_with(".mended")), "{names:?}");
    }
}

#[test]
fn a_repair_that_is_interrupted_anywhere_can_be_done_again() {
    let mend = |writer: &mut StoreWriter| {
        writer.repair(2, Path::new("copy"), &Watch::default()).map(|report| report.figures.mended)
    };
    let faults = [
        |operation| Fault::PowerCut { operation },
        |operation| Fault::Failure { operation },
        |operation| Fault::Full { write: operation },
    ];
    for (form, fault) in FORMS.into_iter().flat_map(|form| faults.map(|fault| (form, fault))) {
        let before = damaged(form);
        let expected = &sample(form, 2).maps[1];
        assert!(!damage(&(Arc::new(before.clone()) as _), 2).is_empty());
        for operation in 0.. {
            let faulty = FaultyDisk::over(&before, FaultPlan::from(fault(operation)));
            let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
            let result = try_open(&disk).and_then(|mut writer| mend(&mut writer));
            for seed in operation * SEEDS..(operation + 1) * SEEDS {
                let disk: Arc<dyn Disk> = Arc::new(faulty.after_power_cut(seed));
                if result.is_ok() {
                    assert!(damage(&disk, 2).is_empty(), "{operation}: it is lost");
                }
                let mut writer = try_open(&disk).unwrap();
                check_nothing_half_mended(disk.as_ref());
                mend(&mut writer).unwrap();
                assert!(damage(&disk, 2).is_empty(), "{operation}, {seed}");
                drop(writer);
                try_open(&disk).unwrap();
                check_no_leftovers(&disk, "after a repair");
                assert!(scanned(&try_version(&disk, 2).unwrap()).unwrap() == *expected);
            }
            if result.is_ok() && operation >= faulty.operations() {
                break;
            }
            if result.is_ok() && matches!(fault(0), Fault::Full { .. }) {
                break;
            }
        }
    }
}

/// Copies the sample's last version, and checks the copy, if there is one.
#[track_caller]
fn check_copy(disk: &Arc<dyn Disk>, expected: &Pairs, context: &str) {
    let to = Path::new("copy");
    match StoreReader::open_with(to, &ReadOptions::new().env(Env::on(disk.clone()))) {
        Ok(follower) => {
            assert!(scanned(&follower.version()).unwrap() == *expected, "{context}");
            let number = follower.version().info().name.number;
            let report = verify(&Env::on(disk.clone()), to, number, &Watch::default()).unwrap();
            assert!(report.damage.is_empty(), "{context}: {}", report.damage[0]);
        }
        Err(error) => assert!(error.is_absent(), "{context}: {error}"),
    }
}

/// Issue 12: the first copy of a store is whole or absent, and an interrupted copy can be repeated.
#[test]
fn a_copy_is_whole_or_absent_and_can_be_repeated() {
    let sample = sample(FORMS[2], 3);
    let expected = sample.maps.last().unwrap();
    let to = Path::new("copy");
    let make =
        |disk: &Arc<dyn Disk>| copy(&Env::on(disk.clone()), store(), None, to, &Watch::default());
    for fault in [POWER_CUT, FAILURE] {
        for operation in 0.. {
            let faulty = FaultyDisk::over(&sample.disk, FaultPlan::from(fault(operation)));
            let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
            let result = make(&disk);
            let context = format!("operation {operation}");
            if operation >= faulty.operations() {
                result.unwrap();
                break;
            }
            let mut left: Vec<Arc<dyn Disk>> = seeds(operation)
                .map(|seed| Arc::new(faulty.after_power_cut(seed)) as Arc<dyn Disk>)
                .collect();
            if matches!(fault(operation), Fault::Failure { .. }) {
                left = vec![disk];
            }
            for disk in &left {
                check_copy(disk, expected, &context);
                match make(disk) {
                    Ok(info) => assert_eq!(info.name.number, 3, "{context}"),
                    // The copy had been completed.
                    Err(error) => {
                        assert!(matches!(error.kind(), ErrorKind::Exists), "{context}: {error}");
                    }
                }
                check_copy(disk, expected, &context);
                let mut writer = StoreWriter::open(&Env::on(disk.clone()), to).unwrap();
                assert_eq!(disk.list(to).unwrap(), ["CURRENT", "tables", "versions"], "{context}");
                let removed = writer.collect(&ALL_GO, &Watch::default()).unwrap();
                assert_eq!(removed.tables, 0, "{context}");
            }
        }
    }
}
