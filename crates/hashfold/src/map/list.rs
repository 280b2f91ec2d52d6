//! A list of changes in RAM: the newest change of each key of a group.
//!
//! Changes are packed one after the other; a hash table finds them. A place of the table has the offset
//! of a change and 32 bits of its hash, so that nearly all keys that are compared are equal, and a
//! table grows without a look at the changes.
//!
//! | field      | size |                                                     |
//! |------------|-----:|-----------------------------------------------------|
//! | key_size   |    2 | in bytes; plus 8192 if the entry expires            |
//! | value_size |    2 | in bytes; 65535 for a tombstone, which has no value; 65534 for a pointer to a large value |
//! | key        |    … |                                                     |
//! | expires_at |    8 | milliseconds since 1970-01-01 UTC; only if the entry expires |
//! | value      |    … | or the pointer                                      |

use super::{
    item::{Change, Content, Form, Item, Value},
    large::{Owner, Owners},
    pointer::POINTER_SIZE,
    sizes::Sizes,
};
use crate::key::{KeyHash, Seed};
const HEAD_SIZE: usize = 4;
/// The bit of a key size that marks an entry that expires.
const EXPIRES: u16 = 1 << 13;
const NO_VALUE: u16 = u16::MAX;
const LARGE: u16 = u16::MAX - 1;
/// Memory for the owner of a large value, in bytes, about.
const OWNER_SIZE: usize = 64;
/// Number of bits for an offset in the table.
const OFFSET_BITS: u32 = u32::BITS;
/// Number of places in the smallest table.
const TABLE_MIN: usize = 8;

/// The changes of a group since the last flush, or some of them.
#[derive(Clone, Debug)]
pub(super) struct List {
    bytes: Vec<u8>,
    /// For each place, the tag of a change, and its offset plus 1; or 0. A change is at the place that its
    /// tag says, or at one of the next ones, up to a free place.
    table: Vec<u64>,
    /// Number of keys.
    count: usize,
    /// Number of keys that are deleted.
    deleted: usize,
    /// The bytes of the changes in the list, and bounds on all that were ever in it.
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
        let (count, deleted, owners) = (0, 0, Owners::default());
        let (sizes, first_seq) = (Sizes::EMPTY, u64::MAX);
        List { bytes, table, count, deleted, sizes, first_seq, owners, seed }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of keys that have a value.
    pub(super) fn values(&self) -> u64 {
        (self.count - self.deleted) as u64
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
        self.bytes.capacity() + self.table.capacity() * size_of::<u64>() + owners
    }

    /// Applies a change, which replaces an earlier change of the key. `seq` is its sequence number,
    /// `owner` that of a large value.
    pub(super) fn apply(&mut self, change: Change<'_>, seq: u64, owner: Option<&Owner>) {
        if self.count * 5 >= self.table.len() * 4 {
            self.grow_table();
        }
        let Change { hash, key, content } = change;
        self.first_seq = self.first_seq.min(seq);
        let item = Item::new(change, 0);
        self.sizes.add(&item);
        owner.iter().for_each(|owner| self.owners.insert(owner));
        let place = self.place(hash, key);
        let head = head_of(&item);
        if let Some(offset) = self.offset(place)
            && self.bytes[offset..][..HEAD_SIZE] == head
        {
            self.sizes.bytes -= item.size() as u64;
            self.overwrite(offset + HEAD_SIZE + key.len(), content);
            return;
        }
        match self.offset(place) {
            None => self.count += 1,
            Some(old) => {
                let content = self.content(old);
                self.sizes.bytes -= Item::new(Change { hash, key, content }, 0).size() as u64;
                self.deleted -= usize::from(self.is_tombstone(old));
            }
        }
        self.deleted += usize::from(content == Content::TOMBSTONE);
        self.table[place] = u64::from(tag_of(hash)) << OFFSET_BITS | (self.bytes.len() as u64 + 1);
        let needed = HEAD_SIZE + item.size();
        // Doubling would leave half of the memory unused.
        if self.bytes.capacity() - self.bytes.len() < needed {
            self.bytes.reserve_exact(needed.max(self.bytes.len() / 4));
        }
        self.bytes.extend(head);
        self.bytes.extend(key);
        content.encode(&mut self.bytes);
    }

    /// Replaces a value by one of the same size and form.
    fn overwrite(&mut self, mut at: usize, content: Content<'_>) {
        let mut put = |bytes: &[u8]| {
            self.bytes[at..][..bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        content.expires_at.iter().for_each(|time| put(&time.to_le_bytes()));
        match content.value {
            Value::Tombstone => {}
            Value::Inline(value) => put(value),
            Value::Large(pointer) => put(&pointer.encode()),
        }
    }

    /// Finds a key.
    pub(super) fn find(&self, hash: KeyHash, key: &[u8]) -> Option<Content<'_>> {
        if self.count == 0 {
            return None;
        }
        let offset = self.offset(self.place(hash, key))?;
        Some(self.content(offset))
    }

    /// Finds a key. Returns its value, and the owner of a large value.
    pub(super) fn find_owned(
        &self,
        hash: KeyHash,
        key: &[u8],
    ) -> Option<(Content<'_>, Option<&Owner>)> {
        self.find(hash, key).map(|content| (content, self.owner(content.value)))
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
        for offset in self.table.iter().filter_map(|entry| offset_of(*entry)) {
            let (key, content) = (self.key(offset), self.content(offset));
            take(Change { hash: KeyHash::of(key, self.seed), key, content });
        }
    }

    /// Returns the place of a key in the table, or the free place for it.
    fn place(&self, hash: KeyHash, key: &[u8]) -> usize {
        let tag = tag_of(hash);
        let mut place = first_place(tag, self.table.len());
        while let Some(offset) = self.offset(place)
            && !((self.table[place] >> OFFSET_BITS) as u32 == tag && self.key(offset) == key)
        {
            place = next_place(place, self.table.len());
        }
        place
    }

    fn offset(&self, place: usize) -> Option<usize> {
        offset_of(self.table[place])
    }

    fn field(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn key(&self, offset: usize) -> &[u8] {
        let size = self.field(offset) & !EXPIRES;
        &self.bytes[offset + HEAD_SIZE..][..size.into()]
    }

    fn is_tombstone(&self, offset: usize) -> bool {
        self.field(offset + 2) == NO_VALUE
    }

    fn content(&self, offset: usize) -> Content<'_> {
        let (key_size, value_size) = (self.field(offset), self.field(offset + 2));
        if self.is_tombstone(offset) {
            return Content::TOMBSTONE;
        }
        let form = Form { is_large: value_size == LARGE, expires: key_size & EXPIRES != 0 };
        let size = if form.is_large { POINTER_SIZE } else { value_size.into() };
        let start = offset + HEAD_SIZE + usize::from(key_size & !EXPIRES);
        let bytes = &self.bytes[start..][..form.expiry_size() + size];
        Content::decode(bytes, form).expect("it was encoded")
    }

    fn grow_table(&mut self) {
        let len = (self.table.len() * 5 / 4).max(TABLE_MIN);
        let old = std::mem::replace(&mut self.table, vec![0; len]);
        for entry in old.into_iter().filter(|entry| *entry != 0) {
            // Keys in the table differ, so a free place is enough.
            let mut place = first_place((entry >> OFFSET_BITS) as u32, len);
            while self.table[place] != 0 {
                place = next_place(place, len);
            }
            self.table[place] = entry;
        }
    }
}

/// Returns the bits of a hash that the table has.
fn tag_of(hash: KeyHash) -> u32 {
    (hash.low() >> 32) as u32
}

/// Returns the offset of a change in the table.
fn offset_of(entry: u64) -> Option<usize> {
    (entry as u32).checked_sub(1).map(|offset| offset as usize)
}

/// Returns the first place of a tag in a table of this length: the tags are spread evenly.
fn first_place(tag: u32, len: usize) -> usize {
    ((u64::from(tag) * len as u64) >> u32::BITS) as usize
}

fn next_place(place: usize, len: usize) -> usize {
    if place + 1 < len { place + 1 } else { 0 }
}

/// Returns the fields in front of the key.
fn head_of(item: &Item) -> [u8; HEAD_SIZE] {
    let mark = if item.form.expires { EXPIRES } else { 0 };
    let value_size = if item.form.is_large { Some(LARGE) } else { item.value_size() };
    let [a, b] = (item.key_size | mark).to_le_bytes();
    let [c, d] = value_size.unwrap_or(NO_VALUE).to_le_bytes();
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const SEED: Seed = Seed(3);

    /// Returns what a value and a time make of a key.
    fn content(value: Option<&[u8]>, expires_at: Option<u64>) -> Content<'_> {
        let value = value.map_or(Value::Tombstone, Value::Inline);
        Content { value, expires_at: expires_at.filter(|_| value != Value::Tombstone) }
    }

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
            let expires_at = random.is_multiple_of(3).then_some(random >> 20);
            let content = content(value.as_deref(), expires_at);
            let change = Change { hash: KeyHash::of(&key, SEED), key: &key, content };
            list.apply(change, u64::from(i) + 7, None);
            model.insert(key, (value, expires_at));
        }
        for (key, (value, expires_at)) in &model {
            let found = list.find(KeyHash::of(key, SEED), key);
            assert_eq!(found, Some(content(value.as_deref(), *expires_at)), "{key:?}");
        }
        assert_eq!(list.find(KeyHash::of(b"absent", SEED), b"absent"), None);
        assert_eq!(list.sizes().entries, model.len() as u64);
        let mut bytes = 0;
        let mut left = model.clone();
        list.for_each(|change| {
            let (value, expires_at) = left.remove(change.key).expect("each key comes once");
            assert_eq!(change.content, content(value.as_deref(), expires_at));
            assert_eq!(change.hash, KeyHash::of(change.key, SEED));
            bytes += Item::new(change, 0).size() as u64;
        });
        assert!(left.is_empty());
        assert_eq!(list.first_seq, 7);
        assert_eq!(list.sizes().bytes, bytes, "each key counts once");
        let values = model.values().filter(|(value, _)| value.is_some()).count();
        assert_eq!(list.values(), values as u64);
    }

    /// Hashes with one tag are a row of places, past the end of the table, too.
    #[test]
    fn keys_with_equal_tags_are_told_apart() {
        for tag in [0, 7, u32::MAX] {
            let hash = KeyHash::from_bits(u128::from(tag) << 32);
            let mut list = List::new(SEED);
            for i in 0..200_u8 {
                let value = [i, 1];
                let content = content(Some(&value), None);
                list.apply(Change { hash, key: &[i], content }, 1, None);
            }
            for i in 0..200_u8 {
                assert_eq!(list.find(hash, &[i]), Some(content(Some(&[i, 1]), None)));
            }
            assert_eq!(list.find(hash, b"absent"), None);
        }
    }

    #[test]
    fn values_of_one_size_are_replaced_in_place() {
        let mut list = List::new(SEED);
        let mut put = |value: &[u8], expires_at| {
            let (hash, content) = (KeyHash::of(b"k", SEED), content(Some(value), expires_at));
            list.apply(Change { hash, key: b"k", content }, 1, None);
            assert_eq!(list.find(hash, b"k"), Some(content));
            list.bytes.len()
        };
        let sizes =
            [put(b"one", None), put(b"two", None), put(b"three", None), put(b"seven", None)];
        assert_eq!(sizes, [8, 8, 18, 18]);
        assert_eq!(
            [put(b"seven", Some(7)), put(b"eight", Some(8)), put(b"8", Some(8))],
            [36, 36, 50]
        );
    }
}
