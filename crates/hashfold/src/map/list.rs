//! A list of changes in RAM: the newest change of each key of a group.
//!
//! Changes are packed one after the other; a hash table of offsets finds them.
//!
//! | field      | size |                                                     |
//! |------------|-----:|-----------------------------------------------------|
//! | key_size   |    2 | in bytes                                            |
//! | value_size |    2 | in bytes; 65535 for a tombstone, which has no value; 65534 for a pointer to a large value |
//! | key        |    … |                                                     |
//! | value      |    … | or the pointer                                      |

use super::{
    batch::Batch,
    item::{Change, Item, Value},
    large::{Owner, Owners},
    pointer::{POINTER_SIZE, Pointer},
    sizes::Sizes,
};
use crate::key::{KeyHash, Seed};

const HEAD_SIZE: usize = 4;
const NO_VALUE: u16 = u16::MAX;
const LARGE: u16 = u16::MAX - 1;
/// Memory for the owner of a large value, in bytes, about.
const OWNER_SIZE: usize = 64;
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
    /// Owners of all large values that were ever in the list.
    pub(super) owners: Owners,
    seed: Seed,
}

impl List {
    pub(super) fn new(seed: Seed) -> List {
        let (bytes, table) = (Vec::new(), Vec::new());
        let owners = Owners::default();
        List { bytes, table, count: 0, sizes: Sizes::EMPTY, first_seq: u64::MAX, owners, seed }
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
        let owners = self.owners.len() * OWNER_SIZE;
        self.bytes.capacity() + self.table.capacity() * size_of::<u32>() + owners
    }

    /// Applies a change, which replaces an earlier change of the key. `seq` is its sequence number,
    /// `owner` that of a large value.
    pub(super) fn apply(&mut self, change: Change<'_>, seq: u64, owner: Option<&Owner>) {
        if self.count * 4 >= self.table.len() * 3 {
            self.grow_table();
        }
        let Change { hash, key, value } = change;
        self.first_seq = self.first_seq.min(seq);
        let pointer;
        let (value_size, value) = match value {
            Value::Tombstone => (NO_VALUE, &[][..]),
            Value::Inline(value) => (value.len() as u16, value),
            Value::Large(large) => {
                pointer = large.encode();
                (LARGE, &pointer[..])
            }
        };
        self.sizes.add(&Item::new(change, 0));
        owner.iter().for_each(|owner| self.owners.insert(owner));
        let place = self.place(hash, key);
        if let Some(offset) = self.offset(place)
            && self.size_fields(offset).1 == value_size
        {
            let start = offset + HEAD_SIZE + key.len();
            self.bytes[start..][..value.len()].copy_from_slice(value);
            return;
        }
        self.count += usize::from(self.table[place] == 0);
        self.table[place] = self.bytes.len() as u32 + 1;
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

    /// Finds a key.
    pub(super) fn find(&self, hash: KeyHash, key: &[u8]) -> Option<Value<'_>> {
        if self.count == 0 {
            return None;
        }
        let offset = self.offset(self.place(hash, key))?;
        Some(self.change(offset).1)
    }

    /// Finds a key. Returns its value, and the owner of a large value.
    pub(super) fn find_owned(
        &self,
        hash: KeyHash,
        key: &[u8],
    ) -> Option<(Value<'_>, Option<&Owner>)> {
        self.find(hash, key).map(|value| (value, self.owner(value)))
    }

    /// Returns the owner of a large value.
    pub(super) fn owner(&self, value: Value<'_>) -> Option<&Owner> {
        match value {
            Value::Large(pointer) => self.owners.get(pointer.first),
            Value::Tombstone | Value::Inline(_) => None,
        }
    }

    /// Calls `take` with each change, in no particular order.
    pub(super) fn for_each(&self, mut take: impl FnMut(Change<'_>)) {
        for offset in self.table.iter().filter_map(|place| place.checked_sub(1)) {
            let (key, value) = self.change(offset as usize);
            take(Change { hash: KeyHash::of(key, self.seed), key, value });
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

    fn change(&self, offset: usize) -> (&[u8], Value<'_>) {
        let (key_size, value_size) = self.size_fields(offset);
        let (key, rest) = self.bytes[offset + HEAD_SIZE..].split_at(key_size);
        let value = match value_size {
            NO_VALUE => Value::Tombstone,
            LARGE => Value::Large(Pointer::decode(&rest[..POINTER_SIZE]).expect("it was encoded")),
            size => Value::Inline(&rest[..size.into()]),
        };
        (key, value)
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
    use crate::run::Entry;
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
            list.apply(change.into(), u64::from(i) + 7, None);
            model.insert(key, value);
        }
        for (key, value) in &model {
            let found = list.find(KeyHash::of(key, SEED), key);
            let value = value.as_deref().map_or(Value::Tombstone, Value::Inline);
            assert_eq!(found, Some(value), "{key:?}");
        }
        assert_eq!(list.find(KeyHash::of(b"absent", SEED), b"absent"), None);
        let sorted = list.sorted();
        assert_eq!((sorted.items.len(), list.sizes().entries), (model.len(), model.len() as u64));
        assert!(sorted.items.is_sorted_by_key(|item| item.hash));
        for i in 0..sorted.items.len() {
            let entry = sorted.entry(i);
            let value = model[entry.key].as_deref().map_or(Value::Tombstone, Value::Inline);
            assert_eq!(super::super::batch::untagged(entry.value).unwrap(), value);
            assert_eq!(entry.hash, KeyHash::of(entry.key, SEED));
        }
        assert_eq!(list.first_seq, 7);
    }

    #[test]
    fn values_of_one_size_are_replaced_in_place() {
        let mut list = List::new(SEED);
        let mut put = |value: &[u8]| {
            let change = Entry { hash: KeyHash::of(b"k", SEED), key: b"k", value: Some(value) };
            list.apply(change.into(), 1, None);
            list.bytes.len()
        };
        assert_eq!([put(b"one"), put(b"two"), put(b"three"), put(b"seven")], [8, 8, 18, 18]);
    }
}
