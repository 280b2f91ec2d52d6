//! Jin et al., *SAL-Hashing: A Self-Adaptive Linear Hashing Index for SSDs* (2020): the paper's layout and
//! its rivals, simulated by counts of I/O.
//!
//! ```text
//! theory ── groups ──┐
//! dice ── buffer ────┤→ engine, rivals, bw (each an `Index`) → traces → experiments → figures
//! device (costs) ────┘
//! splits (memory of virtual splits) ─────────────────────────────┘
//! ```
//!
//! A bucket is its number of records. So a trace of millions of operations takes seconds, and counts
//! follow from the seed. What is not simulated: CPU time, and several requests in flight.

mod buffer;
mod bw;
mod device;
mod engine;
mod experiments;
mod figures;
mod groups;
mod index;
mod rivals;
mod splits;
#[cfg(test)]
mod tests;
mod theory;
mod traces;

pub use self::figures::{all, draw};
