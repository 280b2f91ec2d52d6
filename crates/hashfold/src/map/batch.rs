//! Entries in RAM, on their way into blocks.

use super::{
    block,
    expiries::Expiries,
    item::{Change, Content, Form, Item},
    large::{self, Owner},
    pointer::{POINTER_SIZE, Pointer},
    sizes::Sizes,
};
use crate::{error::Result, key::KeyHash, run::Entry};
use std::cmp::Ordering;

/// Entries, each with its hash.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) items: Vec<Item>,
    /// The entries, as in blocks; after each entry, a byte with its form.
    pub(super) bytes: Vec<u8>,
}

/// The bit of an entry's last byte that says that its value is a pointer.
const LARGE: u8 = 1;
/// The bit of an entry's last byte that says that the entry expires.
const EXPIRES: u8 = 2;

/// Returns the content of an entry of [`Batch::entry`].
pub(super) fn untagged(value: Option<&[u8]>) -> Result<Content<'_>> {
    match value.and_then(<[u8]>::split_last) {
        None => Ok(Content::TOMBSTONE),
        Some((tag, bytes)) => {
            let form = Form { is_large: tag & LARGE != 0, expires: tag & EXPIRES != 0 };
            Content::decode(bytes, form)
        }
    }
}

fn tag_of(form: Form) -> u8 {
    u8::from(form.is_large) * LARGE + u8::from(form.expires) * EXPIRES
}

impl Batch {
    /// Appends a change; a change of the key with a lower age replaces it.
    pub(super) fn push(&mut self, change: Change<'_>, age: u16) {
        let mut item = Item::new(change, self.bytes.len() as u32);
        item.age = age;
        self.bytes.extend_from_slice(change.key);
        change.content.encode(&mut self.bytes);
        self.bytes.push(tag_of(item.form));
        self.items.push(item);
    }

    /// Removes all entries, and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.items.clear();
        self.bytes.clear();
    }

    /// Returns the memory of the batch, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.items.capacity() * size_of::<Item>() + self.bytes.capacity()
    }

    /// Makes room for this number of entries, with keys and values of this size together.
    pub(super) fn reserve(&mut self, entries: usize, bytes: usize) {
        self.items.reserve(entries);
        // A byte with the form follows each entry.
        self.bytes.reserve(bytes + entries);
    }

    /// Sorts the entries from `start` on by (hash, key), and keeps of each key that of the lowest age. Needs
    /// no further memory.
    pub(super) fn settle(&mut self, start: usize) {
        let bytes = &self.bytes;
        let key = |item: &Item| &bytes[item.start as usize..][..usize::from(item.key_size)];
        let order = |a: &Item, b: &Item| a.hash.cmp(&b.hash).then_with(|| key(a).cmp(key(b)));
        self.items[start..].sort_unstable_by(|a, b| order(a, b).then_with(|| a.age.cmp(&b.age)));
        let mut end = start;
        for i in start..self.items.len() {
            let item = self.items[i];
            if end == start || order(&self.items[end - 1], &item) != Ordering::Equal {
                self.items[end] = item;
                end += 1;
            }
        }
        self.items.truncate(end);
    }

    /// Settles the entries from `start` on, and makes them newer than all that come from now on. Returns the age
    /// of the next ones.
    pub(super) fn rejuvenate(&mut self, start: usize) -> u16 {
        self.settle(start);
        self.items[start..].iter_mut().for_each(|item| item.age = 0);
        1
    }

    /// Returns the size in the bytes of the entries before `i`, if entries are in the order in which
    /// they were pushed.
    pub(super) fn bytes_before(&self, i: usize) -> usize {
        self.items.get(i).map_or(self.bytes.len(), |item| item.start as usize)
    }

    /// Removes the first `count` entries, if entries are in the order in which they were pushed.
    pub(super) fn remove_first(&mut self, count: usize) {
        let size = self.bytes_before(count);
        self.items.drain(..count);
        self.bytes.drain(..size);
        self.items.iter_mut().for_each(|item| item.start -= size as u32);
    }

    /// Removes the tombstones from `start` on.
    pub(super) fn drop_tombstones(&mut self, start: usize) {
        let mut end = start;
        for i in start..self.items.len() {
            let item = self.items[i];
            if item.value_size().is_some() {
                self.items[end] = item;
                end += 1;
            }
        }
        self.items.truncate(end);
    }

    /// Returns a change.
    pub(super) fn change(&self, i: usize) -> Result<Change<'_>> {
        let item = &self.items[i];
        let bytes = &self.bytes[item.start as usize..][..item.size()];
        let (key, content) = bytes.split_at(item.key_size.into());
        let content = match item.value_size() {
            None => Content::TOMBSTONE,
            Some(_) => Content::decode(content, item.form)?,
        };
        Ok(Change { hash: item.hash, key, content })
    }

    /// Returns an entry with a tagged value: [`untagged`] gives its value.
    pub(super) fn entry(&self, i: usize) -> Entry<'_> {
        let item = &self.items[i];
        let bytes = &self.bytes[item.start as usize..][..item.size() + 1];
        let (key, value) = bytes.split_at(item.key_size.into());
        Entry { hash: item.hash, key, value: item.value_size().map(|_| value) }
    }
}

/// Returns the sizes of items.
pub(super) fn sizes(items: &[Item]) -> Sizes {
    let mut sizes = Sizes::EMPTY;
    items.iter().for_each(|item| sizes.add(item));
    sizes
}

/// Returns when items expire.
pub(super) fn expiries((items, bytes): (&[Item], &[u8])) -> Expiries {
    let time = |item: &Item| {
        let at = item.start as usize + usize::from(item.key_size);
        u64::from_le_bytes(*bytes[at..].first_chunk().expect("the item has a time"))
    };
    Expiries::of(items.iter().filter(|item| item.form.expires).map(time).collect())
}

/// Returns the owners of the large values of items, ascending by their first blocks; `find` returns
/// that of a first block.
pub(super) fn owners<'a>(
    (items, bytes): (&[Item], &[u8]),
    find: impl Fn(u64) -> Option<&'a Owner>,
) -> Result<Box<[Owner]>> {
    let mut owners = Vec::new();
    for item in items.iter().filter(|item| item.form.is_large) {
        let end = item.start as usize + item.size();
        let pointer = Pointer::decode(&bytes[end - POINTER_SIZE..end])?;
        owners.push(large::check_owner(pointer, find(pointer.first))?.clone());
    }
    owners.sort_unstable_by_key(|owner: &Owner| owner.first);
    Ok(owners.into())
}

/// Returns where blocks begin that hold the sorted `items`. Items with equal fences are in one block
/// if they fit, so that a search reads one block; if not, they begin a block.
pub(super) fn cut(items: &[Item], fence: impl Fn(KeyHash) -> u32) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 0;
    while at < items.len() {
        starts.push(at);
        let mut end = at + block::fitting(&items[at..]);
        if let Some(next) = items.get(end) {
            let next = fence(next.hash);
            let same = items[at..end].iter().rev().take_while(|item| fence(item.hash) == next);
            let begin = end - same.count();
            end = if begin > at { begin } else { end };
        }
        at = end;
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::{super::item::Value, *};

    /// Cuts items of 1000 bytes with these fences. Three of them fit in a block.
    #[track_caller]
    fn check(fences: &[u32], expected: &[usize]) {
        let mut batch = Batch::default();
        for fence in fences {
            let hash = KeyHash::from_bits(u128::from(*fence) << 96);
            let content = Content::lasting(Value::Inline(&[2; 800]));
            batch.push(Change { hash, key: &[1; 500], content }, 0);
        }
        let starts = cut(&batch.items, |hash| (hash.bits() >> 96) as u32);
        assert_eq!(starts, expected);
        for fence in fences {
            let blocks: Vec<u32> = starts.iter().map(|&start| fences[start]).collect();
            let range = super::super::span::candidates(&blocks, *fence);
            for (i, other) in fences.iter().enumerate().filter(|(_, other)| *other == fence) {
                let block = starts.partition_point(|start| *start <= i) - 1;
                assert!(range.contains(&block), "{other} is not in {range:?}");
            }
        }
    }

    #[test]
    fn of_each_key_the_newest_change_is_kept_in_order() {
        let mut batch = Batch::default();
        let push = |batch: &mut Batch, hash: u128, key: &[u8], value: Option<&[u8]>| {
            let content = Content::lasting(value.map_or(Value::Tombstone, Value::Inline));
            let age = batch.items.len() as u16;
            batch.push(Change { hash: KeyHash::from_bits(hash), key, content }, age);
        };
        push(&mut batch, 9, b"before", Some(b"stays"));
        for (hash, key, value) in [
            (5, &b"b"[..], Some(&b"newest"[..])),
            (7, b"x", None),
            (5, b"a", Some(b"")),
            (5, b"b", Some(b"older")),
            (7, b"x", Some(b"deleted")),
            (2, b"c", Some(b"1")),
            (5, b"b", None),
        ] {
            push(&mut batch, hash, key, value);
        }
        batch.settle(1);
        let entries = |batch: &Batch| -> Vec<String> {
            let entry = |i| {
                let change = batch.change(i).unwrap();
                let value = match change.content.value {
                    Value::Inline(value) => value.escape_ascii().to_string(),
                    _ => "deleted".into(),
                };
                format!("{} {} {value}", change.hash.bits(), change.key.escape_ascii())
            };
            (0..batch.items.len()).map(entry).collect()
        };
        assert_eq!(
            entries(&batch),
            ["9 before stays", "2 c 1", "5 a ", "5 b newest", "7 x deleted"]
        );
        batch.drop_tombstones(1);
        assert_eq!(entries(&batch), ["9 before stays", "2 c 1", "5 a ", "5 b newest"]);
    }

    #[test]
    fn the_first_entries_are_removed_and_the_others_stay() {
        let mut batch = Batch::default();
        for i in 0..7_u8 {
            let value = vec![i; i.into()];
            let content = Content::lasting(Value::Inline(&value));
            batch.push(Change { hash: KeyHash::from_bits(i.into()), key: &[i], content }, 0);
        }
        let sizes = [0, 2, 5, 9, 14, 20, 27, 35];
        assert!((0..8).all(|i| batch.bytes_before(i) == sizes[i]));
        for (removed, count) in [0, 3, 1, 2].into_iter().scan(0, |all, count| {
            *all += count;
            Some((*all, count))
        }) {
            batch.remove_first(count);
            assert_eq!(batch.items.len(), 7 - removed);
            for (i, left) in (removed..7).enumerate() {
                let change = batch.change(i).unwrap();
                let value = vec![left as u8; left];
                assert_eq!(change.key, [left as u8]);
                assert_eq!(change.content, Content::lasting(Value::Inline(&value)));
            }
        }
        batch.remove_first(1);
        assert!(batch.items.is_empty() && batch.bytes.is_empty());
    }

    #[test]
    fn equal_fences_stay_together_or_begin_a_block() {
        check(&[], &[]);
        check(&[1, 2, 3, 4], &[0, 3]);
        check(&[1, 2, 2, 2], &[0, 1]);
        check(&[1, 1, 2, 2, 3], &[0, 2]);
        check(&[1, 2, 2, 2, 2, 2], &[0, 1, 4]);
        check(&[1, 1, 1, 1, 1, 1, 1, 2, 3], &[0, 3, 6]);
        check(&[1, 2, 2, 2, 2, 3, 4, 5], &[0, 1, 4, 7]);
    }
}
