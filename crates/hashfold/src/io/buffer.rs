//! Heap bytes that every access mode takes without a copy.

use super::ALIGNMENT;
use std::{
    fmt,
    ops::{Deref, DerefMut},
};

/// Bytes on the heap whose address is a multiple of [`ALIGNMENT`].
pub struct Buffer {
    // A plain zeroed vector with room to align in: the allocator hands big ones out as untouched
    // zero pages, which it does not do for allocations that ask for an alignment.
    room: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// `len` zeros. A big buffer takes memory only where it is touched.
    pub fn zeroed(len: usize) -> Buffer {
        let room = vec![0; len + ALIGNMENT - 1];
        let address = room.as_ptr().addr();
        let start = address.next_multiple_of(ALIGNMENT) - address;
        Buffer { room, start, len }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.room[self.start..][..self.len]
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.room[self.start..][..self.len]
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}
