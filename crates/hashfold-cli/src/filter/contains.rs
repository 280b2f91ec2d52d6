//! `hashfold filter contains`: prints the keys that are present.

use super::open::MemoryArgs;
use crate::{
    failure::{Exit, Failure, Result},
    keys::{self, KeyArgs},
    preview,
    progress::Show,
    rows::FileArgs,
    stop::Stop,
};
use clap::Args;
use hashfold::{KeyHash, filter::cascade::Snapshot};
use hashfold_rows::write_json_bytes;
use std::{
    io::{self, BufWriter, StdoutLock, Write as _},
    path::PathBuf,
};

/// Print the keys that are present in a filter
///
/// Sees all keys that were durable when the command started; another process may insert keys
/// meanwhile. A key that was inserted is always found; one that was not is found at the
/// false-positive rate.
///
/// The exit code is 0 if all keys are present, otherwise 1. Keys on standard input are answered
/// whenever the input pauses. A key with a line end in it is printed as it is; --json prints each key
/// in one line.
#[derive(Args, Debug)]
#[command(override_usage = "hashfold filter contains [OPTIONS] <DIR> <KEY>...\n       \
                            hashfold filter contains [OPTIONS] <DIR> --keys <FILE> [--key <COL>]")]
pub(crate) struct ContainsArgs {
    /// Folder of the filter
    #[arg(value_name = "DIR")]
    filter: PathBuf,
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    memory: MemoryArgs,
    /// Print the absent keys instead
    #[arg(long)]
    invert: bool,
    /// Print a count and a tab before each key, for all keys; 0 or 1 unless the filter is a multiset
    #[arg(long, conflicts_with = "invert")]
    counts: bool,
    /// Print all keys with their counts as JSON objects
    #[arg(long, conflicts_with_all = ["invert", "counts"])]
    json: bool,
}

pub(crate) fn run(args: &ContainsArgs) -> Result<Exit> {
    args.keys.require("filter contains DIR")?;
    let (snapshot, keys_bytes) = args.memory.open(&args.filter)?;
    args.keys.note_refused_io_uring();
    let mut query = Query::new(args, &snapshot);
    let inputs = args.keys.open(args.files.key_options()?, &Stop::never())?;
    let mut keys = inputs.start(args.files.bad_row_policy(), keys_bytes, Show::Nothing)?;
    while let Some(batch) = keys.next(&Stop::never(), &mut || Ok(()))? {
        query.look_up(&batch.keys().collect::<Vec<_>>())?;
    }
    keys.finish()?;
    query.finish()
}

/// Looks up batches of keys.
struct Query<'a> {
    args: &'a ContainsArgs,
    snapshot: &'a Snapshot,
    hashes: Vec<KeyHash>,
    counts: Vec<u64>,
    out: BufWriter<StdoutLock<'static>>,
    asked: u64,
    absent: u64,
    first_absent: Vec<u8>,
}

impl<'a> Query<'a> {
    fn new(args: &'a ContainsArgs, snapshot: &'a Snapshot) -> Query<'a> {
        Query {
            args,
            snapshot,
            hashes: Vec::new(),
            counts: Vec::new(),
            out: BufWriter::new(io::stdout().lock()),
            asked: 0,
            absent: 0,
            first_absent: Vec::new(),
        }
    }

    fn look_up(&mut self, keys: &[&[u8]]) -> Result<()> {
        self.hashes.clear();
        self.hashes.extend(keys.iter().map(|key| self.snapshot.hash(key)));
        self.counts.clear();
        self.counts.resize(keys.len(), 0);
        self.snapshot.count_batch(&self.hashes, &mut self.counts)?;
        self.asked += keys.len() as u64;
        for (i, key) in keys.iter().enumerate() {
            let count = self.counts[i];
            if count == 0 {
                if self.absent == 0 {
                    self.first_absent = key.to_vec();
                }
                self.absent += 1;
            }
            self.write(key, count).map_err(|error| Failure::output(&error))?;
        }
        self.out.flush().map_err(|error| Failure::output(&error))
    }

    fn write(&mut self, key: &[u8], count: u64) -> io::Result<()> {
        let ContainsArgs { invert, counts, json, .. } = *self.args;
        if json {
            let mut line = b"{\"key\":".to_vec();
            write_json_bytes(key, &mut line);
            self.out.write_all(&line)?;
            return writeln!(self.out, ",\"count\":{count}}}");
        }
        if counts {
            write!(self.out, "{count}\t")?;
        } else if (count > 0) == invert {
            return Ok(());
        }
        self.out.write_all(key)?;
        self.out.write_all(b"\n")
    }

    fn finish(self) -> Result<Exit> {
        let first = preview::key(&self.first_absent);
        let message = match (self.absent, self.asked) {
            (0, _) => return Ok(Exit::Done),
            (1, 1) => format!("key {first} is absent"),
            (1, asked) => format!("1 of {asked} keys is absent: {first}"),
            (absent, asked) => {
                format!("{absent} of {asked} keys are absent, the first is {first}")
            }
        };
        let message = message + &keys::file_hint(&self.first_absent);
        Err(Failure { exit: Exit::No, message })
    }
}
