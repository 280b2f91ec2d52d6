//! The choice between a table and a store.

use super::{args::VerifyArgs, store, table};
use crate::failure::{Exit, Failure, Result};

pub(crate) fn run(args: &VerifyArgs) -> Result<Exit> {
    if args.source.is_store()? {
        return store::run(args);
    }
    if args.all || args.repairs() {
        let folder = args.source.folder.display();
        return Err(Failure::usage(format!(
            "{folder}: is a table, expected a store for --all, --repair and --repair-from"
        )));
    }
    table::run(args)
}
