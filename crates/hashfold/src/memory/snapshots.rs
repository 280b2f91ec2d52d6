//! The snapshots of an index that have not ended, and the groups that were copied for them.

use super::line::Pair;
use crate::work::{MemoryBudget, Reserved};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

/// The pairs of a group when a snapshot began.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) depth: u32,
    pub(super) pairs: Vec<Pair>,
    /// The bytes of the pairs, in the budget.
    pub(super) _reserved: Reserved,
}

/// A snapshot that has not ended.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) epoch: u32,
    /// The first hash that was not read; `None` at the end.
    pub(super) next: Option<u64>,
    /// Copies of groups that were not read, by their first hash.
    pub(super) copies: BTreeMap<u64, Arc<Copy>>,
}

/// The snapshots of an index that have not ended.
#[derive(Debug)]
pub(super) struct Snapshots {
    pub(super) active: Vec<Active>,
    /// The number of the last snapshot.
    pub(super) epoch: u32,
    pub(super) budget: MemoryBudget,
}

impl Snapshots {
    pub(super) fn new(budget: &MemoryBudget) -> Snapshots {
        Snapshots { active: Vec::new(), epoch: 0, budget: budget.clone() }
    }

    /// Returns the number of the snapshot that began first of those that have not ended.
    pub(super) fn oldest(&self) -> Option<u32> {
        self.active.first().map(|active| active.epoch)
    }

    /// Returns the number of the last snapshot.
    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Returns the size of all copies in bytes; one for several snapshots counts once.
    pub(super) fn bytes(&self) -> u64 {
        let mut counted = HashSet::new();
        let copies = self.active.iter().flat_map(|active| active.copies.values());
        let copies = copies.filter(|copy| counted.insert(Arc::as_ptr(copy)));
        copies.map(|copy| (copy.pairs.len() * size_of::<Pair>()) as u64).sum()
    }
}
