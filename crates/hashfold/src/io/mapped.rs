//! Files that are read through a memory map.
#![allow(unsafe_code)]

use super::{
    BlockFile, Extent, Extents, FileExtents, Visit,
    disk::{check_whole, read_each, refused, within},
    free_memory::free_memory,
    map_faults::GuardedMap,
    os_file::{OsFile, at_once},
};
use crate::error::{Error, Place, Result};
use memmap2::{Advice, Mmap};
use rustix::io::Errno;
use std::{path::Path, ptr};

/// The size from which on a read is announced to the system, which then reads all of it at once.
const LARGE_READ: usize = 1 << 16;

/// The size from which on a file is mapped in large pages.
const LARGE_FILE: usize = 64 << 20;

/// Number of bytes at the end of the map that are compared with those at opening.
const TAIL_SIZE: usize = size_of::<u64>();

/// A map of the content of a file at the time of opening. The file itself is closed.
///
/// If another process cuts the file, [`BlockFile::check_map`] returns an error from then on.
#[derive(Debug)]
pub(super) struct MappedFile {
    place: Place,
    // Dropped before the map.
    guard: GuardedMap,
    map: Mmap,
    /// Whether a page that is read for the first time comes with the 2 MiB around it.
    has_large_pages: bool,
    /// The last bytes of the file when it was opened.
    tail: [u8; TAIL_SIZE],
}

impl MappedFile {
    pub(super) fn open(path: &Path) -> Result<MappedFile> {
        let file = OsFile::open("open", path, &at_once())?;
        // SAFETY: A map is sound as long as the file is neither changed nor truncated. Files of
        // this library are complete before they get the name under which they are opened, never
        // change after that, and are replaced by renaming or removed, which does not affect the
        // mapped file. If another program cuts one nevertheless, pages of zeros take the place of
        // those that are gone.
        let map = unsafe { Mmap::map(&*file.file) }.map_err(refused("map", path))?;
        let has_large_pages = fits(map.len()) && map.advise(Advice::HugePage).is_ok();
        if !has_large_pages {
            map.advise(Advice::Random).map_err(refused("map", path))?;
        }
        let guard = GuardedMap::new(&map);
        let tail = tail(&map);
        let mapped = MappedFile { place: Place::file(path), guard, map, has_large_pages, tail };
        mapped.check_map()?;
        Ok(mapped)
    }
}

/// Whether a file is large, and its pages take at most half of the memory that is free for them. Then it
/// is read and mapped in pages of 2 MiB: a lookup has fewer misses in the table of pages, and the file is
/// in memory after fewer reads. The first lookup in each of these pages takes longer.
fn fits(size: usize) -> bool {
    size >= LARGE_FILE && size as u64 <= free_memory() / 2
}

/// Returns the last bytes of a map as they are now.
#[inline]
fn tail(map: &[u8]) -> [u8; TAIL_SIZE] {
    map.last_chunk().map_or([0; TAIL_SIZE], |tail: &[u8; TAIL_SIZE]| {
        // SAFETY: the pointer comes from a reference. The read is volatile because another process
        // may have changed the file.
        unsafe { ptr::read_volatile(tail) }
    })
}

/// Returns the bytes of an extent in the map of a file.
fn slice(map: &[u8], extent: Extent) -> Option<&[u8]> {
    let start = usize::try_from(extent.offset).ok()?;
    map.get(start..start.checked_add(extent.len)?)
}

impl BlockFile for MappedFile {
    fn place(&self) -> &Place {
        &self.place
    }

    fn size(&self) -> Result<u64> {
        Ok(self.map.len() as u64)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let extent = Extent { offset, len: bytes.len() };
        if bytes.len() >= LARGE_READ {
            self.will_need(extent);
        }
        match slice(&self.map, extent) {
            Some(mapped) => bytes.copy_from_slice(mapped),
            None => check_whole(&self.place, extent, within(extent, self.map.len() as u64).len)?,
        }
        self.check_map()
    }

    fn read_many(&self, extents: &mut Extents<'_>, visit: &mut Visit<'_>) -> Result<()> {
        self.read_across(&[self], &mut extents.map(|extent| (0, extent)), visit)
    }

    fn read_across(
        &self,
        files: &[&dyn BlockFile],
        extents: &mut FileExtents<'_>,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        for (i, (file, extent)) in extents.enumerate() {
            match files[file].mapped().and_then(|map| slice(map, extent)) {
                Some(mapped) => {
                    visit(i, mapped)?;
                    files[file].check_map()?;
                }
                None => {
                    let read = |_, offset, bytes: &mut [u8]| files[file].read_at(offset, bytes);
                    let mut one = std::iter::once((file, extent));
                    read_each(&mut one, read, &mut |_, bytes| visit(i, bytes))?;
                }
            }
        }
        Ok(())
    }

    fn mapped(&self) -> Option<&[u8]> {
        Some(&self.map)
    }

    #[inline]
    fn is_lost(&self) -> bool {
        self.guard.is_lost()
    }

    #[inline]
    fn check_map(&self) -> Result<()> {
        if !self.guard.is_lost() && tail(&self.map) == self.tail {
            return Ok(());
        }
        Err(lost(&self.place))
    }

    fn will_need(&self, extent: Extent) {
        let Extent { offset, len } = within(extent, self.map.len() as u64);
        if len > 0 && !self.has_large_pages {
            // It is only advice. With large pages, it would bring in small ones before.
            let _ = self.map.advise_range(Advice::WillNeed, offset as usize, len);
        }
    }

    fn warm(&self, extent: Extent) {
        let Extent { offset, len } = within(extent, self.map.len() as u64);
        if len > 0 {
            // It is only advice: kernels before 5.14 do not know it.
            let _ = self.map.advise_range(Advice::PopulateRead, offset as usize, len);
        }
    }

    fn write_at(&self, _: u64, _: &[u8]) -> Result<()> {
        Err(refused("write", &self.place.file)(Errno::BADF))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

#[cold]
fn lost(place: &Place) -> Error {
    let got = "cut, changed or unreadable while it was open; open the data set again";
    Error::field("mapped file", "whole", got).at(place)
}
