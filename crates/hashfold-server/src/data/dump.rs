//! Dumps of filters: the pieces that `BF.SCANDUMP` and `CF.SCANDUMP` return, one after the other.
//!
//! A dump reads a state of its filter that no change reaches, in bounded memory: the runs that were there when
//! it began, which stay on the device until it ends.

use super::filter::FilterKey;
use crate::piece::{Dumped, Last, PieceWriter};
use hashfold::{
    Result,
    fingerprints::{FingerprintBatch, Fingerprints},
};
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Maximum number of dumps at a time; the one that was not asked for the longest ends if there is one more.
const DUMPS_MAX: usize = 16;

/// A dump that is not asked for its next piece for this long ends.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// A piece, and the number by which clients name it.
#[derive(Clone, Debug)]
pub(crate) struct NextPiece {
    /// 0 after the last piece, without bytes.
    pub(crate) iterator: i64,
    pub(crate) bytes: Arc<[u8]>,
}

/// The dumps that clients have begun.
#[derive(Debug, Default)]
pub(crate) struct Dumps(Mutex<Vec<Entry>>);

#[derive(Debug)]
struct Entry {
    filter: Arc<FilterKey>,
    of: Dumped,
    /// The time of the last call, by the server's clock.
    touched: Duration,
    dump: Arc<Mutex<Dump>>,
}

/// A dump.
struct Dump {
    of: Dumped,
    /// `None` after the last piece, so that the filter's files are free, and after an error.
    run: Option<Box<dyn Fingerprints>>,
    is_complete: bool,
    /// The fingerprints that were read last, and how many of them are in pieces.
    read: FingerprintBatch,
    taken: usize,
    /// Number of fingerprints in all pieces.
    before: u64,
    /// The number of the last piece, and its bytes, for a client that did not get the reply.
    number: u64,
    last: Arc<[u8]>,
}

impl Dumps {
    /// Begins a dump, and returns its first piece. `random` becomes the number of the dump.
    ///
    /// # Errors
    /// Errors of reading, and of making the filter's changes durable.
    pub(crate) fn begin(
        &self,
        filter: &Arc<FilterKey>,
        random: u64,
        now: Duration,
    ) -> Result<NextPiece> {
        let reader = filter.snapshot()?;
        let of = Dumped::of(&reader.stats(), random);
        let mut dump = Dump {
            of,
            run: Some(Box::new(reader.fingerprints()?)),
            is_complete: false,
            read: FingerprintBatch::new(),
            taken: 0,
            before: 0,
            number: 0,
            last: Arc::default(),
        };
        let piece = dump.piece_after(0)?;
        let dump = Arc::new(Mutex::new(dump));
        let mut dumps = self.lock();
        if dumps.len() >= DUMPS_MAX {
            let oldest = (0..dumps.len()).min_by_key(|i| dumps[*i].touched);
            oldest.map(|i| dumps.swap_remove(i));
        }
        dumps.push(Entry { filter: filter.clone(), of, touched: now, dump });
        Ok(piece.expect("a dump has a first piece"))
    }

    /// Returns the piece after the one that an iterator names, or the last one again; `None` if there is no such
    /// dump, or not any more.
    ///
    /// # Errors
    /// Errors of reading.
    pub(crate) fn next(
        &self,
        filter: &Arc<FilterKey>,
        iterator: i64,
        now: Duration,
    ) -> Result<Option<NextPiece>> {
        let mut dumps = self.lock();
        let is_it = |entry: &&mut Entry| {
            Arc::ptr_eq(&entry.filter, filter) && entry.of.number(iterator).is_some()
        };
        let Some(entry) = dumps.iter_mut().find(is_it) else { return Ok(None) };
        entry.touched = now;
        let (of, dump) = (entry.of, entry.dump.clone());
        drop(dumps);
        let mut dump = dump.lock().unwrap_or_else(PoisonError::into_inner);
        of.number(iterator).map_or(Ok(None), |number| dump.piece_after(number))
    }

    /// Ends dumps that nobody goes on with.
    pub(crate) fn forget_idle(&self, now: Duration) {
        self.lock().retain(|entry| now.saturating_sub(entry.touched) < IDLE_MAX);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dump {
    /// Returns the piece after the one with this number; `None` if that is neither the last piece nor the one
    /// before it, or if an earlier call has failed.
    fn piece_after(&mut self, number: u64) -> Result<Option<NextPiece>> {
        if number == self.number {
            if self.is_complete {
                return Ok(Some(NextPiece { iterator: 0, bytes: Arc::default() }));
            }
            // A run ends after an error, so the dump does.
            let Some(run) = self.run.take() else { return Ok(None) };
            self.make_piece(run)?;
        }
        let is_last = number + 1 == self.number;
        let (iterator, bytes) = (self.of.iterator(self.number), self.last.clone());
        Ok(is_last.then_some(NextPiece { iterator, bytes }))
    }

    /// Makes the next piece.
    fn make_piece(&mut self, mut run: Box<dyn Fingerprints>) -> Result<()> {
        let mut writer = PieceWriter::new(self.of.mode);
        while !writer.is_full() && !self.is_complete {
            for (fingerprint, count) in self.read.iter().skip(self.taken) {
                if writer.is_full() {
                    break;
                }
                writer.push(fingerprint, count);
                self.taken += 1;
            }
            if self.taken == self.read.len() {
                self.read.clear();
                self.taken = 0;
                self.is_complete = !run.append_to(&mut self.read)?;
            }
        }
        let items = writer.items();
        let last = if self.is_complete { Last::Yes } else { Last::No };
        self.last = writer.finish(&self.of, self.number + 1, self.before, last)?.into();
        self.number += 1;
        self.before += items;
        if !self.is_complete {
            self.run = Some(run);
        }
        Ok(())
    }
}

impl fmt::Debug for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dump({:?}, piece {})", self.of, self.number)
    }
}
