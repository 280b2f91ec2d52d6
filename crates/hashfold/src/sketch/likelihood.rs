//! The likelihood of the sizes of two sets, a keys only in the first, b only in the second and x in both,
//! from the registers of their sketches; and the sizes with the largest one.
//!
//! With s(n) = 1 − e^−rn, the probability that a register that n keys reach with the rate r is raised by one
//! of them, the logarithm of the likelihood is linear in the sizes but for
//!
//! ```text
//! Σ over the values k of   only_a·ln s(a) + only_b·ln s(b) + any_a·ln s(a + x) + any_b·ln s(b + x)
//!                        + equal·ln(s(x) + (1 − s(x))·s(a)·s(b))
//! ```
//!
//! Rates are halved from value to value, so that s follows for the next one without an exponential:
//! 1 − e^−2t = s·(2 − s) with s = 1 − e^−t, which loses no digits.

use super::{
    estimate::VALUES,
    matrix::{Matrix, invert, is_positive, pairs},
    pairs::Pairs,
};
use std::{cmp::Ordering, ops::Range};

const STEPS_MAX: usize = 60;
/// The largest change of a logarithm in one step.
const STEP_MAX: f64 = 2.0;
/// A step below this ends the search.
const STEP_MIN: f64 = 1e-7;
/// A size below this multiple of the least one is at the floor.
const AT_FLOOR: f64 = 2.0;
/// Number of times that a step is made shorter.
const DAMPINGS_MAX: usize = 60;
/// The variance of what is not known.
const VARIANCE_MAX: f64 = 1e300;

/// For one value, the numbers of pairs of registers that the likelihood depends on.
#[derive(Clone, Copy, Default)]
struct Level {
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
        let Level { only_a, only_b, any_a, any_b, equal } = self;
        [only_a, only_b, any_a, any_b, equal].into_iter().any(|count| *count > 0.0)
    }
}

/// The statistics of two sketches that determine the likelihood.
pub(super) struct Likelihood {
    levels: [Level; VALUES],
    /// The sums of the rates above the values: of the first sketch, the second, and the lesser ones.
    above: [f64; 3],
    /// Number of registers.
    m: f64,
    /// The largest value of a register, less 1.
    q: usize,
    /// The values that registers have, but for 0: the others add nothing to sums.
    values: Range<usize>,
}

/// The logarithm of the likelihood, and its derivatives by the sizes.
struct Point {
    value: f64,
    gradient: [f64; 3],
    hessian: Matrix,
}

impl Likelihood {
    pub(super) fn of(pairs: &Pairs, registers: usize, q: usize) -> Likelihood {
        let m = registers as f64;
        let above = |k: usize| if k > q { 0.0 } else { 0.5_f64.powi(k as i32) / m };
        let mut levels = [Level::default(); VALUES];
        let mut sums = [0.0; 3];
        for (i, j, count) in pairs.iter() {
            let count = f64::from(count);
            for (sum, k) in sums.iter_mut().zip([i, j, i.min(j)]) {
                *sum += count * above(k);
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
        let first = (1..VALUES).find(|k| levels[*k].is_used()).unwrap_or(1);
        let end = (1..VALUES).rfind(|k| levels[*k].is_used()).map_or(first, |last| last + 1);
        Likelihood { levels, above: sums, m, q, values: first..end }
    }

    /// Returns the rate at which a key reaches a register with a value. The values q and q + 1 have one
    /// rate, since q + 1 stands for all above.
    fn rate(&self, k: usize) -> f64 {
        0.5_f64.powi(k.min(self.q) as i32) / self.m
    }

    /// Returns the logarithm of the likelihood of the sizes a, b, x, with its derivatives.
    fn at(&self, sizes: [f64; 3]) -> Point {
        let mut point = Point {
            value: -(0..3).map(|i| sizes[i] * self.above[i]).sum::<f64>(),
            gradient: self.above.map(|above| -above),
            hessian: [[0.0; 3]; 3],
        };
        if self.values.is_empty() {
            return point;
        }
        let last = self.values.end - 1;
        let mut rate = self.rate(last);
        let mut some = sizes.map(|size| -(-size * rate).exp_m1());
        for k in self.values.clone().rev() {
            // The rates of q and q + 1 are equal.
            if k < last && k < self.q {
                rate *= 2.0;
                some = some.map(|s| s * (2.0 - s));
            }
            let level = &self.levels[k];
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

    /// Returns the sizes with the largest likelihood, `floor` or more: Newton's method on their logarithms.
    pub(super) fn maximize(&self, start: [f64; 3], floor: f64) -> [f64; 3] {
        let mut sizes = start.map(|size| size.max(floor));
        let mut best = self.at(sizes);
        for _ in 0..STEPS_MAX {
            let step = best.step(sizes);
            let mut scale = 1.0;
            let (next, point) = loop {
                let next: [f64; 3] =
                    std::array::from_fn(|i| (sizes[i] * (scale * step[i]).exp()).max(floor));
                let point = self.at(next);
                if point.value >= best.value || scale < 1e-4 {
                    break (next, point);
                }
                scale *= 0.5;
            };
            let moved = (0..3).map(|i| (next[i] / sizes[i]).ln().abs()).fold(0.0, f64::max);
            if point.value < best.value {
                break;
            }
            (sizes, best) = (next, point);
            if moved < STEP_MIN {
                break;
            }
        }
        sizes
    }

    /// Returns the covariance of the sizes with the largest likelihood: the inverse of the observed
    /// information. The likelihood of a size at the floor falls from there on as e^−gs with the gradient
    /// −g, so that its standard error is 1/g, and it tells nothing of the others.
    pub(super) fn covariance(&self, sizes: [f64; 3], floor: f64) -> Matrix {
        let Point { gradient, hessian, .. } = self.at(sizes);
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
    fn add_both(&mut self, count: f64, rate: f64, some: [f64; 3]) {
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

    /// Returns the step of Newton's method, or one along the gradient where that leads nowhere.
    fn step(&self, sizes: [f64; 3]) -> [f64; 3] {
        let slope: [f64; 3] = std::array::from_fn(|i| sizes[i] * self.gradient[i]);
        let mut curvature: Matrix = [[0.0; 3]; 3];
        for (i, j) in pairs() {
            curvature[i][j] = -sizes[i] * sizes[j] * self.hessian[i][j];
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Registers of a precision of 6 with values up to the largest.
    fn pairs_up_to(value_max: u8, q: usize) -> Likelihood {
        let value = |i: u32, factor: u32| ((i * factor) % (u32::from(value_max) + 1)) as u8;
        let a: Vec<u8> = (0..64).map(|i| value(i, 7)).collect();
        let b: Vec<u8> =
            (0..64).map(|i| if i % 5 == 0 { a[i as usize] } else { value(i, 11) }).collect();
        Likelihood::of(&Pairs::of(&a, &b), 64, q)
    }

    /// The logarithm of the likelihood by the formula, with an exponential for each term.
    fn by_formula(likelihood: &Likelihood, [a, b, x]: [f64; 3]) -> f64 {
        let [by_a, by_b, by_x] = likelihood.above;
        let mut sum = -(a * by_a + b * by_b + x * by_x);
        for k in likelihood.values.clone() {
            let (level, rate) = (&likelihood.levels[k], likelihood.rate(k));
            let some = |size: f64| -(-size * rate).exp_m1();
            let both = some(x) + (-x * rate).exp() * some(a) * some(b);
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
