//! Sketches: the number of distinct keys of a set, and of two sets together, from a few kilobytes.
//!
//! ```text
//! keys, hashes, a run ─→ Hll ─estimate→ how many distinct keys
//!                         ├─ union ──→ the sketch of all keys of both, without loss
//!                         ├─ joint ──→ how many keys are in both, with an interval
//!                         ├─ to_bytes → packed, with a checksum (docs/formats/sketch.md)
//!                         ├─ RedisHll → the string of PFADD and PFCOUNT
//!                         ├─ PostgresHll → a value of the type hll of postgresql-hll
//!                         └─ DataSketchesHll → an image of an HLL sketch of Apache DataSketches
//!               Ghll: the same with larger registers, for better intersections
//! (group, key) rows ─→ GroupBuilder ─→ a run of groups and their sketches: a table
//! ```
//!
//! ```
//! use hashfold::sketch::{self, Hll};
//! let [mut monday, mut tuesday] = [Hll::new(14)?, Hll::new(14)?];
//! for visitor in 0..50_000_u32 {
//!     monday.insert(&visitor.to_le_bytes());
//!     tuesday.insert(&(visitor + 30_000).to_le_bytes());
//! }
//! let (low, high) = sketch::joint(&monday, &tuesday)?.intersection.interval(0.99);
//! assert!(low < 20_000.0 && high > 20_000.0);
//! # Ok::<(), hashfold::Error>(())
//! ```
//!
//! A sketch does not know its keys. The relative standard error of an estimate of 2^precision registers is
//! 1.04 / √(2^precision): 0.8 % with precision 14, in 16 KiB. The error of an intersection depends on how
//! large it is beside the sets, and each estimate says its own; [`Joint::usable`] says whether larger
//! sketches would help.
//!
//! Only sketches of one [`Family`] can be united: hash functions differ.

mod any;
mod binomial;
mod bottom_k;
mod covariance;
#[cfg(test)]
mod coverage;
pub mod datasketches;
mod entries;
mod estimate;
mod family;
mod format;
pub mod ghll;
pub mod groups;
mod hll;
#[cfg(test)]
mod images;
mod interval;
mod joint;
mod kernel;
mod likelihood;
mod matrix;
mod murmur;
mod newton;
mod packed;
mod pairs;
pub mod postgres;
mod prefix;
pub mod redis;
#[cfg(test)]
mod tests;

pub use self::{
    any::AnySketch,
    bottom_k::{BottomK, CAPACITY_MAX, CAPACITY_MIN},
    datasketches::DataSketchesHll,
    family::Family,
    ghll::Ghll,
    groups::{GroupBuilder, GroupOptions, GroupRun, GroupStats, GroupUnion},
    hll::{Hll, PRECISION_MAX, PRECISION_MIN},
    interval::Estimate,
    joint::{Joint, Usable, inclusion_exclusion, joint},
    postgres::PostgresHll,
    prefix::{Expression, Precision, PrefixEstimate, PrefixSample, PrefixSet, SETS_MAX},
    redis::RedisHll,
};
