//! The logs of an open filter: the current one, and full ones before it.
//!
//! A full memtable does not end its log: a log takes the changes of several. A log that is long
//! enough is followed by the next one, which was made in the background. Only [`Logs::sync`] waits
//! for the device; it syncs the logs in the order in which they were written.

use super::{
    core::Core,
    memtable::Change,
    wal::{self, Wal},
};
use crate::{error::Result, work::Pending};

/// A log that is so long is followed by another one, in bytes.
const LOG_SIZE: u64 = if cfg!(test) { 10 << 10 } else { 64 << 20 };

#[derive(Debug)]
pub(super) struct Logs {
    current: Option<Wal>,
    /// The full logs that may not be durable, oldest first.
    full: Vec<Wal>,
    /// The log after the current one, which is being made.
    next: Option<Pending<Result<Wal>>>,
    /// The number of the next log.
    number: u64,
    /// Sequence number of the last change that durable logs hold, if runs do not.
    synced: u64,
}

impl Logs {
    /// None yet; the first one gets this number, when so many changes were told.
    pub(super) fn new(number: u64, seq: u64) -> Logs {
        Logs { current: None, full: Vec::new(), next: None, number, synced: seq }
    }

    /// Changes told that logs on the device hold, if runs do not.
    pub(super) fn synced(&self) -> u64 {
        self.synced
    }

    /// The number of the last log that was begun.
    pub(super) fn last(&self) -> u64 {
        self.number - 1
    }

    pub(super) fn is_open(&self) -> bool {
        self.current.is_some()
    }

    /// Whether something that was told is missing in them. There is no new log until runs have it.
    pub(super) fn has_gap(&self) -> bool {
        self.full.iter().any(Wal::has_failed)
    }

    /// Goes on with a new log after so many changes.
    pub(super) fn open(&mut self, core: &Core, seq: u64) -> Result<()> {
        // If it could not be made ahead, that was then.
        let ahead = self.next.take().and_then(|next| next.wait().ok());
        let mut wal = ahead.map_or_else(|| make(core, self.number)(), Ok)?;
        wal.begin(seq);
        self.number += 1;
        self.current = Some(wal);
        Ok(())
    }

    /// Appends changes, if there is a log; they are durable after the next [`Logs::sync`].
    ///
    /// # Errors
    /// Those of writing: the log ends there, and there is a gap.
    pub(super) fn append(&mut self, change: Change, hashes: &[u64]) -> Result<()> {
        let Some(wal) = &mut self.current else { return Ok(()) };
        wal.append(change, hashes).inspect_err(|_| self.full.extend(self.current.take()))
    }

    /// A table is full: so is the log, if it is long enough, or if it is to be the `last` one for
    /// now. The number of the first log that holds what comes next.
    pub(super) fn end_table(&mut self, core: &Core, last: bool) -> u64 {
        let Some(wal) = &mut self.current else { return self.number };
        if last || wal.size() >= LOG_SIZE {
            // If this fails, so does its sync.
            let _ = wal.end();
            self.full.extend(self.current.take());
            return self.number;
        }
        if wal.size() >= LOG_SIZE / 2 && self.next.is_none() {
            self.next = Some(Pending::start(&*core.settings.executor, make(core, self.number)));
        }
        self.number - 1
    }

    /// Tries to make durable what is in logs; whether that is all of so many changes told.
    pub(super) fn sync(&mut self, seq: u64) -> bool {
        let last = self.current.as_ref().or(self.full.last());
        let has_all = last.is_some_and(|wal| wal.seq() == seq);
        let mut logs = self.full.iter_mut().chain(&mut self.current);
        let is_done = has_all && logs.all(|wal| wal.sync().is_ok());
        if is_done {
            self.synced = seq;
            self.full.clear();
        }
        is_done
    }

    /// Forgets full logs that hold nothing but what runs hold: so many changes told. Of those that
    /// failed nobody knows what they hold.
    pub(super) fn forget(&mut self, seq: u64) {
        self.full.retain(|wal| wal.has_failed() || wal.seq() > seq);
    }

    /// Forgets all full logs: runs hold all that was told.
    pub(super) fn forget_all(&mut self) {
        self.full.clear();
    }

    /// The number of a log that was made ahead and is not needed.
    pub(super) fn take_unused(&mut self) -> Option<u64> {
        let next = self.next.take()?.wait();
        next.is_ok().then_some(self.number)
    }
}

/// Makes a log.
fn make(core: &Core, number: u64) -> impl FnOnce() -> Result<Wal> + Send + 'static {
    let folder = core.publisher.folder();
    let (disk, folder) = (folder.disk.clone(), folder.path.clone());
    let (of, io) = ((core.identity.seed, core.identity.id), core.settings.executor.clone());
    move || {
        let made = Wal::create(&*disk, &folder, number, of, io);
        // If it cannot be removed, it is an empty log.
        made.inspect_err(|_| _ = disk.remove(&folder.join(wal::name(number))))
    }
}
