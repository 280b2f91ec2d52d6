//! Maintenance: flushes when RAM is full, merges that are due, checkpoints.

use super::{
    block::BLOCK_SIZE,
    checkpoint::{self, Goal, give_back_blocks, own_blocks, own_numbers},
    contract::contract,
    core::Core,
    flush::{flush, is_crowded},
    group::Group,
    merge::merge,
    mirroring,
};
use crate::{
    error::{Error, ErrorKind, Result},
    key::KeyHash,
    work::Pending,
};
use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering::SeqCst},
};

/// Flushes in the background begin when this part of the buffer is full, in quarters.
const START_QUARTERS: usize = 3;
/// Number of times that a checkpoint looks for old lists.
const PASSES_MAX: usize = 2;
/// A checkpoint is due when the log has taken this many times the size on the device from which on its
/// changes cause one. A commit takes at least 4 KiB, so the log of changes that are synced one by one
/// is large long before its changes are many; a checkpoint for few changes costs much for each of them.
const PADDING_MAX: u64 = 4;

/// Whether there is work for [`start`].
fn is_due(core: &Core) -> bool {
    is_buffer_filling(core)
        || core.tasks.has_merges()
        || core.tasks.has_mirrors()
        || core.tasks.flush_before.load(SeqCst) > 0
        || is_log_long(core)
        || core.tasks.needs_checkpoint.load(SeqCst)
}

fn is_buffer_filling(core: &Core) -> bool {
    core.buffered_bytes() > core.buffer_bytes_max() / 4 * START_QUARTERS
}

fn is_log_long(core: &Core) -> bool {
    // A checkpoint that ends meanwhile may have counted more.
    let written = core.log().written_bytes();
    let written = written.saturating_sub(core.counters.log_written.load(SeqCst));
    core.counters.log_bytes.load(SeqCst) > core.options.wal_bytes
        || written / PADDING_MAX > core.options.wal_bytes
}

/// Starts a background job if there is work and none is running.
pub(super) fn start(core: &Arc<Core>) {
    if !is_due(core) || core.tasks.is_running.swap(true, SeqCst) {
        return;
    }
    let shared = core.clone();
    let job = move || {
        shared.tasks.note(caught(|| run(&shared)));
        shared.tasks.is_running.store(false, SeqCst);
    };
    core.tasks.start_maintenance(|| Pending::start(&*core.options.env.executor, job));
}

/// Returns a panic of maintenance as an error. The structure changes in single steps, and is sound.
fn caught(work: impl FnOnce() -> Result<()>) -> Result<()> {
    let job = "maintenance of the map";
    let done = catch_unwind(AssertUnwindSafe(work));
    done.unwrap_or_else(|_| Err(ErrorKind::Panicked { job }.into()))
}

/// Does all work that is due.
fn run(core: &Core) -> Result<()> {
    while is_due(core) {
        if is_buffer_filling(core) {
            relieve(core, core.buffer_bytes_max() / 4 * (START_QUARTERS - 1))?;
        } else if let Some(start) = core.tasks.take_merge() {
            merge_at(core, start)?;
        } else if core.tasks.has_mirrors() {
            // Without a copy, reads go on as before.
            let copied = core.tasks.take_mirror().map_or(Ok(()), |span| {
                own_blocks(core)?;
                mirroring::copy(core, &span)
            });
            core.tasks.note(copied);
        } else if core.tasks.flush_before.load(SeqCst) > 0 {
            own_numbers(core);
            write_older(core, core.tasks.flush_before.swap(0, SeqCst))?;
        } else if core.tasks.needs_checkpoint.load(SeqCst) {
            checkpoint(core, Goal::All)?;
        } else {
            let seq = core.published().seq;
            let middle = seq.midpoint(core.log().end());
            checkpoint(core, Goal::Before(middle))?;
        }
        relieve_packets(core);
    }
    Ok(())
}

/// Merges the group that begins at a hash, given by its high 64 bits, if there is one.
fn merge_at(core: &Core, start: u64) -> Result<()> {
    own_blocks(core)?;
    let _moving = core.moving();
    let group = core.directory.find(KeyHash::from_bits(u128::from(start) << u64::BITS));
    // Groups that were joined or split meanwhile are merged already.
    if group.prefix.start == start { merge_and_join(core, &group) } else { Ok(()) }
}

/// Merges a group, and joins it with its neighbours if they are small. The caller holds `moving`.
fn merge_and_join(core: &Core, group: &Arc<Group>) -> Result<()> {
    merge(core, group)?;
    contract(core, group);
    Ok(())
}

/// Flushes the groups with the most changes in RAM until these take at most `goal` bytes.
///
/// # Errors
/// After an error, all changes are still there.
pub(super) fn relieve(core: &Core, goal: usize) -> Result<()> {
    // The groups to be written, those with the fewest changes first.
    let mut groups: Vec<Arc<Group>> = Vec::new();
    while core.buffered_bytes() > goal {
        own_numbers(core);
        // If another thread is writing, its progress may suffice. Each lock is held for one flush or
        // one merge.
        let Some(_moving) = core.moving_or_released() else { continue };
        if !write_fullest(core, &mut groups, Crowded::Merge)? {
            break;
        }
    }
    Ok(())
}

/// Flushes the groups with the most changes in RAM if these take too much. The caller holds `moving`, and has called
/// `own_numbers` before.
///
/// # Errors
/// After an error, all changes are still there.
pub(super) fn relieve_moving(core: &Core, crowded: Crowded) -> Result<()> {
    let max = core.buffer_bytes_max();
    if core.buffered_bytes() <= max {
        return Ok(());
    }
    let (goal, mut groups) = (max / 4 * (START_QUARTERS - 1), Vec::new());
    // The caller may hold locks under which nothing panics.
    caught(|| {
        while core.buffered_bytes() > goal && write_fullest(core, &mut groups, crowded)? {}
        relieve_packets_moving(core);
        Ok(())
    })
}

/// The treatment of groups that have many packets when changes in RAM are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crowded {
    /// Merge them.
    Merge,
    /// Flush them as other groups: on a disk that is nearly full, merges may take the space that packets need.
    Flush,
}

/// Returns the groups with changes in RAM, those with the most last.
fn fullest(core: &Core) -> Vec<Arc<Group>> {
    let mut groups = core.directory.all();
    groups.retain(|group| group.state().memory() > 0);
    groups.sort_by_cached_key(|group| group.state().memory());
    groups
}

/// Writes the changes in RAM of some of the groups with the most: the last ones of `groups`, which are found if
/// there are none. Returns whether there were some. The caller holds `moving`.
fn write_fullest(core: &Core, groups: &mut Vec<Arc<Group>>, crowded: Crowded) -> Result<bool> {
    if groups.is_empty() {
        *groups = fullest(core);
    }
    if groups.is_empty() {
        return Ok(false);
    }
    write_some(core, groups, crowded)?;
    Ok(true)
}

/// Writes the changes in RAM of the last ones of these groups, and removes them: one flush, or one merge if
/// the last one is crowded. The caller holds `moving`.
fn write_some(core: &Core, groups: &mut Vec<Arc<Group>>, crowded: Crowded) -> Result<()> {
    let must_merge = |group: &Group| crowded == Crowded::Merge && is_crowded(core, group);
    if let Some(group) = groups.pop_if(|group| must_merge(group)) {
        let Err(error) = merge_and_join(core, &group) else { return Ok(()) };
        // A block that cannot be read must not stop changes. The group gets slower.
        core.tasks.note(Err(error));
        return flush(core, &[group]);
    }
    let goal = core.options.shape.flush_blocks * BLOCK_SIZE as u64;
    let (mut flushed, mut others, mut bytes) = (Vec::new(), Vec::new(), 0);
    while bytes < goal
        && let Some(group) = groups.pop()
    {
        match must_merge(&group) {
            true => others.push(group),
            false => {
                bytes += group.state().buffered_bytes();
                flushed.push(group);
            }
        }
    }
    groups.extend(others.into_iter().rev());
    flushed.sort_by_key(|group| group.prefix.start);
    flush(core, &flushed)
}

/// Whether packets take more memory than they may.
fn has_too_many_packets(core: &Core) -> bool {
    core.counters.packet_bytes.load(SeqCst) > core.options.shape.packet_bytes
}

/// Returns all groups, those with the largest packets first.
fn largest_packets(core: &Core) -> Vec<Arc<Group>> {
    let mut groups = core.directory.all();
    groups.sort_by_cached_key(|group| u64::MAX - group.state().stored.packet_bytes());
    groups
}

/// Merges the groups whose packets take the most memory, until all packets together take no more than they
/// may. Errors are noted: the changes of the groups are on the device already.
pub(super) fn relieve_packets(core: &Core) {
    if !has_too_many_packets(core) {
        return;
    }
    own_numbers(core);
    for group in largest_packets(core).iter().take_while(|_| has_too_many_packets(core)) {
        let _moving = core.moving();
        core.tasks.note(merge_and_join(core, group));
    }
}

/// Does what [`relieve_packets`] does for a caller that holds `moving`, and has called `own_numbers` before. On a full
/// disk, the first merge that fails is the last.
fn relieve_packets_moving(core: &Core) {
    if has_too_many_packets(core) {
        for group in largest_packets(core).iter().take_while(|_| has_too_many_packets(core)) {
            let merged = merge_and_join(core, group);
            let is_full = merged.as_ref().is_err_and(Error::is_full);
            core.tasks.note(merged);
            if is_full {
                return;
            }
        }
    }
}

/// Writes the changes in RAM that are older than the goal, then a catalog.
pub(super) fn checkpoint(core: &Core, goal: Goal) -> Result<()> {
    own_blocks(core)?;
    collect(core);
    relieve_packets(core);
    // Keys that are deleted meanwhile need another checkpoint.
    let is_needed = goal == Goal::All && core.tasks.needs_checkpoint.swap(false, SeqCst);
    let made = checkpoint::checkpoint(core, goal, || {
        let seq = match goal {
            Goal::All => core.log().end(),
            Goal::Before(seq) => seq,
        };
        // A split by another thread may move lists to groups that the first pass does not know.
        (0..PASSES_MAX).try_for_each(|_| write_older(core, seq))
    });
    made.inspect_err(|_| _ = core.tasks.needs_checkpoint.fetch_or(is_needed, SeqCst))
}

/// Takes a step that needs space. If the disk is full, a checkpoint gives back the space of segments of the log that have ended,
/// and the step is tried again. The caller holds no lock; a step that fails changes nothing.
pub(super) fn with_space_of_log<T>(core: &Core, step: impl Fn() -> Result<T>) -> Result<T> {
    match step() {
        Err(error) if error.is_full() && shorten_log(core) => step(),
        done => done,
    }
}

/// Makes a checkpoint if that frees segments of the log. Returns whether it succeeded. After a failure, it is not tried again
/// until more is logged, so that writes to a full disk fail fast.
fn shorten_log(core: &Core) -> bool {
    let logged = core.log().end();
    if !core.log().has_ended_segments() || core.tasks.full_at.load(SeqCst) == logged {
        return false;
    }
    let mut made = checkpoint(core, Goal::All);
    if made.as_ref().is_err_and(Error::is_full) {
        // The catalog may find space that the log and the data file have in reserve.
        let released = core.log().release_spares();
        made = released
            .and_then(|()| give_back_blocks(core))
            .and_then(|()| checkpoint(core, Goal::All));
    }
    let is_made = made.is_ok();
    if !is_made {
        core.tasks.full_at.store(logged, SeqCst);
    }
    core.tasks.note(made);
    is_made
}

/// Makes merges due that remove many expired entries; and those that free blocks of packets, if more
/// than half of the bytes in such blocks are dead: other groups had packets there, and were merged.
fn collect(core: &Core) {
    let now = core.now();
    let mut blocks: HashMap<u64, (u64, Vec<u64>)> = HashMap::new();
    for group in core.directory.all() {
        let stored = group.state().stored.clone();
        if stored.is_stale(now) {
            core.tasks.add_merge(group.prefix.start);
        }
        for packet in &stored.packets {
            let (live, owners) = blocks.entry(packet.block.first).or_default();
            *live += packet.sizes.bytes;
            owners.push(group.prefix.start);
        }
    }
    let block_size = BLOCK_SIZE as u64;
    let live: u64 = blocks.values().map(|(live, _)| live).sum();
    let limit = 2 * live + core.options.shape.flush_blocks * block_size;
    let excess = (blocks.len() as u64 * block_size).saturating_sub(limit);
    let mut emptiest: Vec<_> = blocks.into_values().collect();
    emptiest.sort_by_key(|(live, _)| *live);
    for (_, owners) in emptiest.iter().take((excess / block_size) as usize) {
        owners.iter().for_each(|start| core.tasks.add_merge(*start));
    }
}

/// Writes the lists with a change before this sequence number.
fn write_older(core: &Core, seq: u64) -> Result<()> {
    let mut groups = core.directory.all();
    groups.retain(|group| group.state().first_seq() < seq);
    while !groups.is_empty() {
        let _moving = core.moving();
        write_some(core, &mut groups, Crowded::Merge)?;
    }
    Ok(())
}

/// Merges all groups, so that the map is spans only, and joins small ones.
pub(super) fn merge_all(core: &Core) -> Result<()> {
    own_blocks(core)?;
    for group in core.directory.all() {
        let _moving = core.moving();
        merge(core, &group)?;
    }
    for group in core.directory.all() {
        let _moving = core.moving();
        contract(core, &group);
    }
    Ok(())
}
