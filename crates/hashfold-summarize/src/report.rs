//! What a run says about its streams while it goes on.

use crate::error::SummarizeError;
use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

/// What happened to a stream.
#[derive(Debug)]
#[non_exhaustive]
pub enum Report {
    /// A source cannot be read any further. Others go on.
    Failed(SummarizeError),
    /// The file is another one than the checkpoint was made with, such as after a rotation, and is read from its beginning.
    Replaced {
        /// The file.
        file: PathBuf,
        /// Number of bytes that were read of the file before.
        offset: u64,
    },
    /// A checkpoint cannot be written. A run that goes on tries again after the next interval.
    Unsaved(SummarizeError),
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Report::Failed(error) => write!(f, "{error}; other sources go on"),
            Report::Replaced { file, offset } => write!(
                f,
                "{} is another file than that of the checkpoint, which was read up to byte {offset}: it is read from its \
                 beginning; what came after that byte in the other one is not read",
                file.display()
            ),
            Report::Unsaved(error) => write!(
                f,
                "no checkpoint: {error}; a run that goes on tries again. Until then, the next one continues from the \
                 checkpoint before"
            ),
        }
    }
}

/// The reports of a stream, in their order.
#[derive(Debug, Default)]
pub(crate) struct Reports(Mutex<Vec<Arc<Report>>>);

impl Reports {
    pub(crate) fn add(&self, report: Report) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(report));
    }

    /// Returns all reports so far.
    pub(crate) fn all(&self) -> Vec<Arc<Report>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
