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
//! |     16 |    8 | count    | hashes in this record                                        |
//! |     24 |  8 n | hashes   | the high 64 bits of each, in the order told                  |
//!
//! The first record that is not whole ends the log: a crash cut it off there.

use super::memtable::Change;
use crate::{
    checksum::{crc32c, crc32c_append},
    codec::Decoder,
    error::{Error, ErrorKind, Result},
    io::{
        ALIGNMENT, Access, BlockFile, Buffer, Disk,
        frame::{FileKind, Header},
    },
    key::Seed,
    work::{Executor, Pending},
};
use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::Arc,
};

const RECORD_HEAD: usize = 24;
/// Hashes of the longest record.
const HASHES_MAX: usize = 64 * 1024 - RECORD_HEAD / 8;
const RECORD_MAX: usize = RECORD_HEAD + 8 * HASHES_MAX;
const _: () = assert!(RECORD_MAX.is_multiple_of(ALIGNMENT));
/// Records being written at once, at most.
const WRITES_MAX: usize = 4;

/// The name of a log.
pub(super) fn name(number: u64) -> String {
    format!("log-{number:010}")
}

/// A log that is being written.
#[derive(Debug)]
pub(super) struct Wal {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    /// Its name is durable.
    is_named: bool,
    file: Arc<dyn BlockFile>,
    id: u64,
    executor: Arc<dyn Executor>,
    /// The record that is being filled.
    record: Buffer,
    change: Change,
    count: usize,
    /// Changes told before the record.
    before: u64,
    /// Where the record goes.
    offset: u64,
    writes: VecDeque<Pending<(Buffer, Result<()>)>>,
    spare: Vec<Buffer>,
    /// A write failed: what was told since then is not in the log, and nothing after it counts.
    failed: bool,
}

impl Wal {
    /// A new log; `before` changes were told so far.
    pub(super) fn create(
        disk: &Arc<dyn Disk>,
        folder: &Path,
        number: u64,
        (seed, id): (Seed, u64),
        before: u64,
        executor: Arc<dyn Executor>,
    ) -> Result<Wal> {
        let file = disk.create(&folder.join(name(number)), Access::Direct)?;
        let id = id.wrapping_add(number);
        let mut block = Buffer::zeroed(ALIGNMENT);
        block.copy_from_slice(&Header::new(FileKind::FilterLog, seed, id).encode());
        file.write_at(0, &block)?;
        Ok(Wal {
            disk: disk.clone(),
            folder: folder.to_owned(),
            is_named: false,
            file,
            id,
            executor,
            record: Buffer::zeroed(RECORD_MAX),
            change: Change::Insert,
            count: 0,
            before,
            offset: ALIGNMENT as u64,
            writes: VecDeque::new(),
            spare: Vec::new(),
            failed: false,
        })
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

    /// Returns when all that was appended is on the device.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.write()?;
        self.wait_until(0)?;
        self.file.sync()?;
        if !self.is_named {
            self.disk.sync_folder(&self.folder)?;
            self.is_named = true;
        }
        Ok(())
    }

    /// Starts to write the record, if there is anything in it.
    fn write(&mut self) -> Result<()> {
        if self.failed {
            let error = std::io::Error::other("an earlier write of this log failed");
            return Err(Error::io("write", error).at(self.file.place()));
        }
        if self.count == 0 {
            return Ok(());
        }
        let len = RECORD_HEAD + 8 * self.count;
        let padded = len.next_multiple_of(ALIGNMENT);
        let next = self.spare.pop().unwrap_or_else(|| Buffer::zeroed(RECORD_MAX));
        let mut record = std::mem::replace(&mut self.record, next);
        record[len..padded].fill(0);
        let number: u32 = if self.change == Change::Insert { 1 } else { 2 };
        record[4..8].copy_from_slice(&number.to_le_bytes());
        record[8..16].copy_from_slice(&self.before.to_le_bytes());
        record[16..24].copy_from_slice(&(self.count as u64).to_le_bytes());
        let checksum = checksum(&record[4..len], self.offset, self.id);
        record[..4].copy_from_slice(&checksum.to_le_bytes());
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

/// Shows the changes of a log, from the `told`-th of the filter on, to `take`, as far as they are
/// whole and follow on each other; returns how many were told in the end.
pub(super) fn replay(
    disk: &dyn Disk,
    folder: &Path,
    number: u64,
    (seed, id): (Seed, u64),
    mut told: u64,
    take: &mut dyn FnMut(Change, &[u64]) -> Result<()>,
) -> Result<u64> {
    let file = disk.open(&folder.join(name(number)), Access::Cached)?;
    let id = id.wrapping_add(number);
    let size = file.size()?;
    if size < ALIGNMENT as u64 {
        // The crash came before its first sync.
        return Ok(told);
    }
    let header = match Header::read(&*file, FileKind::FilterLog) {
        Ok(header) => header,
        // Nothing was ever acknowledged in a log whose header is not there.
        Err(_) if size == ALIGNMENT as u64 => return Ok(told),
        Err(error) => return Err(error),
    };
    for (what, expected, got) in [("seed", seed.0, header.seed.0), ("file id", id, header.id)] {
        if expected != got {
            return Err(Error::new(ErrorKind::Mismatch { what, expected, got }).at(file.place()));
        }
    }
    let mut offset = ALIGNMENT as u64;
    let mut hashes = Vec::new();
    while let Some((record, len)) = read_record(&*file, offset, size)? {
        let Some((change, before)) = decode(&record[..len], offset, id, &mut hashes) else { break };
        // What a run holds already is passed over; a gap ends the log.
        let Some(known) = told.checked_sub(before) else { break };
        let new = hashes.get(known as usize..).unwrap_or_default();
        take(change, new)?;
        told += new.len() as u64;
        offset += (len as u64).next_multiple_of(ALIGNMENT as u64);
    }
    Ok(told)
}

/// The record at an offset, perhaps; with it, its length.
fn read_record(file: &dyn BlockFile, offset: u64, size: u64) -> Result<Option<(Buffer, usize)>> {
    if offset + ALIGNMENT as u64 > size {
        return Ok(None);
    }
    let mut record = Buffer::zeroed(ALIGNMENT);
    file.read_at(offset, &mut record)?;
    let count = Decoder::new(&record[16..24]).u64()?;
    if count == 0 || count > HASHES_MAX as u64 {
        return Ok(None);
    }
    let len = RECORD_HEAD + 8 * count as usize;
    if offset + len as u64 > size {
        return Ok(None);
    }
    if len > record.len() {
        record = Buffer::zeroed(len);
        file.read_at(offset, &mut record)?;
    }
    Ok(Some((record, len)))
}

/// The changes of a record, if it is whole.
fn decode(record: &[u8], offset: u64, id: u64, hashes: &mut Vec<u64>) -> Option<(Change, u64)> {
    let mut fields = Decoder::new(record);
    let expected = fields.u32().ok()?;
    if expected != checksum(&record[4..], offset, id) {
        return None;
    }
    let change = match fields.u32().ok()? {
        1 => Change::Insert,
        2 => Change::Remove,
        _ => return None,
    };
    let (before, _) = (fields.u64().ok()?, fields.u64().ok()?);
    hashes.clear();
    hashes.extend(fields.rest().as_chunks::<8>().0.iter().map(|hash| u64::from_le_bytes(*hash)));
    Some((change, before))
}
