//! Takes rows from readers: good rows go to batches, bad rows are handled as `--bad-rows` says.

use super::batch::BatchSender;
use crate::{
    device,
    failure::{Failure, Result},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use hashfold::{
    folder::check_outside,
    run::{KEY_BYTES_MAX, VALUE_BYTES_MAX},
};
use serde_json::json;
use std::{
    fs::File,
    io::{self, BufWriter, Write as _},
    path::{Path, PathBuf},
};

/// Maximum number of bytes written of a bad row.
const BAD_ROW_BYTES_MAX: usize = 1 << 20;

/// Actions for rows that can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BadRowPolicy {
    /// End the command.
    Stop,
    /// Count the row.
    Skip,
    /// Count the row and write it to this file.
    Collect(PathBuf),
}

/// The reason why a row can't be used.
#[derive(Debug)]
pub(crate) struct Flaw {
    /// Position in the row, from 1: a character of a line, or a column of a batch.
    pub(crate) column: Option<usize>,
    pub(crate) reason: String,
}

impl Flaw {
    pub(crate) fn new(reason: impl Into<String>) -> Flaw {
        Flaw { column: None, reason: reason.into() }
    }

    #[must_use]
    pub(crate) fn at(mut self, column: usize) -> Flaw {
        self.column.get_or_insert(column);
        self
    }
}

/// Takes the rows of all inputs.
#[derive(Debug)]
pub(crate) struct Sink {
    batches: BatchSender,
    policy: BadRowPolicy,
    /// File of bad rows under the policy `Collect`.
    collected: Option<Collected>,
    bad_rows: u64,
}

impl Sink {
    /// A sink into `batches`.
    pub(crate) fn new(batches: BatchSender, policy: BadRowPolicy) -> Result<Sink> {
        let collected = match &policy {
            BadRowPolicy::Collect(path) => {
                check_outside(device::disk().as_ref(), path)?;
                Some(Collected::create(path)?)
            }
            BadRowPolicy::Stop | BadRowPolicy::Skip => None,
        };
        Ok(Sink { batches, policy, collected, bad_rows: 0 })
    }

    /// Takes a row; `write` appends its value. Refuses rows that are too long.
    #[inline]
    pub(super) fn push(
        &mut self,
        key: &[u8],
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Flaw> {
        check_key(key)?;
        self.batches.push(key, write, |value| match value.len() {
            0..=VALUE_BYTES_MAX => Ok(()),
            len => Err(too_long("value", len, VALUE_BYTES_MAX)),
        })
    }

    /// Takes a row that deletes its key.
    pub(super) fn delete(&mut self, key: &[u8]) -> Result<(), Flaw> {
        check_key(key)?;
        self.batches.delete(key);
        Ok(())
    }

    /// Ends row number `row` (from 1) of `file` with its result.
    #[inline]
    pub(super) fn end_row(
        &mut self,
        file: &str,
        row: u64,
        outcome: Result<(), Flaw>,
        text: &[u8],
    ) -> Result<()> {
        match outcome {
            Ok(()) => self.batches.turn(),
            Err(flaw) => self.refuse(file, row, &flaw, text),
        }
    }

    #[cold]
    fn refuse(&mut self, file: &str, row: u64, flaw: &Flaw, text: &[u8]) -> Result<()> {
        self.bad_rows += 1;
        if self.policy == BadRowPolicy::Stop {
            let column = flaw.column.map(|column| format!(":{column}")).unwrap_or_default();
            return Err(Failure::input(format_args!("{file}:{row}{column}"), &flaw.reason));
        }
        match &mut self.collected {
            Some(collected) => collected.write(file, row, flaw, text),
            None => Ok(()),
        }
    }

    /// Sends the rows so far, because the next rows may come late.
    pub(super) fn pause(&mut self) -> Result<()> {
        self.batches.pause()
    }

    /// Sends the last rows; returns the number of bad rows.
    pub(crate) fn finish(mut self) -> Result<u64> {
        self.batches.flush()?;
        self.collected.map_or(Ok(()), Collected::finish)?;
        Ok(self.bad_rows)
    }
}

/// The file of bad rows: one JSON object per row.
#[derive(Debug)]
struct Collected {
    path: PathBuf,
    out: BufWriter<File>,
}

impl Collected {
    fn create(path: &Path) -> Result<Collected> {
        let file = File::create_new(path)
            .map_err(|error| Failure::io(path.display(), "create", &error))?;
        Ok(Collected { path: path.into(), out: BufWriter::new(file) })
    }

    fn write(&mut self, file: &str, row: u64, flaw: &Flaw, text: &[u8]) -> Result<()> {
        let shown = match std::str::from_utf8(text) {
            Ok(text) => json!(text[..text.floor_char_boundary(BAD_ROW_BYTES_MAX)]),
            Err(_) => {
                let shown = &text[..text.len().min(BAD_ROW_BYTES_MAX)];
                json!({ "base64": BASE64_STANDARD.encode(shown) })
            }
        };
        let mut line = json!({
            "file": file, "line": row, "column": flaw.column, "reason": flaw.reason, "row": shown,
        });
        if text.len() > BAD_ROW_BYTES_MAX {
            line["row_bytes"] = json!(text.len());
        }
        writeln!(self.out, "{line}").map_err(|error| self.failure(&error))
    }

    fn finish(mut self) -> Result<()> {
        self.out.flush().map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &io::Error) -> Failure {
        Failure::io(self.path.display(), "write", error)
    }
}

#[inline]
fn check_key(key: &[u8]) -> Result<(), Flaw> {
    match key.len() {
        0..=KEY_BYTES_MAX => Ok(()),
        len => Err(too_long("key", len, KEY_BYTES_MAX)),
    }
}

pub(super) fn too_long(what: &str, len: usize, limit: usize) -> Flaw {
    Flaw::new(format!("the {what} is {len} bytes long, the longest accepted is {limit}"))
}
