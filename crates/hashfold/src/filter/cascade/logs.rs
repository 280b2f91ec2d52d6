//! The filter's write-ahead log: changes as records of a [`Wal`].
//!
//! The `count` of a record is its number of hashes. Its payload (the same table stands in
//! `docs/formats/cascade.md`):
//!
//! | field  | size | meaning                                          |
//! |--------|-----:|--------------------------------------------------|
//! | change |    1 | 1 insert, 2 remove                               |
//! | hashes |  8 n | the high 64 bits of each hash, in order          |

use super::{
    catalog::{Catalog, Identity},
    core::Core,
    memtable::Change,
};
use crate::{
    error::{Error, Result},
    io::Disk,
    wal::{self, Record, Segments, Wal, WalFiles, WalFolder},
};
use std::{
    ops::{Deref, Range},
    path::Path,
};

/// Sizes of the log's segments. The first is small, so that a filter with few keys has a small log.
/// Segments are not recycled, so a filter that was flushed has no log files.
const SEGMENTS: Segments = Segments {
    first_size: if cfg!(test) { 20 << 10 } else { 1 << 20 },
    size_max: if cfg!(test) { 20 << 10 } else { 64 << 20 },
    spares_max: 0,
};
/// Maximum number of hashes in a record; smaller in tests, so that there are more records.
const HASHES_MAX: usize = if cfg!(test) { 64 } else { 1024 };

impl<R> Catalog<R> {
    /// Returns the sequence numbers of the durable changes that only the log holds.
    fn needed(&self) -> Range<u64> {
        self.seq..self.logged
    }
}

/// Opens the log of a filter, and calls `take` with the changes in it that the runs do not hold.
pub(super) fn open(core: &Core, take: &mut dyn FnMut(Change, &[u64]) -> Result<()>) -> Result<Wal> {
    let Identity { seed, id, .. } = core.identity;
    let (env, folder) = (core.settings.env.clone(), core.publisher.folder().path.clone());
    let home = WalFolder { env, folder, seed, id };
    let needed = core.view().needed();
    let mut seq = needed.start;
    Wal::open(home, SEGMENTS, needed, &mut |record| decode(record, &mut seq, take))
}

/// Calls `take` with the changes in the log of a filter that the runs do not hold. Returns the
/// sequence number of the last change.
pub(super) fn replay<R>(
    disk: &dyn Disk,
    folder: &Path,
    identity: &Identity,
    state: &Catalog<R>,
    take: &mut dyn FnMut(Change, &[u64]) -> Result<()>,
) -> Result<u64> {
    let &Identity { seed, id, .. } = identity;
    let mut seq = state.seq;
    let files = WalFiles { disk, folder, seed, id };
    wal::replay(files, state.needed(), &mut |record| decode(record, &mut seq, take))?;
    Ok(seq)
}

/// The log of a filter that is open, and the record that is being filled: inserting one key at a
/// time takes the lock of the log once per record.
#[derive(Debug)]
pub(super) struct FilterLog {
    wal: Wal,
    /// The change and the hashes of the next record, or nothing.
    record: Vec<u8>,
}

impl FilterLog {
    pub(super) fn new(wal: Wal) -> FilterLog {
        FilterLog { wal, record: Vec::with_capacity(1 + 8 * HASHES_MAX) }
    }

    /// Appends changes; they are durable after a commit.
    pub(super) fn append(&mut self, change: Change, mut hashes: &[u64]) -> Result<()> {
        let code = if change == Change::Insert { 1 } else { 2 };
        if self.record.first().is_some_and(|first| *first != code) {
            self.end_record()?;
        }
        while !hashes.is_empty() {
            if self.record.is_empty() {
                self.record.push(code);
            }
            let (now, later) = hashes.split_at(hashes.len().min(HASHES_MAX - self.hashes()));
            self.record.extend(now.iter().flat_map(|hash| hash.to_le_bytes()));
            if self.hashes() == HASHES_MAX {
                self.end_record()?;
            }
            hashes = later;
        }
        Ok(())
    }

    /// Waits until all changes, up to this sequence number, are durable.
    pub(super) fn commit(&mut self, seq: u64) -> Result<()> {
        self.end_record()?;
        self.wal.commit(seq)
    }

    /// Ends the current segment, as [`Wal::rotate`] does.
    pub(super) fn rotate(&mut self) -> Result<()> {
        self.end_record()?;
        self.wal.rotate()
    }

    /// Returns the number of hashes in the record that is being filled.
    fn hashes(&self) -> usize {
        self.record.len() / 8
    }

    fn end_record(&mut self) -> Result<()> {
        if self.record.is_empty() {
            return Ok(());
        }
        let appended = self.wal.append(self.hashes() as u64, &self.record);
        self.record.clear();
        appended.map(|_| ())
    }
}

impl Deref for FilterLog {
    type Target = Wal;

    fn deref(&self) -> &Wal {
        &self.wal
    }
}

/// Passes the changes of a record after `seq` to `take`, and counts them.
fn decode(
    record: Record<'_>,
    seq: &mut u64,
    take: &mut dyn FnMut(Change, &[u64]) -> Result<()>,
) -> Result<()> {
    let (change, hashes) = match record.payload.split_first() {
        Some((1, hashes)) => (Change::Insert, hashes),
        Some((2, hashes)) => (Change::Remove, hashes),
        _ => {
            let got = format!("{:?}", record.payload.first());
            return Err(Error::field("change in the log", "1 or 2", got));
        }
    };
    let (hashes, rest) = hashes.as_chunks::<8>();
    if hashes.len() as u64 != record.count || !rest.is_empty() {
        let expected = format!("of {} hashes", record.count);
        return Err(Error::field("record of the log", expected, hashes.len()));
    }
    let known = (*seq - record.seq) as usize;
    let hashes: Vec<u64> = hashes[known..].iter().map(|hash| u64::from_le_bytes(*hash)).collect();
    *seq = record.end();
    take(change, &hashes)
}
