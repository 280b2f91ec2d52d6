//! Rows that can't be used: they stop the command, or they are counted and may be collected in a
//! file, up to a limit.
//!
//! The file has the rows as they were in the input, after its header if there is one, so that it can
//! be read again after a repair. A second file has the reasons. Both are written under other names
//! and renamed at the end, so a run replaces the files of the run before.

use super::{Format, sink::Flaw, source};
use crate::{
    device,
    failure::{Exit, Failure, Result},
    units,
};
use hashfold::folder::check_outside;
use serde_json::json;
use std::{
    ffi::OsString,
    fmt,
    fs::{self, File},
    io::{self, BufWriter, Write as _},
    path::{Path, PathBuf},
};

/// What happens with rows that can't be used.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BadRowPolicy {
    pub(crate) action: BadRowAction,
    /// The number of rows that are skipped or collected.
    pub(crate) limit: BadRowLimit,
}

/// Actions for a row that can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BadRowAction {
    /// End the command.
    Stop,
    /// Count the row.
    Skip,
    /// Count the row and write it to this file.
    Collect(PathBuf),
}

/// The number of bad rows at which the command fails if it skips or collects them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum BadRowLimit {
    /// Maximum number.
    Count(u64),
    /// Maximum percentage of all rows.
    Percent(f64),
}

/// The format of an input's rows, and its header, which is empty if there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) format: Format,
    pub(super) header: Vec<u8>,
}

/// The bad rows of all inputs.
#[derive(Debug)]
pub(super) struct BadRows {
    policy: BadRowPolicy,
    /// Files of bad rows under the action `Collect`.
    collected: Option<Collected>,
    count: u64,
    /// Place and reason of the first bad row.
    first: Option<String>,
}

/// A percentage is checked while reading once there are this many bad rows: the first rows of an
/// input may be worse than the others.
const ROWS_EARLY: u64 = 1000;

impl BadRowPolicy {
    /// Ends the command at the first bad row.
    pub(crate) const STOP: BadRowPolicy =
        BadRowPolicy { action: BadRowAction::Stop, limit: BadRowLimit::Count(0) };
}

impl BadRowPolicy {
    /// Refuses a file of bad rows that cannot take them: one of the inputs, or one that is compressed
    /// by its name.
    pub(super) fn check<'a>(&self, mut inputs: impl Iterator<Item = &'a String>) -> Result<()> {
        let BadRowAction::Collect(path) = &self.action else { return Ok(()) };
        let name = &path.to_string_lossy();
        let same = |input: &&String| match (fs::canonicalize(input), fs::canonicalize(path)) {
            (Ok(input), Ok(path)) => input == path,
            _ => false,
        };
        let what = if inputs.find(same).is_some() {
            "is an input, and would be replaced by the rows that are still bad; name another file for \
             --bad-rows"
        } else if source::unpacked_name(name).len() < name.len() {
            "bad rows are not compressed; name a file without .gz or .zst for --bad-rows"
        } else {
            return Ok(());
        };
        Err(Failure::usage(format!("{}: {what}", path.display())))
    }
}

impl BadRowLimit {
    fn is_passed(self, bad: u64, good: u64) -> bool {
        match self {
            BadRowLimit::Count(most) => bad > most,
            BadRowLimit::Percent(most) => bad as f64 * 100.0 > most * (bad + good) as f64,
        }
    }
}

impl fmt::Display for BadRowLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadRowLimit::Count(most) => write!(f, "{most}"),
            BadRowLimit::Percent(most) => write!(f, "{most}%"),
        }
    }
}

impl BadRows {
    pub(super) fn new(policy: BadRowPolicy) -> Result<BadRows> {
        let collected = match &policy.action {
            BadRowAction::Collect(path) => {
                check_outside(device::disk().as_ref(), path)?;
                Some(Collected::create(path)?)
            }
            BadRowAction::Stop | BadRowAction::Skip => None,
        };
        Ok(BadRows { policy, collected, count: 0, first: None })
    }

    /// Begins an input, whose header comes before its rows.
    pub(super) fn begin(&mut self, head: Head, file: &str) -> Result<()> {
        self.collected.as_mut().map_or(Ok(()), |collected| collected.begin(head, file))
    }

    /// Whether the text of a bad row is of use.
    #[cfg(feature = "columnar")]
    pub(super) fn keeps_text(&self) -> bool {
        self.collected.is_some()
    }

    /// Takes row number `row` of `file`; `good` rows were good so far.
    #[cold]
    pub(super) fn refuse(
        &mut self,
        file: &str,
        row: u64,
        flaw: &Flaw,
        text: &[u8],
        good: u64,
    ) -> Result<()> {
        let column = flaw.column.map(|column| format!(":{column}")).unwrap_or_default();
        let place = format!("{file}:{row}{column}");
        if self.policy.action == BadRowAction::Stop {
            return Err(Failure::input(place, &flaw.reason));
        }
        self.count += 1;
        self.first.get_or_insert_with(|| format!("{place}: {}", flaw.reason));
        if let Some(collected) = &mut self.collected {
            collected.write(file, row, flaw, text)?;
        }
        let limit = self.policy.limit;
        let is_early = matches!(limit, BadRowLimit::Percent(_)) && self.count < ROWS_EARLY;
        if !is_early && limit.is_passed(self.count, good) {
            return Err(self.too_many(good));
        }
        Ok(())
    }

    /// Ends all inputs; returns the number of bad rows.
    pub(super) fn finish(mut self, good: u64) -> Result<u64> {
        let is_passed = self.policy.limit.is_passed(self.count, good);
        if self.count > 0 && (good == 0 || is_passed) {
            return Err(self.too_many(good));
        }
        self.collected.take().map_or(Ok(()), Collected::finish)?;
        Ok(self.count)
    }

    /// Makes the failure for too many bad rows. The rows so far are kept, for they are to be
    /// repaired.
    fn too_many(&mut self, good: u64) -> Failure {
        if let Err(failure) = self.collected.take().map_or(Ok(()), Collected::finish) {
            return failure;
        }
        let first = self.first.take().unwrap_or_default();
        let bad = units::count(self.count);
        let message = match good {
            0 => format!("all {bad} rows read are bad, the first is {first}"),
            _ => format!(
                "{bad} of {} rows read are bad, more than --max-bad-rows {}; the first is {first}",
                units::count(self.count + good),
                self.policy.limit,
            ),
        };
        Failure { exit: Exit::Input, message }
    }
}

/// The file of bad rows and the file of their reasons: a JSON object a row.
#[derive(Debug)]
struct Collected {
    rows: NewFile,
    reasons: NewFile,
    head: Option<Head>,
}

impl Collected {
    /// Refuses to replace a file that no earlier run made, which has one of reasons beside it.
    fn create(path: &Path) -> Result<Collected> {
        let reasons = with_ending(path, ".reasons");
        if path.exists() && !reasons.exists() {
            let what = "the file exists, and is not one of bad rows from an earlier run, which would be \
                        replaced; name another one";
            return Err(Failure::usage(format!("{}: {what}", path.display())));
        }
        let (rows, reasons) = (NewFile::create(path)?, NewFile::create(&reasons)?);
        Ok(Collected { rows, reasons, head: None })
    }

    fn begin(&mut self, head: Head, file: &str) -> Result<()> {
        match &self.head {
            Some(first) if *first == head => Ok(()),
            Some(_) => Err(Failure::usage(format!(
                "{file}: has another header or format than the input before; one file of bad rows \
                 takes only rows that are alike, so read these inputs one by one"
            ))),
            None => {
                if !head.header.is_empty() {
                    self.rows.write(&head.header)?;
                    self.rows.write(b"\n")?;
                }
                self.head = Some(head);
                Ok(())
            }
        }
    }

    fn write(&mut self, file: &str, row: u64, flaw: &Flaw, text: &[u8]) -> Result<()> {
        let reason = json!({
            "file": file, "line": row, "column": flaw.column, "reason": flaw.reason,
        });
        self.reasons.write(format!("{reason}\n").as_bytes())?;
        if text.is_empty() {
            // A line that is too long for a key, or a record that is cut short: nothing to repair.
            return Ok(());
        }
        self.rows.write(text)?;
        let is_lines = self.head.as_ref().is_none_or(|head| head.format != Format::Raw);
        if is_lines { self.rows.write(b"\n") } else { Ok(()) }
    }

    fn finish(self) -> Result<()> {
        self.rows.finish()?;
        self.reasons.finish()
    }
}

/// A file that replaces one of its name when it is complete, and is removed if it never is.
#[derive(Debug)]
struct NewFile {
    path: PathBuf,
    new: PathBuf,
    out: BufWriter<File>,
    is_done: bool,
}

impl NewFile {
    fn create(path: &Path) -> Result<NewFile> {
        let new = with_ending(path, ".new");
        let file =
            File::create(&new).map_err(|error| Failure::io(new.display(), "create", &error))?;
        Ok(NewFile { path: path.into(), new, out: BufWriter::new(file), is_done: false })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(|error| self.failure(&error))
    }

    fn finish(mut self) -> Result<()> {
        self.out.flush().map_err(|error| self.failure(&error))?;
        fs::rename(&self.new, &self.path).map_err(|error| self.failure(&error))?;
        self.is_done = true;
        Ok(())
    }

    fn failure(&self, error: &io::Error) -> Failure {
        Failure::io(self.path.display(), "write", error)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_done {
            // There is nothing to be done if it fails; the next run replaces the file.
            let _ = fs::remove_file(&self.new);
        }
    }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}
