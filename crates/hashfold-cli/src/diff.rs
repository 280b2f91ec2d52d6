//! `hashfold diff`: writes the changes between two versions to a file.

use crate::{
    device,
    failure::{Exit, Result},
    folder,
    output::write_line,
    progress::{Progress, Show, Unit},
    release::{changes_json, changes_text},
    stop::Stop,
    units,
};
use clap::Args;
use hashfold::{
    Env, ReadOptions,
    folder::check_outside,
    io::Access,
    store::{self, Changes, DeltaInfo, Version},
};
use serde_json::json;
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

/// Write the changes between two versions of a store to a file
///
/// `hashfold update DIR --delta FILE` applies the file to a copy of the store whose current version is
/// A. Reads both versions in full.
#[derive(Args, Debug)]
pub(crate) struct DiffArgs {
    /// Folder of the store
    #[arg(value_name = "DIR")]
    store: PathBuf,
    /// Version with the old entries
    #[arg(value_name = "A")]
    from: u64,
    /// Version with the new entries [default: the current one]
    #[arg(value_name = "B")]
    to: Option<u64>,
    /// File to write; an existing file is replaced when the new one is complete
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Print progress and summary as JSON objects on standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &DiffArgs) -> Result<Exit> {
    let start = Instant::now();
    check_outside(device::disk().as_ref(), &args.out)?;
    let current = folder::current(&args.store)?;
    let stop = Stop::on_signals()?;
    let (from, to) = (args.open(args.from)?, args.open(args.to.unwrap_or(current))?);
    let mut new = OsString::from(&args.out);
    new.push(".new");
    let new = PathBuf::from(new);
    let made = args.write(&from, &to, &new, &stop).and_then(|made| {
        let disk = device::disk();
        disk.rename(&new, &args.out)?;
        disk.sync_folder(args.out.parent().unwrap_or(Path::new("")))?;
        Ok(made)
    });
    if made.is_err() {
        // The file may not exist yet.
        let _ = fs::remove_file(&new);
    }
    let (info, changes) = made?;
    let bytes = fs::metadata(&args.out).map_or(0, |metadata| metadata.len());
    let seconds = start.elapsed().as_secs_f64();
    let (from, to) = (from.info().name.number, to.info().name.number);
    if args.json {
        write_line(json!({
            "event": "compared", "store": args.store.to_string_lossy(), "from": from, "to": to,
            "out": args.out.to_string_lossy(), "entries": info.entries,
            "deletions": info.deletions, "changes": changes_json(&changes), "bytes": bytes,
            "seconds": seconds,
        }))?;
    } else {
        write_line(format_args!(
            "wrote {}: from version {from} to {to}: {}; {}; {seconds:.1} s",
            args.out.display(),
            changes_text(&changes),
            units::bytes(bytes),
        ))?;
    }
    Ok(Exit::Done)
}

impl DiffArgs {
    fn open(&self, number: u64) -> Result<Version> {
        let options = ReadOptions::new().data(Access::Cached).index(Access::Mapped);
        Version::open(&self.store, number, &options)
            .map_err(folder::about_version(&self.store, number))
    }

    fn write(
        &self,
        from: &Version,
        to: &Version,
        path: &Path,
        stop: &Stop,
    ) -> Result<(DeltaInfo, Changes)> {
        let show = if self.json { Show::Json } else { Show::Text };
        let total = [from, to].map(|version| *version.info().entries().end()).iter().sum();
        let progress = Progress::start(show, "comparing", Unit::Entries, Some(total));
        let (disk, executor) = (device::disk(), device::executor(None));
        Ok(store::diff(
            &Env { executor, ..Env::on(disk.clone()) },
            from,
            to,
            path,
            &stop.watch(progress),
        )?)
    }
}
