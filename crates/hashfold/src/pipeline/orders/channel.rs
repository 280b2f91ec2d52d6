//! Channels with the promises of `crossbeam_channel`, on the locks of a scheduler that tries different orders.

use shuttle::sync::{Condvar, Mutex, MutexGuard};
use std::{
    collections::VecDeque,
    fmt, mem,
    sync::{Arc, PoisonError},
};

struct Channel<T> {
    state: Mutex<State<T>>,
    /// Notified when a value comes or the last sender goes.
    filled: Condvar,
    /// Notified when a value goes or the last receiver goes.
    emptied: Condvar,
}

struct State<T> {
    values: VecDeque<T>,
    values_max: usize,
    senders: usize,
    receivers: usize,
}

pub(super) struct Sender<T>(Arc<Channel<T>>);
pub(super) struct Receiver<T>(Arc<Channel<T>>);

/// The other side is gone.
#[derive(Debug)]
pub(super) struct Gone;

pub(super) fn bounded<T>(values_max: usize) -> (Sender<T>, Receiver<T>) {
    let state = State { values: VecDeque::new(), values_max, senders: 1, receivers: 1 };
    let channel =
        Channel { state: Mutex::new(state), filled: Condvar::new(), emptied: Condvar::new() };
    let channel = Arc::new(channel);
    (Sender(channel.clone()), Receiver(channel))
}

impl<T> Channel<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Sender<T> {
    pub(super) fn send(&self, value: T) -> Result<(), Gone> {
        let mut state = self.0.lock();
        while state.receivers > 0 && state.values.len() == state.values_max {
            state = self.0.emptied.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.receivers == 0 {
            return Err(Gone);
        }
        state.values.push_back(value);
        drop(state);
        self.0.filled.notify_one();
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().values.len()
    }
}

impl<T> Receiver<T> {
    pub(super) fn recv(&self) -> Result<T, Gone> {
        let mut state = self.0.lock();
        while state.senders > 0 && state.values.is_empty() {
            state = self.0.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let value = state.values.pop_front();
        drop(state);
        self.0.emptied.notify_one();
        value.ok_or(Gone)
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().values.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// All values of a receiver.
pub(super) struct AllValues<T>(Receiver<T>);

impl<T> Iterator for AllValues<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = AllValues<T>;

    fn into_iter(self) -> AllValues<T> {
        AllValues(self)
    }
}

/// The values of a receiver that others may have, too.
pub(super) struct Values<'a, T>(&'a Receiver<T>);

impl<T> Iterator for Values<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Values<'a, T>;

    fn into_iter(self) -> Values<'a, T> {
        Values(self)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.0.lock().senders += 1;
        Sender(self.0.clone())
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        self.0.lock().receivers += 1;
        Receiver(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.lock().senders -= 1;
        self.0.filled.notify_all();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.receivers -= 1;
        // What nobody can receive is dropped, outside of the lock.
        let is_last = state.receivers == 0;
        let values = if is_last { mem::take(&mut state.values) } else { VecDeque::new() };
        drop(state);
        self.0.emptied.notify_all();
        drop(values);
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiver")
    }
}
