//! Estimates with their errors.

use super::binomial::bisect;
use std::f64::consts::PI;

/// The largest number of standard errors that is looked for.
const MARGIN_MAX: f64 = 8.0;

/// An estimate with its error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The estimate, 0 or more.
    pub value: f64,
    /// The standard error, in the unit of the value.
    pub standard_error: f64,
    /// The largest possible value.
    max: f64,
}

impl Estimate {
    /// Makes an estimate of something between 0 and `max`.
    pub(super) fn new(value: f64, variance: f64, max: f64) -> Estimate {
        Estimate { value, standard_error: variance.max(0.0).sqrt(), max }
    }

    /// Returns the standard error divided by the value; infinite for a value of 0.
    pub fn relative_error(&self) -> f64 {
        if self.value > 0.0 { self.standard_error / self.value } else { f64::INFINITY }
    }

    /// Returns the interval that has the true value with a probability, as if errors had a normal
    /// distribution: `interval(0.95)` is 1.96 standard errors on each side. `confidence` is between 0
    /// and 1.
    pub fn interval(&self, confidence: f64) -> (f64, f64) {
        let margin = margin(confidence) * self.standard_error;
        ((self.value - margin).max(0.0), (self.value + margin).min(self.max))
    }
}

/// Returns the number of standard errors on each side that has this probability in a normal distribution.
/// The probability of z is 2·φ(z)·(z + z³/3 + z⁵/(3·5) + …) (Marsaglia, "Evaluating the normal
/// distribution", 2004).
pub(super) fn margin(confidence: f64) -> f64 {
    let probability = |z: f64| {
        let (mut term, mut sum, mut odd) = (z, z, 1.0);
        while term > sum * f64::EPSILON {
            odd += 2.0;
            term *= z * z / odd;
            sum += term;
        }
        2.0 * sum * (-0.5 * z * z).exp() / (2.0 * PI).sqrt()
    };
    bisect(0.0, MARGIN_MAX, |z| probability(z) < confidence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_normal_distribution() {
        for (confidence, expected) in
            [(0.0, 0.0), (0.5, 0.674_49), (0.8, 1.281_552), (0.95, 1.959_964), (0.99, 2.575_829)]
        {
            assert!((margin(confidence) - expected).abs() < 1e-5, "{confidence}");
        }
        let estimate = Estimate::new(100.0, 100.0, 110.0);
        let (low, high) = estimate.interval(0.95);
        assert!((low - 80.4).abs() < 0.01 && high == 110.0);
        assert_eq!(Estimate::new(1.0, 100.0, 5.0).interval(0.5).0, 0.0);
        assert_eq!((estimate.relative_error(), estimate.standard_error), (0.1, 10.0));
    }
}
