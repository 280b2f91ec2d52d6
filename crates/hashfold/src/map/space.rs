//! The space of the data file: which blocks are free.
//!
//! Blocks in use have an owner, [`Blocks`], and become free when the last reference to the owner is
//! dropped. Readers, snapshots and the last checkpoint keep references, so no block is overwritten
//! that one of them may need.
//!
//! Free blocks are a reserve for the next writes, which are faster where the file system need not
//! allocate. What exceeds the reserve is given back to the file system as holes.

use super::{
    block::BLOCK_SIZE,
    mirror::{Mirror, Mirrors},
    sync::{Mutex, MutexGuard},
};
use crate::{
    error::{Error, Result},
    io::{BlockFile, Extent, StripedFile},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    iter::once,
    sync::Arc,
};

/// Minimum number of blocks by which the file grows.
const GROWTH_MIN: u64 = if cfg!(test) { 16 } else { 64 };
/// The file grows at least by this fraction of its size.
const GROWTH_FRACTION: u64 = 16;
/// Minimum reserve of free blocks that keep their space on the device.
const RESERVE_MIN: u64 = GROWTH_MIN;

/// Number of the shortest free extents, and of the longest ones, that are searched for the place of a copy.
const EXTENTS_MAX: usize = 64;
/// Number of stripes that a copy may leave free before it when the file grows.
const STRIPES_SKIPPED_MAX: u64 = 3;

/// The data file and its free blocks.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) file: Arc<dyn BlockFile>,
    free: Mutex<Free>,
    /// The data file again, if it is on several devices.
    striped: Option<Arc<StripedFile>>,
    /// Copies of spans on other devices than these.
    pub(super) mirrors: Mirrors<Blocks>,
    /// Maximum number of blocks in such copies.
    pub(super) mirrored_max: u64,
    /// Held by the one writer that gives space back for its write.
    making_room: Mutex<()>,
}

/// Free extents.
#[derive(Debug, Default)]
struct Free {
    /// The length of each extent, by its first block. No two are adjacent.
    by_start: BTreeMap<u64, u64>,
    /// The extents again, by length: length, first block.
    by_length: BTreeSet<(u64, u64)>,
    /// Those of these extents that are not holes: they may take space on the device.
    allocated: BTreeSet<(u64, u64)>,
    /// Number of free blocks.
    count: u64,
    /// Number of blocks in the extents of `allocated`.
    allocated_count: u64,
    /// Number of blocks in the file.
    end: u64,
    /// While changes are replayed, the number of blocks that the file had before: free ones of these may be named by
    /// changes that are still to be replayed.
    named_before: Option<u64>,
}

/// Whether free blocks take space on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backing {
    /// All of them or some take space.
    Allocated,
    /// None does: they are a hole in the file.
    Hole,
}

/// The owner of consecutive blocks of the data file.
pub(super) struct Blocks {
    /// Number of the first block.
    pub(super) first: u64,
    /// Number of blocks.
    pub(super) count: u64,
    space: Arc<Space>,
}

impl Space {
    /// Makes the space of a file of which all blocks but the first are free.
    pub(super) fn new(file: Arc<dyn BlockFile>) -> Result<Arc<Space>> {
        let size = file.size()?;
        Ok(Space::with_size(file, size))
    }

    /// Makes the space of a file that should have this size, in bytes.
    pub(super) fn with_size(file: Arc<dyn BlockFile>, size: u64) -> Arc<Space> {
        let mut free = Free { end: 1, ..Free::default() };
        let end = size / BLOCK_SIZE as u64;
        if end > 1 {
            // Free extents that are holes already are punched again, if at all: that costs little.
            free.insert(1, end - 1, Backing::Allocated);
            free.end = end;
        }
        let (free, mirrors) = (Mutex::new(free), Mirrors::default());
        let making_room = Mutex::default();
        Arc::new(Space { file, free, striped: None, mirrors, mirrored_max: 0, making_room })
    }

    /// Makes the space of a file on several devices, of which all blocks but the first are free. At most
    /// `mirrored_max` of them are for copies of others.
    pub(super) fn striped_over(file: Arc<StripedFile>, mirrored_max: u64) -> Result<Arc<Space>> {
        let mut space = Space::new(file.clone())?;
        let own = Arc::get_mut(&mut space).expect("it was made just now");
        (own.striped, own.mirrored_max) = (Some(file), mirrored_max);
        Ok(space)
    }

    /// Returns the data file, if it is on several devices.
    pub(super) fn striped(&self) -> Option<&StripedFile> {
        self.striped.as_deref()
    }

    /// Returns a mirror for a new span, if spans may have copies.
    pub(super) fn new_mirror(&self) -> Option<Arc<Mirror<Blocks>>> {
        (self.striped.is_some() && self.mirrored_max > 0).then(Arc::default)
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().expect("nothing panics under this lock")
    }

    /// Takes `count` consecutive free blocks. The file grows if there are none. If the disk is full,
    /// copies of other blocks make way.
    pub(super) fn take(self: &Arc<Self>, count: u64) -> Result<Blocks> {
        match self.take_if_free(count) {
            Err(_) if self.mirrors.clear() => self.take_if_free(count),
            taken => taken,
        }
    }

    fn take_if_free(self: &Arc<Self>, count: u64) -> Result<Blocks> {
        assert!(count > 0);
        let mut free = self.free();
        if let Some(end) = free.named_before {
            return self.take_behind(&mut free, end, count);
        }
        if free.fitting(count).is_none() {
            self.grow(&mut free, count)?;
        }
        let (length, first) = free.fitting(count).expect("it has grown");
        let backing = free.remove(first, length);
        if length > count {
            free.insert(first + count, length - count, backing);
        }
        Ok(Blocks { first, count, space: self.clone() })
    }

    /// Takes `count` consecutive free blocks from block `end` on. The file grows if none are found.
    fn take_behind(self: &Arc<Self>, free: &mut Free, end: u64, count: u64) -> Result<Blocks> {
        if let Some(first) = free.fitting_behind(end, count) {
            return Ok(self.claim_of(free, first, count).expect("these blocks are free"));
        }
        let first = free.end;
        self.file.allocate((first + count) * BLOCK_SIZE as u64)?;
        free.end += count;
        Ok(Blocks { first, count, space: self.clone() })
    }

    /// Takes blocks for a copy of others: each on another device than the block that it copies. If there are
    /// none, the file grows by these blocks and those of up to three stripes before them. Returns `None` if it cannot.
    pub(super) fn take_apart(self: &Arc<Self>, from: &Blocks) -> Option<Blocks> {
        let striped = self.striped.as_ref()?;
        let unit = striped.unit() / BLOCK_SIZE as u64;
        let device = |block: u64| striped.device_of(block * BLOCK_SIZE as u64);
        let is_apart =
            |first: &u64| (0..from.count).all(|i| device(first + i) != device(from.first + i));
        // Another device begins with a stripe; at the same place in it, each block is on another one.
        let (stripes, at) = (striped.devices().len() + 1, from.first % unit);
        let within = |start: u64, end: u64| {
            let begins = (start.next_multiple_of(unit)..end).step_by(unit as usize).take(stripes);
            let firsts = once(start).chain(begins.flat_map(|begin| [begin, begin + at]));
            firsts.filter(|first| first + from.count <= end).find(is_apart)
        };
        let mut free = self.free();
        if free.named_before.is_some() {
            return None;
        }
        let fitting = free.by_length.range((from.count, 0)..);
        let longest = fitting.clone().rev().take(EXTENTS_MAX);
        let mut extents = fitting.take(EXTENTS_MAX).chain(longest);
        let found = extents.find_map(|(length, start)| within(*start, start + length));
        let first = match found {
            Some(first) => first,
            None => {
                let end = free.end;
                let first = within(end, end + STRIPES_SKIPPED_MAX * unit + from.count)?;
                self.append(&mut free, first + from.count - end).ok()?;
                first
            }
        };
        self.claim_of(&mut free, first, from.count)
    }

    /// Says whether changes are being replayed. Meanwhile, only blocks are taken that the file did not have before: free
    /// ones of the others may have large values of changes that are still to be replayed.
    pub(super) fn set_replaying(&self, is_replaying: bool) {
        let mut free = self.free();
        free.named_before = is_replaying.then_some(free.end);
    }

    /// Appends at least `count` blocks to the file.
    fn grow(&self, free: &mut Free, count: u64) -> Result<()> {
        let wanted = count.max(GROWTH_MIN).max(free.end / GROWTH_FRACTION);
        match self.append(free, wanted) {
            // A disk that is nearly full may have space for less.
            Err(_) if wanted > count => self.append(free, count),
            appended => appended,
        }
    }

    /// Appends blocks to the file.
    fn append(&self, free: &mut Free, count: u64) -> Result<()> {
        let start = free.end;
        self.file.allocate((start + count) * BLOCK_SIZE as u64)?;
        free.end += count;
        free.insert(start, count, Backing::Allocated);
        Ok(())
    }

    /// Takes blocks that a catalog names.
    ///
    /// # Errors
    /// `Field` if they are not all in the file, or if another owner has one of them.
    pub(super) fn claim(self: &Arc<Self>, first: u64, count: u64) -> Result<Blocks> {
        let claimed = self.claim_of(&mut self.free(), first, count);
        claimed.ok_or_else(|| {
            let got = format!("{count} from {first} on");
            Error::field("blocks of a group", "blocks that no other group has", got)
        })
    }

    /// Takes these blocks, if they are free.
    fn claim_of(self: &Arc<Self>, free: &mut Free, first: u64, count: u64) -> Option<Blocks> {
        let (start, length) = free.by_start.range(..=first).next_back()?;
        let (start, length) = (*start, *length);
        let end = first.checked_add(count).filter(|_| count > 0)?;
        if end > start + length {
            return None;
        }
        let backing = free.remove(start, length);
        if first > start {
            free.insert(start, first - start, backing);
        }
        if start + length > end {
            free.insert(end, start + length - end, backing);
        }
        Some(Blocks { first, count, space: self.clone() })
    }

    /// Writes bytes of blocks. Free blocks that are holes may be the first to meet a full disk.
    pub(super) fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.with_room(|| self.file.write_at(offset, bytes))
    }

    /// Runs a write to one of several devices. If it is full, copies of other blocks and the reserve make way, and the write
    /// runs again.
    pub(super) fn with_room(&self, write: impl Fn() -> Result<()>) -> Result<()> {
        match write() {
            Err(error) if error.is_full() && self.striped.is_some() => {
                // One after the other: a second writer may find nothing left to give back.
                let _alone = self.making_room.lock().expect("nothing panics under this lock");
                self.mirrors.clear();
                self.punch_until(|_| 0)?;
                write()
            }
            written => written,
        }
    }

    /// Gives the space of free extents back to the file system, the longest ones first, until at
    /// most a fraction of the used blocks is left as a reserve: one of `reserve_fraction`.
    pub(super) fn punch_holes(&self, reserve_fraction: u64) -> Result<()> {
        self.punch_until(|used| RESERVE_MIN.max(used / reserve_fraction))
    }

    /// Gives the space of free extents back until at most `reserve` blocks have some, of which it is given the number of
    /// used blocks.
    fn punch_until(&self, reserve: impl Fn(u64) -> u64) -> Result<()> {
        loop {
            // The lock is not held during the call, so the blocks are taken as if they were used.
            let mut free = self.free();
            let used = free.end - free.count;
            if free.allocated_count <= reserve(used) {
                return Ok(());
            }
            let (length, start) = *free.allocated.last().expect("their number is not 0");
            free.remove(start, length);
            drop(free);
            let (offset, len) = (start * BLOCK_SIZE as u64, length as usize * BLOCK_SIZE);
            let punched = self.file.punch_hole(Extent { offset, len });
            let backing = if punched.is_ok() { Backing::Hole } else { Backing::Allocated };
            self.free().insert(start, length, backing);
            punched?;
        }
    }

    /// Returns the number of free blocks, and of all blocks.
    pub(super) fn counts(&self) -> (u64, u64) {
        let free = self.free();
        (free.count, free.end)
    }
}

impl Free {
    /// Returns the length and the first block of the shortest extent with at least `count` blocks: of
    /// one that takes space on the device already, if there is one.
    fn fitting(&self, count: u64) -> Option<(u64, u64)> {
        let shortest = |extents: &BTreeSet<_>| extents.range((count, 0)..).next().copied();
        shortest(&self.allocated).or_else(|| shortest(&self.by_length))
    }

    /// Returns the first one of `count` consecutive free blocks from block `end` on.
    fn fitting_behind(&self, end: u64, count: u64) -> Option<u64> {
        let across = self.by_start.range(..end).next_back();
        let extents = across.into_iter().chain(self.by_start.range(end..).take(EXTENTS_MAX));
        let mut parts = extents.map(|(start, length)| (end.max(*start), start + length));
        parts.find(|(first, end)| first + count <= *end).map(|(first, _)| first)
    }

    /// Adds an extent, and joins it with its neighbours. The result is a hole if all parts are.
    fn insert(&mut self, mut first: u64, mut count: u64, mut backing: Backing) {
        let before =
            self.by_start.range(..first).next_back().map(|(start, length)| (*start, *length));
        if let Some((start, length)) = before.filter(|(start, length)| start + length == first) {
            backing = backing.joined(self.remove(start, length));
            (first, count) = (start, count + length);
        }
        if let Some(&length) = self.by_start.get(&(first + count)) {
            backing = backing.joined(self.remove(first + count, length));
            count += length;
        }
        self.by_start.insert(first, count);
        self.by_length.insert((count, first));
        self.count += count;
        if backing == Backing::Allocated {
            self.allocated.insert((count, first));
            self.allocated_count += count;
        }
    }

    fn remove(&mut self, start: u64, length: u64) -> Backing {
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
        self.count -= length;
        if !self.allocated.remove(&(length, start)) {
            return Backing::Hole;
        }
        self.allocated_count -= length;
        Backing::Allocated
    }
}

impl Backing {
    /// Returns the backing of two extents together.
    fn joined(self, other: Backing) -> Backing {
        if self == Backing::Allocated { self } else { other }
    }
}

impl Blocks {
    /// Returns the offset of the first block in the file, in bytes.
    pub(super) fn offset(&self) -> u64 {
        self.first * BLOCK_SIZE as u64
    }

    /// Returns an owner for each block.
    pub(super) fn split(self) -> Vec<Blocks> {
        let Blocks { first, count, ref space } = self;
        let owner = |i| Blocks { first: first + i, count: 1, space: space.clone() };
        let owners = (0..count).map(owner).collect();
        let mut this = self;
        this.count = 0;
        owners
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        if self.count > 0 {
            self.space.free().insert(self.first, self.count, Backing::Allocated);
        }
    }
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blocks({} from {} on)", self.count, self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{Access, Completeness, Device, Disk, MemoryDisk};
    use std::path::Path;

    fn space(blocks: u64) -> Arc<Space> {
        let file = MemoryDisk::default().create(Path::new("data"), Access::Cached).unwrap();
        file.allocate(blocks * BLOCK_SIZE as u64).unwrap();
        Space::new(file).unwrap()
    }

    #[test]
    fn dropped_blocks_are_taken_again_before_the_file_grows() {
        let space = space(1);
        let first = space.take(5).unwrap();
        assert_eq!((first.first, space.counts()), (1, (11, 17)));
        let second = space.take(11).unwrap();
        assert_eq!((second.first, space.counts()), (6, (0, 17)));
        drop(first);
        assert_eq!(space.take(5).unwrap().first, 1);
        drop(second);
        assert_eq!(space.counts(), (16, 17));
        assert_eq!(space.take(16).unwrap().first, 1);
        assert_eq!(space.take(17).unwrap().first, 1);
    }

    #[test]
    fn replays_take_only_blocks_that_the_file_did_not_have() {
        let space = space(20);
        let used = space.take(5).unwrap();
        space.set_replaying(true);
        let [first, second] = [4, 3].map(|count| space.take(count).unwrap());
        assert_eq!((first.first, second.first, space.counts()), (20, 24, (14, 27)));
        drop((used, first));
        let again = [3, 1, 1].map(|count| space.take(count).unwrap());
        assert_eq!(again.each_ref().map(|blocks| blocks.first), [20, 23, 27]);
        space.set_replaying(false);
        assert_eq!(space.take(19).unwrap().first, 1);
    }

    #[test]
    fn split_blocks_become_free_one_by_one() {
        let space = space(5);
        let mut owners = space.take(4).unwrap().split();
        assert_eq!(owners.len(), 4);
        owners.remove(1);
        assert_eq!((space.counts(), space.take(1).unwrap().first), ((1, 5), 2));
        owners.clear();
        assert_eq!(space.counts(), (4, 5));
    }

    /// Places of copies in files of two to four devices, with and without free blocks.
    #[test]
    fn a_copy_is_on_other_devices_than_its_blocks() {
        for (devices, unit) in (2..5).flat_map(|devices| (1..6).map(move |unit| (devices, unit))) {
            for count in 1..9 {
                let disk = MemoryDisk::default();
                let device = |i: u64| {
                    let file = disk.create(Path::new(&i.to_string()), Access::Cached).unwrap();
                    Device::new(file, 0)
                };
                let devices = (0..devices).map(device).collect();
                let unit = unit * BLOCK_SIZE as u64;
                let file = Arc::new(StripedFile::new(devices, unit, Completeness::Whole));
                let space = Space::striped_over(file.clone(), 100).unwrap();
                let device = |block: u64| file.device_of(block * BLOCK_SIZE as u64);
                let mut taken = Vec::new();
                for i in 0..30 {
                    let blocks = space.take(count).unwrap();
                    let copy = space.take_apart(&blocks).unwrap();
                    assert!(copy.count == count && copy.first + count <= space.counts().1);
                    let apart = |i| device(blocks.first + i) != device(copy.first + i);
                    assert!((0..count).all(apart), "{unit} {blocks:?} {copy:?}");
                    taken.push(if i % 3 == 0 { blocks } else { copy });
                }
                let all: u64 = taken.iter().map(|blocks| blocks.count).sum();
                assert_eq!(space.counts().0 + all + 1, space.counts().1);
            }
        }
    }

    /// Makes the space of a file on two devices, with stripes of one block.
    fn on_two_devices(blocks: u64) -> Arc<Space> {
        let disk = MemoryDisk::default();
        let file = |name| disk.create(Path::new(name), Access::Cached).unwrap();
        let devices = ["a", "b"].map(|name| Device::new(file(name), 0)).into();
        let unit = BLOCK_SIZE as u64;
        let file = Arc::new(StripedFile::new(devices, unit, Completeness::Whole));
        file.allocate(blocks * unit).unwrap();
        Space::striped_over(file, 100).unwrap()
    }

    #[test]
    fn a_copy_finds_the_longest_free_extent_behind_many_short_ones() {
        let space = on_two_devices(400);
        let owners = space.take(399).unwrap().split();
        let (rest, long): (Vec<_>, Vec<_>) = owners.into_iter().partition(|it| it.first < 390);
        drop(long);
        let (odd, even): (Vec<_>, Vec<_>) = rest.into_iter().partition(|it| it.first % 2 == 1);
        let from = space.claim(391, 1).unwrap();
        drop(odd);
        assert_eq!(space.take_apart(&from).unwrap().first, 392);
        assert_eq!(space.counts().1, 400);
        drop(even);
    }

    #[test]
    fn a_file_grows_little_for_a_copy() {
        let space = on_two_devices(1 << 12);
        let blocks = space.take((1 << 12) - 1).unwrap();
        let copies: Vec<Blocks> = (0..9)
            .map(|i| {
                let from = Blocks { first: 1 + i, count: 1, space: space.clone() };
                let copy = space.take_apart(&from).unwrap();
                std::mem::forget(from);
                copy
            })
            .collect();
        let grown = space.counts().1 - (1 << 12);
        assert!((9..=9 + STRIPES_SKIPPED_MAX).contains(&grown), "{grown}");
        drop((copies, blocks));
    }

    #[test]
    fn no_two_owners_claim_a_block() {
        let space = space(10);
        let claimed = space.claim(3, 2).unwrap();
        for (first, count) in
            [(3, 1), (4, 1), (2, 2), (4, 5), (0, 1), (9, 2), (10, 1), (7, 0), (u64::MAX, 2)]
        {
            assert!(space.claim(first, count).is_err(), "{count} from {first} on");
        }
        let rest = [space.claim(1, 2).unwrap(), space.claim(5, 5).unwrap()];
        assert_eq!(space.counts(), (0, 10));
        drop((claimed, rest));
        assert_eq!(space.counts(), (9, 10));
    }

    /// Returns the blocks that have only zeros, of those from 1 on and before `end`.
    fn zeros(space: &Space, end: u64) -> Vec<u64> {
        let is_zero = |block: u64| {
            let mut bytes = [9; BLOCK_SIZE];
            space.file.read_at(block * BLOCK_SIZE as u64, &mut bytes).unwrap();
            bytes == [0; BLOCK_SIZE]
        };
        (1..end).filter(|block| is_zero(*block)).collect()
    }

    #[test]
    fn the_longest_free_extents_become_holes_until_a_reserve_is_left() {
        let space = space(61);
        let owners = [24, 12, 4, 20].map(|count| space.take(count).unwrap());
        for block in 1..61 {
            space.file.write_at(block * BLOCK_SIZE as u64, &[1; BLOCK_SIZE]).unwrap();
        }
        let [a, b, c, d] = owners;
        let c_first = c.first;
        let punched = |space: &Space| {
            space.punch_holes(4).unwrap();
            zeros(space, 61).len()
        };
        drop(b);
        // 12 free blocks are less than a quarter of the others, and less than the minimum.
        assert_eq!((punched(&space), space.counts()), (0, (12, 61)));
        drop(d);
        assert_eq!((punched(&space), space.counts()), (20, (32, 61)));
        // What takes space on the device is taken first, then holes.
        assert_eq!(space.take(3).unwrap().first, 25);
        let taken = space.take(13).unwrap();
        assert!((41..61).contains(&taken.first), "{taken:?}");
        drop(taken);
        // A hole and its neighbours are one extent that may take space.
        drop((a, c));
        assert_eq!((punched(&space), space.counts()), (60, (60, 61)));
        assert!(space.take(4).unwrap().first < c_first);
        assert_eq!(punched(&space), 60);
    }

    #[test]
    fn a_file_that_was_opened_gives_its_free_space_back() {
        let space = space(100);
        for block in 1..100 {
            space.file.write_at(block * BLOCK_SIZE as u64, &[1; BLOCK_SIZE]).unwrap();
        }
        let space = Space::new(space.file.clone()).unwrap();
        let used = [space.claim(10, 20).unwrap(), space.claim(90, 5).unwrap()];
        space.punch_holes(16).unwrap();
        // The reserve is the two short ones of the extents 1 to 9, 30 to 89 and 95 to 99.
        assert_eq!(zeros(&space, 100), (30..90).collect::<Vec<_>>());
        drop(used);
    }
}
