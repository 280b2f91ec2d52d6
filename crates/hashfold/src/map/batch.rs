//! Entries in RAM, on their way into blocks.

use super::{block, item::Item, sizes::Sizes};
use crate::{key::KeyHash, run::Entry};

/// Entries, each with its hash.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) items: Vec<Item>,
    /// The keys and values.
    pub(super) bytes: Vec<u8>,
}

impl Batch {
    /// Appends an entry.
    pub(super) fn push(&mut self, entry: Entry<'_>) {
        self.items.push(Item::new(entry, self.bytes.len() as u32));
        self.bytes.extend_from_slice(entry.key);
        self.bytes.extend_from_slice(entry.value.unwrap_or_default());
    }

    /// Sorts the entries by (hash, key).
    pub(super) fn sort(&mut self) {
        let bytes = &self.bytes;
        let key = |item: &Item| &bytes[item.start as usize..][..usize::from(item.key_size)];
        self.items.sort_unstable_by(|a, b| a.hash.cmp(&b.hash).then_with(|| key(a).cmp(key(b))));
    }

    /// Returns an entry.
    pub(super) fn entry(&self, i: usize) -> Entry<'_> {
        let item = &self.items[i];
        let bytes = &self.bytes[item.start as usize..][..item.size()];
        let (key, value) = bytes.split_at(item.key_size.into());
        Entry { hash: item.hash, key, value: item.value_size().map(|_| value) }
    }
}

/// Returns the sizes of items.
pub(super) fn sizes(items: &[Item]) -> Sizes {
    let mut sizes = Sizes::EMPTY;
    items.iter().for_each(|item| sizes.add(item.key_size, item.value_size()));
    sizes
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
    use super::*;

    /// Cuts items of 1000 bytes with these fences. Three of them fit in a block.
    #[track_caller]
    fn check(fences: &[u32], expected: &[usize]) {
        let mut batch = Batch::default();
        for fence in fences {
            let hash = KeyHash::from_bits(u128::from(*fence) << 96);
            batch.push(Entry { hash, key: &[1; 500], value: Some(&[2; 800]) });
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
