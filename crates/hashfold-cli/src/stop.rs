//! Signals: Ctrl-C sets a flag that long work checks; a file that exceeds `ulimit -f` causes an
//! error.

use crate::{
    failure::{Exit, Failure, Result},
    output::write_note,
    progress::Progress,
};
use hashfold::{ErrorKind, work::Watch};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ},
    flag::{register, register_conditional_shutdown},
};
use std::{
    fs, io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
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
pub(crate) struct Stop {
    is_asked: Arc<AtomicBool>,
    /// Whether the user was told that the command stops.
    is_told: Arc<AtomicBool>,
}

impl Stop {
    /// Makes Ctrl-C, `kill` and a closed terminal set a flag, which must be checked, instead of
    /// ending the process. The second Ctrl-C or `kill` ends the process at once, as a crash does.
    pub(crate) fn on_signals() -> Result<Stop> {
        let stop = Stop::never();
        stop.handle(&stop.is_asked)?;
        Ok(stop)
    }

    /// Makes Ctrl-C and `kill` set the flag, for a server that a closed terminal does not stop: SIGHUP sets
    /// the flag that is returned beside it. The second Ctrl-C or `kill` ends the process at once.
    #[cfg(feature = "serve")]
    pub(crate) fn of_server() -> Result<(Stop, Arc<AtomicBool>)> {
        let (stop, hangup) = (Stop::never(), Arc::default());
        stop.handle(&hangup)?;
        Ok((stop, hangup))
    }

    /// Handles the signals; `hangup` is the flag of SIGHUP.
    fn handle(&self, hangup: &Arc<AtomicBool>) -> Result<()> {
        let handle = || -> io::Result<()> {
            for signal in [SIGINT, SIGTERM] {
                let flag = self.is_asked.clone();
                register_conditional_shutdown(signal, Exit::Stopped as i32, flag)?;
                register(signal, self.is_asked.clone())?;
            }
            if !is_hangup_ignored() {
                register(SIGHUP, hangup.clone())?;
            }
            Ok(())
        };
        handle().map_err(|error| Failure::io("Ctrl-C", "be handled", &error))
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
        Stop { is_asked: Arc::default(), is_told: Arc::default() }
    }

    /// Returns the flag that signals set.
    #[cfg(feature = "summarize")]
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        self.is_asked.clone()
    }

    /// Fails if the user has asked to stop.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_asked() { Err(Failure::stopped()) } else { Ok(()) }
    }

    /// Whether the user has asked to stop. The first time, a line says that the command stops.
    #[inline]
    pub(crate) fn is_asked(&self) -> bool {
        let is_asked = self.is_asked.load(Relaxed);
        if is_asked && !self.is_told.swap(true, Relaxed) {
            write_note("hashfold: stopping; Ctrl-C again ends at once");
        }
        is_asked
    }
}

/// Whether a closed terminal must not end the command, as `nohup` says.
fn is_hangup_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask >> (SIGHUP - 1) & 1 == 1)
}
