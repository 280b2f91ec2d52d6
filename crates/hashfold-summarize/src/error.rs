//! Why a run does not start, or ends early.

use std::{fmt, io};

/// The reason why a run does not start, or ends early.
#[derive(Debug)]
#[non_exhaustive]
pub enum SummarizeError {
    /// The configuration is wrong.
    Config {
        /// The configuration file.
        place: String,
        /// The expectation, and what was found.
        message: String,
    },
    /// The library refused or failed.
    Data(hashfold::Error),
    /// The operating system refused a call.
    Io {
        /// File or address.
        place: String,
        /// The attempted action, as a verb.
        action: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
}

impl fmt::Display for SummarizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SummarizeError::Config { place, message } => write!(f, "{place}: {message}"),
            SummarizeError::Data(error) => fmt::Display::fmt(error, f),
            SummarizeError::Io { place, action, source } => {
                write!(f, "{place}: cannot {action}: {source}")
            }
        }
    }
}

impl std::error::Error for SummarizeError {}

impl From<hashfold::Error> for SummarizeError {
    fn from(error: hashfold::Error) -> SummarizeError {
        SummarizeError::Data(error)
    }
}
