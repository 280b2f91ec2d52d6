//! Keys in batches: large batches while keys come fast, small ones when the input pauses.

use super::open::Budget;
use crate::{
    failure::{Failure, Result},
    input::{
        BATCH_BYTES, BadRowPolicy, Batch, Feed, Format, Inputs, Meter, ReadOptions, Selection,
    },
    progress::{Progress, Show},
    rows::{self, FileArgs},
    stop::Stop,
    units,
};
use clap::Args;
use hashfold::{KeyHash, Seed};
use std::time::{Duration, Instant};

/// Options for reading keys.
#[derive(Args, Debug)]
pub(crate) struct KeyArgs {
    /// Files with one key per line, or with --key, files of rows as `build` reads them; '-' reads
    /// standard input
    #[arg(value_name = "FILE", default_value = "-")]
    inputs: Vec<String>,
    #[command(flatten)]
    pub(super) files: FileArgs,
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

/// The keys of all inputs, batch after batch.
pub(super) struct Keys {
    feed: Feed,
    meter: Meter,
    progress: Progress,
    batch: KeyBatch,
    /// Maximum memory of a batch, in bytes.
    size_max: usize,
}

/// Some keys, in the order of the input.
#[derive(Default)]
pub(super) struct KeyBatch {
    batches: Vec<Batch>,
    len: usize,
    size: usize,
}

impl KeyArgs {
    /// Opens the first input, which may wait for the writer of a pipe.
    pub(super) fn open(&self) -> Result<Inputs> {
        let selection = Selection { is_of_keys: true, ..Selection::default() };
        let mut options = self.files.read_options(selection);
        if self.files.key.is_none() {
            if !options.header && options.format.is_none() {
                let message = "--no-header is for rows; name the column with the keys with --key";
                return Err(Failure::usage(message));
            }
            options.format.get_or_insert(Format::Lines);
        }
        Inputs::open(&self.inputs, options)
    }

    /// Starts the thread that reads.
    pub(super) fn start(&self, inputs: Inputs, budget: &Budget, show: Show) -> Result<Keys> {
        let progress = rows::progress(&self.inputs, show);
        Keys::start(inputs, self.files.bad_row_policy(), budget.keys, progress)
    }
}

/// Opens a file with one key per line.
pub(super) fn open_lines(path: &str) -> Result<Inputs> {
    let selection = Selection { is_of_keys: true, ..Selection::default() };
    let format = Some(Format::Lines);
    let options = ReadOptions { format, delimiter: None, header: false, quotes: false, selection };
    Inputs::open(&[path.to_string()], options)
}

impl Keys {
    /// Starts the thread that reads, within `bytes` of memory.
    pub(super) fn start(
        inputs: Inputs,
        policy: BadRowPolicy,
        bytes: usize,
        progress: Progress,
    ) -> Result<Keys> {
        let meter = inputs.meter.clone();
        // A third of the memory is for keys that wait while a batch is looked up.
        let waiting = bytes / 3 / (2 * BATCH_BYTES);
        let feed = inputs.waiting(waiting.max(1)).start(policy)?;
        Ok(Keys { feed, meter, progress, batch: KeyBatch::default(), size_max: bytes / 3 * 2 })
    }

    /// Returns the next batch; `None` at the end of the input, or at a failure that `finish` returns.
    /// Calls `idle` again and again while there is no batch.
    pub(super) fn next(
        &mut self,
        stop: &Stop,
        idle: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Option<&KeyBatch>> {
        for batch in self.batch.batches.drain(..) {
            self.feed.give_back(batch);
        }
        self.batch = KeyBatch::default();
        self.progress.set(self.meter.bytes());
        let mut next = self.feed.next_or(stop, idle)?;
        let first = Instant::now();
        while let Some(batch) = next {
            self.batch.push(batch);
            let is_full = self.batch.size >= self.size_max || self.batch.len >= KEYS_MAX;
            let is_late = first.elapsed() >= WAIT_MAX || stop.is_asked();
            next = if is_full || is_late { None } else { self.feed.next_within(PAUSE) };
        }
        Ok((!self.batch.batches.is_empty()).then_some(&self.batch))
    }

    /// Ends reading; returns the number of bad rows.
    pub(super) fn finish(self) -> Result<u64> {
        self.feed.finish().map(|taken| taken.bad_rows)
    }
}

impl KeyBatch {
    fn push(&mut self, batch: Batch) {
        self.len += batch.len();
        self.size += batch.size() + batch.len() * KEY_OVERHEAD;
        self.batches.push(batch);
    }

    /// Number of keys.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The keys.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.batches.iter().flat_map(Batch::entries).map(|(key, _)| key)
    }

    /// Replaces `hashes` by the hashes of the keys.
    pub(super) fn hash(&self, seed: Seed, hashes: &mut Vec<KeyHash>) {
        hashes.clear();
        hashes.extend(self.keys().map(|key| KeyHash::of(key, seed)));
    }
}

/// Returns the number of bad rows, or a failure with the number of keys that were applied before
/// it.
pub(super) fn end(
    keys: u64,
    what: &str,
    taken: Result<u64>,
    closed: hashfold::Result<()>,
) -> Result<u64> {
    if let Err(error) = closed {
        let Failure { exit, message } = error.into();
        let count = units::counted(keys, "key was", "keys were");
        let message = format!("{message}; {count} read, and not all of them {what}");
        return Err(Failure { exit, message });
    }
    taken.map_err(|failure| after(keys, what, failure))
}

/// Adds the number of keys that were applied before a failure to its message; these stay applied.
fn after(keys: u64, what: &str, failure: Failure) -> Failure {
    let Failure { exit, message } = failure;
    if message.is_empty() {
        return Failure { exit, message };
    }
    let message = message.strip_suffix("; nothing was changed").unwrap_or(&message);
    let count = units::counted(keys, "key was", "keys were");
    Failure { exit, message: format!("{message}; {count} {what} before that") }
}
