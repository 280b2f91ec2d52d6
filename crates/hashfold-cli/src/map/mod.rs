//! `hashfold map`: keys that change one by one. Each verb has a file; `get` and `scan` are those of
//! all data sets.

mod backup;
mod compact;
mod create;
mod delete;
mod export;
mod import;
mod open;
mod put;
mod salvage;
mod stat;
mod verify;

pub(crate) use self::{stat::print as print_stat, verify::check as verify};

use crate::{
    failure::{Exit, Result},
    folder, get, scan,
};
use clap::{Arg, Args, Subcommand};

/// Change keys one by one, durable at once: a mutable map on flash
///
/// A map takes puts and deletions at any time, and survives a crash at any moment. A lookup takes one
/// device read. Keys have at most 1 KiB, values at most 64 MiB. One process has a map open at a time, also
/// for reading. `hashfold get`, `scan`, `stat` and `verify` take the folder of a map, too.
#[derive(Args, Debug)]
pub(crate) struct MapArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    Create(create::CreateArgs),
    Put(put::PutArgs),
    #[command(
        override_usage = "hashfold map get [OPTIONS] <DIR> <KEY>...\n       \
                          hashfold map get [OPTIONS] <DIR> --keys <FILE> [--key <COL>]",
        mut_arg("folder", |it| it.help(FOLDER)),
        // An argument that is changed becomes the last one, and the keys come after the folder.
        mut_arg("keys", |it| it),
        mut_arg("wait", |it| it.help(WAIT)),
        mut_arg("version", hide),
        mut_arg("access", hide),
        mut_arg("without_index", hide)
    )]
    Get(get::GetArgs),
    Delete(delete::DeleteArgs),
    #[command(mut_arg("devices", |it| it.help(DEVICES)))]
    Import(import::ImportArgs),
    #[command(
        mut_arg("folder", |it| it.help(FOLDER)),
        mut_arg("version", hide),
        mut_arg("access", hide)
    )]
    Export(export::ExportArgs),
    #[command(
        mut_arg("folder", |it| it.help(FOLDER)),
        mut_arg("wait", |it| it.help(WAIT)),
        mut_arg("version", hide),
        mut_arg("access", hide)
    )]
    Scan(scan::ScanArgs),
    Stat(stat::StatArgs),
    Verify(verify::VerifyArgs),
    Compact(compact::CompactArgs),
    Backup(backup::BackupArgs),
    Salvage(salvage::SalvageArgs),
}

/// The help of the folder of verbs that other data sets have, too.
const FOLDER: &str = "Folder of the map";
/// The help of `--wait` of such verbs.
const WAIT: &str = "Time to wait while another process has the map open: 30, 90s, 15m; after that, the exit code is 6";
/// The help of `--device` of the verb that also makes maps.
const DEVICES: &str = "Folder of another device, repeated in order: of a new map on several devices, or if they have moved";

/// Hides an option that maps do not have; the verb refuses or ignores it.
fn hide(option: Arg) -> Arg {
    option.hide(true)
}

pub(crate) fn run(args: &MapArgs) -> Result<Exit> {
    match &args.verb {
        Verb::Create(args) => create::run(args),
        Verb::Put(args) => put::run(args),
        Verb::Get(args) => folder::require_map(args.folder()).and_then(|()| get::run(args)),
        Verb::Delete(args) => delete::run(args),
        Verb::Import(args) => import::run(args),
        Verb::Export(args) => export::run(args),
        Verb::Scan(args) => folder::require_map(args.folder()).and_then(|()| scan::run(args)),
        Verb::Stat(args) => stat::run(args),
        Verb::Verify(args) => verify::run(args),
        Verb::Compact(args) => compact::run(args),
        Verb::Backup(args) => backup::run(args),
        Verb::Salvage(args) => salvage::run(args),
    }
}
