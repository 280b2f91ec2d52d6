//! Memory that every access mode takes without a copy.

use super::ALIGNMENT;
use memmap2::{MmapMut, MmapOptions};
use std::{
    fmt, io,
    ops::{Deref, DerefMut},
};

/// From this size on, memory comes straight from the system and goes straight back to it, so that
/// the memory that is used is the memory that was asked for. In bytes.
///
/// Large pages are not asked for: where memory is in pieces, making one takes the system longer
/// than the small pages do.
const MAPPED_MIN: usize = 1 << 17;

/// Bytes in memory whose address is a multiple of [`ALIGNMENT`].
pub struct Buffer {
    room: Room,
    len: usize,
}

enum Room {
    /// With room to align in.
    Heap {
        bytes: Vec<u8>,
        start: usize,
    },
    Mapped(MmapMut),
}

impl Buffer {
    /// `len` zeros. A big buffer takes memory only where it is touched.
    pub fn zeroed(len: usize) -> Buffer {
        if len >= MAPPED_MIN
            && let Ok(map) = MmapMut::map_anon(len)
        {
            return Buffer { room: Room::Mapped(map), len };
        }
        Buffer::on_heap(len)
    }

    /// `len` zeros with all of their memory there already: the caller pays for that, and not
    /// whoever writes to it first. From a page on, the memory comes straight from the system: the
    /// heap would keep some of it for itself, and lose up to a page of each buffer to alignment.
    pub fn resident(len: usize) -> Buffer {
        if len >= ALIGNMENT
            && let Ok(map) = MmapOptions::new().len(len).populate().map_anon()
        {
            return Buffer { room: Room::Mapped(map), len };
        }
        Buffer::on_heap(len)
    }

    /// `len` zeros to be read and written here and there, or the system's error where it has no
    /// memory for them. Large pages are asked for: with small ones, finding the page takes as
    /// long as reading it.
    pub fn for_random_access(len: usize) -> io::Result<Buffer> {
        if len < MAPPED_MIN {
            return Ok(Buffer::on_heap(len));
        }
        let map = MmapMut::map_anon(len)?;
        #[cfg(target_os = "linux")]
        // A system without large pages says no, and small ones do.
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
