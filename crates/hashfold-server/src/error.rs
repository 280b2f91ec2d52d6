//! Reasons why a server does not start.

use crate::config::ConfigError;
use hashfold::Error;
use std::{fmt, io};

/// The reason why a server does not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration asks for something that is not there.
    Config(ConfigError),
    /// A data set cannot be opened.
    Data(Error),
    /// The group cannot be followed.
    Deploy(hashfold_deploy::Error),
    /// The system refuses an address or a thread.
    Io {
        /// What was tried: "listen on 127.0.0.1:6379".
        action: String,
        /// The system's error.
        source: io::Error,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Config(error) => error.fmt(f),
            StartError::Data(error) => error.fmt(f),
            StartError::Deploy(error) => error.fmt(f),
            StartError::Io { action, source } => write!(f, "cannot {action}: {source}"),
        }
    }
}

impl std::error::Error for StartError {}

/// Returns the error for a configuration that asks for something that is not there.
pub(crate) fn wrong(message: impl Into<String>) -> StartError {
    StartError::Config(ConfigError { place: "configuration".into(), message: message.into() })
}
