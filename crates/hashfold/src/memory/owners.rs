//! Threads that own the shards of a table: each writes to its own shards, what others hand over in batches.

use super::{SHARDS_MAX, index::BATCH};
use crate::error::{Error, Result};
use std::{
    fmt, iter,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

/// Number of items of a batch that is handed over.
const ITEMS: usize = 4 * BATCH;
/// Number of batches that wait for an owner, at most.
const QUEUE: usize = 4;

/// Threads that each own part of the shards of a table, while [`GroupTable::with_owners`](super::GroupTable::with_owners)
/// or [`AppendTable::with_owners`](super::AppendTable::with_owners) runs.
pub struct Owners<'a, T> {
    queues: Vec<SyncSender<Vec<T>>>,
    shard_of: &'a (dyn Fn(&T) -> usize + Sync),
    shards: usize,
    failure: &'a Failure,
}

/// A handle that sends items to the [`Owners`] of their shards. Items of one key from one hand are written in their order.
///
/// Items wait in the hand until there are 1024 for one owner; dropping the hand gives the rest.
pub struct Hand<'a, T> {
    owners: &'a Owners<'a, T>,
    waiting: Vec<Vec<T>>,
}

/// The first error of an owner.
#[derive(Debug, Default)]
struct Failure {
    is_set: AtomicBool,
    error: Mutex<Option<Error>>,
}

impl Failure {
    fn set(&self, error: Error) {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.is_set.store(true, Ordering::Release);
    }

    fn check(&self) -> Result<()> {
        if !self.is_set.load(Ordering::Acquire) {
            return Ok(());
        }
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Err(error.expect("it is set before the flag"))
    }
}

impl<T> Owners<'_, T> {
    /// Returns a hand, one for each thread that has items.
    pub fn hand(&self) -> Hand<'_, T> {
        Hand { owners: self, waiting: self.queues.iter().map(|_| Vec::new()).collect() }
    }

    /// Returns the number of owners.
    pub fn count(&self) -> usize {
        self.queues.len()
    }

    /// Hands a batch over; waits while its owner has enough to do.
    fn send(&self, owner: usize, batch: Vec<T>) {
        // An owner that has panicked does not listen; the panic goes on when the threads are joined.
        let _ = self.queues[owner].send(batch);
    }
}

impl<T> Hand<'_, T> {
    /// Gives an item. It is in the table at the latest when the owners end.
    ///
    /// # Errors
    /// The first error of an owner, which writes nothing more.
    #[inline]
    pub fn give(&mut self, item: T) -> Result<()> {
        let owners = self.owners;
        let owner = (owners.shard_of)(&item) * owners.count() / owners.shards;
        let batch = &mut self.waiting[owner];
        batch.push(item);
        if batch.len() < ITEMS {
            return Ok(());
        }
        let batch = std::mem::replace(batch, Vec::with_capacity(ITEMS));
        owners.send(owner, batch);
        owners.failure.check()
    }
}

impl<T> Drop for Hand<'_, T> {
    fn drop(&mut self) {
        for (owner, batch) in self.waiting.drain(..).enumerate() {
            if !batch.is_empty() {
                self.owners.send(owner, batch);
            }
        }
    }
}

/// Runs `feed` beside `count` owners of `shards` shards, which write batches with `write`. Ends when all is written.
///
/// # Errors
/// `Argument` if the number of owners is 0 or above that of the shards; the error of `feed`, or the first one of `write`.
pub(super) fn with_owners<T: Send, R>(
    (count, shards): (usize, usize),
    shard_of: &(dyn Fn(&T) -> usize + Sync),
    write: impl Fn(&[T]) -> Result<()> + Sync,
    feed: impl FnOnce(&Owners<'_, T>) -> Result<R>,
) -> Result<R> {
    if count == 0 || count > shards {
        let expected = format!("1 to {shards}, the number of shards (at most {SHARDS_MAX})");
        return Err(Error::argument("owners", expected, count));
    }
    let failure = Failure::default();
    let fed = thread::scope(|scope| {
        let owner = |_| {
            let (queue, batches) = sync_channel(QUEUE);
            let (write, failure) = (&write, &failure);
            let thread = thread::Builder::new().name("hashfold-owner".to_owned());
            let started = thread.spawn_scoped(scope, move || own(&batches, write, failure));
            started.map(|_| queue).map_err(|error| Error::io("start a thread", error))
        };
        let queues = (0..count).map(owner).collect::<Result<Vec<_>>>()?;
        feed(&Owners { queues, shard_of, shards, failure: &failure })
    });
    failure.check()?;
    fed
}

/// Writes batches until nobody hands any over. After an error, batches are taken and dropped, so that nobody waits.
fn own<T>(batches: &Receiver<Vec<T>>, write: impl Fn(&[T]) -> Result<()>, failure: &Failure) {
    for batch in iter::from_fn(|| batches.recv().ok()) {
        if failure.check().is_ok()
            && let Err(error) = write(&batch)
        {
            failure.set(error);
        }
    }
}

impl<T> fmt::Debug for Owners<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owners({})", self.count())
    }
}

impl<T> fmt::Debug for Hand<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hand({} items)", self.waiting.iter().map(Vec::len).sum::<usize>())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{AppendTable, GroupTable, MemoryOptions},
        *,
    };
    use crate::{error::ErrorKind, work::MemoryBudget};
    use std::collections::BTreeMap;

    /// Three threads hand records over to all numbers of owners; the table is the one that a single thread makes.
    #[test]
    fn owners_write_all_that_is_handed_over_in_its_order() {
        const RECORDS: u32 = 9000;
        let record = |hand: u32, i: u32| {
            (format!("{hand} {}", i % 701).into_bytes(), i.to_le_bytes().to_vec())
        };
        let mut expected = BTreeMap::<Vec<u8>, Vec<u8>>::new();
        for (key, value) in (0..3).flat_map(|hand| (0..RECORDS).map(move |i| record(hand, i))) {
            expected.entry(key).or_default().extend(value);
        }
        for (shards, count) in [(1, 1), (4, 1), (4, 3), (16, 5), (4, 4)] {
            let table = AppendTable::new(MemoryOptions { shards, ..MemoryOptions::default() });
            let table = table.unwrap();
            let fed = table.with_owners(count, |owners| {
                thread::scope(|scope| {
                    let feed = |number| {
                        let mut hand = owners.hand();
                        (0..RECORDS).try_for_each(|i| hand.give(record(number, i)))
                    };
                    let feeds = [0, 1, 2].map(|number| scope.spawn(move || feed(number)));
                    feeds.into_iter().try_for_each(|feed| feed.join().unwrap())
                })?;
                Ok(owners.count())
            });
            assert_eq!((fed.unwrap(), table.len()), (count, expected.len() as u64));
            for (key, value) in &expected {
                assert_eq!(table.get(key).as_ref(), Some(value), "{shards} {count}");
            }
        }
    }

    #[test]
    fn an_error_of_an_owner_ends_all_and_nobody_waits() {
        let (budget, shards) = (MemoryBudget::new(2 << 20), 4);
        let table = GroupTable::new(MemoryOptions { budget, shards, ..MemoryOptions::default() });
        let table = table.unwrap();
        let fed = table.with_owners(2, |owners| {
            let mut hand = owners.hand();
            (0..10_000_000).try_for_each(|key| hand.give((key, 1)))
        });
        assert!(matches!(fed.unwrap_err().kind(), ErrorKind::Memory { .. }));
        assert!(table.len() > 10_000);
        for bad in [0, 5] {
            let refused = table.with_owners(bad, |_| Ok(())).unwrap_err();
            assert!(matches!(refused.kind(), ErrorKind::Argument { .. }), "{refused}");
        }
        let failed = table.with_owners(2, |_| Err::<(), _>(ErrorKind::Conflict.into()));
        assert!(matches!(failed.unwrap_err().kind(), ErrorKind::Conflict));
    }
}
