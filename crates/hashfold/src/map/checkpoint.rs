//! Checkpoints: a new catalog becomes the current one, and the log gets shorter.
//!
//! 1. Changes in RAM that are older than the goal are written to the data file.
//! 2. With all writers stopped for a moment, the groups and the sequence numbers are taken.
//! 3. The log is committed and the data file is synced; then the catalog is written and synced.
//! 4. The manifest that names the catalog is published, and the folders of other devices get its token.
//! 5. The blocks that only older catalogs name become free, and the log is truncated. If all changes
//!    were written, the log has no segments left.

use super::{
    catalog::{self, Position},
    core::{Core, Published, WRITES_LOST_MAX},
    devices::DATA_NAME,
    log::LOADED_PAYLOAD,
    span::Stored,
};
use crate::{
    error::Result,
    folder::LockedFolder,
    manifest::{FileEntry, Kind, Manifest, Tokens},
};
use std::sync::{Arc, atomic::Ordering::SeqCst};

/// Number of ranges of numbers from which a process chooses if it cannot publish its own.
const JUMPS_MAX: u64 = 1 << 16;

/// The role of the data file in the manifest, and its name.
pub(super) const DATA: &str = "data";
/// The role of the catalog in the manifest.
pub(super) const CATALOG: &str = "catalog";

/// The free blocks of the data file that keep their space on the device after a checkpoint: at most
/// this fraction of the used ones.
const RESERVE_FRACTION: u64 = 4;
/// This fraction if more changes need not follow at once.
const RESERVE_FRACTION_AT_REST: u64 = 16;

/// Which changes a checkpoint writes to the data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    All,
    /// Those in lists with a change before this sequence number.
    Before(u64),
}

/// Makes a checkpoint. `write_lists` writes the changes in RAM that the goal names.
pub(super) fn checkpoint(
    core: &Core,
    goal: Goal,
    write_lists: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let mut published = core.published();
    core.check()?;
    core.log().rotate()?;
    let (before, written) = (core.counters.log_bytes.load(SeqCst), core.log().written_bytes());
    write_lists()?;
    let (position, groups) = capture(core);
    // The catalog may have changes that are newer than others in the log.
    core.log().commit(position.logged)?;
    let data_size = core.sync_data()?;
    publish(core, &mut published, position, (groups, data_size))?;
    core.counters.log_bytes.fetch_sub(before, SeqCst);
    core.counters.log_written.store(written, SeqCst);
    core.counters.checkpoints.fetch_add(1, SeqCst);
    give_back(core, goal, position.seq)
}

/// Makes a checkpoint of an empty map that has these groups from now on. Returns `false`, and changes
/// nothing, if the map is not empty any more. Writers wait until the catalog is published, lookups
/// do not wait.
///
/// # Errors
/// After an error, the map has none of the groups. If the manifest could not be synced, it may have
/// all of them when it is opened again.
pub(super) fn load(core: &Core, groups: &[Arc<Stored>]) -> Result<bool> {
    // Writers need not wait for this sync, which is the longest step.
    core.sync_data()?;
    let mut published = core.published();
    core.check()?;
    let seq = {
        let _moving = core.moving();
        let mut held = core.stripes.lock_all();
        if !core.is_empty() {
            return Ok(false);
        }
        // Transactions that have read that a key is absent conflict with this change.
        let seq = core.log().append(1, LOADED_PAYLOAD)?;
        core.log().commit(seq)?;
        let position = Position { seq, logged: seq, next_write: core.next_write() };
        let data_size = core.sync_data()?;
        publish(core, &mut published, position, (groups.to_vec(), data_size))?;
        core.replace_all(groups.iter().map(|stored| (**stored).clone()));
        held.note_all(seq);
        // The catalog has all changes of the log.
        core.counters.log_bytes.store(0, SeqCst);
        core.counters.log_written.store(core.log().written_bytes(), SeqCst);
        core.counters.checkpoints.fetch_add(1, SeqCst);
        seq
    };
    // The groups are durable. What cannot be given back now is given back by the next checkpoint.
    core.tasks.note(give_back(core, Goal::All, seq));
    Ok(true)
}

/// Gives free blocks that were written in vain back to the file system.
pub(super) fn give_back_blocks(core: &Core) -> Result<()> {
    core.space.punch_holes(RESERVE_FRACTION_AT_REST)
}

/// Gives back the space that the map does not need after a checkpoint. Changes before `seq` are in
/// the catalog.
fn give_back(core: &Core, goal: Goal, seq: u64) -> Result<()> {
    let reserve_fraction = match goal {
        Goal::All => RESERVE_FRACTION_AT_REST,
        Goal::Before(_) => RESERVE_FRACTION,
    };
    if goal == Goal::All {
        core.log().rotate()?;
    }
    core.log().truncate(seq)?;
    if goal == Goal::All {
        core.log().release_spares()?;
    }
    core.space.punch_holes(reserve_fraction)
}

/// Makes the numbers of this process' writes different from those of all other processes, also of
/// such that end or have ended without a checkpoint: a block that was written in vain must not pass
/// for one that is written later. Called before writes, also before later ones: a process that makes no checkpoint
/// may use up its numbers. The caller holds no lock.
pub(super) fn own_numbers(core: &Core) {
    if core.owns_numbers() {
        return;
    }
    let mut published = core.published();
    if core.owns_numbers() {
        return;
    }
    if core.has_no_numbers() {
        // The process before this one has published its numbers, and has used fewer than this.
        core.skip_writes(WRITES_LOST_MAX);
    }
    if publish_again(core, &mut published).is_err() && !core.owns_numbers() {
        // The disk may be full, and the map must open all the same.
        let random = core.options.env.random.next_u64() % JUMPS_MAX;
        core.skip_writes(WRITES_LOST_MAX * (1 + random));
        core.own_numbers_from(core.next_write());
    }
}

/// Makes the folders of other devices those of this process' copy of the first folder, also if that process ends without
/// a checkpoint. Called before a change is in the log; the caller holds no lock.
///
/// # Errors
/// The disk is full, or a device failed. The call can be repeated.
pub(super) fn own_devices(core: &Core) -> Result<()> {
    if core.owns_devices.load(SeqCst) {
        return Ok(());
    }
    own_numbers(core);
    let mut published = core.published();
    match core.owns_devices.load(SeqCst) {
        true => Ok(()),
        false => publish_again(core, &mut published),
    }
}

/// Makes numbers of writes and the folders of other devices those of this process: called before blocks are written, of
/// which a newer manifest in another copy of the first folder must name none. The caller holds no lock.
///
/// # Errors
/// Those of [`own_devices`].
pub(super) fn own_blocks(core: &Core) -> Result<()> {
    own_numbers(core);
    own_devices(core)
}

/// Publishes the groups and the position of the last catalog again.
fn publish_again(core: &Core, published: &mut Published) -> Result<()> {
    let Published { seq, logged, .. } = *published;
    let position = Position { seq, logged, next_write: core.next_write() };
    let groups = published.images.last().expect("the map was opened").clone();
    // The manifest has the size of the file, which must not shrink again.
    let size = core.sync_data()?;
    publish(core, published, position, (groups, size))
}

/// Returns all groups at one moment, and the sequence numbers of the changes in them.
fn capture(core: &Core) -> (Position, Vec<Arc<Stored>>) {
    // No group is merged or split meanwhile.
    let _moving = core.moving();
    let _stripes = core.stripes.lock_all();
    let groups = core.directory.all();
    let logged = core.log().end();
    let seq = groups.iter().map(|group| group.state().first_seq()).min().unwrap_or(logged);
    let stored = groups.iter().map(|group| group.state().stored.clone()).collect();
    let next_write = core.next_write();
    (Position { seq: seq.min(logged), logged, next_write }, stored)
}

/// Publishes a catalog of groups. `data_size` bytes of the data file are durable.
fn publish(
    core: &Core,
    published: &mut Published,
    position: Position,
    (groups, data_size): (Vec<Arc<Stored>>, u64),
) -> Result<()> {
    let LockedFolder { disk, path, .. } = &core.folder;
    mark(core, published)?;
    let generation = published.generation + 1;
    // No two catalogs have the same name, even if the first was not published.
    published.generation = generation;
    let name = catalog::name(generation);
    let size = catalog::write(&**disk, &path.join(&name), core.identity, position, &groups)
        .inspect_err(|_| _ = disk.remove(&path.join(&name)))?;
    let manifest = manifest(core, published, (&name, size), data_size);
    manifest.publish(&**disk, path).inspect_err(|_| {
        let current = Manifest::read(&**disk, path);
        // If the new manifest may be current, the blocks that it names must stay, too.
        if current.is_ok_and(|current| current.generation != generation) {
            let _ = disk.remove(&path.join(&name));
        } else {
            published.images.insert(0, groups.clone());
        }
    })?;
    (published.seq, published.logged) = (position.seq, position.logged);
    core.own_numbers_from(position.next_write);
    (published.token, published.is_marked) = (manifest.tokens.current, core.devices.are_one());
    published.images.push(groups);
    // Until then, an older copy of the first folder may be opened, and needs its blocks.
    mark(core, published)?;
    published.images.drain(..published.images.len() - 1);
    core.owns_devices.store(true, SeqCst);
    core.forget_logged(position.seq);
    // A catalog that cannot be removed now is removed after a later checkpoint.
    let _ = core.folder.remove(|file| catalog::is_catalog(file) && file != name);
    Ok(())
}

/// Gives the token of the current manifest to the folders of all devices, unless they have it.
fn mark(core: &Core, published: &mut Published) -> Result<()> {
    if !published.is_marked {
        core.space.with_room(|| core.devices.mark(core.identity, published.token))?;
        published.is_marked = true;
    }
    Ok(())
}

/// Returns the next manifest, which names a catalog: its name and its size in bytes.
fn manifest(core: &Core, published: &Published, catalog: (&str, u64), data_size: u64) -> Manifest {
    let tokens = match core.devices.are_one() {
        true => Tokens::default(),
        false => Tokens { current: core.options.env.random.next_u64(), before: published.token },
    };
    let entry =
        |role: &str, name: &str, size| FileEntry { role: role.into(), name: name.into(), size };
    Manifest {
        kind: Kind::Map,
        seed: core.identity.seed,
        id: core.identity.id,
        generation: published.generation,
        files: vec![entry(DATA, DATA_NAME, data_size), entry(CATALOG, catalog.0, catalog.1)],
        attributes: core.attributes.clone(),
        devices: core.devices.paths(),
        tokens,
    }
}

/// Publishes the first catalog of a new map.
pub(super) fn publish_first(core: &Core, groups: Vec<Arc<Stored>>) -> Result<()> {
    let data_size = core.sync_data()?;
    core.folder.sync_above()?;
    let position = Position { seq: 0, logged: 0, next_write: core.next_write() };
    publish(core, &mut core.published(), position, (groups, data_size))
}
