//! Files that are read through a memory map.
#![allow(unsafe_code)]

use super::{
    BlockFile, Extent, Extents, FileExtents, Visit,
    disk::{check_whole, read_each, refused, within},
    os_file::{OsFile, at_once},
};
use crate::error::{Place, Result};
use memmap2::{Advice, Mmap};
use rustix::io::Errno;
use std::path::Path;

/// A map of the content of a file at the time of opening. The file itself is closed.
#[derive(Debug)]
pub(super) struct MappedFile {
    place: Place,
    map: Mmap,
}

impl MappedFile {
    pub(super) fn open(path: &Path) -> Result<MappedFile> {
        let file = OsFile::open("open", path, &at_once())?;
        // SAFETY: A map is sound as long as the file is neither changed nor truncated. Files of
        // this library are complete before they get the name under which they are opened, never
        // change after that, and are replaced by renaming or removed, which does not affect the
        // mapped file.
        let map = unsafe { Mmap::map(&*file.file) }.map_err(refused("map", path))?;
        map.advise(Advice::Random).map_err(refused("map", path))?;
        Ok(MappedFile { place: Place::file(path), map })
    }
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
        match slice(&self.map, extent) {
            Some(mapped) => bytes.copy_from_slice(mapped),
            None => check_whole(&self.place, extent, within(extent, self.map.len() as u64).len)?,
        }
        Ok(())
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
                Some(mapped) => visit(i, mapped)?,
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

    fn write_at(&self, _: u64, _: &[u8]) -> Result<()> {
        Err(refused("write", &self.place.file)(Errno::BADF))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}
