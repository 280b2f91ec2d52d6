//! The locks of a map. The tests of `orders`, which are built with `--cfg hashfold_orders`, have those of a
//! scheduler that tries different orders of threads.

#[cfg(all(test, hashfold_orders))]
pub(super) use shuttle::sync::{
    Condvar, Mutex, MutexGuard, RwLock,
    atomic::{AtomicU64, AtomicUsize},
};
#[cfg(not(all(test, hashfold_orders)))]
pub(super) use std::sync::{
    Condvar, Mutex, MutexGuard, RwLock,
    atomic::{AtomicU64, AtomicUsize},
};
