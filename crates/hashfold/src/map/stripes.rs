//! The locks of writers: a writer holds the stripe of a key from the record in the log to the list
//! in RAM, so both get the changes of a key in the same order.

use crate::key::KeyHash;
use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

/// Number of bits of a hash that choose its stripe.
const STRIPE_BITS: u32 = 6;

/// The locks of writers.
#[derive(Debug)]
pub(super) struct Stripes {
    stripes: [Mutex<Stripe>; 1 << STRIPE_BITS],
    /// Number of open transactions.
    transactions: AtomicUsize,
}

/// The part of a map that the holder of a stripe may change.
#[derive(Debug, Default)]
pub(super) struct Stripe {
    /// The sequence number of the last change of each hash that changed while a transaction was
    /// open.
    recent: HashMap<u128, u64>,
}

impl Default for Stripes {
    fn default() -> Stripes {
        Stripes { stripes: std::array::from_fn(|_| Mutex::default()), transactions: 0.into() }
    }
}

/// Locked stripes, with their indexes, ascending.
pub(super) struct Held<'a> {
    stripes: Vec<(usize, MutexGuard<'a, Stripe>)>,
    transactions: &'a AtomicUsize,
}

impl Stripes {
    /// Locks the stripes of these hashes, in ascending order.
    pub(super) fn lock(&self, hashes: impl Iterator<Item = KeyHash>) -> Held<'_> {
        let indexes: BTreeSet<usize> = hashes.map(index_of).collect();
        self.lock_indexes(indexes.into_iter())
    }

    /// Locks all stripes: no change is between the log and RAM.
    pub(super) fn lock_all(&self) -> Held<'_> {
        self.lock_indexes(0..self.stripes.len())
    }

    fn lock_indexes(&self, indexes: impl Iterator<Item = usize>) -> Held<'_> {
        let lock = |i: usize| self.stripes[i].lock().expect("nothing panics under this lock");
        let stripes = indexes.map(|i| (i, lock(i))).collect();
        Held { stripes, transactions: &self.transactions }
    }

    /// Begins to record changes for a transaction. Changes that start after this call are recorded.
    pub(super) fn begin_transaction(&self) {
        self.transactions.fetch_add(1, SeqCst);
        // A writer that has not seen the new number ends before its stripe can be locked.
        for stripe in &self.stripes {
            drop(stripe.lock().expect("nothing panics under this lock"));
        }
    }

    /// Ends the recording for a transaction.
    pub(super) fn end_transaction(&self) {
        if self.transactions.fetch_sub(1, SeqCst) == 1 {
            for stripe in &self.stripes {
                let mut stripe = stripe.lock().expect("nothing panics under this lock");
                // Another transaction may have begun since, which needs the changes.
                if self.transactions.load(SeqCst) == 0 {
                    stripe.recent = HashMap::new();
                }
            }
        }
    }
}

impl Held<'_> {
    /// Records a change for open transactions.
    pub(super) fn note(&mut self, hash: KeyHash, seq: u64) {
        if self.transactions.load(SeqCst) > 0 {
            let index = index_of(hash);
            let stripe = self.stripes.iter_mut().find(|(i, _)| *i == index);
            stripe.expect("the stripe is locked").1.recent.insert(hash.bits(), seq);
        }
    }

    /// Returns the sequence number of the last recorded change of a hash.
    pub(super) fn last_change(&self, hash: KeyHash) -> Option<u64> {
        let index = index_of(hash);
        let stripe = self.stripes.iter().find(|(i, _)| *i == index);
        stripe.expect("the stripe is locked").1.recent.get(&hash.bits()).copied()
    }
}

fn index_of(hash: KeyHash) -> usize {
    (hash.high() >> (u64::BITS - STRIPE_BITS)) as usize
}
