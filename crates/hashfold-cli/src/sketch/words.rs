//! Estimates in words.

use crate::units;
use hashfold::sketch::Estimate;
use serde_json::{Value, json};

/// The probability that intervals have the true value.
pub(super) const CONFIDENCE: f64 = 0.95;

/// `about 48,731 (95 %: 47,967 to 49,495)`.
pub(super) fn estimate(estimate: &Estimate) -> String {
    let (low, high) = estimate.interval(CONFIDENCE);
    let count = |number: f64| units::count(number.round() as u64);
    format!("about {} (95 %: {} to {})", count(estimate.value), count(low), count(high))
}

pub(super) fn to_json(estimate: &Estimate) -> Value {
    let (low, high) = estimate.interval(CONFIDENCE);
    json!({
        "count": estimate.value, "low": low, "high": high, "confidence": CONFIDENCE,
        "standard_error": estimate.standard_error,
    })
}
