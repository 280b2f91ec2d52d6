//! Disks over other disks, and files over other files.

use super::{Access, BlockFile, Disk, Extent, Extents, FileExtents, Lock, Visit};
use crate::error::{Place, Result};
use std::{
    fmt::Debug,
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A disk over another one. All calls of [`Disk`] are forwarded; a layer can look at them, and put
/// files of its own over those of the disk below.
pub trait DiskLayer: Debug + Send + Sync {
    /// Returns the disk below.
    fn below(&self) -> &dyn Disk;

    /// Is called before a file is opened for reading.
    fn before_open(&self, path: &Path) {
        let _ = path;
    }

    /// Is called before a file is renamed.
    fn before_rename(&self, from: &Path, to: &Path) {
        let _ = (from, to);
    }

    /// Returns the file to use in place of a file that was created.
    fn over_created(&self, path: &Path, file: Arc<dyn BlockFile>) -> Arc<dyn BlockFile> {
        let _ = path;
        self.over_opened(file)
    }

    /// Returns the free space to report in place of that of the disk below, which is `bytes`.
    fn over_free_bytes(&self, bytes: u64) -> u64 {
        bytes
    }

    /// Returns the free memory to report in place of that of the disk below, which is `bytes`.
    fn over_free_memory(&self, bytes: u64) -> u64 {
        bytes
    }

    /// Returns the file to use in place of a file that was opened.
    fn over_opened(&self, file: Arc<dyn BlockFile>) -> Arc<dyn BlockFile> {
        file
    }
}

impl<L: DiskLayer> Disk for L {
    fn create(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>> {
        Ok(self.over_created(path, self.below().create(path, access)?))
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>> {
        self.before_open(path);
        Ok(self.over_opened(self.below().open(path, access)?))
    }

    fn open_named(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>> {
        self.before_open(path);
        Ok(self.over_opened(self.below().open_named(path, access)?))
    }

    fn open_to_write(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>> {
        Ok(self.over_opened(self.below().open_to_write(path, access)?))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.below().exists(path)
    }

    fn list(&self, folder: &Path) -> Result<Vec<String>> {
        self.below().list(folder)
    }

    fn create_folder(&self, folder: &Path) -> Result<()> {
        self.below().create_folder(folder)
    }

    fn remove_folder(&self, folder: &Path) -> Result<()> {
        self.below().remove_folder(folder)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.below().remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.before_rename(from, to);
        self.below().rename(from, to)
    }

    fn sync_folder(&self, folder: &Path) -> Result<()> {
        self.below().sync_folder(folder)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        self.below().lock(path)
    }

    fn share(&self, path: &Path) -> Result<Box<dyn Lock>> {
        self.below().share(path)
    }

    fn is_link(&self, path: &Path) -> Result<bool> {
        self.below().is_link(path)
    }

    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        self.below().absolute(path)
    }

    fn free_bytes(&self, folder: &Path) -> Result<u64> {
        Ok(self.over_free_bytes(self.below().free_bytes(folder)?))
    }

    fn free_memory(&self) -> u64 {
        self.over_free_memory(self.below().free_memory())
    }
}

/// A file over another one. All calls of [`BlockFile`] are forwarded; a layer is told of reads and writes before they are
/// done, and can refuse them. It is not told of bytes that are used through [`BlockFile::mapped`].
pub trait FileLayer: Debug + Send + Sync {
    /// Returns the file below.
    fn below(&self) -> &dyn BlockFile;

    /// Is called before an extent is read.
    ///
    /// # Errors
    /// The read is not done. Of several reads, those that have begun are finished.
    fn before_read(&self, extent: Extent) -> Result<()> {
        let _ = extent;
        Ok(())
    }

    /// Is called before bytes are written.
    ///
    /// # Errors
    /// The write is not done, and no other one that was to be done together with it.
    fn before_write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let _ = (offset, bytes);
        Ok(())
    }

    /// Is called before the file is allocated up to `size` bytes.
    ///
    /// # Errors
    /// The file is not allocated.
    fn before_allocate(&self, size: u64) -> Result<()> {
        let _ = size;
        Ok(())
    }

    /// Is called before a hole is punched.
    ///
    /// # Errors
    /// The hole is not punched.
    fn before_hole(&self, extent: Extent) -> Result<()> {
        let _ = extent;
        Ok(())
    }

    /// Is called before a sync.
    ///
    /// # Errors
    /// The file is not synced.
    fn before_sync(&self) -> Result<()> {
        Ok(())
    }

    /// Is called after a sync that has succeeded.
    ///
    /// # Errors
    /// The sync fails after all.
    fn after_sync(&self) -> Result<()> {
        Ok(())
    }
}

impl<L: FileLayer> BlockFile for L {
    fn place(&self) -> &Place {
        self.below().place()
    }

    fn place_at(&self, offset: u64) -> Place {
        self.below().place_at(offset)
    }

    fn size(&self) -> Result<u64> {
        self.below().size()
    }

    fn device_bytes(&self) -> Result<u64> {
        self.below().device_bytes()
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.before_read(Extent { offset, len: bytes.len() })?;
        self.below().read_at(offset, bytes)
    }

    fn read_many(&self, extents: &mut Extents<'_>, visit: &mut Visit<'_>) -> Result<()> {
        let mut refused = Ok(());
        let mut extents = extents.map_while(|extent| {
            refused = self.before_read(extent);
            refused.is_ok().then_some(extent)
        });
        self.below().read_many(&mut extents, visit)?;
        refused
    }

    fn read_across(
        &self,
        files: &[&dyn BlockFile],
        extents: &mut FileExtents<'_>,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        let mut refused = Ok(());
        let mut extents = extents.map_while(|(file, extent)| {
            refused = files[file].before_forwarded_read(extent);
            refused.is_ok().then_some((file, extent))
        });
        let files = files.iter().map(|file| file.forwards_to().unwrap_or(*file));
        self.below().read_across(&files.collect::<Vec<_>>(), &mut extents, visit)?;
        refused
    }

    fn forwards_to(&self) -> Option<&dyn BlockFile> {
        Some(self.below())
    }

    fn before_forwarded_read(&self, extent: Extent) -> Result<()> {
        self.before_read(extent)
    }

    fn descriptor(&self) -> Option<Arc<File>> {
        self.below().descriptor()
    }

    fn mapped(&self) -> Option<&[u8]> {
        self.below().mapped()
    }

    fn is_lost(&self) -> bool {
        self.below().is_lost()
    }

    fn check_map(&self) -> Result<()> {
        self.below().check_map()
    }

    fn will_need(&self, extent: Extent) {
        self.below().will_need(extent);
    }

    fn warm(&self, extent: Extent) {
        self.below().warm(extent);
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.before_write(offset, bytes)?;
        self.below().write_at(offset, bytes)
    }

    fn write_many(&self, writes: &[(u64, &[u8])]) -> Result<()> {
        writes.iter().try_for_each(|(offset, bytes)| self.before_write(*offset, bytes))?;
        self.below().write_many(writes)
    }

    fn allocate(&self, size: u64) -> Result<()> {
        self.before_allocate(size)?;
        self.below().allocate(size)
    }

    fn punch_hole(&self, extent: Extent) -> Result<()> {
        self.before_hole(extent)?;
        self.below().punch_hole(extent)
    }

    fn sync(&self) -> Result<()> {
        self.before_sync()?;
        self.below().sync()?;
        self.after_sync()
    }
}
