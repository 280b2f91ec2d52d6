//! Entries in the order of their hashes, a page at a time, and their number. Nothing is written,
//! and no other thread waits for a read.

use super::{
    Expiring,
    core::Core,
    item::{Change, Value},
    lookup::resolve,
    read::{Entries, Part},
    sizes::EntryBounds,
    view::View,
};
use crate::{error::Result, key::KeyHash};
use std::{ops::RangeInclusive, sync::Arc};

/// Entries whose hashes share this number of first bits are in one page.
const SHARED_BITS: u32 = 50;
/// Number of entries that a window should have above those that are wanted.
const MARGIN: u64 = 16;

/// A part of a group at one moment.
struct Window {
    view: View,
    hashes: RangeInclusive<KeyHash>,
}

impl Window {
    /// Returns the part of a group that begins at a hash and has about `count` entries, or ends the
    /// group.
    fn new(core: &Core, first: KeyHash, count: u64) -> Window {
        loop {
            let group = core.directory.find(first);
            let state = group.state();
            if state.is_replaced {
                continue;
            }
            let all = group.prefix.hashes();
            let width = all.end().bits() - all.start().bits();
            let entries = state.entries().max;
            // Hashes are spread evenly. Where they are not, windows have more or fewer entries.
            let part = match entries > count {
                true => width / u128::from(entries) * u128::from(count),
                false => width,
            };
            let last = first.bits().saturating_add(part).min(all.end().bits());
            let hashes = first..=KeyHash::from_bits(last);
            // Another list would make lookups slower. Copying all bytes is much faster than a choice
            // by hashes, and writers wait for it.
            let active = (!state.active.is_empty()).then(|| state.active.clone());
            let lists = active.map(Arc::new).into_iter().chain(state.immutable.iter().cloned());
            let view = View { stored: state.stored.clone(), lists: lists.collect() };
            return Window { view, hashes };
        }
    }

    fn read(&self, core: &Core, now: u64) -> Result<Entries> {
        core.check_whole()?;
        let View { stored, lists } = &self.view;
        let part = Part { stored, lists, hashes: &self.hashes, now };
        Entries::read(&*core.space.file, core.identity, part)
    }

    /// Returns the first hash after the window; `None` after the last one.
    fn next(&self) -> Option<KeyHash> {
        self.hashes.end().bits().checked_add(1).map(KeyHash::from_bits)
    }

    /// Returns the number of entries.
    fn count(&self, core: &Core, now: u64) -> Result<u64> {
        core.check_whole()?;
        let View { stored, lists } = &self.view;
        let has_changes = !lists.is_empty() || !stored.packets.is_empty();
        let is_group = self.hashes == stored.prefix.hashes();
        if is_group && !has_changes && !stored.expiries().has_expired(now) {
            return Ok(stored.span.as_ref().map_or(0, |span| span.sizes.entries));
        }
        Ok(self.read(core, now)?.count())
    }
}

/// Entries in the order of their hashes.
struct Page {
    limit: usize,
    entries: Vec<(Vec<u8>, Expiring)>,
    /// The hash of the last entry.
    last: Option<KeyHash>,
}

impl Page {
    /// Whether the page ends before an entry with this hash.
    fn ends_before(&self, hash: KeyHash) -> bool {
        let shared = |hash: KeyHash| hash.bits() >> (u128::BITS - SHARED_BITS);
        self.entries.len() >= self.limit && self.last.map(shared) != Some(shared(hash))
    }

    fn push(&mut self, core: &Core, view: &View, entry: Change<'_>) -> Result<()> {
        let Change { hash, key, content } = entry;
        let owner = match content.value {
            Value::Large(pointer) => view.owner(pointer.first),
            Value::Tombstone | Value::Inline(_) => None,
        };
        if let Some(found) = resolve(core, content, owner)? {
            self.entries.push((key.to_vec(), found));
            self.last = Some(hash);
        }
        Ok(())
    }
}

/// Returns the first `limit` entries from a hash on, and those that share their first bits with the
/// last one.
pub(super) fn entries_from(
    core: &Core,
    first: KeyHash,
    limit: usize,
) -> Result<Vec<(Vec<u8>, Expiring)>> {
    let now = core.now();
    let mut page = Page { limit, entries: Vec::new(), last: None };
    let mut next = Some(first);
    while let Some(first) = next.filter(|first| !page.ends_before(*first)) {
        let wanted = limit.saturating_sub(page.entries.len()) as u64;
        let window = Window::new(core, first, wanted.saturating_add(MARGIN));
        let mut entries = window.read(core, now)?;
        while entries.advance() {
            let entry = entries.entry()?;
            if page.ends_before(entry.hash) {
                return Ok(page.entries);
            }
            page.push(core, &window.view, entry)?;
        }
        next = window.next();
    }
    Ok(page.entries)
}

/// Counts the entries. Reads the groups that have changes or expired entries.
pub(super) fn count(core: &Core) -> Result<u64> {
    let now = core.now();
    let mut count = 0;
    let mut next = Some(KeyHash::from_bits(0));
    while let Some(first) = next {
        let window = Window::new(core, first, u64::MAX);
        count += window.count(core, now)?;
        next = window.next();
    }
    Ok(count)
}

/// Returns bounds on the number of entries, without a read.
pub(super) fn bounds(core: &Core) -> EntryBounds {
    core.directory.all().iter().fold(EntryBounds::default(), |all, group| {
        let EntryBounds { min, max } = group.state().entries();
        EntryBounds { min: all.min + min, max: all.max + max }
    })
}
