//! Estimates in words.

use crate::units;
use hashfold::sketch::{Estimate, PrefixEstimate};
use serde_json::{Value, json};

/// The probability that intervals have the true value, unless the user asks for another one.
pub(super) const CONFIDENCE: f64 = 0.95;

/// An estimate from registers, for an interval at a confidence, or from hashes.
pub(super) enum Found {
    Computed(Estimate, f64),
    Sampled(PrefixEstimate),
}

impl Found {
    /// `about 48,731 (95 %: 47,967 to 49,495)` or `48,731 (exact)`.
    pub(super) fn words(&self) -> String {
        match self {
            Found::Computed(estimate, confidence) => estimate_at(estimate, *confidence),
            Found::Sampled(estimate) => sampled(estimate),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        match self {
            Found::Computed(estimate, confidence) => to_json_at(estimate, *confidence),
            Found::Sampled(estimate) => sampled_to_json(estimate),
        }
    }
}

/// Formats an estimate with its interval at `confidence`.
pub(super) fn estimate_at(estimate: &Estimate, confidence: f64) -> String {
    about(estimate.value, estimate.interval(confidence), confidence)
}

/// `about 48,731 (95 %: 47,967 to 49,495)` or `48,731 (exact)`.
pub(super) fn sampled(estimate: &PrefixEstimate) -> String {
    match estimate.is_exact {
        true => format!("{} (exact)", count(estimate.value)),
        false => about(estimate.value, (estimate.low, estimate.high), estimate.confidence),
    }
}

/// `9.79 % (95 %: 9.12 % to 10.3 %)` or `9.79 % (exact)`.
pub(super) fn sampled_part(estimate: &PrefixEstimate) -> String {
    match estimate.is_exact {
        true => format!("{} (exact)", units::percent(estimate.value)),
        false => part(estimate.value, (estimate.low, estimate.high), estimate.confidence),
    }
}

/// Formats a part with its interval at `confidence`: `9.79 % (95 %: 9.12 % to 10.3 %)`.
pub(super) fn part_at(estimate: &Estimate, confidence: f64) -> String {
    part(estimate.value, estimate.interval(confidence), confidence)
}

fn part(value: f64, (low, high): (f64, f64), confidence: f64) -> String {
    let [value, confidence, low, high] = [value, confidence, low, high].map(units::percent);
    format!("{value} ({confidence}: {low} to {high})")
}

fn about(value: f64, (low, high): (f64, f64), confidence: f64) -> String {
    let confidence = units::percent(confidence);
    format!("about {} ({confidence}: {} to {})", count(value), count(low), count(high))
}

fn count(number: f64) -> impl std::fmt::Display {
    units::count(number.round() as u64)
}

pub(super) fn to_json_at(estimate: &Estimate, confidence: f64) -> Value {
    let (low, high) = estimate.interval(confidence);
    json!({
        "count": estimate.value, "low": low, "high": high, "confidence": confidence,
        "standard_error": estimate.standard_error,
    })
}

pub(super) fn sampled_to_json(estimate: &PrefixEstimate) -> Value {
    json!({
        "count": estimate.value, "low": estimate.low, "high": estimate.high,
        "confidence": estimate.confidence, "exact": estimate.is_exact, "matches": estimate.matches,
    })
}
