//! Executors of background jobs, clocks, and watches of long calls.
//!
//! The library starts no thread by itself: a part that can use a second core, or wait for the disk
//! in the background, takes an [`Executor`] from its caller. [`Inline`] runs every job in the
//! caller's thread, [`Threads`] is a pool of threads.
//!
//! Waiting helps: [`Pending::wait`] runs a job that no thread has begun. So a job may wait for
//! other jobs of its own executor, whatever the number of threads.
//!
//! A long call takes a [`Watch`], which sees its progress and can end it.
//!
//! A part that waits for time to pass takes a [`Clock`]: [`SystemClock`], or in tests
//! [`ManualClock`], whose time passes only when the test advances it or when all threads wait.

mod clock;
mod executor;
mod manual_clock;
mod pending;
#[cfg(test)]
pub(crate) mod testing;
mod threads;
#[cfg(test)]
mod waiting;
mod watch;

pub use self::{
    clock::{Clock, Signal, SystemClock},
    executor::{Executor, Inline, Job},
    manual_clock::ManualClock,
    pending::Pending,
    threads::Threads,
    watch::{Steps, Watch},
};

/// The locks of [`pending`]; a test replaces them by those of a scheduler that tries all orders.
mod sync {
    pub(super) use std::sync::{Arc, Condvar, Mutex, MutexGuard};
}
