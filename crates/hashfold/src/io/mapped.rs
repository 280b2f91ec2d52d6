//! Files that are read through a memory map.
#![allow(unsafe_code)]

use super::{
    BlockFile, Extent, Extents, FileExtents, Visit,
    disk::{read_each, refused},
    os_file::OsFile,
};
use crate::error::{Place, Result};
use memmap2::{Advice, Mmap};

/// A file, and a map of its content at the time of opening.
#[derive(Debug)]
pub(super) struct MappedFile {
    file: OsFile,
    map: Mmap,
}

impl MappedFile {
    pub(super) fn new(file: OsFile) -> Result<MappedFile> {
        // SAFETY: A map is sound as long as the file is neither changed nor truncated. Files of
        // this library are complete before they get the name under which they are opened, never
        // change after that, and are replaced by renaming or removed, which does not affect the
        // mapped file.
        let map = unsafe { Mmap::map(&file.file) }.map_err(refused("map", &file.place().file))?;
        map.advise(Advice::Random).map_err(refused("map", &file.place().file))?;
        Ok(MappedFile { file, map })
    }
}

/// Returns the bytes of an extent in the map of a file.
fn slice(map: &[u8], extent: Extent) -> Option<&[u8]> {
    let start = usize::try_from(extent.offset).ok()?;
    map.get(start..start.checked_add(extent.len)?)
}

impl BlockFile for MappedFile {
    fn place(&self) -> &Place {
        self.file.place()
    }

    fn size(&self) -> Result<u64> {
        self.file.size()
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        match slice(&self.map, Extent { offset, len: bytes.len() }) {
            Some(mapped) => {
                bytes.copy_from_slice(mapped);
                Ok(())
            }
            // The extent is not in the map: the file has grown, or the extent is past its end.
            None => self.file.read_at(offset, bytes),
        }
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

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_at(offset, bytes)
    }

    fn sync(&self) -> Result<()> {
        self.file.sync()
    }
}
