//! Imports: the entries of a run become those of a map.
//!
//! A map without entries loads a run in bulk. The run is in the order of hashes, so each group is written once,
//! to free blocks, one after the other, without the log and without merges:
//!
//! ```text
//! run ─→ groups in free blocks ─→ sync ─┬─→ catalog ─→ MANIFEST ─→ lookups use the groups
//!                      writers stop here ┘                      └─ writers go on
//! ```
//!
//! A crash before the manifest is published leaves the map as it was, and the blocks are free. If the map
//! got changes meanwhile, the entries are put, as those of a run for a map that has entries are.

use super::{
    Write,
    checkpoint::{self, give_back_blocks, own_blocks, own_numbers},
    core::Core,
    log, maintain,
    new_groups::NewGroups,
    snapshot,
    span::Stored,
    write,
};
use crate::{
    error::Result,
    run::{Entry, Run},
    wal::PAYLOAD_SIZE_MAX,
    work::Watch,
};
use std::sync::Arc;

/// Maximum number of entries that are put at once.
const ENTRIES_MAX: usize = 4096;

/// An entry of a run, or a deletion.
type Owned = (Vec<u8>, Option<Vec<u8>>);

/// Applies all entries of a run, and makes them durable.
pub(super) fn import(core: &Arc<Core>, run: &mut dyn Run, watch: &Watch) -> Result<()> {
    if run.seed() != core.identity.seed || !core.is_empty() {
        return put_all(core, run, watch);
    }
    core.check()?;
    own_blocks(core)?;
    let loaded = load(core, run, watch).inspect_err(|_| {
        // The error of the load tells more than one of this.
        let _ = give_back_blocks(core);
    })?;
    match loaded {
        Loaded::All => Ok(()),
        Loaded::Nothing(groups) => {
            put_all(core, &mut snapshot::scan_groups(core, groups), &Watch::default())
        }
    }
}

/// The result of a bulk load.
enum Loaded {
    All,
    /// The map got changes meanwhile, and has none of these groups.
    Nothing(Vec<Arc<Stored>>),
}

/// Loads a run in bulk, if the map is empty until its end.
fn load(core: &Core, run: &mut dyn Run, watch: &Watch) -> Result<Loaded> {
    let groups = write_groups(core, run, watch)?;
    Ok(if checkpoint::load(core, &groups)? { Loaded::All } else { Loaded::Nothing(groups) })
}

/// Writes the entries of a run to groups that no catalog names.
fn write_groups(core: &Core, run: &mut dyn Run, watch: &Watch) -> Result<Vec<Arc<Stored>>> {
    let mut groups = NewGroups::new(core);
    let mut steps = watch.steps();
    while run.advance()? {
        let Entry { hash, key, value } = run.entry();
        log::check_sizes(key, value)?;
        own_numbers(core);
        // There is no key that a tombstone could delete.
        if let Some(value) = value {
            groups.put((hash, key), value)?;
        }
        steps.step()?;
    }
    steps.finish()?;
    groups.finish()
}

/// Puts the entries of a run through the log.
fn put_all(core: &Arc<Core>, run: &mut dyn Run, watch: &Watch) -> Result<()> {
    let mut part: Vec<Owned> = Vec::new();
    let mut bytes = 0;
    loop {
        let more = run.advance()?;
        if more {
            let Entry { key, value, .. } = run.entry();
            log::check_sizes(key, value)?;
            bytes += key.len() + value.map_or(0, <[u8]>::len);
            part.push((key.to_vec(), value.map(<[u8]>::to_vec)));
        }
        if !more || part.len() == ENTRIES_MAX || bytes > PAYLOAD_SIZE_MAX / 4 {
            put_part(core, &part)?;
            watch.add(part.len() as u64)?;
            (part, bytes) = (Vec::new(), 0);
        }
        if !more {
            return core.log().commit(core.log().end());
        }
    }
}

/// Puts some entries, in one record of the log.
fn put_part(core: &Arc<Core>, part: &[Owned]) -> Result<()> {
    let change = |(key, value)| Write { key, value, expires_at: None };
    let changes = part.iter().map(|(key, value)| change((key.as_slice(), value.as_deref())));
    let changes: Vec<Write<'_>> = changes.collect();
    if changes.is_empty() {
        return Ok(());
    }
    write::append(core, &write::prepare(core, &changes)?)?;
    maintain::start(core);
    Ok(())
}
