//! Checkpoints: while a command runs, its changes become durable, and visible to other commands.

use crate::{failure::Result, units};
use clap::Args;
use hashfold::filter::cascade::CascadeFilter;
use std::time::{Duration, Instant};

/// The option of verbs that change a filter.
#[derive(Args, Debug)]
pub(crate) struct CheckpointArgs {
    /// Time after which changes become durable and visible to other commands, also while the input
    /// pauses: a crash loses about as much work (0, 500ms, 2s, 1h)
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = units::parse_duration)]
    checkpoint: Duration,
}

/// The checkpoints of one command.
#[derive(Debug)]
pub(super) struct Checkpoints {
    interval: Duration,
    /// Sequence number of the last change at the last checkpoint.
    seq: u64,
    /// Time at which the first change since the last checkpoint was noticed.
    since: Option<Instant>,
}

impl CheckpointArgs {
    pub(super) fn start(&self, filter: &CascadeFilter) -> Checkpoints {
        Checkpoints { interval: self.checkpoint, seq: filter.seq(), since: None }
    }
}

impl Checkpoints {
    /// Makes all changes durable, in the background, if the oldest of them has waited for the
    /// interval.
    pub(super) fn take_if_due(&mut self, filter: &mut CascadeFilter) -> Result<()> {
        if filter.seq() == self.seq {
            return Ok(());
        }
        if self.since.get_or_insert_with(Instant::now).elapsed() >= self.interval {
            filter.start_flush()?;
            (self.seq, self.since) = (filter.seq(), None);
        }
        Ok(())
    }
}
