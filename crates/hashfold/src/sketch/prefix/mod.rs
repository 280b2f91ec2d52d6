//! Prefix samples: the size of a boolean expression over sets, from the first hashes of each.
//!
//! ```text
//! run of A  ─ 1 4 7 9 12 ┆ 15 …
//! run of B  ─ 2 4 5 9 11 ┆ 13 …      the first hashes of both, read side by side up to theta
//!                        θ
//! A & B: 2 hashes (4 and 9) below θ, so about 2/θ keys
//! ```
//!
//! Hashes are uniform, so the keys whose hashes are below a bound θ are a uniform sample of all keys, and
//! a data set in hash order has them in front. [`PrefixSample::read`] reads the fronts of any number of
//! sets side by side, notes for each hash which sets have it, and stops when the requested [`Precision`]
//! is reached. At the end of the sets, the answer is exact.
//!
//! # When to stop
//!
//! The rule is a number k of keys that match the expression, which follows from the requested error
//! alone and not from what was read. So θ is the k-th smallest of n uniform hashes, where n is the number
//! that is looked for: (k − 1)/θ has no bias (Bar-Yossef et al., "Counting distinct elements in a data
//! stream", 2002, and Beyer et al., "On synopses for distinct-value estimation", 2007), its relative
//! standard error is 1/√(k − 2) or less, and P(hash k ≤ θ) = P(Binomial(n, θ) ≥ k) gives an exact
//! interval. Other expressions are estimated from the keys below θ (Dasgupta et al., "A framework for
//! estimating stream expression cardinalities", 2016), with the interval of Clopper and Pearson.
//!
//! # What a hash is
//!
//! Runs of tables, stores and maps have hashes of 128 bits, exact filters the first 64 of them, and
//! [`BottomK`](super::BottomK) sketches the first 40. Sets are compared in the bits that all of them
//! have. Two keys that share those bits count as one: among n keys, n²/2^65 pairs are expected to share
//! 64 bits. A filter with a false-positive rate has fewer bits, so that many keys match by chance:
//! [`PrefixSet::of_fingerprints`] refuses it.

mod expression;
mod precision;
mod sample;
mod set;
#[cfg(test)]
mod tests;

pub use self::{
    expression::Expression,
    precision::Precision,
    sample::{PrefixEstimate, PrefixSample},
    set::PrefixSet,
};

/// Maximum number of sets in an expression.
pub const SETS_MAX: usize = 64;
