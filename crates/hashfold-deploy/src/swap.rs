//! The compare-and-swap of a group's pointer, when its reply may be lost.

use crate::{
    error::{Error, Result},
    layout,
    objects::{Found, Object, Tag, When},
    pointer::{GroupPointer, SIZE_MAX},
    remote::Remote,
};
use hashfold::work::Clock;
use std::time::Duration;

/// Maximum number of attempts to read or to write the pointer.
const ATTEMPTS_MAX: u32 = 6;
/// Time before the second attempt; doubled before each later one.
const WAIT: Duration = Duration::from_millis(100);

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

/// Replaces the pointer `before` by `after`. If the reply is lost, the pointer is read again, and its
/// nonce says whether the write was done.
pub(crate) fn swap(
    remote: &Remote,
    clock: &dyn Clock,
    group: &str,
    before: &Seen,
    after: GroupPointer,
) -> Result<Swapped> {
    let (objects, name) = (remote.objects(), layout::pointer(group));
    let bytes = after.to_bytes();
    let when = before.tag.as_ref().map_or(When::Absent, When::Is);
    let mut failure = None;
    for attempt in 0..ATTEMPTS_MAX {
        if attempt > 0 {
            clock.sleep(WAIT * (1 << (attempt - 1)));
        }
        match objects.put(&name, &bytes, when) {
            Ok(Some(tag)) => return Ok(Swapped::Done(Seen { pointer: after, tag: Some(tag) })),
            Ok(None) => {}
            Err(error) => failure = Some(error),
        }
        // The write may have been done, or may be done yet: it has the same nonce each time.
        match read_pointer(remote, group, None) {
            Ok(Some(seen)) if seen.pointer.nonce == after.nonce => return Ok(Swapped::Done(seen)),
            Ok(Some(seen)) if seen.tag != before.tag => return Ok(Swapped::Newer(seen)),
            Ok(_) => {}
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.unwrap_or_else(|| {
        Error::remote("write", "the object store refused the write, and nobody else has written")
            .at(objects.place(&name))
    }))
}
