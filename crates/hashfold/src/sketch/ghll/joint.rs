//! Two sets together, from their sketches, by maximum likelihood, as [`mod@super::super::joint`] has it for values that are
//! numbers of zeros: a keys only in A, b only in B, x in both, and
//!
//! ```text
//! P(K_A ≤ k, K_B ≤ l) = exp(−(a·A(k) + b·A(l) + x·A(min(k, l))) / m)
//! ```
//!
//! with the probability A(k) that a hash gives a value above k. The values of a register are independent, so that the
//! likelihood is a product over values.

use super::{
    super::{
        hll::Hll,
        interval::Estimate,
        joint::{self, Joint},
        newton::{self, Likelihood, Matrix, Vector},
    },
    sketch::Ghll,
};
use crate::error::Result;
use std::cmp::Ordering;

/// An intersection is searched for from this fraction of the smaller set on.
const FRACTION_MIN: f64 = 1e-9;

/// Estimates how many keys are in both of two sets, and in one of them, by maximum likelihood. Standard errors follow from
/// the observed Fisher information.
///
/// # Errors
/// Those of [`Ghll::union`].
pub fn joint(a: &Ghll, b: &Ghll) -> Result<Joint> {
    let mut both = a.clone();
    both.union(b)?;
    let (size_a, size_b) = (a.estimate(), b.estimate());
    let smaller = size_a.min(size_b);
    if smaller <= 0.0 {
        let variance = |sketch: &Ghll| sketch.estimate_with_error().standard_error.powi(2);
        let covariance = [[variance(a), 0.0, 0.0], [0.0, variance(b), 0.0], [0.0; 3]];
        return answer(a, [size_a, size_b, 0.0], &covariance);
    }
    // Inclusion-exclusion.
    let x = (size_a + size_b - both.estimate()).clamp(0.01 * smaller, 0.99 * smaller);
    let (counts, floor) = (Counts::of(a, b), FRACTION_MIN * smaller);
    let sizes = newton::maximize(&counts, [size_a - x, size_b - x, x], floor);
    answer(a, sizes, &newton::covariance(&counts, sizes, floor))
}

/// Returns the sizes with their errors, by the gradients of what follows from them.
fn answer(sketch: &Ghll, sizes: Vector, covariance: &Matrix) -> Result<Joint> {
    let [a, b, x] = sizes;
    let variance = |v: Vector| -> f64 {
        let row = |i: usize| (0..3).map(|j| v[i] * v[j] * covariance[i][j]).sum::<f64>();
        (0..3).map(row).sum()
    };
    let size = |value: f64, v: Vector| Estimate::new(value, variance(v), f64::INFINITY);
    let union = a + b + x;
    let part = if union > 0.0 { x / union } else { 0.0 };
    let (slope, slope_x) =
        if union > 0.0 { (-part / union, (1.0 - part) / union) } else { (0.0, 0.0) };
    // The answer for two empty sketches knows the precision.
    let empty = Hll::of_family(sketch.family(), sketch.precision())?;
    let mut joint = joint::joint(&empty, &empty)?;
    joint.only_a = size(a, [1.0, 0.0, 0.0]);
    joint.only_b = size(b, [0.0, 1.0, 0.0]);
    joint.intersection = size(x, [0.0, 0.0, 1.0]);
    joint.union = size(union, [1.0; 3]);
    joint.jaccard = Estimate::new(part, variance([slope, slope, slope_x]), 1.0);
    Ok(joint)
}

/// The registers that have a value, by what the other sketch has there.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    /// The probability that a key gives a register this value, among all registers.
    rate: f64,
    /// The first has the value and the other less.
    only_a: f64,
    /// The second has the value and the other less.
    only_b: f64,
    /// The first has the value and the other more.
    any_a: f64,
    /// The second has the value and the other more.
    any_b: f64,
    /// Both have the value.
    equal: f64,
}

impl Count {
    /// Whether any register has the value.
    fn is_any(&self) -> bool {
        self.only_a + self.only_b + self.any_a + self.any_b + self.equal > 0.0
    }
}

/// The statistics of two sketches that determine the likelihood.
struct Counts {
    /// The values above 0 that registers have.
    values: Vec<Count>,
    /// The sums of the rates above the values: of the first sketch, the second, and the lesser ones.
    above: Vector,
}

impl Counts {
    fn of(a: &Ghll, b: &Ghll) -> Counts {
        let (levels, m) = (a.levels, a.register_count() as f64);
        let mut values = vec![Count::default(); usize::from(levels.value_max()) + 1];
        let mut above = [0.0; 3];
        for (&k, &l) in a.registers.iter().zip(&b.registers) {
            for (sum, value) in above.iter_mut().zip([k, l, k.min(l)]) {
                *sum += levels.above(value) / m;
            }
            let [of_a, of_b] = [k, l].map(usize::from);
            match k.cmp(&l) {
                Ordering::Greater => {
                    values[of_a].only_a += 1.0;
                    values[of_b].any_b += 1.0;
                }
                Ordering::Less => {
                    values[of_a].any_a += 1.0;
                    values[of_b].only_b += 1.0;
                }
                Ordering::Equal => values[of_a].equal += 1.0,
            }
        }
        let set = (1..=levels.value_max()).zip(values.into_iter().skip(1));
        let with_rate =
            set.map(|(value, count)| Count { rate: levels.probability(value) / m, ..count });
        Counts { values: with_rate.filter(Count::is_any).collect(), above }
    }
}

impl Likelihood for Counts {
    fn value(&self, [a, b, x]: Vector) -> f64 {
        let mut sum = -(a * self.above[0] + b * self.above[1] + x * self.above[2]);
        let mut add = |count: f64, probability: f64| {
            if count > 0.0 {
                sum += count * probability.ln();
            }
        };
        for count in &self.values {
            let rate = count.rate;
            let some = |size: f64| -(-size * rate).exp_m1();
            add(count.only_a, some(a));
            add(count.only_b, some(b));
            add(count.any_a, some(a + x));
            add(count.any_b, some(b + x));
            add(count.equal, some(x) + (-x * rate).exp() * some(a) * some(b));
        }
        sum
    }

    fn derivatives(&self, [a, b, x]: Vector) -> (Vector, Matrix) {
        let mut gradient = self.above.map(|above| -above);
        let mut hessian = [[0.0; 3]; 3];
        for count in &self.values {
            let rate = count.rate;
            // ln(1 − e^−rs), for a sum s of some of the sizes.
            let mut add_some = |count: f64, size: f64, parts: &[usize]| {
                if count > 0.0 {
                    let grown = (size * rate).exp_m1();
                    let second = -rate * rate * (1.0 / grown + 1.0 / (grown * grown));
                    for &i in parts {
                        gradient[i] += count * rate / grown;
                        parts.iter().for_each(|&j| hessian[i][j] += count * second);
                    }
                }
            };
            add_some(count.only_a, a, &[0]);
            add_some(count.only_b, b, &[1]);
            add_some(count.any_a, a + x, &[0, 2]);
            add_some(count.any_b, b + x, &[1, 2]);
            if count.equal > 0.0 {
                let (first, second) = both(rate, [a, b, x]);
                for i in 0..3 {
                    gradient[i] += count.equal * first[i];
                    for j in 0..3 {
                        hessian[i][j] += count.equal * (second[i][j] - first[i] * first[j]);
                    }
                }
            }
        }
        (gradient, hessian)
    }
}

/// Returns the derivatives of the probability that both registers have a value, divided by it.
fn both(rate: f64, sizes: Vector) -> (Vector, Matrix) {
    let [none_a, none_b, none_x] = sizes.map(|size| (-size * rate).exp());
    let [some_a, some_b, some_x] = sizes.map(|size| -(-size * rate).exp_m1());
    let p = some_x + none_x * some_a * some_b;
    let (by_a, by_b) = (none_x * none_a * some_b, none_x * none_b * some_a);
    let by_x = none_x * (1.0 - some_a * some_b);
    let ab = none_x * none_a * none_b;
    let second = [[-by_a, ab, -by_a], [ab, -by_b, -by_b], [-by_a, -by_b, -by_x]];
    (
        [by_a, by_b, by_x].map(|part| rate * part / p),
        second.map(|row| row.map(|part| rate * rate * part / p)),
    )
}
