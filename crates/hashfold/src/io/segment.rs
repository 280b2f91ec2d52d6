//! Memory that becomes resident in steps: a range of addresses is reserved as a whole and populated from front to
//! back, by its owner or ahead of it by a background job.
#![allow(unsafe_code)]

use crate::error::{Error, Result};
use memmap2::{Advice, MmapOptions, MmapRaw};
use std::{
    fmt, io,
    ops::{Deref, DerefMut},
    slice,
    sync::Arc,
};

/// Size of a segment in bytes from which on large pages are requested.
const LARGE_MIN: usize = 4 << 20;

/// A range of zeros, all of it reserved and none of it resident until it is populated or touched.
pub(crate) struct Segment(Arc<MmapRaw>);

/// A part of a [`Segment`], which a background job populates.
#[derive(Clone)]
pub(crate) struct Part {
    map: Arc<MmapRaw>,
    start: usize,
    len: usize,
}

impl Segment {
    /// Reserves addresses for `len` bytes. Large pages are requested for large segments.
    ///
    /// # Errors
    /// `Io` if the system refuses.
    pub(crate) fn reserve(len: usize) -> Result<Segment> {
        let map = MmapOptions::new().len(len).no_reserve_swap().map_anon();
        let map = map.map_err(|error| Error::io("reserve memory", error))?;
        #[cfg(target_os = "linux")]
        if len >= LARGE_MIN {
            // A system without large pages refuses, and uses small ones.
            let _ = map.advise(Advice::HugePage);
        }
        Ok(Segment(Arc::new(map.into())))
    }

    /// Returns a step in which a segment of this size is populated, in bytes: a large page, or less.
    ///
    /// A segment need not begin at a large page. A step may then end within one, all of which becomes resident: up to
    /// 2 MiB more than was populated.
    pub(crate) fn step(len: usize) -> usize {
        if len >= LARGE_MIN { 2 << 20 } else { 1 << 16 }
    }

    /// Returns the `len` bytes from `start` on, for populating them.
    pub(crate) fn part(&self, start: usize, len: usize) -> Part {
        assert!(start + len <= self.0.len());
        Part { map: self.0.clone(), start, len }
    }
}

impl Part {
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
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the map is readable, initialised with zeros, and lives as long as `self`. Only this owner accesses
        // its bytes: a `Part` gives no access to them, and populating memory leaves its contents as they are.
        unsafe { slice::from_raw_parts(self.0.as_ptr(), self.0.len()) }
    }
}

impl DerefMut for Segment {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; the map is writable, and `self` is borrowed mutably as long as the slice lives.
        unsafe { slice::from_raw_parts_mut(self.0.as_mut_ptr(), self.0.len()) }
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segment({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn populating_a_part_leaves_its_contents() {
        for len in [1 << 16, LARGE_MIN] {
            let mut segment = Segment::reserve(len).unwrap();
            let step = Segment::step(len);
            segment[step - 1] = 7;
            segment.part(0, step).populate().unwrap();
            let rest = segment.part(len - step, step);
            assert!(segment[..step - 1].iter().all(|byte| *byte == 0));
            assert_eq!((segment[step - 1], segment.len()), (7, len));
            drop(segment);
            rest.populate().unwrap();
        }
    }
}
