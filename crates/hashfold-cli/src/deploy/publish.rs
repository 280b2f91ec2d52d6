//! `hashfold deploy publish`: makes a pushed version current for all servers of a group.

use super::{
    ChangeArgs, GroupArgs, TrustArgs, VersionArg, describe, duration, open, parse_name,
    parse_version, pointer_json, store_of,
};
use crate::{
    failure::{Exit, Failure, Result},
    output::{write_line, write_note},
    stop::Stop,
    units,
};
use clap::Args;
use hashfold::{ErrorKind, work::Watch};
use hashfold_deploy::{Bake, Error, PublishOptions};
use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Make pushed versions current for all servers of a group, at one moment
///
/// If servers follow the group, they are told to fetch the versions, and the command waits until
/// --min-ready of them can answer from the versions. Then one small object is replaced, if nobody else
/// has replaced it meanwhile; the exit code is 1 if somebody has, if too few servers are ready in time,
/// if a version is marked bad, or if it lacks more than half of the entries of the current one (--max-loss).
/// All stores that are named change together.
///
/// With --zone, the servers of one zone get the versions first. If one of them falls silent, fails, or cannot
/// answer a lookup within the time --bake, they go back to the versions before, and the exit code is 1.
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
    /// Servers that must be ready in each range of slots; 0 waits for none [default: all that reported
    /// within a minute, at least one for each slot]
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
    /// Maximum fraction of the current version's entries that a new version may lack: 0.1 or 10%. Servers
    /// look up 1000 keys of the current version in the new one; of these, too, no more may be missing
    #[arg(long, value_name = "FRACTION", default_value = "50%", value_parser = units::parse_fraction)]
    max_loss: f64,
    /// Maximum fraction of these 1000 keys that are missing or have another value. Refuses versions that no
    /// server has compared [default: no limit]
    #[arg(long, value_name = "FRACTION", value_parser = units::parse_fraction)]
    max_change: Option<f64>,
    /// Zone whose servers get the versions first; all of its live servers must be ready
    #[arg(long, value_name = "ZONE", value_parser = parse_name)]
    zone: Option<String>,
    /// Time for which all servers of the zone must use the versions without a failure before the others get
    /// them: 10m, 1h
    #[arg(
        long, value_name = "TIME", requires = "zone", default_value = "10m",
        value_parser = units::parse_duration
    )]
    bake: Duration,
    #[command(flatten)]
    trust: TrustArgs,
    /// Publish a version even if it is marked bad, or does not pass the gates
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

/// Returns a watch that ends the call when the user asks to stop. If servers are not ready at the first look,
/// it says once that the command waits, which may take an hour.
fn waiting(stop: Stop, url: String) -> Watch {
    let looks = AtomicU64::new(0);
    Watch::new(move |_| {
        if stop.is_asked() {
            return Err(ErrorKind::Stopped.into());
        }
        if looks.fetch_add(1, Relaxed) == 1 {
            write_note(format_args!(
                "hashfold: waiting for servers; `hashfold deploy status {url}` shows what each has"
            ));
        }
        Ok(())
    })
}

/// Turns the error of a publication into a failure. The command stops only while it waits for servers, which
/// then know the versions.
fn about_publication(error: Error) -> Failure {
    match error.is_stop() {
        true => Failure {
            exit: Exit::Stopped,
            message: "stopped; no server has switched: run it again to go on, or withdraw the versions with \
                      `hashfold deploy cancel`"
                .into(),
        },
        false => error.into(),
    }
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
        trusted_keys: args.trust.read()?,
        change_max: args.max_change.filter(|_| !args.force),
        bake: args.zone.clone().map(|zone| Bake { zone, time: args.bake }),
        reason: args.change.reason.clone(),
    };
    let watch = waiting(stop, args.url.clone());
    let controller = args.group.controller(&remote)?;
    let before = controller.pointer()?.seq;
    let published = controller.publish(&versions, &options, &watch);
    let pointer = published.map_err(about_publication)?;
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
