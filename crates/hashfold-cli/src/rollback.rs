//! `hashfold rollback`: makes the version before current again.

use crate::{
    device,
    failure::{Exit, Failure, Result},
    folder,
    output::write_line,
    preview,
    stop::Stop,
    wait::WaitArgs,
};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Make the version before current again, and mark the current one bad
///
/// The version before is the last one that was current and has other entries: a rollback after
/// `hashfold merge` leads to the version before the merged one, and marks both bad. Takes
/// milliseconds, whatever the size of the data. Only `hashfold publish --force` publishes a bad
/// version again.
#[derive(Args, Debug)]
pub(crate) struct RollbackArgs {
    /// Folder of the store
    #[arg(value_name = "DIR")]
    store: PathBuf,
    #[command(flatten)]
    wait: WaitArgs,
    /// Print the summary as a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &RollbackArgs) -> Result<Exit> {
    let open = || folder::open_store(&args.store, device::executor(None));
    let mut writer = args.wait.retry(&Stop::never(), open)?;
    if writer.previous().is_none() {
        return Err(Failure {
            exit: Exit::No,
            message: format!(
                "{}: there is no version to roll back to: no version with other entries was current \
                 before, or those are marked bad; see `hashfold versions`",
                args.store.display()
            ),
        });
    }
    let before = writer.pointer().bad.clone();
    let current = writer.roll_back()?;
    let bad = writer.pointer().bad.iter().copied();
    let bad: Vec<u64> = bad.filter(|number| !before.contains(number)).collect();
    if args.json {
        write_line(json!({
            "event": "rolled back", "store": args.store.to_string_lossy(), "version": current,
            "bad": bad,
        }))?;
    } else {
        write_line(format_args!(
            "rolled {} back: version {current} is current again, version {} {} marked bad",
            args.store.display(),
            preview::list(bad.iter()),
            if bad.len() == 1 { "is" } else { "are" },
        ))?;
    }
    Ok(Exit::Done)
}
