//! Memory that becomes resident in steps: a range of addresses is reserved as a whole, its parts are populated by its
//! owner or ahead of it by a background job, and given back to the system when the owner needs them no more.
#![allow(unsafe_code)]

use crate::error::{Error, Result};
#[cfg(target_os = "linux")]
use memmap2::UncheckedAdvice;
use memmap2::{Advice, MmapOptions, MmapRaw};
use std::{
    fmt, io,
    ops::{Deref, DerefMut},
    ptr::NonNull,
    sync::Arc,
};

/// Size of a segment in bytes.
pub(crate) const SEGMENT_BYTES: usize = 32 << 20;

/// Size of a large page in bytes.
pub(crate) const LARGE_PAGE_BYTES: usize = 2 << 20;

/// A range of zeros, which begins at a large page; all of it is reserved, and none of it resident until it is populated
/// or touched.
pub(crate) struct Segment {
    map: Arc<MmapRaw>,
    /// The bytes of the map from its first large page on. The map is asked once: this is in the path of every lookup.
    start: NonNull<[u8; SEGMENT_BYTES]>,
}

// SAFETY: the segment owns the bytes that `start` points to, as a `Box<[u8]>` would.
unsafe impl Send for Segment {}
// SAFETY: as above; bytes are changed through a mutable reference only.
unsafe impl Sync for Segment {}

/// A part of a [`Segment`], which a background job populates.
#[derive(Clone)]
pub(crate) struct Part {
    map: Arc<MmapRaw>,
    /// The first byte in the map.
    start: usize,
    len: usize,
}

impl Segment {
    /// Reserves addresses. Large pages are requested from byte `large_from` on.
    ///
    /// # Errors
    /// `Io` if the system refuses.
    pub(crate) fn reserve(large_from: usize) -> Result<Segment> {
        let len = SEGMENT_BYTES + LARGE_PAGE_BYTES;
        let map = MmapOptions::new().len(len).no_reserve_swap().map_anon();
        let map = MmapRaw::from(map.map_err(|error| Error::io("reserve memory", error))?);
        let start = map.as_mut_ptr().wrapping_add(first_large_page(&map));
        let start = NonNull::new(start).expect("a map is not at address 0").cast();
        let segment = Segment { start, map: Arc::new(map) };
        #[cfg(target_os = "linux")]
        if large_from < SEGMENT_BYTES {
            let Part { map, start, len } = segment.part(large_from, SEGMENT_BYTES - large_from);
            // A system without large pages refuses, and uses small ones.
            let _ = map.advise_range(Advice::HugePage, start, len);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = large_from;
        Ok(segment)
    }

    /// Returns the `len` bytes from `start` on, for populating them.
    pub(crate) fn part(&self, start: usize, len: usize) -> Part {
        assert!(start + len <= SEGMENT_BYTES);
        Part { start: first_large_page(&self.map) + start, len, map: self.map.clone() }
    }

    /// Gives the memory of the `len` bytes from `start` on back to the system: they are zeros then, and become resident
    /// again when they are populated or touched. Returns `false`, and leaves them as they are, if the system cannot.
    ///
    /// A job that populates these bytes must have ended: they may be resident after it.
    #[cfg(target_os = "linux")]
    pub(crate) fn give_back(&mut self, start: usize, len: usize) -> bool {
        let Part { map, start, len } = self.part(start, len);
        // SAFETY: the map is anonymous and private, so that its bytes are zeros when they are read the next time, which
        // are valid bytes. `self` is borrowed mutably: no slice of the map lives while its contents change.
        unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, len) }.is_ok()
    }

    /// Leaves the bytes as they are: no memory is given back on this system.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn give_back(&mut self, start: usize, len: usize) -> bool {
        assert!(start + len <= SEGMENT_BYTES);
        false
    }

    /// Returns the number of bytes that are resident, as the system counts them.
    #[cfg(all(test, target_os = "linux"))]
    pub(crate) fn resident_bytes(&self) -> usize {
        // SAFETY: this reads a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let mut pages = vec![0_u8; SEGMENT_BYTES / page];
        // SAFETY: the range is that of the map, which lives as long as `self`, and `pages` has a byte for each page of it.
        let done = unsafe {
            libc::mincore(self.start.as_ptr().cast(), SEGMENT_BYTES, pages.as_mut_ptr().cast())
        };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
        pages.iter().filter(|page| **page & 1 == 1).count() * page
    }
}

impl Part {
    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Makes the part resident; its contents stay. On systems that cannot, memory becomes resident when it is touched.
    ///
    /// # Errors
    /// `Io` if there is not enough memory.
    pub(crate) fn populate(&self) -> Result<()> {
        #[cfg(target_os = "linux")]
        if let Err(error) = self.map.advise_range(Advice::PopulateWrite, self.start, self.len)
            && error.kind() != io::ErrorKind::InvalidInput
        {
            return Err(Error::io("allocate memory", error));
        }
        Ok(())
    }
}

impl Deref for Segment {
    type Target = [u8; SEGMENT_BYTES];

    #[inline]
    fn deref(&self) -> &[u8; SEGMENT_BYTES] {
        // SAFETY: the map is readable, initialised with zeros, and lives as long as `self`. Only this owner accesses
        // its bytes: a `Part` gives no access to them, and populating memory leaves its contents as they are.
        unsafe { self.start.as_ref() }
    }
}

impl DerefMut for Segment {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8; SEGMENT_BYTES] {
        // SAFETY: as above; the map is writable, and `self` is borrowed mutably as long as the reference lives.
        unsafe { self.start.as_mut() }
    }
}

/// Returns the offset of the first large page of a map, in bytes.
fn first_large_page(map: &MmapRaw) -> usize {
    map.as_ptr().addr().wrapping_neg() % LARGE_PAGE_BYTES
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Segment")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn populating_a_part_leaves_its_contents() {
        for step in [1 << 16, LARGE_PAGE_BYTES] {
            let mut segment = Segment::reserve(LARGE_PAGE_BYTES).unwrap();
            assert!(segment.as_ptr().addr().is_multiple_of(LARGE_PAGE_BYTES));
            segment[step - 1] = 7;
            segment.part(0, step).populate().unwrap();
            let rest = segment.part(SEGMENT_BYTES - step, step);
            assert!(segment[..step - 1].iter().all(|byte| *byte == 0));
            assert_eq!(segment[step - 1], 7);
            drop(segment);
            rest.populate().unwrap();
        }
    }

    /// Bytes that were given back are zeros and need no memory; the others stay. On a system that gives nothing back,
    /// all stay.
    #[test]
    fn a_part_that_is_given_back_is_zeros_and_can_be_used_again() {
        for (large_from, step) in [(SEGMENT_BYTES, 1 << 16), (0, LARGE_PAGE_BYTES)] {
            let mut segment = Segment::reserve(large_from).unwrap();
            let len = 4 * step;
            segment.part(0, len).populate().unwrap();
            segment[..len].fill(7);
            let is_given = segment.give_back(step, step);
            #[cfg(target_os = "linux")]
            assert_eq!((is_given, segment.resident_bytes()), (true, len - step));
            let expected =
                |at: usize| if is_given && (step..2 * step).contains(&at) { 0 } else { 7 };
            assert!(segment[..len].iter().enumerate().all(|(at, byte)| *byte == expected(at)));
            segment.part(step, step).populate().unwrap();
            segment[step..2 * step].fill(9);
            assert!(segment[step..2 * step].iter().all(|byte| *byte == 9));
            #[cfg(target_os = "linux")]
            assert_eq!(segment.resident_bytes(), len);
        }
    }
}
