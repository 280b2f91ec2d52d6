//! Conversion of a run's keys to fingerprints.

use super::{batch::FingerprintBatch, run::Fingerprints, universe::Universe};
use crate::{error::Result, key::Seed, run::Run};

/// Number of fingerprints that are appended to a batch at a time.
const BATCH: usize = 4096;

/// Returns the fingerprints of all keys with a value in `run`. The fingerprints have the run's
/// seed.
///
/// Two keys with the same fingerprint give this fingerprint with a count of 2, which a set treats
/// as 1. Tombstones give no fingerprint; so merge a run of changes with the run that it changes
/// first.
///
/// ```
/// use hashfold::{Seed, filter::quotient::{BuildOptions, QuotientFilter}};
/// use hashfold::{fingerprints::{self, Universe}, run::{Run, VecRun}};
///
/// let run = VecRun::new(vec![(b"sky".to_vec(), Some(b"blue".to_vec()))], Seed(7));
/// let keys = run.summary().entries_max;
/// let universe = Universe::for_capacity(keys, 0.001)?;
/// let mut fingerprints = fingerprints::of_run(run, universe);
/// let filter = QuotientFilter::build(&mut fingerprints, &BuildOptions::new(keys))?;
/// assert!(filter.contains_key(b"sky"));
/// assert_eq!(filter.seed(), Seed(7));
/// # Ok::<(), hashfold::Error>(())
/// ```
pub fn of_run<R: Run>(run: R, universe: Universe) -> impl Fingerprints {
    OfRun { run, universe, last: None, is_done: false }
}

struct OfRun<R> {
    run: R,
    universe: Universe,
    /// The largest fingerprint so far, and the number of its keys so far.
    last: Option<(u64, i64)>,
    is_done: bool,
}

impl<R: Run> Fingerprints for OfRun<R> {
    fn seed(&self) -> Seed {
        self.run.seed()
    }

    fn universe(&self) -> Universe {
        self.universe
    }

    fn append_to(&mut self, batch: &mut FingerprintBatch) -> Result<bool> {
        let start = batch.len();
        while !self.is_done && batch.len() < start + BATCH {
            self.is_done = !self.run.advance()?;
            let next = match self.is_done {
                true => None,
                false if self.run.entry().value.is_none() => continue,
                false => Some(self.universe.fingerprint(self.run.entry().hash)),
            };
            match (&mut self.last, next) {
                (Some((last, count)), Some(next)) if *last == next => *count += 1,
                (last, next) => {
                    let ended = std::mem::replace(last, next.map(|next| (next, 1)));
                    ended.map_or(Ok(()), |(last, count)| batch.push(last, count))?;
                }
            }
        }
        Ok(batch.len() > start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        key::KeyHash,
        run::{Entry, Summary, VecRun},
    };
    use std::collections::BTreeMap;

    #[test]
    fn each_fingerprint_comes_once_with_the_number_of_its_keys() {
        for size in [2, 1000, 20_000, 1 << 64] {
            let universe = Universe::with_size(size).unwrap();
            let mut expected: BTreeMap<u64, i64> = BTreeMap::new();
            let entries = (0..20_000_u32).map(|i| {
                let key = i.to_le_bytes().to_vec();
                let value = (!i.is_multiple_of(7)).then(Vec::new);
                if value.is_some() {
                    *expected
                        .entry(universe.fingerprint(KeyHash::of(&key, Seed(3))))
                        .or_default() += 1;
                }
                (key, value)
            });
            let mut run = of_run(VecRun::new(entries.collect(), Seed(3)), universe);
            assert_eq!((run.seed(), run.universe()), (Seed(3), universe));
            let mut all = FingerprintBatch::new();
            while run.append_to(&mut all).unwrap() {}
            assert_eq!(all.iter().collect::<BTreeMap<_, _>>(), expected);
        }
    }

    /// Two entries in the wrong order.
    struct Descending(u64);

    impl Run for Descending {
        fn seed(&self) -> Seed {
            Seed(1)
        }

        fn summary(&self) -> Summary {
            VecRun::new(Vec::new(), Seed(1)).summary()
        }

        fn advance(&mut self) -> Result<bool> {
            self.0 = self.0.saturating_sub(1);
            Ok(self.0 > 0)
        }

        fn entry(&self) -> Entry<'_> {
            let hash = KeyHash::from_bits(u128::from(self.0) << 64);
            Entry { hash, key: b"", value: Some(b"") }
        }
    }

    #[test]
    fn a_run_that_does_not_ascend_is_an_error() {
        let mut run = of_run(Descending(5), Universe::EXACT);
        assert!(run.append_to(&mut FingerprintBatch::new()).is_err());
    }
}
