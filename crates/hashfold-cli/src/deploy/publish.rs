//! `hashfold deploy publish`: makes a pushed version current for all servers of a group.

use super::{
    ChangeArgs, GroupArgs, VersionArg, describe, duration, open, parse_name, parse_version,
    pointer_json, store_of,
};
use crate::{
    failure::{Exit, Result},
    output::write_line,
    progress::{Progress, Show, Unit},
    stop::Stop,
    units,
};
use clap::Args;
use hashfold_deploy::PublishOptions;
use std::time::Duration;

/// Make pushed versions current for all servers of a group, at one moment
///
/// If servers follow the group, they are told to fetch the versions, and the command waits until
/// --min-ready of them can answer from the versions. Then one small object is replaced, if nobody else
/// has replaced it meanwhile; the exit code is 1 if somebody has, if too few servers are ready in time,
/// if a version is marked bad, or if it has less than half of the entries of the current one (--max-loss).
/// All stores that are named change together.
#[derive(Args, Debug)]
pub(crate) struct PublishArgs {
    /// Remote with the versions
    #[arg(value_name = "URL")]
    url: String,
    /// Versions to publish: a number, or STORE=N for each of several stores
    #[arg(value_name = "N|STORE=N", required = true, value_parser = parse_version)]
    versions: Vec<VersionArg>,
    /// Name of the store of versions without one [default: the only store of the remote]
    #[arg(long, value_name = "STORE", value_parser = parse_name)]
    store: Option<String>,
    #[command(flatten)]
    group: GroupArgs,
    /// Servers that must be ready; 0 waits for none [default: all that reported within a minute]
    #[arg(long, value_name = "N", value_parser = units::parse_number::<usize>)]
    min_ready: Option<usize>,
    /// Time to wait for the servers: 30, 90s, 15m
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = units::parse_wait)]
    wait: u64,
    /// Time from the change to the moment at which all servers use it: 2s, 500ms; servers look every
    /// half second
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = units::parse_duration)]
    lead: Duration,
    /// Minimum number of entries of each version
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = units::parse_number::<u64>)]
    min_entries: u64,
    /// Maximum fraction of the current version's entries that a new version may lack: 0.1 or 10%
    #[arg(long, value_name = "FRACTION", default_value = "50%", value_parser = units::parse_fraction)]
    max_loss: f64,
    /// Publish a version even if it is marked bad, or has too few entries
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

pub(crate) fn run(args: &PublishArgs) -> Result<Exit> {
    let stop = Stop::on_signals()?;
    let remote = open(&args.url)?;
    let mut versions = Vec::new();
    for VersionArg { store, number } in &args.versions {
        let store = store_of(&remote, store.as_ref().or(args.store.as_ref()))?;
        versions.push((store, *number));
    }
    let options = PublishOptions {
        min_ready: args.min_ready,
        wait: Duration::from_secs(args.wait),
        lead: args.lead,
        allow_bad: args.force,
        entries_min: if args.force { 0 } else { args.min_entries },
        loss_max: if args.force { 1.0 } else { args.max_loss },
        reason: args.change.reason.clone(),
    };
    let watch = stop.watch(Progress::start(Show::Nothing, "waiting", Unit::Entries, None));
    let controller = args.group.controller(&remote)?;
    let before = controller.pointer()?.seq;
    let pointer = controller.publish(&versions, &options, &watch)?;
    let group = &args.group.group;
    let effect = match pointer.seq == before {
        true => "nothing to change".to_owned(),
        false => format!("servers switch after {}", duration(args.lead)),
    };
    if args.change.json {
        write_line(pointer_json("published", group, &pointer))?;
    } else {
        write_line(format_args!(
            "published in {remote}, group {group}: {} (change {}); {effect}",
            describe(&pointer.stores),
            pointer.seq,
        ))?;
    }
    Ok(Exit::Done)
}
