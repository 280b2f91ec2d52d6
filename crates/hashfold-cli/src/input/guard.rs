//! Turns panics of foreign decoders into errors.
//!
//! The decoders of Arrow files panic on some damaged bytes. For the user, this is bad input.

use crate::{
    failure::{Failure, Result},
    preview,
};
use std::{
    any::Any,
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook},
    sync::Once,
};

thread_local! {
    /// Whether panics of this thread become errors; these panics print no message.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Decodes a file; a panic becomes an error that names the file.
pub(super) fn guard<T>(path: &str, decode: impl FnOnce() -> Result<T>) -> Result<T> {
    quiet_guarded_panics();
    GUARDED.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(decode));
    GUARDED.set(false);
    outcome.unwrap_or_else(|panic| {
        let reason = preview::reason(&words(&*panic));
        let what = format!("cannot be decoded: {reason}; the file is damaged");
        Err(Failure::input(path, what))
    })
}

fn quiet_guarded_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let loud = take_hook();
        set_hook(Box::new(move |info| {
            if !GUARDED.get() {
                loud(info);
            }
        }));
    });
}

fn words(panic: &dyn Any) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_that_names_the_file() {
        let failure = guard::<()>("f", || panic!("bad {}", "bytes")).unwrap_err();
        assert_eq!(failure.message, "f: cannot be decoded: bad bytes; the file is damaged");
        assert_eq!(guard("f", || Ok(1)).unwrap(), 1);
    }
}
