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
    covariance::Shape,
    interval::Estimate,
    likelihood::Likelihood,
    matrix::{self, Matrix, Vector},
    newton,
    pairs::Pairs,
};
use crate::error::Result;

/// An intersection is searched for from this fraction of the smaller set on.
const FRACTION_MIN: f64 = 1e-9;
/// The standard error that is always small enough, in keys: sets of a few keys may share none.
const ERROR_MIN: f64 = 0.5;
/// Number of standard errors by which a whole set may be larger than its estimate.
const MARGIN: f64 = 4.0;
/// The bounds of sizes that have none.
const UNBOUNDED: Vector = [f64::INFINITY; 3];

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
    /// Makes the answer for sizes that are at most `max`.
    fn new(sizes: Vector, covariance: &Matrix, max: Vector, precision: u8) -> Joint {
        let [a, b, x] = sizes;
        let size =
            |value: f64, v: Vector, max| Estimate::new(value, matrix::variance(covariance, v), max);
        let union = a + b + x;
        let jaccard = if union > 0.0 { x / union } else { 0.0 };
        // The gradient of x / (a + b + x).
        let [slope, slope_x] =
            if union > 0.0 { [-jaccard / union, (1.0 - jaccard) / union] } else { [0.0; 2] };
        let of_jaccard = matrix::variance(covariance, [slope, slope, slope_x]);
        Joint {
            only_a: size(a, [1.0, 0.0, 0.0], max[0]),
            only_b: size(b, [0.0, 1.0, 0.0], max[1]),
            intersection: size(x, [0.0, 0.0, 1.0], max[2]),
            union: size(union, [1.0; 3], f64::INFINITY),
            jaccard: Estimate::new(jaccard, of_jaccard, 1.0),
            precision,
        }
    }

    /// Makes the answer for two sets, one of which is empty.
    pub(super) fn disjoint(a: Estimate, b: Estimate, precision: u8) -> Joint {
        let [of_a, of_b] = [a, b].map(|estimate| estimate.standard_error.powi(2));
        let covariance = [[of_a, 0.0, 0.0], [0.0, of_b, 0.0], [0.0; 3]];
        Joint::new([a.value, b.value, 0.0], &covariance, UNBOUNDED, precision)
    }

    /// Makes the answer with the largest likelihood. The search begins at estimates of |A|, |B| and |A ∪ B|, of which
    /// none is 0.
    pub(super) fn likeliest(
        likelihood: &Likelihood,
        [size_a, size_b, union]: Vector,
        precision: u8,
    ) -> Joint {
        let smaller = size_a.min(size_b);
        let x = (size_a + size_b - union).clamp(0.01 * smaller, 0.99 * smaller);
        let (start, floor) = ([size_a - x, size_b - x, x], FRACTION_MIN * smaller);
        let (sizes, point) = newton::maximize(|sizes| likelihood.at(sizes), start, floor);
        let reach = [size_a, size_b, smaller];
        let mut covariance = point.covariance(sizes, floor, reach);
        // The likelihood is that of the Poisson model, in which the numbers of keys have variances, too: their means.
        let means = point.means(sizes, floor, reach);
        (0..3).for_each(|i| covariance[i][i] -= means[i]);
        // No part is larger than a whole, which is known with its own error.
        let error = MARGIN * 1.04 / f64::from(1_u32 << precision).sqrt();
        let max = std::array::from_fn(|i| (reach[i] * (1.0 + error)).max(sizes[i]));
        let sizes = sizes.map(|size| if newton::is_at_floor(size, floor) { 0.0 } else { size });
        Joint::new(sizes, &covariance, max, precision)
    }

    /// Says whether the intersection is known to this relative standard error, or to half a key, and which precision
    /// would be enough if it is not.
    pub fn usable(&self, relative_error: f64) -> Usable {
        let Estimate { value, standard_error, .. } = self.intersection;
        let wanted = (relative_error * value).max(ERROR_MIN);
        if standard_error <= wanted {
            return Usable::Yes;
        }
        // Each bit of precision divides the variance by 2.
        let bits = 2.0 * (standard_error / wanted).log2();
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
    let estimates = pairs.estimates(a.q());
    if estimates[0].min(estimates[1]) <= 0.0 {
        let [a_alone, b_alone] = [a, b].map(Hll::estimate_with_error);
        return Ok(Joint::disjoint(a_alone, b_alone, a.precision()));
    }
    let likelihood = pairs.likelihood(a.register_count(), a.q());
    Ok(Joint::likeliest(&likelihood, estimates, a.precision()))
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
    let shape = Shape { count: a.register_count(), q: a.q() };
    let of_estimates = shape.covariance(sizes);
    // a = |A ∪ B| − |B|, b = |A ∪ B| − |A|, x = |A| + |B| − |A ∪ B|, in terms of A, B and the union.
    let parts = [[0.0, -1.0, 1.0], [-1.0, 0.0, 1.0], [1.0, 1.0, -1.0]];
    let mut covariance = [[0.0; 3]; 3];
    for (i, j) in matrix::pairs() {
        covariance[i][j] =
            matrix::pairs().map(|(k, l)| parts[i][k] * parts[j][l] * of_estimates[k][l]).sum();
    }
    Ok(Joint::new(sizes, &covariance, UNBOUNDED, a.precision()))
}
