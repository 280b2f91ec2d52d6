//! Inserting batches of keys, and printing those that are new.

use super::{
    add::AddArgs,
    fill::{self, FillWarnings},
};
use crate::{
    failure::{Exit, Failure, Result},
    keys::KeyBatch,
    output::write_note,
    units,
};
use hashfold::{KeyHash, filter::cascade::CascadeFilter};
use hashfold_rows::write_json_bytes;
use serde_json::json;
use std::io::{self, BufWriter, StdoutLock, Write as _};

/// Inserts batches of keys, and counts them.
pub(super) struct Adder<'a> {
    args: &'a AddArgs,
    hashes: Vec<KeyHash>,
    is_new: Vec<bool>,
    warnings: FillWarnings,
    out: BufWriter<StdoutLock<'static>>,
    line: Vec<u8>,
    /// Number of keys that were taken.
    pub(super) added: u64,
    new: u64,
}

impl<'a> Adder<'a> {
    pub(super) fn new(args: &'a AddArgs) -> Adder<'a> {
        Adder {
            args,
            hashes: Vec::new(),
            is_new: Vec::new(),
            warnings: FillWarnings::new(),
            out: BufWriter::with_capacity(1 << 16, io::stdout().lock()),
            line: Vec::new(),
            added: 0,
            new: 0,
        }
    }

    /// Inserts the keys of a batch, as far as the capacity allows if it is strict.
    pub(super) fn take(&mut self, batch: &KeyBatch, filter: &mut CascadeFilter) -> Result<()> {
        let AddArgs { unique, strict_capacity, .. } = *self.args;
        // Before keys are looked up: those that are too old are new again.
        filter.advance_window()?;
        batch.hash(filter.seed(), &mut self.hashes);
        if unique || strict_capacity {
            self.is_new.clear();
            self.is_new.resize(batch.len(), false);
            filter.find_new_batch(&self.hashes, &mut self.is_new)?;
        }
        if strict_capacity {
            let fitting = self.fitting(filter)?;
            self.hashes.truncate(fitting);
            self.is_new.truncate(fitting);
        }
        let taken = self.hashes.len();
        if unique {
            self.print_new(batch)?;
        }
        filter.insert_batch(&self.hashes)?;
        self.added += taken as u64;
        if taken < batch.len() {
            return Err(self.full(filter));
        }
        if !strict_capacity {
            self.warnings.check(&self.args.filter, &filter.stats());
        }
        Ok(())
    }

    /// Returns the number of keys at the front of the batch that do not exceed the capacity.
    fn fitting(&self, filter: &mut CascadeFilter) -> Result<usize> {
        let new = || self.is_new.iter().enumerate().filter(|(_, is_new)| **is_new);
        let room = fill::room(filter, new().count() as u64)?;
        Ok(new().nth(room as usize).map_or(self.is_new.len(), |(i, _)| i))
    }

    /// Prints the new keys and removes the others from the batch. Keys are printed before they are
    /// inserted, so a crash in between loses no key.
    fn print_new(&mut self, batch: &KeyBatch) -> Result<()> {
        self.write_new(batch).map_err(|error| match error.kind() {
            // The remaining keys are not inserted, so this is a failure even if the reader closed
            // the pipe.
            io::ErrorKind::BrokenPipe => Failure::io("standard output", "write", &error),
            _ => Failure::output(&error),
        })?;
        let mut is_new = self.is_new.iter();
        self.hashes.retain(|_| is_new.next() == Some(&true));
        self.new += self.hashes.len() as u64;
        Ok(())
    }

    fn write_new(&mut self, batch: &KeyBatch) -> io::Result<()> {
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

    fn full(&self, filter: &CascadeFilter) -> Failure {
        let stats = filter.stats();
        let (keys, capacity) = (units::count(stats.keys_max()), units::count(stats.capacity));
        let message = format!(
            "{}: is full: {keys} of {capacity} keys; make a filter with a larger --capacity, or leave \
             out --strict-capacity",
            self.args.filter.display()
        );
        Failure { exit: Exit::No, message }
    }

    /// Prints the summary.
    pub(super) fn report(mut self, bad_rows: u64, seconds: f64) -> Result<()> {
        let (args, folder) = (self.args, self.args.filter.display());
        let rate = units::per_second(self.added, seconds);
        if args.json {
            let new = args.unique.then_some(self.new);
            let object = json!({
                "event": "added", "filter": folder.to_string(), "keys": self.added, "new": new,
                "bad_rows": bad_rows, "seconds": seconds,
            });
            return self.print(&object.to_string());
        }
        let new = match args.unique {
            true => format!(", {} new", units::count(self.new)),
            false => String::new(),
        };
        let summary = format!(
            "added to {folder}: {}{new}{}; {seconds:.1} s, {} keys/s",
            units::counted(self.added, "key", "keys"),
            args.files.bad_rows_note(bad_rows),
            units::count(rate),
        );
        if args.unique {
            write_note(summary);
            return Ok(());
        }
        self.print(&summary)
    }

    fn print(&mut self, line: &str) -> Result<()> {
        let written = writeln!(self.out, "{line}").and_then(|()| self.out.flush());
        written.map_err(|error| Failure::output(&error))
    }
}
