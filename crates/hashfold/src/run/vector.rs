//! A run of a few entries in RAM.

use super::{Entry, Run, Summary};
use crate::{
    error::Result,
    key::{KeyHash, Seed},
};

/// A key, and its value or a tombstone.
type Owned = (Vec<u8>, Option<Vec<u8>>);

/// A run of entries in a vector, for small batches, examples and tests.
///
/// ```
/// use hashfold::{Seed, run::{Run, VecRun}};
/// let entries = vec![(b"a".to_vec(), Some(b"1".to_vec())), (b"a".to_vec(), None)];
/// let mut run = VecRun::new(entries, Seed(7));
/// assert!(run.advance()?);
/// assert_eq!((run.entry().key, run.entry().value), (&b"a"[..], None));
/// assert!(!run.advance()?);
/// # Ok::<(), hashfold::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct VecRun {
    entries: Vec<(KeyHash, Owned)>,
    /// Number of calls of `advance`, at most `entries.len() + 1`.
    steps: usize,
    seed: Seed,
    summary: Summary,
}

impl VecRun {
    /// Sorts `entries` into a run. If a key comes several times, its last entry is kept.
    pub fn new(entries: Vec<(Vec<u8>, Option<Vec<u8>>)>, seed: Seed) -> VecRun {
        VecRun::with_hash(entries, seed, |key| KeyHash::of(key, seed))
    }

    pub(super) fn with_hash(
        entries: Vec<Owned>,
        seed: Seed,
        hash: impl Fn(&[u8]) -> KeyHash,
    ) -> VecRun {
        let mut entries: Vec<_> =
            entries.into_iter().map(|owned| (hash(&owned.0), owned)).collect();
        // The sort is stable, so of equal keys the one that was given last stays last.
        entries.sort_by(|a, b| (a.0, &a.1.0).cmp(&(b.0, &b.1.0)));
        entries.dedup_by(|later, earlier| {
            let same = later.1.0 == earlier.1.0;
            if same {
                std::mem::swap(later, earlier);
            }
            same
        });
        let mut summary = Summary::EMPTY;
        for (_, (key, value)) in &entries {
            summary.add(key, value.as_deref());
        }
        VecRun { entries, steps: 0, seed, summary }
    }
}

impl Run for VecRun {
    fn seed(&self) -> Seed {
        self.seed
    }

    fn summary(&self) -> Summary {
        self.summary
    }

    fn advance(&mut self) -> Result<bool> {
        self.steps = (self.steps + 1).min(self.entries.len() + 1);
        Ok(self.steps <= self.entries.len())
    }

    fn entry(&self) -> Entry<'_> {
        let (hash, (key, value)) = &self.entries[self.steps - 1];
        Entry { hash: *hash, key, value: value.as_deref() }
    }
}
