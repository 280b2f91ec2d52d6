//! Reading a version, and following the current version.

use super::{
    delta::{Untagged, untag},
    layer::folder_of,
    pointer::Pointer,
    version::{Chunk, Layer, VersionInfo, file_name, no_file, numbers},
};
use crate::{
    env::Env,
    error::{Error, ErrorKind, Place, Result, check_same},
    folder::{TABLES, VERSIONS},
    io::{Disk, Lock},
    options::ReadOptions,
    run::{Merge, Run, Tombstones},
    table::{Table, TableScan, VisitValue},
    work::Executor,
};
use arc_swap::ArcSwap;
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

/// Maximum number of attempts to open the current version while it is being replaced.
const ATTEMPTS_MAX: usize = 8;

/// An open version: its indexes are in memory, its entries on the device.
///
/// An open version never changes, even when other versions are published. Its files stay on the
/// device as long as any process has it open. Threads can share a version.
#[derive(Debug)]
pub struct Version {
    info: VersionInfo,
    /// For each chunk its tables, newest layer first.
    chunks: Vec<Vec<Arc<Table>>>,
    /// The shared lock that tells other processes that the version is in use.
    _share: Box<dyn Lock>,
}

impl Version {
    /// Opens a version of the store in a folder.
    ///
    /// # Errors
    /// `Absent` if there is no store or no such version, `Missing` if the version is listed but its file is
    /// gone; damage.
    pub fn open(
        disk: &Arc<dyn Disk>,
        folder: &Path,
        number: u64,
        options: &ReadOptions,
    ) -> Result<Version> {
        let of = Pointer::read(disk.as_ref(), folder).ok();
        Version::open_beside(disk, folder, number, options, of.as_ref(), None)
            .map_err(|error| recheck(error, disk.as_ref(), folder, number))
    }

    /// Opens a version; shares the tables that `other` has open.
    fn open_beside(
        disk: &Arc<dyn Disk>,
        folder: &Path,
        number: u64,
        options: &ReadOptions,
        of: Option<&Pointer>,
        other: Option<&Version>,
    ) -> Result<Version> {
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
            None => open_layer(disk, &tables, &info, layer, options).map(Arc::new),
        };
        let chunk = |chunk: &Chunk| chunk.layers.iter().map(layer).collect();
        let chunks: Result<Vec<Vec<Arc<Table>>>> = info.chunks.iter().map(chunk).collect();
        Ok(Version { chunks: chunks?, info, _share: share })
    }

    fn tables(&self) -> HashMap<u64, &Arc<Table>> {
        self.chunks.iter().flatten().map(|table| (table.stats().id, table)).collect()
    }

    /// Returns the description of the version.
    pub fn info(&self) -> &VersionInfo {
        &self.info
    }

    /// Returns the memory of all indexes, in bytes.
    pub fn index_bytes(&self) -> u64 {
        self.chunks.iter().flatten().map(|table| table.stats().index_bytes).sum()
    }

    /// Returns the attribute with this name.
    pub fn attribute(&self, name: &str) -> Option<&[u8]> {
        let found = self.info.attributes.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_slice())
    }

    /// Returns the value of a key, with one device read, and one more for about 1 in 256 keys per
    /// delta.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = None;
        self.get_with(key, &mut |found| value = found.map(<[u8]>::to_vec))?;
        Ok(value)
    }

    /// Whether a key is in the version. Reads as much as [`Version::get`].
    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        let mut contains = false;
        self.get_with(key, &mut |found| contains = found.is_some())?;
        Ok(contains)
    }

    /// Calls `visit` once, with the value of a key, or `None` if the key is absent.
    pub fn get_with(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        let chunk = &self.chunks[self.info.shape.slots.chunk_of(key) as usize];
        let (base, deltas) = chunk.split_last().expect("a chunk has a base");
        for delta in deltas {
            let mut found = None;
            delta.get_with(key, &mut |tagged| {
                found = tagged.map(|tagged| untag(tagged).map(&mut *visit));
            })?;
            if let Some(found) = found {
                return found;
            }
        }
        base.get_with(key, visit)
    }

    /// Looks up many keys, with many device reads in flight. `visit` is called once for each key,
    /// in any order, with the index of the key and its value, or `None` if the key is absent.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K], visit: &mut VisitValue<'_>) -> Result<()> {
        let slots = &self.info.shape.slots;
        if slots.chunks() == 1 {
            return get_many_in(&self.chunks[0], keys, (0..keys.len()).collect(), visit);
        }
        let mut by_chunk = vec![Vec::new(); self.chunks.len()];
        for (i, key) in keys.iter().enumerate() {
            by_chunk[slots.chunk_of(key.as_ref()) as usize].push(i);
        }
        let both = self.chunks.iter().zip(by_chunk);
        both.filter(|(_, indexes)| !indexes.is_empty())
            .try_for_each(|(chunk, indexes)| get_many_in(chunk, keys, indexes, visit))
    }

    /// Calls `visit` with about `count` evenly spread keys; deltas may have deleted some of them.
    pub fn sample(&self, count: u64, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let chunks = self.chunks.len() as u64;
        for (chunk, layers) in (0..chunks).zip(&self.chunks) {
            let share = count / chunks + u64::from(chunk < count % chunks);
            layers.last().expect("a chunk has a base").sample(share, visit)?;
        }
        Ok(())
    }

    /// Returns all entries of a chunk as a run; `executor` reads the next blocks while the caller
    /// works.
    pub fn scan_ahead(&self, chunk: u32, executor: &Arc<dyn Executor>) -> Box<dyn Run> {
        self.merged(chunk, Some(executor))
    }

    /// Returns all entries of a chunk as a run.
    pub fn scan(&self, chunk: u32) -> Box<dyn Run> {
        self.merged(chunk, None)
    }

    /// Returns all entries of the version, in the order of their hashes. All tables of the version
    /// are read side by side, each with a window of its own in memory.
    pub fn scan_all(&self) -> Box<dyn Run> {
        let chunks = (0..self.info.chunks.len() as u32).map(|chunk| self.scan(chunk)).collect();
        Box::new(Merge::new(chunks, Tombstones::Drop).expect("all chunks have one seed"))
    }

    fn merged(&self, chunk: u32, executor: Option<&Arc<dyn Executor>>) -> Box<dyn Run> {
        merged(&self.info.chunks[chunk as usize], &self.chunks[chunk as usize], executor)
    }
}

/// Looks up the keys with these indexes, which belong to the same chunk.
fn get_many_in<K: AsRef<[u8]>>(
    chunk: &[Arc<Table>],
    keys: &[K],
    mut indexes: Vec<usize>,
    visit: &mut VisitValue<'_>,
) -> Result<()> {
    let (base, deltas) = chunk.split_last().expect("a chunk has a base");
    for delta in deltas {
        let some: Vec<&[u8]> = indexes.iter().map(|&i| keys[i].as_ref()).collect();
        let mut left = Vec::with_capacity(indexes.len());
        delta.get_many(&some, &mut |i, tagged| match tagged {
            Some(tagged) => visit(indexes[i], untag(tagged)?),
            None => {
                left.push(indexes[i]);
                Ok(())
            }
        })?;
        indexes = left;
    }
    let some: Vec<&[u8]> = indexes.iter().map(|&i| keys[i].as_ref()).collect();
    base.get_many(&some, &mut |i, value| visit(indexes[i], value))
}

/// Returns the entries of a chunk's layers, given newest first, as one run without deletions. Reads
/// ahead on the executor, if there is one.
pub(super) fn merged(
    chunk: &Chunk,
    tables: &[Arc<Table>],
    executor: Option<&Arc<dyn Executor>>,
) -> Box<dyn Run> {
    let scan = |(layer, table): (&Layer, &Arc<Table>)| {
        let scan = table.scan().with_summary(layer.sizes);
        match executor {
            Some(executor) => scan.reading_ahead(executor.clone()),
            None => scan,
        }
    };
    let mut scans: Vec<TableScan> = chunk.layers.iter().zip(tables).map(scan).collect();
    let base = Box::new(scans.pop().expect("a chunk has a base"));
    if scans.is_empty() {
        return base;
    }
    let deltas = scans.into_iter().map(|delta| Box::new(Untagged(delta)) as Box<dyn Run>);
    let runs = deltas.chain([base as Box<dyn Run>]).collect();
    Box::new(Merge::new(runs, Tombstones::Drop).expect("all tables of a version have its seed"))
}

/// Opens the table of a layer, which must be the one that the version file describes.
pub(super) fn open_layer(
    disk: &Arc<dyn Disk>,
    tables: &Path,
    info: &VersionInfo,
    layer: &Layer,
    options: &ReadOptions,
) -> Result<Table> {
    let folder = folder_of(tables, layer.table);
    let table = Table::open_with(&folder, &options.clone().env(Env::on(disk.clone()))).map_err(
        |error| match error.is_absent() {
            true => Error::missing("table of the version", &folder),
            false => error,
        },
    )?;
    let stats = table.stats();
    check_same("table id", layer.table, stats.id)
        .and_then(|()| check_same("seed", info.seed.0, stats.seed.0))
        .and_then(|()| check_same("number of entries", layer.entries, stats.entries))
        .map_err(|error| error.at(&Place::file(&folder)))?;
    Ok(table)
}

/// Returns the descriptions of all versions of the store in a folder, in the order of their
/// numbers, with an error for each version that is lost or cannot be read.
pub fn versions(disk: &dyn Disk, folder: &Path) -> Result<Vec<(u64, Result<VersionInfo>)>> {
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

/// A reader of the current version, which follows each publish and rollback.
///
/// [`Follower::version`] never waits. The user calls [`Follower::refresh`] now and then, from any
/// thread; several calls per second cost almost nothing.
#[derive(Debug)]
pub struct Follower {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    options: ReadOptions,
    current: ArcSwap<Version>,
    /// Versions that were current before. Dropping the last handle of a version frees its memory;
    /// keeping one here means that no lookup has to.
    retired: Mutex<Vec<Arc<Version>>>,
}

impl Follower {
    /// Opens the current version of the store in a folder.
    ///
    /// # Errors
    /// `Absent` if there is no store, or no version was published.
    pub fn open(disk: Arc<dyn Disk>, folder: &Path, options: ReadOptions) -> Result<Follower> {
        let (version, _) = open_current(&disk, folder, &options, None)?;
        Ok(Follower {
            disk,
            folder: folder.to_owned(),
            options,
            current: ArcSwap::new(Arc::new(version)),
            retired: Mutex::default(),
        })
    }

    /// Returns the version that was current at the last refresh.
    pub fn version(&self) -> Arc<Version> {
        self.current.load_full()
    }

    /// Opens the current version, if it is not the version at hand. Returns whether it changed.
    /// After an error, the old version stays.
    pub fn refresh(&self) -> Result<bool> {
        let mut retired = self.retired.lock().expect("nothing panics under this lock");
        retired.retain(|version| Arc::strong_count(version) > 1);
        let held = self.version();
        let pointer = Pointer::read(self.disk.as_ref(), &self.folder)?;
        if pointer.current == Some(held.info.name.number) {
            return Ok(false);
        }
        let (version, _) = open_current(&self.disk, &self.folder, &self.options, Some(&held))?;
        retired.push(self.current.swap(Arc::new(version)));
        Ok(true)
    }
}

/// Opens the current version, and returns it with the pointer that names it.
pub(super) fn open_current(
    disk: &Arc<dyn Disk>,
    folder: &Path,
    options: &ReadOptions,
    other: Option<&Version>,
) -> Result<(Version, Pointer)> {
    let mut pointer = Pointer::read(disk.as_ref(), folder)?;
    for attempt in 1.. {
        let Some(number) = pointer.current else {
            return Err(Error::new(ErrorKind::Absent).at(&Place::file(folder)));
        };
        let error = match Version::open_beside(disk, folder, number, options, Some(&pointer), other)
        {
            Ok(version) => return Ok((version, pointer)),
            Err(error) => error,
        };
        // The version that this pointer names may be gone because another one was published.
        match Pointer::read(disk.as_ref(), folder) {
            Ok(newer) if newer != pointer && attempt < ATTEMPTS_MAX => pointer = newer,
            _ => return Err(error),
        }
    }
    unreachable!("attempts are bounded")
}
