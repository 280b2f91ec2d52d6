//! `hashfold deploy rollback`: makes the versions before current again.

use super::{ChangeArgs, GroupArgs, describe, describe_bad, duration, open, pointer_json};
use crate::{
    failure::{Exit, Result},
    output::write_line,
    units,
};
use clap::Args;
use std::time::Duration;

/// Make the versions before current again for all servers of a group, and mark the current ones bad
///
/// The versions before are the latest that were current, of which none is marked bad and all are still in the
/// remote. Servers keep them open, as long as no other version needs their memory: nothing is fetched, whatever
/// the size of the data. The exit code is 1 if there are none, or if another controller changed the group
/// meanwhile. While one zone has new versions (`deploy publish --zone`), these are taken back and marked bad, and
/// all others stay.
#[derive(Args, Debug)]
pub(crate) struct RollbackArgs {
    /// Remote with the versions
    #[arg(value_name = "URL")]
    url: String,
    #[command(flatten)]
    group: GroupArgs,
    /// Time from the change to the moment at which all servers use it: 2s, 500ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::parse_duration)]
    lead: Duration,
    #[command(flatten)]
    change: ChangeArgs,
}

pub(crate) fn run(args: &RollbackArgs) -> Result<Exit> {
    let remote = open(&args.url)?;
    let controller = args.group.controller(&remote)?;
    let before = controller.pointer()?.bad.len();
    let pointer = controller.roll_back(&args.change.reason, args.lead)?;
    let group = &args.group.group;
    if args.change.json {
        write_line(pointer_json("rolled back", group, &pointer))?;
    } else {
        write_line(format_args!(
            "rolled back in {remote}, group {group}: {} (change {}), marked bad: {}; servers switch \
             after {}",
            describe(&pointer.stores),
            pointer.seq,
            describe_bad(&pointer, before),
            duration(args.lead),
        ))?;
    }
    Ok(Exit::Done)
}
