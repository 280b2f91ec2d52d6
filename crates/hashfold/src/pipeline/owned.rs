//! A summary of a worker: its windows, and their receiver.

use super::{
    window::{Sink, Window},
    windows::{Opened, Windows},
};
use crate::error::Result;

/// A summary of a worker.
pub(super) struct Owned {
    /// Number of the summary in the pipeline or in its chains.
    pub(super) number: usize,
    pub(super) windows: Windows,
    pub(super) sink: Box<dyn Sink>,
}

impl Owned {
    /// Gives windows that have ended to the sink; `next` returns the next one.
    pub(super) fn hand_over(
        &mut self,
        next: impl Fn(&mut Windows) -> Option<(i64, Opened)>,
    ) -> Result<()> {
        let Owned { windows, sink, .. } = self;
        while let Some((number, ended)) = next(windows) {
            let (span, summary) = (windows.span(number), &windows.summary);
            sink.window(&Window { summary, span, groups: &ended.groups })?;
            windows.free(ended);
        }
        Ok(())
    }

    /// Returns the state for a checkpoint.
    pub(super) fn state(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.windows.put(&mut out);
        out
    }
}
