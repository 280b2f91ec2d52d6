//! `hashfold deploy cancel`: withdraws versions that are not current yet.

use super::{ChangeArgs, GroupArgs, describe, open, pointer_json};
use crate::{
    failure::{Exit, Result},
    output::write_line,
};
use clap::Args;

/// Withdraw the versions that servers fetch before `deploy publish` makes them current
///
/// Servers stop fetching them, those of a zone that uses them already go back to the versions before, and the
/// `deploy publish` that waits ends with exit code 1. Versions that are current stay so: roll them back. If
/// there is nothing to withdraw, nothing is changed.
#[derive(Args, Debug)]
pub(crate) struct CancelArgs {
    /// Remote with the versions
    #[arg(value_name = "URL")]
    url: String,
    #[command(flatten)]
    group: GroupArgs,
    #[command(flatten)]
    change: ChangeArgs,
}

pub(crate) fn run(args: &CancelArgs) -> Result<Exit> {
    let remote = open(&args.url)?;
    let controller = args.group.controller(&remote)?;
    let before = controller.pointer()?;
    let pointer = controller.cancel(&args.change.reason)?;
    let group = &args.group.group;
    if args.change.json {
        return write_line(pointer_json("cancelled", group, &pointer)).map(|()| Exit::Done);
    }
    if before.next.is_empty() {
        write_line(format_args!("nothing to cancel in {remote}, group {group}"))?;
    } else {
        let back = match &before.trial {
            None => String::new(),
            Some(trial) => format!("; zone {} goes back to the versions before", trial.zone),
        };
        write_line(format_args!(
            "cancelled in {remote}, group {group}: {} (change {}){back}",
            describe(&before.next),
            pointer.seq,
        ))?;
    }
    Ok(Exit::Done)
}
