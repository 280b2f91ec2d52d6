//! Reading a version: lookups and scans.

use super::{
    delta::untag,
    lookup::Lookups,
    open_slots::OpenSlots,
    pointer::Pointer,
    scan::{Broken, scan_slots},
    slot::{SLOTS, slot_of},
    tables::OpenTables,
    version::{Layer, VersionInfo, file_name, no_file, numbers},
};
use crate::{
    env::Env,
    error::{Error, ErrorKind, Place, Result},
    folder::{TABLES, VERSIONS},
    io::{Disk, Lock},
    options::{ChosenSlots, ReadOptions},
    run::Run,
    table::{Table, TableStats, VisitValue},
    work::{Clock, Executor, Watch},
};
use std::{borrow::Cow, collections::HashMap, ops::Range, path::Path, sync::Arc};

/// Maximum number of attempts to open the current version while it is being replaced.
const ATTEMPTS_MAX: usize = 8;

/// An open version: its indexes are in memory; its entries are mapped, or are read from the device.
///
/// An open version never changes, even when other versions are published. Its files stay on the
/// device as long as any process has it open. Threads can share a version.
///
/// A missing or damaged table keeps no other table shut: lookups of its keys fail with an error that
/// names the file, until the file is repaired; lookups of all other keys succeed.
#[derive(Debug)]
pub struct Version {
    info: VersionInfo,
    tables: OpenTables,
    /// The damage of tables that was found when the version was opened.
    damage: Vec<Error>,
    /// The slots of the keys that can be looked up.
    slots: OpenSlots,
    /// The choice of slots, which may get more.
    chosen: Option<ChosenSlots>,
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
    /// gone; damage of this file. [`Version::damage`] lists the damage of tables.
    pub fn open(folder: impl AsRef<Path>, number: u64, options: &ReadOptions) -> Result<Version> {
        Version::open_some(folder.as_ref(), number, options, None)
    }

    /// Opens a version of the store in a folder, as [`Version::open`] does. The tables that `other`, another
    /// version of this store, has open are shared: they take no further memory.
    ///
    /// # Errors
    /// The errors of [`Version::open`].
    pub fn open_sharing(
        folder: impl AsRef<Path>,
        number: u64,
        options: &ReadOptions,
        other: &Version,
    ) -> Result<Version> {
        Version::open_some(folder.as_ref(), number, options, Some(other))
    }

    fn open_some(
        folder: &Path,
        number: u64,
        options: &ReadOptions,
        other: Option<&Version>,
    ) -> Result<Version> {
        let disk = options.env.disk.as_ref();
        let of = Pointer::read(disk, folder).ok();
        Version::open_beside(folder, number, options, of.as_ref(), other)
            .map_err(|error| recheck(error, disk, folder, number))
    }

    /// Opens a version; shares the tables that `other` has open.
    fn open_beside(
        folder: &Path,
        number: u64,
        options: &ReadOptions,
        of: Option<&Pointer>,
        other: Option<&Version>,
    ) -> Result<Version> {
        let chosen = options.slots.clone();
        let ranges = ranges_of(chosen.as_ref())?;
        let disk = &options.env.disk;
        let versions = folder.join(VERSIONS);
        let path = versions.join(file_name(number));
        if !disk.exists(&path)? {
            return Err(no_file(of.and_then(|of| of.version(number)), &path));
        }
        let share = disk.share(&path)?;
        // The version may have been removed before it was locked; from here on it stays.
        let info = VersionInfo::read(disk.as_ref(), &versions, number, of)?;
        let (tables, other) = (folder.join(TABLES), other.map(|other| &other.tables));
        let (tables, damage) =
            OpenTables::open(&tables, options, &info, &has_any(&info, &ranges), other)?;
        let slots = OpenSlots::new(&ranges);
        Ok(Version { tables, damage, slots, chosen, stacks: stacks(&info), info, _share: share })
    }

    /// Returns the description of the version.
    pub fn info(&self) -> &VersionInfo {
        &self.info
    }

    /// Returns the damage of tables that was found when the version was opened: one error for each
    /// table that could not be opened. Damage of blocks is found when they are read.
    pub fn damage(&self) -> &[Error] {
        &self.damage
    }

    /// Returns the damage of indexes that was found when the version was opened. Lookups in their tables
    /// take more reads, until the version is repaired or replaced.
    pub fn index_damage(&self) -> impl Iterator<Item = &Error> {
        self.tables.iter().filter_map(|table| table.index_damage())
    }

    /// Returns the version if all of its tables could be opened.
    ///
    /// # Errors
    /// The damage of the first table that could not be opened.
    pub fn whole(mut self) -> Result<Version> {
        if self.damage.is_empty() { Ok(self) } else { Err(self.damage.remove(0)) }
    }

    /// Returns the clock that the version was opened with.
    pub(super) fn clock(&self) -> &dyn Clock {
        self.tables.clock()
    }

    /// Returns the slots of the keys that can be looked up, as ranges in ascending order that do not touch.
    pub fn slots(&self) -> Vec<Range<u32>> {
        self.slots.ranges()
    }

    /// Opens the tables of slots that were chosen ([`ReadOptions::chosen_slots`]) since the version was opened:
    /// lookups of their keys succeed from then on. Slots that are no longer chosen stay open.
    ///
    /// # Errors
    /// A table cannot be opened; the slots that were open stay open.
    pub fn open_chosen(&self) -> Result<()> {
        let mut ranges = ranges_of(self.chosen.as_ref())?;
        ranges.retain(|range| !self.slots.has_all(range));
        if !ranges.is_empty() {
            self.tables.open_more(&self.info, &has_any(&self.info, &ranges))?;
            self.slots.add(&ranges);
        }
        Ok(())
    }

    /// Returns the memory of all indexes, in bytes.
    pub fn index_bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.stats().index_bytes).sum()
    }

    /// Returns the sizes and indexes of the open tables: first bases, then deltas. Damaged tables,
    /// and those of chunks that are not open, are left out.
    pub fn table_stats(&self) -> impl Iterator<Item = &TableStats> {
        self.tables.iter().map(|table| table.stats())
    }

    /// Brings the entries of mapped tables into memory, so that no first lookup waits for the device. Leaves
    /// out tables that `used` has too, a version that is read already. Does nothing if they take more than half
    /// of the free memory ([`Disk::free_memory`]). Tables whose entries are read from the device stay there.
    /// `watch` counts bytes, before they are read.
    ///
    /// # Errors
    /// The error of `watch`; another process has cut a file.
    pub fn warm(&self, used: Option<&Version>, watch: &Watch) -> Result<()> {
        self.tables.warm(used.map(|used| &used.tables), watch)
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
        let (base, deltas) = self.stack(key)?.split_last().expect("a chunk has a base");
        for delta in deltas {
            let mut found = None;
            self.table(*delta)?.get_with(key, &mut |tagged| {
                found = tagged.map(|tagged| untag(tagged).map(&mut *visit));
            })?;
            if let Some(found) = found {
                return found;
            }
        }
        self.table(*base)?.get_with(key, visit)
    }

    /// Returns the value of a key, without a copy where [`Table::get_ref`] does.
    pub fn get_ref(&self, key: impl AsRef<[u8]>) -> Result<Option<Cow<'_, [u8]>>> {
        Ok(self.find(key.as_ref())?.map(|(_, value)| value))
    }

    /// Returns the number of the table that has the value of a key, and the value.
    pub(super) fn find(&self, key: &[u8]) -> Result<Option<(u32, Cow<'_, [u8]>)>> {
        let (base, deltas) = self.stack(key)?.split_last().expect("a chunk has a base");
        for delta in deltas {
            if let Some(tagged) = self.table(*delta)?.get_ref(key)? {
                let value = match tagged {
                    Cow::Borrowed(tagged) => untag(tagged)?.map(Cow::Borrowed),
                    Cow::Owned(tagged) => untag(&tagged)?.map(|value| Cow::Owned(value.to_vec())),
                };
                return Ok(value.map(|value| (*delta, value)));
            }
        }
        Ok(self.table(*base)?.get_ref(key)?.map(|value| (*base, value)))
    }

    /// Returns the numbers of the tables that may have a key, the newest layer first.
    fn stack(&self, key: &[u8]) -> Result<&[u32]> {
        if !self.slots.is_all() && !self.slots.contains(slot_of(key)) {
            return Err(not_open(&self.slots, slot_of(key)));
        }
        Ok(&self.stacks[self.info.shape.slots.chunk_of(key) as usize])
    }

    pub(super) fn table(&self, number: u32) -> Result<&Arc<Table>> {
        self.tables.get(&self.info, number as usize)
    }

    /// Looks up many keys, with the device reads of all tables in flight together. `visit` is called
    /// once for each key, in any order, with the index of the key and its value, or `None` if the key is
    /// absent.
    ///
    /// # Errors
    /// If a table is damaged, the keys of all other tables are still visited before its error is
    /// returned. An error of `visit` ends the call.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K], visit: &mut VisitValue<'_>) -> Result<()> {
        let mut failed = Ok(());
        let mut wanted = Vec::with_capacity(keys.len());
        for (i, key) in keys.iter().enumerate() {
            match self.stack(key.as_ref()) {
                Ok(stack) => wanted.push((stack, i)),
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        let table = |number| self.table(number);
        let found = Lookups::new(keys, &table, self.info.bases.len()).run(wanted, visit);
        found.and(failed)
    }

    /// Calls `visit` with about `count` evenly spread keys of the open slots; deltas may have deleted some of
    /// them.
    pub fn sample(&self, count: u64, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        // A table may have other slots, too: more of its keys are read, and those are left out.
        let mut visit_open = |key: &[u8]| match self.slots.contains(slot_of(key)) {
            true => visit(key),
            false => Ok(()),
        };
        let bases: Vec<(u32, u64, f64)> = (0..)
            .zip(&self.info.bases)
            .map(|(number, base)| (number, base.entries, self.open_part(&base.chunks.bounds())))
            .filter(|(_, _, open)| *open > 0.0)
            .collect();
        let own = |(_, entries, open): &(u32, u64, f64)| *entries as f64 * open;
        let all: f64 = bases.iter().map(own).sum();
        let (mut before, mut done) = (0.0, 0);
        for base in &bases {
            before += own(base);
            let until = (count as f64 * before / all.max(1.0)).round() as u64;
            let (number, _, open) = base;
            self.table(*number)?.sample(((until - done) as f64 / open) as u64, &mut visit_open)?;
            done = until;
        }
        Ok(())
    }

    /// Returns the fraction of the slots of a range of chunks that are open.
    fn open_part(&self, chunks: &Range<u32>) -> f64 {
        let slots = self.info.shape.slots.slots(chunks);
        f64::from(self.slots.count_in(&slots)) / f64::from(slots.end - slots.start)
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
        self.scan_slots(&self.info.shape.slots.slots(&chunks), 0, Some(executor))
    }

    /// Returns all entries of a range of chunks as a run. Reads all tables that have any of these
    /// chunks: [`Version::parts`] are the ranges that are read without waste.
    pub fn scan_chunks(&self, chunks: Range<u32>) -> Box<dyn Run> {
        self.scan_slots(&self.info.shape.slots.slots(&chunks), 0, None)
    }

    /// Returns the entries of a range of chunks whose hashes have high bits of at least `from`, as a run,
    /// to go on with a scan where another one ended. Finds the first one with about 10 reads per table.
    pub fn scan_chunks_from(&self, chunks: Range<u32>, from: u64) -> Box<dyn Run> {
        self.scan_slots(&self.info.shape.slots.slots(&chunks), from, None)
    }

    /// Returns all entries of the version, in the order of their hashes. All tables of the version
    /// are read side by side, each with a window of its own in memory.
    pub fn scan_all(&self) -> Box<dyn Run> {
        self.scan_slots(&(0..SLOTS), 0, None)
    }

    /// Returns the entries of a range of slots whose hashes have high bits of at least `from`, as a run.
    pub(super) fn scan_slots(
        &self,
        slots: &Range<u32>,
        from: u64,
        executor: Option<&Arc<dyn Executor>>,
    ) -> Box<dyn Run> {
        let numbers: HashMap<u64, u32> =
            self.info.layers().map(|layer| layer.table).zip(0..).collect();
        let open = |layer: &Layer| self.table(numbers[&layer.table]).cloned();
        let run = match self.slots.first_closed(slots) {
            None => scan_slots(&self.info, slots, from, &open, executor),
            Some(slot) => Err(not_open(&self.slots, slot)),
        };
        let seed = self.info.seed;
        run.unwrap_or_else(|error| Box::new(Broken { error: Some(error), seed }))
    }
}

/// Returns the error for a slot that is not open.
fn not_open(open: &OpenSlots, slot: u32) -> Error {
    let range = |range: &Range<u32>| format!("{} to {}", range.start, range.end - 1);
    let ranges: Vec<String> = open.ranges().iter().map(range).collect();
    Error::argument("slot of the key", format!("{}, which are open", ranges.join(", ")), slot)
}

/// Returns the ranges of slots that are chosen now: all slots without a choice.
fn ranges_of(chosen: Option<&ChosenSlots>) -> Result<Vec<Range<u32>>> {
    let all = 0..SLOTS;
    let ranges = chosen.map_or_else(|| vec![all], |chosen| chosen.get().to_vec());
    match ranges.iter().any(|range| range.is_empty() || range.end > SLOTS) || ranges.is_empty() {
        false => Ok(ranges),
        true => {
            let expected = format!("ranges in 0 to {}", SLOTS - 1);
            Err(Error::argument("slots to open", expected, format!("{ranges:?}")))
        }
    }
}

/// Returns whether a layer of a version has chunks of any of these ranges of slots.
fn has_any(info: &VersionInfo, slots: &[Range<u32>]) -> impl Fn(&Layer) -> bool {
    let map = info.shape.slots;
    let chunks =
        |slots: &Range<u32>| map.chunk_of_slot(slots.start)..map.chunk_of_slot(slots.end - 1) + 1;
    let chunks: Vec<Range<u32>> = slots.iter().map(chunks).collect();
    move |layer| chunks.iter().any(|chunks| layer.chunks.count_in(chunks) > 0)
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
            return Err(Error::new(ErrorKind::Unpublished).at(&Place::file(folder)));
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
