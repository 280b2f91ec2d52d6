//! The options of `hashfold verify`.

use crate::{options::AccessArgs, progress::Show, source::SourceArgs, wait::MapWaitArgs};
use clap::Args;
use std::path::PathBuf;

/// Read every byte of a table, of a version of a store, or of a map, and check it
///
/// Prints each problem on its own line with file and offset. The exit code is 1 if a problem is left,
/// and 0 if all were repaired.
#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    // Only for tables: a store is read past the page cache in any case.
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// Check all versions of a store instead of the current one
    #[arg(long, conflicts_with = "version")]
    pub(crate) all: bool,
    /// Rebuild a lost or damaged CURRENT from the version files. Then --version N is current, or the
    /// last version that is known to have been current, and all versions are pinned
    #[arg(long)]
    pub(crate) repair: bool,
    /// Repair from a copy of the store: restores a lost or damaged CURRENT, version files, and the
    /// damaged pieces of the checked versions' tables
    #[arg(long, value_name = "DIR", conflicts_with = "repair")]
    pub(crate) repair_from: Option<PathBuf>,
    /// Print progress and results as JSON objects on standard output
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) wait: MapWaitArgs,
}

impl VerifyArgs {
    /// Returns whether the user requested a repair.
    pub(crate) fn repairs(&self) -> bool {
        self.repair || self.repair_from.is_some()
    }

    pub(crate) fn show(&self) -> Show {
        if self.json { Show::Json } else { Show::Text }
    }
}
