//! `hashfold deploy gc`: removes old versions from a remote.

use super::{about_transfer, open, parse_name, store_of};
use crate::{
    failure::{Exit, Result},
    output::write_line,
    progress::{Progress, Show, Unit},
    stop::Stop,
    units,
};
use clap::Args;
use hashfold_deploy::{CollectOptions, collect};
use serde_json::json;

/// Remove old versions of a store from a remote, and the tables that only they have
///
/// The newest versions stay that are not marked bad, and those that the pointer of any group needs: the current version, the one
/// that is announced, and the one that a rollback would make current. Servers that serve a removed version
/// go on with it.
#[derive(Args, Debug)]
pub(crate) struct GcArgs {
    /// Remote with the versions
    #[arg(value_name = "URL")]
    url: String,
    /// Name of the store in the remote [default: its only one]
    #[arg(long, value_name = "STORE", value_parser = parse_name)]
    store: Option<String>,
    /// Number of the newest versions that stay, of those that are not marked bad
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = units::parse_number::<usize>)]
    keep: usize,
    /// Remove tables and signatures, too, that no version has, as an interrupted push leaves them; no push may
    /// run meanwhile
    #[arg(long)]
    orphans: bool,
    /// Only say what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Print progress and summary as JSON objects on standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &GcArgs) -> Result<Exit> {
    let stop = Stop::on_signals()?;
    let remote = open(&args.url)?;
    let store = store_of(&remote, args.store.as_ref())?;
    let options = CollectOptions { keep: args.keep, orphans: args.orphans, dry_run: args.dry_run };
    let show = if args.json { Show::Json } else { Show::Text };
    let watch = stop.watch(Progress::start(show, "removing", Unit::Bytes, None));
    let collected = collect(&remote, &store, &options, &watch).map_err(about_transfer)?;
    drop(watch);
    if args.json {
        write_line(json!({
            "event": if args.dry_run { "would_remove" } else { "removed" },
            "remote": remote.to_string(), "store": store,
            "versions": collected.versions, "kept": collected.kept,
            "signatures": collected.signatures, "tables": collected.tables, "bytes": collected.bytes,
        }))?;
        return Ok(Exit::Done);
    }
    let verb = if args.dry_run { "would remove" } else { "removed" };
    let listed = |numbers: &[u64]| -> String {
        let texts: Vec<String> = numbers.iter().map(u64::to_string).collect();
        if texts.is_empty() { "none".into() } else { texts.join(", ") }
    };
    write_line(format_args!(
        "{verb} from {remote}: {store}, versions {}; {}, {}; versions that stay: {}",
        listed(&collected.versions),
        units::counted(collected.tables, "table", "tables"),
        units::bytes(collected.bytes),
        listed(&collected.kept),
    ))?;
    Ok(Exit::Done)
}
