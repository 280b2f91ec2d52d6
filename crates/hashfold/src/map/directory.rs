//! The directory: from a hash to its group.

use super::{group::Group, prefix::Prefix, sync::RwLock};
use crate::key::KeyHash;
use std::{ops::Range, sync::Arc};

const NO_PANIC: &str = "nothing panics under this lock";

/// All groups of a map. Together, their key ranges hold every hash once.
#[derive(Debug)]
pub(super) struct Directory(RwLock<Groups>);

/// The groups in the order of their key ranges.
#[derive(Debug)]
struct Groups {
    /// The high 64 bits of the first hash of each group.
    starts: Vec<u64>,
    groups: Vec<Arc<Group>>,
}

impl Directory {
    /// Makes the directory of groups that are in order and hold every hash.
    pub(super) fn new(groups: Vec<Arc<Group>>) -> Directory {
        Directory(RwLock::new(Groups::new(groups)))
    }

    /// Returns the group of a hash.
    pub(super) fn find(&self, hash: KeyHash) -> Arc<Group> {
        let groups = self.0.read().expect(NO_PANIC);
        groups.groups[groups.position(hash.high())].clone()
    }

    /// Returns all groups in order.
    pub(super) fn all(&self) -> Vec<Arc<Group>> {
        self.0.read().expect(NO_PANIC).groups.clone()
    }

    /// Returns what `view` returns for each group, in order. No group is replaced meanwhile.
    pub(super) fn map<T>(&self, view: impl FnMut(&Arc<Group>) -> T) -> Vec<T> {
        self.0.read().expect(NO_PANIC).groups.iter().map(view).collect()
    }

    /// Returns the groups that divide a key range, in order.
    pub(super) fn within(&self, range: Prefix) -> Vec<Arc<Group>> {
        let groups = self.0.read().expect(NO_PANIC);
        groups.groups[groups.positions(range)].to_vec()
    }

    /// Replaces all groups by groups that are in order and hold every hash. `end` ends the old ones at
    /// that moment; readers and writers of them try again.
    pub(super) fn reset(&self, new: Vec<Arc<Group>>, end: impl FnMut(&Arc<Group>)) {
        let mut groups = self.0.write().expect(NO_PANIC);
        groups.groups.iter().for_each(end);
        *groups = Groups::new(new);
    }

    /// Replaces the groups that divide a key range by others that do. `hand_over` moves the changes
    /// in RAM at the moment of the replacement; readers and writers of the old groups try again.
    pub(super) fn replace(&self, range: Prefix, new: &[Arc<Group>], hand_over: impl FnOnce()) {
        check_range(range, new);
        let mut groups = self.0.write().expect(NO_PANIC);
        let old = groups.positions(range);
        check_range(range, &groups.groups[old.clone()]);
        hand_over();
        groups.starts.splice(old.clone(), new.iter().map(|group| group.prefix.start));
        groups.groups.splice(old, new.iter().cloned());
        groups.shrink();
    }
}

/// Checks that groups divide a key range.
fn check_range(range: Prefix, groups: &[Arc<Group>]) {
    let mut end = Some(range.start);
    for group in groups {
        assert_eq!(Some(group.prefix.start), end);
        end = group.prefix.end();
    }
    assert!(!groups.is_empty());
    assert_eq!(end, range.end());
}

impl Groups {
    fn new(groups: Vec<Arc<Group>>) -> Groups {
        let starts: Vec<u64> = groups.iter().map(|group| group.prefix.start).collect();
        assert_eq!(starts.first(), Some(&0));
        Groups { starts, groups }
    }

    /// Returns the indexes of the groups in a key range.
    fn positions(&self, range: Prefix) -> Range<usize> {
        let end = range
            .end()
            .map_or(self.starts.len(), |end| self.starts.partition_point(|start| *start < end));
        self.position(range.start)..end
    }

    /// Gives memory back after groups were joined.
    fn shrink(&mut self) {
        if self.starts.len() < self.starts.capacity() / 4 {
            self.starts.shrink_to(2 * self.starts.len());
            self.groups.shrink_to(2 * self.starts.len());
        }
    }

    /// Returns the index of the group that holds a hash, given by its high 64 bits.
    fn position(&self, high: u64) -> usize {
        self.starts.partition_point(|start| *start <= high) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::{super::span::Stored, *};
    use crate::key::Seed;

    fn group(prefix: Prefix) -> Arc<Group> {
        Group::new(Stored::empty(prefix), Seed(1))
    }

    #[test]
    fn a_hash_leads_to_the_group_that_contains_it_also_after_splits() {
        let directory = Directory::new(vec![group(Prefix::ALL)]);
        for i in 0..100_u32 {
            let hash = KeyHash::of(&i.to_le_bytes(), Seed(1));
            let found = directory.find(hash);
            assert!(found.prefix.contains(hash));
            let new = found.prefix.halves().map(group);
            directory.replace(found.prefix, &new, || {});
        }
        let all = directory.all();
        assert_eq!(all.len(), 101);
        for pair in all.windows(2) {
            assert_eq!(pair[0].prefix.end(), Some(pair[1].prefix.start));
        }
        assert_eq!(all[100].prefix.end(), None);
        for start in all.iter().map(|group| group.prefix) {
            assert_eq!(directory.find(start.first()).prefix, start);
        }
    }

    #[test]
    fn groups_of_any_range_are_joined_again() {
        let directory = Directory::new(vec![group(Prefix::ALL)]);
        for i in 0..200_u32 {
            let found = directory.find(KeyHash::of(&i.to_le_bytes(), Seed(1)));
            directory.replace(found.prefix, &found.prefix.halves().map(group), || {});
        }
        let mut left = directory.all().len();
        for i in 0..400_u32 {
            let found = directory.find(KeyHash::of(&i.to_le_bytes(), Seed(2)));
            let Some(range) = found.prefix.parent() else { break };
            let old = directory.within(range);
            assert!(old.len() > 1 && old.iter().any(|group| Arc::ptr_eq(group, &found)));
            directory.replace(range, &[group(range)], || {});
            left -= old.len() - 1;
            let all = directory.map(|group| group.prefix);
            assert_eq!(all.len(), left);
            check_range(Prefix::ALL, &directory.all());
        }
        assert_eq!(left, 1);
        assert!(directory.0.read().unwrap().starts.capacity() < 20);
    }
}
