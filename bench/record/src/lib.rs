//! Results of measurements, in one form for all benchmarks: the circumstances, rows as JSON Lines, bar
//! charts, charts of curves and of intervals, numbers as people write them, and conditions that a comparison needs.
//!
//! ```text
//! a line of a file of results: {"data": …, "peer": …, "figure": {"median": …, "min": …, "max": …},
//!                               "note": …, "run": {"commit": …, "machine": …, "load": …, "rounds": …}}
//! ```

mod chart;
mod conditions;
pub mod curves;
mod intervals;
mod number;
mod run;
mod samples;

pub use self::{
    chart::{Bar, Limit, Panel, draw},
    conditions::{check_alike, with_huge_pages},
    intervals::{Cell, Interval, Intervals, Row},
    number::{count, exact, short},
    run::{ROUNDS_MIN, Run},
    samples::Samples,
};

/// The result type: any error ends the program.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
