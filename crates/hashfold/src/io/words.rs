//! Memory for large tables of numbers.
#![allow(unsafe_code)]

use memmap2::{Advice, MmapMut};
use std::{
    fmt,
    ops::{Deref, DerefMut},
    slice,
};

/// Size in bytes from which on large pages are requested. Random accesses to a table on small pages
/// miss the TLB almost every time. A table is allocated once and used for long, which makes up for
/// the time that large pages take.
const LARGE_MIN: usize = 4 << 20;

/// A sequence of 64-bit numbers in memory.
pub struct Words(WordMemory);

enum WordMemory {
    Heap(Vec<u64>),
    /// A map, aligned to a page, whose size is a multiple of 8 bytes.
    Mapped(MmapMut),
}

impl Words {
    /// Returns `len` copies of `word`.
    pub fn filled(len: usize, word: u64) -> Words {
        let size = len * size_of::<u64>();
        if size >= LARGE_MIN
            && let Ok(map) = MmapMut::map_anon(size)
        {
            // Without large pages, access is only slower.
            let _ = map.advise(Advice::HugePage);
            let mut words = Words(WordMemory::Mapped(map));
            words.fill(word);
            return words;
        }
        Words(WordMemory::Heap(vec![word; len]))
    }
}

impl Deref for Words {
    type Target = [u64];

    #[inline]
    fn deref(&self) -> &[u64] {
        match &self.0 {
            WordMemory::Heap(words) => words,
            // SAFETY: The map is aligned to a page and initialised, all bit patterns are numbers,
            // and the slice ends with the last whole number in it; it lives as long as `self`.
            WordMemory::Mapped(map) => unsafe {
                slice::from_raw_parts(map.as_ptr().cast(), map.len() / 8)
            },
        }
    }
}

impl DerefMut for Words {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u64] {
        match &mut self.0 {
            WordMemory::Heap(words) => words,
            // SAFETY: As above; `self` is borrowed mutably as long as the slice lives.
            WordMemory::Mapped(map) => unsafe {
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
