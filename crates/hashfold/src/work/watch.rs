//! Progress and cancelling of long calls.

use crate::error::Result;
use std::{fmt, sync::Arc};

/// The observer of a long call: gets the progress, and can cancel the call.
///
/// The default observes nothing. Clones are the same watch; a call may use it from several threads.
///
/// ```
/// use hashfold::{Error, ErrorKind, work::Watch};
/// use std::sync::{Arc, atomic::{AtomicU64, Ordering::Relaxed}};
///
/// let done = Arc::new(AtomicU64::new(0));
/// let seen = done.clone();
/// let watch = Watch::new(move |more| match seen.fetch_add(more, Relaxed) + more {
///     ..10 => Ok(()),
///     _ => Err(Error::new(ErrorKind::Stopped)),
/// });
/// watch.add(6)?;
/// assert!(watch.add(6).is_err());
/// assert_eq!(done.load(Relaxed), 12);
/// # Ok::<(), hashfold::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Watch(Option<Arc<Look>>);

type Look = dyn Fn(u64) -> Result<()> + Send + Sync;

impl Watch {
    /// Returns a watch that calls `look` from time to time with the work done since its last call,
    /// in the unit that the watched call documents. An error of `look` cancels the watched call,
    /// which returns it.
    pub fn new(look: impl Fn(u64) -> Result<()> + Send + Sync + 'static) -> Watch {
        Watch(Some(Arc::new(look)))
    }

    /// Adds to the work done.
    ///
    /// # Errors
    /// The error of the observer: `Stopped` cancels the call.
    pub fn add(&self, more: u64) -> Result<()> {
        self.0.as_ref().map_or(Ok(()), |look| look(more))
    }

    /// Returns a counter for many small steps of work.
    pub fn steps(&self) -> Steps {
        Steps { watch: self.clone(), count: 0 }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Watch" } else { "Watch(nothing)" })
    }
}

/// A counter of small steps, which are passed to its [`Watch`] in groups. [`Steps::finish`] passes
/// the last group.
#[derive(Debug)]
pub struct Steps {
    watch: Watch,
    /// Number of steps that the watch has not seen.
    count: u64,
}

/// Number of steps between two calls of a watch.
const STEPS_MAX: u64 = 1 << 12;

impl Steps {
    /// Counts one step.
    ///
    /// # Errors
    /// The errors of [`Watch::add`].
    #[inline]
    pub fn step(&mut self) -> Result<()> {
        self.count += 1;
        if self.count < STEPS_MAX { Ok(()) } else { self.finish() }
    }

    /// Passes the remaining steps to the watch.
    ///
    /// # Errors
    /// The errors of [`Watch::add`].
    pub fn finish(&mut self) -> Result<()> {
        self.watch.add(std::mem::take(&mut self.count))
    }
}
