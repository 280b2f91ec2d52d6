//! Lookups that wait for the device.
//!
//! ```text
//!  event loop ─ groups of lookups ─→ queue ─ those of one data set, 64 keys or more ─→ reading threads ─→ replies
//! ```
//!
//! While all reading threads wait for the device, groups gather in the queue, and the next thread that is free takes several
//! of them: the more lookups wait, the more reads are in flight.

use super::batch::Group;
use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The lookups of an event loop that wait for the device.
#[derive(Debug, Default)]
pub(super) struct Reads(Mutex<VecDeque<Waiting>>);

/// Lookups in one view.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) group: Group,
    /// The time since when the first of them waits.
    pub(super) start: Duration,
}

impl Reads {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds lookups behind all others.
    pub(super) fn push(&self, group: Group, start: Duration) {
        self.lock().push_back(Waiting { group, start });
    }

    /// Takes the lookups that have waited the longest, and behind them others in the same view until there are this number of
    /// keys or more. Returns `None` if none wait.
    pub(super) fn take(&self, keys: usize) -> Option<Waiting> {
        let mut queue = self.lock();
        let mut taken = queue.pop_front()?;
        let mut next = 0;
        while taken.group.keys() < keys && next < queue.len() {
            match queue[next].group.is_of(taken.group.view.as_ref()) {
                true => {
                    queue.remove(next).into_iter().for_each(|more| taken.group.join(more.group))
                }
                false => next += 1,
            }
        }
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::View;
    use hashfold::{Seed, Table, TableBuilder, TableOptions, run::VecRun, work::Watch};
    use std::{path::Path, sync::Arc};

    fn view(folder: &Path) -> Arc<View> {
        let builder = TableBuilder::with(folder, TableOptions::new().seed(Seed(1))).unwrap();
        builder.build(&mut VecRun::new(Vec::new(), Seed(1)), &Watch::default()).unwrap();
        Arc::new(View::of_table(Table::open(folder).unwrap()).unwrap())
    }

    /// Lookups are taken in their order, together with later ones of the same view, each once.
    #[test]
    fn lookups_of_one_view_are_taken_together() {
        let work = tempfile::tempdir().unwrap();
        let views = ["a", "b"].map(|name| view(&work.path().join(name)));
        let reads = Reads::default();
        // Views and numbers of keys.
        let groups = [(0, 3), (1, 1), (0, 2), (0, 1), (1, 4), (0, 9), (1, 1)];
        for (i, (view, keys)) in groups.iter().enumerate() {
            let mut group = Group::new(Some(views[*view].clone()));
            (0..*keys).for_each(|_| group.push_key(b"key"));
            reads.push(group, Duration::from_secs(i as u64));
        }
        let mut taken = Vec::new();
        while let Some(Waiting { group, start }) = reads.take(5) {
            let of = views.iter().position(|view| group.is_of(Some(view))).unwrap();
            taken.push((of, group.keys(), start.as_secs()));
        }
        assert_eq!(taken, [(0, 5, 0), (1, 5, 1), (0, 10, 3), (1, 1, 6)]);
    }
}
