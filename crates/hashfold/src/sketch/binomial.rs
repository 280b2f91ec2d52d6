//! The binomial distribution with many trials: its upper tail, and the numbers of trials and the
//! probabilities at which the tail has a given size. Exact intervals of sampled counts follow from it
//! (Clopper and Pearson, "The use of confidence or fiducial limits", 1934).
//!
//! The tail is an incomplete beta function, P(Binomial(n, p) ≥ k) = I_p(k, n − k + 1), which is a
//! continued fraction (Abramowitz and Stegun, 26.5.8) times a probability of the distribution. That one
//! is computed by Loader's saddle-point expansion ("Fast and accurate computation of binomial
//! probabilities", 2000), which loses no digits when n is large.

use std::f64::consts::PI;

/// Number of halvings of a range that is searched.
const HALVINGS: usize = 60;
/// Maximum number of terms of a continued fraction; it needs about √k.
const TERMS_MAX: u32 = 1 << 22;
/// The least divisor of a continued fraction.
const TINY: f64 = 1e-300;
/// The least probability of a success that is computed with. With a smaller one, digits of 1 − p are lost, and
/// the distribution is that of Poisson within this relative error.
const SUCCESS_MIN: f64 = 1.0 / (1 << 20) as f64;
/// The least number that a logarithm is taken of.
const NUMBER_MIN: f64 = 1e-12;

/// Returns the probability that `k` or more of `n` independent trials succeed, each with the probability
/// `p`. `k` and `n` may have fractions; 0 < p ≤ 1.
pub(super) fn tail(k: f64, n: f64, p: f64) -> f64 {
    let (a, b) = (k, n - k + 1.0);
    if k <= 0.0 {
        return 1.0;
    }
    if b <= 0.0 {
        return 0.0;
    }
    if p >= 1.0 {
        return if n >= k { 1.0 } else { 0.0 };
    }
    if p * (a + b + 2.0) < a + 1.0 {
        return probability(k, n, p) * (1.0 - p) * fraction(a, b, p);
    }
    1.0 - probability(k - 1.0, n, p) * p * fraction(b, a, 1.0 - p)
}

/// Returns the number of trials, `k` or more, at which the tail is `probability`: 0 to 1, excluded.
pub(super) fn trials_at(k: f64, p: f64, probability: f64) -> f64 {
    if p < SUCCESS_MIN {
        return trials_at(k, SUCCESS_MIN, probability) * (SUCCESS_MIN / p);
    }
    if tail(k, k, p) >= probability {
        return k;
    }
    let (mut low, mut high) = (k, 2.0 * k / p);
    while tail(k, high, p) < probability {
        (low, high) = (high, 2.0 * high);
    }
    bisect(low, high, |n| tail(k, n, p) < probability)
}

/// Returns the probability of a success at which the tail is `probability`: 0 to 1, excluded.
pub(super) fn success_at(k: f64, n: f64, probability: f64) -> f64 {
    if k <= 0.0 {
        return 0.0;
    }
    if k > n {
        return 1.0;
    }
    bisect(0.0, 1.0, |p| tail(k, n, p) < probability)
}

/// Returns the number up to which `is_below` holds.
pub(super) fn bisect(mut low: f64, mut high: f64, is_below: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        match is_below(middle) {
            true => low = middle,
            false => high = middle,
        }
    }
    f64::midpoint(low, high)
}

/// Returns the probability that exactly `k` of `n` trials succeed.
fn probability(k: f64, n: f64, p: f64) -> f64 {
    let (successes, failures) = (k.max(NUMBER_MIN), (n - k).max(NUMBER_MIN));
    let exponent = stirling_error(n.max(NUMBER_MIN))
        - stirling_error(successes)
        - stirling_error(failures)
        - deviance(successes, n * p)
        - deviance(failures, n * (1.0 - p));
    (n / (2.0 * PI * successes * failures)).sqrt() * exponent.exp()
}

/// Returns ln n! less Stirling's formula for it, n·ln n − n + ½·ln 2πn.
fn stirling_error(n: f64) -> f64 {
    const LARGE: f64 = 15.0;
    let series = |n: f64| {
        let square = n * n;
        (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - 1.0 / (1680.0 * square)) / square) / square)
            / n
    };
    if n >= LARGE {
        return series(n);
    }
    // ln n! = ln (n + m)! − ln (n + 1) − … − ln (n + m)
    let formula = |n: f64| n * n.ln() - n + 0.5 * (2.0 * PI * n).ln();
    let (mut large, mut product) = (n, 1.0);
    while large < LARGE {
        large += 1.0;
        product *= large;
    }
    formula(large) + series(large) - product.ln() - formula(n)
}

/// Returns x·ln(x/m) + m − x, without a loss of digits where x is near m.
fn deviance(x: f64, m: f64) -> f64 {
    let m = m.max(NUMBER_MIN);
    if (x - m).abs() >= 0.1 * (x + m) {
        return x * (x / m).ln() + m - x;
    }
    let v = (x - m) / (x + m);
    let (mut sum, mut term, mut odd) = ((x - m) * v, 2.0 * x * v, 1.0);
    loop {
        term *= v * v;
        odd += 2.0;
        let before = sum;
        sum += term / odd;
        if sum == before {
            return sum;
        }
    }
}

/// Returns the continued fraction of I_x(a, b), by Lentz's method.
fn fraction(a: f64, b: f64, x: f64) -> f64 {
    let bound = |divisor: f64| if divisor.abs() < TINY { TINY } else { divisor };
    let mut d = 1.0 / bound(1.0 - (a + b) * x / (a + 1.0));
    let (mut c, mut value) = (1.0, d);
    for m in 1..TERMS_MAX {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut factor = 1.0;
        for term in [even, odd] {
            d = 1.0 / bound(1.0 + term * d);
            c = bound(1.0 + term / c);
            factor = c * d;
            value *= factor;
        }
        if (factor - 1.0).abs() < 4.0 * f64::EPSILON {
            break;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds up the probabilities, each from the one before.
    fn naive_tail(k: u32, n: u32, p: f64) -> f64 {
        let mut term = (1.0 - p).powi(n as i32);
        let mut sum = 0.0;
        for i in 0..=n {
            if i >= k {
                sum += term;
            }
            term *= f64::from(n - i) / f64::from(i + 1) * p / (1.0 - p);
        }
        sum
    }

    #[test]
    fn tails_are_sums_of_probabilities() {
        for n in [1, 2, 3, 7, 30, 90] {
            for k in 0..=n + 1 {
                for p in [1e-6, 0.01, 0.3, 0.5, 0.8, 0.99] {
                    let (got, expected) = (tail(k.into(), n.into(), p), naive_tail(k, n, p));
                    let limit = 1e-9 * expected.max(1e-5);
                    assert!((got - expected).abs() <= limit, "{k} {n} {p}: {got} {expected}");
                }
            }
        }
    }

    /// With many rare trials, the distribution is that of Poisson, whose tails are known.
    #[test]
    fn tails_of_many_trials_are_those_of_poisson() {
        for (k, mean, expected) in [(1.0, 1.0, 0.632_120_559), (10.0, 10.0, 0.542_070_286)] {
            for n in [1e9, 1e12, 1e15] {
                let got = tail(k, n, mean / n);
                assert!((got - expected).abs() < 1e-7, "{k} {n}: {got}");
            }
        }
    }

    #[test]
    fn intervals_are_those_of_clopper_and_pearson() {
        // 4 successes in 10 trials: 0.1216 to 0.7376, as in tables of 95 % intervals.
        assert!((success_at(4.0, 10.0, 0.025) - 0.121_552).abs() < 1e-5);
        assert!((success_at(5.0, 10.0, 0.975) - 0.737_622).abs() < 1e-5);
        assert_eq!((success_at(0.0, 10.0, 0.5), success_at(11.0, 10.0, 0.5)), (0.0, 1.0));
    }

    #[test]
    fn searches_find_where_a_tail_has_its_size() {
        for k in [1.0, 2.0, 100.0, 1e4, 1e6] {
            for p in [1e-6, 1e-3, 0.5, 0.999_9] {
                for expected in [0.005, 0.025, 0.5, 0.975] {
                    let n = trials_at(k, p, expected);
                    let got = tail(k, n, p);
                    let is_least = n == k && got >= expected;
                    assert!(is_least || (got - expected).abs() < 1e-6, "{k} {p} {n}: {got}");
                    let rare = trials_at(k, p * 2_f64.powi(-60), expected) / 2_f64.powi(60);
                    assert!(p > 1e-6 || (rare / n - 1.0).abs() < 1e-5, "{k} {p} {n}: {rare}");
                }
            }
        }
    }
}
