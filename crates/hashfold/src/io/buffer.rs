//! Memory that can be read and written with every access mode.

use memmap2::{MmapMut, MmapOptions};
use std::{
    fmt, io,
    ops::{Deref, DerefMut},
};

/// Alignment in bytes. The size of every framed file is a multiple of it, and so should be offsets,
/// lengths and buffer addresses of [`Access::Direct`](super::Access::Direct) reads and writes;
/// others cost a copy.
pub const ALIGNMENT: usize = 4096;

/// The size in bytes from which on buffers are mapped: the system gets the memory back as soon as a
/// buffer is dropped.
///
/// Large pages are not requested: if physical memory is fragmented, making one takes longer than
/// the small pages.
const MAPPED_MIN: usize = 1 << 16;

/// Bytes in memory whose address is a multiple of [`ALIGNMENT`].
pub struct Buffer {
    room: Room,
    len: usize,
}

enum Room {
    /// Heap memory, with additional bytes for the alignment.
    Heap {
        bytes: Vec<u8>,
        start: usize,
    },
    Mapped(MmapMut),
}

impl Buffer {
    /// Returns `len` zeros. A large buffer takes physical memory only where it is touched.
    pub fn zeroed(len: usize) -> Buffer {
        if len >= MAPPED_MIN
            && let Ok(map) = MmapMut::map_anon(len)
        {
            return Buffer { room: Room::Mapped(map), len };
        }
        Buffer::on_heap(len)
    }

    /// Returns `len` zeros whose physical memory is already allocated, so that the first write to
    /// it costs nothing extra. Buffers of a page and more are mapped: the heap would keep some of
    /// the memory, and lose up to a page of each buffer to alignment.
    pub fn resident(len: usize) -> Buffer {
        if len >= ALIGNMENT
            && let Ok(map) = MmapOptions::new().len(len).populate().map_anon()
        {
            return Buffer { room: Room::Mapped(map), len };
        }
        Buffer::on_heap(len)
    }

    /// Returns `len` zeros for random access, or the system's error if there is not enough memory.
    /// Large pages are requested: with small pages, a TLB miss takes as long as the access itself.
    pub fn for_random_access(len: usize) -> io::Result<Buffer> {
        if len < MAPPED_MIN {
            return Ok(Buffer::on_heap(len));
        }
        let map = MmapMut::map_anon(len)?;
        #[cfg(target_os = "linux")]
        // A system without large pages refuses, and uses small ones.
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Buffer { room: Room::Mapped(map), len })
    }

    fn on_heap(len: usize) -> Buffer {
        let bytes = vec![0_u8; len + ALIGNMENT - 1];
        let address = bytes.as_ptr().addr();
        let start = address.next_multiple_of(ALIGNMENT) - address;
        Buffer { room: Room::Heap { bytes, start }, len }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.room {
            Room::Heap { bytes, start } => &bytes[*start..][..self.len],
            Room::Mapped(map) => map,
        }
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.room {
            Room::Heap { bytes, start } => &mut bytes[*start..][..self.len],
            Room::Mapped(map) => map,
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.room {
            Room::Heap { .. } => "heap",
            Room::Mapped(_) => "mapped",
        };
        write!(f, "Buffer({} bytes, {kind})", self.len)
    }
}
