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
        joint::Joint,
        likelihood::{Kind, Likelihood},
    },
    sketch::Ghll,
};
use crate::error::Result;

/// Estimates how many keys are in both of two sets, and in one of them, by maximum likelihood. Standard errors follow from
/// the observed Fisher information.
///
/// # Errors
/// Those of [`Ghll::union`].
pub fn joint(a: &Ghll, b: &Ghll) -> Result<Joint> {
    let mut both = a.clone();
    both.union(b)?;
    let estimates = [a, b, &both].map(Ghll::estimate);
    if estimates[0].min(estimates[1]) <= 0.0 {
        let [a_alone, b_alone] = [a, b].map(Ghll::estimate_with_error);
        return Ok(Joint::disjoint(a_alone, b_alone, a.precision()));
    }
    Ok(Joint::likeliest(&likelihood(a, b), estimates, a.precision()))
}

/// Returns what the registers of two sketches of one kind say of the sizes.
fn likelihood(a: &Ghll, b: &Ghll) -> Likelihood {
    let (levels, m) = (a.levels, a.register_count() as f64);
    let pairs = a.registers.iter().zip(&b.registers);
    let kind = Kind {
        value_max: usize::from(levels.value_max()),
        rate: |value: usize| levels.probability(value as u16) / m,
        above: |value: usize| levels.above(value as u16) / m,
    };
    Likelihood::of(pairs.map(|(k, l)| (usize::from(*k), usize::from(*l), 1)), &kind)
}
