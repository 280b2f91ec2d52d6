//! `hashfold filter`: has this key been seen? One file a verb.
//!
//! ```text
//!  lines or rows ─ input ─→ queue ─ keys ─→ batch ─→ asked ─→ new ones written ─→ put in ─→ durable
//! ```
//!
//! [`keys`] makes large batches while keys come fast, and small ones when they come slowly;
//! [`open`] shares the memory out between them and the filter.

mod add;
mod advance;
mod contains;
mod create;
mod keys;
mod merge;
mod open;
mod remove;
mod stat;
mod verify;

use crate::failure::{Exit, Result};
use clap::{Args, Subcommand};

/// Has this key been seen? Filters of billions of keys, on flash
///
/// A filter keeps a few bits of each key's hash and not the key: keys can be put in, asked for,
/// taken out and counted, and not listed. An exact filter (--exact) takes 4 to 7 bytes a key and
/// is a set of keys for all practical purposes. Others (--capacity) take about two bytes, and say of
/// a few keys that they are in when they are not: as many as --error allows once they are full. A
/// key that is in is always found.
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
