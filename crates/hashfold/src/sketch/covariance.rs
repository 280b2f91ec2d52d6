//! The errors of estimates of [`estimate`](mod@super::estimate): their variances, and their covariances for two sets and
//! the union of these.
//!
//! The estimate is n = m² / (2·ln 2·z). By the delta method, its relative error is −dz/z, where
//!
//! ```text
//! dz = Σ w(K) over the registers, less its mean     w(0) = σ'(C(0)/m), w(k) = 2^−k, w(q+1) = −τ'(1 − C(q+1)/m)·2^−q
//! ```
//!
//! w(0) is 1 only if few registers are 0: with few keys, it is the largest by far. The covariances of w are those of the
//! Poisson model, in which the numbers of keys have a variance, too. That is no error of the estimates, and is subtracted.

use super::{
    estimate::{VALUES, sigma_slope, tau_slope},
    matrix::{Matrix, Vector},
};
use std::f64::consts::LN_2;

/// Registers are full, and tell no more, from this number of keys on that would raise the largest value.
const FULL: f64 = 10.0;

/// The number of registers, and their values.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// Number of registers.
    pub(super) count: usize,
    /// The largest value, less 1.
    pub(super) q: usize,
}

impl Shape {
    fn count(self) -> f64 {
        self.count as f64
    }

    /// Returns the largest value.
    fn value_max(self) -> usize {
        self.q + 1
    }

    /// Returns n, or the largest number that registers can tell from more.
    fn bound(self, n: f64) -> f64 {
        n.min(FULL * self.count() * (self.q as f64).exp2())
    }

    /// Returns the probabilities that a register of a set of n keys has each value at most.
    fn at_most(self, n: f64) -> [f64; VALUES] {
        let rate = n / self.count();
        let at_most = |k: usize| if k > self.q { 1.0 } else { (-rate * power(k)).exp() };
        std::array::from_fn(at_most)
    }

    /// Returns w(k) for each value k, relative to the mean of z/m, and less that of the value 0 if half of the registers
    /// have it, so that no digits are lost.
    fn slopes(self, n: f64, at_most: &[f64; VALUES]) -> [f64; VALUES] {
        let mean = self.count() / (2.0 * LN_2 * n);
        let of_0 = sigma_slope(at_most[0]);
        let base = if at_most[0] > 0.5 { of_0 } else { 0.0 };
        let slope = |k: usize| match k {
            0 => of_0,
            k if k <= self.q => power(k),
            _ => -tau_slope(at_most[self.q]) * power(self.q),
        };
        std::array::from_fn(|k| (slope(k) - base) / mean)
    }

    /// Returns by how much the mean of the estimate rises with a key: 1 but for the rounding of values to whole numbers of
    /// zeros, which makes a difference of 0.01 % at most.
    fn gain(self, n: f64, at_most: &[f64; VALUES], slopes: &[f64; VALUES]) -> f64 {
        let (mut gain, mut before) = (0.0, 0.0);
        for k in 0..=self.value_max() {
            let here = if k > self.q { 0.0 } else { n / self.count() * power(k) * at_most[k] };
            gain += slopes[k] * (here - before);
            before = here;
        }
        gain
    }

    /// Returns the variance of the estimate of n keys.
    pub(super) fn variance(self, n: f64) -> f64 {
        if n <= 0.0 {
            return 0.0;
        }
        let known = self.bound(n);
        let at_most = self.at_most(known);
        let slopes = self.slopes(known, &at_most);
        let (mut mean, mut square, mut before) = (0.0, 0.0, 0.0);
        for k in 0..=self.value_max() {
            let p = at_most[k] - before;
            before = at_most[k];
            mean += p * slopes[k];
            square += p * slopes[k] * slopes[k];
        }
        let of_keys = n * self.gain(known, &at_most, &slopes).powi(2);
        (n * n * (square - mean * mean) / self.count() - of_keys).max(0.0)
    }

    /// Returns the covariances of the estimates of |A|, |B| and |A ∪ B|, for a keys only in A, b only in B, and x in both.
    pub(super) fn covariance(self, [a, b, x]: Vector) -> Matrix {
        let of = [a + x, b + x, a + b + x];
        let parts = [a, b, x].map(|size| self.bound(size));
        let [only_a, only_b, both] = parts.map(|size| self.at_most(size));
        // P(K_A ≤ k, K_B ≤ l)
        let at_most = |k: usize, l: usize| only_a[k] * only_b[l] * both[k.min(l)];
        let known = [parts[0] + parts[2], parts[1] + parts[2], parts.iter().sum()];
        let (mut slopes, mut gains) = ([[0.0; VALUES]; 3], [0.0; 3]);
        for i in (0..3).filter(|i| known[*i] > 0.0) {
            let at_most = self.at_most(known[i]);
            slopes[i] = self.slopes(known[i], &at_most);
            gains[i] = self.gain(known[i], &at_most, &slopes[i]);
        }
        let (mut mean, mut product) = ([0.0; 3], [[0.0; 3]; 3]);
        let mut row_before = [0.0; VALUES];
        for k in 0..=self.value_max() {
            let (mut left, mut left_before) = (0.0, 0.0);
            for l in 0..=self.value_max() {
                let here = at_most(k, l);
                let before = std::mem::replace(&mut row_before[l], here);
                let p = (here - left - before + left_before).max(0.0);
                (left, left_before) = (here, before);
                let w = [slopes[0][k], slopes[1][l], slopes[2][k.max(l)]];
                for i in 0..3 {
                    mean[i] += p * w[i];
                    (i..3).for_each(|j| product[i][j] += p * w[i] * w[j]);
                }
            }
        }
        // The covariances of the numbers of keys in the Poisson model.
        let of_keys = [[a + x, x, a + x], [x, b + x, b + x], [a + x, b + x, a + b + x]];
        std::array::from_fn(|i| {
            std::array::from_fn(|j| {
                let of_weights = product[i.min(j)][i.max(j)] - mean[i] * mean[j];
                of[i] * of[j] * of_weights / self.count() - gains[i] * gains[j] * of_keys[i][j]
            })
        })
    }
}

/// 2^−k.
fn power(k: usize) -> f64 {
    0.5_f64.powi(k as i32)
}

#[cfg(test)]
mod tests {
    use super::{
        super::estimate::{Histogram, estimate},
        *,
    };

    /// Derivatives of the estimate by the number of registers with a value, by difference quotients.
    #[test]
    fn slopes_are_those_of_the_estimate() {
        for (q, n) in [(54, 20.0), (54, 900.0), (54, 1e5), (6, 5e4), (0, 700.0)] {
            let shape = Shape { count: 1 << 24, q };
            let n = n * f64::from(1 << 14);
            let at_most = shape.at_most(n);
            let slopes = shape.slopes(n, &at_most);
            let expected = |k: usize| at_most[k] - if k > 0 { at_most[k - 1] } else { 0.0 };
            let mut histogram: Histogram = [0; VALUES];
            (0..=q + 1).for_each(|k| histogram[k] = (shape.count() * expected(k)).round() as u32);
            let from = (0..=q + 1).max_by_key(|k| histogram[*k]).unwrap();
            histogram[from] = histogram[from] + (1 << 24) - histogram.iter().sum::<u32>();
            let before = estimate(&histogram, q);
            assert!((before / n - 1.0).abs() < 1e-3, "{q} {n} {before}");
            for k in (0..=q + 1).filter(|k| *k != from) {
                // A few registers get the value k.
                let moved = 100.min(histogram[0] / 10).max(1);
                let mut after = histogram;
                after[from] -= moved;
                after[k] += moved;
                let relative = 1.0 - before / estimate(&after, q);
                let slope = (slopes[from] - slopes[k]) * f64::from(moved) / shape.count();
                let bound = 0.02 * relative.abs() + 1e-12;
                assert!((slope - relative).abs() < bound, "{q} {n} {k}: {slope} {relative}");
            }
        }
    }

    #[test]
    fn the_variance_of_one_set_is_in_the_covariance_of_two() {
        let shape = Shape { count: 1 << 14, q: 50 };
        for n in [1.0, 100.0, 3e4, 1e7, 1e15] {
            let (expected, found) = (shape.variance(n), shape.covariance([0.9 * n, n, 0.1 * n]));
            assert!((found[0][0] / expected - 1.0).abs() < 1e-4, "{n} {expected} {found:?}");
            let relative = (expected * shape.count()).sqrt() / n;
            let bounds = if n < 200.0 { 0.69..0.72 } else { 0.72..1.045 };
            assert!(bounds.contains(&relative), "{n} {relative}");
            // Sets without others' keys, and with the same.
            let alone = shape.covariance([n, 0.0, 0.0]);
            assert!((alone[2][2] / expected - 1.0).abs() < 1e-4 && alone[1] == [0.0; 3]);
            let same = shape.covariance([0.0, 0.0, n]);
            assert!((same[0][1] / expected - 1.0).abs() < 1e-4, "{n} {expected} {same:?}");
        }
    }

    #[test]
    fn full_registers_have_finite_and_large_errors() {
        for (q, m) in [(0, 1 << 11), (6, 1 << 4), (60, 1 << 4), (46, 1 << 18)] {
            let (shape, n) = (Shape { count: m, q }, (1_u128 << 64) as f64);
            let variance = shape.variance(n);
            assert!(variance.is_finite() && variance > n * n / m as f64, "{q} {m} {variance}");
            let covariance = shape.covariance([n, n, n]).concat();
            assert!(covariance.iter().all(|value| value.is_finite()), "{q} {m} {covariance:?}");
        }
    }
}
