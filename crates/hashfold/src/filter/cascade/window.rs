//! A window of time: a filter that forgets the keys of old epochs by the clock.

use crate::error::{Error, Result};
use std::time::Duration;

/// Maximum number of epochs in a window. A lookup of an absent key reads a block from each epoch.
const EPOCHS_MAX: u64 = 1000;

/// A window of time: how long a filter keeps a key.
///
/// Time is divided into epochs of equal length, counted from 1970, so the number of an epoch tells
/// when it began. An insertion belongs to the epoch of its moment. A filter keeps the current epoch
/// and those that the window reaches back to: a key is kept for at least [`length`](Window::length)
/// after its insertion, and for at most one epoch longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    epoch_s: u64,
    epochs: u64,
}

impl Window {
    /// Returns a window of this length that is divided into epochs: 1 to 1000. An epoch is a whole
    /// number of seconds long, so the window may be a little longer. With more epochs, keys are
    /// forgotten closer to the length of the window, and a lookup of an absent key reads more
    /// blocks.
    ///
    /// # Errors
    /// `Argument` if the window is shorter than a second, or the number of epochs is out of range.
    pub fn new(length: Duration, epochs: u64) -> Result<Window> {
        if !(1..=EPOCHS_MAX).contains(&epochs) {
            return Err(Error::argument("epochs", format!("1 to {EPOCHS_MAX}"), epochs));
        }
        if length.as_secs() == 0 {
            return Err(Error::argument("window", "at least 1 second", format!("{length:?}")));
        }
        Ok(Window { epoch_s: length.as_secs().div_ceil(epochs), epochs })
    }

    /// Returns the time that a key is kept at least.
    pub fn length(self) -> Duration {
        Duration::from_secs(self.epoch_s.saturating_mul(self.epochs))
    }

    /// Returns the length of an epoch.
    pub fn epoch_length(self) -> Duration {
        Duration::from_secs(self.epoch_s)
    }

    /// Returns the number of epochs in the window, without the current one.
    pub fn epochs(self) -> u64 {
        self.epochs
    }

    /// Returns the number of the epoch at a time since 1970.
    pub fn epoch_at(self, unix_time: Duration) -> u64 {
        unix_time.as_secs() / self.epoch_s
    }

    /// Returns the fields in the manifest; zeros without a window.
    pub(super) fn fields(window: Option<Window>) -> [u64; 2] {
        window.map_or([0, 0], |Window { epoch_s, epochs }| [epoch_s, epochs])
    }

    /// Returns the window with these fields.
    pub(super) fn from_fields([epoch_s, epochs]: [u64; 2]) -> Result<Option<Window>> {
        match (epoch_s, epochs) {
            (0, 0) => Ok(None),
            (1.., 1..=EPOCHS_MAX) => Ok(Some(Window { epoch_s, epochs })),
            (0, _) => Err(Error::field("length of an epoch", "at least 1 second", epoch_s)),
            _ => Err(Error::field("epochs of the window", format!("1 to {EPOCHS_MAX}"), epochs)),
        }
    }
}
