//! The number of keys or rows that were applied before a failure, for its message.

use crate::failure::{Failure, Result};

/// Changes that a command has applied so far.
#[derive(Clone, Debug)]
pub(crate) struct Applied {
    /// Their number, with noun and verb: `3 keys were`.
    pub(crate) count: String,
    /// What was done with them: `added`.
    pub(crate) what: &'static str,
}

impl Applied {
    /// Returns the result of reading the input, or a failure with the number of changes that were applied
    /// before it. `closed` is the result of closing the data set.
    pub(crate) fn end<T>(self, taken: Result<T>, closed: hashfold::Result<()>) -> Result<T> {
        if let Err(error) = closed {
            let Failure { exit, message } = error.into();
            let Applied { count, what } = self;
            let message = format!("{message}; {count} read, and not all of them {what}");
            return Err(Failure { exit, message });
        }
        taken.map_err(|failure| self.after(failure))
    }

    /// Adds the number of changes to the message of a failure that came after them; these stay applied.
    fn after(self, Failure { exit, message }: Failure) -> Failure {
        if message.is_empty() {
            return Failure { exit, message };
        }
        let Applied { count, what } = self;
        let message = message.strip_suffix("; nothing was changed").unwrap_or(&message);
        Failure { exit, message: format!("{message}; {count} {what} before that") }
    }
}
