//! `hashfold rollback`: makes the version before current again.

use crate::{
    device,
    failure::{Exit, Failure, Result},
    folder,
    output::write_line,
};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Make the version before current again, and mark the current one bad
///
/// Takes milliseconds, whatever the size of the data. Only `hashfold publish --force` publishes
/// a bad version again.
#[derive(Args, Debug)]
pub(crate) struct RollbackArgs {
    /// Folder of the store
    #[arg(value_name = "DIR")]
    store: PathBuf,
    /// Print the summary as a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &RollbackArgs) -> Result<Exit> {
    let mut writer = folder::open_store(&args.store, device::executor(None))?;
    let pointer = writer.pointer();
    let (Some(bad), Some(_)) = (pointer.current, pointer.previous()) else {
        return Err(Failure {
            exit: Exit::No,
            message: format!(
                "{}: there is no version to roll back to: no other version was current before, \
                 or those are marked bad; see `hashfold versions`",
                args.store.display()
            ),
        });
    };
    let current = writer.roll_back()?;
    if args.json {
        write_line(json!({
            "event": "rolled back", "store": args.store.to_string_lossy(), "version": current,
            "bad": bad,
        }))?;
    } else {
        write_line(format_args!(
            "rolled {} back: version {current} is current again, version {bad} is marked bad",
            args.store.display()
        ))?;
    }
    Ok(Exit::Done)
}
