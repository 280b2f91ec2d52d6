//! The state of a map at one moment.

use super::{
    core::Core,
    item::{Change, Value},
    large::{self, Owner},
    list::List,
    lookup::{self, in_blocks},
    pointer::Pointer,
    read::{Changes, group_run},
    span::Stored,
};
use crate::{
    error::Result,
    key::{KeyHash, Seed},
    run::{Entry, Run, Summary},
};
use std::{fmt, sync::Arc};

/// The state of a map at one moment. Later changes do not show in it. Cheap to clone.
///
/// A snapshot keeps the blocks of its moment: the data file may grow while it exists. The map stays
/// open, and locked, until its snapshots are dropped.
#[derive(Clone)]
pub struct Snapshot(Arc<State>);

struct State {
    core: Arc<Core>,
    /// All groups in order.
    groups: Vec<View>,
    seq: u64,
}

/// A group at one moment.
pub(super) struct View {
    pub(super) stored: Arc<Stored>,
    /// The changes in RAM, newest first.
    pub(super) lists: Vec<Arc<List>>,
}

impl View {
    /// Returns the owner of a large value.
    pub(super) fn owner(&self, first: u64) -> Option<&Owner> {
        let in_lists = self.lists.iter().find_map(|list| list.owners.get(first));
        in_lists.or_else(|| self.stored.owner(first))
    }
}

/// Takes a snapshot. Writers wait while the lists of all groups are taken.
pub(super) fn take(core: &Arc<Core>) -> Snapshot {
    let seed = core.identity.seed;
    let _stripes = core.stripes.lock_all();
    let seq = core.log().end();
    // While groups were replaced, the views of old and new ones might miss a part of the keys.
    let groups = core.directory.map(|group| {
        let mut state = group.state();
        let lists = state.end_active(seed).to_vec();
        View { stored: state.stored.clone(), lists }
    });
    Snapshot(Arc::new(State { core: core.clone(), groups, seq }))
}

impl Snapshot {
    /// Returns the sequence number after the last change in the snapshot.
    pub fn seq(&self) -> u64 {
        self.0.seq
    }

    /// Returns all groups in order.
    pub(super) fn views(&self) -> &[View] {
        &self.0.groups
    }

    /// Looks up a key.
    ///
    /// # Errors
    /// The device failed, or a block is damaged.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let (key, core) = (key.as_ref(), &self.0.core);
        let hash = KeyHash::of(key, core.identity.seed);
        let start = |view: &View| view.stored.prefix.start;
        let at = self.0.groups.partition_point(|view| start(view) <= hash.high()) - 1;
        let View { stored, lists } = &self.0.groups[at];
        if let Some((value, owner)) = lists.iter().find_map(|list| list.find_owned(hash, key)) {
            return lookup::value(core, value, owner);
        }
        in_blocks(core, stored, hash, key)
    }

    /// Returns all entries, as a run. Reads one group at a time into memory.
    pub fn scan(&self) -> Scan {
        let sizes = self.0.groups.iter().flat_map(|view| {
            let lists = view.lists.iter().map(|list| list.sizes());
            let packets = view.stored.packets.iter().map(|packet| packet.sizes);
            lists.chain(packets).chain(view.stored.span.iter().map(|span| span.sizes))
        });
        let summary = sizes.map(|sizes| sizes.summary()).fold(Summary::EMPTY, Summary::union);
        Scan { snapshot: self.clone(), summary, next: 0, current: None, large: Vec::new() }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.0.core.place();
        write!(f, "Snapshot({place}, {} groups, seq {})", self.0.groups.len(), self.0.seq)
    }
}

/// The entries of a [`Snapshot`], as a run.
#[derive(Debug)]
pub struct Scan {
    snapshot: Snapshot,
    summary: Summary,
    /// Index of the next group.
    next: usize,
    /// The entries of the group before it.
    current: Option<Changes>,
    /// The value of the current entry, if it is large.
    large: Vec<u8>,
}

impl Scan {
    /// Reads a large value of the current group.
    fn read_large(&self, pointer: Pointer) -> Result<Vec<u8>> {
        let State { core, groups, .. } = &*self.snapshot.0;
        let owner = groups[self.next - 1].owner(pointer.first);
        large::read(&*core.space.file, core.identity.id, pointer, owner)
    }
}

impl Run for Scan {
    fn seed(&self) -> Seed {
        self.snapshot.0.core.identity.seed
    }

    fn summary(&self) -> Summary {
        self.summary
    }

    fn advance(&mut self) -> Result<bool> {
        loop {
            if let Some(current) = &mut self.current
                && current.advance()?
            {
                if let Value::Large(pointer) = current.change()?.value {
                    self.large = self.read_large(pointer)?;
                }
                return Ok(true);
            }
            self.current = None;
            let State { core, groups, .. } = &*self.snapshot.0;
            let Some(View { stored, lists }) = groups.get(self.next) else { return Ok(false) };
            self.next += 1;
            self.current = Some(group_run(&*core.space.file, core.identity, stored, lists)?);
        }
    }

    fn entry(&self) -> Entry<'_> {
        let current = self.current.as_ref().expect("the last advance returned true");
        let Change { hash, key, value } = current.change().expect("it was decoded before");
        let value = match value {
            Value::Tombstone => None,
            Value::Inline(value) => Some(value),
            Value::Large(_) => Some(&self.large[..]),
        };
        Entry { hash, key, value }
    }
}
