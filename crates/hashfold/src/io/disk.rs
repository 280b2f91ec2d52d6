//! The traits of a disk and its files, and helpers of their implementations.

use super::Buffer;
use crate::error::{Error, ErrorKind, Place, Result};
use rustix::io::Errno;
use std::{
    fmt::Debug,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The way in which a file is read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Through the page cache, with positioned reads and writes.
    #[default]
    Cached,
    /// Reads through a memory map without read-ahead; writes as with [`Access::Cached`].
    Mapped,
    /// Past the page cache (`O_DIRECT`), with the requests of a batch in flight together
    /// (io_uring).
    Direct,
}

/// A range of bytes in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset in bytes from the start of the file.
    pub offset: u64,
    /// Length in bytes.
    pub len: usize,
}

/// Extents to be read. Their indexes count from 0.
pub type Extents<'a> = dyn Iterator<Item = Extent> + 'a;

/// Extents of several files, each with the index of its file. The indexes of the extents count from
/// 0.
pub type FileExtents<'a> = dyn Iterator<Item = (usize, Extent)> + 'a;

/// A callback that gets the bytes of the extent with this index. Extents arrive in any order.
pub type Visit<'a> = dyn FnMut(usize, &[u8]) -> Result<()> + 'a;

/// An open file. Threads can share it.
pub trait BlockFile: Debug + Send + Sync {
    /// Returns the path of the file, for errors.
    fn place(&self) -> &Place;

    /// Returns the place of a byte of the file, for errors. If the file is made of others, it is in one
    /// of these.
    fn place_at(&self, offset: u64) -> Place {
        self.place().offset(offset)
    }

    /// Returns the size of the file, in bytes.
    fn size(&self) -> Result<u64>;

    /// Returns the space that the file takes on the device, in bytes: holes are not counted. A disk
    /// that does not know it returns the size of the file.
    fn device_bytes(&self) -> Result<u64> {
        self.size()
    }

    /// Fills `bytes` with the bytes of the file from `offset` on.
    ///
    /// # Errors
    /// `Truncated` if the file ends before that.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()>;

    /// Reads all `extents`, as many at once as the back end can, and calls `visit` with each.
    /// Extents are taken only when they are needed, so that computing the next ones overlaps with
    /// reads. Stops at the first error.
    fn read_many(&self, extents: &mut Extents<'_>, visit: &mut Visit<'_>) -> Result<()> {
        let read = |_, offset, bytes: &mut [u8]| self.read_at(offset, bytes);
        read_each(&mut extents.map(|extent| (0, extent)), read, visit)
    }

    /// Reads extents of several files, each given by its index in `files`, as
    /// [`BlockFile::read_many`] does for one file. This file should be one of `files`, all of which
    /// were opened with the same [`Access`].
    fn read_across(
        &self,
        files: &[&dyn BlockFile],
        extents: &mut FileExtents<'_>,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        read_each(extents, |file, offset, bytes| files[file].read_at(offset, bytes), visit)
    }

    /// Returns the file to which this file forwards its calls, if there is one. A caller that reads from that file
    /// directly calls [`BlockFile::before_forwarded_read`] of this file first.
    fn forwards_to(&self) -> Option<&dyn BlockFile> {
        None
    }

    /// Announces that an extent of this file will be read from the file below, which [`BlockFile::forwards_to`] returns.
    ///
    /// # Errors
    /// The read must not be done.
    fn before_forwarded_read(&self, extent: Extent) -> Result<()> {
        let _ = extent;
        Ok(())
    }

    /// Returns the open file of the operating system, if there is one and its descriptor is not
    /// closed to make room for other files. It stays open as long as the caller keeps it.
    fn descriptor(&self) -> Option<Arc<File>> {
        None
    }

    /// Returns the bytes of the file, if it is mapped. They are right if [`BlockFile::check_map`]
    /// finds nothing wrong after they were used.
    fn mapped(&self) -> Option<&[u8]> {
        None
    }

    /// Whether a page of a mapped file is known to be unreadable. Takes less time than
    /// [`BlockFile::check_map`], and suits a check before bytes are used.
    #[inline]
    fn is_lost(&self) -> bool {
        false
    }

    /// Checks a mapped file after its bytes were used.
    ///
    /// # Errors
    /// Another process has cut the file, or the device could not read a part of it: some of the bytes
    /// may have been zeros instead.
    #[inline]
    fn check_map(&self) -> Result<()> {
        Ok(())
    }

    /// Announces that the bytes of an extent of a mapped file will be used. Their reads then overlap.
    fn will_need(&self, extent: Extent) {
        let _ = extent;
    }

    /// Brings the bytes of an extent of a mapped file into memory, and returns when they are there. It is
    /// only advice: where it has no effect, reads wait for the device as before.
    fn warm(&self, extent: Extent) {
        let _ = extent;
    }

    /// Writes all of `bytes` at `offset`. The file grows as needed.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Writes bytes at several offsets, as many at once as the back end can, in any order. The
    /// ranges must not overlap. After an error, each write may be done, not done, or done in part.
    fn write_many(&self, writes: &[(u64, &[u8])]) -> Result<()> {
        writes.iter().try_for_each(|(offset, bytes)| self.write_at(*offset, bytes))
    }

    /// Extends the file with zeros to at least `size` bytes, and allocates all of it on the device:
    /// a full disk is reported here, and not by a later write below `size` (except on file systems
    /// that never overwrite in place). A file system without this operation writes the zeros, which
    /// is slower.
    ///
    /// # Errors
    /// The file was opened for reading only.
    fn allocate(&self, size: u64) -> Result<()> {
        let _ = size;
        Err(refused("write", &self.place().file)(Errno::BADF))
    }

    /// Fills an extent with zeros, and frees its whole blocks on the device. The size of the file
    /// does not change; a part of the extent after the end of the file is ignored. A file system
    /// without this operation writes the zeros, and frees nothing.
    ///
    /// # Errors
    /// The file was opened for reading only.
    fn punch_hole(&self, extent: Extent) -> Result<()> {
        let _ = extent;
        Err(refused("write", &self.place().file)(Errno::BADF))
    }

    /// Waits until all written bytes are durable.
    fn sync(&self) -> Result<()>;
}

/// A lock, which is held until it is dropped or the process ends.
pub trait Lock: Debug + Send + Sync {}

/// A file system.
pub trait Disk: Debug + Send + Sync {
    /// Creates an empty file for reading and writing. An existing file of that name is replaced;
    /// handles that are open keep the old file.
    fn create(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>>;

    /// Opens an existing file for reading.
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>>;

    /// Opens an existing file for reading, whose name stays as long as the file is open. If the
    /// process has many files open, this one is closed while it is not read, and opened again by its
    /// name.
    fn open_named(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>> {
        self.open(path, access)
    }

    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// `access` is [`Access::Mapped`]: a file that changes must not be mapped.
    fn open_to_write(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>>;

    /// Whether there is a file or a folder of that name.
    fn exists(&self, path: &Path) -> Result<bool>;

    /// Returns the names of the files and folders in a folder, sorted. The root of relative paths
    /// is "".
    fn list(&self, folder: &Path) -> Result<Vec<String>>;

    /// Creates a folder and its missing parents. Succeeds if the folder exists.
    fn create_folder(&self, folder: &Path) -> Result<()>;

    /// Removes an empty folder.
    fn remove_folder(&self, folder: &Path) -> Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> Result<()>;

    /// Renames a file, atomically; an existing file of the new name is replaced.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Waits until all names that were created, changed or removed in the folder are durable.
    fn sync_folder(&self, folder: &Path) -> Result<()>;

    /// Takes an exclusive lock on a file or a folder.
    ///
    /// # Errors
    /// `Busy` if another process or handle holds a lock on it, shared or exclusive.
    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>>;

    /// Takes a shared lock on a file or a folder. Waits while another process or handle holds an
    /// exclusive lock.
    fn share(&self, path: &Path) -> Result<Box<dyn Lock>>;

    /// Whether the name is a symbolic link, wherever the link leads.
    fn is_link(&self, path: &Path) -> Result<bool> {
        let _ = path;
        Ok(false)
    }

    /// Returns the path from the root of the file system on, with symbolic links resolved as far as
    /// it exists. A disk without a working folder returns the path itself.
    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        Ok(path.to_owned())
    }

    /// Returns the free space on the device for new files, in bytes.
    fn free_bytes(&self, folder: &Path) -> Result<u64>;

    /// Returns the size of the files that fit in the page cache, in bytes: the free memory. Returns
    /// 0 if files of this disk should not be mapped unasked.
    fn free_memory(&self) -> u64 {
        0
    }
}

/// Reads one extent at a time; `read` takes the index of the file, the offset, and the bytes to fill.
pub(super) fn read_each(
    extents: &mut FileExtents<'_>,
    read: impl Fn(usize, u64, &mut [u8]) -> Result<()>,
    visit: &mut Visit<'_>,
) -> Result<()> {
    let mut buffer = Buffer::zeroed(0);
    for (i, (file, extent)) in extents.enumerate() {
        let bytes = fit(&mut buffer, extent.len);
        read(file, extent.offset, bytes)?;
        visit(i, bytes)?;
    }
    Ok(())
}

/// Returns the first `len` bytes of a buffer, which is replaced by a longer one if it is too short.
fn fit(buffer: &mut Buffer, len: usize) -> &mut [u8] {
    if buffer.len() < len {
        *buffer = Buffer::zeroed(len);
    }
    &mut buffer[..len]
}

/// Returns the error of a call on `path` that the operating system refused.
pub(super) fn refused<E: Into<io::Error>>(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(E) -> Error {
    move |source| Error::io(action, source.into()).at(&Place::file(path))
}

/// Refuses mapped access to a file that is opened for writing.
pub(super) fn refuse_map(path: &Path, access: Access) -> Result<()> {
    if access != Access::Mapped {
        return Ok(());
    }
    let what = "a file that changes cannot be mapped; use cached or direct access";
    Err(refused("open", path)(io::Error::new(io::ErrorKind::InvalidInput, what)))
}

/// Returns the part of an extent that lies in a file of this size.
pub(super) fn within(extent: Extent, size: u64) -> Extent {
    let len = size.saturating_sub(extent.offset).min(extent.len as u64) as usize;
    Extent { len, ..extent }
}

/// Refuses a read of `extent` in a file that has only its first `got` bytes.
pub(super) fn check_whole(place: &Place, extent: Extent, got: usize) -> Result<()> {
    if got >= extent.len {
        return Ok(());
    }
    let kind = ErrorKind::Truncated { expected: extent.len as u64, got: got as u64 };
    Err(Error::new(kind).at(&place.offset(extent.offset)))
}
