//! The directory: from a hash to its group.

use super::{group::Group, prefix::Prefix};
use crate::key::KeyHash;
use std::sync::{Arc, RwLock};

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

    /// Replaces all groups by groups that are in order and hold every hash. `end` ends the old ones at
    /// that moment; readers and writers of them try again.
    pub(super) fn reset(&self, new: Vec<Arc<Group>>, end: impl FnMut(&Arc<Group>)) {
        let mut groups = self.0.write().expect(NO_PANIC);
        groups.groups.iter().for_each(end);
        *groups = Groups::new(new);
    }

    /// Replaces a group by groups that divide its key range. `hand_over` moves the changes in RAM
    /// at the moment of the replacement; readers and writers of the old group try again.
    pub(super) fn replace(&self, old: Prefix, new: &[Arc<Group>], hand_over: impl FnOnce()) {
        assert_eq!(new.first().map(|group| group.prefix.start), Some(old.start));
        let mut groups = self.0.write().expect(NO_PANIC);
        let at = groups.position(old.start);
        assert_eq!(groups.groups[at].prefix, old);
        hand_over();
        groups.starts.splice(at..=at, new.iter().map(|group| group.prefix.start));
        groups.groups.splice(at..=at, new.iter().cloned());
    }
}

impl Groups {
    fn new(groups: Vec<Arc<Group>>) -> Groups {
        let starts: Vec<u64> = groups.iter().map(|group| group.prefix.start).collect();
        assert_eq!(starts.first(), Some(&0));
        Groups { starts, groups }
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

    #[test]
    fn a_hash_leads_to_the_group_that_contains_it_also_after_splits() {
        let group = |prefix| Group::new(Stored::empty(prefix), Seed(1));
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
}
