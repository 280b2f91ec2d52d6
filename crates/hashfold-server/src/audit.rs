//! The audit log: who changed which version is current or pinned, and why.
//!
//! The file is JSON Lines. `docs/formats/audit.md` has the same table:
//!
//! | field    |                                                                              |
//! |----------|------------------------------------------------------------------------------|
//! | at_ms    | time of the line, in milliseconds since 1970                                 |
//! | change   | number of the change, from 1 on                                              |
//! | event    | `begin` before the change, `done` or `failed` after it                       |
//! | who      | the name of the token, or of the Redis user                                  |
//! | via      | `page`, `http` or `redis`                                                    |
//! | action   | `publish`, `rollback`, `pin`, `unpin` or `cancel`                            |
//! | store    | name of the store                                                            |
//! | version  | the version that was asked for; after the change, the one it was made to     |
//! | reason   | why, in the words of the one who did it                                      |
//! | seq      | after the change, the sequence number of the pointer                         |
//! | error    | after a failure, its message                                                 |
//! | previous | SHA-256 hash of the line before, in hexadecimal digits; zeros in the first   |
//!
//! A line is durable before the change begins, and another one before its result is known to anybody. A
//! line that was changed, removed or inserted later shows, since the hashes of all lines after it are
//! others.

use hashfold::{
    Env, Error, ErrorKind, Result,
    io::{Access, BlockFile, Lock, read_all},
};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::{
    collections::VecDeque,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Maximum size of the log, in bytes: more than 100,000 changes.
const SIZE_MAX: u64 = 64 << 20;

/// Maximum number of lines that are kept in memory, to be shown.
const SHOWN_MAX: usize = 1000;

/// The `previous` of the first line.
const FIRST: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Whether a change is about to happen, has happened, or has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Event {
    Begin,
    Done,
    Failed,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) at_ms: u64,
    pub(crate) change: u64,
    pub(crate) event: Event,
    #[serde(flatten)]
    pub(crate) what: What,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seq: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    previous: String,
}

impl Line {
    /// Returns the time of the line, in seconds since 1970.
    pub(crate) fn at_s(&self) -> u64 {
        self.at_ms / 1000
    }
}

/// A change that somebody asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct What {
    pub(crate) who: String,
    pub(crate) via: String,
    pub(crate) action: String,
    pub(crate) store: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<u64>,
    pub(crate) reason: String,
}

/// The audit log of a server, which only this server writes.
#[derive(Debug)]
pub(crate) struct AuditLog {
    env: Env,
    file: Arc<dyn BlockFile>,
    lines: Mutex<Lines>,
    _lock: Box<dyn Lock>,
}

/// The complete lines of a log.
#[derive(Debug)]
struct Lines {
    /// Size of all lines, in bytes.
    size: u64,
    /// The hash of the last line.
    hash: String,
    /// The number of the last change.
    change: u64,
    /// The last lines, the latest first.
    shown: VecDeque<Line>,
}

impl Lines {
    fn add(&mut self, bytes: &[u8], line: Line) {
        self.size += bytes.len() as u64 + 1;
        self.hash = hex(digest(&SHA256, bytes).as_ref());
        self.change = self.change.max(line.change);
        self.shown.truncate(SHOWN_MAX - 1);
        self.shown.push_front(line);
    }
}

/// Returns bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl AuditLog {
    /// Opens the log, which is created if it does not exist, and checks all of its hashes. A last line that
    /// a crash left incomplete does not count: its change did not begin, or its result was not known to
    /// anybody.
    ///
    /// # Errors
    /// `Busy` if another server has it open; `Field` if a line is not the one that was written; `Limit` if
    /// the log is too large. Move the file away to begin a new one.
    pub(crate) fn open(env: &Env, path: &Path) -> Result<AuditLog> {
        let disk = env.disk.as_ref();
        if !disk.exists(path)? {
            disk.create(path, Access::Cached)?.sync()?;
            disk.sync_folder(path.parent().unwrap_or(Path::new("")))?;
        }
        let lock = disk.lock(path)?;
        let file = disk.open_to_write(path, Access::Cached)?;
        let lines = Mutex::new(read(file.as_ref())?);
        Ok(AuditLog { env: env.clone(), file, lines, _lock: lock })
    }

    /// Checks all hashes of a log, which another server may have open.
    ///
    /// # Errors
    /// Those of [`AuditLog::open`].
    pub(crate) fn check(env: &Env, path: &Path) -> Result<()> {
        match env.disk.exists(path)? {
            false => Ok(()),
            true => read(env.disk.open(path, Access::Cached)?.as_ref()).map(|_| ()),
        }
    }

    /// Notes durably that a change is about to happen, and returns its number.
    ///
    /// # Errors
    /// The line is not durable; the change must not happen.
    pub(crate) fn begin(&self, what: &What) -> Result<u64> {
        let mut lines = self.lock();
        let change = lines.change + 1;
        self.append(&mut lines, (change, Event::Begin), what, None, None)?;
        Ok(change)
    }

    /// Notes durably that a change has happened, with the sequence number of the pointer after it, or that
    /// it has failed, with the reason.
    ///
    /// # Errors
    /// The line is not durable, which does not undo the change.
    pub(crate) fn end(
        &self,
        change: u64,
        what: &What,
        result: std::result::Result<u64, &str>,
    ) -> Result<()> {
        let (event, seq, error) = match result {
            Ok(seq) => (Event::Done, Some(seq), None),
            Err(error) => (Event::Failed, None, Some(error.to_owned())),
        };
        self.append(&mut self.lock(), (change, event), what, seq, error)
    }

    /// Returns the last lines, at most `count`, the latest first.
    pub(crate) fn last(&self, count: usize) -> Vec<Line> {
        self.lock().shown.iter().take(count).cloned().collect()
    }

    fn append(
        &self,
        lines: &mut Lines,
        (change, event): (u64, Event),
        what: &What,
        seq: Option<u64>,
        error: Option<String>,
    ) -> Result<()> {
        let at_ms = self.env.clock.unix_time().as_millis() as u64;
        let previous = lines.hash.clone();
        let line = Line { at_ms, change, event, what: what.clone(), seq, error, previous };
        let mut bytes = serde_json::to_vec(&line).expect("a line has texts and numbers");
        // Blanks cover what a crash or a failed write left after the last complete line.
        let rest = self.file.size()?.saturating_sub(lines.size) as usize;
        bytes.resize(bytes.len().max(rest), b' ');
        bytes.push(b'\n');
        let size = lines.size + bytes.len() as u64;
        if size > SIZE_MAX {
            let what = "size of the audit log";
            let kind = ErrorKind::Limit { what, limit: SIZE_MAX, got: size };
            return Err(Error::new(kind).at(self.file.place()));
        }
        self.file.write_at(lines.size, &bytes)?;
        self.file.sync()?;
        lines.add(&bytes[..bytes.len() - 1], line);
        Ok(())
    }

    /// The lines are changed only after a write, so they can be used after a panic.
    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(file: &dyn BlockFile) -> Result<Lines> {
    check(&read_all(file, SIZE_MAX)?).map_err(|error| error.at(file.place()))
}

/// Checks all complete lines of a log.
///
/// # Errors
/// A line with others after it is not the one that was written.
fn check(bytes: &[u8]) -> Result<Lines> {
    let mut lines = Lines { size: 0, hash: FIRST.to_owned(), change: 0, shown: VecDeque::new() };
    while let Some(length) = memchr::memchr(b'\n', &bytes[lines.size as usize..]) {
        let start = lines.size as usize;
        let line = &bytes[start..start + length];
        let is_last = start + length + 1 == bytes.len();
        match serde_json::from_slice::<Line>(line) {
            Ok(parsed) if parsed.previous == lines.hash => lines.add(line, parsed),
            // A power cut may leave the end of a line without its start.
            Err(_) if is_last => break,
            Ok(parsed) => return Err(changed(start, &lines.hash, parsed.previous)),
            Err(error) => return Err(changed(start, &lines.hash, error.to_string())),
        }
    }
    Ok(lines)
}

/// Returns the error for a line that is not the one that was written.
fn changed(offset: usize, expected: &str, got: String) -> Error {
    let what = "line of the audit log";
    let expected = format!("at byte {offset} one whose `previous` is {expected}");
    Error::new(ErrorKind::Field { what, expected, got })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hashfold::io::{Disk, Fault, FaultPlan, FaultyDisk, MemoryDisk};

    fn path() -> &'static Path {
        Path::new("audit.jsonl")
    }

    fn what(version: u64) -> What {
        What {
            who: "eve".into(),
            via: "http".into(),
            action: "publish".into(),
            store: "people".into(),
            version: Some(version),
            reason: "tested".into(),
        }
    }

    /// Makes changes until one fails, and returns the number of lines that are durable.
    fn change(env: &Env, count: u64) -> Result<usize> {
        let log = AuditLog::open(env, path())?;
        let mut lines = log.last(SHOWN_MAX).len();
        for version in 0..count {
            let Ok(number) = log.begin(&what(version)) else { break };
            lines += 1;
            if log.end(number, &what(version), Ok(version)).is_err() {
                break;
            }
            lines += 1;
        }
        Ok(lines)
    }

    fn bytes(disk: &dyn Disk) -> Vec<u8> {
        let file = disk.open(path(), Access::Cached).unwrap();
        read_all(file.as_ref(), SIZE_MAX).unwrap().to_vec()
    }

    #[test]
    fn changes_are_numbered_across_restarts() {
        let env = Env::simulated(1);
        assert_eq!(change(&env, 2).unwrap(), 4);
        assert_eq!(change(&env, 1).unwrap(), 6);
        let log = AuditLog::open(&env, path()).unwrap();
        let last = log.last(2);
        assert_eq!((last[0].change, last[0].event, last[0].seq), (3, Event::Done, Some(0)));
        assert_eq!((last[1].change, last[1].event), (3, Event::Begin));
        log.end(3, &what(7), Err("full")).unwrap();
        assert_eq!(log.last(1)[0].error.as_deref(), Some("full"));
    }

    /// Each byte of the log counts: whichever is changed, the log is refused, or loses its last line.
    #[test]
    fn a_changed_log_is_noticed() {
        let env = Env::simulated(1);
        change(&env, 3).unwrap();
        let good = bytes(env.disk.as_ref());
        let lines = good.iter().filter(|byte| **byte == b'\n').count();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            let is_noticed = match check(&bad) {
                Ok(held) => held.shown.len() < lines || held.hash != check(&good).unwrap().hash,
                Err(error) => matches!(error.kind(), ErrorKind::Field { .. }),
            };
            assert!(is_noticed, "byte {at}");
        }
        let second = good.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        assert!(check(&good[second..]).is_err(), "the first line is missing");
    }

    #[test]
    fn what_was_acknowledged_survives_a_power_cut_at_every_write() {
        for operation in 0.. {
            let fault = Fault::PowerCut { operation };
            let faulty = FaultyDisk::over(&MemoryDisk::default(), FaultPlan::from(fault));
            let lines = change(&Env::on(Arc::new(faulty.clone())), 3).unwrap_or(0);
            for seed in 0..4 {
                let env = Env::on(Arc::new(faulty.after_power_cut(seed)));
                let held = AuditLog::open(&env, path()).unwrap().last(SHOWN_MAX).len();
                assert!(
                    held == lines || held == lines + 1,
                    "{held} of {lines}, cut at {operation}"
                );
                assert_eq!(change(&env, 1).unwrap(), held + 2);
                assert_eq!(AuditLog::open(&env, path()).unwrap().last(SHOWN_MAX).len(), held + 2);
            }
            if lines == 6 {
                assert!(operation > 12, "each line is a write and a sync");
                return;
            }
        }
    }

    #[test]
    fn a_change_that_cannot_be_noted_is_refused_and_the_next_one_is_noted() {
        for bytes in 0..600 {
            let fault = Fault::FullAfter { bytes };
            let full = FaultyDisk::over(&MemoryDisk::default(), FaultPlan::from(fault));
            let env = Env::on(Arc::new(full.clone()));
            let log = AuditLog::open(&env, path()).unwrap();
            let noted = (0..9).take_while(|version| log.begin(&what(*version)).is_ok()).count();
            assert!(noted < 9);
            full.heal();
            log.begin(&what(9)).unwrap();
            drop(log);
            let last = AuditLog::open(&env, path()).unwrap().last(SHOWN_MAX);
            assert_eq!(last.len(), noted + 1);
            assert_eq!(last[0].what, what(9));
        }
    }
}
