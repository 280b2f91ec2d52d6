//! The posts on HyperLogLog: errors of counts and of intersections.
//!
//! ```text
//! intersections ─→ hll-intersections (envelopes: hll-envelopes, hll-ratios), hll-cut-offs, hll-histograms (histograms)
//! sizes (growth) ─→ hll-sizes, hll-bias
//! ```

mod envelopes;
mod growth;
mod histograms;
mod intersections;
mod sizes;

pub use self::{
    envelopes::{draw_envelopes, draw_ratios},
    histograms::draw as draw_histograms,
    intersections::{draw, draw_cut_offs, intersections},
    sizes::{draw as draw_sizes, draw_bias, sizes},
};

/// Default folder for results.
const FOLDER: &str = "results/hll";
