//! How precise an estimate must be.

use crate::{
    error::{Error, Result},
    io::CountingDisk,
    sketch::interval::margin,
    work::Watch,
};

/// The least number of matches at which reading stops: with fewer, an estimate has no finite variance.
const MATCHES_MIN: u64 = 3;
/// The largest number of matches that is looked for.
const MATCHES_MAX: u64 = 1 << 62;

/// When to stop reading: the largest relative error, and the probability that it holds.
///
/// ```
/// use hashfold::sketch::Precision;
/// let precision = Precision::new(0.1, 0.95)?;
/// assert_eq!(precision.matches(), 424);
/// assert!(Precision::new(0.0, 0.95).is_err());
/// # Ok::<(), hashfold::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Precision {
    pub(super) confidence: f64,
    pub(super) matches: u64,
    /// Whether reading goes on when the expression is known, for other expressions.
    pub(super) is_whole: bool,
    pub(super) keys_max: u64,
    pub(super) watch: Watch,
    pub(super) disk: Option<CountingDisk>,
}

impl Precision {
    /// Requests an interval that reaches from the estimate to `error` times the estimate on both sides, at
    /// most, and has the true value with the probability `confidence`. Confidence 0.68 makes `error` the
    /// relative standard error.
    ///
    /// # Errors
    /// `Argument` if a number is not between 0 and 1, both excluded.
    pub fn new(error: f64, confidence: f64) -> Result<Precision> {
        if !(error > 0.0 && error < 1.0) {
            let expected = "between 0 and 1, both excluded";
            return Err(Error::argument("relative error of an estimate", expected, error));
        }
        let precision = Precision::whole(confidence)?;
        Ok(Precision { matches: matches_for(error, confidence), is_whole: false, ..precision })
    }

    /// Requests all hashes that the sets have, for any expression: for sets in memory. Intervals have the true value
    /// with the probability `confidence`.
    ///
    /// # Errors
    /// `Argument` if `confidence` is not between 0 and 1, both excluded.
    pub fn whole(confidence: f64) -> Result<Precision> {
        if !(confidence > 0.0 && confidence < 1.0) {
            let expected = "between 0 and 1, both excluded";
            return Err(Error::argument("confidence of an interval", expected, confidence));
        }
        Ok(Precision {
            confidence,
            matches: u64::MAX,
            is_whole: true,
            keys_max: u64::MAX,
            watch: Watch::default(),
            disk: None,
        })
    }

    /// Limits the number of hashes that are read from all sets together. An estimate from fewer hashes
    /// has a larger error than the requested one.
    #[must_use]
    pub fn keys_max(self, keys_max: u64) -> Precision {
        Precision { keys_max, ..self }
    }

    /// Observes the reading, and may cancel it. The unit of progress is one hash.
    #[must_use]
    pub fn watch(self, watch: Watch) -> Precision {
        Precision { watch, ..self }
    }

    /// Counts the bytes that are read through this disk, on which the data sets must have been opened.
    #[must_use]
    pub fn counting(self, disk: CountingDisk) -> Precision {
        Precision { disk: Some(disk), ..self }
    }

    /// Returns the number of matching keys at which reading stops; `u64::MAX` for [`Precision::whole`].
    pub fn matches(&self) -> u64 {
        self.matches
    }
}

/// Returns the least number of matches whose interval is within the error.
fn matches_for(error: f64, confidence: f64) -> u64 {
    let z = margin(confidence);
    // The true number is k-th hash times a gamma variable of the shape k, whose quantiles are these
    // (Wilson and Hilferty, "The distribution of chi-square", 1931), within 0.1 %.
    let quantile = |k: f64, z: f64| k * (1.0 - 1.0 / (9.0 * k) + z / (3.0 * k.sqrt())).powi(3);
    let is_enough = |matches: u64| {
        let k = matches as f64;
        let (low, high) = (quantile(k, -z) / (k - 1.0), quantile(k, z) / (k - 1.0));
        1.0 - low <= error && high - 1.0 <= error
    };
    let (mut few, mut many) = (MATCHES_MIN - 1, MATCHES_MIN);
    while !is_enough(many) && many < MATCHES_MAX {
        (few, many) = (many, 2 * many);
    }
    while many - few > 1 {
        let middle = few.midpoint(many);
        match is_enough(middle) {
            true => many = middle,
            false => few = middle,
        }
    }
    many
}
