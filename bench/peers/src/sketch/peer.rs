//! What is measured of each sketch, and which answers are right.

use super::{PRECISION, Pair, SIZES};
use crate::{Result, data::mix};
use std::ops::Range;

/// An estimate that is this many standard errors away from the truth is wrong.
const ERRORS_MAX: f64 = 8.0;
/// Largest error of an estimate of few keys.
const KEYS_MAX: f64 = 3.0;

/// The results of one peer in one round.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    /// CPU time of an insert, of the process that has the sketch.
    pub insert_ns: f64,
    /// Time of an insert, with the programs that hand keys over.
    pub insert_wall_ns: Option<f64>,
    pub estimate_us: Option<f64>,
    /// Time of a union with a sketch of as many keys.
    pub union_us: Option<f64>,
    pub memory_bytes: Option<f64>,
    pub stored_bytes: Option<f64>,
    /// Relative errors of the [`Sizes`].
    pub errors: Vec<Option<f64>>,
    /// Relative error of an intersection.
    pub intersection: Option<f64>,
}

/// A kind of sketches. Keys are numbers; see [`words`].
pub(super) trait Peer {
    fn name(&self) -> String;

    fn note(&self) -> String;

    /// Whether the sketch is in another process, and inserts are slower.
    fn is_served(&self) -> bool;

    /// Inserts keys into a sketch, checks its answer, and times it.
    fn time(&mut self, keys: Range<u64>) -> Result<Measured>;

    /// Returns the estimates of a sketch that gets the keys from `start` on, when it has as many as each of
    /// these sizes, which are ascending.
    fn growth(&mut self, start: u64, sizes: &[u64]) -> Result<Vec<f64>>;

    /// Estimates how many keys two sets have in common, from sketches of them.
    fn intersection(&mut self, sets: [Range<u64>; 2]) -> Result<f64>;
}

/// The sizes of sets whose errors are measured, ascending.
pub(super) struct Sizes(pub Vec<u64>);

impl Sizes {
    pub(super) fn up_to(keys_max: u64) -> Sizes {
        Sizes(SIZES.into_iter().filter(|size| *size <= keys_max).collect())
    }
}

/// Returns the keys of some numbers, 64 uniform bits each: they serve as hashes, and as keys of 8 bytes.
pub(super) fn words(numbers: Range<u64>) -> impl Iterator<Item = u64> {
    numbers.map(mix)
}

/// Returns the relative standard error of sketches with 2^[`PRECISION`] registers.
fn standard_error() -> f64 {
    1.04 / f64::from(1_u32 << PRECISION).sqrt()
}

/// Returns the relative error of an estimate.
///
/// # Errors
/// The estimate is too far away from the truth.
pub(super) fn error_of(estimate: f64, keys: u64) -> Result<f64> {
    let truth = keys as f64;
    let distance = (estimate - truth).abs();
    if distance.is_finite() && distance <= ERRORS_MAX * standard_error() * truth + KEYS_MAX {
        return Ok(estimate / truth - 1.0);
    }
    Err(format!("the estimate of {keys} keys is {estimate}").into())
}

/// Returns the relative error of an estimate of an intersection.
///
/// # Errors
/// The estimate is too far away from the truth.
pub(super) fn error_of_intersection(estimate: f64, pair: Pair) -> Result<f64> {
    let (truth, all) = (pair.both as f64, (pair.a + pair.b) as f64);
    // Three estimates, whose errors could add up.
    let distance_max = 2.0 * ERRORS_MAX * standard_error() * all + KEYS_MAX;
    if (estimate - truth).abs() <= distance_max {
        return Ok(estimate / truth - 1.0);
    }
    Err(format!("the estimate of an intersection of {truth} keys is {estimate}").into())
}

/// Returns the root of the mean square, if there are errors.
pub(super) fn root_mean_square(errors: &[f64]) -> Option<f64> {
    let sum: f64 = errors.iter().map(|error| error * error).sum();
    (!errors.is_empty()).then(|| (sum / errors.len() as f64).sqrt())
}
