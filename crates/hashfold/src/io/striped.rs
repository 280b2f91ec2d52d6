//! A file whose bytes are on several devices, a stripe at a time.
//!
//! ```text
//! bytes of the file:   stripe 0 │ stripe 1 │ stripe 2 │ stripe 3 │ …
//! file of device 0:    stripe 0 │ stripe 2 │ …
//! file of device 1:    head │ stripe 1 │ stripe 3 │ …
//! ```
//!
//! All calls do what they do for one file. After a failure or a power cut, the files end at different
//! places: the size is that of the bytes before the first missing one.

use super::{BlockFile, Buffer, Extent, Extents, Visit};
use crate::error::{Error, ErrorKind, Place, Result};
use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// A file on several devices.
#[derive(Debug)]
pub(crate) struct StripedFile {
    devices: Vec<Device>,
    /// Size of a stripe, in bytes.
    unit: u64,
    /// The file has at least this size, in bytes.
    known_size: AtomicU64,
    completeness: Completeness,
}

/// Whether all files of a striped file are there with all of their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completeness {
    /// The file ends before the first missing byte.
    Whole,
    /// The file ends after the last byte of any of its files; missing bytes are errors of reads.
    Remains,
}

/// The file of one device, and its reads.
#[derive(Debug)]
pub(crate) struct Device {
    file: Arc<dyn BlockFile>,
    /// Offset of the first stripe in the file, in bytes.
    start: u64,
    /// Number of reads that have begun and not ended.
    in_flight: AtomicU64,
    /// Number of reads that have begun.
    reads: AtomicU64,
}

/// A piece of an extent on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    /// Index of the device.
    device: usize,
    /// The piece in the file of the device.
    local: Extent,
    /// Offset of the piece in the extent, in bytes.
    at: usize,
}

impl Device {
    /// Makes a device of its file, in which the first stripe begins at `start`.
    pub(crate) fn new(file: Arc<dyn BlockFile>, start: u64) -> Device {
        Device { file, start, in_flight: AtomicU64::new(0), reads: AtomicU64::new(0) }
    }

    /// Returns the file of the device.
    pub(crate) fn file(&self) -> &Arc<dyn BlockFile> {
        &self.file
    }

    /// Returns the number of reads that have begun and not ended.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.load(Relaxed)
    }

    /// Returns the number of reads that have begun.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Relaxed)
    }

    fn begin_read(&self) {
        self.in_flight.fetch_add(1, Relaxed);
        self.reads.fetch_add(1, Relaxed);
    }

    fn end_reads(&self, count: u64) {
        self.in_flight.fetch_sub(count, Relaxed);
    }

    /// Returns the number of bytes of stripes in the file.
    fn local_size(&self) -> Result<u64> {
        Ok(self.file.size()?.saturating_sub(self.start))
    }
}

impl StripedFile {
    /// Makes a file of stripes of `unit` bytes.
    ///
    /// # Panics
    /// If there is no device, or `unit` is 0.
    pub(crate) fn new(devices: Vec<Device>, unit: u64, completeness: Completeness) -> StripedFile {
        assert!(!devices.is_empty());
        assert!(unit > 0);
        StripedFile { devices, unit, known_size: AtomicU64::new(0), completeness }
    }

    /// Returns the devices, in their order.
    pub(crate) fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Returns the number of reads that have begun on all devices.
    pub(crate) fn reads(&self) -> u64 {
        self.devices.iter().map(Device::reads).sum()
    }

    /// Returns the size of a stripe, in bytes.
    pub(crate) fn unit(&self) -> u64 {
        self.unit
    }

    /// Returns the index of the device that has the byte at this offset.
    pub(crate) fn device_of(&self, offset: u64) -> usize {
        (offset / self.unit % self.devices.len() as u64) as usize
    }

    /// Returns the number of bytes before `offset` that a device has.
    fn bytes_before(&self, offset: u64, device: usize) -> u64 {
        let (count, device) = (self.devices.len() as u64, device as u64);
        let (stripe, rest) = (offset / self.unit, offset % self.unit);
        let whole = (stripe + count - 1 - device) / count;
        whole * self.unit + if stripe % count == device { rest } else { 0 }
    }

    /// Returns the offset of a byte that a device has, from its number among the bytes of the device.
    fn offset_of(&self, local: u64, device: usize) -> u64 {
        let stripe = local / self.unit * self.devices.len() as u64 + device as u64;
        stripe * self.unit + local % self.unit
    }

    /// Returns the pieces of an extent, in order. An empty extent has one empty piece.
    fn pieces(&self, extent: Extent) -> impl Iterator<Item = Piece> {
        let mut next = Some(0);
        std::iter::from_fn(move || {
            let at = next?;
            let offset = extent.offset + at as u64;
            let len = (extent.len - at).min((self.unit - offset % self.unit) as usize);
            next = Some(at + len).filter(|end| *end < extent.len);
            let device = self.device_of(offset);
            let start = self.devices[device].start + self.bytes_before(offset, device);
            Some(Piece { device, local: Extent { offset: start, len }, at })
        })
    }

    /// Refuses an extent that is not within the file.
    fn check(&self, extent: Extent) -> Result<()> {
        let end = extent.offset.saturating_add(extent.len as u64);
        let is_unbounded = self.completeness == Completeness::Remains || extent.len == 0;
        if is_unbounded || end <= self.known_size.load(Relaxed) {
            return Ok(());
        }
        let size = self.size()?;
        if end <= size {
            return Ok(());
        }
        let (expected, got) = (extent.len as u64, size.saturating_sub(extent.offset));
        Err(Error::new(ErrorKind::Truncated { expected, got }).at(&self.place_at(extent.offset)))
    }

    /// Extends the files so that they have all bytes before `end`.
    fn cover(&self, end: u64) -> Result<()> {
        for (i, device) in self.devices.iter().enumerate() {
            let wanted = device.start + self.bytes_before(end, i);
            if device.file.size()? < wanted {
                device.file.allocate(wanted)?;
            }
        }
        self.known_size.fetch_max(end, Relaxed);
        Ok(())
    }

    fn read_piece(&self, piece: Piece, bytes: &mut [u8]) -> Result<()> {
        let device = &self.devices[piece.device];
        device.begin_read();
        let read = device.file.read_at(piece.local.offset, bytes);
        device.end_reads(1);
        read
    }
}

impl BlockFile for StripedFile {
    fn place(&self) -> &Place {
        self.devices[0].file.place()
    }

    fn place_at(&self, offset: u64) -> Place {
        let device = self.device_of(offset);
        let Device { file, start, .. } = &self.devices[device];
        file.place_at(start + self.bytes_before(offset, device))
    }

    fn size(&self) -> Result<u64> {
        let sizes =
            self.devices.iter().enumerate().map(|(i, device)| Ok((i, device.local_size()?)));
        let sizes: Vec<(usize, u64)> = sizes.collect::<Result<_>>()?;
        let size = match self.completeness {
            Completeness::Whole => sizes.iter().map(|&(i, size)| self.offset_of(size, i)).min(),
            Completeness::Remains => {
                let used = sizes.iter().filter(|(_, size)| *size > 0);
                used.map(|&(i, size)| self.offset_of(size - 1, i) + 1).max()
            }
        };
        let size = size.unwrap_or(0);
        self.known_size.fetch_max(size, Relaxed);
        Ok(size)
    }

    fn device_bytes(&self) -> Result<u64> {
        self.devices.iter().map(|device| device.file.device_bytes()).sum()
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let extent = Extent { offset, len: bytes.len() };
        self.check(extent)?;
        self.pieces(extent)
            .try_for_each(|piece| self.read_piece(piece, &mut bytes[piece.at..][..piece.local.len]))
    }

    fn read_many(&self, extents: &mut Extents<'_>, visit: &mut Visit<'_>) -> Result<()> {
        let batch = RefCell::new(Batch::on(&self.devices));
        let failed = RefCell::new(None);
        let within = extents.enumerate().map_while(|(i, extent)| {
            let checked = self.check(extent).map_err(|error| failed.replace(Some(error)));
            checked.ok().map(|()| (i, extent))
        });
        let pieces =
            within.flat_map(|(i, extent)| self.pieces(extent).map(move |it| (i, extent.len, it)));
        let mut pieces = pieces.map(|(i, len, piece)| {
            batch.borrow_mut().begin(i, len, piece);
            (piece.device, piece.local)
        });
        let files: Vec<&dyn BlockFile> = self.devices.iter().map(|device| &*device.file).collect();
        files[0].read_across(&files, &mut pieces, &mut |i, bytes| {
            let started = batch.borrow_mut().end(i);
            if started.piece.local.len == started.len {
                return visit(started.extent, bytes);
            }
            let whole = batch.borrow_mut().join(started, bytes);
            whole.map_or(Ok(()), |whole| visit(started.extent, &whole[..started.len]))
        })?;
        failed.take().map_or(Ok(()), Err)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        if bytes.is_empty() {
            return Ok(());
        }
        if end > self.known_size.load(Relaxed) {
            self.cover(offset)?;
        }
        self.pieces(Extent { offset, len: bytes.len() }).try_for_each(|piece| {
            let Piece { device, local, at } = piece;
            self.devices[device].file.write_at(local.offset, &bytes[at..][..local.len])
        })?;
        self.known_size.fetch_max(end, Relaxed);
        Ok(())
    }

    fn allocate(&self, size: u64) -> Result<()> {
        self.cover(size)
    }

    fn punch_hole(&self, extent: Extent) -> Result<()> {
        let end = extent.offset.saturating_add(extent.len as u64);
        for (i, device) in self.devices.iter().enumerate() {
            // Consecutive bytes of the file are consecutive on each device.
            let (first, end) = (self.bytes_before(extent.offset, i), self.bytes_before(end, i));
            if first < end {
                let local = Extent { offset: device.start + first, len: (end - first) as usize };
                device.file.punch_hole(local)?;
            }
        }
        Ok(())
    }

    /// Syncs all devices, also after one has failed. Returns the first error.
    fn sync(&self) -> Result<()> {
        self.devices.iter().map(|device| device.file.sync()).fold(Ok(()), Result::and)
    }
}

/// The reads of a call of `read_many`.
struct Batch<'a> {
    devices: &'a [Device],
    started: Vec<Started>,
    /// For each device, the number of reads that have begun and not ended.
    in_flight: Vec<u64>,
    /// Extents of which some pieces have been read, each with the number of bytes that are missing.
    joined: HashMap<usize, (Buffer, usize)>,
}

/// A piece whose read has begun.
#[derive(Clone, Copy)]
struct Started {
    /// Index of the extent.
    extent: usize,
    /// Length of the extent, in bytes.
    len: usize,
    piece: Piece,
}

impl<'a> Batch<'a> {
    fn on(devices: &'a [Device]) -> Batch<'a> {
        let in_flight = vec![0; devices.len()];
        Batch { devices, started: Vec::new(), in_flight, joined: HashMap::new() }
    }

    fn begin(&mut self, extent: usize, len: usize, piece: Piece) {
        self.devices[piece.device].begin_read();
        self.in_flight[piece.device] += 1;
        self.started.push(Started { extent, len, piece });
    }

    /// Ends the read with this index. Returns its piece.
    fn end(&mut self, i: usize) -> Started {
        let started = self.started[i];
        self.devices[started.piece.device].end_reads(1);
        self.in_flight[started.piece.device] -= 1;
        started
    }

    /// Adds the bytes of a piece. Returns the bytes of its extent, if they are complete.
    fn join(&mut self, started: Started, bytes: &[u8]) -> Option<Buffer> {
        let Started { extent, len, piece } = started;
        let joined = self.joined.entry(extent);
        let (buffer, missing) = joined.or_insert_with(|| (Buffer::zeroed(len), len));
        buffer[piece.at..][..bytes.len()].copy_from_slice(bytes);
        *missing -= bytes.len();
        if *missing > 0 {
            return None;
        }
        self.joined.remove(&extent).map(|(buffer, _)| buffer)
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        // After an error, some reads have no answer.
        for (device, count) in self.devices.iter().zip(&self.in_flight) {
            device.end_reads(*count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::*, *};
    use crate::work::{Random as _, SeededRandom};
    use std::path::{Path, PathBuf};

    const HEAD: u64 = 48;

    fn path(device: usize) -> PathBuf {
        format!("device-{device}").into()
    }

    /// Makes a file of stripes of `unit` bytes; the files of all devices but the first begin with a head.
    fn striped(disk: &dyn Disk, devices: usize, unit: u64) -> StripedFile {
        let device = |i: usize| {
            let file = disk.create(&path(i), Access::Cached).unwrap();
            let start = if i == 0 { 0 } else { HEAD };
            file.write_at(0, &vec![0xee; start as usize]).unwrap();
            Device::new(file, start)
        };
        StripedFile::new((0..devices).map(device).collect(), unit, Completeness::Whole)
    }

    /// Opens the files again.
    fn opened(
        disk: &dyn Disk,
        devices: usize,
        unit: u64,
        completeness: Completeness,
    ) -> StripedFile {
        let device = |i: usize| {
            let file = disk.open_to_write(&path(i), Access::Cached).unwrap();
            Device::new(file, if i == 0 { 0 } else { HEAD })
        };
        StripedFile::new((0..devices).map(device).collect(), unit, completeness)
    }

    fn contents(file: &dyn BlockFile) -> Vec<u8> {
        read_all(file, 1 << 20).unwrap().to_vec()
    }

    struct Numbers(SeededRandom);

    impl Numbers {
        fn below(&self, end: u64) -> u64 {
            self.0.next_u64() % end
        }

        fn bytes(&self, len: usize) -> Vec<u8> {
            (0..len).map(|_| self.0.next_u64() as u8 | 1).collect()
        }

        fn extent(&self, size: u64) -> Extent {
            let len = if self.below(4) == 0 { 300 } else { 20 };
            Extent { offset: self.below(size + 10), len: self.below(len) as usize }
        }
    }

    /// Reads the extents in one batch. `None` if that fails.
    fn read_extents(file: &dyn BlockFile, extents: &[Extent]) -> Option<Vec<Vec<u8>>> {
        let mut found = vec![None; extents.len()];
        let read = file.read_many(&mut extents.iter().copied(), &mut |i, bytes| {
            assert!(found[i].replace(bytes.to_vec()).is_none());
            Ok(())
        });
        read.ok().map(|()| found.into_iter().map(Option::unwrap).collect())
    }

    /// Does the same random operation with both files.
    fn act(one: &dyn BlockFile, many: &dyn BlockFile, random: &Numbers) {
        let size = one.size().unwrap();
        match random.below(10) {
            0 => {
                let size = random.below(size + 200);
                one.allocate(size).unwrap();
                many.allocate(size).unwrap();
            }
            1 => {
                let extent = random.extent(size);
                one.punch_hole(extent).unwrap();
                many.punch_hole(extent).unwrap();
            }
            2..6 => {
                let Extent { offset, len } = random.extent(size);
                let bytes = random.bytes(len);
                one.write_at(offset, &bytes).unwrap();
                many.write_at(offset, &bytes).unwrap();
            }
            6..8 => {
                let Extent { offset, len } = random.extent(size);
                let (mut a, mut b) = (vec![0; len], vec![0; len]);
                let (read, twin) = (one.read_at(offset, &mut a), many.read_at(offset, &mut b));
                assert_eq!(read.is_ok(), twin.is_ok());
                assert!(read.is_err() || a == b);
            }
            _ => {
                let extents: Vec<Extent> =
                    (0..random.below(8)).map(|_| random.extent(size / 2)).collect();
                assert_eq!(read_extents(one, &extents), read_extents(many, &extents));
            }
        }
        assert_eq!(one.size().unwrap(), many.size().unwrap());
    }

    #[test]
    fn a_striped_file_does_what_one_file_does() {
        for seed in 0..60 {
            let random = Numbers(SeededRandom::new(seed));
            let (devices, unit) = (1 + random.below(4) as usize, 1 + random.below(70));
            let (one, disk) = (MemoryDisk::default(), MemoryDisk::default());
            let one = one.create(Path::new("one"), Access::Cached).unwrap();
            let many = striped(&disk, devices, unit);
            for _ in 0..200 {
                act(&*one, &many, &random);
            }
            assert_eq!(contents(&*one), contents(&many));
            assert!(many.devices().iter().all(|device| device.in_flight() == 0));
            for completeness in [Completeness::Whole, Completeness::Remains] {
                let again = opened(&disk, devices, unit, completeness);
                assert_eq!(contents(&*one), contents(&again), "{devices} {unit}");
            }
            // The heads are as before.
            for device in 1..devices {
                let mut head = [0; HEAD as usize];
                many.devices()[device].file().read_at(0, &mut head).unwrap();
                assert_eq!(head, [0xee; HEAD as usize]);
            }
        }
    }

    /// Each device loses its own unsynced writes; synced bytes are there, and so is the size.
    #[test]
    fn synced_bytes_are_left_by_a_power_cut() {
        for seed in 0..200 {
            let random = Numbers(SeededRandom::new(seed));
            let (devices, unit) = (2 + random.below(3) as usize, 1 + random.below(900));
            let faulty = FaultyDisk::new(FaultPlan::default());
            let file = striped(&faulty, devices, unit);
            faulty.sync_folder(Path::new("")).unwrap();
            let size = 1 + random.below(20_000);
            file.allocate(size).unwrap();
            let synced = random.bytes(size as usize);
            file.write_at(0, &synced).unwrap();
            file.sync().unwrap();
            file.write_at(size, &random.bytes(random.below(20_000) as usize)).unwrap();
            let left = opened(&faulty.after_power_cut(seed), devices, unit, Completeness::Whole);
            assert!(left.size().unwrap() >= size);
            let mut found = vec![0; size as usize];
            left.read_at(0, &mut found).unwrap();
            assert!(found == synced);
        }
    }

    #[test]
    fn a_failed_read_names_its_device_and_leaves_no_read_in_flight() {
        for read in 0..6 {
            let faulty = FaultyDisk::new(Fault::ReadFailure { read }.into());
            let file = striped(&faulty, 3, 10);
            file.allocate(100).unwrap();
            let extents = [Extent { offset: 0, len: 25 }, Extent { offset: 30, len: 25 }];
            let mut all = extents.iter().copied();
            let error = file.read_many(&mut all, &mut |_, _| Ok(())).unwrap_err();
            let place = error.place().unwrap();
            assert_eq!(*place.file, *path(read as usize % 3), "{error}");
            assert!(file.devices().iter().all(|device| device.in_flight() == 0));
            assert_eq!(file.devices().iter().map(Device::reads).sum::<u64>(), read + 1);
        }
    }

    /// Every allocation fails once. The file is not larger than before, and can be allocated later.
    #[test]
    fn a_full_device_leaves_the_bytes_that_were_there() {
        for write in 0..3 {
            let faulty = FaultyDisk::new(FaultPlan::default());
            let file = striped(&faulty, 3, 10);
            file.write_at(0, &[7; 45]).unwrap();
            let full = FaultyDisk::over(&faulty.snapshot(), Fault::Full { write }.into());
            let file = opened(&full, 3, 10, Completeness::Whole);
            assert_eq!(file.size().unwrap(), 45);
            file.allocate(90).unwrap_err();
            assert!((45..90).contains(&file.size().unwrap()));
            assert_eq!(contents(&file)[..45], [7; 45]);
            full.heal();
            file.allocate(90).unwrap();
            assert_eq!(contents(&file), [&[7; 45][..], &[0; 45]].concat());
        }
    }

    #[test]
    fn a_place_is_that_of_the_device() {
        let file = striped(&MemoryDisk::default(), 2, 100);
        let place = |offset| file.place_at(offset).to_string();
        assert_eq!(place(99), "device-0 at byte 99");
        assert_eq!(place(100), format!("device-1 at byte {HEAD}"));
        assert_eq!(place(205), "device-0 at byte 105");
        assert_eq!(place(399), format!("device-1 at byte {}", HEAD + 199));
    }
}
