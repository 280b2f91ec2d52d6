//! The generalized HyperLogLog sketch (GHLL), for intersections: registers of 7 to 16 bits whose values have several steps
//! from one number of zeros to the next.
//!
//! What two sketches say about a small intersection is in the registers that are equal. In [`Hll`](super::Hll), many are
//! equal by chance, because values are numbers of zeros; with 2^t steps between them, few are. Ertl, "SetSketch: Filling
//! the gap between MinHash and HyperLogLog" (2021), has such registers with the base b = 2^(2^−t); here, the steps
//! between two powers of two have one probability, as in Ertl, "ExaLogLog" (2024), so that all numbers are exact.

mod estimate;
mod format;
mod joint;
mod levels;
mod sketch;
#[cfg(test)]
mod tests;

pub(super) use self::format::MAGIC;
pub use self::{
    joint::joint,
    sketch::{Ghll, REGISTER_BITS},
};
