//! Checks of runs of fingerprints from foreign code or damaged files.

use super::{batch::FingerprintBatch, run::Fingerprints, universe::Universe};
use crate::{
    error::{Error, Result, check_same, check_seed},
    key::Seed,
};

/// A check that the batches of a run ascend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ascent {
    universe: Universe,
    /// The largest fingerprint so far.
    last: Option<u64>,
}

impl Ascent {
    pub(crate) fn new(universe: Universe) -> Ascent {
        Ascent { universe, last: None }
    }

    /// Refuses ascending fingerprints that are not above the last one, or that are outside the
    /// universe.
    pub(crate) fn check(&mut self, next: &[u64]) -> Result<()> {
        let (Some(&first), Some(&last)) = (next.first(), next.last()) else { return Ok(()) };
        if let Some(before) = self.last.filter(|&before| before >= first) {
            let expected = format!("above {before:#x}, the one before");
            return Err(Error::field("fingerprint", expected, format!("{first:#x}")));
        }
        if last > self.universe.last() {
            let expected = format!("at most {:#x}", self.universe.last());
            return Err(Error::field("fingerprint", expected, format!("{last:#x}")));
        }
        self.last = Some(last);
        Ok(())
    }
}

/// Refuses fingerprints with another seed or universe.
pub(crate) fn check_alike(expected: (Seed, Universe), got: (Seed, Universe)) -> Result<()> {
    check_seed(expected.0, got.0)?;
    check_same("largest fingerprint", expected.1.last(), got.1.last())
}

/// A run whose batches are checked during reading.
#[derive(Debug)]
pub(crate) struct Checked<F> {
    run: F,
    seed: Seed,
    ascent: Ascent,
}

impl<F: Fingerprints> Checked<F> {
    pub(crate) fn new(run: F) -> Checked<F> {
        Checked { seed: run.seed(), ascent: Ascent::new(run.universe()), run }
    }
}

impl<F: Fingerprints> Fingerprints for Checked<F> {
    fn seed(&self) -> Seed {
        self.seed
    }

    fn universe(&self) -> Universe {
        self.ascent.universe
    }

    /// Appends the next fingerprints. Checks that they ascend, and that the existing content of the
    /// batch is unchanged.
    fn append_to(&mut self, batch: &mut FingerprintBatch) -> Result<bool> {
        let (start, before) = (batch.len(), batch.last());
        let is_some = self.run.append_to(batch)?;
        let old = batch.fingerprints.get(..start);
        if old.is_none_or(|old| old.last().copied() != before) {
            return Err(Error::argument(
                "batch",
                "its old content, then more",
                "other fingerprints",
            ));
        }
        let next = &batch.fingerprints[start..];
        if is_some == next.is_empty() {
            let (expected, got) = if is_some { ("some", "none") } else { ("none", "some") };
            return Err(Error::argument("next batch of the run", expected, got));
        }
        self.ascent.check(next)?;
        Ok(is_some)
    }
}
