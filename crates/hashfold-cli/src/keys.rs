//! Keys that the user gives: as arguments, in files, or on standard input.
//!
//! All verbs that take keys take them in this way, in batches: large batches while keys come fast,
//! small ones when the input pauses.

use crate::{
    failure::{Failure, Result},
    input::{
        BATCH_BYTES, BadRowPolicy, Batch, Feed, Format, Inputs, Meter, ReadOptions, Selection,
        has_columns,
    },
    output::write_note,
    preview,
    progress::{Progress, Show, Unit},
    rows::{self, TextArgs},
    stop::Stop,
};
use clap::Args;
use hashfold::{KeyHash, Seed, io::check_io_uring};
use std::{
    ffi::OsString,
    path::Path,
    time::{Duration, Instant},
};

/// Options for giving keys.
#[derive(Args, Debug)]
pub(crate) struct KeyArgs {
    /// Keys; a single '-' reads them from standard input, one per line
    #[arg(value_name = "KEY", allow_negative_numbers = true)]
    keys: Vec<OsString>,
    /// File with one key per line (an empty line is the empty key), or with --key, with a column of keys, in the formats of `build`;
    /// '-' reads standard input; may be repeated
    #[arg(long = "keys", value_name = "FILE", conflicts_with = "keys")]
    files: Vec<String>,
}

/// A batch ends when no key arrives for this time.
const PAUSE: Duration = Duration::from_millis(10);
/// A batch ends when its first key has waited for this time.
const WAIT_MAX: Duration = Duration::from_millis(250);
/// Maximum number of keys in a batch; larger batches are hardly faster.
const KEYS_MAX: usize = 1 << 20;
/// Memory per key beside its bytes while it is looked up and inserted, in bytes: its hash, its
/// position, its answer, and 24 in the library.
const KEY_OVERHEAD: usize = 64;

/// Memory for keys that wait while a list of keys is read, in bytes.
const LIST_BYTES: usize = 4 << 20;

/// Opened keys that are not read yet.
pub(crate) enum KeyInput {
    /// Keys that were given as arguments.
    Given(Batch),
    Files {
        names: Vec<String>,
        inputs: Box<Inputs>,
    },
}

/// Keys, batch after batch.
pub(crate) struct Keys {
    source: KeySource,
    batch: KeyBatch,
    /// Maximum memory of a batch, in bytes.
    size_max: usize,
}

enum KeySource {
    /// `None` after the batch was taken.
    Given(Option<Batch>),
    Files {
        feed: Feed,
        meter: Meter,
        progress: Progress,
    },
}

/// Some keys, in the order of the input.
#[derive(Default)]
pub(crate) struct KeyBatch {
    batches: Vec<Batch>,
    len: usize,
    size: usize,
}

impl KeyArgs {
    /// Returns the keys that are given as arguments.
    pub(crate) fn given(&self) -> &[OsString] {
        if self.reads_standard_input() { &[] } else { &self.keys }
    }

    /// Returns all that is given as names of files; without any, that of standard input.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let text = |name: &OsString| match name.to_str() {
            Some(name) => Ok(name.to_owned()),
            None => Err(Failure::usage(format!(
                "{}: the name of the file is not UTF-8; pass the file on standard input",
                name.to_string_lossy()
            ))),
        };
        let given = self.keys.iter().map(text).collect::<Result<Vec<_>>>()?;
        let all = [given, self.files.clone()].concat();
        Ok(if all.is_empty() { vec!["-".to_owned()] } else { all })
    }

    /// Whether keys come from standard input.
    pub(crate) fn reads_standard_input(&self) -> bool {
        self.keys == ["-"] || self.files.iter().any(|file| file == "-")
    }

    /// Fails if no keys are given. `verb` is the call up to the keys: `get DIR`.
    pub(crate) fn require(&self, verb: &str) -> Result<()> {
        match self.keys.is_empty() && self.files.is_empty() {
            false => Ok(()),
            true => Err(Failure::usage(format!(
                "no keys are given: expected `hashfold {verb} KEY...`, or --keys FILE for a file with \
                 one key per line, or '-' for standard input"
            ))),
        }
    }

    /// Writes a note if many keys will be looked up, and the system refuses io_uring.
    pub(crate) fn note_refused_io_uring(&self) {
        if self.given().is_empty()
            && let Err(error) = check_io_uring()
        {
            write_note(format_args!(
                "hashfold: the system refuses io_uring ({error}), as many containers do: batches of \
                 reads go through threads, which takes more CPU time"
            ));
        }
    }

    /// Refuses a key that is the name of a file: the user probably means the keys in the file.
    pub(crate) fn refuse_files(&self) -> Result<()> {
        match self.given().iter().find(|key| is_file(key.as_encoded_bytes())) {
            None => Ok(()),
            Some(key) => Err(Failure::usage(format!(
                "{0}: is a file, and was given as a key; --keys {0} reads keys from the file, and \
                 `echo {0} | hashfold ... -` gives the name itself as a key",
                key.to_string_lossy()
            ))),
        }
    }

    /// Opens the keys, which may wait for the writer of a pipe. Without any, opens standard input.
    pub(crate) fn open(&self, options: ReadOptions, stop: &Stop) -> Result<KeyInput> {
        let given = self.given();
        if !given.is_empty() {
            let keys = given.iter().map(|key| key.as_encoded_bytes());
            return Ok(KeyInput::Given(Batch::of_keys(keys)?));
        }
        let names = if self.files.is_empty() { vec!["-".to_owned()] } else { self.files.clone() };
        let is_absent = |name: &&String| *name != "-" && !Path::new(name).exists();
        if let Some(name) = names.iter().find(is_absent) {
            return Err(Failure::usage(format!(
                "{name}: there is no file of this name, expected a file of keys for --keys; a key is \
                 given without --keys"
            )));
        }
        if options.format == Some(Format::Lines)
            && let Some(name) = names.iter().find(|name| has_columns(name))
        {
            return Err(Failure::usage(format!(
                "{name}: is a file of rows by its name; name the column with the keys with --key COL, or \
                 pass one key per line on standard input: `... - < {name}`"
            )));
        }
        let inputs = Inputs::open(&names, options, stop)?;
        Ok(KeyInput::Files { names, inputs: Box::new(inputs) })
    }
}

/// Returns how files of keys are read: one key per line, or the keys in a column.
pub(crate) fn read_options(
    column: Option<&str>,
    format: Option<Format>,
    text: &TextArgs,
) -> Result<ReadOptions> {
    let key = column.map(String::from);
    let selection = Selection { key, is_of_keys: true, ..Selection::default() };
    let mut options = text.read_options(format, selection);
    if column.is_none() {
        if !options.header && format.is_none() {
            let message = "--no-header is for rows; name the column with the keys with --key";
            return Err(Failure::usage(message));
        }
        options.format.get_or_insert(Format::Lines);
    }
    Ok(options)
}

/// Returns the lines of a file as keys.
pub(crate) fn read_lines(file: &str) -> Result<Vec<Vec<u8>>> {
    let (stop, lines) = (Stop::never(), KeyArgs { keys: Vec::new(), files: vec![file.to_owned()] });
    let input = lines.open(read_options(None, None, &TextArgs::default())?, &stop)?;
    let mut keys = input.start(BadRowPolicy::STOP, LIST_BYTES, Show::Nothing)?;
    let mut all = Vec::new();
    while let Some(batch) = keys.next(&stop, &mut || Ok(()))? {
        all.extend(batch.keys().map(<[u8]>::to_vec));
    }
    keys.finish()?;
    Ok(all)
}

/// Returns what to do if an absent key is the name of a file, for the end of a message.
pub(crate) fn file_hint(key: &[u8]) -> String {
    match is_file(key) {
        true => format!("; it is the name of a file: --keys {} reads keys from it", shown(key)),
        false => String::new(),
    }
}

fn shown(key: &[u8]) -> String {
    preview::name(&String::from_utf8_lossy(key)).into_owned()
}

fn is_file(name: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok_and(|name| Path::new(name).is_file())
}

impl KeyInput {
    /// Starts the thread that reads, within `bytes` of memory.
    pub(crate) fn start(self, policy: BadRowPolicy, bytes: usize, show: Show) -> Result<Keys> {
        let source = match self {
            KeyInput::Given(batch) => KeySource::Given(Some(batch)),
            KeyInput::Files { names, inputs } => {
                let progress = match show {
                    Show::Nothing => Progress::start(show, "reading", Unit::Bytes, None),
                    show => rows::progress(&names, show),
                };
                let meter = inputs.meter.clone();
                // A third of the memory is for keys that wait while a batch is looked up.
                let waiting = bytes / 3 / (2 * BATCH_BYTES);
                let feed = inputs.waiting(waiting.max(1)).start(policy)?;
                KeySource::Files { feed, meter, progress }
            }
        };
        Ok(Keys { source, batch: KeyBatch::default(), size_max: bytes / 3 * 2 })
    }
}

impl Keys {
    /// Returns the next batch; `None` at the end of the input, or at a failure that `finish` returns.
    /// Calls `idle` again and again while there is no batch.
    pub(crate) fn next(
        &mut self,
        stop: &Stop,
        idle: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Option<&KeyBatch>> {
        let KeySource::Files { feed, meter, progress } = &mut self.source else {
            return self.next_given();
        };
        for batch in self.batch.batches.drain(..) {
            feed.give_back(batch);
        }
        self.batch = KeyBatch::default();
        progress.set(meter.bytes());
        let mut next = feed.next_or(stop, idle)?;
        let first = Instant::now();
        while let Some(batch) = next {
            self.batch.push(batch);
            let is_full = self.batch.size >= self.size_max || self.batch.len >= KEYS_MAX;
            let is_late = first.elapsed() >= WAIT_MAX || stop.is_asked();
            next = if is_full || is_late { None } else { feed.next_within(PAUSE) };
        }
        Ok((!self.batch.batches.is_empty()).then_some(&self.batch))
    }

    fn next_given(&mut self) -> Result<Option<&KeyBatch>> {
        let KeySource::Given(given) = &mut self.source else { return Ok(None) };
        self.batch = KeyBatch::default();
        given.take().into_iter().for_each(|batch| self.batch.push(batch));
        Ok((!self.batch.batches.is_empty()).then_some(&self.batch))
    }

    /// Ends reading; returns the number of bad rows.
    pub(crate) fn finish(self) -> Result<u64> {
        match self.source {
            KeySource::Given(_) => Ok(0),
            KeySource::Files { feed, .. } => feed.finish().map(|taken| taken.bad_rows),
        }
    }
}

impl KeyBatch {
    fn push(&mut self, batch: Batch) {
        self.len += batch.len();
        self.size += batch.size() + batch.len() * KEY_OVERHEAD;
        self.batches.push(batch);
    }

    /// Number of keys.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The keys.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.batches.iter().flat_map(Batch::entries).map(|(key, _)| key)
    }

    /// Replaces `hashes` by the hashes of the keys.
    pub(crate) fn hash(&self, seed: Seed, hashes: &mut Vec<KeyHash>) {
        hashes.clear();
        hashes.extend(self.keys().map(|key| KeyHash::of(key, seed)));
    }
}
