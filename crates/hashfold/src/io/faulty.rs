//! A disk that fails as planned: power cuts, refused calls, short reads, flipped bits.
//!
//! The disk remembers what is only written and what is synced, for bytes and for names:
//!
//! ```text
//! write_at → unsynced writes ── sync ────────→ durable bytes of the file
//! create, rename, remove → unsynced changes ── sync_folder → durable names of the folder
//! ```
//!
//! After a power cut, the durable state remains. Each unsynced write of a file is kept, lost or
//! torn between two sectors, independent of the order. Of a folder's unsynced changes, the first
//! few are kept, as on file systems with a journal; a rename is atomic.

use super::{
    Access, BlockFile, Disk, Extent, FileExtents, Lock, MemoryDisk, Visit,
    disk::{check_whole, read_each, refuse_map, refused, within},
    memory::{Content, check_size, end_of, read_slice, write_slice},
    names::{Answer, Locks, NameChange, Names, clean},
};
use crate::error::{Error, Place, Result};
use rustix::io::Errno;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, RwLock},
};

/// Size of a sector in bytes: a device writes an aligned sector completely or not at all.
const SECTOR_SIZE: u64 = 512;

/// A planned fault. Calls are counted from 0. Operations are the calls that change something:
/// create, write, allocate, punch a hole, sync, rename and remove, of files and folders. Each write
/// of a `write_many` is one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The power fails during this operation: the operation and every later call fail.
    PowerCut {
        /// Number of the operation.
        operation: u64,
    },
    /// An operation fails and changes nothing.
    Failure {
        /// Number of the operation.
        operation: u64,
    },
    /// The disk is full from this write on.
    Full {
        /// Number of the write among writes and allocations.
        write: u64,
    },
    /// The disk is full after this number of bytes, even in the middle of a write.
    FullAfter {
        /// Number of bytes written, overwriting or not, plus the bytes by which allocations
        /// extended files.
        bytes: u64,
    },
    /// A read fails.
    ReadFailure {
        /// Number of the read; each extent of a `read_many` is one read.
        read: u64,
    },
    /// A read finds the file shorter than it is.
    ShortRead {
        /// Number of the read.
        read: u64,
    },
    /// A read returns one bit flipped.
    FlippedBit {
        /// Number of the read.
        read: u64,
    },
}

/// The faults of a [`FaultyDisk`]. The default is none.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    /// Seed that decides which bit is flipped and how short a short read is.
    pub seed: u64,
    /// The faults, in any order.
    pub faults: Vec<Fault>,
}

impl From<Fault> for FaultPlan {
    fn from(fault: Fault) -> FaultPlan {
        FaultPlan { seed: 0, faults: vec![fault] }
    }
}

/// A disk in RAM that fails as planned. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct FaultyDisk {
    state: Arc<Mutex<DiskState>>,
    locks: Locks,
}

impl FaultyDisk {
    /// Returns an empty disk.
    pub fn new(plan: FaultPlan) -> FaultyDisk {
        FaultyDisk::over(&MemoryDisk::default(), plan)
    }

    /// Returns a disk that starts with a copy of the content of `disk`, all of it durable.
    pub fn over(disk: &MemoryDisk, plan: FaultPlan) -> FaultyDisk {
        let mut files = Vec::new();
        let names = disk.names().map(|content| {
            let bytes = content.read().expect("nothing panics under this lock").clone();
            files.push(FileState { durable: bytes.clone(), bytes, unsynced: Vec::new() });
            files.len() - 1
        });
        let state = DiskState {
            random: SplitMix64(plan.seed),
            faults: plan.faults,
            durable_names: names.clone(),
            names,
            files,
            ..DiskState::default()
        };
        FaultyDisk { state: Arc::new(Mutex::new(state)), locks: Locks::default() }
    }

    /// Returns the number of operations so far. A test that cuts the power at each operation in
    /// turn ends there.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Returns the number of batches of reads so far. A device has all reads of a batch in flight
    /// together.
    pub fn batches(&self) -> u64 {
        self.state().batches
    }

    /// Adds a fault.
    pub fn plan(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Removes all faults, and a power cut: from now on every call succeeds.
    pub fn heal(&self) {
        let mut state = self.state();
        state.faults.clear();
        state.has_no_power = false;
    }

    /// Returns a copy of the disk as the running system sees it, unsynced writes included.
    pub fn snapshot(&self) -> MemoryDisk {
        let state = self.state();
        MemoryDisk::with_names(state.names.map(|&id| content(state.files[id].bytes.clone())))
    }

    /// Returns a copy of the disk as the system finds it after a power cut now or earlier. `seed`
    /// decides which unsynced changes are left.
    pub fn after_power_cut(&self, seed: u64) -> MemoryDisk {
        let random = &mut SplitMix64(seed);
        let state = self.state();
        let names = state.names_after_power_cut(random);
        let luck = Luck::new(random);
        MemoryDisk::with_names(
            names.map(|&id| content(state.files[id].after_power_cut(luck, random))),
        )
    }

    /// Returns a copy as [`FaultyDisk::after_power_cut`] does, if the files are on several devices: one
    /// may have kept all of its writes, and another one may have lost them.
    pub fn after_power_cut_of_devices(&self, seed: u64) -> MemoryDisk {
        let random = &mut SplitMix64(seed);
        let state = self.state();
        let names = state.names_after_power_cut(random);
        MemoryDisk::with_names(names.map(|&id| {
            let luck = Luck::new(random);
            content(state.files[id].after_power_cut(luck, random))
        }))
    }

    fn state(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().expect("nothing panics under this lock")
    }

    /// Runs an operation that changes names by `change`.
    fn change_names(
        &self,
        action: &'static str,
        path: &Path,
        change: impl FnOnce(&mut Names<usize>) -> Answer<Vec<NameChange<usize>>>,
    ) -> Result<()> {
        let operation = |state: &mut DiskState| {
            let changes = change(&mut state.names)?;
            state.unsynced_changes.extend(changes);
            Ok(())
        };
        self.state().operate(operation).map_err(refused(action, path))
    }

    fn open_file(&self, path: &Path, writable: bool) -> Result<Arc<dyn BlockFile>> {
        let id = self.ask("open", path, |state| state.names.file(path))?;
        let (disk, place) = (self.clone(), Place::file(path));
        Ok(Arc::new(FaultyFile { disk, id, place, writable }))
    }

    /// Answers a query about names, if the disk has power.
    fn ask<T>(
        &self,
        action: &'static str,
        path: &Path,
        question: impl FnOnce(&DiskState) -> Answer<T>,
    ) -> Result<T> {
        let state = self.state();
        state.check_power().and_then(|()| question(&state)).map_err(refused(action, path))
    }
}

impl Disk for FaultyDisk {
    fn create(&self, path: &Path, _: Access) -> Result<Arc<dyn BlockFile>> {
        let id = self.state().new_file();
        self.change_names("create", path, |names| names.create(path, id))?;
        let (disk, place) = (self.clone(), Place::file(path));
        Ok(Arc::new(FaultyFile { disk, id, place, writable: true }))
    }

    fn open(&self, path: &Path, _: Access) -> Result<Arc<dyn BlockFile>> {
        self.open_file(path, false)
    }

    fn open_to_write(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>> {
        refuse_map(path, access)?;
        self.open_file(path, true)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.ask("find", path, |state| Ok(state.names.exists(path)))
    }

    fn list(&self, folder: &Path) -> Result<Vec<String>> {
        self.ask("list", folder, |state| state.names.list(folder))
    }

    fn create_folder(&self, folder: &Path) -> Result<()> {
        self.change_names("create", folder, |names| names.create_folder(folder))
    }

    fn remove_folder(&self, folder: &Path) -> Result<()> {
        self.change_names("remove", folder, |names| names.remove_folder(folder))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.change_names("remove", path, |names| names.remove(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.change_names("rename", from, |names| names.rename(from, to))
    }

    fn sync_folder(&self, folder: &Path) -> Result<()> {
        let sync = |state: &mut DiskState| state.sync_folder(folder);
        self.state().operate(sync).map_err(refused("sync", folder))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        self.ask("lock", path, |state| state.names.node(path))?;
        self.locks.take(path)
    }

    fn share(&self, path: &Path) -> Result<Box<dyn Lock>> {
        self.ask("lock", path, |state| state.names.node(path))?;
        Ok(self.locks.share(path))
    }

    fn free_bytes(&self, folder: &Path) -> Result<u64> {
        self.ask("measure", folder, |state| state.names.folder(folder))?;
        Ok(u64::MAX)
    }
}

#[derive(Debug)]
struct FaultyFile {
    disk: FaultyDisk,
    id: usize,
    place: Place,
    writable: bool,
}

impl FaultyFile {
    fn change(&self, offset: u64, change: impl FnOnce(&mut DiskState) -> Answer<()>) -> Result<()> {
        let change = |state: &mut DiskState| match self.writable {
            true => change(state),
            false => Err(Errno::BADF),
        };
        let answer = self.disk.state().operate(change);
        answer.map_err(|errno| Error::io("write", errno.into()).at(&self.place.offset(offset)))
    }
}

impl BlockFile for FaultyFile {
    fn place(&self) -> &Place {
        &self.place
    }

    fn size(&self) -> Result<u64> {
        let size = |state: &DiskState| Ok(state.files[self.id].bytes.len() as u64);
        self.disk.ask("measure", &self.place.file, size)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let place = self.place.offset(offset);
        let mut state = self.disk.state();
        let answer = state.read(self.id, offset, bytes);
        let got = answer.map_err(|errno| Error::io("read", errno.into()).at(&place))?;
        check_whole(&self.place, Extent { offset, len: bytes.len() }, got)
    }

    fn read_across(
        &self,
        files: &[&dyn BlockFile],
        extents: &mut FileExtents<'_>,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        self.disk.state().batches += 1;
        read_each(extents, |file, offset, bytes| files[file].read_at(offset, bytes), visit)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.change(offset, |state| state.write(self.id, offset, bytes))
    }

    fn allocate(&self, size: u64) -> Result<()> {
        self.change(0, |state| state.allocate(self.id, size))
    }

    fn punch_hole(&self, extent: Extent) -> Result<()> {
        self.change(extent.offset, |state| {
            let file = &mut state.files[self.id];
            let Extent { offset, len } = within(extent, file.bytes.len() as u64);
            file.change(Edit::Write { offset, bytes: vec![0; len] });
            Ok(())
        })
    }

    fn sync(&self) -> Result<()> {
        let sync = |state: &mut DiskState| {
            state.sync(self.id);
            Ok(())
        };
        self.disk.state().operate(sync).map_err(refused("sync", &self.place.file))
    }
}

#[derive(Debug, Default)]
struct DiskState {
    faults: Vec<Fault>,
    random: SplitMix64,
    operations: u64,
    reads: u64,
    batches: u64,
    writes: u64,
    bytes_written: u64,
    has_no_power: bool,
    /// All files. Removed files stay: they may be open, and may come back after a power cut.
    files: Vec<FileState>,
    names: Names<usize>,
    durable_names: Names<usize>,
    /// The changes that lead from the durable names to the current names, in order.
    unsynced_changes: Vec<NameChange<usize>>,
}

impl DiskState {
    fn is_planned(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    fn check_power(&self) -> Answer<()> {
        if self.has_no_power { Err(Errno::IO) } else { Ok(()) }
    }

    /// Runs an operation. If the power fails during it, its unsynced effects are done, and the
    /// operation fails.
    fn operate(&mut self, operation: impl FnOnce(&mut DiskState) -> Answer<()>) -> Answer<()> {
        self.check_power()?;
        let number = self.operations;
        self.operations += 1;
        if self.is_planned(Fault::Failure { operation: number }) {
            return Err(Errno::IO);
        }
        self.has_no_power = self.is_planned(Fault::PowerCut { operation: number });
        operation(self)?;
        self.check_power()
    }

    fn new_file(&mut self) -> usize {
        self.files.push(FileState::default());
        self.files.len() - 1
    }

    /// Takes space for a write of `bytes` bytes. Returns the number of bytes that fit.
    fn take_room(&mut self, bytes: u64) -> u64 {
        let number = self.writes;
        self.writes += 1;
        let room = self.faults.iter().map(|fault| match *fault {
            Fault::Full { write } if write <= number => 0,
            Fault::FullAfter { bytes } => bytes.saturating_sub(self.bytes_written),
            _ => u64::MAX,
        });
        let room = room.min().unwrap_or(u64::MAX).min(bytes);
        self.bytes_written += room;
        room
    }

    fn write(&mut self, id: usize, offset: u64, bytes: &[u8]) -> Answer<()> {
        check_size(end_of(offset, bytes))?;
        let fitting = &bytes[..self.take_room(bytes.len() as u64) as usize];
        self.files[id].change(Edit::Write { offset, bytes: fitting.to_vec() });
        if fitting.len() < bytes.len() { Err(Errno::NOSPC) } else { Ok(()) }
    }

    /// Allocates the whole space or none of it.
    fn allocate(&mut self, id: usize, size: u64) -> Answer<()> {
        check_size(size)?;
        let missing = size.saturating_sub(self.files[id].bytes.len() as u64);
        let room = self.take_room(missing);
        if room < missing {
            self.bytes_written -= room;
            return Err(Errno::NOSPC);
        }
        self.files[id].change(Edit::Allocate { size });
        Ok(())
    }

    /// Runs [`read_slice`] with the planned faults.
    fn read(&mut self, id: usize, offset: u64, mut bytes: &mut [u8]) -> Answer<usize> {
        self.check_power()?;
        let read = self.reads;
        self.reads += 1;
        if self.is_planned(Fault::ReadFailure { read }) {
            return Err(Errno::IO);
        }
        if self.is_planned(Fault::ShortRead { read }) && !bytes.is_empty() {
            let end = self.random.below(bytes.len());
            bytes = &mut bytes[..end];
        }
        let got = read_slice(&self.files[id].bytes, offset, bytes);
        if self.is_planned(Fault::FlippedBit { read }) && got > 0 {
            let bit = self.random.below(8 * got);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        Ok(got)
    }

    fn sync(&mut self, id: usize) {
        if !self.has_no_power {
            let file = &mut self.files[id];
            file.durable.clone_from(&file.bytes);
            file.unsynced.clear();
        }
    }

    fn sync_folder(&mut self, folder: &Path) -> Answer<()> {
        self.names.folder(folder)?;
        if self.has_no_power {
            return Ok(());
        }
        // In reverse order, because syncing a change also syncs all earlier changes in each of its
        // folders: a rename from another folder depends on the changes in that folder.
        let mut folders = BTreeSet::from([clean(folder)]);
        let mut is_synced = vec![false; self.unsynced_changes.len()];
        for (i, change) in self.unsynced_changes.iter().enumerate().rev() {
            if change.folders().iter().any(|folder| folders.contains(*folder)) {
                folders.extend(change.folders().into_iter().map(Path::to_owned));
                is_synced[i] = true;
            }
        }
        let changes = std::mem::take(&mut self.unsynced_changes);
        for (change, is_synced) in changes.into_iter().zip(is_synced) {
            if is_synced {
                self.durable_names.apply(&change);
            } else {
                self.unsynced_changes.push(change);
            }
        }
        Ok(())
    }

    /// Returns the durable names with the first few unsynced changes of each folder.
    fn names_after_power_cut(&self, random: &mut SplitMix64) -> Names<usize> {
        let mut names = self.durable_names.clone();
        let mut ended = BTreeSet::<PathBuf>::new();
        let ends_one_in = 1 << random.below(6);
        for change in &self.unsynced_changes {
            let folders = change.folders();
            let has_ended = folders.iter().any(|folder| ended.contains(*folder));
            if has_ended || random.below(ends_one_in) == 0 {
                ended.extend(folders.into_iter().map(Path::to_owned));
            } else {
                names.apply(change);
            }
        }
        names
    }
}

#[derive(Debug, Default)]
struct FileState {
    /// The bytes as the running system sees them.
    bytes: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Edit>,
}

impl FileState {
    fn change(&mut self, change: Edit) {
        change.apply(&mut self.bytes);
        self.unsynced.push(change);
    }

    fn after_power_cut(&self, luck: Luck, random: &mut SplitMix64) -> Vec<u8> {
        match luck {
            Luck::AllKept => return self.bytes.clone(),
            Luck::AllLost => return self.durable.clone(),
            Luck::EachItsOwn => {}
        }
        let mut bytes = self.durable.clone();
        let mut changes: Vec<&Edit> = self.unsynced.iter().collect();
        random.shuffle(&mut changes);
        for change in changes {
            match random.below(3) {
                0 => {}
                1 => change.apply(&mut bytes),
                _ => change.apply_torn(&mut bytes, random),
            }
        }
        bytes
    }
}

/// A change of the bytes of a file.
#[derive(Debug)]
enum Edit {
    /// A write; a hole is a write of zeros.
    Write { offset: u64, bytes: Vec<u8> },
    /// An extension with zeros to this size.
    Allocate { size: u64 },
}

impl Edit {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Edit::Write { offset, bytes } => write_slice(content, *offset, bytes),
            Edit::Allocate { size } => content.resize(content.len().max(*size as usize), 0),
        }
    }

    /// Applies a part of an interrupted change: the front or the end of a write of several sectors.
    /// A write within one sector is complete.
    fn apply_torn(&self, content: &mut Vec<u8>, random: &mut SplitMix64) {
        let (offset, bytes) = match self {
            Edit::Write { offset, bytes } => (*offset, bytes),
            Edit::Allocate { size } => {
                let sectors = (size / SECTOR_SIZE) as usize + 1;
                let size = random.below(sectors) as u64 * SECTOR_SIZE;
                return Edit::Allocate { size }.apply(content);
            }
        };
        let first_sector = offset / SECTOR_SIZE;
        let sectors = (offset + bytes.len() as u64).div_ceil(SECTOR_SIZE) - first_sector;
        if sectors < 2 {
            return write_slice(content, offset, bytes);
        }
        let cut = (first_sector + 1 + random.below(sectors as usize - 1) as u64) * SECTOR_SIZE;
        let (front, end) = bytes.split_at((cut - offset) as usize);
        if random.below(2) == 0 {
            write_slice(content, offset, front);
        } else {
            write_slice(content, cut, end);
        }
    }
}

/// The fate of the unsynced writes in one power cut. If the fate of each write were independent,
/// the two extremes would be too rare to be tested.
#[derive(Clone, Copy, Debug)]
enum Luck {
    AllKept,
    AllLost,
    EachItsOwn,
}

impl Luck {
    fn new(random: &mut SplitMix64) -> Luck {
        match random.below(8) {
            0 => Luck::AllKept,
            1 => Luck::AllLost,
            _ => Luck::EachItsOwn,
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
#[derive(Debug, Default)]
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Returns a number below `end`, which is not 0.
    fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

fn content(bytes: Vec<u8>) -> Content {
    Arc::new(RwLock::new(bytes))
}
