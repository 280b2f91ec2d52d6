//! The locks of writers: a writer holds the stripe of a key from the record in the log to the list
//! in RAM, so both get the changes of a key in the same order.

use super::sync::{AtomicU64, AtomicUsize, Mutex, MutexGuard};
use crate::key::KeyHash;
use std::{
    collections::{BTreeMap, HashMap},
    sync::atomic::Ordering::SeqCst,
};

/// Number of bits of a hash that choose its stripe.
const STRIPE_BITS: u32 = 6;

/// Minimum number of recent changes in a stripe before old ones are removed.
const RECENT_MIN: usize = 64;

/// The locks of writers.
#[derive(Debug)]
pub(super) struct Stripes {
    stripes: [Mutex<Stripe>; 1 << STRIPE_BITS],
    /// Number of open transactions.
    transactions: AtomicUsize,
    /// For each sequence number at which open transactions began: their number.
    begun: Mutex<BTreeMap<u64, usize>>,
    /// The smallest sequence number at which an open transaction began.
    oldest: AtomicU64,
}

/// The part of a map that the holder of a stripe may change.
#[derive(Debug, Default)]
pub(super) struct Stripe {
    /// The sequence number of the last change of each hash that changed while a transaction was
    /// open.
    recent: HashMap<u128, u64>,
    /// Number of hashes at which those are removed that no open transaction needs.
    recent_max: usize,
    /// The sequence number of the last change of all hashes together; 0 if there was none.
    all_changed: u64,
}

impl Default for Stripes {
    fn default() -> Stripes {
        Stripes {
            stripes: std::array::from_fn(|_| Mutex::default()),
            transactions: 0.into(),
            begun: Mutex::default(),
            oldest: u64::MAX.into(),
        }
    }
}

/// Locked stripes, with their indexes, ascending.
pub(super) struct Held<'a> {
    stripes: Vec<(usize, MutexGuard<'a, Stripe>)>,
    all: &'a Stripes,
}

impl Stripes {
    /// Locks the stripes of these hashes, in ascending order.
    pub(super) fn lock(&self, hashes: impl Iterator<Item = KeyHash>) -> Held<'_> {
        let mut wanted = hashes.fold(0_u64, |wanted, hash| wanted | 1 << index_of(hash));
        self.lock_indexes(std::iter::from_fn(move || {
            let lowest = wanted.trailing_zeros();
            wanted &= wanted.wrapping_sub(1);
            (lowest < u64::BITS).then_some(lowest as usize)
        }))
    }

    /// Locks all stripes: no change is between the log and RAM.
    pub(super) fn lock_all(&self) -> Held<'_> {
        self.lock_indexes(0..self.stripes.len())
    }

    fn lock_indexes(&self, indexes: impl Iterator<Item = usize>) -> Held<'_> {
        let lock = |i: usize| self.stripes[i].lock().expect("nothing panics under this lock");
        let stripes = indexes.map(|i| (i, lock(i))).collect();
        Held { stripes, all: self }
    }

    /// Begins to record changes for a transaction; `seq` is the end of the log. Changes that start
    /// after this call are recorded.
    pub(super) fn begin_transaction(&self, seq: u64) {
        {
            let mut begun = self.begun();
            *begun.entry(seq).or_default() += 1;
            self.oldest.fetch_min(seq, SeqCst);
            self.transactions.fetch_add(1, SeqCst);
        }
        // A writer that has not seen the new number ends before its stripe can be locked.
        for stripe in &self.stripes {
            drop(stripe.lock().expect("nothing panics under this lock"));
        }
    }

    /// Ends the recording for a transaction that began at this sequence number.
    pub(super) fn end_transaction(&self, seq: u64) {
        let mut begun = self.begun();
        let count = begun.get_mut(&seq).expect("the transaction has begun");
        *count -= 1;
        if *count == 0 {
            begun.remove(&seq);
        }
        let oldest = begun.first_key_value().map_or(u64::MAX, |(seq, _)| *seq);
        self.oldest.store(oldest, SeqCst);
        self.transactions.fetch_sub(1, SeqCst);
    }

    fn begun(&self) -> MutexGuard<'_, BTreeMap<u64, usize>> {
        self.begun.lock().expect("nothing panics under this lock")
    }
}

impl Stripe {
    /// Removes the changes before this sequence number.
    fn forget(&mut self, seq: u64) {
        self.recent.retain(|_, last| *last > seq);
        self.recent.shrink_to(RECENT_MIN);
        self.recent_max = (2 * self.recent.len()).max(RECENT_MIN);
    }
}

impl Held<'_> {
    /// Records a change for open transactions.
    pub(super) fn note(&mut self, hash: KeyHash, seq: u64) {
        let index = index_of(hash);
        let stripe = self.stripes.iter_mut().find(|(i, _)| *i == index);
        let (_, stripe) = stripe.expect("the stripe is locked");
        if self.all.transactions.load(SeqCst) == 0 {
            // No transaction needs what is there.
            if stripe.recent.capacity() > 0 {
                **stripe = Stripe { all_changed: stripe.all_changed, ..Stripe::default() };
            }
        } else {
            stripe.recent.insert(hash.bits(), seq);
            if stripe.recent.len() > stripe.recent_max {
                stripe.forget(self.all.oldest.load(SeqCst));
            }
        }
    }

    /// Records a change of all hashes. All stripes are locked.
    pub(super) fn note_all(&mut self, seq: u64) {
        assert_eq!(self.stripes.len(), self.all.stripes.len());
        self.stripes.iter_mut().for_each(|(_, stripe)| stripe.all_changed = seq);
    }

    /// Returns the sequence number of the last recorded change of a hash.
    pub(super) fn last_change(&self, hash: KeyHash) -> Option<u64> {
        let index = index_of(hash);
        let stripe = self.stripes.iter().find(|(i, _)| *i == index);
        let (_, stripe) = stripe.expect("the stripe is locked");
        let last = stripe.recent.get(&hash.bits()).copied();
        last.max((stripe.all_changed > 0).then_some(stripe.all_changed))
    }
}

fn index_of(hash: KeyHash) -> usize {
    (hash.high() >> (u64::BITS - STRIPE_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Changes hashes of one stripe, and returns the number that the stripe remembers.
    fn remembered(stripes: &Stripes, seqs: std::ops::Range<u64>) -> usize {
        let hash = |seq: u64| KeyHash::from_bits(u128::from(seq));
        for seq in seqs {
            stripes.lock([hash(seq)].into_iter()).note(hash(seq), seq + 1);
        }
        stripes.lock([hash(0)].into_iter()).stripes[0].1.recent.len()
    }

    #[test]
    fn only_changes_since_the_oldest_open_transaction_are_remembered() {
        let stripes = Stripes::default();
        assert_eq!(remembered(&stripes, 0..1000), 0);
        stripes.begin_transaction(1000);
        assert_eq!(remembered(&stripes, 1000..2000), 1000);
        stripes.begin_transaction(2000);
        stripes.end_transaction(1000);
        // Always another transaction is open.
        for i in 2..20 {
            let all = remembered(&stripes, 1000 * i..1000 * (i + 1));
            assert!((1000..5000).contains(&all), "{all}");
            stripes.begin_transaction(1000 * (i + 1));
            stripes.end_transaction(1000 * i);
        }
        let held = stripes.lock([KeyHash::from_bits(0)].into_iter());
        assert_eq!(held.last_change(KeyHash::from_bits(19_999)), Some(20_000));
        assert_eq!(held.last_change(KeyHash::from_bits(0)), None);
        drop(held);
        stripes.lock_all().note_all(30_000);
        let held = stripes.lock_all();
        assert_eq!(held.last_change(KeyHash::from_bits(19_999)), Some(30_000));
        assert_eq!(held.last_change(KeyHash::from_bits(u128::MAX)), Some(30_000));
    }
}
