//! What was told last, in RAM: hashes in order, until they become a run.

use super::ordered::{Ordered, PIECE_MAX, SLOTS_MIN};
use crate::{
    error::Result,
    filter::{Counted, Fingerprints, Mode, Span, Universe},
};
use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    iter::Peekable,
    mem,
    sync::Arc,
    vec,
};

/// What is told of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Insert,
    Remove,
}

/// Insertions and removals in memory. A hash stands for itself here, not for a fingerprint.
///
/// In a set a hash is in `added`, or in `removed`, or in neither, by what was told of it last. In a
/// multiset `added` counts one, `removed` takes one away, and `more` is what comes on top.
#[derive(Debug)]
pub(super) struct Memtable {
    mode: Mode,
    slots: usize,
    added: Ordered,
    /// Made when the first removal comes.
    removed: Option<Ordered>,
    more: Counts,
    /// Room for hashes on their way from one table to the other.
    rest: Vec<u64>,
}

type Counts = HashMap<u64, i64, BuildHasherDefault<Itself>>;

/// The slots for removals are one in so many of those for insertions.
const REMOVED_PART: usize = 2;
/// Counts apart from the table: one in so many of its slots, at most.
const MORE_PART: usize = 8;

impl Memtable {
    /// With so many slots, a power of two.
    pub(super) fn new(mode: Mode, slots: usize) -> Memtable {
        Memtable {
            mode,
            slots,
            added: Ordered::new(slots),
            removed: None,
            more: Counts::default(),
            rest: Vec::new(),
        }
    }

    /// The memory of one with so many slots once all of it is in use, in bytes.
    pub(super) fn bytes_max(mode: Mode, slots: usize) -> usize {
        let more = if mode == Mode::Multiset { 32 * slots / MORE_PART } else { 0 };
        (slots + slots / REMOVED_PART) * size_of::<u64>() + more
    }

    /// The most hashes of one with so many slots, if few are told of twice.
    pub(super) fn len_max(slots: usize) -> u64 {
        Ordered::len_max(slots) as u64
    }

    /// How many changes it takes before somebody must ask again.
    pub(super) fn room(&self) -> usize {
        let more = (self.added.capacity() / MORE_PART).saturating_sub(self.more.len());
        let removed = self.removed.as_ref().map_or(PIECE_MAX, Ordered::room);
        let room = self.added.room().min(removed).min(PIECE_MAX);
        if self.mode == Mode::Multiset { room.min(more) } else { room }
    }

    /// Whether it should be flushed, though it has room.
    pub(super) fn is_due(&self) -> bool {
        self.added.is_due() || self.removed.as_ref().is_some_and(Ordered::is_due)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.added.len() == 0 && self.removed_len() == 0 && self.more.is_empty()
    }

    /// Hashes that it knows of.
    pub(super) fn len(&self) -> usize {
        self.added.len() + self.removed_len() + self.more.len()
    }

    fn removed_len(&self) -> usize {
        self.removed.as_ref().map_or(0, Ordered::len)
    }

    /// Takes no more hashes than there is [`Memtable::room`] for.
    pub(super) fn apply(&mut self, change: Change, hashes: &[u64]) {
        match change {
            Change::Insert => self.insert(hashes),
            Change::Remove => self.remove(hashes),
        }
    }

    fn insert(&mut self, hashes: &[u64]) {
        let (mode, more) = (self.mode, &mut self.more);
        let mut rest = mem::take(&mut self.rest);
        let mut hashes = hashes;
        if let Some(removed) = self.removed.as_mut().filter(|removed| removed.len() > 0) {
            rest.clear();
            removed.each(hashes, |removed, hash| {
                // In a multiset the two make up for each other.
                if !removed.remove(hash) || mode == Mode::Set {
                    rest.push(hash);
                }
            });
            hashes = &rest;
        }
        match mode {
            Mode::Set => self.added.each(hashes, |added, hash| _ = added.insert(hash)),
            Mode::Multiset => self.added.each(hashes, |added, hash| {
                if !added.insert(hash) {
                    change_count(more, hash, 1);
                }
            }),
        }
        self.rest = rest;
    }

    fn remove(&mut self, hashes: &[u64]) {
        let (mode, more) = (self.mode, &mut self.more);
        let mut rest = mem::take(&mut self.rest);
        rest.clear();
        self.added.each(hashes, |added, hash| {
            if !added.remove(hash) || mode == Mode::Set {
                rest.push(hash);
            }
        });
        let slots = (self.slots / REMOVED_PART).max(SLOTS_MIN);
        let removed = self.removed.get_or_insert_with(|| Ordered::new(slots));
        removed.each(&rest, |removed, hash| {
            if !removed.insert(hash) && mode == Mode::Multiset {
                change_count(more, hash, -1);
            }
        });
        self.rest = rest;
    }

    /// What it says of a hash: in a set 1 or -1 for in or not in, in a multiset a number to add; 0
    /// if it knows nothing.
    #[inline]
    pub(super) fn count(&self, hash: u64) -> i64 {
        let mut count = i64::from(self.added.contains(hash));
        if let Some(removed) = &self.removed {
            count -= i64::from(removed.contains(hash));
        }
        if !self.more.is_empty() {
            count += self.more.get(&hash).copied().unwrap_or(0);
        }
        count
    }

    /// Brings what is known of a hash into the cache.
    #[inline]
    pub(super) fn fetch(&self, hash: u64) {
        self.added.fetch(hash);
    }

    /// Makes it an empty one, to be used again.
    pub(super) fn clear(&mut self) {
        self.added.clear();
        if let Some(removed) = &mut self.removed {
            removed.clear();
        }
        self.more.clear();
    }

    /// All it knows, as fingerprints.
    pub(super) fn scan(self: &Arc<Self>, universe: Universe) -> MemtableScan {
        let mut more: Vec<_> = self.more.iter().map(|(&hash, &count)| (hash, count)).collect();
        more.sort_unstable();
        MemtableScan {
            universe,
            mode: self.mode,
            added: Cursor::default(),
            removed: Cursor::default(),
            more: more.into_iter().peekable(),
            removals: Vec::new(),
            items: Vec::new(),
            memtable: self.clone(),
        }
    }
}

fn change_count(more: &mut Counts, hash: u64, change: i64) {
    let count = more.entry(hash).or_default();
    *count += change;
    if *count == 0 {
        more.remove(&hash);
    }
}

/// The hashes of a table from front to back, some at a time.
#[derive(Debug)]
struct Cursor {
    /// Where the next slots are.
    slot: Option<usize>,
    hashes: Vec<u64>,
    /// Of these, how many were taken.
    taken: usize,
}

impl Default for Cursor {
    fn default() -> Cursor {
        Cursor { slot: Some(0), hashes: Vec::new(), taken: 0 }
    }
}

impl Cursor {
    /// Has at least one hash that was not taken, unless none is left.
    fn fill(&mut self, table: &Ordered) {
        self.hashes.drain(..self.taken);
        self.taken = 0;
        while let Some(slot) = self.slot
            && self.hashes.len() < PIECE_MAX / 2
        {
            self.slot = table.read(slot, &mut self.hashes);
        }
    }

    /// Takes the hashes up to a fingerprint, that included.
    fn take(&mut self, table: &Ordered, universe: Universe, last: u64) -> &[u64] {
        loop {
            let there = &self.hashes[self.taken..];
            let count = there.partition_point(|&hash| universe.scale(hash) <= last);
            if count < there.len() || self.slot.is_none() {
                let start = self.taken;
                self.taken += count;
                return &self.hashes[start..self.taken];
            }
            // All that are there belong to it, and perhaps more.
            self.slot = self.slot.and_then(|slot| table.read(slot, &mut self.hashes));
        }
    }
}

/// A memtable as a run of fingerprints.
#[derive(Debug)]
pub(super) struct MemtableScan {
    memtable: Arc<Memtable>,
    universe: Universe,
    mode: Mode,
    added: Cursor,
    removed: Cursor,
    more: Peekable<vec::IntoIter<(u64, i64)>>,
    /// Fingerprints of what was removed, in the stretch at hand.
    removals: Vec<u64>,
    items: Vec<Counted>,
}

impl Fingerprints for MemtableScan {
    fn universe(&self) -> Universe {
        self.universe
    }

    fn next_span(&mut self, span: &mut Span) -> Result<bool> {
        span.clear();
        let universe = self.universe;
        while span.is_empty() {
            self.added.fill(&self.memtable.added);
            let last = match self.added.hashes.last() {
                Some(&hash) if self.added.slot.is_some() => universe.scale(hash),
                _ => universe.last(),
            };
            let added = self.added.take(&self.memtable.added, universe, last);
            span.ones.extend(added.iter().map(|&hash| universe.scale(hash)));
            self.removals.clear();
            if let Some(removed) = self.memtable.removed.as_ref().filter(|it| it.len() > 0) {
                let taken = self.removed.take(removed, universe, last).iter();
                self.removals.extend(taken.map(|&hash| universe.scale(hash)));
                self.removed.fill(removed);
            }
            match self.mode {
                Mode::Set => self.join(span),
                Mode::Multiset => self.sum(span, last),
            }
            if last == universe.last() {
                break;
            }
        }
        Ok(!span.is_empty())
    }
}

impl MemtableScan {
    /// Makes each fingerprint come once. Of hashes that share one, one that is in outweighs one that
    /// is not: nobody knows which came later, and nothing may be missed.
    fn join(&mut self, span: &mut Span) {
        span.ones.dedup();
        self.removals.dedup();
        let mut ones = span.ones.iter().copied().peekable();
        for &fingerprint in &self.removals {
            while ones.next_if(|&one| one < fingerprint).is_some() {}
            if ones.peek() != Some(&fingerprint) {
                span.counted.push(Counted { fingerprint, count: -1 });
            }
        }
    }

    /// Makes each fingerprint come once, with the sum of all that is told of it, up to `last`.
    fn sum(&mut self, span: &mut Span, last: u64) {
        let is_next = |next: &(u64, i64)| self.universe.scale(next.0) <= last;
        let has_equals = span.ones.windows(2).any(|pair| pair[0] == pair[1]);
        if !has_equals && self.removals.is_empty() && !self.more.peek().is_some_and(is_next) {
            return;
        }
        self.items.clear();
        let counted = |count| move |fingerprint| Counted { fingerprint, count };
        self.items.extend(span.ones.drain(..).map(counted(1)));
        self.items.extend(self.removals.iter().copied().map(counted(-1)));
        while let Some((hash, count)) = self.more.next_if(is_next) {
            self.items.push(Counted { fingerprint: self.universe.scale(hash), count });
        }
        // Three runs, which this sort merges.
        self.items.sort_by_key(|item| item.fingerprint);
        for group in self.items.chunk_by(|a, b| a.fingerprint == b.fingerprint) {
            let fingerprint = group[0].fingerprint;
            match group.iter().map(|item| item.count).fold(0, i64::saturating_add) {
                0 => {}
                1 => span.ones.push(fingerprint),
                count => span.counted.push(Counted { fingerprint, count }),
            }
        }
    }
}

/// Hashes are their own hashes.
#[derive(Clone, Copy, Debug, Default)]
struct Itself(u64);

impl Hasher for Itself {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers of 64 bits are hashed");
    }

    fn write_u64(&mut self, number: u64) {
        // The table below takes the high bits for one purpose and the low ones for another.
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(20);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// A table and its naive twin, after changes of few hashes.
    fn check(mode: Mode, universe: Universe, changes: u64) {
        let mut memtable = Memtable::new(mode, SLOTS_MIN);
        let mut twin: BTreeMap<u64, i64> = BTreeMap::new();
        for i in 0..changes {
            let random = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            let hash = (random % 701).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let change = if random >> 32 & 3 == 0 { Change::Remove } else { Change::Insert };
            if memtable.room() == 0 {
                break;
            }
            memtable.apply(change, &[hash]);
            let sign = if change == Change::Insert { 1 } else { -1 };
            let count = twin.entry(hash).or_default();
            *count = if mode == Mode::Set { sign } else { *count + sign };
            assert_eq!(memtable.count(hash), *count);
        }
        let mut expected: BTreeMap<u64, i64> = BTreeMap::new();
        for (hash, count) in twin.into_iter().filter(|item| item.1 != 0) {
            let slot = expected.entry(universe.scale(hash));
            let sum = |old: &mut i64| match mode {
                Mode::Set => *old = count.max(*old),
                Mode::Multiset => *old += count,
            };
            slot.and_modify(sum).or_insert(count);
        }
        expected.retain(|_, count| *count != 0);
        let memtable = Arc::new(memtable);
        let mut scan = memtable.scan(universe);
        let (mut span, mut got) = (Span::default(), BTreeMap::new());
        let mut before = None;
        while scan.next_span(&mut span).unwrap() {
            let ones = span.ones.iter().map(|&fingerprint| (fingerprint, 1));
            let items: BTreeMap<_, _> = ones
                .chain(span.counted.iter().map(|item| (item.fingerprint, item.count)))
                .collect();
            assert_eq!(items.len(), span.len());
            assert!(before < items.keys().next().copied());
            before = items.keys().last().copied();
            got.extend(items);
        }
        assert_eq!(got, expected);
    }

    #[test]
    fn it_says_what_it_was_told() {
        for universe in [2, 50, 1 << 20, 1 << 64] {
            let universe = Universe::with_size(universe).unwrap();
            for changes in [0, 1, 10, 1000, 10_000] {
                check(Mode::Set, universe, changes);
                check(Mode::Multiset, universe, changes);
            }
        }
    }
}
