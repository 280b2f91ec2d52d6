//! `hashfold deploy mark-bad`: keeps a version from being published.

use super::{
    ChangeArgs, GroupArgs, VersionArg, open, parse_name, parse_version, pointer_json, store_of,
};
use crate::{
    failure::{Exit, Result},
    output::write_line,
};
use clap::Args;

/// Mark a version as bad, so that it is not published
///
/// Equal content under another number is refused as well. A version that servers are fetching is
/// withdrawn. Roll a current version back instead.
#[derive(Args, Debug)]
pub(crate) struct MarkBadArgs {
    /// Remote with the version
    #[arg(value_name = "URL")]
    url: String,
    /// Version to mark: a number, or STORE=N
    #[arg(value_name = "N|STORE=N", value_parser = parse_version)]
    version: VersionArg,
    /// Name of the store [default: the only store of the remote]
    #[arg(long, value_name = "STORE", value_parser = parse_name)]
    store: Option<String>,
    #[command(flatten)]
    group: GroupArgs,
    #[command(flatten)]
    change: ChangeArgs,
}

pub(crate) fn run(args: &MarkBadArgs) -> Result<Exit> {
    let remote = open(&args.url)?;
    let store = store_of(&remote, args.version.store.as_ref().or(args.store.as_ref()))?;
    let number = args.version.number;
    let controller = args.group.controller(&remote)?;
    let pointer = controller.mark_bad(&store, number, &args.change.reason)?;
    let group = &args.group.group;
    if args.change.json {
        write_line(pointer_json("marked bad", group, &pointer))?;
    } else {
        write_line(format_args!(
            "marked bad in {remote}, group {group}: {store} {number} (change {})",
            pointer.seq
        ))?;
    }
    Ok(Exit::Done)
}
