//! A linked list with one lock for each end and a count between them: as the LinkedBlockingQueue of Java.
//!
//! ```text
//! head lock ─→ dummy ─→ node ─→ node ←─ tail lock        count: the nodes behind the dummy
//! ```
//!
//! Each side wakes the next thread of its own side as long as the count lets it go on, and the other side only when the
//! count leaves its end: 0, or the capacity.

use super::{CAPACITY, Consumer, Ends, Item, Producer};
use std::{
    ptr,
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicPtr, AtomicUsize, Ordering},
    },
};

struct Node {
    /// `None` in the dummy.
    item: Option<Item>,
    next: AtomicPtr<Node>,
}

impl Node {
    /// Returns a node on the heap, which the list owns.
    fn new(item: Option<Item>) -> *mut Node {
        Box::into_raw(Box::new(Node { item, next: AtomicPtr::new(ptr::null_mut()) }))
    }
}

/// A pointer to a node of the list.
struct End(*mut Node);

// SAFETY: the pointer is used under the lock that has it.
unsafe impl Send for End {}

struct Queue {
    head: Mutex<End>,
    tail: Mutex<End>,
    not_empty: Condvar,
    not_full: Condvar,
    count: AtomicUsize,
    /// Number of producers that will put more.
    producers: AtomicUsize,
}

pub(super) fn new(producers: usize, consumers: usize) -> Ends {
    let dummy = Node::new(None);
    let queue = Arc::new(Queue {
        head: Mutex::new(End(dummy)),
        tail: Mutex::new(End(dummy)),
        not_empty: Condvar::new(),
        not_full: Condvar::new(),
        count: AtomicUsize::new(0),
        producers: AtomicUsize::new(producers),
    });
    Ends {
        producers: (0..producers).map(|_| Box::new(Put(queue.clone())) as _).collect(),
        consumers: (0..consumers).map(|_| Box::new(Take(queue.clone())) as _).collect(),
    }
}

fn lock(end: &Mutex<End>) -> MutexGuard<'_, End> {
    end.lock().expect("no thread panics with a lock")
}

fn wait<'a>(condition: &Condvar, end: MutexGuard<'a, End>) -> MutexGuard<'a, End> {
    condition.wait(end).expect("no thread panics with a lock")
}

impl Drop for Queue {
    fn drop(&mut self) {
        let mut node = lock(&self.head).0;
        while !node.is_null() {
            // SAFETY: no thread has the queue any more, each node is in the list once, and it was made by `Node::new`.
            let owned = unsafe { Box::from_raw(node) };
            node = owned.next.load(Ordering::Relaxed);
        }
    }
}

struct Put(Arc<Queue>);

impl Producer for Put {
    fn put(&mut self, item: Item) {
        let queue = &*self.0;
        let node = Node::new(Some(item));
        let mut tail = lock(&queue.tail);
        while queue.count.load(Ordering::Acquire) == CAPACITY {
            tail = wait(&queue.not_full, tail);
        }
        // SAFETY: the last node is freed only when there is a node behind it.
        unsafe { (*tail.0).next.store(node, Ordering::Release) };
        tail.0 = node;
        let before = queue.count.fetch_add(1, Ordering::AcqRel);
        if before + 1 < CAPACITY {
            queue.not_full.notify_one();
        }
        drop(tail);
        if before == 0 {
            // Under its lock, so that no consumer waits after it has seen an empty queue.
            let _head = lock(&queue.head);
            queue.not_empty.notify_one();
        }
    }
}

impl Drop for Put {
    fn drop(&mut self) {
        self.0.producers.fetch_sub(1, Ordering::AcqRel);
        let _head = lock(&self.0.head);
        self.0.not_empty.notify_all();
    }
}

struct Take(Arc<Queue>);

impl Consumer for Take {
    fn take(&mut self) -> Option<Item> {
        let queue = &*self.0;
        let mut head = lock(&queue.head);
        loop {
            // The producers are read first: what they have put is counted then.
            let is_ended = queue.producers.load(Ordering::Acquire) == 0;
            if queue.count.load(Ordering::Acquire) > 0 {
                break;
            }
            if is_ended {
                return None;
            }
            head = wait(&queue.not_empty, head);
        }
        // SAFETY: the dummy was made by `Node::new`; only this thread, which has the lock, uses it: the count says that there
        // is a node behind it, so that no producer does.
        let dummy = unsafe { Box::from_raw(head.0) };
        head.0 = dummy.next.load(Ordering::Acquire);
        // SAFETY: the node behind the dummy is in the list, and its item is taken under this lock only.
        let item = unsafe { (*head.0).item.take() };
        let before = queue.count.fetch_sub(1, Ordering::AcqRel);
        if before > 1 {
            queue.not_empty.notify_one();
        }
        drop(head);
        if before == CAPACITY {
            let _tail = lock(&queue.tail);
            queue.not_full.notify_one();
        }
        item
    }
}
