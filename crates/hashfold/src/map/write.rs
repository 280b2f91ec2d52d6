//! Writing: a record in the log, then the lists in RAM.

use super::{
    block::BLOCK_SIZE,
    core::Core,
    item::{Change, Value},
    large::Owner,
    log::{self, CHANGE_SIZE_MAX},
    maintain,
    options::Durability,
    pointer::INLINE_BYTES_MAX,
    stripes::Held,
};
use crate::{
    error::{Error, ErrorKind, Result},
    run::Entry,
    wal::PAYLOAD_SIZE_MAX,
    work::Pending,
};
use std::sync::{Arc, atomic::Ordering::SeqCst};

/// Maximum size of the encoded changes that are written as one record, in bytes.
pub(super) const RECORD_SIZE_MAX: usize = PAYLOAD_SIZE_MAX;
const _: () = assert!(CHANGE_SIZE_MAX <= RECORD_SIZE_MAX);

/// Applies changes, all or none of them. Returns the sequence number after them.
pub(super) fn write(core: &Arc<Core>, changes: &[Entry<'_>]) -> Result<u64> {
    let record = prepare(core, changes)?;
    let held = core.stripes.lock(changes.iter().map(|change| change.hash));
    let seq = write_held(core, held, &record)?;
    finish(core, seq)
}

/// Changes that are ready for the log.
pub(super) struct Record<'a> {
    changes: Vec<(Change<'a>, Option<Owner>)>,
    payload: Vec<u8>,
}

impl Record<'_> {
    fn owners(&self) -> impl Iterator<Item = Owner> {
        self.changes.iter().filter_map(|(_, owner)| owner.clone())
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
pub(super) fn prepare<'a>(core: &Core, changes: &[Entry<'a>]) -> Result<Record<'a>> {
    changes.iter().try_for_each(|change| log::check_sizes(change.key, change.value))?;
    core.check()?;
    maintain::relieve(core, core.options.shape.buffer_bytes)?;
    let mut record = Record { changes: Vec::new(), payload: Vec::new() };
    for change in changes {
        let (change, owner) = write_large(core, *change)?;
        log::encode(&mut record.payload, change.key, change.value);
        record.changes.push((change, owner));
    }
    check_payload(&record.payload)?;
    if record.owners().next().is_some() {
        // The log may become durable from the moment on that it points to the values.
        core.space.file.sync().inspect_err(|_| core.fail())?;
    }
    Ok(record)
}

/// Writes the value of a change to blocks of its own if it is large.
fn write_large<'a>(core: &Core, change: Entry<'a>) -> Result<(Change<'a>, Option<Owner>)> {
    match change.value {
        Some(value) if value.len() > INLINE_BYTES_MAX => {
            let (pointer, owner) = core.write_large(value)?;
            let Entry { hash, key, .. } = change;
            Ok((Change { hash, key, value: Value::Large(pointer) }, Some(owner)))
        }
        _ => Ok((change.into(), None)),
    }
}

fn check_payload(payload: &[u8]) -> Result<()> {
    let (limit, got) = (RECORD_SIZE_MAX as u64, payload.len() as u64);
    if got > limit {
        let what = "size of the changes that are written together in bytes";
        return Err(Error::new(ErrorKind::Limit { what, limit, got }));
    }
    Ok(())
}

/// Appends changes to the log and applies them. The stripes of all changes are held.
pub(super) fn write_held(core: &Core, mut held: Held<'_>, record: &Record<'_>) -> Result<u64> {
    let count = record.changes.len() as u64;
    let appended = core.log().append(count, &record.payload);
    // After a failure, the record may be in the log all the same.
    let seq = appended.as_ref().map_or_else(|_| core.log().end(), |end| end - count);
    core.keep_logged(seq, record.owners());
    let end = appended?;
    core.counters.log_bytes.fetch_add(record.size(), SeqCst);
    for (change, owner) in &record.changes {
        core.apply(*change, seq, owner.as_ref());
        held.note(change.hash, end);
    }
    Ok(end)
}

/// Makes changes durable as the options say, and starts background work.
pub(super) fn finish(core: &Arc<Core>, seq: u64) -> Result<u64> {
    match core.options.durability {
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
    core.tasks.add_job(job);
}
