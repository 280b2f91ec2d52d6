//! Executors of background jobs, clocks, and watches of long calls.
//!
//! The library starts no thread by itself: a part that can use a second core, or wait for the disk
//! in the background, takes an [`Executor`] from its caller. [`Inline`] runs every job in the
//! caller's thread, [`Threads`] is a pool of threads.
//!
//! [`Pending::wait`] runs a job that no thread has begun. So a job may wait for other jobs of its
//! own executor, with any number of threads.
//!
//! A long call takes a [`Watch`], which reports its progress and can cancel it.
//!
//! A part that waits for time to pass takes a [`Clock`]: [`SystemClock`] or, in tests,
//! [`ManualClock`], whose time passes only when the test advances it or when all threads wait.
//!
//! A process with a limit of memory gives its parts a [`MemoryBudget`].

mod clock;
mod executor;
mod manual_clock;
mod memory;
mod pending;
mod priority;
mod random;
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
    memory::{MemoryBudget, Reserved},
    pending::Pending,
    priority::lower_priority,
    random::{Random, SeededRandom, SystemRandom},
    threads::Threads,
    watch::{Steps, Watch},
};

/// The locks of [`pending`]; a test replaces them by the locks of a scheduler that tries all
/// interleavings, and so do the tests of maps that are built with `hashfold_orders`.
mod sync {
    #[cfg(all(test, hashfold_orders))]
    pub(super) use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};
    #[cfg(not(all(test, hashfold_orders)))]
    pub(super) use std::sync::{Arc, Condvar, Mutex, MutexGuard};
}
