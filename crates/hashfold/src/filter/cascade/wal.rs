//! The write-ahead log: what was told and is not in a run yet.
//!
//! A framed header, without a footer, then records, each at a multiple of 4096 bytes. The same table
//! stands in `docs/formats/cascade.md`:
//!
//! | offset | size | field    |                                                              |
//! |-------:|-----:|----------|--------------------------------------------------------------|
//! |      0 |    4 | checksum | CRC-32C of the rest of the record without its padding, then of its offset in the file and the file's id, 8 bytes each |
//! |      4 |    4 | change   | 1 insertions, 2 removals                                     |
//! |      8 |    8 | before   | changes told before this record, from the filter's beginning |
//! |     16 |    8 | synced   | so many bytes of the file were on the device before this record was written |
//! |     24 |    8 | count    | hashes in this record                                        |
//! |     32 |  8 n | hashes   | the high 64 bits of each, in the order told                  |
//!
//! A record without hashes stands behind the last one after a sync, until the next record takes its
//! place. It ends the log, and so does the first record that is not whole: a crash cut it off there.
//! If a record behind says that this place was synced, the log is damaged.
//!
//! A log is synced only when all changes before it are in runs or in logs that were synced. So if a
//! log begins with more changes told than those before it hold, either something in it was synced,
//! and a log before it is damaged, or a crash cut off that one, and nothing in this one counts.

use super::memtable::Change;
use crate::{
    checksum::{crc32c, crc32c_append},
    codec::Decoder,
    error::{Error, ErrorClass, ErrorKind, Result},
    io::{
        ALIGNMENT, Access, BlockFile, Buffer, Disk,
        frame::{FileKind, Header},
    },
    key::Seed,
    work::{Executor, Pending},
};
use std::{collections::VecDeque, path::Path, sync::Arc};

const RECORD_HEAD: usize = 32;
/// Hashes of the longest record.
const HASHES_MAX: usize = 64 * 1024 - RECORD_HEAD / 8;
const RECORD_MAX: usize = RECORD_HEAD + 8 * HASHES_MAX;
const _: () = assert!(RECORD_MAX.is_multiple_of(ALIGNMENT));
/// Records being written at once, at most.
const WRITES_MAX: usize = 4;
/// Memory of a log that is being written, in bytes: the records in flight, one more that waits for
/// the first of them, and the one that is being filled.
pub(super) const WRITER_BYTES_MAX: usize = (WRITES_MAX + 2) * RECORD_MAX;

/// The name of a log.
pub(super) fn name(number: u64) -> String {
    format!("log-{number:010}")
}

/// A log that is being written.
#[derive(Debug)]
pub(super) struct Wal {
    file: Arc<dyn BlockFile>,
    id: u64,
    executor: Arc<dyn Executor>,
    /// The record that is being filled.
    record: Buffer,
    change: Change,
    count: usize,
    /// Sequence number of the last change before the record.
    before: u64,
    /// Offset of the record.
    offset: u64,
    /// The bytes before this offset are durable.
    synced: u64,
    writes: VecDeque<Pending<(Buffer, Result<()>)>>,
    spare: Vec<Buffer>,
    /// Whether a write or a sync has failed. Changes since the last sync may then be missing from
    /// the log, whatever a later sync reports, and no later change is durable.
    failed: bool,
}

impl Wal {
    /// A new log, which is not begun. Its name is durable when this returns.
    pub(super) fn create(
        disk: &dyn Disk,
        folder: &Path,
        number: u64,
        (seed, id): (Seed, u64),
        executor: Arc<dyn Executor>,
    ) -> Result<Wal> {
        let file = disk.create(&folder.join(name(number)), Access::Direct)?;
        let id = id.wrapping_add(number);
        let mut header = Buffer::zeroed(ALIGNMENT);
        header.copy_from_slice(&Header::new(FileKind::FilterLog, seed, id).encode());
        file.write_at(0, &header)?;
        file.sync()?;
        disk.sync_folder(folder)?;
        Ok(Wal {
            file,
            id,
            executor,
            record: Buffer::zeroed(RECORD_MAX),
            change: Change::Insert,
            count: 0,
            before: 0,
            offset: ALIGNMENT as u64,
            synced: 0,
            writes: VecDeque::new(),
            spare: Vec::new(),
            failed: false,
        })
    }

    /// Sets the sequence number of the last change before the record.
    pub(super) fn begin(&mut self, seq: u64) {
        self.before = seq;
    }

    /// Changes told when it ends.
    pub(super) fn seq(&self) -> u64 {
        self.before + self.count as u64
    }

    /// With what is not written yet, in bytes.
    pub(super) fn size(&self) -> u64 {
        self.offset + 8 * self.count as u64
    }

    /// Whether something is missing in it.
    pub(super) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Nothing more comes.
    pub(super) fn end(&mut self) -> Result<()> {
        let written = self.write();
        (self.record, self.spare) = (Buffer::zeroed(0), Vec::new());
        written
    }

    /// Appends changes; they are durable after the next [`Wal::sync`].
    pub(super) fn append(&mut self, change: Change, mut hashes: &[u64]) -> Result<()> {
        if self.change != change {
            self.write()?;
            self.change = change;
        }
        while !hashes.is_empty() {
            let (now, later) = hashes.split_at(hashes.len().min(HASHES_MAX - self.count));
            let room = &mut self.record[RECORD_HEAD + 8 * self.count..];
            for (hash, room) in now.iter().zip(room.as_chunks_mut::<8>().0) {
                *room = hash.to_le_bytes();
            }
            self.count += now.len();
            hashes = later;
            if self.count == HASHES_MAX {
                self.write()?;
            }
        }
        Ok(())
    }

    /// Returns when all that was appended is on the device. So must be what was told before.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.write()?;
        self.wait_until(0)?;
        if self.synced == self.offset {
            return Ok(());
        }
        // After a sync that failed another one may succeed, although the bytes are lost.
        self.file.sync().inspect_err(|_| self.failed = true)?;
        self.synced = self.offset;
        // Nobody waits for this one to be on the device: it helps to tell damage from a crash.
        let mut mark = Buffer::zeroed(ALIGNMENT);
        self.complete(&mut mark, 0);
        self.failed |= self.file.write_at(self.offset, &mark).is_err();
        Ok(())
    }

    /// Starts to write the record, unless it is empty.
    fn write(&mut self) -> Result<()> {
        if self.failed {
            let kind = ErrorKind::FailedBefore { action: "write" };
            return Err(Error::new(kind).at(self.file.place()));
        }
        if self.count == 0 {
            return Ok(());
        }
        let next = self.spare.pop().unwrap_or_else(|| Buffer::zeroed(RECORD_MAX));
        let mut record = std::mem::replace(&mut self.record, next);
        let padded = self.complete(&mut record, self.count);
        let (file, offset) = (self.file.clone(), self.offset);
        self.before += self.count as u64;
        self.offset += padded as u64;
        self.count = 0;
        self.writes.push_back(Pending::start(&*self.executor, move || {
            let result = file.write_at(offset, &record[..padded]);
            (record, result)
        }));
        self.wait_until(if self.executor.width() == 0 { 0 } else { WRITES_MAX })
    }

    /// Writes the head of a record with `count` hashes, and its padding; returns its size.
    fn complete(&self, record: &mut [u8], count: usize) -> usize {
        let len = RECORD_HEAD + 8 * count;
        let padded = len.next_multiple_of(ALIGNMENT);
        record[len..padded].fill(0);
        let change: u32 = if self.change == Change::Insert { 1 } else { 2 };
        record[4..8].copy_from_slice(&change.to_le_bytes());
        record[8..16].copy_from_slice(&self.before.to_le_bytes());
        record[16..24].copy_from_slice(&self.synced.to_le_bytes());
        record[24..32].copy_from_slice(&(count as u64).to_le_bytes());
        let checksum = checksum(&record[4..len], self.offset, self.id);
        record[..4].copy_from_slice(&checksum.to_le_bytes());
        padded
    }

    fn wait_until(&mut self, count: usize) -> Result<()> {
        let mut first_error = Ok(());
        while self.writes.len() > count
            && let Some(oldest) = self.writes.pop_front()
        {
            let (buffer, result) = oldest.wait();
            self.spare.push(buffer);
            self.failed |= result.is_err();
            first_error = first_error.and(result);
        }
        first_error
    }
}

fn checksum(record: &[u8], offset: u64, id: u64) -> u32 {
    let sum = crc32c_append(crc32c(record), &offset.to_le_bytes());
    crc32c_append(sum, &id.to_le_bytes())
}

/// Shows the changes of logs, from the `told`-th of the filter on, to `take`, as far as they are
/// whole; returns how many were told in the end.
///
/// # Errors
/// If something that was on the device is not there any more.
pub(super) fn replay(
    disk: &dyn Disk,
    folder: &Path,
    numbers: &[u64],
    of: (Seed, u64),
    mut seq: u64,
    take: &mut dyn FnMut(Change, &[u64]) -> Result<()>,
) -> Result<u64> {
    let mut gap = None;
    let mut before: Option<Log> = None;
    for &number in numbers {
        let Some(mut log) = Log::open(disk, folder, number, of)? else { continue };
        if gap.is_none() {
            gap = log.replay(&mut seq, take)?;
        }
        if gap.is_some() {
            let was_synced = log.was_synced(0)?;
            // The one before may have been written to meanwhile.
            if let Some(mut before) = before.take() {
                before.replay(&mut seq, take)?;
                gap = log.replay(&mut seq, take)?;
            }
            // A crash cut it off, unless it was on the device.
            if was_synced && let Some(error) = gap {
                return Err(error);
            }
        }
        before = Some(log);
    }
    Ok(seq)
}

/// A log that is read.
struct Log {
    file: Arc<dyn BlockFile>,
    id: u64,
    size: u64,
    /// Offset of the next record.
    offset: u64,
    /// The hashes of the last record that was read.
    hashes: Vec<u64>,
}

/// The facts about a whole record.
struct Record {
    change: Change,
    before: u64,
    synced: u64,
    /// Size with the padding, in bytes.
    size: u64,
}

impl Log {
    /// Opens a log; `None` if a crash came before its header was written, so that nothing in it was
    /// acknowledged.
    fn open(
        disk: &dyn Disk,
        folder: &Path,
        number: u64,
        (seed, id): (Seed, u64),
    ) -> Result<Option<Log>> {
        let file = disk.open(&folder.join(name(number)), Access::Cached)?;
        let id = id.wrapping_add(number);
        let (size, offset) = (file.size()?, ALIGNMENT as u64);
        let header = match Header::read(&*file, FileKind::FilterLog) {
            Ok(header) => header,
            Err(error) if size <= offset && error.class() == ErrorClass::Damage => return Ok(None),
            Err(error) => return Err(error),
        };
        for (what, expected, got) in [("seed", seed.0, header.seed.0), ("file id", id, header.id)] {
            if expected != got {
                let error = Error::new(ErrorKind::Mismatch { what, expected, got });
                return Err(error.at(file.place()));
            }
        }
        Ok(Some(Log { file, id, size, offset, hashes: Vec::new() }))
    }

    /// Passes the changes from the current offset on to `take`. Returns damage if they do not continue
    /// the earlier ones.
    fn replay(
        &mut self,
        seq: &mut u64,
        take: &mut dyn FnMut(Change, &[u64]) -> Result<()>,
    ) -> Result<Option<Error>> {
        self.size = self.file.size()?;
        while let Some(record) = self.record(self.offset)? {
            let Some(known) = seq.checked_sub(record.before) else {
                let error = Error::field(
                    "sequence number before the record",
                    format!("{seq}"),
                    record.before,
                );
                return Ok(Some(error.at(&self.file.place().offset(self.offset))));
            };
            // What runs hold already is passed over.
            let known = usize::try_from(known).unwrap_or(usize::MAX);
            let new = self.hashes.get(known..).unwrap_or_default();
            take(record.change, new)?;
            *seq += new.len() as u64;
            self.offset += record.size;
        }
        Ok(None)
    }

    /// Returns the record at an offset; `None` if a crash has cut the log off there.
    fn record(&mut self, offset: u64) -> Result<Option<Record>> {
        if let Some(record) = self.read_changes(offset)? {
            return Ok(Some(record));
        }
        let was_synced = self.was_synced(offset)?;
        // It may have been written meanwhile, or the read went wrong.
        match self.read_changes(offset)? {
            None if was_synced => {
                let (expected, got) = ("a whole one, as it was synced", "a damaged one");
                let error = Error::field("record of the log", expected, got);
                Err(error.at(&self.file.place().offset(offset)))
            }
            record => Ok(record),
        }
    }

    /// Whether a record after this offset says that this offset was durable.
    fn was_synced(&mut self, offset: u64) -> Result<bool> {
        let mut next = offset + ALIGNMENT as u64;
        while next < self.size {
            if let Some(record) = self.read(next)? {
                if record.synced > offset {
                    return Ok(true);
                }
                next += record.size;
            } else {
                next += ALIGNMENT as u64;
            }
        }
        Ok(false)
    }

    /// Returns the record at an offset, if it is whole and is not a record that another was to
    /// replace: later records do not continue such a one.
    fn read_changes(&mut self, offset: u64) -> Result<Option<Record>> {
        let record = self.read(offset)?;
        Ok(record.filter(|_| !self.hashes.is_empty()))
    }

    /// Returns the record at an offset, if it is whole.
    fn read(&mut self, offset: u64) -> Result<Option<Record>> {
        if offset + ALIGNMENT as u64 > self.size {
            return Ok(None);
        }
        let mut bytes = Buffer::zeroed(ALIGNMENT);
        self.file.read_at(offset, &mut bytes)?;
        let count = Decoder::new(&bytes[24..RECORD_HEAD]).u64()?;
        if count > HASHES_MAX as u64 {
            return Ok(None);
        }
        let len = RECORD_HEAD + 8 * count as usize;
        if offset + len as u64 > self.size {
            return Ok(None);
        }
        if len > bytes.len() {
            bytes = Buffer::zeroed(len);
            self.file.read_at(offset, &mut bytes)?;
        }
        self.decode(&bytes[..len], offset)
    }

    fn decode(&mut self, record: &[u8], offset: u64) -> Result<Option<Record>> {
        let mut fields = Decoder::new(record);
        if fields.u32()? != checksum(&record[4..], offset, self.id) {
            return Ok(None);
        }
        let change = match fields.u32()? {
            1 => Change::Insert,
            2 => Change::Remove,
            _ => return Ok(None),
        };
        let (before, synced, _) = (fields.u64()?, fields.u64()?, fields.u64()?);
        self.hashes.clear();
        let hashes = fields.rest().as_chunks::<8>().0.iter();
        self.hashes.extend(hashes.map(|hash| u64::from_le_bytes(*hash)));
        let size = (record.len() as u64).next_multiple_of(ALIGNMENT as u64);
        Ok(Some(Record { change, before, synced, size }))
    }
}
