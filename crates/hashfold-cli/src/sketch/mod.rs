//! `hashfold sketch`: how many distinct keys, and how many in both? Each verb has a file; [`mod@file`] reads and
//! replaces sketches, [`any`] estimates and compares them, [`image`] knows the formats of other programs, [`groups`] has the tables with a sketch for each
//! group, and [`folders`] samples other data sets.

mod add;
mod any;
mod convert;
mod count;
mod file;
mod folders;
mod groups;
mod image;
mod intersect;
mod show;
mod union;
mod words;

use crate::failure::{Exit, Result};
use clap::{Args, Subcommand};

/// Estimate how many distinct keys there are, and how many two sets share, from a few kilobytes
///
/// A sketch (HyperLogLog) is a small file: with --precision 14, 12 KiB for any number of keys, and an
/// estimate whose standard error is 0.8 %. The union of sketches is that of all keys. Keys cannot be
/// listed or removed. A folder has a sketch for each group of rows (`sketch add DIR --by COL --key COL FILE`);
/// DIR:GROUP is the sketch of one group.
#[derive(Args, Debug)]
pub(crate) struct SketchArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    Add(add::AddArgs),
    Count(count::CountArgs),
    Union(union::UnionArgs),
    Intersect(intersect::IntersectArgs),
    Convert(convert::ConvertArgs),
    Show(show::ShowArgs),
}

pub(crate) fn run(args: &SketchArgs) -> Result<Exit> {
    match &args.verb {
        Verb::Add(args) => add::run(args),
        Verb::Count(args) => count::run(args),
        Verb::Union(args) => union::run(args),
        Verb::Intersect(args) => intersect::run(args),
        Verb::Convert(args) => convert::run(args),
        Verb::Show(args) => show::run(args),
    }
}
