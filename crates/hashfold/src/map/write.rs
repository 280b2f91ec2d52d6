//! Writing: a record in the log, then the lists in RAM.

use super::{
    block::BLOCK_SIZE,
    checkpoint::{own_devices, own_numbers},
    core::Core,
    item::{Change, Content, Item, Value},
    large::Owner,
    log::{self, CHANGE_SIZE_MAX, PART_SIZE_MAX, Part, RECORD_SIZE_MAX},
    maintain::{self, Crowded, with_space_of_log},
    options::Durability,
    pointer::INLINE_BYTES_MAX,
    space::Blocks,
    stripes::Held,
};
use crate::{
    error::{Error, ErrorKind, Result},
    key::KeyHash,
    wal::PAYLOAD_SIZE_MAX,
    work::Pending,
};
use std::{
    fmt,
    ops::Range,
    sync::{Arc, atomic::Ordering::SeqCst},
};

/// Maximum size of all encoded changes of a record, in bytes.
pub(super) const CHANGES_SIZE_MAX: usize = if cfg!(test) { 640 << 10 } else { 1 << 30 };
// The places of all parts fit in a record, also if each part has a change less than would fit, and the rest.
const _: () = assert!(
    CHANGES_SIZE_MAX / (RECORD_SIZE_MAX - CHANGE_SIZE_MAX) * PART_SIZE_MAX + 1 + INLINE_BYTES_MAX
        < PAYLOAD_SIZE_MAX
);

/// A change of one key, for [`Map::write`](super::Map::write).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// The key, at most [`KEY_BYTES_MAX`](super::KEY_BYTES_MAX) bytes.
    pub key: &'a [u8],
    /// The value, at most [`VALUE_BYTES_MAX`](super::VALUE_BYTES_MAX) bytes; `None` deletes the key.
    pub value: Option<&'a [u8]>,
    /// The time from which on the entry is absent, in milliseconds since 1970-01-01 UTC; `None` if
    /// the entry does not expire. A deletion ignores it.
    pub expires_at: Option<u64>,
}

impl<'a> Write<'a> {
    /// Makes the change that puts a value without an expiry.
    pub const fn put(key: &'a [u8], value: &'a [u8]) -> Write<'a> {
        Write { key, value: Some(value), expires_at: None }
    }

    /// Makes the change that deletes a key.
    pub const fn delete(key: &'a [u8]) -> Write<'a> {
        Write { key, value: None, expires_at: None }
    }

    /// Returns the maximum number of bytes that this change takes of
    /// [`Map::WRITE_BYTES_MAX`](super::Map::WRITE_BYTES_MAX).
    pub fn size(&self) -> usize {
        log::size_max(self.key, self.value)
    }
}

/// Applies changes, all or none of them. Returns the sequence number after them.
pub(super) fn write(core: &Arc<Core>, changes: &[Write<'_>]) -> Result<u64> {
    if changes.is_empty() {
        return Ok(core.log().end());
    }
    apply(core, &prepare(core, changes)?)
}

/// Changes that [`Map::prepare`](super::Map::prepare) has made ready: their large values are on the
/// device. Dropping them without [`Prepared::apply`] changes nothing.
pub struct Prepared<'a> {
    pub(super) core: &'a Arc<Core>,
    pub(super) record: Record<'a>,
}

impl Prepared<'_> {
    /// Applies the changes, all of them or none, in one record of the log. Returns the sequence number
    /// after them. They are durable as the options say.
    ///
    /// # Errors
    /// The errors of [`Map::put`](super::Map::put), but for `Limit`.
    pub fn apply(self) -> Result<u64> {
        apply(self.core, &self.record)
    }
}

impl fmt::Debug for Prepared<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prepared({} changes)", self.record.count())
    }
}

/// Changes that are ready for the log.
pub(super) struct Record<'a> {
    /// Whether all keys are deleted before these changes.
    clears: bool,
    changes: Vec<(Change<'a>, Option<Owner>)>,
    /// The encoded changes, or the places of their parts.
    payload: Vec<u8>,
    /// Owners of the blocks of the parts.
    parts: Vec<Owner>,
}

impl Record<'_> {
    /// Returns the number of changes in the log.
    fn count(&self) -> u64 {
        self.changes.len() as u64 + u64::from(self.clears)
    }

    /// Returns the hashes of the changes.
    pub(super) fn hashes(&self) -> impl Iterator<Item = KeyHash> {
        self.changes.iter().map(|(change, _)| change.hash)
    }

    /// Whether the changes are in parts. Such a record is written by a holder of `moving`.
    pub(super) fn is_long(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Returns the owners of large values and of parts.
    fn owners(&self) -> impl Iterator<Item = Owner> {
        let of_values = self.changes.iter().filter_map(|(_, owner)| owner.clone());
        of_values.chain(self.parts.iter().cloned())
    }

    /// Writes encoded changes to blocks of their own, as a part of the record.
    fn add_part(&mut self, core: &Core, bytes: &[u8], count: u64) -> Result<()> {
        let (pointer, owner) = core.write_large(bytes)?;
        log::encode_part(&mut self.payload, Part { count, pointer });
        self.parts.push(owner);
        Ok(())
    }

    /// Returns the size of the changes and of their large values, in bytes.
    fn size(&self) -> u64 {
        let blocks: u64 = self.owners().map(|owner| owner.count).sum();
        self.payload.len() as u64 + blocks * BLOCK_SIZE as u64
    }
}

/// Frees memory for changes, writes their large values, and encodes them as a record; before
/// stripes are locked.
///
/// # Errors
/// `Limit` if a key, a value or the record is too long.
pub(super) fn prepare<'a>(core: &Core, changes: &[Write<'a>]) -> Result<Record<'a>> {
    check(core, changes)?;
    with_space_of_log(core, || {
        if !changes.is_empty() {
            own_devices(core)?;
        }
        maintain::relieve(core, core.buffer_bytes_max())?;
        encode(core, false, changes)
    })
}

/// Makes the record that deletes all keys, and then makes changes, as [`prepare`] does. Needs no
/// memory to be freed, since the deletion does that, also when the disk is full.
///
/// # Errors
/// The errors of [`prepare`].
pub(super) fn prepare_cleared<'a>(core: &Core, changes: &[Write<'a>]) -> Result<Record<'a>> {
    check(core, changes)?;
    with_space_of_log(core, || {
        own_devices(core)?;
        encode(core, true, changes)
    })
}

/// Refuses changes with a key or a value that is too long, too many of them, and all after a failure.
fn check(core: &Core, changes: &[Write<'_>]) -> Result<()> {
    changes.iter().try_for_each(|change| log::check_sizes(change.key, change.value))?;
    let (limit, got) = (CHANGES_SIZE_MAX as u64, size_of_changes(changes) as u64);
    if got > limit {
        let what = "size of the changes that are written together in bytes";
        return Err(Error::new(ErrorKind::Limit { what, limit, got }));
    }
    core.check()
}

/// Returns the maximum size of encoded changes, in bytes.
fn size_of_changes(changes: &[Write<'_>]) -> usize {
    changes.iter().map(Write::size).sum()
}

/// Writes the large values of changes, and encodes the changes as a record. `clears` says whether all keys are
/// deleted before.
fn encode<'a>(core: &Core, clears: bool, changes: &[Write<'a>]) -> Result<Record<'a>> {
    let payload = if clears { log::CLEAR_PAYLOAD.to_vec() } else { Vec::new() };
    let size = size_of_changes(changes);
    let is_long = payload.len() + size > RECORD_SIZE_MAX;
    let mut record = Record { clears, changes: Vec::new(), payload, parts: Vec::new() };
    let is_large = |value: &[u8]| value.len() > INLINE_BYTES_MAX;
    if is_long || changes.iter().any(|change| change.value.is_some_and(is_large)) {
        own_numbers(core);
    }
    record.changes.reserve_exact(changes.len());
    let (mut bytes, mut count) = (Vec::with_capacity(size.min(RECORD_SIZE_MAX)), 0);
    for change in changes {
        if is_long && bytes.len() + change.size() > RECORD_SIZE_MAX {
            record.add_part(core, &bytes, count)?;
            bytes.clear();
            count = 0;
        }
        let (change, owner) = write_large(core, *change)?;
        log::encode(&mut bytes, change.key, change.content);
        record.changes.push((change, owner));
        count += 1;
    }
    // A large value has a minimum size.
    match is_long && bytes.len() > INLINE_BYTES_MAX {
        true => record.add_part(core, &bytes, count)?,
        false if record.payload.is_empty() => record.payload = bytes,
        false => record.payload.append(&mut bytes),
    }
    if record.owners().next().is_some() {
        // The log may become durable from the moment on that it points to the values.
        core.sync_data()?;
    }
    Ok(record)
}

/// Writes the value of a change to blocks of its own if it is large.
fn write_large<'a>(core: &Core, change: Write<'a>) -> Result<(Change<'a>, Option<Owner>)> {
    let Write { key, value, expires_at } = change;
    let (content, owner) = match value {
        None => (Content::TOMBSTONE, None),
        Some(value) if value.len() > INLINE_BYTES_MAX => {
            let (pointer, owner) = core.write_large(value)?;
            (Content { value: Value::Large(pointer), expires_at }, Some(owner))
        }
        Some(value) => (Content { value: Value::Inline(value), expires_at }, None),
    };
    Ok((Change { hash: KeyHash::of(key, core.identity.seed), key, content }, owner))
}

/// Appends a record to the log, applies it and makes it durable as the options say. Returns the
/// sequence number after it.
fn apply(core: &Arc<Core>, record: &Record<'_>) -> Result<u64> {
    if record.count() == 0 {
        return Ok(core.log().end());
    }
    finish(core, append(core, record)?, core.options.durability)
}

/// Appends a record to the log, and applies it. Returns the sequence number after it.
pub(super) fn append(core: &Core, record: &Record<'_>) -> Result<u64> {
    with_space_of_log(core, || {
        if record.clears {
            // No group is merged or split meanwhile.
            let _moving = core.moving();
            return write_held(core, core.stripes.lock_all(), record);
        }
        let _moving = record.is_long().then(|| core.moving());
        write_held(core, core.stripes.lock(record.hashes()), record)
    })
}

/// Appends changes to the log and applies them. The stripes of all changes are held; if they clear
/// the map, all stripes and `moving`; if the record is long, `moving`.
pub(super) fn write_held(core: &Core, held: Held<'_>, record: &Record<'_>) -> Result<u64> {
    let seqs = log_record(core, (record.count(), &record.payload), record.owners())?;
    core.counters.log_bytes.fetch_add(record.size(), SeqCst);
    let relieves_above = record.is_long().then_some(0);
    let reserve = Reserve::default();
    let mut applying = Applying { core, held, seqs, notes: true, relieves_above, reserve };
    if record.clears {
        core.clear();
        applying.held.note_all(applying.seqs.end);
    }
    for (change, owner) in &record.changes {
        // Without a flush, the changes that follow take memory above the budget: they are in memory already.
        let _ = applying.apply(*change, owner.as_ref());
    }
    Ok(applying.seqs.end)
}

/// Appends a record to the log: its number of changes and its payload. Returns the sequence numbers of its changes.
/// The log keeps the owners. The stripes of all changes are held, so that another record which could be applied in part
/// only is known: what was read of it must not decide about this one.
pub(super) fn log_record(
    core: &Core,
    (count, payload): (u64, &[u8]),
    owners: impl Iterator<Item = Owner>,
) -> Result<Range<u64>> {
    core.check_whole()?;
    // After an error, the log does not have the record.
    let end = core.log().append(count, payload)?;
    core.keep_logged(end - count, owners);
    Ok(end - count..end)
}

/// A record in the log whose changes are being applied.
pub(super) struct Applying<'a> {
    pub(super) core: &'a Core,
    /// The stripes of all changes.
    pub(super) held: Held<'a>,
    /// Sequence numbers of the record.
    pub(super) seqs: Range<u64>,
    /// Whether each change is recorded for open transactions.
    pub(super) notes: bool,
    /// The size of all lists above which they are flushed, if that is too much; `moving` is held then.
    pub(super) relieves_above: Option<usize>,
    pub(super) reserve: Reserve,
}

/// Blocks that are kept for packets while a record is applied: merges and other writers do not use them up. Only what the
/// file system has given to free blocks before is certain: some may be holes, for which the disk may have no space left.
#[derive(Debug, Default)]
pub(super) struct Reserve {
    blocks: Vec<Blocks>,
    /// Number of extents in `blocks` that are kept to the end, for the changes that are in RAM.
    kept: usize,
    /// Bytes of changes for which each other extent is kept.
    bytes_each: u64,
    /// Bytes of changes that are not applied yet.
    bytes_left: u64,
    /// Whether the blocks were needed: the disk is full.
    is_used: bool,
}

/// Bytes that a change takes in a packet, but for its key, its value and its expiry: at most.
const PACKED_FIELDS: usize = 2;

impl Reserve {
    /// Takes blocks for about as many packets as these changes will become, `bytes` in the log: a disk that is nearly full
    /// must be noticed before the log has the record.
    pub(super) fn take(core: &Core, changes: u64, bytes: u64) -> Result<Reserve> {
        let shape = &core.options.shape;
        // Its blocks are not full.
        let extents =
            |bytes: u64| (bytes + bytes / 8).div_ceil(shape.flush_blocks * BLOCK_SIZE as u64);
        let bytes = bytes + PACKED_FIELDS as u64 * changes;
        let (kept, others) = (extents(shape.buffer_bytes as u64), extents(bytes));
        let take = |_| core.space.take(shape.flush_blocks + 1);
        let blocks = (0..kept + others).map(take).collect::<Result<_>>()?;
        let bytes_each = bytes.div_ceil(others.max(1));
        Ok(Reserve { blocks, kept: kept as usize, bytes_each, bytes_left: bytes, is_used: false })
    }

    /// Lets go the blocks that are not needed for the changes after this one.
    fn shrink(&mut self, change: Change<'_>) {
        let bytes = Item::new(change, 0).size() + PACKED_FIELDS;
        self.bytes_left = self.bytes_left.saturating_sub(bytes as u64);
        while !self.is_used
            && self.blocks.len().saturating_sub(self.kept) as u64 * self.bytes_each
                > self.bytes_left + self.bytes_each
        {
            self.blocks.pop();
        }
    }

    /// Flushes lists that take too much memory: without merges if the blocks are needed for that, of which as many are let
    /// go as half of the lists need.
    fn relieve(&mut self, core: &Core) -> Result<()> {
        if !self.is_used {
            let relieved = maintain::relieve_moving(core, Crowded::Merge);
            if relieved.is_ok() || self.blocks.is_empty() {
                return relieved;
            }
            self.is_used = true;
        }
        if core.buffered_bytes() > core.buffer_bytes_max() {
            self.blocks.truncate(self.blocks.len().saturating_sub(self.kept / 2 + 1));
        }
        maintain::relieve_moving(core, Crowded::Flush)
    }
}

impl Applying<'_> {
    /// Applies a change. Returns the error of a flush for which the lists take too much memory; the change is applied all
    /// the same, and flushes are tried again when the lists have grown.
    pub(super) fn apply(&mut self, change: Change<'_>, owner: Option<&Owner>) -> Result<()> {
        let core = self.core;
        core.apply(change, self.seqs.start, owner);
        if self.notes {
            self.held.note(change.hash, self.seqs.end);
        }
        self.reserve.shrink(change);
        if self.relieves_above.is_none_or(|size| core.buffered_bytes() <= size) {
            return Ok(());
        }
        let relieved = self.reserve.relieve(core);
        let failed = relieved.is_err().then(|| core.buffered_bytes() + core.buffer_bytes_max() / 4);
        self.relieves_above = Some(failed.unwrap_or(0));
        core.tasks.note(relieved.clone());
        relieved
    }
}

/// Makes changes durable, and starts background work.
pub(super) fn finish(core: &Arc<Core>, seq: u64, durability: Durability) -> Result<u64> {
    match durability {
        Durability::Immediate => core.log().commit(seq)?,
        Durability::Group => start_commit(core),
        Durability::Buffered => {}
    }
    maintain::start(core);
    Ok(seq)
}

/// Starts a commit in the background, unless one will begin soon.
fn start_commit(core: &Arc<Core>) {
    if core.tasks.is_committing.swap(true, SeqCst) {
        return;
    }
    let shared = core.clone();
    let job = Pending::start(&*core.options.env.executor, move || {
        // Changes from now on need another job.
        shared.tasks.is_committing.store(false, SeqCst);
        let log = shared.log();
        shared.tasks.note(log.commit(log.end()));
    });
    core.tasks.add_commit(job);
}
