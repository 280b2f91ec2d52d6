//! `hashfold deploy fetch`: downloads a version of a store.

use super::{GroupArgs, TrustArgs, about_transfer, open, parse_name, store_of};
use crate::{
    device,
    failure::{Exit, Failure, Result},
    output::write_line,
    progress::{Progress, Show, Unit},
    stop::Stop,
    units,
};
use clap::Args;
use hashfold::{Env, store::Pointer};
use hashfold_deploy::{FetchOptions, RateLimit, Remote, Repaired, fetch, repair};
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    time::Instant,
};

/// Download what a store lacks of one version in a remote
///
/// The folder is a store of its own, which is made if there is none; it can be read meanwhile. Tables
/// that it has are not downloaded. Every byte is compared with its hash before it counts, and the
/// version appears when all of it is there; it is not current before `hashfold publish DIR N`. After an
/// interruption of any kind, run it again: it goes on where it was.
#[derive(Args, Debug)]
pub(crate) struct FetchArgs {
    /// Remote to fetch from
    #[arg(value_name = "URL")]
    url: String,
    /// Folder of the store
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Version to fetch: a number, or the current one of the group
    #[arg(long, value_name = "N|current", default_value = "current", value_parser = parse_which)]
    version: Which,
    /// Name of the store in the remote [default: its only one]
    #[arg(long, value_name = "STORE", value_parser = parse_name)]
    store: Option<String>,
    #[command(flatten)]
    group: GroupArgs,
    #[command(flatten)]
    trust: TrustArgs,
    /// Bytes per second, at most, such as 50MiB [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
    rate: Option<usize>,
    /// Requests in flight at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = units::parse_threads)]
    requests: usize,
    /// If the store has the version: compare all of its bytes with their hashes, and download again what
    /// is damaged or missing
    #[arg(long)]
    repair: bool,
    /// Largest version to accept [default: as large as the device has space]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
    max_size: Option<usize>,
    /// Print progress and summary as JSON objects on standard output
    #[arg(long)]
    json: bool,
}

/// The version to fetch.
#[derive(Clone, Copy, Debug)]
enum Which {
    Number(u64),
    Current,
}

fn parse_which(text: &str) -> Result<Which, String> {
    match (text, text.parse()) {
        ("current", _) => Ok(Which::Current),
        (_, Ok(number @ 1..)) => Ok(Which::Number(number)),
        _ => Err("expected the number of a version, or `current`".into()),
    }
}

pub(crate) fn run(args: &FetchArgs) -> Result<Exit> {
    let start = Instant::now();
    let stop = Stop::on_signals()?;
    let trusted_keys = args.trust.read()?;
    let remote = open(&args.url)?;
    let (store, number) = args.which(&remote)?;
    let total = remote.version(&store, number)?.bytes();
    let options = FetchOptions {
        lanes: args.requests,
        rate: RateLimit::new(args.rate.map_or(0, |rate| rate as u64)),
        size_max: args.max_size.map_or(u64::MAX, |size| size as u64),
        trusted_keys,
        ..FetchOptions::default()
    };
    let env = Env { executor: device::executor(None), ..Env::system() };
    let show = if args.json { Show::Json } else { Show::Text };
    if args.repair && has_version(&env, &args.folder, number)? {
        let watch = stop.watch(Progress::start(show, "comparing", Unit::Bytes, Some(total)));
        let repaired = repair(&env, &remote, &store, number, &args.folder, &options, &watch);
        let repaired = repaired.map_err(about_transfer)?;
        drop(watch);
        return args.say_repaired(&remote, &store, number, repaired);
    }
    let watch = stop.watch(Progress::start(show, "fetching", Unit::Bytes, Some(total)));
    let fetched = fetch(&env, &remote, &store, number, &args.folder, &options, &watch);
    let fetched = fetched.map_err(about_transfer)?;
    drop(watch);
    let seconds = start.elapsed().as_secs_f64();
    let folder = args.folder.display();
    if args.json {
        write_line(json!({
            "event": "fetched", "remote": remote.to_string(), "folder": folder.to_string(),
            "store": store, "version": number, "id": format!("{:016x}", fetched.info.name.id),
            "tables": fetched.tables, "bytes": fetched.bytes, "bytes_resumed": fetched.resumed,
            "bytes_of_version": total, "seconds": seconds,
        }))?;
    } else {
        write_line(format_args!(
            "fetched {store} {number} from {remote} to {folder}: {}; {} downloaded of {}; \
             {seconds:.1} s, {}/s",
            units::entries(&fetched.info.entries()),
            units::bytes(fetched.bytes),
            units::bytes(total),
            units::bytes(units::per_second(fetched.bytes, seconds)),
        ))?;
    }
    Ok(Exit::Done)
}

/// Whether a store has a version, perhaps damaged.
fn has_version(env: &Env, folder: &Path, number: u64) -> Result<bool> {
    match Pointer::read(env.disk.as_ref(), folder) {
        Ok(pointer) => Ok(pointer.version(number).is_some()),
        Err(error) if error.is_absent() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

impl FetchArgs {
    fn say_repaired(
        &self,
        remote: &Remote,
        store: &str,
        number: u64,
        Repaired { files, bytes }: Repaired,
    ) -> Result<Exit> {
        let folder = self.folder.display();
        if self.json {
            write_line(json!({
                "event": "repaired", "remote": remote.to_string(), "folder": folder.to_string(),
                "store": store, "version": number, "files": files, "bytes": bytes,
            }))?;
        } else if files == 0 {
            write_line(format_args!("compared {folder}: {store} {number} has no damage"))?;
        } else {
            write_line(format_args!(
                "repaired {store} {number} in {folder} from {remote}: {}, {} downloaded; programs that \
                 have the version open must open it again",
                units::counted(files, "file", "files"),
                units::bytes(bytes),
            ))?;
        }
        Ok(Exit::Done)
    }

    /// Returns the store and the number of the version to fetch.
    fn which(&self, remote: &Remote) -> Result<(String, u64)> {
        let number = match self.version {
            Which::Number(number) => number,
            Which::Current => {
                let pointer = self.group.controller(remote)?.pointer()?;
                // The pointer can be read where nothing can be listed.
                let only = match pointer.stores.len() {
                    1 => pointer.stores.keys().next(),
                    _ => None,
                };
                let store = store_of(remote, self.store.as_ref().or(only))?;
                let Some(target) = pointer.stores.get(&store) else {
                    return Err(Failure::usage(format!(
                        "{remote}: no version of {store} is current in the group {}; publish one with \
                         `hashfold deploy publish`, or name one with --version N",
                        self.group.group
                    )));
                };
                return Ok((store, target.version));
            }
        };
        Ok((store_of(remote, self.store.as_ref())?, number))
    }
}
