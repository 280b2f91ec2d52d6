//! A window that has ended, as a run.

use super::{
    aggregate::Output,
    definition::Summary,
    events::Value,
    windows::{Groups, decode_group},
};
use crate::{
    error::Result,
    key::Seed,
    run::{VecRun, check_sizes},
};

/// A window of a summary that has ended.
#[derive(Debug)]
pub struct Window<'a> {
    pub(super) summary: &'a Summary,
    pub(super) span: Option<(i64, i64)>,
    pub(super) groups: &'a Groups,
}

/// Encodes a group as an entry: fields, results of the columns, the key and the value, which are empty before.
pub type Encode<'a> =
    dyn FnMut(&[Value<'_>], &[Output], &mut Vec<u8>, &mut Vec<u8>) -> Result<()> + 'a;

impl Window<'_> {
    /// Returns the summary that the window is of.
    pub fn summary(&self) -> &Summary {
        self.summary
    }

    /// Returns start and end of the window, in milliseconds since 1970; `None` if the summary has one window for
    /// all events.
    pub fn span(&self) -> Option<(i64, i64)> {
        self.span
    }

    /// Returns the number of groups, at least 1.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Returns the groups as a run of entries, each as `encode` writes it.
    ///
    /// # Errors
    /// Those of `encode`, and `Limit` if a key or a value is too long.
    pub fn run(&self, seed: Seed, encode: &mut Encode<'_>) -> Result<VecRun> {
        let mut entries = Vec::with_capacity(self.groups.len());
        let mut outputs = Vec::new();
        for (group, states) in self.groups {
            let fields = decode_group(group, self.summary.group_by.len())?;
            outputs.clear();
            let columns = self.summary.columns.iter();
            outputs.extend(states.iter().zip(columns).map(|(s, c)| s.output(&c.aggregate)));
            let (mut key, mut value) = (Vec::new(), Vec::new());
            encode(&fields, &outputs, &mut key, &mut value)?;
            check_sizes(&key, Some(&value))?;
            entries.push((key, Some(value)));
        }
        Ok(VecRun::new(entries, seed))
    }
}

/// A receiver of windows, one for each summary, in the thread of its worker.
pub trait Sink: Send {
    /// Takes a window that has ended. Windows of a summary come in the order of time.
    ///
    /// # Errors
    /// An error ends the pipeline.
    fn window(&mut self, window: &Window<'_>) -> Result<()>;
}
