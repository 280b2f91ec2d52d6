//! Takes rows from readers: good rows go to batches, bad rows are handled as `--bad-rows` says.

use super::{
    bad_rows::{BadRowPolicy, BadRows, Head},
    batch::BatchSender,
    key_bytes,
    selection::Plan,
};
use crate::failure::{Failure, Result};
use hashfold::run::VALUE_BYTES_MAX;
use hashfold_rows::{KeyType, KeyTypes, Value};

/// The reason why a row can't be used.
#[derive(Debug)]
pub(crate) struct Flaw {
    /// Position in the row, from 1: a character of a line, or a column of a batch.
    pub(crate) column: Option<usize>,
    /// The column of the file, from 0, whose place in the row the reader may know.
    pub(super) source: Option<usize>,
    pub(crate) reason: String,
}

impl Flaw {
    pub(crate) fn new(reason: impl Into<String>) -> Flaw {
        Flaw { column: None, source: None, reason: reason.into() }
    }

    /// Makes a flaw of a column of the file, counted from 0.
    pub(crate) fn of_column(source: usize, reason: impl Into<String>) -> Flaw {
        Flaw { source: Some(source), ..Flaw::new(reason) }
    }

    #[must_use]
    pub(crate) fn at(mut self, column: usize) -> Flaw {
        self.column.get_or_insert(column);
        self
    }
}

/// Rules for all keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyRules {
    /// Type that all keys must have.
    pub(crate) key_type: KeyType,
    /// Maximum size of a key, in bytes.
    pub(crate) bytes_max: usize,
}

/// Takes the rows of all inputs.
#[derive(Debug)]
pub(crate) struct Sink {
    batches: BatchSender,
    expected: KeyRules,
    /// The types of the keys so far.
    pub(super) keys: KeyTypes,
    /// For each column of the value, whether a row had it.
    filled: Vec<bool>,
    puts: u64,
    deletions: u64,
    bad_rows: BadRows,
}

/// The result of reading all inputs.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    pub(super) puts: u64,
    pub(super) bad_rows: u64,
    pub(super) keys: KeyTypes,
    pub(super) filled: Vec<bool>,
}

impl Sink {
    /// Makes a sink into `batches` for keys that follow these rules.
    pub(crate) fn new(
        batches: BatchSender,
        policy: BadRowPolicy,
        expected: KeyRules,
    ) -> Result<Sink> {
        let bad_rows = BadRows::new(policy)?;
        let (keys, filled) = (KeyTypes::default(), Vec::new());
        Ok(Sink { batches, expected, keys, filled, puts: 0, deletions: 0, bad_rows })
    }

    /// Begins an input.
    pub(super) fn begin(&mut self, head: Head, file: &str) -> Result<()> {
        self.bad_rows.begin(head, file)
    }

    /// Notes that a row has a column of the value.
    #[inline]
    pub(super) fn fill(&mut self, column: usize) {
        match self.filled.get_mut(column) {
            Some(filled) => *filled = true,
            None => {
                self.filled.resize(column, false);
                self.filled.push(true);
            }
        }
    }

    /// Takes a row; `write` appends its value. Refuses rows that are too long.
    #[inline]
    pub(super) fn push(
        &mut self,
        key: &[u8],
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), Flaw>,
    ) -> Result<(), Flaw> {
        self.check_key(key)?;
        self.batches.push(key, write, |value| match value.len() {
            0..=VALUE_BYTES_MAX => Ok(()),
            len => Err(too_long("value", len, VALUE_BYTES_MAX)),
        })?;
        self.puts += 1;
        Ok(())
    }

    /// Takes a row by its plan; `value` returns the column of a number.
    #[inline]
    pub(super) fn push_row<'a>(
        &mut self,
        plan: &Plan,
        key: &[u8],
        value: impl Fn(usize) -> Value<'a>,
    ) -> Result<(), Flaw> {
        match plan.sources[..] {
            [source] if plan.values_are_keys => {
                let value = source.map_or(Value::Null, value);
                let pushed = self.push_key(key, (&plan.schema.columns[0].name, value));
                pushed.map_err(|flaw| Flaw { source, ..flaw })
            }
            _ => self.push(key, |out| plan.encode(value, out)),
        }
    }

    /// Takes a row whose value is a key, in the column `name`. A null is no key, so that the row has no value.
    pub(super) fn push_key(
        &mut self,
        key: &[u8],
        (name, value): (&str, Value<'_>),
    ) -> Result<(), Flaw> {
        if value.is_null() {
            self.check_key(key)?;
            self.batches.delete(key);
            self.puts += 1;
            return Ok(());
        }
        let bytes_max = self.expected.bytes_max;
        self.push(key, |out| {
            let start = out.len();
            key_bytes::put(value, out).map_err(|reason| key_bytes::flaw(name, reason))?;
            match out.len() - start {
                len if len > bytes_max => Err(too_long("key", len, bytes_max)),
                _ => Ok(()),
            }
        })
    }

    /// Takes a row that deletes its key.
    pub(super) fn delete(&mut self, key: &[u8]) -> Result<(), Flaw> {
        self.check_key(key)?;
        self.batches.delete(key);
        self.deletions += 1;
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
            Err(flaw) => self.bad_rows.refuse(file, row, &flaw, text, self.puts + self.deletions),
        }
    }

    /// Returns whether a bad row's text is kept.
    #[cfg(feature = "columnar")]
    pub(super) fn keeps_bad_rows(&self) -> bool {
        self.bad_rows.keeps_text()
    }

    /// Sends the rows so far, because the next rows may come late.
    pub(super) fn pause(&mut self) -> Result<()> {
        self.batches.pause()
    }

    /// Sends the last rows. Fails if too many rows were bad.
    pub(super) fn finish(mut self) -> Result<Counts> {
        self.batches.flush()?;
        let Sink { puts, deletions, keys, filled, .. } = self;
        let bad_rows = self.bad_rows.finish(puts + deletions)?;
        Ok(Counts { puts, bad_rows, keys, filled })
    }

    #[inline]
    fn check_key(&self, key: &[u8]) -> Result<(), Flaw> {
        let KeyRules { key_type, bytes_max } = self.expected;
        if key.len() > bytes_max {
            return Err(too_long("key", key.len(), bytes_max));
        }
        match key_type.accepts(key) {
            true => Ok(()),
            false => Err(Flaw::new(format!(
                "the key is {}, and those of the store are integers",
                crate::preview::key(key)
            ))),
        }
    }
}

pub(super) fn too_long(what: &str, len: usize, limit: usize) -> Flaw {
    Flaw::new(format!("the {what} is {len} bytes long, the longest accepted is {limit}"))
}

/// Makes a failure for columns that no row of the inputs has.
pub(super) fn never_filled(file: &str, column: &str) -> Failure {
    Failure::input(
        file,
        format_args!(
            "no row has the field \"{}\"; check its name, or store null with --schema fill",
            crate::preview::name(column)
        ),
    )
}
