//! `hashfold get`: looks up keys and writes their values in the order of the keys.

use crate::{
    failure::{Exit, Failure, Result},
    input::{Meter, open_polled, read_failure},
    options::AccessName,
    output::{EntryWriter, OutputFormat, write_bytes},
    preview,
    source::{Source, SourceArgs},
};
use clap::Args;
use hashfold::{ReadOptions, io::Access, run::KEY_BYTES_MAX};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use std::{
    ffi::OsString,
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _},
    ops::Range,
    os::unix::ffi::OsStringExt as _,
    time::{Duration, Instant},
};

/// Look up keys and write their values in the order of the keys
///
/// Formats: JSON Lines, one object per key with the columns of the value; CSV with a header; or raw:
/// the bytes of the value if one KEY is given, otherwise length-prefixed entries as `build --format
/// raw` reads them.
///
/// If a key is absent, the exit code is 1. JSON Lines then has {"KEY COLUMN":"key","found":false};
/// CSV and raw output leave the key out. Bytes that are not UTF-8 are written as {"base64":"..."} in
/// JSON.
///
/// Keys of a file are looked up in large batches with many reads in flight. Keys on standard input
/// are answered whenever the input pauses; meanwhile the command follows the store's current
/// version.
#[derive(Args, Debug)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Keys to look up
    #[arg(value_name = "KEY", required_unless_present = "keys", allow_negative_numbers = true)]
    key: Vec<OsString>,
    /// File with one key per line, plain, .gz or .zst; '-' reads standard input
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    keys: Option<String>,
    /// Output format
    #[arg(long, default_value = "json")]
    format: OutputFormat,
    /// Way to read the data; cached and mapped are faster if the data fit in RAM
    #[arg(long, default_value = "direct")]
    access: AccessName,
}

/// Maximum number of keys in a batch.
const BATCH_KEYS: usize = 4096;

/// Target size of the values of a batch, in bytes; they wait in RAM to be written in order.
const BATCH_BYTES: u64 = 64 << 20;

/// Longest line of keys that is read, in bytes: the longest key and its line end.
const LINE_BYTES_MAX: u64 = KEY_BYTES_MAX as u64 + 2;

/// Time between two checks for a new current version.
const REFRESH_INTERVAL: Duration = Duration::from_millis(200);

pub(crate) fn run(args: &GetArgs) -> Result<Exit> {
    // A memory map opens at once; reading the whole index pays off for many lookups.
    let index = if args.keys.is_some() { Access::Cached } else { Access::Mapped };
    let options = ReadOptions::new().data(args.access.into()).index(index);
    let source = match &args.keys {
        Some(path) if path == "-" => args.source.follow(options)?,
        _ => args.source.open(options)?,
    };
    if let (OutputFormat::Raw, [key]) = (args.format, &args.key[..]) {
        return get_bytes(&source, key.as_encoded_bytes());
    }
    let writer = EntryWriter::new(args.format, source.schema()?)?;
    let mut lookup = Lookup::new(&source, writer);
    match &args.keys {
        None => {
            for key in &args.key {
                lookup.push(key.clone().into_vec())?;
            }
        }
        Some(path) => lookup.push_lines(path)?,
    }
    lookup.finish()
}

fn get_bytes(source: &Source, key: &[u8]) -> Result<Exit> {
    match source.get(key)? {
        Some(value) => write_bytes(&value).map(|()| Exit::Done),
        None => Err(absent(1, 1, key)),
    }
}

/// Returns whether a read would return at once.
fn is_ready(file: &File) -> io::Result<bool> {
    const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&AT_ONCE)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Looks up keys in batches.
struct Lookup<'a> {
    source: &'a Source,
    /// Time of the last check for a new current version.
    refreshed: Instant,
    writer: EntryWriter,
    keys: Vec<Vec<u8>>,
    /// Values of a batch, in the order in which the reads completed.
    bytes: Vec<u8>,
    /// Position of each key's value in `bytes`.
    values: Vec<Option<Range<usize>>>,
    batch_keys: usize,
    asked: u64,
    absent: u64,
    first_absent: Vec<u8>,
}

impl<'a> Lookup<'a> {
    fn new(source: &'a Source, writer: EntryWriter) -> Lookup<'a> {
        Lookup {
            source,
            refreshed: Instant::now(),
            writer,
            keys: Vec::new(),
            bytes: Vec::new(),
            values: Vec::new(),
            batch_keys: batch_keys(source.mean_value_bytes()),
            asked: 0,
            absent: 0,
            first_absent: Vec::new(),
        }
    }

    fn push(&mut self, key: Vec<u8>) -> Result<()> {
        self.keys.push(key);
        if self.keys.len() >= self.batch_keys { self.flush() } else { Ok(()) }
    }

    /// Adds the lines of a file, without line ends, as keys.
    fn push_lines(&mut self, path: &str) -> Result<()> {
        let failure = |error| read_failure(path, &error);
        let (bytes, handle) = open_polled(path, &Meter::default())?;
        let mut lines = BufReader::new(bytes);
        for number in 1u64.. {
            if !lines.buffer().contains(&b'\n') && !is_ready(&handle).map_err(failure)? {
                // The process that writes the keys may wait for the answers.
                self.flush()?;
                self.writer.flush()?;
            }
            let mut line = Vec::new();
            let mut bounded = (&mut lines).take(LINE_BYTES_MAX);
            if bounded.read_until(b'\n', &mut line).map_err(failure)? == 0 {
                break;
            }
            for end in [b'\n', b'\r'] {
                line.pop_if(|last| *last == end);
            }
            if line.len() > KEY_BYTES_MAX {
                let what = format!(
                    "the key is longer than {KEY_BYTES_MAX} bytes, the longest that a data set has"
                );
                return Err(Failure::input(format_args!("{path}:{number}"), what));
            }
            self.push(line)?;
        }
        Ok(())
    }

    fn refresh(&mut self) -> Result<()> {
        if self.refreshed.elapsed() >= REFRESH_INTERVAL {
            self.source.refresh()?;
            self.refreshed = Instant::now();
        }
        Ok(())
    }

    /// Looks up the waiting keys and writes their values in order.
    fn flush(&mut self) -> Result<()> {
        self.refresh()?;
        let Lookup { bytes, values, .. } = self;
        bytes.clear();
        values.clear();
        values.resize(self.keys.len(), None);
        let mut largest = 0;
        self.source.get_many(&self.keys, &mut |i, value| {
            if let Some(value) = value {
                let start = bytes.len();
                bytes.extend_from_slice(value);
                values[i] = Some(start..bytes.len());
                largest = largest.max(value.len() as u64);
            }
            Ok(())
        })?;
        self.batch_keys = self.batch_keys.min(batch_keys(largest));
        self.write()
    }

    fn write(&mut self) -> Result<()> {
        for (key, value) in self.keys.iter().zip(&self.values) {
            match value {
                Some(range) => self.writer.entry(key, &self.bytes[range.clone()])?,
                None => {
                    if self.absent == 0 {
                        self.first_absent.clone_from(key);
                    }
                    self.absent += 1;
                    self.writer.absent(key)?;
                }
            }
        }
        self.asked += self.keys.len() as u64;
        self.keys.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<Exit> {
        self.flush()?;
        self.writer.finish()?;
        match self.absent {
            0 => Ok(Exit::Done),
            count => Err(absent(count, self.asked, &self.first_absent)),
        }
    }
}

/// Returns the number of keys per batch if values have this size.
fn batch_keys(value_bytes: u64) -> usize {
    ((BATCH_BYTES / value_bytes.max(1)) as usize).clamp(1, BATCH_KEYS)
}

fn absent(count: u64, asked: u64, first: &[u8]) -> Failure {
    let first = preview::key(first);
    let message = match (count, asked) {
        (1, 1) => format!("key {first} is absent"),
        (1, _) => format!("1 of {asked} keys is absent: {first}"),
        _ => format!("{count} of {asked} keys are absent, the first is {first}"),
    };
    Failure { exit: Exit::No, message }
}
