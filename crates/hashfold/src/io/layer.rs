//! Disks over other disks.

use super::{Access, BlockFile, Disk, Lock};
use crate::error::Result;
use std::{
    fmt::Debug,
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
