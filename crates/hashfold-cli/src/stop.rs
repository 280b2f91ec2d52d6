//! Signals: Ctrl-C sets a flag that long work looks at; a file that grows too long is an error.

use crate::{
    failure::{Exit, Failure, Result},
    progress::Progress,
};
use hashfold::{ErrorKind, work::Watch};
use signal_hook::{
    consts::{SIGINT, SIGTERM, SIGXFSZ},
    flag::{register, register_conditional_shutdown},
};
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

/// Lets a write past the limit of file sizes (`ulimit -f`) fail, instead of ending the process.
pub(crate) fn survive_long_files() -> Result<()> {
    // That there is a handler is enough; what it notes is of no use.
    match register(SIGXFSZ, Arc::default()) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::io("the signal of long files", "be handled", &error)),
    }
}

/// Whether the user has asked to stop.
#[derive(Clone, Debug)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// From now on Ctrl-C and `kill` no longer end the process; the flag must be looked at. At the
    /// second time they do, at once.
    pub(crate) fn on_signals() -> Result<Stop> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            register_conditional_shutdown(signal, Exit::Stopped as i32, flag.clone())
                .and_then(|_| register(signal, flag.clone()))
                .map_err(|error| Failure::io("Ctrl-C", "be handled", &error))?;
        }
        Ok(Stop(flag))
    }

    /// A watch of a call of the library that shows this phase, until it is dropped, and ends the
    /// call when the user asks to stop.
    pub(crate) fn watch(&self, phase: Progress) -> Watch {
        let (this, phase) = (self.clone(), Mutex::new((phase, 0)));
        Watch::new(move |more| {
            if this.is_asked() {
                return Err(ErrorKind::Stopped.into());
            }
            // What is shown is for people, and may be a little wrong after a panic.
            let (progress, done) = &mut *phase.lock().unwrap_or_else(PoisonError::into_inner);
            *done += more;
            progress.set(*done);
            Ok(())
        })
    }

    /// A flag that is never set: signals end the process as ever.
    pub(crate) fn never() -> Stop {
        Stop(Arc::default())
    }

    /// Fails if the user has asked to stop.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_asked() { Err(Failure::stopped()) } else { Ok(()) }
    }

    /// Whether the user has asked to stop.
    #[inline]
    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Relaxed)
    }
}
