//! Memory that every access mode takes without a copy.
#![allow(unsafe_code)]

use super::ALIGNMENT;
use memmap2::MmapMut;
use std::{
    fmt,
    ops::{Deref, DerefMut},
    ptr::NonNull,
    sync::Arc,
};

/// From this size on, memory comes straight from the system and goes straight back to it.
const MAPPED_MIN: usize = 1 << 17;

/// The size of a large page: one is taken at the price of about one small page. In bytes.
const LARGE_PAGE: usize = 1 << 21;

/// Bytes in memory whose address is a multiple of [`ALIGNMENT`].
pub struct Buffer {
    memory: Arc<Memory>,
    /// The first byte, in `memory`; the buffer alone uses it and the `len - 1` bytes after it.
    start: NonNull<u8>,
    len: usize,
}

/// Memory that is given back when no buffer uses it any more.
enum Memory {
    Heap { _room: Vec<u8> },
    Mapped { _room: MmapMut },
}

// SAFETY: A buffer is the only one to use its bytes, as if it owned them; what it shares with
// others is only kept to be dropped.
unsafe impl Send for Buffer {}
// SAFETY: As above; shared, a buffer is only read.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `len` zeros. A big buffer takes memory only where it is touched.
    pub fn zeroed(len: usize) -> Buffer {
        let (memory, start) = Memory::zeroed(len);
        Buffer { memory: Arc::new(memory), start, len }
    }

    /// `count` buffers of `len` zeros, `len` a multiple of [`ALIGNMENT`]: neighbours, so that they
    /// can be in large pages. Their memory is given back when the last of them is dropped.
    pub fn many(count: usize, len: usize) -> Vec<Buffer> {
        assert!(len.is_multiple_of(ALIGNMENT));
        let (memory, start) = Memory::zeroed(count * len);
        let memory = Arc::new(memory);
        let buffer = |i: usize| {
            // SAFETY: The memory has `count * len` bytes and `i` is below `count`. Each buffer
            // has bytes of its own.
            let start = unsafe { start.add(i * len) };
            Buffer { memory: memory.clone(), start, len }
        };
        (0..count).map(buffer).collect()
    }
}

impl Memory {
    /// At least `len` zeros from an aligned address on.
    fn zeroed(len: usize) -> (Memory, NonNull<u8>) {
        if len >= MAPPED_MIN
            && let Ok(mut room) = MmapMut::map_anon(len)
        {
            if len >= LARGE_PAGE {
                // Only advice: without large pages it is as good, only slower.
                #[cfg(target_os = "linux")]
                let _ = room.advise(memmap2::Advice::HugePage);
            }
            let start = NonNull::new(room.as_mut_ptr()).expect("a map is somewhere");
            return (Memory::Mapped { _room: room }, start);
        }
        let mut room = vec![0_u8; len + ALIGNMENT - 1];
        let address = room.as_ptr().addr();
        let over = address.next_multiple_of(ALIGNMENT) - address;
        let start = NonNull::from(&mut room[over..]).cast();
        (Memory::Heap { _room: room }, start)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes from `start` on are in `memory`, which is kept, and were zeroed or
        // written; nobody else has them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: As above, and the buffer is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match *self.memory {
            Memory::Heap { .. } => "heap",
            Memory::Mapped { .. } => "mapped",
        };
        write!(f, "Buffer({} bytes, {kind})", self.len)
    }
}
