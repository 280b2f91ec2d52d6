//! Ctrl-C: a flag that long work looks at.

use crate::failure::{Exit, Failure, Result};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag::{register, register_conditional_shutdown},
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

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
