//! `hashfold diff`: prints the changes between two versions, or writes them to a file.

use crate::{
    change_output::ChangeWriter,
    device,
    failure::{Exit, Failure, Result},
    folder,
    options::AccessArgs,
    output::write_line,
    progress::{Progress, Show, Unit},
    release::{changes_json, changes_text},
    stop::Stop,
    units,
};
use clap::{Args, ValueEnum};
use hashfold::{
    Env, ErrorKind, ReadOptions,
    folder::check_outside,
    io::Access,
    store::{self, Changes, DeltaInfo, Version},
};
use hashfold_rows::Schema;
use serde_json::json;
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

/// Show which keys changed between two versions of a store, or write the changes to a file
///
/// Prints a line for each key that was added, changed or removed, with its old and its new row, in
/// the order of the keys' hashes. With --out, writes a delta file instead: `hashfold update DIR
/// --delta FILE` applies it to a copy of the store whose current version is A.
///
/// Reads both versions, without the chunks in which they share all tables.
#[derive(Args, Debug)]
pub(crate) struct DiffArgs {
    /// Folder of the store
    #[arg(value_name = "DIR")]
    store: PathBuf,
    /// Version with the old entries
    #[arg(value_name = "A", value_parser = units::parse_number::<u64>)]
    from: u64,
    /// Version with the new entries [default: the current one]
    #[arg(value_name = "B", value_parser = units::parse_number::<u64>)]
    to: Option<u64>,
    #[command(flatten)]
    access: AccessArgs,
    /// Output format
    #[arg(long, default_value = "jsonl", conflicts_with = "out")]
    format: ChangeFormat,
    /// Write a delta file; an existing file is replaced when the new one is complete
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// With --out, print progress and summary as JSON objects on standard output
    #[arg(long, requires = "out")]
    json: bool,
}

/// Formats of printed changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ChangeFormat {
    /// One JSON object per key: the key, "change" ("added", "changed" or "removed"), and the rows
    /// "old" and "new", which may be null
    #[value(alias = "json")]
    Jsonl,
    /// Comma-separated values, with the columns KEY, change, old.COLUMN ... and new.COLUMN ...
    Csv,
}

pub(crate) fn run(args: &DiffArgs) -> Result<Exit> {
    if let Some(out) = &args.out {
        check_target(out)?;
    }
    let current = folder::current(&args.store)?;
    let stop = Stop::on_signals()?;
    let (from, to) = (args.open(args.from)?, args.open(args.to.unwrap_or(current))?);
    match &args.out {
        Some(out) => args.write_delta(&from, &to, out, &stop),
        None => args.print(&from, &to, &stop),
    }
}

/// Refuses a path where no file can be written.
fn check_target(out: &Path) -> Result<()> {
    check_outside(device::disk().as_ref(), out)?;
    if let Some(folder) =
        out.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir())
    {
        let what = "there is no folder of this name, in which --out would write a file";
        return Err(Failure::usage(format!("{}: {what}", folder.display())));
    }
    if out.is_dir() {
        let what = "is a folder, expected the name of a file for --out";
        return Err(Failure::usage(format!("{}: {what}", out.display())));
    }
    Ok(())
}

impl DiffArgs {
    fn open(&self, number: u64) -> Result<Version> {
        let options = self.access.to_scan(ReadOptions::new().index(Access::Mapped));
        Version::open(&self.store, number, &options)
            .map_err(folder::about_version(&self.store, number))
    }

    /// Prints the keys that differ.
    fn print(&self, from: &Version, to: &Version, stop: &Stop) -> Result<Exit> {
        let (old, new) = (Schema::of_version(from.info())?, Schema::of_version(to.info())?);
        let mut writer = match self.format {
            ChangeFormat::Jsonl => ChangeWriter::json_lines(old, new),
            ChangeFormat::Csv => ChangeWriter::csv(old, new)?,
        };
        let mut written = Ok(());
        let watch = stop.watch(Progress::start(Show::Nothing, "comparing", Unit::Entries, None));
        let compared = store::compare(&env(), from, to, &watch, &mut |change| {
            written = writer.write(&change);
            // The error only ends the comparison; the failure itself is returned below.
            written.as_ref().map_err(|_| ErrorKind::Stopped.into()).copied()
        });
        written?;
        compared?;
        writer.finish().map(|()| Exit::Done)
    }

    /// Writes a delta file.
    fn write_delta(&self, from: &Version, to: &Version, out: &Path, stop: &Stop) -> Result<Exit> {
        let start = Instant::now();
        let mut new = OsString::from(out);
        new.push(".new");
        let new = PathBuf::from(new);
        let made = self.write(from, to, &new, stop).and_then(|made| {
            let disk = device::disk();
            disk.rename(&new, out)?;
            disk.sync_folder(out.parent().unwrap_or(Path::new("")))?;
            Ok(made)
        });
        if made.is_err() {
            // The file may not exist yet.
            let _ = fs::remove_file(&new);
        }
        let (info, changes) = made?;
        let bytes = fs::metadata(out).map_or(0, |metadata| metadata.len());
        let seconds = start.elapsed().as_secs_f64();
        let (from, to) = (from.info().name.number, to.info().name.number);
        if self.json {
            write_line(json!({
                "event": "compared", "store": self.store.to_string_lossy(), "from": from, "to": to,
                "out": out.to_string_lossy(), "entries": info.entries,
                "deletions": info.deletions, "changes": changes_json(&changes), "bytes": bytes,
                "seconds": seconds,
            }))?;
        } else {
            write_line(format_args!(
                "wrote {}: from version {from} to {to}: {}; {}; {seconds:.1} s",
                out.display(),
                changes_text(&changes),
                units::bytes(bytes),
            ))?;
        }
        Ok(Exit::Done)
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
        Ok(store::diff(&env(), from, to, path, &stop.watch(progress))?)
    }
}

/// The world outside, with threads that read ahead.
fn env() -> Env {
    Env { executor: device::executor(None), ..Env::on(device::disk()) }
}
