//! Writing: a record in the log, then the lists in RAM.

use super::{
    core::Core,
    log::{self, CHANGE_SIZE_MAX},
    maintain,
    options::Durability,
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
    let payload = encode(changes)?;
    prepare(core)?;
    let held = core.stripes.lock(changes.iter().map(|change| change.hash));
    let seq = write_held(core, held, changes, &payload)?;
    finish(core, seq)
}

/// Encodes changes as a record.
///
/// # Errors
/// `Limit` if a key, a value or the record is too long.
pub(super) fn encode(changes: &[Entry<'_>]) -> Result<Vec<u8>> {
    let mut payload = Vec::new();
    for change in changes {
        log::check_sizes(change.key, change.value)?;
        log::encode(&mut payload, change.key, change.value);
    }
    let (limit, got) = (RECORD_SIZE_MAX as u64, payload.len() as u64);
    if got > limit {
        let what = "size of the changes that are written together in bytes";
        return Err(Error::new(ErrorKind::Limit { what, limit, got }));
    }
    Ok(payload)
}

/// Frees memory for more changes, before stripes are locked.
pub(super) fn prepare(core: &Core) -> Result<()> {
    core.check()?;
    maintain::relieve(core, core.options.shape.buffer_bytes)
}

/// Appends changes to the log and applies them. The stripes of all changes are held.
pub(super) fn write_held(
    core: &Core,
    mut held: Held<'_>,
    changes: &[Entry<'_>],
    payload: &[u8],
) -> Result<u64> {
    let count = changes.len() as u64;
    let end = core.log().append(count, payload)?;
    core.counters.log_bytes.fetch_add(payload.len() as u64, SeqCst);
    for change in changes {
        core.apply(*change, end - count);
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
