//! `hashfold filter add`: inserts keys, and prints those that are new.

use super::{
    adder::Adder,
    checkpoint::CheckpointArgs,
    create::{self, KindArgs},
    open::{self, MachineArgs},
};
use crate::{
    applied::Applied,
    device,
    failure::{Exit, Failure, Result},
    folder,
    keys::KeyArgs,
    output::write_note,
    progress::Show,
    rows::FileArgs,
    stop::Stop,
    units,
};
use clap::Args;
use hashfold::{
    filter::{
        Mode,
        cascade::{CascadeFilter, CascadeStats},
    },
    folder::Contents,
};
use std::{
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
    time::Instant,
};

/// Insert keys into a filter, and with --unique print those that are new
///
/// Keys are given as arguments, with --keys FILE, or on standard input. Without --key, each line of a
/// file is a key, without its line end. Files may be compressed with gzip or zstd.
///
/// `hashfold filter add DIR --exact --unique < lines > new-lines` is `sort -u` without sorting: it
/// works for inputs larger than memory, keeps the order of the lines, and remembers them for the next
/// time. A key with a line end in it is printed as it is. A filter that is not exact does not print new keys that are false positives.
///
/// Keys become durable while the command runs (--checkpoint), and all of them before it exits, also
/// after one Ctrl-C. If it is killed, run it again on the same input: no line is lost, because lines
/// are printed before they become durable, but the lines of the last seconds are printed twice. When
/// standard input pauses, the keys so far are answered at once. A multiset counts keys that were
/// durable twice if the command is run again.
#[derive(Args, Debug)]
pub(crate) struct AddArgs {
    /// Folder of the filter
    #[arg(value_name = "DIR")]
    pub(super) filter: PathBuf,
    #[command(flatten)]
    pub(super) keys: KeyArgs,
    #[command(flatten)]
    pub(super) files: FileArgs,
    /// Print the keys that were absent, each once, in the order of the input; not for a multiset
    #[arg(long, conflicts_with = "multiset")]
    pub(super) unique: bool,
    /// Stop before the filter exceeds its capacity, with exit code 1. Without it, keys beyond the
    /// capacity are inserted with a warning, and raise the false-positive rate. Each key is looked
    /// up first, as with --unique
    #[arg(long)]
    pub(super) strict_capacity: bool,
    #[command(flatten)]
    checkpoint: CheckpointArgs,
    #[command(flatten)]
    machine: MachineArgs,
    /// Print progress, summary and the keys of --unique as JSON objects on standard output
    #[arg(long)]
    pub(super) json: bool,
    #[command(
        flatten,
        next_help_heading = "When the filter is made because DIR is absent or empty"
    )]
    kind: KindArgs,
}

pub(crate) fn run(args: &AddArgs) -> Result<Exit> {
    args.check()?;
    args.keys.refuse_files()?;
    let stop = Stop::on_signals()?;
    let inputs = args.keys.open(args.files.key_options()?, &stop)?;
    let start = Instant::now();
    let budget = args.machine.budget();
    let mut filter = args.machine.wait.retry(&stop, || args.open(&budget))?;
    warn_of_clock(&args.filter, &filter.stats());
    if args.unique || args.strict_capacity {
        args.keys.note_refused_io_uring();
    }
    let mut adder = Adder::new(args);
    let mut checkpoints = args.checkpoint.start(&filter);
    let mut keys = inputs.start(args.files.bad_row_policy(), budget.keys, args.show())?;
    let mut take = || {
        while let Some(batch) = keys.next(&stop, &mut || checkpoints.take_if_due(&mut filter))? {
            adder.take(batch, &mut filter)?;
            checkpoints.take_if_due(&mut filter)?;
        }
        Ok(())
    };
    let taken = take().and_then(|()| keys.finish());
    let count = units::counted(adder.added, "key was", "keys were");
    let bad_rows = Applied { count, what: "added" }.end(taken, filter.close())?;
    adder.report(bad_rows, start.elapsed().as_secs_f64())?;
    Ok(Exit::Done)
}

impl AddArgs {
    /// Refuses a folder that holds no filter before any input is read.
    fn check(&self) -> Result<()> {
        match folder::holds(&self.filter)? {
            Contents::Nothing if self.kind.options()?.is_some() => Ok(()),
            Contents::Nothing => Err(Failure::usage(format!(
                "{}: there is no filter here; make one with --exact or --capacity N",
                self.filter.display()
            ))),
            _ => folder::require_filter(&self.filter),
        }
    }

    /// Opens the filter, or makes it.
    fn open(&self, budget: &open::Budget) -> Result<CascadeFilter> {
        match self.kind.options()? {
            Some(options) if folder::holds(&self.filter)? == Contents::Nothing => {
                create::create(&self.filter, &options, budget)
            }
            _ => {
                let filter = open::open(&self.filter, budget)?;
                self.kind.check(&self.filter, &filter.stats())?;
                if self.unique && filter.mode() == Mode::Multiset {
                    return Err(Failure::usage(format!(
                        "{}: is a multiset, expected a set for --unique; use a filter that was made \
                         without --multiset",
                        self.filter.display()
                    )));
                }
                Ok(filter)
            }
        }
    }

    fn show(&self) -> Show {
        match self.json {
            true => Show::Json,
            // A progress bar would mix with the keys.
            false if self.unique && io::stdout().is_terminal() => Show::Nothing,
            false => Show::Text,
        }
    }
}

/// Warns if the newest epoch of a filter begins in the future: the clock was set back, or it was wrong
/// before.
fn warn_of_clock(folder: &Path, stats: &CascadeStats) {
    let (Some(window), Some(newest)) = (stats.window, stats.epochs.last()) else { return };
    let begin_s = newest.number.saturating_mul(window.epoch_length().as_secs());
    let early_s = begin_s.saturating_sub(device::now_s());
    if early_s > 0 {
        write_note(format_args!(
            "hashfold: warning: {}: the newest epoch begins {} after the time of the clock; nothing is \
             forgotten until then",
            folder.display(),
            units::seconds(early_s)
        ));
    }
}
