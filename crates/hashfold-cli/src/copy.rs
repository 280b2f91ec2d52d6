//! `hashfold copy`: copies a version of a store, or a table, to another folder.

use crate::{
    device,
    failure::{Exit, Failure, Result},
    folder,
    output::write_line,
    progress::{Progress, Show, Unit},
    source::{Source, SourceArgs},
    stop::Stop,
    units,
};
use clap::Args;
use hashfold::{
    Env, ErrorKind, ReadOptions, Table, TableBuilder, TableOptions,
    io::Access,
    manifest::Kind,
    store::{self, Pointer},
    table::IndexOptions,
};
use hashfold_rows::Schema;
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    time::Instant,
};

/// Copy a store, or a table, to another folder
///
/// Of a store, one version is copied: the current one, or that of --version. The copied version keeps
/// its number and id, so `hashfold update COPY --delta FILE` applies what `hashfold diff` writes from
/// then on. The store may be written to meanwhile. All bytes are checked as they are copied, and readers
/// see the copy when it is complete. After an interruption, run it again: it goes on where it was.
///
/// `cp -r` of a store that is being written may miss files.
#[derive(Args, Debug)]
pub(crate) struct CopyArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Folder to make the copy in; absent, empty, or with an interrupted copy
    #[arg(value_name = "COPY")]
    to: PathBuf,
    /// Threads that read and write a table [default: number of cores + 2]
    #[arg(long, value_name = "N", value_parser = units::parse_threads)]
    threads: Option<usize>,
    /// Print progress and summary as JSON objects on standard output
    #[arg(long)]
    json: bool,
}

/// The result of a copy.
struct Copied {
    version: Option<u64>,
    entries: String,
    bytes: u64,
}

pub(crate) fn run(args: &CopyArgs) -> Result<Exit> {
    let start = Instant::now();
    refuse_filter(&args.source.folder)?;
    let stop = Stop::on_signals()?;
    let copied = match args.source.is_store()? {
        true => args.copy_store(&stop)?,
        false => args.copy_table(&stop)?,
    };
    let seconds = start.elapsed().as_secs_f64();
    let (from, to) = (args.source.folder.display(), args.to.display());
    if args.json {
        write_line(json!({
            "event": "copied", "from": from.to_string(), "to": to.to_string(),
            "version": copied.version, "bytes": copied.bytes, "seconds": seconds,
        }))?;
    } else {
        let version = copied.version.map(|number| format!("version {number}, "));
        write_line(format_args!(
            "copied {from} to {to}: {}{}; {}; {seconds:.1} s, {}/s",
            version.unwrap_or_default(),
            copied.entries,
            units::bytes(copied.bytes),
            units::bytes(units::per_second(copied.bytes, seconds)),
        ))?;
    }
    Ok(Exit::Done)
}

impl CopyArgs {
    fn show(&self) -> Show {
        if self.json { Show::Json } else { Show::Text }
    }

    fn copy_store(&self, stop: &Stop) -> Result<Copied> {
        let (from, number) = (&self.source.folder, self.source.version);
        let number = number.map_or_else(|| folder::current(from), Ok)?;
        // Without --version, the version that is current when it is locked is copied.
        let versions = store::versions(&Env::system(), from)?;
        let total = versions
            .into_iter()
            .find_map(|(there, info)| Some(info.ok()?.bytes()).filter(|_| there == number));
        let progress = Progress::start(self.show(), "copying", Unit::Bytes, total);
        let watch = stop.watch(progress);
        let info = store::copy(&Env::system(), from, self.source.version, &self.to, &watch)
            .map_err(|error| self.explain(error, number))?;
        Ok(Copied {
            version: Some(info.name.number),
            entries: units::entries(&info.entries()),
            bytes: info.bytes(),
        })
    }

    /// Turns an error into a message that says what to do.
    fn explain(&self, error: hashfold::Error, number: u64) -> Failure {
        match error.kind() {
            ErrorKind::Exists => {
                let pointer = Pointer::read(device::disk().as_ref(), &self.to).ok();
                let there = pointer.and_then(|pointer| pointer.current);
                Failure::usage(format!(
                    "{}: there is a store here already{}; `hashfold diff` and `hashfold update --delta` \
                     bring it up to date",
                    self.to.display(),
                    there.map_or(String::new(), |number| format!(", with version {number}")),
                ))
            }
            ErrorKind::Stopped => Failure {
                exit: Exit::Stopped,
                message: "stopped; run it again to copy the rest".into(),
            },
            _ => folder::about_version(&self.source.folder, number)(error),
        }
    }

    /// Copies a table entry by entry, which checks all of them.
    fn copy_table(&self, stop: &Stop) -> Result<Copied> {
        let options = ReadOptions::new().data(Access::Cached).index(Access::Mapped);
        let Source::Table(table) = self.source.open(options)? else {
            unreachable!("the folder holds no store");
        };
        let executor = device::executor(self.threads);
        let env = Env { executor: executor.clone(), ..Env::system() };
        let builder =
            TableBuilder::with(&self.to, table_options(&table).env(env)).map_err(|error| {
                match error.kind() {
                    ErrorKind::Exists => Failure::usage(format!(
                        "{}: there is a table here already; name another folder",
                        self.to.display()
                    )),
                    _ => error.into(),
                }
            })?;
        let entries = table.stats().entries;
        let progress = Progress::start(self.show(), "copying", Unit::Entries, Some(entries));
        let stats =
            builder.build(&mut table.scan().reading_ahead(executor), &stop.watch(progress))?;
        let (entries, bytes) = (
            units::counted(stats.entries, "entry", "entries"),
            stats.data_bytes + stats.index_bytes,
        );
        Ok(Copied { version: None, entries, bytes })
    }
}

/// Returns the options that a table was built with.
fn table_options(table: &Table) -> TableOptions {
    let stats = table.stats();
    let attribute = table.attribute(Schema::ATTRIBUTE);
    // A damaged index is unknown; the copy gets the default one.
    let index = stats.index.map_or(IndexOptions::default(), |index| IndexOptions {
        choice: index.choice,
        // Fences have no buckets, and a few keys fill no bucket.
        bucket_size: match index.bucket_size {
            size @ 8.. => size,
            _ => IndexOptions::default().bucket_size,
        },
        absent_bits: index.absent_bits,
        ..IndexOptions::default()
    });
    let attributes = attribute.map(|it| (Schema::ATTRIBUTE.into(), it.to_vec()));
    TableOptions::new()
        .seed(stats.seed)
        .id(stats.id)
        .index(index)
        .block_size(stats.block_size)
        .attributes(attributes.into_iter().collect())
}

fn refuse_filter(folder: &Path) -> Result<()> {
    match folder::holds(folder)?.kind() {
        Some(Kind::Filter) => Err(Failure::usage(format!(
            "{}: is a filter, expected a table or store; while nothing writes to a filter, `cp -r` copies \
             it",
            folder.display()
        ))),
        _ => folder::refuse_map(folder),
    }
}
