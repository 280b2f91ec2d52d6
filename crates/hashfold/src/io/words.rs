//! Memory for large tables of numbers.
#![allow(unsafe_code)]

use memmap2::{Advice, MmapMut};
use std::{
    fmt,
    ops::{Deref, DerefMut},
    slice,
};

/// From this size on large pages are asked for, in bytes: a table that is read at random places
/// would otherwise miss the processor's list of pages with each of them. It is made once and used
/// for long, which is worth the time that the system takes to find such pages.
const LARGE_MIN: usize = 4 << 20;

/// 64-bit numbers in memory.
pub struct Words(Room);

enum Room {
    Heap(Vec<u64>),
    /// A multiple of 8 bytes, aligned to a page.
    Mapped(MmapMut),
}

impl Words {
    /// So many of one number.
    pub fn filled(len: usize, word: u64) -> Words {
        let size = len * size_of::<u64>();
        if size >= LARGE_MIN
            && let Ok(map) = MmapMut::map_anon(size)
        {
            // Small pages do as well, if slower.
            let _ = map.advise(Advice::HugePage);
            let mut words = Words(Room::Mapped(map));
            words.fill(word);
            return words;
        }
        Words(Room::Heap(vec![word; len]))
    }
}

impl Deref for Words {
    type Target = [u64];

    #[inline]
    fn deref(&self) -> &[u64] {
        match &self.0 {
            Room::Heap(words) => words,
            // SAFETY: The map is aligned to a page and initialised, all bit patterns are numbers,
            // and the slice ends with the whole numbers in it; it lives as long as `self`.
            Room::Mapped(map) => unsafe {
                slice::from_raw_parts(map.as_ptr().cast(), map.len() / 8)
            },
        }
    }
}

impl DerefMut for Words {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u64] {
        match &mut self.0 {
            Room::Heap(words) => words,
            // SAFETY: As above; `self` is borrowed mutably for as long.
            Room::Mapped(map) => unsafe {
                slice::from_raw_parts_mut(map.as_mut_ptr().cast(), map.len() / 8)
            },
        }
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Words({})", self.len())
    }
}
