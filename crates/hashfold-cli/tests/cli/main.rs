//! The command from outside: every format, every exit code, every output.

mod bad_rows;
mod bench;
mod filter;
mod formats;
#[cfg(target_os = "linux")]
mod memory;
mod misuse;
mod output;
mod signals;
mod stores;
mod support;
mod update;
