//! The choice between a table and a store.

use super::{args::VerifyArgs, store, table};
use crate::{
    failure::{Exit, Failure, Result},
    folder, map,
};
use hashfold::manifest::Kind;

pub(crate) fn run(args: &VerifyArgs) -> Result<Exit> {
    let folder = args.source.folder.display();
    if folder::holds(&args.source.folder)?.kind() == Some(Kind::Map) {
        if args.access.is_given() || args.all || args.repairs() || args.source.version.is_some() {
            return Err(Failure::usage(format!(
                "{folder}: is a map, expected a table or store for --access, --all, --version, --repair and \
                 --repair-from"
            )));
        }
        return map::verify(&args.source.folder, args.json, args.wait.into());
    }
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
