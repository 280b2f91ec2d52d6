//! Keys as they come, in batches: large ones while they come fast, whatever there is when they pause.

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

/// Where keys come from.
#[derive(Args, Debug)]
pub(crate) struct KeyArgs {
    /// Files with a key a line, or with --key of rows, as `build` reads them; '-' is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    inputs: Vec<String>,
    #[command(flatten)]
    pub(super) files: FileArgs,
}

/// A batch ends when no more keys come for so long.
const PAUSE: Duration = Duration::from_millis(10);
/// And when its first key has waited for so long.
const WAIT_MAX: Duration = Duration::from_millis(250);
/// And when it has so many keys: larger ones would hardly be faster.
const KEYS_MAX: usize = 1 << 20;
/// What a key takes beside its bytes while it is looked up and put in, in bytes: its hash, where it
/// is, its answer, and 24 in the library.
const KEY_OVERHEAD: usize = 64;

/// Keys of all inputs, batch after batch.
pub(super) struct Keys {
    feed: Feed,
    meter: Meter,
    progress: Progress,
    batch: KeyBatch,
    /// The most memory that a batch takes, in bytes.
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
    /// Opens the first input, which may take until somebody writes to it.
    pub(super) fn open(&self) -> Result<Inputs> {
        let selection = Selection { is_of_keys: true, ..Selection::default() };
        let mut options = self.files.read_options(selection);
        if self.files.key.is_none() {
            if !options.header && options.format.is_none() {
                let message = "--no-header is for rows; say with --key which column has the keys";
                return Err(Failure::usage(message));
            }
            options.format.get_or_insert(Format::Lines);
        }
        Inputs::open(&self.inputs, options)
    }

    /// Starts to read; `show` is how progress is shown.
    pub(super) fn start(&self, inputs: Inputs, budget: &Budget, show: Show) -> Result<Keys> {
        let progress = rows::progress(&self.inputs, show);
        Keys::start(inputs, self.files.bad_rows.clone(), budget.keys, progress)
    }
}

/// Opens a file with a key a line.
pub(super) fn open_lines(path: &str) -> Result<Inputs> {
    let selection = Selection { is_of_keys: true, ..Selection::default() };
    let format = Some(Format::Lines);
    let options = ReadOptions { format, delimiter: None, header: false, quotes: false, selection };
    Inputs::open(&[path.to_string()], options)
}

impl Keys {
    /// Starts to read, in so many bytes of memory.
    pub(super) fn start(
        inputs: Inputs,
        policy: BadRowPolicy,
        bytes: usize,
        progress: Progress,
    ) -> Result<Keys> {
        let meter = inputs.meter.clone();
        // A third of the memory is for keys that wait while others are looked up.
        let waiting = bytes / 3 / (2 * BATCH_BYTES);
        let feed = inputs.waiting(waiting.max(1)).start(policy)?;
        Ok(Keys { feed, meter, progress, batch: KeyBatch::default(), size_max: bytes / 3 * 2 })
    }

    /// The next keys; `None` at the end of the input, or at a failure that `finish` tells.
    pub(super) fn next(&mut self, stop: &Stop) -> Result<Option<&KeyBatch>> {
        for batch in self.batch.batches.drain(..) {
            self.feed.give_back(batch);
        }
        self.batch = KeyBatch::default();
        self.progress.set(self.meter.bytes());
        let mut next = self.feed.next(stop)?;
        let first = Instant::now();
        while let Some(batch) = next {
            self.batch.push(batch);
            let is_full = self.batch.size >= self.size_max || self.batch.len >= KEYS_MAX;
            let is_late = first.elapsed() >= WAIT_MAX || stop.is_asked();
            next = if is_full || is_late { None } else { self.feed.next_within(PAUSE) };
        }
        Ok((!self.batch.batches.is_empty()).then_some(&self.batch))
    }

    /// Ends the reading; returns the number of bad rows.
    pub(super) fn finish(self) -> Result<u64> {
        self.feed.finish()
    }
}

impl KeyBatch {
    fn push(&mut self, batch: Batch) {
        self.len += batch.len();
        self.size += batch.size() + batch.len() * KEY_OVERHEAD;
        self.batches.push(batch);
    }

    /// How many keys there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The keys.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.batches.iter().flat_map(Batch::entries).map(|(key, _)| key)
    }

    /// Replaces `hashes` by those of the keys.
    pub(super) fn hash(&self, seed: Seed, hashes: &mut Vec<KeyHash>) {
        hashes.clear();
        hashes.extend(self.keys().map(|key| KeyHash::of(key, seed)));
    }
}

/// What taking keys came to; failures say what stays for all that.
pub(super) fn end(
    keys: u64,
    what: &str,
    taken: Result<u64>,
    closed: hashfold::Result<()>,
) -> Result<u64> {
    if let Err(error) = closed {
        let Failure { exit, message } = error.into();
        let count = units::counted(keys, "key was", "keys were");
        let message = format!("{message}; {count} read, not all of them {what}");
        return Err(Failure { exit, message });
    }
    taken.map_err(|failure| after(keys, what, failure))
}

/// Says in a failure what stays for all that: keys are not taken back.
fn after(keys: u64, what: &str, failure: Failure) -> Failure {
    let Failure { exit, message } = failure;
    if message.is_empty() {
        return Failure { exit, message };
    }
    let message = message.strip_suffix("; nothing was changed").unwrap_or(&message);
    let count = units::counted(keys, "key was", "keys were");
    Failure { exit, message: format!("{message}; {count} {what} before that") }
}
