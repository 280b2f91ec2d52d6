//! The likelihood of the sizes of two sets, a keys only in the first, b only in the second and x in both,
//! from the registers of their sketches.
//!
//! With s(n) = 1 − e^−rn, the probability that a register that n keys reach with the rate r is raised by one
//! of them, the logarithm of the likelihood is linear in the sizes but for
//!
//! ```text
//! Σ over the values k of   only_a·ln s(a) + only_b·ln s(b) + any_a·ln s(a + x) + any_b·ln s(b + x)
//!                        + equal·ln(s(x) + (1 − s(x))·s(a)·s(b))
//! ```
//!
//! From one value to the next below, the rate is the same or twice as large, so that s follows without an
//! exponential: 1 − e^−2t = s·(2 − s) with s = 1 − e^−t, which loses no digits.

use super::{
    matrix::{Vector, pairs},
    newton::Point,
};
use std::cmp::Ordering;

/// For one value, the numbers of pairs of registers that the likelihood depends on.
#[derive(Clone, Copy, Default)]
struct Level {
    /// The rate at which a key gives a register the value.
    rate: f64,
    /// Pairs of which the first register has the value and the other less.
    only_a: f64,
    /// Pairs of which the second register has the value and the other less.
    only_b: f64,
    /// Pairs of which the first register has the value and the other more.
    any_a: f64,
    /// Pairs of which the second register has the value and the other more.
    any_b: f64,
    /// Pairs of registers that both have the value.
    equal: f64,
}

impl Level {
    fn is_used(&self) -> bool {
        let Level { only_a, only_b, any_a, any_b, equal, .. } = self;
        [only_a, only_b, any_a, any_b, equal].into_iter().any(|count| *count > 0.0)
    }
}

/// A kind of registers.
pub(super) struct Kind<R, A> {
    /// The largest value.
    pub(super) value_max: usize,
    /// The rate at which a key gives a register a value above 0: a power of two times that of any other value, and not
    /// less than that of a larger value.
    pub(super) rate: R,
    /// The rate at which a key gives a register more than a value.
    pub(super) above: A,
}

/// The statistics of two sketches that determine the likelihood.
pub(super) struct Likelihood {
    /// Descending values above 0 that registers have: the others add nothing to sums.
    levels: Vec<Level>,
    /// The sums of the rates above the values: of the first sketch, the second, and the lesser ones.
    above: Vector,
}

impl Likelihood {
    /// Takes pairs of values of registers, and how often there is each.
    pub(super) fn of(
        pairs: impl Iterator<Item = (usize, usize, u32)>,
        kind: &Kind<impl Fn(usize) -> f64, impl Fn(usize) -> f64>,
    ) -> Likelihood {
        let mut levels = vec![Level::default(); kind.value_max + 1];
        let mut above = [0.0; 3];
        for (i, j, count) in pairs {
            let count = f64::from(count);
            for (sum, k) in above.iter_mut().zip([i, j, i.min(j)]) {
                *sum += count * (kind.above)(k);
            }
            match i.cmp(&j) {
                Ordering::Greater => {
                    levels[i].only_a += count;
                    levels[j].any_b += count;
                }
                Ordering::Less => {
                    levels[i].any_a += count;
                    levels[j].only_b += count;
                }
                Ordering::Equal => levels[i].equal += count,
            }
        }
        let used =
            levels.into_iter().enumerate().skip(1).rev().filter(|(_, level)| level.is_used());
        let levels = used.map(|(k, level)| Level { rate: (kind.rate)(k), ..level }).collect();
        Likelihood { levels, above }
    }

    /// Returns the logarithm of the likelihood of the sizes a, b, x, with its derivatives.
    pub(super) fn at(&self, sizes: Vector) -> Point {
        let mut point = Point {
            value: -(0..3).map(|i| sizes[i] * self.above[i]).sum::<f64>(),
            gradient: self.above.map(|above| -above),
            hessian: [[0.0; 3]; 3],
        };
        let mut rate = self.levels.first().map_or(1.0, |level| level.rate);
        let mut some = sizes.map(|size| -(-size * rate).exp_m1());
        for level in &self.levels {
            while rate < level.rate {
                rate *= 2.0;
                some = some.map(|s| s * (2.0 - s));
            }
            let [some_a, some_b, some_x] = some;
            let none_x = 1.0 - some_x;
            point.add_some(level.only_a, rate, some_a, &[0]);
            point.add_some(level.only_b, rate, some_b, &[1]);
            point.add_some(level.any_a, rate, some_x + none_x * some_a, &[0, 2]);
            point.add_some(level.any_b, rate, some_x + none_x * some_b, &[1, 2]);
            point.add_both(level.equal, rate, some);
        }
        point
    }
}

impl Point {
    /// Adds `count` times ln(1 − e^−rs), for a sum s of some of the sizes with the rate r: `some` is
    /// 1 − e^−rs.
    #[inline]
    fn add_some(&mut self, count: f64, rate: f64, some: f64, parts: &[usize]) {
        if count > 0.0 {
            let grown = rate / some;
            let first = count * grown * (1.0 - some);
            self.value += count * some.ln();
            for &i in parts {
                self.gradient[i] += first;
                parts.iter().for_each(|&j| self.hessian[i][j] -= first * grown);
            }
        }
    }

    /// Adds `count` times the logarithm of the probability that both registers have a value.
    #[inline]
    fn add_both(&mut self, count: f64, rate: f64, some: Vector) {
        if count > 0.0 {
            let [some_a, some_b, some_x] = some;
            let [none_a, none_b, none_x] = some.map(|some| 1.0 - some);
            let p = some_x + none_x * some_a * some_b;
            let (by_a, by_b) = (none_x * none_a * some_b, none_x * none_b * some_a);
            let by_x = none_x * (1.0 - some_a * some_b);
            let ab = none_x * none_a * none_b;
            let relative = rate / p;
            let first = [by_a, by_b, by_x].map(|part| relative * part);
            let second = [[-by_a, ab, -by_a], [ab, -by_b, -by_b], [-by_a, -by_b, -by_x]];
            self.value += count * p.ln();
            for (i, j) in pairs() {
                let second = rate * relative * second[i][j];
                self.hessian[i][j] += count * (second - first[i] * first[j]);
            }
            (0..3).for_each(|i| self.gradient[i] += count * first[i]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::pairs::Pairs, *};

    /// Registers of a precision of 6 with values up to the largest.
    fn pairs_up_to(value_max: u8, q: usize) -> Likelihood {
        let value = |i: u32, factor: u32| ((i * factor) % (u32::from(value_max) + 1)) as u8;
        let a: Vec<u8> = (0..64).map(|i| value(i, 7)).collect();
        let b: Vec<u8> =
            (0..64).map(|i| if i % 5 == 0 { a[i as usize] } else { value(i, 11) }).collect();
        Pairs::of(&a, &b).likelihood(64, q)
    }

    /// The logarithm of the likelihood by the formula, with an exponential for each term.
    fn by_formula(likelihood: &Likelihood, [a, b, x]: [f64; 3]) -> f64 {
        let [by_a, by_b, by_x] = likelihood.above;
        let mut sum = -(a * by_a + b * by_b + x * by_x);
        for level in &likelihood.levels {
            let some = |size: f64| -(-size * level.rate).exp_m1();
            let both = some(x) + (-x * level.rate).exp() * some(a) * some(b);
            for (count, probability) in [
                (level.only_a, some(a)),
                (level.only_b, some(b)),
                (level.any_a, some(a + x)),
                (level.any_b, some(b + x)),
                (level.equal, both),
            ] {
                sum += if count > 0.0 { count * probability.ln() } else { 0.0 };
            }
        }
        sum
    }

    const SIZES: [[f64; 3]; 6] = [
        [1.0, 1.0, 1.0],
        [1e-6, 500.0, 3.0],
        [2e3, 1e5, 1e-3],
        [1e5, 1e3, 1e4],
        [1e7, 1e7, 1e7],
        [3e9, 1e2, 1e8],
    ];

    #[test]
    fn the_likelihood_is_that_of_the_formula() {
        for (value_max, q) in [(12, 58), (58, 58), (59, 58), (5, 4), (1, 58), (0, 58)] {
            let likelihood = pairs_up_to(value_max, q);
            for sizes in SIZES {
                let (got, expected) = (likelihood.at(sizes).value, by_formula(&likelihood, sizes));
                let bound = 1e-10 * expected.abs() + 1e-9;
                assert!(
                    (got - expected).abs() < bound,
                    "{value_max}, {sizes:?}: {got}, not {expected}"
                );
            }
        }
    }

    #[test]
    fn derivatives_are_those_of_the_value() {
        for (value_max, q) in [(12, 58), (59, 58), (5, 4)] {
            let likelihood = pairs_up_to(value_max, q);
            for sizes in SIZES {
                let point = likelihood.at(sizes);
                for i in 0..3 {
                    let moved = |by: f64| {
                        let mut sizes = sizes;
                        sizes[i] *= 1.0 + by;
                        likelihood.at(sizes)
                    };
                    let (less, more, step) = (moved(-1e-5), moved(1e-5), sizes[i] * 2e-5);
                    let slope = (more.value - less.value) / step;
                    let scale = point.value.abs() * 1e-10 / step + point.gradient[i].abs() * 1e-6;
                    let distance = (slope - point.gradient[i]).abs();
                    assert!(
                        distance <= scale,
                        "{value_max}, {sizes:?}, {i}: {slope}, {:?}",
                        point.gradient
                    );
                    for j in 0..3 {
                        let second = (more.gradient[j] - less.gradient[j]) / step;
                        let scale = (point.hessian[i][j].abs()
                            + (point.hessian[i][i] * point.hessian[j][j]).abs().sqrt())
                            * 1e-4
                            + point.gradient[j].abs() * 1e-9 / step;
                        let distance = (second - point.hessian[i][j]).abs();
                        assert!(distance <= scale, "{value_max}, {sizes:?}, {i}, {j}: {second}");
                    }
                }
            }
        }
    }
}
