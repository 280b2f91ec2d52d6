//! Summaries of event streams: events from files, standard input and TCP become windows of counts, sums and
//! sketches, each window a table or a version of a store. `hashfold summarize CONFIG` is this crate.
//!
//! ```text
//! file, stdin, TCP ─ framing ─→ frames ─ envelope, CSV or JSON ─→ events ─→ hashfold::pipeline ─→ tables, stores
//! ```
//!
//! Each stream has its own queues and threads, so that events of one format do not wait for those of another. A
//! [`Run`] is all streams of a [`Config`]. Bytes from files and from the network are hostile: no
//! frame, envelope or event causes a panic, recursion or an allocation by a number that it has.

mod beginning;
#[cfg(test)]
mod chain_tests;
mod chains;
mod checkpoint;
pub mod config;
#[cfg(test)]
mod continued_tests;
mod csv;
mod dump;
mod duration;
mod error;
pub mod framing;
mod json;
mod lane;
mod metrics;
mod output;
mod own_files;
mod parse;
mod pipe;
mod places;
mod publisher;
mod range;
mod rejected;
mod report;
mod rows;
mod rule;
mod run;
mod scalar;
pub mod scrape;
mod sinks;
mod source;
pub mod syslog;
mod tcp;
#[cfg(test)]
mod tests;
mod versions;

pub use self::{
    config::Config, csv::CsvParser, error::SummarizeError, json::JsonParser, lane::StreamStats,
    parse::FrameParser, report::Report, run::Run,
};
