//! Reading a version.

use super::{
    chunks::common,
    delta::{Untagged, untag},
    in_slots::{InSlots, SlotSet},
    layer::folder_of,
    pointer::Pointer,
    slot::SLOTS,
    version::{Layer, VersionInfo, file_name, no_file, numbers},
};
use crate::{
    env::Env,
    error::{Error, ErrorKind, Place, Result, check_same},
    folder::{TABLES, VERSIONS},
    io::{Disk, Lock},
    options::ReadOptions,
    run::{Merge, Run, Summary, Tombstones, VecRun},
    table::{Table, TableScan, VisitValue},
    work::Executor,
};
use std::{collections::HashMap, ops::Range, path::Path, sync::Arc};

/// Maximum number of attempts to open the current version while it is being replaced.
const ATTEMPTS_MAX: usize = 8;

/// An open version: its indexes are in memory, its entries on the device.
///
/// An open version never changes, even when other versions are published. Its files stay on the
/// device as long as any process has it open. Threads can share a version.
#[derive(Debug)]
pub struct Version {
    info: VersionInfo,
    /// The tables of the bases, then of the deltas, in the order of the layers.
    tables: Vec<Arc<Table>>,
    /// For each chunk the tables that have its keys: the deltas, newest first, then the base.
    stacks: Vec<Vec<u32>>,
    /// The shared lock that tells other processes that the version is in use.
    _share: Box<dyn Lock>,
}

impl Version {
    /// Opens a version of the store in a folder.
    ///
    /// # Errors
    /// `Absent` if there is no store or no such version, `Missing` if the version is listed but its file is
    /// gone; damage.
    pub fn open(folder: impl AsRef<Path>, number: u64, options: &ReadOptions) -> Result<Version> {
        let (disk, folder) = (&options.env.disk, folder.as_ref());
        let of = Pointer::read(disk.as_ref(), folder).ok();
        Version::open_beside(folder, number, options, of.as_ref(), None)
            .map_err(|error| recheck(error, disk.as_ref(), folder, number))
    }

    /// Opens a version; shares the tables that `other` has open.
    fn open_beside(
        folder: &Path,
        number: u64,
        options: &ReadOptions,
        of: Option<&Pointer>,
        other: Option<&Version>,
    ) -> Result<Version> {
        let disk = &options.env.disk;
        let versions = folder.join(VERSIONS);
        let path = versions.join(file_name(number));
        if !disk.exists(&path)? {
            return Err(no_file(of.and_then(|of| of.version(number)), &path));
        }
        let share = disk.share(&path)?;
        // The version may have been removed before it was locked; from here on it stays.
        let info = VersionInfo::read(disk.as_ref(), &versions, number, of)?;
        let open: HashMap<u64, &Arc<Table>> = other.map(Version::tables).unwrap_or_default();
        let tables = folder.join(TABLES);
        let layer = |layer: &Layer| match open.get(&layer.table) {
            Some(table) => Ok((*table).clone()),
            None => open_layer(&tables, &info, layer, options).map(Arc::new),
        };
        let tables: Result<Vec<Arc<Table>>> = info.layers().map(layer).collect();
        Ok(Version { tables: tables?, stacks: stacks(&info), info, _share: share })
    }

    fn tables(&self) -> HashMap<u64, &Arc<Table>> {
        self.tables.iter().map(|table| (table.stats().id, table)).collect()
    }

    /// Returns the description of the version.
    pub fn info(&self) -> &VersionInfo {
        &self.info
    }

    /// Returns the memory of all indexes, in bytes.
    pub fn index_bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.stats().index_bytes).sum()
    }

    /// Returns the attribute with this name.
    pub fn attribute(&self, name: &str) -> Option<&[u8]> {
        let found = self.info.attributes.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_slice())
    }

    /// Returns the value of a key, with one device read, and one more for about 1 in 256 keys per
    /// delta.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let mut value = None;
        self.get_with(key.as_ref(), &mut |found| value = found.map(<[u8]>::to_vec))?;
        Ok(value)
    }

    /// Whether a key is in the version. Reads as much as [`Version::get`].
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let mut contains = false;
        self.get_with(key.as_ref(), &mut |found| contains = found.is_some())?;
        Ok(contains)
    }

    /// Calls `visit` once, with the value of a key, or `None` if the key is absent.
    pub fn get_with(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        let chunk = self.info.shape.slots.chunk_of(key);
        let (base, deltas) = self.stacks[chunk as usize].split_last().expect("it has a base");
        for delta in deltas {
            let mut found = None;
            self.tables[*delta as usize].get_with(key, &mut |tagged| {
                found = tagged.map(|tagged| untag(tagged).map(&mut *visit));
            })?;
            if let Some(found) = found {
                return found;
            }
        }
        self.tables[*base as usize].get_with(key, visit)
    }

    /// Looks up many keys, with many device reads in flight. `visit` is called once for each key,
    /// in any order, with the index of the key and its value, or `None` if the key is absent.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K], visit: &mut VisitValue<'_>) -> Result<()> {
        let slots = &self.info.shape.slots;
        let chunks: Vec<u32> = keys.iter().map(|key| slots.chunk_of(key.as_ref())).collect();
        let mut left: Vec<usize> = (0..keys.len()).collect();
        // The newest layer of every key's chunk comes first, then the second newest, and so on.
        for depth in 0.. {
            if left.is_empty() {
                break;
            }
            let table = |&i: &usize| (self.stacks[chunks[i] as usize][depth], i);
            let mut lookups: Vec<(u32, usize)> = left.iter().map(table).collect();
            lookups.sort_unstable();
            left.clear();
            for lookups in lookups.chunk_by(|a, b| a.0 == b.0) {
                self.get_in(lookups, keys, visit, &mut left)?;
            }
        }
        Ok(())
    }

    /// Looks up keys in one table: pairs of the table and the index of a key. Adds the keys that a
    /// delta does not have to `left`.
    fn get_in<K: AsRef<[u8]>>(
        &self,
        lookups: &[(u32, usize)],
        keys: &[K],
        visit: &mut VisitValue<'_>,
        left: &mut Vec<usize>,
    ) -> Result<()> {
        let number = lookups[0].0 as usize;
        let some: Vec<&[u8]> = lookups.iter().map(|(_, i)| keys[*i].as_ref()).collect();
        let is_base = number < self.info.bases.len();
        self.tables[number].get_many(&some, &mut |at, value| {
            let index = lookups[at].1;
            match value {
                _ if is_base => visit(index, value),
                Some(tagged) => visit(index, untag(tagged)?),
                None => {
                    left.push(index);
                    Ok(())
                }
            }
        })
    }

    /// Calls `visit` with about `count` evenly spread keys; deltas may have deleted some of them.
    pub fn sample(&self, count: u64, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let all: u64 = self.info.bases.iter().map(|base| base.entries).sum();
        let (mut before, mut done) = (0, 0);
        for (table, base) in self.tables.iter().zip(&self.info.bases) {
            before += base.entries;
            let until = (u128::from(count) * u128::from(before) / u128::from(all.max(1))) as u64;
            table.sample(until - done, visit)?;
            done = until;
        }
        Ok(())
    }

    /// Returns the ranges of chunks that have a base table of their own: together all chunks, in
    /// order. Scanning one of them reads no entry of another base.
    pub fn parts(&self) -> impl Iterator<Item = Range<u32>> {
        self.info.bases.iter().map(|base| base.chunks.bounds())
    }

    /// Returns all entries of a range of chunks as a run; `executor` reads the next blocks while the
    /// caller works.
    pub fn scan_chunks_ahead(
        &self,
        chunks: Range<u32>,
        executor: &Arc<dyn Executor>,
    ) -> Box<dyn Run> {
        self.scan_slots(&self.info.shape.slots.slots(&chunks), Some(executor))
    }

    /// Returns all entries of a range of chunks as a run. Reads all tables that have any of these
    /// chunks: [`Version::parts`] are the ranges that are read without waste.
    pub fn scan_chunks(&self, chunks: Range<u32>) -> Box<dyn Run> {
        self.scan_slots(&self.info.shape.slots.slots(&chunks), None)
    }

    /// Returns all entries of the version, in the order of their hashes. All tables of the version
    /// are read side by side, each with a window of its own in memory.
    pub fn scan_all(&self) -> Box<dyn Run> {
        self.scan_slots(&(0..SLOTS), None)
    }

    /// Returns all entries of a range of slots as a run.
    pub(super) fn scan_slots(
        &self,
        slots: &Range<u32>,
        executor: Option<&Arc<dyn Executor>>,
    ) -> Box<dyn Run> {
        let tables = self.tables();
        let open = |layer: &Layer| Ok(tables[&layer.table].clone());
        scan_slots(&self.info, slots, &open, executor).expect("all tables are open")
    }
}

/// Returns for each chunk the numbers of its tables: those of the deltas, newest first, then that
/// of the base.
fn stacks(info: &VersionInfo) -> Vec<Vec<u32>> {
    let mut stacks = vec![Vec::new(); info.shape.slots.chunks() as usize];
    let (bases, deltas) = (info.bases.len(), info.deltas.len());
    let newest_first = (bases..bases + deltas).rev().zip(info.deltas.iter().rev());
    for (number, layer) in newest_first.chain((0..bases).zip(&info.bases)) {
        layer.chunks.iter().for_each(|chunk| stacks[chunk as usize].push(number as u32));
    }
    stacks
}

/// Returns the entries of a version in a range of slots as one run without deletions. Reads ahead
/// on the executor, if there is one. If only a part of a base is in the range, the number of its
/// entries in the summary of the run is an estimate.
pub(super) fn scan_slots(
    info: &VersionInfo,
    slots: &Range<u32>,
    open: &dyn Fn(&Layer) -> Result<Arc<Table>>,
    executor: Option<&Arc<dyn Executor>>,
) -> Result<Box<dyn Run>> {
    let scan = |layer: &Layer| -> Result<TableScan> {
        let scan = open(layer)?.scan().with_summary(layer.sizes);
        Ok(match executor {
            Some(executor) => scan.reading_ahead(executor.clone()),
            None => scan,
        })
    };
    let own = |layer: &Layer| {
        let ranges = layer.chunks.ranges().iter().map(|range| info.shape.slots.slots(range));
        SlotSet::of(ranges.map(|range| common(&range, slots)))
    };
    let mut runs: Vec<Box<dyn Run>> = Vec::new();
    for delta in info.deltas.iter().rev() {
        let wanted = own(delta);
        match wanted.count() {
            0 => {}
            SLOTS => runs.push(Box::new(Untagged(scan(delta)?))),
            _ => {
                let sizes = share(delta, &wanted, info);
                runs.push(Box::new(InSlots::new(Untagged(scan(delta)?), wanted, sizes)));
            }
        }
    }
    for base in &info.bases {
        let (wanted, all) = (own(base), info.shape.slots.slots(&base.chunks.bounds()));
        match wanted.count() {
            0 => {}
            count if count == all.end - all.start => runs.push(Box::new(scan(base)?)),
            _ => {
                let sizes = share(base, &wanted, info);
                runs.push(Box::new(InSlots::new(scan(base)?, wanted, sizes)));
            }
        }
    }
    match runs.len() {
        0 => Ok(Box::new(VecRun::new(Vec::new(), info.seed))),
        1 => Ok(runs.remove(0)),
        _ => Ok(Box::new(Merge::new(runs, Tombstones::Drop)?)),
    }
}

/// Returns the expected summary of a layer's entries in some of its slots.
fn share(layer: &Layer, wanted: &SlotSet, info: &VersionInfo) -> Summary {
    let slots = layer.chunks.ranges().iter().map(|range| info.shape.slots.slots(range));
    let all: u32 = slots.map(|slots| slots.end - slots.start).sum();
    let part = |number: u64| {
        (u128::from(number) * u128::from(wanted.count())).div_ceil(u128::from(all)) as u64
    };
    let Summary { entries_max, bytes_max, .. } = layer.sizes;
    Summary { entries_max: part(entries_max), bytes_max: part(bytes_max), ..layer.sizes }
}

/// Opens the table of a layer, which must be the one that the version file describes.
pub(super) fn open_layer(
    tables: &Path,
    info: &VersionInfo,
    layer: &Layer,
    options: &ReadOptions,
) -> Result<Table> {
    let folder = folder_of(tables, layer.table);
    let table = Table::open_with(&folder, options).map_err(|error| match error.is_absent() {
        true => Error::missing("table of the version", &folder),
        false => error,
    })?;
    let stats = table.stats();
    check_same("table id", layer.table, stats.id)
        .and_then(|()| check_same("seed", info.seed.0, stats.seed.0))
        .and_then(|()| check_same("number of entries", layer.entries, stats.entries))
        .map_err(|error| error.at(&Place::file(&folder)))?;
    Ok(table)
}

/// Returns the descriptions of all versions of the store in a folder, in the order of their
/// numbers, with an error for each version that is lost or cannot be read.
pub fn versions(env: &Env, folder: impl AsRef<Path>) -> Result<Vec<(u64, Result<VersionInfo>)>> {
    let (disk, folder) = (env.disk.as_ref(), folder.as_ref());
    let (versions, of) = (folder.join(VERSIONS), Pointer::read(disk, folder).ok());
    let mut all = numbers(disk, folder)?;
    if let Some(of) = &of {
        all.retain(|number| !of.removing.contains(number));
        all.extend(of.versions.iter().map(|version| version.number));
        all.sort_unstable();
        all.dedup();
    }
    let read = |number| {
        let read = VersionInfo::read(disk, &versions, number, of.as_ref());
        (number, read.map_err(|error| recheck(error, disk, folder, number)))
    };
    let was_there = |read: &Result<VersionInfo>| !read.as_ref().is_err_and(Error::is_absent);
    Ok(all.into_iter().map(read).filter(|(_, read)| was_there(read)).collect())
}

/// Returns the error for a version that was not found: a version that a writer has removed
/// meanwhile is absent, not lost.
pub(super) fn recheck(error: Error, disk: &dyn Disk, folder: &Path, number: u64) -> Error {
    let is_struck = || Pointer::read(disk, folder).is_ok_and(|now| now.version(number).is_none());
    match (error.kind(), error.place()) {
        (ErrorKind::Missing { .. }, Some(place)) if is_struck() => {
            Error::new(ErrorKind::Absent).at(place)
        }
        _ => error,
    }
}

/// Opens the current version, and returns it with the pointer that names it.
pub(super) fn open_current(
    folder: &Path,
    options: &ReadOptions,
    other: Option<&Version>,
) -> Result<(Version, Pointer)> {
    let disk = options.env.disk.as_ref();
    let mut pointer = Pointer::read(disk, folder)?;
    for attempt in 1.. {
        let Some(number) = pointer.current else {
            return Err(Error::new(ErrorKind::Absent).at(&Place::file(folder)));
        };
        let error = match Version::open_beside(folder, number, options, Some(&pointer), other) {
            Ok(version) => return Ok((version, pointer)),
            Err(error) => error,
        };
        // The version that this pointer names may be gone because another one was published.
        match Pointer::read(disk, folder) {
            Ok(newer) if newer != pointer && attempt < ATTEMPTS_MAX => pointer = newer,
            _ => return Err(error),
        }
    }
    unreachable!("attempts are bounded")
}
