//! Reading the first hashes of sets side by side, and what follows from them.

use super::{
    SETS_MAX,
    expression::Expression,
    precision::Precision,
    set::{Cursor, HASH_BITS, PrefixSet},
};
use crate::{
    error::{Error, Result, check_seed},
    io::CountingDisk,
    sketch::binomial::{success_at, trials_at},
    work::Steps,
};
use std::collections::BTreeMap;

/// The hashes of some sets below a bound: how many are in which of the sets.
///
/// ```
/// use hashfold::{Seed, run::VecRun};
/// use hashfold::sketch::{Expression, Precision, PrefixSample, PrefixSet};
///
/// let run = |keys: std::ops::Range<u32>| {
///     let entries = keys.map(|key| (key.to_le_bytes().to_vec(), Some(Vec::new())));
///     PrefixSet::of_run(VecRun::new(entries.collect(), Seed(7)))
/// };
/// let both = Expression::set(0) & Expression::set(1);
/// let sets = vec![run(0..60_000), run(40_000..90_000)];
/// let sample = PrefixSample::read(sets, &both, &Precision::new(0.1, 0.99)?)?;
/// let estimate = sample.estimate(&both);
/// assert!(estimate.low < 20_000.0 && 20_000.0 < estimate.high && !estimate.is_exact);
/// assert!(sample.keys_read() < 10_000);
/// // From the sample that was read, other expressions too.
/// assert!(sample.estimate(&Expression::any(2)).high > 90_000.0);
/// let jaccard = sample.fraction(&both, &Expression::any(2));
/// assert!(jaccard.low < 2.0 / 9.0 && 2.0 / 9.0 < jaccard.high);
/// # Ok::<(), hashfold::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PrefixSample {
    set_count: usize,
    confidence: f64,
    /// For each combination of sets, the number of hashes below the bound that are in all of them and in
    /// no other: bit i stands for set i.
    cells: BTreeMap<u64, u64>,
    /// The hashes from the bound on, of sets in memory that are known to their ends: as the cells.
    beyond: BTreeMap<u64, u64>,
    /// The bound as a part of all hashes, more than 0 and up to 1.
    theta: f64,
    /// The sets that are known to their ends: all of their hashes are in the cells or beyond.
    ended: u64,
    stop: Stop,
    keys_read: u64,
    bytes_read: Option<u64>,
}

/// Why the reading ended.
#[derive(Clone, Debug, PartialEq)]
enum Stop {
    /// The last match that was wanted. Its hash is the bound, and is not in the cells.
    Match { expression: Expression, sets: u64 },
    /// All of the sets were read.
    End,
    /// No more matches are possible, a limit, or the end of a sketch.
    Bound,
}

/// An estimate from a [`PrefixSample`], with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefixEstimate {
    /// The estimate: a number of keys, or a fraction.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// The probability that the interval has the true value, or more.
    pub confidence: f64,
    /// Number of keys in the sample that the estimate follows from.
    pub matches: u64,
    /// Whether all keys that matter were read, so that the value is the true one.
    pub is_exact: bool,
}

impl PrefixEstimate {
    /// Returns the larger distance between the estimate and an end of its interval, divided by the
    /// estimate: 0 if it is exact, and infinite for an estimate of 0.
    pub fn relative_error(&self) -> f64 {
        let margin = (self.value - self.low).max(self.high - self.value);
        if margin <= 0.0 { 0.0 } else { margin / self.value }
    }
}

impl PrefixSample {
    /// Reads the first hashes of all sets until `expression` is estimated with the requested precision.
    ///
    /// # Errors
    /// `WrongSeed` if the keys of the sets are hashed with different seeds; `Argument` if there are no
    /// sets, more than [`SETS_MAX`], or fewer than the expression names, or if hashes do not ascend; the
    /// errors of the sets; `Stopped` by the watch.
    pub fn read(
        sets: Vec<PrefixSet<'_>>,
        expression: &Expression,
        precision: &Precision,
    ) -> Result<PrefixSample> {
        let least = expression.set_count().max(1);
        if !(least..=SETS_MAX).contains(&sets.len()) {
            let expected = format!("{least} to {SETS_MAX}");
            return Err(Error::argument("number of sets", expected, sets.len()));
        }
        for set in &sets[1..] {
            check_seed(sets[0].seed(), set.seed())?;
        }
        let before = precision.disk.as_ref().map(CountingDisk::take);
        let mut sample = PrefixSample {
            set_count: sets.len(),
            confidence: precision.confidence,
            cells: BTreeMap::new(),
            beyond: BTreeMap::new(),
            theta: 1.0,
            ended: 0,
            stop: Stop::End,
            keys_read: 0,
            bytes_read: None,
        };
        Reader::start(sets, expression, precision)?.read_into(&mut sample)?;
        let moved = precision.disk.as_ref().zip(before);
        sample.bytes_read = moved.map(|(disk, before)| before.read_bytes + disk.take().read_bytes);
        Ok(sample)
    }

    /// Returns the number of hashes that were read from all sets together.
    pub fn keys_read(&self) -> u64 {
        self.keys_read
    }

    /// Returns the bytes that were read through the disk of [`Precision::counting`] since it was made or
    /// last taken from: those of opening the data sets, too.
    pub fn bytes_read(&self) -> Option<u64> {
        self.bytes_read
    }

    /// Returns the part of all hashes below the bound of the sample: more than 0, and 1 if all sets were
    /// read to their ends.
    pub fn theta(&self) -> f64 {
        self.theta
    }

    /// Returns the number of sets.
    pub fn set_count(&self) -> usize {
        self.set_count
    }

    /// Estimates how many keys an expression counts. The requested precision is that of the expression
    /// that was read for.
    pub fn estimate(&self, expression: &Expression) -> PrefixEstimate {
        let (matches, confidence) = (self.matches(expression), self.confidence);
        if self.is_exact(expression) {
            let matches = self.all_matches(expression);
            let value = matches as f64;
            return PrefixEstimate {
                value,
                low: value,
                high: value,
                confidence,
                matches,
                is_exact: true,
            };
        }
        let (count, alpha) = (matches as f64, 1.0 - confidence);
        let is_wanted =
            matches!(&self.stop, Stop::Match { expression: wanted, .. } if wanted == expression);
        // The bound of the wanted expression is its next hash itself.
        let lower = count + f64::from(u8::from(is_wanted));
        let low = if lower > 0.0 { trials_at(lower, self.theta, alpha / 2.0) } else { 0.0 };
        let high = trials_at(count + 1.0, self.theta, 1.0 - alpha / 2.0).max(low);
        PrefixEstimate {
            // Near the end, (k − 1)/θ may be less than the k keys that were seen, and an interval of little
            // confidence may be beside it.
            value: (count / self.theta).max(low).min(high),
            low,
            high,
            confidence,
            matches: matches + u64::from(is_wanted),
            is_exact: false,
        }
    }

    /// Estimates the fraction of the keys of `whole` that `part` counts, too: 0 to 1, and 0 if `whole`
    /// has no key in the sample. The Jaccard similarity of two sets is the fraction of `A | B` that is
    /// in `A & B`.
    pub fn fraction(&self, part: &Expression, whole: &Expression) -> PrefixEstimate {
        let both = part.clone() & whole.clone();
        let is_exact = self.is_exact(&both) && self.is_exact(whole);
        let count = |expression: &Expression| match is_exact {
            true => self.all_matches(expression),
            false => self.matches(expression),
        };
        let (matches, all) = (count(&both), count(whole));
        let (k, n, alpha) = (matches as f64, all as f64, 1.0 - self.confidence);
        let value = if all == 0 { 0.0 } else { k / n };
        let (low, high) = match is_exact {
            true => (value, value),
            false => (success_at(k, n, alpha / 2.0), success_at(k + 1.0, n, 1.0 - alpha / 2.0)),
        };
        PrefixEstimate { value, low, high, confidence: self.confidence, matches, is_exact }
    }

    /// Returns the number of hashes below the bound that an expression counts.
    fn matches(&self, expression: &Expression) -> u64 {
        matches_in(&self.cells, expression)
    }

    /// Returns the number of all hashes that an expression counts, if it is exact.
    fn all_matches(&self, expression: &Expression) -> u64 {
        let beyond = matches_in(&self.beyond, expression) + u64::from(self.last_is_in(expression));
        self.matches(expression) + beyond
    }

    /// Whether the hashes that were read say how many match: others are in no set that has ended, and cannot match, and
    /// whether those beyond the bound match does not depend on sets that are not known there.
    fn is_exact(&self, expression: &Expression) -> bool {
        let is_decided = |sets: &u64| expression.is_decided(*sets, self.ended);
        self.stop == Stop::End
            || !expression.may_contain_without(self.ended) && self.beyond.keys().all(is_decided)
    }

    /// Whether an expression counts the hash at the bound.
    fn last_is_in(&self, expression: &Expression) -> bool {
        matches!(self.stop, Stop::Match { sets, .. } if expression.contains(sets))
    }
}

/// Returns the number of hashes in cells that an expression counts.
fn matches_in(cells: &BTreeMap<u64, u64>, expression: &Expression) -> u64 {
    let matching = cells.iter().filter(|(sets, _)| expression.contains(**sets));
    matching.map(|(_, keys)| keys).sum()
}

/// Sets that are being read side by side.
struct Reader<'a, 'b> {
    cursors: Vec<Cursor<'a>>,
    bits: u32,
    expression: &'b Expression,
    precision: &'b Precision,
}

impl<'a, 'b> Reader<'a, 'b> {
    fn start(
        sets: Vec<PrefixSet<'a>>,
        expression: &'b Expression,
        precision: &'b Precision,
    ) -> Result<Reader<'a, 'b>> {
        let bits = sets.iter().map(PrefixSet::hash_bits).min().unwrap_or(HASH_BITS);
        let cursors = sets.into_iter().map(|set| Cursor::new(set, bits)).collect::<Result<_>>()?;
        Ok(Reader { cursors, bits, expression, precision })
    }

    fn read_into(&mut self, sample: &mut PrefixSample) -> Result<()> {
        let Precision { matches: wanted, is_whole, keys_max, watch, .. } = self.precision;
        let (mut matches, mut steps) = (0, watch.steps());
        // The cell of the hash before: most hashes are in the same sets.
        let (mut last, mut in_last, mut is_match) = (0, 0, false);
        sample.ended = self.ended();
        let mut ended = sample.ended;
        let is_decided = |ended| !is_whole && !self.expression.may_contain_without(ended);
        let mut is_hopeless = is_decided(ended);
        let bound = loop {
            if sample.ended != ended {
                ended = sample.ended;
                is_hopeless = is_decided(ended);
            }
            let Some(low) = self.lowest() else { break None };
            if is_hopeless || sample.keys_read >= *keys_max || self.is_bound(low) {
                break Some((low, Stop::Bound));
            }
            let sets = self.pass(low, sample)?;
            if sets != last {
                *sample.cells.entry(last).or_default() += in_last;
                (last, in_last, is_match) = (sets, 0, self.expression.contains(sets));
            }
            matches += u64::from(is_match);
            if matches >= *wanted {
                let expression = self.expression.clone();
                break Some((low, Stop::Match { expression, sets }));
            }
            in_last += 1;
            steps.step()?;
        };
        *sample.cells.entry(last).or_default() += in_last;
        sample.cells.retain(|_, keys| *keys > 0);
        if let Some((hash, stop)) = bound {
            (sample.theta, sample.stop) = (self.part_below(hash), stop);
            if *is_whole {
                self.read_beyond(sample, &mut steps)?;
            }
        }
        steps.finish()
    }

    /// Reads the sets whose ends are known, from the bound on.
    fn read_beyond(&mut self, sample: &mut PrefixSample, steps: &mut Steps) -> Result<()> {
        let mut cells: BTreeMap<u64, u64> = BTreeMap::new();
        while sample.keys_read < self.precision.keys_max {
            let known = self.cursors.iter().filter(|cursor| !cursor.is_bound);
            let Some(low) = known.filter_map(|cursor| cursor.next).min() else { break };
            *cells.entry(self.pass(low, sample)?).or_default() += 1;
            steps.step()?;
        }
        for (sets, keys) in cells {
            // Of the others, some hashes are known and some are not.
            let known = sets & sample.ended;
            if known != 0 {
                *sample.beyond.entry(known).or_default() += keys;
            }
        }
        Ok(())
    }

    /// Returns the smallest hash that was not passed.
    #[inline]
    fn lowest(&self) -> Option<u128> {
        self.cursors.iter().filter_map(|cursor| cursor.next).min()
    }

    /// Whether a set is not known from this hash on.
    #[inline]
    fn is_bound(&self, hash: u128) -> bool {
        self.cursors.iter().any(|cursor| cursor.is_bound && cursor.next == Some(hash))
    }

    /// Passes a hash. Returns the sets that have it.
    #[inline]
    fn pass(&mut self, hash: u128, sample: &mut PrefixSample) -> Result<u64> {
        let mut sets = 0;
        for (i, cursor) in self.cursors.iter_mut().enumerate() {
            if cursor.next == Some(hash) && !cursor.is_bound {
                sample.keys_read += cursor.pass()?;
                sets |= 1 << i;
                if cursor.is_ended() {
                    sample.ended |= 1 << i;
                }
            }
        }
        Ok(sets)
    }

    /// Returns the sets whose ends were reached.
    fn ended(&self) -> u64 {
        let ended = self.cursors.iter().enumerate().filter(|(_, cursor)| cursor.is_ended());
        ended.map(|(i, _)| 1 << i).sum()
    }

    /// Returns the part of all hashes that is below this one: more than 0.
    fn part_below(&self, hash: u128) -> f64 {
        let unit = 0.5_f64.powi(self.bits as i32);
        (hash as f64 * 0.5_f64.powi(HASH_BITS as i32)).max(unit)
    }
}
