//! Attribution models: how a conversion is shared out among the touches before it.
//!
//! A model gives each touch a part, a number; only the ratios of parts count. [`share`] divides a whole by them into
//! integers whose sum is exactly the whole. All arithmetic is of integers, so results do not depend on the machine.

use super::events::{TIME_MS_MAX, Value};
use crate::error::{Error, Result};
use std::fmt::Debug;

/// The credit of a whole conversion: credits are counted in millionths of a conversion.
pub const CREDIT_WHOLE: i64 = 1_000_000;

/// The part of the newest touch in [`TimeDecay`].
const NEWEST_PART: u64 = 1 << 62;
/// Bits of the fraction of a half-life.
const FRACTION_BITS: usize = 32;

/// A touch of a chain: an event of a user that may have led to a conversion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Touch<'a> {
    /// Time in milliseconds since 1970, not after that of the conversion.
    pub time_ms: i64,
    /// Values of the fields in [`Chains::channel`](super::Chains::channel): text or integers; null is empty text.
    pub channel: &'a [Value<'a>],
}

/// A conversion that is to be shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conversion {
    /// Time in milliseconds since 1970.
    pub time_ms: i64,
    /// The value to share out, if there is one.
    pub value: Option<i64>,
}

/// An attribution model.
///
/// ```
/// use hashfold::pipeline::{Conversion, Model, Touch, share};
///
/// /// 40 % to the first and to the last touch; those between share the rest.
/// #[derive(Debug)]
/// struct Ends;
///
/// impl Model for Ends {
///     fn name(&self) -> &str {
///         "ends"
///     }
///
///     fn parts(&self, _: &Conversion, touches: &[Touch<'_>]) -> Vec<u64> {
///         let between = touches.len().saturating_sub(2) as u64;
///         let mut parts = vec![20; touches.len()];
///         if let [first, .., last] = &mut parts[..] {
///             (*first, *last) = (40 * between.max(1), 40 * between.max(1));
///         }
///         parts
///     }
/// }
///
/// let touch = |time_ms| Touch { time_ms, channel: &[] };
/// let conversion = Conversion { time_ms: 9, value: None };
/// let parts = Ends.parts(&conversion, &[touch(1), touch(2), touch(5)]);
/// assert_eq!(share(100, &parts), Some(vec![40, 20, 40]));
/// ```
pub trait Model: Debug + Send + Sync {
    /// Returns the name, which credits have in the field `model`.
    fn name(&self) -> &str;

    /// Returns the parameters that the parts depend on: a checkpoint is only read with the same ones.
    fn parameters(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Returns the part of each touch. The touches, at least one, are in the order of time, equal times in the order of
    /// arrival. A touch with part 0 gets no credit; if all are 0, the conversion is credited to no touch.
    fn parts(&self, conversion: &Conversion, touches: &[Touch<'_>]) -> Vec<u64>;
}

/// The whole credit for the first touch.
#[derive(Clone, Copy, Debug, Default)]
pub struct FirstTouch;

impl Model for FirstTouch {
    fn name(&self) -> &str {
        "first-touch"
    }

    fn parts(&self, _: &Conversion, touches: &[Touch<'_>]) -> Vec<u64> {
        (0..touches.len()).map(|i| u64::from(i == 0)).collect()
    }
}

/// The whole credit for the last touch.
#[derive(Clone, Copy, Debug, Default)]
pub struct LastTouch;

impl Model for LastTouch {
    fn name(&self) -> &str {
        "last-touch"
    }

    fn parts(&self, _: &Conversion, touches: &[Touch<'_>]) -> Vec<u64> {
        (1..=touches.len()).map(|i| u64::from(i == touches.len())).collect()
    }
}

/// Equal credits for all touches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linear;

impl Model for Linear {
    fn name(&self) -> &str {
        "linear"
    }

    fn parts(&self, _: &Conversion, touches: &[Touch<'_>]) -> Vec<u64> {
        vec![1; touches.len()]
    }
}

/// The credit of a touch halves with each half-life of its age.
///
/// Parts are relative to the newest touch, whose part is 2^62: an age of `q + f` half-lives, `f` rounded down to 32 bits,
/// gives `2^62 · r_1 · r_2 · … / 2^q`, with a factor `r_i = 2^(-2^-i)` for each bit of `f` that is set, the highest
/// bit (1/2) first. Factors and products are rounded down to 64 bits. A touch that is 63 half-lives older than the newest
/// one has part 0.
#[derive(Clone, Copy, Debug)]
pub struct TimeDecay {
    half_life_ms: u64,
}

impl TimeDecay {
    /// Makes the model; `half_life_ms` is in milliseconds.
    ///
    /// # Errors
    /// `Argument` if the half-life is not positive, or longer than [`TIME_MS_MAX`].
    pub fn new(half_life_ms: i64) -> Result<TimeDecay> {
        match half_life_ms {
            1..=TIME_MS_MAX => Ok(TimeDecay { half_life_ms: half_life_ms as u64 }),
            _ => {
                Err(Error::argument("half-life in ms", format!("1 to {TIME_MS_MAX}"), half_life_ms))
            }
        }
    }

    fn part(&self, age_ms: u64) -> u64 {
        let (whole, rest) = (age_ms / self.half_life_ms, age_ms % self.half_life_ms);
        let fraction = (u128::from(rest) << FRACTION_BITS) / u128::from(self.half_life_ms);
        let mut part = NEWEST_PART;
        for (i, root) in ROOTS.iter().enumerate() {
            if fraction >> (FRACTION_BITS - 1 - i) & 1 == 1 {
                part = ((u128::from(part) * u128::from(*root)) >> 64) as u64;
            }
        }
        u32::try_from(whole).ok().and_then(|whole| part.checked_shr(whole)).unwrap_or(0)
    }
}

impl Model for TimeDecay {
    fn name(&self) -> &str {
        "time-decay"
    }

    fn parameters(&self) -> Vec<u64> {
        vec![self.half_life_ms]
    }

    fn parts(&self, _: &Conversion, touches: &[Touch<'_>]) -> Vec<u64> {
        let newest = touches.iter().map(|touch| touch.time_ms).max().unwrap_or(0);
        touches.iter().map(|touch| self.part(newest.abs_diff(touch.time_ms))).collect()
    }
}

/// 2^(-1/2), 2^(-1/4), 2^(-1/8), …, in units of 2^-64, rounded down: each the square root of the one before.
const ROOTS: [u64; FRACTION_BITS] = {
    let mut roots = [0; FRACTION_BITS];
    let mut root = 1_u128 << 63;
    let mut i = 0;
    while i < FRACTION_BITS {
        root = (root << 64).isqrt();
        roots[i] = root as u64;
        i += 1;
    }
    roots
};

/// Divides a whole into integers in proportion to `parts`, whose sum is exactly the whole. Returns `None` if all parts
/// are 0.
///
/// Each share is the exact one, rounded down. The units that are left over, fewer than parts, go one each to the shares with the
/// largest fractions; of equal fractions, to the later one (the method of the largest remainder, of Hamilton). So a share differs
/// from the exact one by less than 1, a larger part never has a smaller share, and a part of 0 has the share 0. Shares of a
/// negative whole are those of its absolute value, negated.
///
/// ```
/// use hashfold::pipeline::share;
/// assert_eq!(share(100, &[1, 1, 1]), Some(vec![33, 33, 34]));
/// assert_eq!(share(-7, &[3, 0, 1]), Some(vec![-5, 0, -2]));
/// assert_eq!(share(100, &[0]), None);
/// ```
pub fn share(whole: i64, parts: &[u64]) -> Option<Vec<i64>> {
    let total: u128 = parts.iter().map(|part| u128::from(*part)).sum();
    if total == 0 {
        return None;
    }
    let size = u128::from(whole.unsigned_abs());
    let exact = |part: &u64| size * u128::from(*part);
    let mut shares: Vec<u128> = parts.iter().map(|part| exact(part) / total).collect();
    let left = (size - shares.iter().sum::<u128>()) as usize;
    let mut by_fraction: Vec<usize> = (0..parts.len()).collect();
    by_fraction.sort_unstable_by_key(|i| std::cmp::Reverse((exact(&parts[*i]) % total, *i)));
    by_fraction[..left].iter().for_each(|i| shares[*i] += 1);
    let sign = i128::from(whole.signum());
    Some(shares.into_iter().map(|share| (sign * share as i128) as i64).collect())
}
