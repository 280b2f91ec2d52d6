//! `hashfold filter add`: inserts keys, and prints those that are new.

use super::{
    create::{self, KindArgs},
    keys::{self, KeyArgs, KeyBatch},
    open::{self, MachineArgs},
};
use crate::{
    cell::write_json_bytes,
    failure::{Exit, Failure, Result},
    folder,
    output::write_note,
    progress::Show,
    stop::Stop,
    units,
};
use clap::Args;
use hashfold::{
    KeyHash,
    filter::{Mode, cascade::CascadeFilter},
    folder::Contents,
};
use serde_json::json;
use std::{
    io::{self, BufWriter, IsTerminal as _, StdoutLock, Write as _},
    path::PathBuf,
    time::Instant,
};

/// Insert keys into a filter, and with --unique print those that are new
///
/// Without --key, each line is a key, without its line end. Files may be compressed with gzip or zstd.
///
/// `hashfold filter add DIR --exact --unique < lines > new-lines` is `sort -u` without sorting: it
/// works for inputs larger than memory, keeps the order of the lines, and remembers them for the next
/// time. A filter that is not exact does not print new keys that are false positives.
///
/// The filter is durable when the command exits, also after one Ctrl-C. After a crash or a second
/// Ctrl-C, run it again on the same input: no line is lost, but those since the last flush are printed
/// twice. When standard input pauses, the keys so far are answered at once.
#[derive(Args, Debug)]
pub(crate) struct AddArgs {
    /// Folder of the filter
    #[arg(value_name = "DIR")]
    filter: PathBuf,
    #[command(flatten)]
    keys: KeyArgs,
    /// Print the keys that were absent, each once, in the order of the input; not for a multiset
    #[arg(long, conflicts_with = "multiset")]
    unique: bool,
    #[command(flatten)]
    machine: MachineArgs,
    /// Print progress, summary and the keys of --unique as JSON objects on standard output
    #[arg(long)]
    json: bool,
    #[command(
        flatten,
        next_help_heading = "When the filter is made because DIR is absent or empty"
    )]
    kind: KindArgs,
}

pub(crate) fn run(args: &AddArgs) -> Result<Exit> {
    args.check()?;
    // Opening the input may wait forever (a pipe), so signals are handled only after it.
    let inputs = args.keys.open()?;
    let start = Instant::now();
    let stop = Stop::on_signals()?;
    let budget = args.machine.budget();
    let mut filter = args.open(&budget)?;
    let mut adder = Adder::new(args);
    let mut keys = args.keys.start(inputs, &budget, args.show())?;
    let mut taken = Ok(());
    while taken.is_ok() {
        taken = match keys.next(&stop) {
            Ok(Some(batch)) => adder.take(batch, &mut filter),
            Ok(None) => break,
            Err(failure) => Err(failure),
        };
    }
    let taken = taken.and_then(|()| keys.finish());
    let bad_rows = keys::end(adder.added, "added", taken, filter.close())?;
    adder.report(bad_rows, start.elapsed().as_secs_f64())?;
    Ok(Exit::Done)
}

impl AddArgs {
    /// Refuses a folder that holds no filter before any input is read.
    fn check(&self) -> Result<()> {
        match folder::holds(&self.filter)? {
            Contents::Nothing if self.kind.options()?.is_some() => Ok(()),
            Contents::Nothing => Err(Failure::usage(format!(
                "{}: there is no filter here; make one with --exact or --capacity N",
                self.filter.display()
            ))),
            _ => folder::require_filter(&self.filter),
        }
    }

    /// Opens the filter, or makes it.
    fn open(&self, budget: &open::Budget) -> Result<CascadeFilter> {
        match self.kind.options()? {
            Some(options) if folder::holds(&self.filter)? == Contents::Nothing => {
                create::create(&self.filter, &options, budget)
            }
            _ => {
                let filter = open::open(&self.filter, budget)?;
                self.kind.check(&self.filter, &filter.stats())?;
                if self.unique && filter.mode() == Mode::Multiset {
                    return Err(Failure::usage(format!(
                        "{}: is a multiset, expected a set for --unique; use a filter that was made \
                         without --multiset",
                        self.filter.display()
                    )));
                }
                Ok(filter)
            }
        }
    }

    fn show(&self) -> Show {
        match self.json {
            true => Show::Json,
            // A progress bar would mix with the keys.
            false if self.unique && io::stdout().is_terminal() => Show::Nothing,
            false => Show::Text,
        }
    }
}

/// Inserts batches of keys.
struct Adder<'a> {
    args: &'a AddArgs,
    hashes: Vec<KeyHash>,
    is_new: Vec<bool>,
    out: BufWriter<StdoutLock<'static>>,
    line: Vec<u8>,
    added: u64,
    new: u64,
}

impl<'a> Adder<'a> {
    fn new(args: &'a AddArgs) -> Adder<'a> {
        let out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
        let (hashes, is_new, line) = (Vec::new(), Vec::new(), Vec::new());
        Adder { args, hashes, is_new, out, line, added: 0, new: 0 }
    }

    fn take(&mut self, batch: &KeyBatch, filter: &mut CascadeFilter) -> Result<()> {
        batch.hash(filter.seed(), &mut self.hashes);
        if self.args.unique {
            self.is_new.clear();
            self.is_new.resize(batch.len(), false);
            filter.find_new_batch(&self.hashes, &mut self.is_new)?;
            // Keys are printed before they are inserted, so a crash in between loses no key.
            self.print_new(batch).map_err(|error| match error.kind() {
                // The remaining keys are not inserted, so this is a failure even if the reader
                // closed the pipe.
                io::ErrorKind::BrokenPipe => Failure::io("standard output", "write", &error),
                _ => Failure::output(&error),
            })?;
            let mut is_new = self.is_new.iter();
            self.hashes.retain(|_| is_new.next() == Some(&true));
            self.new += self.hashes.len() as u64;
        }
        filter.insert_batch(&self.hashes)?;
        self.added += batch.len() as u64;
        Ok(())
    }

    fn print_new(&mut self, batch: &KeyBatch) -> io::Result<()> {
        for (key, _) in batch.keys().zip(&self.is_new).filter(|(_, is_new)| **is_new) {
            if self.args.json {
                self.line.clear();
                self.line.extend_from_slice(b"{\"key\":");
                write_json_bytes(key, &mut self.line);
                self.line.push(b'}');
                self.out.write_all(&self.line)?;
            } else {
                self.out.write_all(key)?;
            }
            self.out.write_all(b"\n")?;
        }
        self.out.flush()
    }

    fn report(mut self, bad_rows: u64, seconds: f64) -> Result<()> {
        let (args, folder) = (self.args, self.args.filter.display());
        let rate = units::per_second(self.added, seconds);
        if args.json {
            let new = args.unique.then_some(self.new);
            let object = json!({
                "event": "added", "filter": folder.to_string(), "keys": self.added, "new": new,
                "bad_rows": bad_rows, "seconds": seconds,
            });
            let written = writeln!(self.out, "{object}").and_then(|()| self.out.flush());
            return written.map_err(|error| Failure::output(&error));
        }
        let new = match args.unique {
            true => format!(", {} new", units::count(self.new)),
            false => String::new(),
        };
        let summary = format!(
            "added to {folder}: {}{new}{}; {seconds:.1} s, {} keys/s",
            units::counted(self.added, "key", "keys"),
            args.keys.files.bad_rows_note(bad_rows),
            units::count(rate),
        );
        if args.unique {
            write_note(summary);
            return Ok(());
        }
        let written = writeln!(self.out, "{summary}").and_then(|()| self.out.flush());
        written.map_err(|error| Failure::output(&error))
    }
}
