//! The number of keys that were applied before a failure, for its message.

use crate::{
    failure::{Failure, Result},
    units,
};

/// Returns the number of bad rows, or a failure with the number of keys that were applied before
/// it.
pub(super) fn end(
    keys: u64,
    what: &str,
    taken: Result<u64>,
    closed: hashfold::Result<()>,
) -> Result<u64> {
    if let Err(error) = closed {
        let Failure { exit, message } = error.into();
        let count = units::counted(keys, "key was", "keys were");
        let message = format!("{message}; {count} read, and not all of them {what}");
        return Err(Failure { exit, message });
    }
    taken.map_err(|failure| after(keys, what, failure))
}

/// Adds the number of keys that were applied before a failure to its message; these stay applied.
fn after(keys: u64, what: &str, failure: Failure) -> Failure {
    let Failure { exit, message } = failure;
    if message.is_empty() {
        return Failure { exit, message };
    }
    let message = message.strip_suffix("; nothing was changed").unwrap_or(&message);
    let count = units::counted(keys, "key was", "keys were");
    Failure { exit, message: format!("{message}; {count} {what} before that") }
}
