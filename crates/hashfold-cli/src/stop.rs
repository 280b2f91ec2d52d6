//! Signals: Ctrl-C sets a flag that long work checks; a file that exceeds `ulimit -f` causes an
//! error.

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

/// Makes a write beyond the limit of file sizes (`ulimit -f`) fail instead of killing the process.
pub(crate) fn survive_long_files() -> Result<()> {
    // Any handler suffices; its flag is not used.
    match register(SIGXFSZ, Arc::default()) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::io("the signal of long files", "be handled", &error)),
    }
}

/// Whether the user has asked to stop.
#[derive(Clone, Debug)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Makes Ctrl-C and `kill` set a flag, which must be checked, instead of ending the process.
    /// The second signal ends the process at once.
    pub(crate) fn on_signals() -> Result<Stop> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            register_conditional_shutdown(signal, Exit::Stopped as i32, flag.clone())
                .and_then(|_| register(signal, flag.clone()))
                .map_err(|error| Failure::io("Ctrl-C", "be handled", &error))?;
        }
        Ok(Stop(flag))
    }

    /// Returns a watch for a call of the library. It shows this phase until it is dropped, and
    /// cancels the call when the user asks to stop.
    pub(crate) fn watch(&self, phase: Progress) -> Watch {
        let (this, phase) = (self.clone(), Mutex::new((phase, 0)));
        Watch::new(move |more| {
            if this.is_asked() {
                return Err(ErrorKind::Stopped.into());
            }
            // The progress is only shown to people, so it may be slightly wrong after a panic.
            let (progress, done) = &mut *phase.lock().unwrap_or_else(PoisonError::into_inner);
            *done += more;
            progress.set(*done);
            Ok(())
        })
    }

    /// Returns a flag that is never set: signals end the process as usual.
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
