//! What a run says about its sources while it goes on.

use crate::error::SummarizeError;
use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

/// What happened to a source.
#[derive(Debug)]
#[non_exhaustive]
pub enum SourceReport {
    /// The source cannot be read any further. Others go on.
    Failed(SummarizeError),
    /// The file is another one than the checkpoint was made with, such as after a rotation, and is read from its beginning.
    Replaced {
        /// The file.
        file: PathBuf,
        /// Number of bytes that were read of the file before.
        offset: u64,
    },
}

impl fmt::Display for SourceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceReport::Failed(error) => write!(f, "{error}; other sources go on"),
            SourceReport::Replaced { file, offset } => write!(
                f,
                "{} is another file than that of the checkpoint, which was read up to byte {offset}: it is read from its \
                 beginning; what came after that byte in the other one is not read",
                file.display()
            ),
        }
    }
}

/// The reports of the sources of a stream, in their order.
#[derive(Debug, Default)]
pub(crate) struct Reports(Mutex<Vec<Arc<SourceReport>>>);

impl Reports {
    pub(crate) fn add(&self, report: SourceReport) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(report));
    }

    /// Returns all reports so far.
    pub(crate) fn all(&self) -> Vec<Arc<SourceReport>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
