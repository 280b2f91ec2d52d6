//! Progress of a store's writer, and stopping it with Ctrl-C.

use crate::{progress::Progress, stop::Stop};
use hashfold::{Error, ErrorKind, store};
use std::sync::{Arc, Mutex, PoisonError};

/// Shows the progress of a writer from phase to phase.
#[derive(Clone)]
pub(crate) struct Watcher {
    stop: Stop,
    phase: Arc<Mutex<Option<Phase>>>,
}

struct Phase {
    progress: Progress,
    done: u64,
}

impl Watcher {
    pub(crate) fn new(stop: &Stop) -> Watcher {
        Watcher { stop: stop.clone(), phase: Arc::default() }
    }

    pub(crate) fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Returns the callback for a writer.
    pub(crate) fn watch(&self) -> store::Watch {
        let this = self.clone();
        Arc::new(move |more| this.advance(more))
    }

    /// Starts a phase, or ends the last one.
    pub(crate) fn show(&self, progress: Option<Progress>) {
        *self.lock() = progress.map(|progress| Phase { progress, done: 0 });
    }

    fn advance(&self, more: u64) -> hashfold::Result<()> {
        if self.stop.is_asked() {
            return Err(Error::new(ErrorKind::Stopped));
        }
        if let Some(phase) = self.lock().as_mut() {
            phase.done += more;
            phase.progress.set(phase.done);
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Phase>> {
        // Progress is for people; after a panic it may be a little wrong.
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
