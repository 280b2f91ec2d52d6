//! The state of a map at one moment.

use super::{
    Expiring,
    core::Core,
    item::{Change, Value},
    large,
    lookup::{self, in_blocks},
    maintain,
    pointer::Pointer,
    read::{Entries, Part},
    span::Stored,
    view::View,
};
use crate::{
    error::Result,
    key::{KeyHash, Seed},
    run::{Entry, Run, Summary},
    work::Pending,
};
use std::{
    fmt,
    sync::{Arc, atomic::Ordering::SeqCst},
};

/// The state of a map at one moment. Later changes do not show in it, and entries do not expire in
/// it. Cheap to clone.
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
    /// The moment, in milliseconds since 1970-01-01 UTC.
    now: u64,
}

/// Maximum number of lists that a group keeps without a flush.
const LISTS_MAX: usize = 8;

/// Takes a snapshot. Writers wait while the lists of all groups are taken.
pub(super) fn take(core: &Arc<Core>) -> Snapshot {
    let stripes = core.stripes.lock_all();
    let seq = core.log().end();
    let mut lists_max = 0;
    // While groups were replaced, the views of old and new ones might miss a part of the keys.
    let groups = core.directory.map(|group| {
        let view = View::of(&mut group.state(), core.identity.seed);
        lists_max = lists_max.max(view.lists.len());
        view
    });
    drop(stripes);
    if lists_max > LISTS_MAX {
        core.tasks.flush_before.fetch_max(seq, SeqCst);
        maintain::start(core);
    }
    // The time is read last: no merge before has dropped an entry that has not expired now.
    let now = core.now();
    Snapshot(Arc::new(State { core: core.clone(), groups, seq, now }))
}

/// Returns the entries of groups that are in no directory, as a run.
pub(super) fn scan_groups(core: &Arc<Core>, groups: Vec<Arc<Stored>>) -> Scan {
    let view = |stored| View { stored, lists: Vec::new() };
    let (groups, seq, now) = (groups.into_iter().map(view).collect(), core.log().end(), core.now());
    Snapshot(Arc::new(State { core: core.clone(), groups, seq, now })).scan()
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

    /// Returns the moment, in milliseconds since 1970-01-01 UTC.
    pub(super) fn now(&self) -> u64 {
        self.0.now
    }

    /// Looks up a key.
    ///
    /// # Errors
    /// The device failed, or a block is damaged.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        Ok(self.get_expiring(key)?.map(|found| found.value))
    }

    /// Looks up a key. Returns the time at which the entry expires, too.
    ///
    /// # Errors
    /// The errors of [`Snapshot::get`].
    pub fn get_expiring(&self, key: impl AsRef<[u8]>) -> Result<Option<Expiring>> {
        let (key, State { core, now, .. }) = (key.as_ref(), &*self.0);
        core.check_whole()?;
        let hash = KeyHash::of(key, core.identity.seed);
        let View { stored, lists } = &self.0.groups[self.position(hash)];
        if let Some((content, owner)) = lists.iter().find_map(|list| list.find_owned(hash, key)) {
            return lookup::resolve(core, content.at(*now), owner);
        }
        in_blocks(core, stored, (hash, key), *now)
    }

    /// Returns the index of the group that has a hash.
    fn position(&self, hash: KeyHash) -> usize {
        let start = |view: &View| view.stored.prefix.start;
        self.0.groups.partition_point(|view| start(view) <= hash.high()) - 1
    }

    /// Returns all entries, as a run without the times at which they expire. Has at most two groups in
    /// memory: a thread of the executor, if there is one, reads the next one ahead.
    pub fn scan(&self) -> Scan {
        self.scan_from(KeyHash::from_bits(0))
    }

    /// Returns the entries whose hashes are `first` or larger, as a run, as [`Snapshot::scan`] does.
    /// Groups and blocks before them are not read.
    pub fn scan_from(&self, first: KeyHash) -> Scan {
        let next = self.position(first);
        let sizes = self.0.groups[next..].iter().flat_map(View::sizes);
        let summary = sizes.map(|sizes| sizes.summary()).fold(Summary::EMPTY, Summary::union);
        let (current, ahead, large) = (None, None, Vec::new());
        Scan { snapshot: self.clone(), summary, first, next, current, ahead, large }
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
    /// Entries with smaller hashes are left out.
    first: KeyHash,
    /// Index of the next group.
    next: usize,
    /// The entries of the group before it.
    current: Option<Entries>,
    /// Reads the next group, if threads of the executor can.
    ahead: Option<Pending<Result<Entries>>>,
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

    /// Returns the entries of the next group; begins to read the one after it.
    fn read_next(&mut self) -> Result<Option<Entries>> {
        self.snapshot.0.core.check_whole()?;
        let Some(read) = self.ahead.take().or_else(|| self.start_read()) else { return Ok(None) };
        let entries = read.wait()?;
        self.next += 1;
        if self.snapshot.0.core.options.env.executor.width() > 0 {
            self.ahead = self.start_read();
        }
        Ok(Some(entries))
    }

    /// Starts to read the next group, if there is one.
    fn start_read(&self) -> Option<Pending<Result<Entries>>> {
        let (snapshot, first, next) = (self.snapshot.clone(), self.first, self.next);
        let State { core, groups, .. } = &*self.snapshot.0;
        (next < groups.len()).then(|| {
            Pending::start(&*core.options.env.executor, move || {
                let State { core, groups, now, .. } = &*snapshot.0;
                let View { stored, lists } = &groups[next];
                let hashes = stored.prefix.hashes();
                let hashes = &(first.max(*hashes.start())..=*hashes.end());
                let part = Part { stored, lists, hashes, now: *now };
                Entries::read(&*core.space.file, core.identity, part)
            })
        })
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        // The job has a part in the map, which is closed when the last part is dropped.
        if let Some(read) = self.ahead.take() {
            drop(read.wait());
        }
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
                && current.advance()
            {
                if let Value::Large(pointer) = current.entry()?.content.value {
                    self.large = self.read_large(pointer)?;
                }
                return Ok(true);
            }
            self.current = None;
            let Some(entries) = self.read_next()? else { return Ok(false) };
            self.current = Some(entries);
        }
    }

    fn entry(&self) -> Entry<'_> {
        let current = self.current.as_ref().expect("the last advance returned true");
        let Change { hash, key, content } = current.entry().expect("it was decoded before");
        let value = match content.value {
            Value::Tombstone => None,
            Value::Inline(value) => Some(value),
            Value::Large(_) => Some(&self.large[..]),
        };
        Entry { hash, key, value }
    }
}
