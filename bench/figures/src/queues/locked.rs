//! A ring under one lock, with a condition variable for each side: as the ArrayBlockingQueue of Java.

use super::{CAPACITY, Consumer, Ends, Item, Producer};
use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard},
};

struct Queue {
    state: Mutex<State>,
    not_empty: Condvar,
    not_full: Condvar,
}

struct State {
    items: VecDeque<Item>,
    /// Number of producers that will put more.
    producers: usize,
}

pub(super) fn new(producers: usize, consumers: usize) -> Ends {
    let state = Mutex::new(State { items: VecDeque::with_capacity(CAPACITY), producers });
    let queue = Queue { state, not_empty: Condvar::new(), not_full: Condvar::new() };
    let queue = Arc::new(queue);
    Ends {
        producers: (0..producers).map(|_| Box::new(Put(queue.clone())) as _).collect(),
        consumers: (0..consumers).map(|_| Box::new(Take(queue.clone())) as _).collect(),
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with the lock")
    }
}

struct Put(Arc<Queue>);

impl Producer for Put {
    fn put(&mut self, item: Item) {
        let mut state = self.0.lock();
        while state.items.len() == CAPACITY {
            state = self.0.not_full.wait(state).expect("no thread panics with the lock");
        }
        state.items.push_back(item);
        self.0.not_empty.notify_one();
    }
}

impl Drop for Put {
    fn drop(&mut self) {
        self.0.lock().producers -= 1;
        self.0.not_empty.notify_all();
    }
}

struct Take(Arc<Queue>);

impl Consumer for Take {
    fn take(&mut self) -> Option<Item> {
        let mut state = self.0.lock();
        loop {
            if let Some(item) = state.items.pop_front() {
                self.0.not_full.notify_one();
                return Some(item);
            }
            if state.producers == 0 {
                return None;
            }
            state = self.0.not_empty.wait(state).expect("no thread panics with the lock");
        }
    }
}
