//! Two sets together, from their sketches: intersection, differences, similarity.
//!
//! A set A and a set B are three disjoint ones: a keys only in A, b only in B, x in both. Two registers
//! with one index have a joint distribution, which is known (Ertl 2017, section 5; Poisson model):
//!
//! ```text
//! P(K_A ≤ k, K_B ≤ l) = exp(−(a·2^−k + b·2^−l + x·2^−min(k,l)) / m)
//! ```
//!
//! [`joint`] maximizes the likelihood of all registers. [`inclusion_exclusion`] computes x as
//! |A| + |B| − |A ∪ B|, with its true error: the three estimates are not independent. The first has
//! less than half of the error where the intersection is a twentieth of the sets or less.

use super::{
    Hll,
    interval::Estimate,
    likelihood::Likelihood,
    matrix::{Matrix, pairs},
    pairs::Pairs,
};
use crate::error::Result;

/// An intersection is searched for from this fraction of the smaller set on.
const FRACTION_MIN: f64 = 1e-9;

/// The sizes of two sets together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Joint {
    /// Number of keys in the first set only.
    pub only_a: Estimate,
    /// Number of keys in the second set only.
    pub only_b: Estimate,
    /// Number of keys in both.
    pub intersection: Estimate,
    /// Number of keys in either.
    pub union: Estimate,
    /// The Jaccard similarity: intersection divided by union.
    pub jaccard: Estimate,
    precision: u8,
}

impl Joint {
    fn new(sizes: [f64; 3], covariance: &Matrix, precision: u8) -> Joint {
        let [a, b, x] = sizes;
        let variance = |v: [f64; 3]| -> f64 {
            let row = |i: usize| (0..3).map(|j| v[i] * v[j] * covariance[i][j]).sum::<f64>();
            (0..3).map(row).sum()
        };
        let union = a + b + x;
        // The gradient of x / (a + b + x).
        let slope = if union > 0.0 { -x / (union * union) } else { 0.0 };
        let slope_x = if union > 0.0 { (a + b) / (union * union) } else { 0.0 };
        let jaccard = if union > 0.0 { x / union } else { 0.0 };
        Joint {
            only_a: Estimate::new(a, variance([1.0, 0.0, 0.0]), f64::INFINITY),
            only_b: Estimate::new(b, variance([0.0, 1.0, 0.0]), f64::INFINITY),
            intersection: Estimate::new(x, variance([0.0, 0.0, 1.0]), f64::INFINITY),
            union: Estimate::new(union, variance([1.0; 3]), f64::INFINITY),
            jaccard: Estimate::new(jaccard, variance([slope, slope, slope_x]), 1.0),
            precision,
        }
    }

    /// Says whether the intersection is known to this relative standard error, and which precision
    /// would be enough if it is not.
    pub fn usable(&self, relative_error: f64) -> Usable {
        let got = self.intersection.relative_error();
        if got <= relative_error {
            return Usable::Yes;
        }
        // Each bit of precision divides the variance by 2.
        let bits = 2.0 * (got / relative_error).log2();
        let needed = f64::from(self.precision) + bits.ceil();
        Usable::No {
            precision: (needed <= f64::from(super::PRECISION_MAX)).then_some(needed as u8),
        }
    }
}

/// The answer of [`Joint::usable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usable {
    /// The estimate is good enough.
    Yes,
    /// The estimate is noise.
    No {
        /// The precision of sketches that would be enough; `None` if no sketch is.
        precision: Option<u8>,
    },
}

/// Estimates by maximum likelihood.
///
/// # Errors
/// `Argument` if the sketches have different families or precisions.
pub fn joint(a: &Hll, b: &Hll) -> Result<Joint> {
    a.check_like(b)?;
    let pairs = Pairs::of(&a.values(), &b.values());
    let [size_a, size_b, union] = pairs.estimates(a.q());
    let smaller = size_a.min(size_b);
    if smaller <= 0.0 {
        return Ok(disjoint(a, b));
    }
    let x = (size_a + size_b - union).clamp(0.01 * smaller, 0.99 * smaller);
    let likelihood = Likelihood::of(&pairs, a.register_count(), a.q());
    let floor = FRACTION_MIN * smaller;
    let sizes = likelihood.maximize([size_a - x, size_b - x, x], floor);
    Ok(Joint::new(sizes, &likelihood.covariance(sizes, floor), a.precision()))
}

/// Estimates by |A| + |B| − |A ∪ B|, with the variance that follows from the joint distribution.
///
/// # Errors
/// `Argument` if the sketches have different families or precisions.
pub fn inclusion_exclusion(a: &Hll, b: &Hll) -> Result<Joint> {
    a.check_like(b)?;
    let [size_a, size_b, union] = Pairs::of(&a.values(), &b.values()).estimates(a.q());
    let x = (size_a + size_b - union).clamp(0.0, size_a.min(size_b));
    let sizes = [(size_a - x).max(0.0), (size_b - x).max(0.0), x];
    let of_estimates = covariance_of_estimates(sizes, a.precision(), a.q());
    // a = |A ∪ B| − |B|, b = |A ∪ B| − |A|, x = |A| + |B| − |A ∪ B|, in terms of A, B and the union.
    let parts = [[0.0, -1.0, 1.0], [-1.0, 0.0, 1.0], [1.0, 1.0, -1.0]];
    let mut covariance = [[0.0; 3]; 3];
    for (i, j) in pairs() {
        covariance[i][j] =
            pairs().map(|(k, l)| parts[i][k] * parts[j][l] * of_estimates[k][l]).sum();
    }
    Ok(Joint::new(sizes, &covariance, a.precision()))
}

/// Returns the sizes of two sets, one of which is empty.
fn disjoint(a: &Hll, b: &Hll) -> Joint {
    let (size_a, size_b) = (a.estimate(), b.estimate());
    let variance = |size: f64, sketch: &Hll| (size * sketch.standard_error()).powi(2);
    let covariance = [[variance(size_a, a), 0.0, 0.0], [0.0, variance(size_b, b), 0.0], [0.0; 3]];
    Joint::new([size_a, size_b, 0.0], &covariance, a.precision())
}

/// Returns the covariances of the estimates of |A|, |B| and |A ∪ B|.
fn covariance_of_estimates(sizes: [f64; 3], precision: u8, q: usize) -> Matrix {
    let [a, b, x] = sizes;
    let m = (1_u32 << precision) as f64;
    let part = |k: usize| if k > q { 0.0 } else { 0.5_f64.powi(k as i32) };
    let below = |k: usize, l: usize| (-(a * part(k) + b * part(l) + x * part(k.min(l))) / m).exp();
    let (mut mean, mut product) = ([0.0; 3], [[0.0; 3]; 3]);
    let weight = |k: usize| 0.5_f64.powi(k as i32);
    let mut before = vec![0.0; q + 2];
    for k in 0..=q + 1 {
        let (mut left, mut left_above) = (0.0, 0.0);
        for (l, before) in before.iter_mut().enumerate() {
            let here = below(k, l);
            let above = std::mem::replace(before, here);
            let p = (here - left - above + left_above).max(0.0);
            (left, left_above) = (here, above);
            let weights = [weight(k), weight(l), weight(k.max(l))];
            (0..3).for_each(|i| mean[i] += p * weights[i]);
            pairs().for_each(|(i, j)| product[i][j] += p * weights[i] * weights[j]);
        }
    }
    let of = [a + x, b + x, a + b + x];
    let mut covariance = [[0.0; 3]; 3];
    for (i, j) in pairs() {
        let of_weights = product[i][j] - mean[i] * mean[j];
        covariance[i][j] = of[i] * of[j] * of_weights / (mean[i] * mean[j] * m);
    }
    covariance
}
