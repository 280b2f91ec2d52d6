//! `hashfold filter contains`: which keys are in.

use super::{
    keys::{Keys, open_lines},
    open::MemoryArgs,
};
use crate::{
    cell::write_json_bytes,
    failure::{Exit, Failure, Result},
    input::BadRowPolicy,
    preview,
    progress::{Progress, Show, Unit},
    stop::Stop,
};
use clap::Args;
use hashfold::{KeyHash, filter::cascade::Snapshot};
use std::{
    ffi::OsString,
    io::{self, BufWriter, StdoutLock, Write as _},
    path::PathBuf,
};

/// Print the keys that are in a filter
///
/// All that was durable when the command began is known, also while another process puts keys in.
/// A key that is in is always found; of keys that are not, a filter that is not exact finds a few.
///
/// The exit code is 0 if all keys are in, and 1 if not. Keys of standard input are answered without
/// delay where it pauses.
#[derive(Args, Debug)]
pub(crate) struct ContainsArgs {
    /// The folder of the filter
    #[arg(value_name = "DIR")]
    filter: PathBuf,
    /// Keys
    #[arg(value_name = "KEY", required_unless_present = "keys", allow_negative_numbers = true)]
    key: Vec<OsString>,
    /// A file with a key a line; '-' is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    keys: Option<String>,
    #[command(flatten)]
    memory: MemoryArgs,
    /// Print the keys that are not in instead
    #[arg(long)]
    invert: bool,
    /// Print all keys, after how often each is in and a tab: 0 or 1 where they are not counted
    #[arg(long, conflicts_with = "invert")]
    counts: bool,
    /// Print all keys as JSON objects with their counts
    #[arg(long, conflicts_with_all = ["invert", "counts"])]
    json: bool,
}

pub(crate) fn run(args: &ContainsArgs) -> Result<Exit> {
    let (snapshot, keys_bytes) = args.memory.open(&args.filter)?;
    let mut asker = Asker::new(args, &snapshot);
    match &args.keys {
        None => {
            let keys = args.key.iter().map(|key| key.as_encoded_bytes());
            asker.ask(&keys.collect::<Vec<_>>())?;
        }
        Some(path) => {
            let progress = Progress::start(Show::Nothing, "reading", Unit::Bytes, None);
            let inputs = open_lines(path)?;
            let mut keys = Keys::start(inputs, BadRowPolicy::Stop, keys_bytes, progress)?;
            while let Some(batch) = keys.next(&Stop::never())? {
                asker.ask(&batch.keys().collect::<Vec<_>>())?;
            }
            keys.finish()?;
        }
    }
    asker.finish()
}

/// Asks for batches.
struct Asker<'a> {
    args: &'a ContainsArgs,
    snapshot: &'a Snapshot,
    hashes: Vec<KeyHash>,
    counts: Vec<u64>,
    out: BufWriter<StdoutLock<'static>>,
    asked: u64,
    absent: u64,
    first_absent: Vec<u8>,
}

impl<'a> Asker<'a> {
    fn new(args: &'a ContainsArgs, snapshot: &'a Snapshot) -> Asker<'a> {
        Asker {
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

    fn ask(&mut self, keys: &[&[u8]]) -> Result<()> {
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
            (1, 1) => format!("key {first} is not in"),
            (1, asked) => format!("1 of {asked} keys is not in: {first}"),
            (absent, asked) => {
                format!("{absent} of {asked} keys are not in, the first is {first}")
            }
        };
        Err(Failure { exit: Exit::No, message })
    }
}
