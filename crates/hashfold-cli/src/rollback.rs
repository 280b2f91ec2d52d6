//! `hashfold rollback`: back to the version that was current before.

use crate::{
    device,
    failure::{Exit, Failure, Result},
    folder,
    output::write_line,
};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Go back to the version that was current before, and mark the present one as bad
///
/// A bad version is not published again, unless with `hashfold publish --force`. It takes the same
/// time whatever the size of the data.
#[derive(Args, Debug)]
pub(crate) struct RollbackArgs {
    /// The folder of the store
    #[arg(value_name = "DIR")]
    store: PathBuf,
    /// The summary as a JSON object
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
                "{}: there is no version to go back to: none that was current before and is not \
                 marked bad",
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
