//! `hashfold pin`: protects versions from `hashfold gc`.

use crate::{
    device,
    failure::{Exit, Result},
    folder,
    output::write_line,
    stop::Stop,
    units,
    wait::WaitArgs,
};
use clap::Args;
use hashfold::store::Pin;
use serde_json::json;
use std::path::PathBuf;

/// Protect a version of a store from `hashfold gc`, or stop protecting it
#[derive(Args, Debug)]
pub(crate) struct PinArgs {
    /// Folder of the store
    #[arg(value_name = "DIR")]
    store: PathBuf,
    /// Number of the version
    #[arg(value_name = "N", value_parser = units::parse_number::<u64>)]
    version: u64,
    /// Stop protecting the version
    #[arg(long)]
    release: bool,
    #[command(flatten)]
    wait: WaitArgs,
    /// Print the summary as a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &PinArgs) -> Result<Exit> {
    let open = || folder::open_store(&args.store, device::executor(None));
    let mut writer = args.wait.retry(&Stop::never(), open)?;
    let pin = if args.release { Pin::Release } else { Pin::Keep };
    let number = args.version;
    writer.pin(number, pin).map_err(folder::about_version(&args.store, number))?;
    let is_pinned = pin == Pin::Keep;
    if args.json {
        write_line(json!({
            "event": "pinned", "store": args.store.to_string_lossy(), "version": number,
            "pinned": is_pinned,
        }))?;
    } else {
        let (did, state) = match pin {
            Pin::Keep => ("pinned", "`hashfold gc` keeps it"),
            Pin::Release => ("released", "`hashfold gc` may remove it"),
        };
        write_line(format_args!("{did} version {number} of {}: {state}", args.store.display()))?;
    }
    Ok(Exit::Done)
}
