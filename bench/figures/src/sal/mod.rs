//! Jin et al., *SAL-Hashing: A Self-Adaptive Linear Hashing Index for SSDs* (2020): the paper's layout and
//! its rivals, simulated by counts of I/O.
//!
//! ```text
//! theory ── groups ──┐
//! dice ── buffer ────┤→ engine, rivals, bw (each an `Index`) → traces → experiments → figures
//! device (costs) ────┘
//! splits (memory of virtual splits) ─────────────────────────────┘
//! requests of an engine → copies (on an array of devices) → replication
//! ```
//!
//! A bucket is its number of records. So a trace of millions of operations takes seconds, and counts
//! follow from the seed. What is not simulated: CPU time, and, but for replication, several requests in flight.

mod array;
mod buffer;
mod bw;
mod copies;
mod device;
mod engine;
mod experiments;
mod figures;
mod groups;
mod index;
mod replication;
mod rivals;
mod splits;
#[cfg(test)]
mod tests;
mod theory;
mod traces;
mod zipf;

pub use self::{
    figures::{all, draw},
    replication::{draw as draw_replication, replication},
};
