//! Joining two sorted runs: keys of the old run, of the new run, or of both.
//!
//! ```text
//!         old    new       overlay    replace    difference
//!  a      1      -         1          -          a is deleted
//!  b      1      2         2          2          2
//!  c      1      1         1          1          -
//!  d      -      1         1          1          1
//!  e      1      deleted   -          -          e is deleted
//! ```

use super::version::Changes;
use crate::{
    error::{ErrorKind, Result},
    key::{KeyHash, Seed},
    run::{Entry, Run, Summary},
};
use std::cmp::Ordering;

/// A key that differs between two versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyChange<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value in the old version, if it has the key.
    pub old: Option<&'a [u8]>,
    /// The value in the new version, if it has the key.
    pub new: Option<&'a [u8]>,
}

/// The result of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// The old entries overlaid with the new ones: an update.
    Overlay,
    /// The new entries only.
    Replace,
    /// The changes that lead from the old entries to the new ones; deletions are tombstones.
    Difference,
}

/// A run that joins two runs and counts how they differ.
pub(super) struct Join<O, N> {
    old: Side<O>,
    new: Side<N>,
    keep: Keep,
    changes: Changes,
    /// The current entry of the join.
    current: Joined,
}

/// A run, and whether its current entry has not been taken yet.
struct Side<R> {
    run: R,
    state: SideState,
    /// The hash of the run's current entry.
    hash: KeyHash,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SideState {
    /// The run's entry was taken, or no entry was read yet.
    Behind,
    Ready,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Joined {
    Nothing,
    Old,
    New,
    /// The new run's entry; the old run has another value.
    Changed,
    /// The old run's entry, as a tombstone.
    Deleted,
}

impl<R: Run> Side<R> {
    fn new(run: R) -> Side<R> {
        Side { run, state: SideState::Behind, hash: KeyHash::from_bits(0) }
    }

    /// Steps to the next entry if the current one was taken.
    #[inline]
    fn make_ready(&mut self) -> Result<()> {
        if self.state != SideState::Behind {
            return Ok(());
        }
        let last = self.hash;
        if self.run.advance()? {
            self.hash = self.run.entry().hash;
            if self.hash < last {
                return Err(ErrorKind::Order { previous: last, got: self.hash }.into());
            }
            self.state = SideState::Ready;
        } else {
            self.state = SideState::Ended;
        }
        Ok(())
    }
}

impl<O: Run, N: Run> Join<O, N> {
    pub(super) fn new(old: O, new: N, keep: Keep) -> Join<O, N> {
        Join {
            old: Side::new(old),
            new: Side::new(new),
            keep,
            changes: Changes::default(),
            current: Joined::Nothing,
        }
    }

    /// Returns how the runs differ, as far as they have been read.
    pub(super) fn changes(&self) -> Changes {
        self.changes
    }

    /// Returns the current entry with its value in the old run.
    pub(super) fn change(&self) -> KeyChange<'_> {
        let Entry { key, value: new, .. } = self.entry();
        let old = match self.current {
            Joined::New => None,
            _ => self.old.run.entry().value,
        };
        KeyChange { key, old, new }
    }

    /// Returns which run's key comes first; `None` at the end.
    #[inline]
    fn order(&self) -> Option<Ordering> {
        match (self.old.state, self.new.state) {
            (SideState::Ready, SideState::Ready) => Some(match self.old.hash.cmp(&self.new.hash) {
                Ordering::Equal => self.old.run.entry().key.cmp(self.new.run.entry().key),
                other => other,
            }),
            (SideState::Ready, _) => Some(Ordering::Less),
            (_, SideState::Ready) => Some(Ordering::Greater),
            _ => None,
        }
    }

    /// Takes the next key of either run; returns its entry, or `Nothing` if the result has none.
    #[inline]
    fn step(&mut self) -> Result<Option<Joined>> {
        self.old.make_ready()?;
        self.new.make_ready()?;
        let Some(order) = self.order() else { return Ok(None) };
        if order != Ordering::Greater {
            self.old.state = SideState::Behind;
        }
        if order != Ordering::Less {
            self.new.state = SideState::Behind;
        }
        Ok(Some(match order {
            Ordering::Less => self.only_old(),
            Ordering::Greater => self.only_new(),
            Ordering::Equal => self.both(),
        }))
    }

    #[inline]
    fn only_old(&mut self) -> Joined {
        if self.keep == Keep::Overlay {
            self.changes.unchanged += 1;
            return Joined::Old;
        }
        self.changes.removed += 1;
        if self.keep == Keep::Difference { Joined::Deleted } else { Joined::Nothing }
    }

    fn only_new(&mut self) -> Joined {
        // A tombstone for an absent key changes nothing.
        if self.new.run.entry().value.is_none() {
            return Joined::Nothing;
        }
        self.changes.added += 1;
        Joined::New
    }

    fn both(&mut self) -> Joined {
        let (old, new) = (self.old.run.entry().value, self.new.run.entry().value);
        if new.is_none() {
            self.changes.removed += 1;
            return if self.keep == Keep::Difference { Joined::Deleted } else { Joined::Nothing };
        }
        if old == new {
            self.changes.unchanged += 1;
            return if self.keep == Keep::Difference { Joined::Nothing } else { Joined::New };
        }
        self.changes.changed += 1;
        Joined::Changed
    }
}

impl<O: Run, N: Run> Run for Join<O, N> {
    fn seed(&self) -> Seed {
        self.new.run.seed()
    }

    fn summary(&self) -> Summary {
        match self.keep {
            Keep::Replace => self.new.run.summary(),
            Keep::Overlay | Keep::Difference => {
                self.old.run.summary().union(self.new.run.summary())
            }
        }
    }

    fn advance(&mut self) -> Result<bool> {
        loop {
            match self.step()? {
                None => return Ok(false),
                Some(Joined::Nothing) => {}
                Some(current) => {
                    self.current = current;
                    return Ok(true);
                }
            }
        }
    }

    #[inline]
    fn entry(&self) -> Entry<'_> {
        match self.current {
            Joined::Nothing => panic!("the last advance returned true"),
            Joined::Old => self.old.run.entry(),
            Joined::New | Joined::Changed => self.new.run.entry(),
            Joined::Deleted => Entry { value: None, ..self.old.run.entry() },
        }
    }
}
