//! A stack that is pushed to and popped from without a branch on whether that is to be done, for when this is random.

/// Numbers, of which the last one is popped first.
#[derive(Debug)]
pub(super) struct Stack {
    /// The numbers, and room for at least one more.
    numbers: Vec<u32>,
    len: usize,
}

impl Stack {
    /// Makes an empty stack.
    pub(super) fn new() -> Stack {
        Stack { numbers: vec![0; 4], len: 0 }
    }

    /// Returns the memory of the stack in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.numbers.capacity() * size_of::<u32>()
    }

    /// Returns the numbers, the one that is popped first at the end.
    #[inline]
    pub(super) fn all(&self) -> &[u32] {
        &self.numbers[..self.len]
    }

    /// Returns the number that is popped first.
    #[inline]
    pub(super) fn last(&self) -> Option<u32> {
        self.all().last().copied()
    }

    /// Pushes a number, if `is_pushed`.
    #[inline]
    pub(super) fn push_if(&mut self, is_pushed: bool, number: u32) {
        self.numbers[self.len] = number;
        self.len += usize::from(is_pushed);
        if self.len == self.numbers.len() {
            self.grow();
        }
    }

    #[cold]
    fn grow(&mut self) {
        self.numbers.resize(2 * self.len, 0);
    }

    /// Pops a number, if `is_popped`.
    ///
    /// # Panics
    /// With debug assertions, if there is none.
    #[inline]
    pub(super) fn pop_if(&mut self, is_popped: bool) {
        debug_assert!(!is_popped || self.len > 0);
        self.len -= usize::from(is_popped);
    }

    /// Removes the numbers that are not to stay.
    pub(super) fn retain(&mut self, stays: impl FnMut(&u32) -> bool) {
        self.numbers.truncate(self.len);
        self.numbers.retain(stays);
        self.len = self.numbers.len();
        // Longer than the numbers, since it had room for one more before.
        self.numbers.resize(self.numbers.capacity(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_stack() {
        let (mut stack, mut expected) = (Stack::new(), Vec::new());
        for step in 0..2000_u32 {
            let random = step.wrapping_mul(0x9E37_79B9) >> 16;
            let (is_pushed, is_popped) = (random & 1 == 1, random & 6 == 0 && stack.len > 0);
            stack.pop_if(is_popped);
            if is_popped {
                expected.pop();
            }
            stack.push_if(is_pushed, step);
            if is_pushed {
                expected.push(step);
            }
            if step % 100 == 99 {
                stack.retain(|number| number % 7 != 0);
                expected.retain(|number| number % 7 != 0);
            }
            assert_eq!((stack.all(), stack.last()), (&expected[..], expected.last().copied()));
        }
        assert!(expected.len() > 100 && stack.bytes() >= expected.len() * size_of::<u32>());
    }
}
