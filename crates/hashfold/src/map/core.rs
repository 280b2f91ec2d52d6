//! The state that the handles of a map and its background jobs share.
//!
//! Locks, in the order in which they are taken: `published` (one checkpoint at a time), `moving` (one
//! flush or merge at a time), stripes (writers), the directory, a group. `syncing` is taken last.

use super::{
    batch::Batch,
    block::{BLOCK_SIZE, BlockId, BlockKind, encode},
    devices::{Devices, Identity},
    directory::Directory,
    group::Group,
    item::{Change, Item},
    large::{self, Owner},
    list::List,
    options::MapOptions,
    pointer::Pointer,
    prefix::Prefix,
    space::{Blocks, Space},
    span::{Span, Stored},
    stripes::Stripes,
    sync::{Condvar, Mutex, MutexGuard},
};
use crate::{
    error::{Error, ErrorKind, Place, Result},
    folder::LockedFolder,
    io::{Buffer, WriteQueue},
    wal::Wal,
    work::Pending,
};
use std::{
    collections::{BTreeSet, VecDeque},
    sync::{
        Arc, OnceLock, PoisonError, TryLockError, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
};

/// Maximum number of commit jobs that are kept to be waited for.
const COMMITS_MAX: usize = 16;

/// Number of writes after which a process publishes the numbers that it goes on with, and more: a process that opens
/// the map after a crash skips this many numbers from the published ones on.
pub(super) const WRITES_LOST_MAX: u64 = 1 << 28;

/// Maximum number of spans that wait for a copy.
const MIRRORS_MAX: usize = 64;

/// The state of an open map.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) identity: Identity,
    pub(super) options: MapOptions,
    /// Unlocked before `folder`: a process that locks the folder of the map finds the others free.
    pub(super) devices: Devices,
    pub(super) folder: LockedFolder,
    /// The user's names and values.
    pub(super) attributes: Vec<(String, Vec<u8>)>,
    pub(super) space: Arc<Space>,
    pub(super) directory: Directory,
    pub(super) stripes: Stripes,
    /// The log; empty while it is replayed.
    pub(super) log: OnceLock<Wal>,
    pub(super) published: Mutex<Published>,
    moving: Mutex<()>,
    /// Number of times that `moving` was released.
    releases: Mutex<u64>,
    /// Notified when `moving` is released.
    released: Condvar,
    pub(super) tasks: Tasks,
    pub(super) counters: Counters,
    /// Owners of the large values of changes in the log, each with a sequence number: recovery
    /// needs them while it may replay the changes from there on.
    pub(super) logged: Mutex<Vec<(u64, Owner)>>,
    /// Number of the next write to the data file.
    next_write: AtomicU64,
    /// Numbers from `next_write` on and before this one are this process' own: no other has used them or will. 0 before
    /// the first write.
    numbers_end: AtomicU64,
    /// Whether the other devices know the current manifest, which this process has published.
    pub(super) owns_devices: AtomicBool,
    /// The latest time that was read, in milliseconds since 1970-01-01 UTC.
    latest_time: AtomicU64,
    /// Whether a sync of the data file failed: its bytes may be lost.
    has_failed: AtomicBool,
    /// Whether a record in the log is applied in part, because the rest could not be read.
    is_partial: AtomicBool,
    /// Held during a sync of the data file.
    syncing: Mutex<()>,
    /// The batch of the last merge or flush, empty: without it, memory of this size would be allocated
    /// and freed all the time, and leave the heap in pieces.
    spare: Mutex<Batch>,
}

/// The last checkpoint.
#[derive(Debug)]
pub(super) struct Published {
    /// The highest generation of a manifest that was tried.
    pub(super) generation: u64,
    /// Changes before this sequence number are in the catalog.
    pub(super) seq: u64,
    /// No change from this sequence number on is in the catalog.
    pub(super) logged: u64,
    /// The groups of all catalogs that may be current, which keep their blocks: of one catalog,
    /// unless publishing another one failed halfway. The last ones are those of `seq` and `logged`.
    pub(super) images: Vec<Vec<Arc<Stored>>>,
    /// The token of the last manifest that is known to be current; 0 if there is one device.
    pub(super) token: u64,
    /// Whether the folders of all devices have that token.
    pub(super) is_marked: bool,
}

/// The background work that is due.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    /// First hashes (their high 64 bits) of the groups to be merged.
    pub(super) merges: Mutex<BTreeSet<u64>>,
    /// Spans that may be copied to another device.
    mirrors: Mutex<Vec<Weak<Span>>>,
    /// Whether there are such spans.
    has_mirrors: AtomicBool,
    /// Lists with a change before this sequence number are to be flushed, because groups have many lists.
    pub(super) flush_before: AtomicU64,
    /// Whether a checkpoint of all changes is due: it frees the space of entries that were cleared, and
    /// the segments that processes left which ended without a checkpoint.
    pub(super) needs_checkpoint: AtomicBool,
    /// The end of the log when a checkpoint that should have freed its space failed, or 0.
    pub(super) full_at: AtomicU64,
    /// Whether a maintenance job is running or will run.
    pub(super) is_running: AtomicBool,
    /// Whether a commit job is running or will run.
    pub(super) is_committing: AtomicBool,
    /// The last maintenance job that was started. Only one runs at a time.
    maintenance: Mutex<Option<Pending<()>>>,
    /// The last commit jobs that were started, oldest first.
    commits: Mutex<VecDeque<Pending<()>>>,
    /// The error of the last background job that failed.
    pub(super) error: Mutex<Option<Error>>,
}

/// Amounts since the map was opened, and current amounts.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Memory of the lists of changes, in bytes.
    pub(super) buffered_bytes: AtomicUsize,
    /// Memory of packets, in bytes.
    pub(super) packet_bytes: AtomicU64,
    /// Memory of the writes of open transactions, and of what RAM has of those that were spilled, in bytes.
    pub(super) transaction_bytes: AtomicUsize,
    /// Bytes of changes appended to the log since the last checkpoint began, and of their large values.
    pub(super) log_bytes: AtomicU64,
    /// The bytes that the log had written when the last checkpoint began.
    pub(super) log_written: AtomicU64,
    pub(super) blocks_written: AtomicU64,
    pub(super) merges: AtomicU64,
    pub(super) flushes: AtomicU64,
    pub(super) checkpoints: AtomicU64,
}

/// The lock of the structure on the device.
pub(super) struct Moving<'a> {
    core: &'a Core,
    guard: Option<MutexGuard<'a, ()>>,
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.guard = None;
        *self.core.releases.lock().expect("nothing panics under this lock") += 1;
        self.core.released.notify_all();
    }
}

/// The state from which a map starts.
pub(super) struct Start {
    pub(super) directory: Directory,
    pub(super) published: Published,
    pub(super) next_write: u64,
    pub(super) owns_numbers: bool,
    pub(super) attributes: Vec<(String, Vec<u8>)>,
}

impl Core {
    pub(super) fn new(
        (folder, devices): (LockedFolder, Devices),
        (identity, options): (Identity, MapOptions),
        space: Arc<Space>,
        start: Start,
    ) -> Core {
        let packets = start.published.images.iter().flatten().map(|stored| stored.packet_bytes());
        let counters =
            Counters { packet_bytes: AtomicU64::new(packets.sum()), ..Counters::default() };
        let numbers_end = if start.owns_numbers { start.next_write + WRITES_LOST_MAX } else { 0 };
        Core {
            identity,
            options,
            folder,
            owns_devices: AtomicBool::new(devices.are_one()),
            devices,
            attributes: start.attributes,
            space,
            directory: start.directory,
            stripes: Stripes::default(),
            log: OnceLock::new(),
            published: Mutex::new(start.published),
            moving: Mutex::new(()),
            releases: Mutex::new(0),
            released: Condvar::new(),
            tasks: Tasks::default(),
            counters,
            logged: Mutex::default(),
            next_write: AtomicU64::new(start.next_write),
            numbers_end: AtomicU64::new(numbers_end),
            latest_time: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
            is_partial: AtomicBool::new(false),
            syncing: Mutex::new(()),
            spare: Mutex::default(),
        }
    }

    /// Calls `work` with an empty batch, whose memory is used again.
    pub(super) fn with_batch<T>(&self, work: impl FnOnce(&mut Batch) -> T) -> T {
        let spare = || self.spare.lock().expect("nothing panics under this lock");
        let mut batch = std::mem::take(&mut *spare());
        let result = work(&mut batch);
        batch.clear();
        if batch.memory() <= self.options.shape.spare_bytes {
            *spare() = batch;
        }
        result
    }

    /// Returns the log.
    ///
    /// # Panics
    /// While the log is replayed.
    pub(super) fn log(&self) -> &Wal {
        self.log.get().expect("the map is open")
    }

    /// Locks the structure on the device: one thread flushes, merges and splits.
    pub(super) fn moving(&self) -> Moving<'_> {
        // A panic of a merge is reported; the structure changes in single steps, and is sound.
        let guard = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
        Moving { core: self, guard: Some(guard) }
    }

    /// Locks the structure as [`Core::moving`] does; or waits until another thread releases it, and
    /// returns `None`.
    pub(super) fn moving_or_released(&self) -> Option<Moving<'_>> {
        // A thread that releases the lock from here on waits for this lock before it notifies.
        let releases = self.releases.lock().expect("nothing panics under this lock");
        match self.moving.try_lock() {
            Ok(guard) => Some(Moving { core: self, guard: Some(guard) }),
            Err(TryLockError::Poisoned(guard)) => {
                Some(Moving { core: self, guard: Some(guard.into_inner()) })
            }
            Err(TryLockError::WouldBlock) => {
                drop(self.released.wait(releases).expect("nothing panics under this lock"));
                None
            }
        }
    }

    pub(super) fn published(&self) -> MutexGuard<'_, Published> {
        // A checkpoint that panics has published a catalog or has not, and the next one tells.
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses reads and changes after a record in the log could be applied in part only. Opening the map
    /// applies all of it.
    pub(super) fn check_whole(&self) -> Result<()> {
        if !self.is_partial.load(SeqCst) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::FailedBefore { action: "apply a transaction" }).at(&self.place()))
    }

    /// Records that a record in the log is applied in part only. The caller holds `moving` and all stripes,
    /// so that no catalog has the part: checkpoints fail from now on.
    pub(super) fn set_partial(&self) {
        self.is_partial.store(true, SeqCst);
    }

    /// Refuses changes after the data file could not be synced, or after a record was applied in part only.
    pub(super) fn check(&self) -> Result<()> {
        self.check_whole()?;
        if !self.has_failed.load(SeqCst) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::FailedBefore { action: "sync" }).at(&self.place()))
    }

    /// Makes all that was written to the data file durable. Returns the size, in bytes, that the file
    /// has at least, also after a power cut. After a failure, all calls fail.
    pub(super) fn sync_data(&self) -> Result<u64> {
        // The system reports a lost write to one of the callers only, so one syncs at a time, and
        // the next one knows of the failure.
        let _syncing = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        self.check()?;
        // Other threads let the file grow meanwhile.
        let size = self.space.file.size()?;
        self.space.file.sync().inspect_err(|_| self.has_failed.store(true, SeqCst))?;
        Ok(size)
    }

    /// Returns the folder of the map, for errors.
    pub(super) fn place(&self) -> Place {
        Place::file(&self.folder.path)
    }

    /// Returns the time in milliseconds since 1970-01-01 UTC. Never goes back, even if the clock does:
    /// an entry that has expired stays so.
    pub(super) fn now(&self) -> u64 {
        let time = self.options.env.clock.unix_time().as_millis() as u64;
        // Most calls are in the millisecond of another one, and need not write.
        match self.latest_time.load(SeqCst) {
            latest if latest >= time => latest,
            _ => self.latest_time.fetch_max(time, SeqCst).max(time),
        }
    }

    /// Returns the number of the next write.
    pub(super) fn next_write(&self) -> u64 {
        self.next_write.load(SeqCst)
    }

    /// Whether this process owns numbers for far more writes than are begun between two calls of
    /// `checkpoint::own_numbers`.
    pub(super) fn owns_numbers(&self) -> bool {
        self.next_write() + WRITES_LOST_MAX / 2 <= self.numbers_end.load(SeqCst)
    }

    /// Whether this process owns no numbers of writes yet.
    pub(super) fn has_no_numbers(&self) -> bool {
        self.numbers_end.load(SeqCst) == 0
    }

    /// Records that this process owns [`WRITES_LOST_MAX`] numbers of writes from `first` on.
    pub(super) fn own_numbers_from(&self, first: u64) {
        self.numbers_end.store(first + WRITES_LOST_MAX, SeqCst);
    }

    /// Lets the numbers of writes go on this much higher.
    pub(super) fn skip_writes(&self, count: u64) {
        self.next_write.fetch_add(count, SeqCst);
    }

    /// Writes blocks that begin at `starts` of the items. Returns their owner and the number of the
    /// write.
    pub(super) fn write_blocks(
        &self,
        kind: BlockKind,
        items: (&[Item], &[u8]),
        starts: &[usize],
    ) -> Result<(Blocks, u64)> {
        let mut out = Buffer::zeroed(starts.len() * BLOCK_SIZE);
        let (blocks, write) = self.encode_blocks(kind, items, starts, &mut out)?;
        self.space.write_at(blocks.offset(), &out)?;
        self.count_blocks(blocks.count);
        Ok((blocks, write))
    }

    /// Writes blocks as [`Core::write_blocks`] does, in the background: they are on the device once the
    /// queue has no write in flight.
    pub(super) fn start_blocks(
        &self,
        queue: &mut WriteQueue,
        kind: BlockKind,
        items: (&[Item], &[u8]),
        starts: &[usize],
    ) -> Result<(Blocks, u64)> {
        let size = starts.len() * BLOCK_SIZE;
        let most = size.max(self.options.shape.span_blocks_max as usize * BLOCK_SIZE);
        let spare = queue.take_buffer().filter(|spare| spare.len() >= size);
        let mut out = spare.unwrap_or_else(|| Buffer::zeroed(most));
        let (blocks, write) = self.encode_blocks(kind, items, starts, &mut out[..size])?;
        let (space, offset) = (self.space.clone(), blocks.offset());
        let started = queue.start(out, move |out| space.write_at(offset, &out[..size]));
        if started.is_err() {
            // The blocks stay taken while a write to them is in flight. The first error tells most.
            let _ = queue.wait_until(0);
        }
        started?;
        self.count_blocks(blocks.count);
        Ok((blocks, write))
    }

    /// Takes blocks that begin at `starts` of the items, and encodes them. Returns their owner and the number
    /// of the write.
    fn encode_blocks(
        &self,
        kind: BlockKind,
        (items, bytes): (&[Item], &[u8]),
        starts: &[usize],
        out: &mut [u8],
    ) -> Result<(Blocks, u64)> {
        let blocks = self.space.take(starts.len() as u64)?;
        let write = self.begin_write();
        for (i, block) in out.chunks_exact_mut(BLOCK_SIZE).enumerate() {
            let end = starts.get(i + 1).copied().unwrap_or(items.len());
            let number = blocks.first + i as u64;
            let id = BlockId { kind, number, file_id: self.identity.id, write };
            encode(&items[starts[i]..end], bytes, id, block);
        }
        Ok((blocks, write))
    }

    /// Writes a large value. It is durable after a sync of the data file.
    pub(super) fn write_large(&self, value: &[u8]) -> Result<(Pointer, Owner)> {
        let numbers = (self.identity.id, self.begin_write());
        let written = large::write(&self.space, numbers, value)?;
        self.count_blocks(written.1.count);
        Ok(written)
    }

    /// Returns the number of a new write.
    ///
    /// # Panics
    /// Before `checkpoint::own_numbers`.
    fn begin_write(&self) -> u64 {
        assert!(!self.has_no_numbers());
        self.next_write.fetch_add(1, SeqCst)
    }

    /// Counts blocks that were written.
    pub(super) fn count_blocks(&self, count: u64) {
        self.counters.blocks_written.fetch_add(count, SeqCst);
    }

    /// Keeps the large values of a change in the log, which begins at this sequence number.
    pub(super) fn keep_logged(&self, seq: u64, owners: impl Iterator<Item = Owner>) {
        let mut owners = owners.peekable();
        // Most changes have no large value, and need no lock.
        if owners.peek().is_some() {
            let mut logged = self.logged.lock().expect("nothing panics under this lock");
            logged.extend(owners.map(|owner| (seq, owner)));
        }
    }

    /// Lets go the large values of changes before this sequence number, which recovery does not
    /// replay any more.
    pub(super) fn forget_logged(&self, seq: u64) {
        let mut logged = self.logged.lock().expect("nothing panics under this lock");
        logged.retain(|(from, _)| *from >= seq);
    }

    /// Applies a change to the list of its group. `owner` is that of a large value. The caller holds
    /// the stripe of the hash.
    pub(super) fn apply(&self, change: Change<'_>, seq: u64, owner: Option<&Owner>) {
        loop {
            let group = self.directory.find(change.hash);
            let mut state = group.state();
            if state.is_replaced {
                continue;
            }
            let before = state.active.memory();
            state.active.apply(change, seq, owner);
            let added = state.active.memory() - before;
            self.counters.buffered_bytes.fetch_add(added, SeqCst);
            return;
        }
    }

    /// Deletes all entries; a checkpoint that frees their space is due. The caller holds `moving` and all
    /// stripes, or replays the log.
    pub(super) fn clear(&self) {
        let prefixes = Prefix::all(self.options.shape.first_depth);
        self.replace_all(prefixes.into_iter().map(Stored::empty));
        self.tasks.needs_checkpoint.store(true, SeqCst);
    }

    /// Replaces all groups, whose entries are gone, by groups that are in order and hold every hash. The
    /// caller holds `moving` and all stripes, or replays the log.
    pub(super) fn replace_all(&self, stored: impl Iterator<Item = Stored>) {
        let seed = self.identity.seed;
        let new = stored.map(|stored| Group::new(stored, seed));
        self.directory.reset(new.collect(), |group| {
            let mut state = group.state();
            self.counters.buffered_bytes.fetch_sub(state.memory(), SeqCst);
            self.counters.packet_bytes.fetch_sub(state.stored.packet_bytes(), SeqCst);
            state.replace_by_nothing(seed);
        });
    }

    /// Whether the map has no entries and no changes, on the device or in RAM.
    pub(super) fn is_empty(&self) -> bool {
        self.directory.map(|group| group.state().is_empty()).into_iter().all(|is_empty| is_empty)
    }

    /// Returns an empty list.
    pub(super) fn new_list(&self) -> List {
        List::new(self.identity.seed)
    }

    pub(super) fn buffered_bytes(&self) -> usize {
        self.counters.buffered_bytes.load(SeqCst)
    }

    /// Returns the memory that lists may take, in bytes: the writes of open transactions take some of it.
    pub(super) fn buffer_bytes_max(&self) -> usize {
        let max = self.options.shape.buffer_bytes;
        max - self.transaction_bytes().min(max / 2)
    }

    /// Returns the memory of open transactions, in bytes.
    pub(super) fn transaction_bytes(&self) -> usize {
        self.counters.transaction_bytes.load(SeqCst)
    }
}

impl Tasks {
    /// Records that a group should be merged.
    pub(super) fn add_merge(&self, start: u64) {
        self.merges.lock().expect("nothing panics under this lock").insert(start);
    }

    /// Takes the first group to be merged.
    pub(super) fn take_merge(&self) -> Option<u64> {
        self.merges.lock().expect("nothing panics under this lock").pop_first()
    }

    pub(super) fn has_merges(&self) -> bool {
        !self.merges.lock().expect("nothing panics under this lock").is_empty()
    }

    /// Records that a span may be copied to another device. Those beyond a maximum are forgotten: they are
    /// recorded again.
    pub(super) fn add_mirror(&self, span: &Arc<Span>) {
        let mut mirrors = self.mirrors.lock().expect("nothing panics under this lock");
        if mirrors.len() < MIRRORS_MAX {
            mirrors.push(Arc::downgrade(span));
        }
        self.has_mirrors.store(true, SeqCst);
    }

    /// Takes a span that may be copied.
    pub(super) fn take_mirror(&self) -> Option<Arc<Span>> {
        let mut mirrors = self.mirrors.lock().expect("nothing panics under this lock");
        let taken = std::iter::from_fn(|| mirrors.pop()).find_map(|span| span.upgrade());
        self.has_mirrors.store(!mirrors.is_empty(), SeqCst);
        taken
    }

    pub(super) fn has_mirrors(&self) -> bool {
        self.has_mirrors.load(SeqCst)
    }

    /// Starts a maintenance job, which is kept to be waited for. The caller has set `is_running`.
    pub(super) fn start_maintenance(&self, start: impl FnOnce() -> Pending<()>) {
        let ended = {
            // A thread that starts the next job waits until this one is kept.
            let mut last = self.maintenance.lock().expect("nothing panics under this lock");
            last.replace(start())
        };
        ended.into_iter().for_each(Pending::wait);
    }

    /// Keeps a commit job to wait for.
    pub(super) fn add_commit(&self, job: Pending<()>) {
        let oldest = {
            let mut commits = self.commits.lock().expect("nothing panics under this lock");
            commits.push_back(job);
            if commits.len() > COMMITS_MAX { commits.pop_front() } else { None }
        };
        // Few commits run at once, so the oldest has ended or will end soon.
        oldest.into_iter().for_each(Pending::wait);
    }

    /// Waits for all jobs.
    pub(super) fn finish(&self) {
        loop {
            let commits =
                std::mem::take(&mut *self.commits.lock().expect("nothing panics under this lock"));
            let last = self.maintenance.lock().expect("nothing panics under this lock").take();
            if commits.is_empty() && last.is_none() {
                return;
            }
            commits.into_iter().chain(last).for_each(Pending::wait);
        }
    }

    /// Keeps the error of a background job.
    pub(super) fn note(&self, result: Result<()>) {
        if let Err(error) = result {
            *self.error.lock().expect("nothing panics under this lock") = Some(error);
        }
    }
}
