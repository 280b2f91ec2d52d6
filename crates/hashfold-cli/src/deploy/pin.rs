//! `hashfold deploy pin`: protects versions in a remote from `hashfold deploy gc`.

use super::{
    ChangeArgs, GroupArgs, VersionArg, open, parse_name, parse_version, pointer_json, store_of,
};
use crate::{
    failure::{Exit, Result},
    output::write_line,
};
use clap::Args;

/// Protect a version in a remote from `hashfold deploy gc`, or stop protecting it
///
/// Servers keep a pinned version no longer than others, and fetch it again if it is published.
#[derive(Args, Debug)]
pub(crate) struct PinArgs {
    /// Remote with the version
    #[arg(value_name = "URL")]
    url: String,
    /// Version to protect: a number, or STORE=N
    #[arg(value_name = "N|STORE=N", value_parser = parse_version)]
    version: VersionArg,
    /// Name of the store [default: the only store of the remote]
    #[arg(long, value_name = "STORE", value_parser = parse_name)]
    store: Option<String>,
    /// Stop protecting the version
    #[arg(long)]
    release: bool,
    #[command(flatten)]
    group: GroupArgs,
    #[command(flatten)]
    change: ChangeArgs,
}

pub(crate) fn run(args: &PinArgs) -> Result<Exit> {
    let remote = open(&args.url)?;
    let store = store_of(&remote, args.version.store.as_ref().or(args.store.as_ref()))?;
    let number = args.version.number;
    let controller = args.group.controller(&remote)?;
    let (event, state, pointer) = match args.release {
        false => {
            let pinned = controller.pin(&store, number, &args.change.reason)?;
            ("pinned", "`hashfold deploy gc` keeps it", pinned)
        }
        true => {
            let released = controller.release(&store, number, &args.change.reason)?;
            ("released", "`hashfold deploy gc` may remove it", released)
        }
    };
    let group = &args.group.group;
    if args.change.json {
        write_line(pointer_json(event, group, &pointer))?;
    } else {
        write_line(format_args!(
            "{event} in {remote}, group {group}: {store} {number}: {state} (change {})",
            pointer.seq
        ))?;
    }
    Ok(Exit::Done)
}
