//! Approximate membership of keys: a quotient filter in RAM and a cascade filter on flash.
//!
//! A filter stores *fingerprints* of keys instead of keys, in the order of their hashes. A key that
//! was inserted is always found. A key that was not inserted is found if it has the same
//! fingerprint as an inserted key: a false positive, at a rate that the user chooses.
//!
//! - [`Filter`]: keys on flash, for more keys than fit in RAM; survives crashes.
//! - [`quotient`]: a [`quotient::QuotientFilter`] fits in RAM, or in a mapped file.
//! - [`cascade`]: a [`cascade::CascadeFilter`] is a [`Filter`] with hashes in place of keys.
//! - [`PackedRun`] and [`FingerprintMerge`]: the parts of a cascade.
//!
//! [`fingerprints`](crate::fingerprints) shows how tables and stores are converted to filters, and
//! filters to other filters. After Bender et al., [*Don't Thrash: How to Cache Your Hash on
//! Flash*](https://arxiv.org/abs/1208.0290) (2012): see `docs/papers/cascade.md`.

mod block;
pub mod cascade;
mod index;
mod keyed;
mod machine;
mod merge;
mod mode;
mod options;
mod pack;
mod packed;
pub mod quotient;

pub use self::{
    keyed::{Filter, FilterReader},
    merge::FingerprintMerge,
    mode::Mode,
    options::FilterOptions,
    packed::PackedRun,
};
