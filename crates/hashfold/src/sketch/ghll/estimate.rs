//! The number of distinct keys from registers, by maximum likelihood.
//!
//! With n keys (Poisson model), a register of m has a value of at most k with the probability exp(−n·A(k)/m), where A(k) is the
//! probability that a hash gives more. With P(k) that of k, and C(k) registers with the value k:
//!
//! ```text
//! ln L(n) = Σ C(k)·(−n·A(k)/m + ln(1 − exp(−n·P(k)/m)))      the logarithm for k > 0 only
//! ```

use super::levels::Levels;

/// The largest estimate: all registers are full.
const ESTIMATE_MAX: f64 = (1_u128 << 64) as f64;
/// The search ends when the bounds of the estimate are as close as this, as a ratio.
const RATIO_MIN: f64 = 1.0 + 1e-12;
const STEPS_MAX: usize = 200;

/// Estimates the number of distinct keys from the values that registers have, ascending, each with the number of these
/// registers.
pub(super) fn estimate(levels: Levels, histogram: &[(u16, u32)]) -> f64 {
    let m = f64::from(histogram.iter().map(|(_, count)| count).sum::<u32>());
    let above: f64 =
        histogram.iter().map(|(value, count)| f64::from(*count) * levels.above(*value) / m).sum();
    let rates: Vec<(f64, f64)> = histogram
        .iter()
        .filter(|(value, _)| *value > 0)
        .map(|(value, count)| (f64::from(*count), levels.probability(*value) / m))
        .collect();
    if rates.is_empty() {
        return 0.0;
    }
    // The derivative of ln L, which falls with n.
    let slope = |n: f64| {
        rates.iter().map(|(count, rate)| count * rate / (n * rate).exp_m1()).sum::<f64>() - above
    };
    let (mut low, mut high) = (1e-3, ESTIMATE_MAX);
    if slope(high) >= 0.0 {
        return high;
    }
    let mut n = m;
    for _ in 0..STEPS_MAX {
        let at = slope(n);
        (low, high) = if at > 0.0 { (n, high) } else { (low, n) };
        if high < low * RATIO_MIN {
            break;
        }
        // Newton's method on the logarithm, and the middle where it leads out of the bounds.
        let curvature: f64 = rates
            .iter()
            .map(|(count, rate)| {
                let half = (0.5 * n * rate).sinh();
                count * rate * rate / (4.0 * half * half)
            })
            .sum();
        let next = n * (at / (curvature * n)).clamp(-2.0, 2.0).exp();
        let is_within = next > low && next < high;
        let moved = (next / n - 1.0).abs();
        n = if is_within { next } else { (low * high).sqrt() };
        if is_within && moved < 1e-12 {
            break;
        }
    }
    n
}

/// Returns the variance of the estimate of n keys: that of the Poisson model, the inverse of the expected Fisher
/// information, minus n, the variance that the Poisson model adds: the number of keys is fixed.
pub(super) fn variance(levels: Levels, registers: usize, n: f64) -> f64 {
    if n <= 0.0 {
        return 0.0;
    }
    let m = registers as f64;
    let information: f64 = (1..=levels.value_max())
        .map(|value| {
            let rate = levels.probability(value) / m;
            let grown = (n * rate).exp_m1();
            (-n * levels.above(value) / m).exp() * rate * rate / grown
        })
        .sum();
    // Registers that are all full tell nothing.
    (1.0 / (m * information) - n).clamp(0.0, n * n)
}
