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

use super::{Hll, estimate::VALUES, interval::Estimate};
use crate::error::Result;
use std::ops::Range;

const STEPS_MAX: usize = 60;
/// The largest change of a logarithm in one step.
const STEP_MAX: f64 = 2.0;
/// A step below this ends the search.
const STEP_MIN: f64 = 1e-7;
/// An intersection is searched for from this fraction of the smaller set on.
const FRACTION_MIN: f64 = 1e-9;
/// A size below this multiple of the least one is at the floor.
const AT_FLOOR: f64 = 2.0;
/// Number of times that a step is made shorter.
const DAMPINGS_MAX: usize = 60;
/// The variance of what is not known.
const VARIANCE_MAX: f64 = 1e300;

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

type Matrix = [[f64; 3]; 3];

/// Estimates by maximum likelihood.
///
/// # Errors
/// `Argument` if the sketches have different families or precisions.
pub fn joint(a: &Hll, b: &Hll) -> Result<Joint> {
    let [size_a, size_b, union] = estimates(a, b)?;
    let smaller = size_a.min(size_b);
    if smaller <= 0.0 {
        return Ok(disjoint(a, b));
    }
    let x = (size_a + size_b - union).clamp(0.01 * smaller, 0.99 * smaller);
    let counts = Counts::of(a, b);
    let floor = FRACTION_MIN * smaller;
    let sizes = counts.maximize([size_a - x, size_b - x, x], floor);
    Ok(Joint::new(sizes, &counts.covariance(sizes, floor), a.precision()))
}

/// Estimates by |A| + |B| − |A ∪ B|, with the variance that follows from the joint distribution.
///
/// # Errors
/// `Argument` if the sketches have different families or precisions.
pub fn inclusion_exclusion(a: &Hll, b: &Hll) -> Result<Joint> {
    let [size_a, size_b, union] = estimates(a, b)?;
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

fn pairs() -> impl Iterator<Item = (usize, usize)> {
    (0..9).map(|i| (i / 3, i % 3))
}

/// Estimates |A|, |B| and |A ∪ B|.
fn estimates(a: &Hll, b: &Hll) -> Result<[f64; 3]> {
    let mut both = a.clone();
    both.union(b)?;
    Ok([a.estimate(), b.estimate(), both.estimate()])
}

/// Returns the sizes of two sets, one of which is empty.
fn disjoint(a: &Hll, b: &Hll) -> Joint {
    let (size_a, size_b) = (a.estimate(), b.estimate());
    let variance = |size: f64, sketch: &Hll| (size * sketch.standard_error()).powi(2);
    let covariance = [[variance(size_a, a), 0.0, 0.0], [0.0, variance(size_b, b), 0.0], [0.0; 3]];
    Joint::new([size_a, size_b, 0.0], &covariance, a.precision())
}

/// The statistics of two sketches that determine the likelihood.
struct Counts {
    /// For each value k, the number of pairs of registers of which the first has k and the other less.
    only_a: [f64; VALUES],
    /// For each value k, the number of pairs of registers of which the second has k and the other less.
    only_b: [f64; VALUES],
    /// For each value k, the number of pairs of registers of which the first has k and the other more.
    any_a: [f64; VALUES],
    /// For each value k, the number of pairs of registers of which the second has k and the other more.
    any_b: [f64; VALUES],
    /// For each value k, the number of pairs of registers that both have k.
    equal: [f64; VALUES],
    /// The sums of the rates above the values: of the first sketch, the second, and the lesser ones.
    above: [f64; 3],
    /// For each value, the rate at which a key reaches a register with it.
    rates: [f64; VALUES],
    /// The values that are added up.
    values: Range<usize>,
}

impl Counts {
    fn of(a: &Hll, b: &Hll) -> Counts {
        let (m, q) = (a.register_count() as f64, a.q());
        // The values q and q + 1 have one rate, since q + 1 stands for all above.
        let rate = |k: usize| if k == 0 { 0.0 } else { 0.5_f64.powi(k.min(q) as i32) / m };
        let above = |k: u8| if usize::from(k) > q { 0.0 } else { 0.5_f64.powi(k.into()) / m };
        let mut pairs = vec![0_u32; VALUES * VALUES];
        a.for_each_pair(b, |i, j| pairs[usize::from(i) * VALUES + usize::from(j)] += 1);
        let zero = [0.0; VALUES];
        let mut counts = Counts {
            only_a: zero,
            only_b: zero,
            any_a: zero,
            any_b: zero,
            equal: zero,
            above: [0.0; 3],
            rates: std::array::from_fn(rate),
            values: 1..VALUES,
        };
        for (at, count) in pairs.iter().enumerate().filter(|(_, count)| **count > 0) {
            let (i, j, count) = (at / VALUES, at % VALUES, f64::from(*count));
            let part = |k: usize| count * above(k as u8);
            let parts = [part(i), part(j), part(i.min(j))];
            (0..3).for_each(|n| counts.above[n] += parts[n]);
            match i.cmp(&j) {
                std::cmp::Ordering::Greater => {
                    counts.only_a[i] += count;
                    counts.any_b[j] += count;
                }
                std::cmp::Ordering::Less => {
                    counts.any_a[i] += count;
                    counts.only_b[j] += count;
                }
                std::cmp::Ordering::Equal => counts.equal[i] += count,
            }
        }
        counts.values = counts.used();
        counts
    }

    /// Returns the range of the values that registers have, but for 0: the others add nothing to sums.
    fn used(&self) -> Range<usize> {
        let Counts { only_a, only_b, any_a, any_b, equal, .. } = self;
        let is_used =
            |k: &usize| [only_a, only_b, any_a, any_b, equal].iter().any(|counts| counts[*k] > 0.0);
        let first = (1..VALUES).find(is_used).unwrap_or(1);
        first..(1..VALUES).rfind(is_used).map_or(first, |last| last + 1)
    }

    /// Returns the logarithm of the likelihood of the sizes a, b, x.
    fn log_likelihood(&self, [a, b, x]: [f64; 3]) -> f64 {
        let mut sum = -(a * self.above[0] + b * self.above[1] + x * self.above[2]);
        let mut add = |count: f64, probability: f64| {
            if count > 0.0 {
                sum += count * probability.ln();
            }
        };
        for k in self.values.clone() {
            let rate = self.rates[k];
            let some = |size: f64| -(-size * rate).exp_m1();
            add(self.only_a[k], some(a));
            add(self.only_b[k], some(b));
            add(self.any_a[k], some(a + x));
            add(self.any_b[k], some(b + x));
            add(self.equal[k], some(x) + (-x * rate).exp() * some(a) * some(b));
        }
        sum
    }

    /// Returns the first and second derivatives of the logarithm of the likelihood.
    fn derivatives(&self, [a, b, x]: [f64; 3]) -> ([f64; 3], Matrix) {
        let mut gradient = self.above.map(|above| -above);
        let mut hessian = [[0.0; 3]; 3];
        for k in self.values.clone() {
            let rate = self.rates[k];
            // ln(1 − e^−rs), for a sum s of some of the sizes.
            let mut add_some = |count: f64, size: f64, parts: &[usize]| {
                if count > 0.0 {
                    let grown = (size * rate).exp_m1();
                    let (first, second) =
                        (rate / grown, -rate * rate * (1.0 / grown + 1.0 / (grown * grown)));
                    for &i in parts {
                        gradient[i] += count * first;
                        parts.iter().for_each(|&j| hessian[i][j] += count * second);
                    }
                }
            };
            add_some(self.only_a[k], a, &[0]);
            add_some(self.only_b[k], b, &[1]);
            add_some(self.any_a[k], a + x, &[0, 2]);
            add_some(self.any_b[k], b + x, &[1, 2]);
            let count = self.equal[k];
            if count > 0.0 {
                let (first, second) = both(rate, [a, b, x]);
                for (i, j) in pairs() {
                    hessian[i][j] += count * (second[i][j] - first[i] * first[j]);
                }
                (0..3).for_each(|i| gradient[i] += count * first[i]);
            }
        }
        (gradient, hessian)
    }

    /// Returns the sizes with the largest likelihood, `floor` or more: Newton's method on their logarithms.
    fn maximize(&self, start: [f64; 3], floor: f64) -> [f64; 3] {
        let mut sizes = start.map(|size| size.max(floor));
        let mut best = self.log_likelihood(sizes);
        for _ in 0..STEPS_MAX {
            let step = self.step(sizes);
            let mut scale = 1.0;
            let (next, value) = loop {
                let next: [f64; 3] =
                    std::array::from_fn(|i| (sizes[i] * (scale * step[i]).exp()).max(floor));
                let value = self.log_likelihood(next);
                if value >= best || scale < 1e-4 {
                    break (next, value);
                }
                scale *= 0.5;
            };
            let moved = (0..3).map(|i| (next[i] / sizes[i]).ln().abs()).fold(0.0, f64::max);
            if value < best {
                break;
            }
            (sizes, best) = (next, value);
            if moved < STEP_MIN {
                break;
            }
        }
        sizes
    }

    /// Returns the covariance of the sizes with the largest likelihood: the inverse of the observed
    /// information. The likelihood of a size at the floor falls from there on as e^−gs with the gradient
    /// −g, so that its standard error is 1/g, and it tells nothing of the others.
    fn covariance(&self, sizes: [f64; 3], floor: f64) -> Matrix {
        let (gradient, hessian) = self.derivatives(sizes);
        let is_at_floor = sizes.map(|size| size <= AT_FLOOR * floor);
        let mut information = [[0.0; 3]; 3];
        for (i, j) in pairs() {
            information[i][j] = match (is_at_floor[i] || is_at_floor[j], i == j) {
                (false, _) => -hessian[i][j],
                (true, true) => gradient[i] * gradient[i],
                (true, false) => 0.0,
            };
        }
        let inverse = invert(&information).filter(|_| is_positive(&information));
        inverse.unwrap_or([
            [VARIANCE_MAX, 0.0, 0.0],
            [0.0, VARIANCE_MAX, 0.0],
            [0.0, 0.0, VARIANCE_MAX],
        ])
    }

    /// Returns the step of Newton's method, or one along the gradient where that leads nowhere.
    fn step(&self, sizes: [f64; 3]) -> [f64; 3] {
        let (gradient, hessian) = self.derivatives(sizes);
        let slope: [f64; 3] = std::array::from_fn(|i| sizes[i] * gradient[i]);
        let mut curvature: Matrix = [[0.0; 3]; 3];
        for (i, j) in pairs() {
            curvature[i][j] = -sizes[i] * sizes[j] * hessian[i][j];
        }
        (0..3).for_each(|i| curvature[i][i] -= slope[i]);
        // A larger diagonal makes the matrix positive definite, and the step shorter.
        let largest = (0..3).map(|i| curvature[i][i].abs()).fold(1e-12, f64::max);
        let mut damping = 0.0;
        for _ in 0..DAMPINGS_MAX {
            let mut damped = curvature;
            (0..3).for_each(|i| damped[i][i] += damping);
            if is_positive(&damped)
                && let Some(inverse) = invert(&damped)
            {
                let step: [f64; 3] =
                    std::array::from_fn(|i| (0..3).map(|j| inverse[i][j] * slope[j]).sum());
                return step.map(|value| value.clamp(-STEP_MAX, STEP_MAX));
            }
            damping = (damping * 4.0).max(1e-3 * largest);
        }
        // The sizes stay as they are.
        [0.0; 3]
    }
}

/// Returns the derivatives of the probability that both registers have a value, divided by it.
fn both(rate: f64, [a, b, x]: [f64; 3]) -> ([f64; 3], Matrix) {
    let [none_a, none_b, none_x] = [a, b, x].map(|size| (-size * rate).exp());
    let [some_a, some_b, some_x] = [a, b, x].map(|size| -(-size * rate).exp_m1());
    let p = some_x + none_x * some_a * some_b;
    let (by_a, by_b) = (none_x * none_a * some_b, none_x * none_b * some_a);
    let by_x = none_x * (1.0 - some_a * some_b);
    let first = [by_a, by_b, by_x].map(|part| rate * part / p);
    let ab = none_x * none_a * none_b;
    let second = [[-by_a, ab, -by_a], [ab, -by_b, -by_b], [-by_a, -by_b, -by_x]];
    (first, second.map(|row| row.map(|part| rate * rate * part / p)))
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

/// Whether a symmetric matrix is positive definite.
fn is_positive(m: &Matrix) -> bool {
    let minor = m[0][0] * m[1][1] - m[0][1] * m[1][0];
    m[0][0] > 0.0 && minor > 0.0 && determinant(m) > 0.0
}

fn determinant(m: &Matrix) -> f64 {
    m[0][0] * cofactor(m, 0, 0) + m[0][1] * cofactor(m, 0, 1) + m[0][2] * cofactor(m, 0, 2)
}

fn cofactor(m: &Matrix, i: usize, j: usize) -> f64 {
    let (r, s) = ((i + 1) % 3, (i + 2) % 3);
    let (c, d) = ((j + 1) % 3, (j + 2) % 3);
    m[r][c] * m[s][d] - m[r][d] * m[s][c]
}

/// Returns the inverse of a matrix, if there is one.
fn invert(m: &Matrix) -> Option<Matrix> {
    let determinant = determinant(m);
    if !(determinant.is_finite() && determinant != 0.0) {
        return None;
    }
    Some(std::array::from_fn(|i| std::array::from_fn(|j| cofactor(m, j, i) / determinant)))
}
