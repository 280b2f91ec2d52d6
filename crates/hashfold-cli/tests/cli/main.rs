//! Tests of the command as a process: every format, every exit code, every output.

#![expect(clippy::disallowed_methods, reason = "the command runs by the clock of the machine")]

mod bad_rows;
mod bench;
mod busy;
mod copy;
mod cut_files;
mod deploy;
mod differences;
mod filter;
mod filter_checkpoints;
mod filter_fill;
mod filter_memory;
mod filter_window;
mod formats;
mod gates;
mod guide;
mod keys;
mod limits;
mod lost_files;
mod map;
mod memory;
mod misuse;
mod output;
mod round_trips;
mod schema;
mod serve;
mod signals;
mod sketch;
mod sketch_keys;
mod sketch_kinds;
mod stores;
mod summarize;
mod support;
mod update;
mod wordings;
