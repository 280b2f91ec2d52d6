//! `hashfold publish`: another version becomes the current one.

use crate::{
    device,
    failure::{Exit, Failure, Result},
    folder,
    output::write_line,
    release::{GateArgs, Intent, Lines, Release},
};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Make a version of a store the current one
///
/// It takes the same time whatever the size of the data: one small file is replaced. A version that
/// does not pass a gate given here is marked bad instead, unless it was current before; the command
/// then ends with exit code 1.
#[derive(Args, Debug)]
pub(crate) struct PublishArgs {
    /// The folder of the store
    #[arg(value_name = "DIR")]
    store: PathBuf,
    /// The version [default: the newest]
    #[arg(value_name = "N")]
    version: Option<u64>,
    /// Only say how the version compares with the current one
    #[arg(long)]
    dry_run: bool,
    /// Publish a version all the same that is marked bad: one that was rolled back, or that did
    /// not pass a gate
    #[arg(long)]
    force: bool,
    /// The summary as a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten, next_help_heading = "Gates")]
    gates: GateArgs,
}

pub(crate) fn run(args: &PublishArgs) -> Result<Exit> {
    let mut writer = folder::open_store(&args.store, device::executor(None))?;
    let newest = writer.numbers()?.pop();
    let number = args.version.or(newest).ok_or_else(|| {
        Failure::usage(format!("{}: there is no version yet", args.store.display()))
    })?;
    let info = writer.version(number).map_err(folder::about_version(&args.store, number))?;
    let intent = match (args.dry_run, args.force) {
        (true, _) => Intent::Keep,
        (false, true) => Intent::Force,
        (false, false) => Intent::Publish,
    };
    if intent == Intent::Publish && writer.pointer().bad.contains(&number) {
        return Err(Failure {
            exit: Exit::No,
            message: format!(
                "{}: version {number} is marked bad: it was rolled back, or did not pass a gate; \
                 --force publishes it all the same",
                args.store.display()
            ),
        });
    }
    let release = Release::decide(&mut writer, info, &args.gates, intent)?;
    if args.json {
        let mut object = json!({ "event": "published" });
        let map = object.as_object_mut().expect("it is an object");
        map.extend(release.to_json(&args.store));
        map.insert("dry_run".into(), json!(args.dry_run));
        write_line(object)?;
    } else {
        write_line(format_args!(
            "{} {}: version {number}, {}: {}",
            if args.dry_run { "compared" } else { "published" },
            args.store.display(),
            release.state(),
            release.describe(),
        ))?;
    }
    let state = if args.dry_run { "would not be published" } else { "is not published" };
    release.conclude(&args.store, state, if args.json { Lines::Json } else { Lines::Text })
}
