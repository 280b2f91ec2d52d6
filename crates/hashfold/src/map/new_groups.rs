//! All groups of a new map, from entries in the order of their hashes: each is written once.
//!
//! Entries are collected until they exceed the size of a group. Then the largest key range is written that
//! begins after the last group, that the entries go beyond, and that has at most the size of a group. So
//! neither the number of entries nor their sizes need be known before.

use super::{
    block::BLOCK_SIZE,
    core::Core,
    item::Change,
    new_group::NewGroup,
    pointer::Pointer,
    prefix::{DEPTH_MAX, Prefix},
    span::Stored,
};
use crate::{
    error::{ErrorKind, Result},
    io::WriteQueue,
    key::KeyHash,
};
use std::sync::Arc;

/// A new group takes at most this part of the blocks that a group may have, in quarters: the first
/// changes do not split it.
const FULL_QUARTERS: u64 = 3;

/// Maximum number of writes in flight.
const WRITES_MAX: usize = 3;

/// The groups of a new map.
pub(super) struct NewGroups<'a> {
    core: &'a Core,
    /// The entries that are not in a group yet.
    next: NewGroup,
    /// The high 64 bits of the first hash that no group has; `None` if all groups are written.
    start: Option<u64>,
    /// The hash of the last entry.
    last: Option<KeyHash>,
    /// Writes blocks of the groups. Is dropped before them, so that no other write takes their blocks
    /// meanwhile.
    queue: WriteQueue,
    groups: Vec<Stored>,
}

impl<'a> NewGroups<'a> {
    /// Begins to write groups to the blocks of a map. No directory has them.
    pub(super) fn new(core: &'a Core) -> NewGroups<'a> {
        let queue = WriteQueue::new(core.options.env.executor.clone(), WRITES_MAX);
        let (next, groups) = (NewGroup::default(), Vec::new());
        NewGroups { core, next, start: Some(0), last: None, queue, groups }
    }

    /// Adds an entry. `read` returns its value if that is large.
    ///
    /// # Errors
    /// `Order` if the entry does not come after the last one; the errors of `read`; the device of the map
    /// failed, or is full.
    pub(super) fn push<V: AsRef<[u8]>>(
        &mut self,
        change: Change<'_>,
        read: impl FnOnce(Pointer) -> Result<V>,
    ) -> Result<()> {
        self.begin_entry(change.hash, change.key)?;
        self.next.push(self.core, change, read)
    }

    /// Adds an entry that does not expire.
    ///
    /// # Errors
    /// `Order` if the entry does not come after the last one; the device of the map failed, or is full.
    pub(super) fn put(&mut self, (hash, key): (KeyHash, &[u8]), value: &[u8]) -> Result<()> {
        self.begin_entry(hash, key)?;
        self.next.put(self.core, (hash, key), value)
    }

    /// Writes the last groups. Returns all groups, which hold every hash.
    ///
    /// # Errors
    /// The device of the map failed, or is full.
    pub(super) fn finish(mut self) -> Result<Vec<Arc<Stored>>> {
        while self.write_next(None)? {}
        self.queue.wait_until(0)?;
        Ok(self.groups.into_iter().map(Arc::new).collect())
    }

    /// Checks the order of the next entry, and writes the groups before it that are full.
    fn begin_entry(&mut self, hash: KeyHash, key: &[u8]) -> Result<()> {
        if let Some(last) = self.last
            // An entry with the same hash is not in a group yet.
            && (hash < last || hash == last && self.next.last_key() >= Some(key))
        {
            return Err(ErrorKind::Order { previous: last, got: hash }.into());
        }
        self.last = Some(hash);
        while self.next.size() >= self.size_max() && self.write_next(Some(hash))? {}
        Ok(())
    }

    /// Returns the largest size of the entries of a group, in bytes.
    fn size_max(&self) -> usize {
        let blocks = self.core.options.shape.span_blocks_max * FULL_QUARTERS / 4;
        blocks as usize * BLOCK_SIZE
    }

    /// Writes the next group, if all of its entries are known: the next entry has the hash `next`, or
    /// there is none. Returns whether it was written.
    fn write_next(&mut self, next: Option<KeyHash>) -> Result<bool> {
        let Some(range) = self.next_range(next) else { return Ok(false) };
        self.next.start_within((self.core, &mut self.queue), range, &mut self.groups)?;
        self.start = range.end();
        Ok(true)
    }

    /// Returns the key range of the next group.
    fn next_range(&self, next: Option<KeyHash>) -> Option<Prefix> {
        let start = self.start?;
        // A prefix has no bits of the start after it.
        let aligned = DEPTH_MAX - start.trailing_zeros() as u8;
        let depths = aligned.max(self.core.options.shape.first_depth)..=DEPTH_MAX;
        let is_known = |range: &Prefix| {
            next.is_none_or(|next| range.end().is_some_and(|end| end <= next.high()))
        };
        let fits = |range: &Prefix| {
            range.depth == DEPTH_MAX || self.next.size_within(*range) <= self.size_max()
        };
        depths.map(|depth| Prefix { start, depth }).filter(is_known).find(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            Map,
            tests::{folder, tiny},
        },
        *,
    };
    use crate::{env::Env, key::Seed};

    /// Writes entries with these hashes, which ascend, and checks the groups.
    #[track_caller]
    fn check(hashes: &[u128]) {
        let map = Map::create(folder(), tiny(Env::simulated(1))).unwrap();
        let core = map.core();
        let mut groups = NewGroups::new(core);
        for (i, bits) in hashes.iter().enumerate() {
            let key = (i as u32).to_be_bytes();
            groups.put((KeyHash::from_bits(*bits), &key), &[1; 90]).unwrap();
        }
        let (mut end, mut entries) = (Some(0), 0);
        for stored in groups.finish().unwrap() {
            assert_eq!(Some(stored.prefix.start), end);
            end = stored.prefix.end();
            let count =
                hashes.iter().filter(|bits| stored.prefix.contains(KeyHash::from_bits(**bits)));
            let found = stored.span.as_ref().map_or(0, |span| span.sizes.entries);
            assert_eq!(found, count.count() as u64);
            entries += found;
            let is_full = stored.span_blocks() > core.options.shape.span_blocks_max;
            assert!(!is_full || stored.prefix.depth == DEPTH_MAX);
        }
        assert_eq!((end, entries), (None, hashes.len() as u64));
    }

    #[test]
    fn groups_hold_every_hash_once_however_the_hashes_are_spread() {
        let count = 600;
        let mut even: Vec<u128> =
            (0..count).map(|i: u32| KeyHash::of(&i.to_le_bytes(), Seed(1)).bits()).collect();
        even.sort_unstable();
        check(&even);
        check(&[]);
        check(&[7]);
        let numbers = || (0..count).map(u128::from);
        // All at one end, at the other one, and around the middle.
        check(&numbers().collect::<Vec<_>>());
        check(&numbers().map(|i| u128::MAX - 1000 + i).collect::<Vec<_>>());
        check(&numbers().map(|i| (1 << 127) - 300 + i).collect::<Vec<_>>());
        check(&numbers().map(|i| i << 64).collect::<Vec<_>>());
        // The high bits are equal, or all bits.
        check(&numbers().map(|i| 1 << 90 | i).collect::<Vec<_>>());
        check(&vec![1 << 99; count as usize]);
    }

    #[test]
    fn entries_that_do_not_ascend_are_refused() {
        let map = Map::create(folder(), tiny(Env::simulated(1))).unwrap();
        let mut groups = NewGroups::new(map.core());
        let mut put = |bits, key: &[u8]| groups.put((KeyHash::from_bits(bits), key), b"");
        assert!(put(5, b"b").is_ok() && put(5, b"c").is_ok() && put(6, b"a").is_ok());
        for (bits, key) in [(6, &b"a"[..]), (6, b""), (5, b"z"), (0, b"z")] {
            assert!(put(bits, key).is_err(), "{bits}");
        }
    }
}
