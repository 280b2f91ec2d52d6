//! The order of commands on filters: one at a time, or a whole transaction that no other command interrupts.

use hashfold::store::slot_of;
use std::{
    fmt,
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

/// Number of groups of keys that take turns independently of each other.
const GROUPS: usize = 64;

/// What commands on filters hold while they run: single commands together, transactions alone.
pub(crate) struct FilterTurns([RwLock<()>; GROUPS]);

impl Default for FilterTurns {
    fn default() -> FilterTurns {
        FilterTurns([const { RwLock::new(()) }; GROUPS])
    }
}

impl fmt::Debug for FilterTurns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilterTurns").finish_non_exhaustive()
    }
}

/// The group that a key takes turns with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TurnGroup(usize);

impl TurnGroup {
    /// Returns the group of a key.
    pub(crate) fn of(key: &[u8]) -> TurnGroup {
        TurnGroup(slot_of(key) as usize % GROUPS)
    }

    /// Returns the groups of all keys.
    pub(crate) fn all() -> Vec<TurnGroup> {
        (0..GROUPS).map(TurnGroup).collect()
    }
}

impl FilterTurns {
    /// Waits until no transaction runs on the group. None begins while the result is held.
    pub(crate) fn with_others(&self, TurnGroup(group): TurnGroup) -> RwLockReadGuard<'_, ()> {
        self.0[group].read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nothing runs on these groups. Nothing begins while the result is held.
    pub(crate) fn alone(&self, mut groups: Vec<TurnGroup>) -> Vec<RwLockWriteGuard<'_, ()>> {
        // In one order, so that two transactions never wait for each other.
        groups.sort_unstable();
        groups.dedup();
        let take = |TurnGroup(group): TurnGroup| self.0[group].write();
        groups
            .into_iter()
            .map(|group| take(group).unwrap_or_else(PoisonError::into_inner))
            .collect()
    }
}
