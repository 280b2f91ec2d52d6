//! Waiting for another process that has the lock of a data set.

use crate::{
    failure::{Exit, Failure, Result},
    stop::Stop,
    units,
};
use clap::Args;
use hashfold::work::{Clock as _, SystemClock};
use std::time::Duration;

/// Option for waiting for a lock.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct WaitArgs {
    /// Time to wait while another process writes to the data set, or has the map open: 30, 90s, 15m; after
    /// that, the exit code is 6
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = units::parse_wait)]
    wait: u64,
}

/// Option for waiting for a map, of verbs that wait for no other data set.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct MapWaitArgs {
    /// Time to wait while another process has the map open: 30, 90s, 15m; after that, the exit code is 6.
    /// Tables and stores are read at once
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = units::parse_wait)]
    wait: u64,
}

impl From<MapWaitArgs> for WaitArgs {
    fn from(MapWaitArgs { wait }: MapWaitArgs) -> WaitArgs {
        WaitArgs { wait }
    }
}

impl WaitArgs {
    /// Returns the option with a time of its own, in seconds.
    pub(crate) const fn of(wait: u64) -> WaitArgs {
        WaitArgs { wait }
    }
}

/// Time between two attempts to take the lock.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(50);

impl WaitArgs {
    /// Calls `open` again while the data set is busy, until the time is over or the user asks to stop.
    pub(crate) fn retry<T>(&self, stop: &Stop, mut open: impl FnMut() -> Result<T>) -> Result<T> {
        let end = SystemClock.now() + Duration::from_secs(self.wait);
        loop {
            let failure = match open() {
                Err(failure) if failure.exit == Exit::Busy => failure,
                other => return other,
            };
            if SystemClock.now() >= end {
                let hint = match self.wait {
                    0 => "; --wait TIME waits for it".to_owned(),
                    seconds => format!(" (waited for {seconds} s)"),
                };
                return Err(Failure { message: failure.message + &hint, ..failure });
            }
            stop.check()?;
            SystemClock.sleep(ATTEMPT_INTERVAL);
        }
    }
}
