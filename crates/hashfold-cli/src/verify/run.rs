//! The choice between a table and a store.

use super::{args::VerifyArgs, store, table};
use crate::failure::{Exit, Failure, Result};

pub(crate) fn run(args: &VerifyArgs) -> Result<Exit> {
    let folder = args.source.folder.display();
    if args.source.is_store()? {
        if args.access.is_given() {
            return Err(Failure::usage(format!(
                "{folder}: is a store, expected a table for --access; stores are read past the page cache"
            )));
        }
        return store::run(args);
    }
    if args.all || args.repairs() {
        return Err(Failure::usage(format!(
            "{folder}: is a table, expected a store for --all, --repair and --repair-from"
        )));
    }
    table::run(args)
}
