//! A list of changes in RAM: the newest change of each key of a group.
//!
//! Changes are packed one after the other; a hash table of offsets finds them.
//!
//! | field      | size |                                                     |
//! |------------|-----:|-----------------------------------------------------|
//! | key_size   |    2 | in bytes                                            |
//! | value_size |    2 | in bytes; 65535 for a tombstone, which has no value |
//! | key        |    … |                                                     |
//! | value      |    … |                                                     |

use super::{batch::Batch, sizes::Sizes};
use crate::{
    key::{KeyHash, Seed},
    run::Entry,
};

const HEAD_SIZE: usize = 4;
const NO_VALUE: u16 = u16::MAX;
/// Number of places in the smallest table.
const TABLE_MIN: usize = 8;

/// The changes of a group since the last flush, or some of them.
#[derive(Debug)]
pub(super) struct List {
    bytes: Vec<u8>,
    /// Places of changes: their offset plus 1, or 0. The number of places is 0 or a power of two.
    table: Vec<u32>,
    /// Number of keys.
    count: usize,
    /// Bounds on all changes that were ever in the list.
    sizes: Sizes,
    /// Sequence number of the oldest change.
    pub(super) first_seq: u64,
    seed: Seed,
}

impl List {
    pub(super) fn new(seed: Seed) -> List {
        let (bytes, table) = (Vec::new(), Vec::new());
        List { bytes, table, count: 0, sizes: Sizes::EMPTY, first_seq: u64::MAX, seed }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns bounds on the list.
    pub(super) fn sizes(&self) -> Sizes {
        let mut sizes = self.sizes;
        sizes.entries = self.count as u64;
        sizes
    }

    /// Returns the memory of the list, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity() + self.table.capacity() * size_of::<u32>()
    }

    /// Applies a change, which replaces an earlier change of the key. `seq` is its sequence number.
    pub(super) fn apply(&mut self, change: Entry<'_>, seq: u64) {
        if self.count * 4 >= self.table.len() * 3 {
            self.grow_table();
        }
        let Entry { hash, key, value } = change;
        self.first_seq = self.first_seq.min(seq);
        let value_size = value.map_or(NO_VALUE, |value| value.len() as u16);
        self.sizes.add(key.len() as u16, value.map(|value| value.len() as u16));
        let place = self.place(hash, key);
        if let Some(offset) = self.offset(place)
            && self.size_fields(offset).1 == value_size
        {
            let start = offset + HEAD_SIZE + key.len();
            let value = value.unwrap_or_default();
            self.bytes[start..][..value.len()].copy_from_slice(value);
            return;
        }
        self.count += usize::from(self.table[place] == 0);
        self.table[place] = self.bytes.len() as u32 + 1;
        let value = value.unwrap_or_default();
        let needed = HEAD_SIZE + key.len() + value.len();
        // Doubling would leave half of the memory unused.
        if self.bytes.capacity() - self.bytes.len() < needed {
            self.bytes.reserve_exact(needed.max(self.bytes.len() / 4));
        }
        self.bytes.extend((key.len() as u16).to_le_bytes());
        self.bytes.extend(value_size.to_le_bytes());
        self.bytes.extend(key);
        self.bytes.extend(value);
    }

    /// Finds a key. Returns its value, or `Some(None)` for a tombstone.
    pub(super) fn find(&self, hash: KeyHash, key: &[u8]) -> Option<Option<&[u8]>> {
        if self.count == 0 {
            return None;
        }
        let offset = self.offset(self.place(hash, key))?;
        Some(self.change(offset).1)
    }

    /// Calls `take` with each change, in no particular order.
    pub(super) fn for_each(&self, mut take: impl FnMut(Entry<'_>)) {
        for offset in self.table.iter().filter_map(|place| place.checked_sub(1)) {
            let (key, value) = self.change(offset as usize);
            take(Entry { hash: KeyHash::of(key, self.seed), key, value });
        }
    }

    /// Returns the changes in order of (hash, key).
    pub(super) fn sorted(&self) -> Batch {
        let mut batch = Batch::default();
        self.for_each(|entry| batch.push(entry));
        batch.sort();
        batch
    }

    /// Returns the place of a key in the table, or the free place for it.
    fn place(&self, hash: KeyHash, key: &[u8]) -> usize {
        let mask = self.table.len() - 1;
        let mut place = (hash.low() >> 8) as usize & mask;
        while let Some(offset) = self.offset(place)
            && self.change(offset).0 != key
        {
            place = (place + 1) & mask;
        }
        place
    }

    fn offset(&self, place: usize) -> Option<usize> {
        self.table[place].checked_sub(1).map(|offset| offset as usize)
    }

    fn size_fields(&self, offset: usize) -> (usize, u16) {
        let field = |at: usize| u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]);
        (field(offset).into(), field(offset + 2))
    }

    fn change(&self, offset: usize) -> (&[u8], Option<&[u8]>) {
        let (key_size, value_size) = self.size_fields(offset);
        let (key, rest) = self.bytes[offset + HEAD_SIZE..].split_at(key_size);
        (key, (value_size != NO_VALUE).then(|| &rest[..value_size.into()]))
    }

    fn grow_table(&mut self) {
        let len = (2 * self.table.len()).max(TABLE_MIN);
        let old = std::mem::replace(&mut self.table, vec![0; len]);
        for entry in old.into_iter().filter(|entry| *entry != 0) {
            let hash = KeyHash::of(self.change(entry as usize - 1).0, self.seed);
            // Keys in the table differ, so a free place is enough.
            let mut place = (hash.low() >> 8) as usize & (len - 1);
            while self.table[place] != 0 {
                place = (place + 1) & (len - 1);
            }
            self.table[place] = entry;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const SEED: Seed = Seed(3);

    #[test]
    fn the_newest_change_of_each_key_is_found() {
        let mut list = List::new(SEED);
        let mut model = BTreeMap::new();
        assert_eq!(list.find(KeyHash::of(b"", SEED), b""), None);
        for i in 0..3000_u32 {
            let random = KeyHash::of(&i.to_le_bytes(), Seed(9)).high();
            let key = (random % 500).to_le_bytes()[..2 + (random % 500 % 7) as usize].to_vec();
            let value =
                (!random.is_multiple_of(5)).then(|| vec![i as u8; (random >> 32) as usize % 4]);
            let change =
                Entry { hash: KeyHash::of(&key, SEED), key: &key, value: value.as_deref() };
            list.apply(change, u64::from(i) + 7);
            model.insert(key, value);
        }
        for (key, value) in &model {
            let found = list.find(KeyHash::of(key, SEED), key);
            assert_eq!(found, Some(value.as_deref()), "{key:?}");
        }
        assert_eq!(list.find(KeyHash::of(b"absent", SEED), b"absent"), None);
        let sorted = list.sorted();
        assert_eq!((sorted.items.len(), list.sizes().entries), (model.len(), model.len() as u64));
        assert!(sorted.items.is_sorted_by_key(|item| item.hash));
        for i in 0..sorted.items.len() {
            let entry = sorted.entry(i);
            assert_eq!(model[entry.key].as_deref(), entry.value);
            assert_eq!(entry.hash, KeyHash::of(entry.key, SEED));
        }
        assert_eq!(list.first_seq, 7);
    }

    #[test]
    fn values_of_one_size_are_replaced_in_place() {
        let mut list = List::new(SEED);
        let mut put = |value: &[u8]| {
            let change = Entry { hash: KeyHash::of(b"k", SEED), key: b"k", value: Some(value) };
            list.apply(change, 1);
            list.bytes.len()
        };
        assert_eq!([put(b"one"), put(b"two"), put(b"three"), put(b"seven")], [8, 8, 18, 18]);
    }
}
