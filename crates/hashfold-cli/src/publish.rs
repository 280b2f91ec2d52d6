//! `hashfold publish`: makes another version the current one.

use crate::{
    device,
    failure::{Exit, Failure, Result},
    folder,
    output::write_line,
    release::{GateArgs, Intent, Lines, Release},
    stop::Stop,
    units,
    wait::WaitArgs,
};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Make a version of a store the current one
///
/// Takes milliseconds, whatever the size of the data: one small file is replaced. A version that
/// fails a gate is not published and is marked bad, unless it was current before; the exit code is
/// then 1.
#[derive(Args, Debug)]
pub(crate) struct PublishArgs {
    /// Folder of the store
    #[arg(value_name = "DIR")]
    store: PathBuf,
    /// Version to publish [default: the newest]
    #[arg(value_name = "N", value_parser = units::parse_number::<u64>)]
    version: Option<u64>,
    /// Only report how the version differs from the current one
    #[arg(long)]
    dry_run: bool,
    /// Publish a version even if it is marked bad: it was rolled back, or failed a gate. Only the gates
    /// that are given with this call apply
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    wait: WaitArgs,
    /// Print the summary as a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten, next_help_heading = "Gates")]
    gates: GateArgs,
}

pub(crate) fn run(args: &PublishArgs) -> Result<Exit> {
    let open = || folder::open_store(&args.store, device::executor(None));
    let mut writer = args.wait.retry(&Stop::never(), open)?;
    let newest = writer.numbers()?.pop();
    let number = args.version.or(newest).ok_or_else(|| {
        Failure::usage(format!(
            "{}: the store has no version yet; make one with `hashfold update`",
            args.store.display()
        ))
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
                "{}: version {number} is marked bad: it was rolled back, or failed a gate; \
                 publish it with --force",
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
