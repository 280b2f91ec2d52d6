//! Snapshots of an index while it changes: a group is copied when it changes for the first time after a snapshot began
//! and before the snapshot has read it.
//!
//! A snapshot reads the groups in the order of their hashes, and each as it was: from its copy, or in place if there is
//! none. Groups that split later are in the copy of the group that they were.

use super::{
    group::{self, Group},
    index::{Index, group_at},
    line::{Pair, SLOTS_MAX},
    snapshots::{Active, Copy},
};
use crate::error::{ErrorKind, Result};
use std::{collections::BTreeMap, sync::Arc};

impl Index {
    /// Begins a snapshot; returns its number.
    ///
    /// # Errors
    /// `Limit` after 2^32 snapshots.
    pub(super) fn begin_snapshot(&mut self) -> Result<u32> {
        let (limit, next) = (u64::from(u32::MAX), Some(self.range().0));
        let Some(epoch) = self.snapshots.epoch.checked_add(1) else {
            let what = "number of snapshots";
            return Err(ErrorKind::Limit { what, limit, got: limit + 1 }.into());
        };
        self.snapshots.epoch = epoch;
        self.snapshots.active.push(Active { epoch, next, copies: BTreeMap::new() });
        Ok(epoch)
    }

    /// Ends a snapshot, if it has not ended.
    pub(super) fn end_snapshot(&mut self, epoch: u32) {
        self.snapshots.active.retain(|active| active.epoch != epoch);
    }

    /// Replaces `pairs` by the pairs of the snapshot's next group, in any order; returns the depth of the group, or
    /// `None` at the end.
    pub(super) fn next_of_snapshot(&mut self, epoch: u32, pairs: &mut Vec<Pair>) -> Option<u32> {
        pairs.clear();
        let active = &mut self.snapshots.active;
        let at = active.iter().position(|active| active.epoch == epoch)?;
        let next = active[at].next?;
        let depth = if let Some(copy) = active[at].copies.remove(&next) {
            pairs.extend_from_slice(&copy.pairs);
            copy.depth
        } else {
            let group = Group::decode(self.groups.line(group_at(self.group_of(next))));
            self.gather(&group, next, pairs);
            group.division.depth
        };
        let ((first, last), end) = (group::range(next, depth), self.range().1);
        debug_assert_eq!(first, next);
        self.snapshots.active[at].next = (last < end).then(|| last + 1);
        Some(depth)
    }

    /// Must be called before a group changes: copies it for the snapshots that have not read it.
    ///
    /// # Errors
    /// `Memory` if the budget is exhausted.
    #[inline]
    pub(super) fn before_change(&mut self, number: u32, hash: u64) -> Result<()> {
        if self.snapshots.active.is_empty() { Ok(()) } else { self.copy_group(number, hash) }
    }

    #[cold]
    fn copy_group(&mut self, number: u32, hash: u64) -> Result<()> {
        let group = Group::decode(self.groups.line(group_at(number)));
        if group.epoch == self.snapshots.epoch {
            return Ok(());
        }
        let (first, _) = group::range(hash, group.division.depth);
        let wants = |active: &&mut Active| {
            active.epoch > group.epoch && active.next.is_some_and(|next| next <= first)
        };
        if self.snapshots.active.iter_mut().any(|active| wants(&active)) {
            let bytes = group.count * size_of::<Pair>();
            let reserved = self.snapshots.budget.reserve(bytes as u64)?;
            let mut pairs = Vec::with_capacity(group.count + SLOTS_MAX);
            self.gather(&group, hash, &mut pairs);
            let copy = Arc::new(Copy { depth: group.division.depth, pairs, _reserved: reserved });
            for active in self.snapshots.active.iter_mut().filter(wants) {
                active.copies.insert(first, copy.clone());
            }
        }
        group::set_epoch(self.groups.line_mut(group_at(number)), self.snapshots.epoch);
        Ok(())
    }
}
