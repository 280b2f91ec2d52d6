//! The compare-and-swap of a small object, and of a group's pointer, when its reply may be lost.

use crate::{
    error::{Error, Result},
    layout,
    objects::{Found, Object, Objects, Tag, When},
    pointer::{GroupPointer, SIZE_MAX},
    remote::Remote,
};
use hashfold::work::Clock;
use std::time::Duration;

/// Maximum number of attempts to read or to write the object.
const ATTEMPTS_MAX: u32 = 6;
/// Time before the second attempt; doubled before each later one.
const BACK_OFF_MIN: Duration = Duration::from_millis(100);
/// Maximum time between two attempts of work that goes on until it succeeds.
pub const BACK_OFF_MAX: Duration = Duration::from_secs(30);

/// Returns the time between a failure and the next attempt: 0.1 s if there was no failure before, twice as long for
/// each one, at most `max`.
pub fn back_off(failures_before: u32, max: Duration) -> Duration {
    BACK_OFF_MIN.saturating_mul(1 << failures_before.min(16)).min(max)
}

/// A pointer, and the tag of its object; no tag if there is no object yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) pointer: GroupPointer,
    pub(crate) tag: Option<Tag>,
}

/// The result of a compare-and-swap.
pub(crate) enum Swapped {
    /// The pointer is the new one.
    Done(Seen),
    /// The pointer had been changed by another controller: it is this one.
    Newer(Seen),
}

/// Reads the pointer of a group, unless it still has the tag `known`; `None` if it has. Without an object, it
/// is a pointer that was never changed.
pub(crate) fn read_pointer(
    remote: &Remote,
    group: &str,
    known: Option<&Tag>,
) -> Result<Option<Seen>> {
    let (objects, name) = (remote.objects(), layout::pointer(group));
    match objects.get(&name, SIZE_MAX, known)? {
        Found::Unchanged => Ok(None),
        Found::Absent => {
            objects.check_there()?;
            Ok(Some(Seen::default()))
        }
        Found::Object(Object { bytes, tag }) => {
            let pointer = GroupPointer::from_bytes(&bytes);
            let pointer = pointer.map_err(|error| error.at(objects.place(&name)))?;
            Ok(Some(Seen { pointer, tag: Some(tag) }))
        }
    }
}

/// The result of replacing an object.
pub(crate) enum Replaced<T> {
    /// The object has the new content, with this tag.
    Done(Option<Tag>),
    /// Another process had replaced the object: this is its content.
    Other(T),
}

/// Replaces the object `name`, which had the tag `before`, by `bytes`. If the reply is lost, the object is read
/// again, and `is_ours` says of its content whether the write was done.
pub(crate) fn replace<T>(
    objects: &dyn Objects,
    clock: &dyn Clock,
    (name, bytes): (&str, &[u8]),
    before: Option<&Tag>,
    read: impl Fn() -> Result<(T, Option<Tag>)>,
    is_ours: impl Fn(&T) -> bool,
) -> Result<Replaced<T>> {
    let when = before.map_or(When::Absent, When::Is);
    let mut failure = None;
    for attempt in 0..ATTEMPTS_MAX {
        if attempt > 0 {
            clock.sleep(back_off(attempt - 1, BACK_OFF_MAX));
        }
        match objects.put(name, bytes, when) {
            Ok(Some(tag)) => return Ok(Replaced::Done(Some(tag))),
            // The object store itself may have repeated a write whose reply was lost.
            Ok(None) => {}
            Err(error) => failure = Some(error),
        }
        // The write may have been done, or may be done yet: it has the same content each time.
        match read() {
            Ok((there, tag)) if is_ours(&there) => return Ok(Replaced::Done(tag)),
            Ok((there, tag)) if tag.as_ref() != before => return Ok(Replaced::Other(there)),
            Ok(_) => {}
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.unwrap_or_else(|| {
        Error::remote("write", "the object store refused the write, and nobody else has written")
            .at(objects.place(name))
    }))
}

/// Replaces the pointer `before` by `after`, whose nonce says whose change it is.
pub(crate) fn swap(
    remote: &Remote,
    clock: &dyn Clock,
    group: &str,
    before: &Seen,
    after: GroupPointer,
) -> Result<Swapped> {
    let read = || {
        let seen = read_pointer(remote, group, None)?;
        let seen = seen.expect("without a known tag the pointer is read");
        let tag = seen.tag.clone();
        Ok((seen, tag))
    };
    let object = (&*layout::pointer(group), &*after.to_bytes());
    let is_ours = |seen: &Seen| seen.pointer.nonce == after.nonce;
    Ok(match replace(remote.objects(), clock, object, before.tag.as_ref(), read, is_ours)? {
        Replaced::Done(tag) => Swapped::Done(Seen { pointer: after, tag }),
        Replaced::Other(seen) => Swapped::Newer(seen),
    })
}
