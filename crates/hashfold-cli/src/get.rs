//! `hashfold get`: looks up keys and writes their values in the order of the keys.

use crate::{
    failure::{Exit, Failure, Result},
    input::{BadRowPolicy, Format},
    keys::{self, KeyArgs},
    options::AccessArgs,
    output::{EntryWriter, OutputFormat, write_bytes},
    preview,
    progress::Show,
    rows::TextArgs,
    source::{Followed, Source, SourceArgs},
    stop::Stop,
    wait::{MapWaitArgs, WaitArgs},
};
use clap::Args;
use hashfold::{ReadOptions, io::Access};
use std::{
    ops::Range,
    path::Path,
    time::{Duration, Instant},
};

/// Look up keys and write their values in the order of the keys
///
/// Formats: JSON Lines, one object per key with the columns of the value; CSV with a header; Arrow IPC
/// and Parquet; or raw: the bytes of the value if one KEY is given, otherwise length-prefixed entries
/// as `build --format raw` reads them.
///
/// If a key is absent, the exit code is 1. JSON Lines then has {"KEY COLUMN":"key","found":false};
/// other formats leave the key out. Bytes that are not UTF-8 are written as {"base64":"..."} in
/// JSON.
///
/// Keys of a file are looked up in large batches with many reads in flight. Keys on standard input
/// are answered whenever the input pauses; if they are looked up in a store, meanwhile the command follows
/// its current version.
#[derive(Args, Debug)]
#[command(override_usage = "hashfold get [OPTIONS] <DIR> <KEY>...\n       \
                            hashfold get [OPTIONS] <DIR> --keys <FILE> [--key <COL>]")]
pub(crate) struct GetArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    keys: KeyArgs,
    /// Column with the keys in the files of --keys
    #[arg(long, value_name = "COL", requires = "files")]
    key: Option<String>,
    /// Format of the files of --keys [default: one key per line, or with --key, by the file names]
    #[arg(long, value_name = "FORMAT", requires = "files")]
    keys_format: Option<Format>,
    #[command(flatten)]
    text: TextArgs,
    /// Output format
    #[arg(long, default_value = "json")]
    format: OutputFormat,
    #[command(flatten)]
    access: AccessArgs,
    /// Search the data without the index, with 2 to 4 reads per key
    #[arg(long)]
    without_index: bool,
    #[command(flatten)]
    wait: MapWaitArgs,
}

/// Maximum number of keys in a batch.
const BATCH_KEYS: usize = 4096;

/// Target size of the values of a batch, in bytes; they wait in RAM to be written in order.
const BATCH_BYTES: u64 = 64 << 20;

/// Memory for keys that wait, in bytes.
const KEYS_BYTES: usize = 16 << 20;

/// Time between two checks for a new current version.
const REFRESH_INTERVAL: Duration = Duration::from_millis(200);

pub(crate) fn run(args: &GetArgs) -> Result<Exit> {
    args.keys.require("get DIR")?;
    let given = args.keys.given();
    // A memory map opens at once; reading the whole index pays off for many lookups.
    let index = if given.is_empty() { Access::Cached } else { Access::Mapped };
    let options = args.access.to_look_up(ReadOptions::new().index(index));
    let options = if args.without_index { options.without_index() } else { options };
    let stop = Stop::never();
    let follow = || args.source.follow(options.clone());
    let followed = WaitArgs::from(args.wait).retry(&stop, follow)?;
    followed.source.note_index_damage(&args.source.folder);
    let files = keys::read_options(args.key.as_deref(), args.keys_format, &args.text)?;
    let keys = args.keys.open(files, &stop)?;
    if let (OutputFormat::Raw, [key]) = (args.format, given) {
        return get_bytes(&followed.source, key.as_encoded_bytes());
    }
    if followed.source.accesses().is_any(Access::Direct) {
        args.keys.note_refused_io_uring();
    }
    let mut keys = keys.start(BadRowPolicy::STOP, KEYS_BYTES, Show::Nothing)?;
    let writer = EntryWriter::new(args.format, followed.source.schema()?)?;
    let mut lookup = Lookup::new(followed, args.keys.reads_standard_input(), writer);
    while let Some(batch) = keys.next(&stop, &mut || Ok(()))? {
        batch.keys().try_for_each(|key| lookup.push(key.to_vec()))?;
        // The process that writes the keys may wait for the answers.
        lookup.flush()?;
    }
    keys.finish()?;
    lookup.finish()
}

fn get_bytes(source: &Source, key: &[u8]) -> Result<Exit> {
    match source.get(key)? {
        Some(value) => write_bytes(&value).map(|()| Exit::Done),
        None => Err(absent(1, 1, key)),
    }
}

/// Looks up keys in batches.
struct Lookup {
    followed: Followed,
    /// Whether later batches are looked up in later versions.
    follows: bool,
    /// Time of the last check for a new current version.
    refreshed: Instant,
    writer: EntryWriter,
    keys: Vec<Vec<u8>>,
    /// Values of a batch, in the order in which the reads completed.
    bytes: Vec<u8>,
    answers: Vec<Answer>,
    batch_keys: usize,
    asked: u64,
    absent: u64,
    first_absent: Vec<u8>,
    /// Number of keys that could not be looked up because data are damaged or cannot be read.
    unknown: u64,
    /// The first damage.
    damage: Option<Failure>,
}

/// The answer for one key.
#[derive(Clone, Debug)]
enum Answer {
    Absent,
    /// The position of the value in the bytes of the batch.
    Found(Range<usize>),
    /// The key may be in damaged data.
    Unknown,
}

impl GetArgs {
    /// Returns the folder of the data set.
    pub(crate) fn folder(&self) -> &Path {
        &self.source.folder
    }
}

impl Lookup {
    fn new(followed: Followed, follows: bool, writer: EntryWriter) -> Lookup {
        Lookup {
            batch_keys: batch_keys(followed.source.mean_value_bytes()),
            followed,
            follows,
            refreshed: Instant::now(),
            writer,
            keys: Vec::new(),
            bytes: Vec::new(),
            answers: Vec::new(),
            asked: 0,
            absent: 0,
            first_absent: Vec::new(),
            unknown: 0,
            damage: None,
        }
    }

    fn push(&mut self, key: Vec<u8>) -> Result<()> {
        self.keys.push(key);
        if self.keys.len() >= self.batch_keys { self.flush() } else { Ok(()) }
    }

    fn refresh(&mut self) -> Result<()> {
        if self.follows && self.refreshed.elapsed() >= REFRESH_INTERVAL {
            if self.followed.refresh()? {
                self.writer.set_schema(self.followed.source.schema()?)?;
            }
            self.refreshed = Instant::now();
        }
        Ok(())
    }

    /// Looks up the waiting keys and writes their values in order.
    fn flush(&mut self) -> Result<()> {
        self.refresh()?;
        match self.look_up() {
            // The other keys have answers.
            Err(failure) if is_of_one_table(&failure) => self.look_up_rest()?,
            other => other?,
        }
        self.write()?;
        self.writer.flush()
    }

    fn look_up(&mut self) -> Result<()> {
        let Lookup { bytes, answers, .. } = self;
        bytes.clear();
        answers.clear();
        answers.resize(self.keys.len(), Answer::Unknown);
        let mut largest = 0;
        self.followed.source.get_many(&self.keys, &mut |i, value| {
            answers[i] = answer(value, bytes);
            largest = largest.max(value.map_or(0, |value| value.len() as u64));
            Ok(())
        })?;
        self.batch_keys = self.batch_keys.min(batch_keys(largest));
        Ok(())
    }

    /// Looks up the keys without an answer one by one.
    fn look_up_rest(&mut self) -> Result<()> {
        for (key, place) in self.keys.iter().zip(&mut self.answers) {
            if !matches!(place, Answer::Unknown) {
                continue;
            }
            match self.followed.source.get(key) {
                Ok(value) => *place = answer(value.as_deref(), &mut self.bytes),
                Err(failure) if is_of_one_table(&failure) => {
                    self.unknown += 1;
                    self.damage.get_or_insert(failure);
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        for (key, answer) in self.keys.iter().zip(&self.answers) {
            match answer {
                Answer::Found(range) => self.writer.entry(key, &self.bytes[range.clone()])?,
                Answer::Absent => {
                    if self.absent == 0 {
                        self.first_absent.clone_from(key);
                    }
                    self.absent += 1;
                    self.writer.absent(key)?;
                }
                Answer::Unknown => {}
            }
        }
        self.asked += self.keys.len() as u64;
        self.keys.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<Exit> {
        self.flush()?;
        self.writer.finish()?;
        match (self.damage, self.absent) {
            (Some(damage), _) if self.asked == 1 => Err(damage),
            (Some(Failure { exit, message }), _) => Err(Failure {
                exit,
                message: format!(
                    "{} of {} keys could not be looked up; the first: {message}",
                    self.unknown, self.asked
                ),
            }),
            (None, 0) => Ok(Exit::Done),
            (None, count) => Err(absent(count, self.asked, &self.first_absent)),
        }
    }
}

/// Whether other keys may have answers after this failure.
fn is_of_one_table(failure: &Failure) -> bool {
    matches!(failure.exit, Exit::Damage | Exit::Io)
}

/// Returns the answer for a key, and appends its value to the bytes of the batch.
fn answer(value: Option<&[u8]>, bytes: &mut Vec<u8>) -> Answer {
    let Some(value) = value else { return Answer::Absent };
    let start = bytes.len();
    bytes.extend_from_slice(value);
    Answer::Found(start..bytes.len())
}

/// Returns the number of keys per batch if values have this size.
fn batch_keys(value_bytes: u64) -> usize {
    ((BATCH_BYTES / value_bytes.max(1)) as usize).clamp(1, BATCH_KEYS)
}

fn absent(count: u64, asked: u64, first: &[u8]) -> Failure {
    let hint = keys::file_hint(first);
    let first = preview::key(first);
    let message = match (count, asked) {
        (1, 1) => format!("key {first} is absent"),
        (1, _) => format!("1 of {asked} keys is absent: {first}"),
        _ => format!("{count} of {asked} keys are absent, the first is {first}"),
    };
    Failure { exit: Exit::No, message: message + &hint }
}
