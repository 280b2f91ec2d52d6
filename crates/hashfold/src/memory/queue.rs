//! A queue whose memory follows its length: it grows and shrinks by a part, so no entry is ever moved.

use std::collections::VecDeque;

/// Number of entries in a part.
const PART: usize = 1024;

/// Entries in the order in which they were added.
#[derive(Debug)]
pub(super) struct Queue<T> {
    /// The entries; no part is empty, and all but the first and the last one are full.
    parts: VecDeque<VecDeque<T>>,
    len: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { parts: VecDeque::new(), len: 0 }
    }
}

impl<T> Queue<T> {
    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        let parts = self.parts.capacity() * size_of::<VecDeque<T>>();
        parts + self.parts.len() * PART * size_of::<T>()
    }

    /// Returns the entry that was added first.
    #[inline]
    pub(super) fn first(&self) -> Option<&T> {
        self.parts.front()?.front()
    }

    /// Adds an entry.
    pub(super) fn push(&mut self, entry: T) {
        if self.parts.back().is_none_or(|part| part.len() == PART) {
            self.parts.push_back(VecDeque::with_capacity(PART));
        }
        self.parts.back_mut().expect("a part has room").push_back(entry);
        self.len += 1;
    }

    /// Removes the entry that was added first, if there is one.
    pub(super) fn pop(&mut self) {
        let Some(part) = self.parts.front_mut() else { return };
        part.pop_front();
        self.len -= 1;
        if part.is_empty() {
            self.parts.pop_front();
        }
        if self.parts.is_empty() {
            self.parts = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue grows and shrinks, three times, beside one of the standard library.
    #[test]
    fn the_memory_of_a_queue_follows_its_length() {
        let (mut queue, mut expected) = (Queue::default(), VecDeque::new());
        for i in 0..60_000_u64 {
            queue.push(i);
            expected.push_back(i);
            let popped = if i / 10_000 % 2 == 0 { 0 } else { 2 };
            for _ in 0..popped {
                assert_eq!(queue.first(), expected.pop_front().as_ref());
                queue.pop();
            }
            assert_eq!((queue.len(), queue.first()), (expected.len(), expected.front()));
            // The first part and the last one may have an entry each, and a part has an entry in a list.
            assert!(queue.bytes() <= (queue.len() + 2 * PART) * 8 + 1024);
        }
        queue.pop();
        assert_eq!((queue.len(), queue.first(), queue.bytes()), (0, None, 0));
    }
}
