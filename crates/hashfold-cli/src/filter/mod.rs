//! `hashfold filter`: was this key inserted? Each verb has a file.
//!
//! ```text
//!  lines or rows ─ input ─→ queue ─ keys ─→ batch ─→ queried ─→ new ones printed ─→ inserted ─→ durable
//! ```
//!
//! [`crate::keys`] makes large batches while keys arrive fast, and small batches when they arrive slowly;
//! [`open`] divides the memory budget between keys and filter.

mod add;
mod adder;
mod advance;
mod checkpoint;
mod contains;
mod create;
mod fill;
mod merge;
mod open;
mod remove;
mod stat;
mod verify;
mod words;

use crate::failure::{Exit, Result};
use clap::{Args, Subcommand};

/// Test whether keys were inserted before: filters for billions of keys, on flash
///
/// A filter stores a fingerprint of each key, not the key: keys can be inserted, queried, counted and
/// removed, but not listed. A key that was inserted is always found. A key that was not is found with
/// a small probability, the false-positive rate: --fp-rate when the filter holds --capacity keys
/// (about 2 bytes per key), or practically zero with --exact (4 to 8 bytes per key).
#[derive(Args, Debug)]
pub(crate) struct FilterArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    Create(create::CreateArgs),
    Add(add::AddArgs),
    Contains(contains::ContainsArgs),
    Remove(remove::RemoveArgs),
    Merge(merge::MergeArgs),
    Advance(advance::AdvanceArgs),
    Stat(stat::StatArgs),
    Verify(verify::VerifyArgs),
}

pub(crate) fn run(args: &FilterArgs) -> Result<Exit> {
    match &args.verb {
        Verb::Create(args) => create::run(args),
        Verb::Add(args) => add::run(args),
        Verb::Contains(args) => contains::run(args),
        Verb::Remove(args) => remove::run(args),
        Verb::Merge(args) => merge::run(args),
        Verb::Advance(args) => advance::run(args),
        Verb::Stat(args) => stat::run(args),
        Verb::Verify(args) => verify::run(args),
    }
}
