//! The writer of a log: appends, commits, and its segments.

use super::{
    batch::{BATCH_SIZE_MAX, PAYLOAD_SIZE_MAX, Record, RecordBatch},
    commit::{Commit, Commits},
    reader::replay,
    segment::{Segment, Segments, WalFolder},
    sync::{Mutex, MutexGuard},
};
use crate::{
    error::{Error, ErrorKind, Place, Result},
    io::{BlockFile, Buffer, WriteQueue},
    work::Pending,
};
use std::{
    collections::VecDeque,
    mem,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

/// Maximum number of concurrent background writes of batches.
const WRITES_MAX: usize = 4;
/// Maximum memory of a log, in bytes: the batches in the background, the batch that a commit
/// writes, and the batch that is being filled.
pub const WAL_BYTES_MAX: usize = (WRITES_MAX + 2) * BATCH_SIZE_MAX;
/// Maximum duration of [`AWAKE_ROUNDS`] rounds for which a committing thread stays awake. If the
/// rounds take longer, it sleeps at once, because waking it takes a small part of that time.
const AWAKE_MAX: Duration = Duration::from_micros(1000);
/// Number of rounds that a thread may have to wait for: the current one, the next, and a reserve.
const AWAKE_ROUNDS: u32 = 3;

/// A log that is being written. Threads can share it.
///
/// ```
/// use hashfold::{Seed, env::Env, wal::{Segments, Wal, WalFolder}};
///
/// let home = WalFolder { env: Env::simulated(1), folder: "".into(), seed: Seed(1), id: 7 };
/// let wal = Wal::open(home.clone(), Segments::of_size(1 << 20), 0..0, &mut |_| Ok(()))?;
/// let end = wal.append(1, b"a change")?;
/// wal.commit(end)?; // on the device now
/// drop(wal);
///
/// let mut seen = Vec::new();
/// let wal = Wal::open(home, Segments::of_size(1 << 20), 0..end, &mut |record| {
///     seen.push((record.seq, record.payload.to_vec()));
///     Ok(())
/// })?;
/// assert_eq!(seen, [(0, b"a change".to_vec())]);
/// assert_eq!(wal.end(), 1);
/// # Ok::<(), hashfold::Error>(())
/// ```
#[derive(Debug)]
pub struct Wal {
    home: Arc<WalFolder>,
    segments: Segments,
    commits: Commits,
    /// Space of all batches that were given a place in a segment, in bytes.
    written: AtomicU64,
    log: Mutex<Log>,
}

#[derive(Debug)]
struct Log {
    /// The batch that is being filled.
    batch: RecordBatch,
    /// Changes before this sequence number are durable.
    durable: u64,
    /// Duration of the last write and sync of a commit.
    round_time: Duration,
    /// The full batches that are being written. The queue also records every other failure.
    queue: WriteQueue,
    current: Option<Segment>,
    /// Sequence number of the first change in the current segment.
    segment_seq: u64,
    /// Number of the next segment.
    next_number: u64,
    /// The next segment, which is created ahead.
    next: Option<Pending<Result<Segment>>>,
    /// The segments before the current one that may not be durable, oldest first.
    unsynced: Vec<Segment>,
    /// The segments before the current one, oldest first, each with the sequence number after its
    /// last change.
    ended: VecDeque<(u64, u64)>,
    /// Numbers of the segments to be recycled.
    spares: Vec<u64>,
}

/// A batch that is being written to its file.
struct Write {
    file: Arc<dyn BlockFile>,
    offset: u64,
    bytes: Buffer,
    len: usize,
}

impl Write {
    fn run(&self) -> Result<()> {
        self.file.write_at(self.offset, &self.bytes[..self.len])
    }
}

/// A batch and the segments that one round of a group commit makes durable.
struct Round {
    /// Sequence number after the last change of the round.
    end: u64,
    write: Option<Write>,
    /// The segments to be synced, in their state after the write.
    segments: Vec<Segment>,
}

impl Wal {
    /// Opens the log in a folder, or begins a log. Calls `take` with the existing records that end
    /// after `needed.start`, as [`replay`] does. New records follow them, or begin at
    /// `needed.start`, even after all existing records if the changes between are durable
    /// elsewhere. All records that `take` got are durable when this returns.
    pub fn open(
        home: WalFolder,
        segments: Segments,
        needed: Range<u64>,
        take: &mut dyn FnMut(Record<'_>) -> Result<()>,
    ) -> Result<Wal> {
        segments.check()?;
        let from = needed.start;
        let found = replay(home.files(), needed, take)?;
        // A killed process leaves records that were not synced.
        let unsynced = found.segments.iter().filter(|(_, end)| *end > from);
        unsynced.map(|(number, _)| number).try_for_each(|number| home.files().sync(*number))?;
        // No later segment may continue these segments, also not after another crash.
        found.cut_off.iter().try_for_each(|number| home.files().remove(*number))?;
        if !found.cut_off.is_empty() {
            home.env.disk.sync_folder(&home.folder)?;
        }
        let numbers = found.cut_off.iter().chain(found.segments.iter().map(|(number, _)| number));
        let next_number = numbers.max().map_or(0, |number| number + 1);
        let log = Log {
            batch: RecordBatch::new(Buffer::zeroed(BATCH_SIZE_MAX), found.end),
            durable: found.end,
            round_time: Duration::ZERO,
            queue: WriteQueue::new(home.env.executor.clone(), WRITES_MAX),
            current: None,
            segment_seq: found.end,
            next_number,
            next: None,
            unsynced: Vec::new(),
            ended: found.segments.into(),
            spares: Vec::new(),
        };
        let wal = Wal {
            home: Arc::new(home),
            segments,
            commits: Commits::new(found.end),
            written: AtomicU64::new(0),
            log: Mutex::new(log),
        };
        wal.truncate(from)?;
        Ok(wal)
    }

    /// Returns the sequence number after the last appended change.
    pub fn end(&self) -> u64 {
        self.log().batch.end
    }

    /// Returns the sequence number of the first change in the current segment, or in the next one
    /// if there is none. The loss of any segment is detected if the caller knows a later change to
    /// be in the log.
    pub fn segment_seq(&self) -> u64 {
        self.log().segment_seq
    }

    /// Returns the sequence number after the last committed change.
    pub fn durable_seq(&self) -> u64 {
        self.commits.durable()
    }

    /// Appends a record of `count` changes, at least one. Returns the sequence number after it: the
    /// record is durable after [`Wal::commit`] of that number.
    ///
    /// # Errors
    /// `Limit` if the payload is longer than [`PAYLOAD_SIZE_MAX`], or if sequence numbers would exceed
    /// `u64::MAX`; the error of writing a full batch; the disk has no space for another segment. The log does not have the
    /// record then.
    pub fn append(&self, count: u64, payload: &[u8]) -> Result<u64> {
        assert!(count > 0);
        if payload.len() > PAYLOAD_SIZE_MAX {
            let (limit, got) = (PAYLOAD_SIZE_MAX as u64, payload.len() as u64);
            return Err(ErrorKind::Limit { what: "record of the log", limit, got }.into());
        }
        let mut log = self.log();
        log.queue.check("write", || self.place())?;
        let limit = u64::MAX - log.batch.end;
        if count > limit {
            let what = "number of changes in a record of the log";
            return Err(ErrorKind::Limit { what, limit, got: count }.into());
        }
        self.reserve(&mut log, payload)?;
        log.batch.push(count, payload);
        Ok(log.batch.end)
    }

    /// Waits until all changes before `seq` are durable, where `seq` was returned by
    /// [`Wal::append`]. Threads that commit at the same time share a write and a sync. If three
    /// rounds of group commit take less than 1 ms, a waiting thread stays awake for that time, yielding
    /// the CPU to other threads, before it sleeps.
    ///
    /// # Errors
    /// `Argument` if `seq` is larger than [`Wal::end`].
    /// If a write or a sync failed, now or earlier, every further call fails. A full disk fails no commit: the space of a
    /// record is taken when it is appended.
    pub fn commit(&self, seq: u64) -> Result<()> {
        let clock = &self.home.env.clock;
        let mut until = None;
        let stay_awake = || {
            let until = *until.get_or_insert_with(|| {
                let rounds = self.log().round_time * AWAKE_ROUNDS;
                clock.now() + if rounds < AWAKE_MAX { rounds } else { Duration::ZERO }
            });
            thread::yield_now();
            clock.now() < until
        };
        let take = || self.take_round(seq);
        let write = |round| self.write_round(round).inspect_err(|_| self.log().queue.fail());
        match self.commits.commit(seq, stay_awake, take, write)? {
            Commit::Durable => Ok(()),
            Commit::FailedBefore => {
                Err(Error::new(ErrorKind::FailedBefore { action: "sync" }).at(&self.place()))
            }
        }
    }

    /// Records in the log that all committed changes are durable, unless changes were appended
    /// since. Each commit records this for the commits before it; only a mark lets a reader tell
    /// damage to the last commit from a crash. Costs a write and no sync. Dropping the log writes a
    /// mark, too.
    pub fn mark(&self) -> Result<()> {
        let mut log = self.log();
        let (end, is_durable) = (log.batch.end, log.durable == log.batch.end);
        let has_failed = log.queue.has_failed();
        let Some(segment) = &mut log.current else { return Ok(()) };
        if !is_durable || segment.is_marked || has_failed {
            return Ok(());
        }
        segment.is_marked = true;
        let mark = RecordBatch::mark(end, segment.seal(self.home.id));
        let written = segment.file.write_at(segment.offset, &mark);
        written.inspect_err(|_| log.queue.fail())
    }

    /// Ends the current segment, so that [`Wal::truncate`] can recycle it before it is full.
    pub fn rotate(&self) -> Result<()> {
        let mut log = self.log();
        if !log.batch.is_empty() {
            self.write_behind(&mut log)?;
        }
        log.end_segment();
        Ok(())
    }

    /// Drops the segments whose changes all come before `seq` and are durable elsewhere.
    ///
    /// # Errors
    /// If a segment cannot be removed. The next call tries again.
    pub fn truncate(&self, seq: u64) -> Result<()> {
        let durable = self.commits.durable();
        let mut log = self.log();
        while let Some(&(number, end)) = log.ended.front().filter(|ended| ended.1 <= seq) {
            // A segment that is not durable may still be written to, so it must not be recycled.
            if end <= durable && log.spares.len() < self.segments.spares_max {
                log.spares.push(number);
            } else {
                self.home.files().remove(number)?;
            }
            log.ended.pop_front();
            log.unsynced.retain(|segment| segment.number != number);
        }
        Ok(())
    }

    /// Removes the segments that are kept to be recycled, and the segment that was created ahead. The
    /// next segment is then created, which takes longer than recycling one.
    ///
    /// # Errors
    /// If a segment cannot be removed. The next call tries again, or the next segment replaces it.
    pub fn release_spares(&self) -> Result<()> {
        let mut log = self.log();
        if let Some(Ok(unused)) = log.next.take().map(Pending::wait) {
            self.home.files().remove(unused.number)?;
        }
        while let Some(number) = log.spares.last() {
            self.home.files().remove(*number)?;
            log.spares.pop();
        }
        Ok(())
    }

    /// Returns the bytes that were written to segments since the log was opened. A commit writes a
    /// multiple of 4 KiB, however small its records are.
    pub fn written_bytes(&self) -> u64 {
        self.written.load(SeqCst)
    }

    /// Returns the number of segments with records: those before the current one, and the current one.
    pub fn segment_count(&self) -> usize {
        let log = self.log();
        log.ended.len() + usize::from(log.current.is_some())
    }

    /// Whether there are segments before the current one, whose space [`Wal::truncate`] may free.
    pub fn has_ended_segments(&self) -> bool {
        !self.log().ended.is_empty()
    }

    /// Returns the space that all segments take on the device, in bytes.
    ///
    /// # Errors
    /// If the folder or a segment cannot be measured.
    pub fn device_bytes(&self) -> Result<u64> {
        self.home.files().device_bytes()
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().expect("nothing panics under this lock")
    }

    fn place(&self) -> Place {
        Place::file(&self.home.folder)
    }

    /// Makes a place for a record in the batch, and for the batch in a segment. A tail that is cut off the batch later takes
    /// no more blocks.
    fn reserve(&self, log: &mut Log, payload: &[u8]) -> Result<()> {
        if !log.batch.has_room(payload) {
            self.write_behind(log)?;
        }
        let size = log.batch.padded_size_with(payload);
        if !log.current.as_ref().is_some_and(|segment| segment.has_room(size)) {
            let next = self.next_segment(log)?;
            log.end_segment();
            log.current = Some(next);
        }
        Ok(())
    }

    /// Starts to write the batch in the background.
    fn write_behind(&self, log: &mut Log) -> Result<()> {
        let mut write = self.take_batch(log);
        let bytes = mem::replace(&mut write.bytes, Buffer::zeroed(0));
        let Write { file, offset, len, .. } = write;
        log.queue.start(bytes, move |bytes| file.write_at(offset, &bytes[..len]))?;
        Ok(())
    }

    /// Takes the batch, which is not empty, and assigns its place in the current segment.
    fn take_batch(&self, log: &mut Log) -> Write {
        let len = log.batch.padded_size();
        let next = log.queue.take_buffer().unwrap_or_else(|| Buffer::zeroed(BATCH_SIZE_MAX));
        let batch = RecordBatch::new(next, log.batch.end);
        let batch = mem::replace(&mut log.batch, batch);
        let segment = log.current.as_mut().expect("a record was appended");
        debug_assert!(segment.has_room(len));
        let (file, offset) = (segment.file.clone(), segment.offset);
        let bytes = batch.seal(segment.seal(self.home.id), log.durable);
        segment.offset += len as u64;
        self.written.fetch_add(len as u64, SeqCst);
        segment.is_marked = false;
        if segment.offset > segment.size / 2 && log.next.is_none() {
            log.next = Some(Pending::start(&*self.home.env.executor, self.make(log)));
        }
        Write { file, offset, bytes, len }
    }

    /// Returns the segment after the current one: created ahead, or created now.
    fn next_segment(&self, log: &mut Log) -> Result<Segment> {
        // If creating it ahead failed, it is created now.
        let ahead = log.next.take().and_then(|next| next.wait().ok());
        let segment = ahead.map_or_else(|| self.make(log)(), Ok)?;
        log.next_number += 1;
        Ok(segment)
    }

    /// Returns a job that creates the next segment.
    fn make(&self, log: &mut Log) -> impl FnOnce() -> Result<Segment> + Send + 'static {
        let Segments { first_size, size_max, .. } = self.segments;
        let size = log.current.as_ref().map_or(first_size, |current| 2 * current.size);
        let (home, size) = (self.home.clone(), size.min(size_max));
        let (number, spare) = (log.next_number, log.spares.pop());
        move || Segment::make(&home, number, size, spare)
    }

    /// Takes the records that are not durable. Returns the sequence number after them. A few records
    /// at the end may stay for the next round, if this thread does not wait for them.
    fn take_round(&self, seq: u64) -> Result<(u64, Round)> {
        let mut log = self.log();
        log.queue.check("write", || self.place())?;
        log.queue.wait_until(0)?;
        let appended = log.batch.end;
        if seq > appended {
            let expected = format!("at most {appended}, the end of the log");
            return Err(Error::argument("sequence number to commit", expected, seq));
        }
        let tail = log.batch.cut_tail(seq);
        let end = log.batch.end;
        let write = (!log.batch.is_empty()).then(|| self.take_batch(&mut log));
        tail.iter().for_each(|tail| log.batch.append(tail));
        let mut segments = log.unsynced.clone();
        segments.extend(log.current.clone());
        Ok((end, Round { end, write, segments }))
    }

    fn write_round(&self, round: Round) -> Result<()> {
        let Round { end, write, segments } = round;
        let start = self.home.env.clock.now();
        write.as_ref().map_or(Ok(()), Write::run)?;
        segments.iter().try_for_each(|segment| segment.file.sync())?;
        let mut log = self.log();
        log.unsynced.retain(|segment| !segments.iter().any(|synced| synced.has_all_of(segment)));
        log.durable = end;
        log.round_time = self.home.env.clock.now().saturating_sub(start);
        if let Some(write) = write {
            log.queue.give_buffer(write.bytes);
        }
        Ok(())
    }
}

impl Log {
    /// Ends the current segment.
    fn end_segment(&mut self) {
        if let Some(segment) = self.current.take() {
            self.ended.push_back((segment.number, self.batch.seq));
            self.segment_seq = self.batch.seq;
            self.unsynced.extend((self.durable < self.batch.seq).then_some(segment));
        }
    }
}

impl Drop for Wal {
    fn drop(&mut self) {
        // Errors cannot be returned from here. Without the mark, damage cannot be told from a
        // crash; a segment that was created ahead and stays is empty.
        let _ = self.mark();
        if let Some(Ok(unused)) = self.log().next.take().map(Pending::wait) {
            let _ = self.home.files().remove(unused.number);
        }
    }
}
