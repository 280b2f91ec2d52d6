//! The one place that touches files.
//!
//! Everything above sees a [`Disk`] (names, folders, renames, locks) and [`BlockFile`]s (bytes at
//! offsets), so that the same code runs on the real file system ([`OsDisk`]), in RAM
//! ([`MemoryDisk`]) and on a disk that loses power, tears writes, fills up and flips bits
//! ([`FaultyDisk`]).
//!
//! What is assumed of a disk: bytes are on it after [`BlockFile::sync`] of their file; a name is
//! on it after [`Disk::sync_folder`] of its folder; a rename is atomic. Nothing else: unsynced
//! writes may be lost, torn at any sector or done in any order.

mod buffer;
mod direct;
mod faulty;
pub mod frame;
mod mapped;
mod memory;
mod names;
mod os;
mod queue;
mod seal;
#[cfg(test)]
mod tests;
mod uring;
mod words;
mod writer;

pub use self::{
    buffer::Buffer,
    faulty::{Fault, FaultPlan, FaultyDisk},
    memory::MemoryDisk,
    os::OsDisk,
    queue::WriteQueue,
    seal::{SEAL_SIZE, Seal},
    words::Words,
    writer::{Prepare, UNIT_SIZE, WRITER_BYTES_MAX, Writer},
};

use crate::error::{Error, ErrorKind, Place, Result};
use rustix::io::Errno;
use std::{
    fmt::Debug,
    io,
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Offsets, lengths and buffers of [`Access::Direct`] reads and writes should be multiples of this
/// (others work, at the price of a copy), and the size of every framed file is one, in bytes.
pub const ALIGNMENT: usize = 4096;

/// How the bytes of a file travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Through the page cache, with positioned reads and writes.
    #[default]
    Cached,
    /// Reads through a memory map without read-ahead; writes as [`Access::Cached`].
    Mapped,
    /// Past the page cache; batches of reads are in flight together (`O_DIRECT`, io_uring).
    Direct,
}

/// A piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// In bytes, from the start of the file.
    pub offset: u64,
    /// In bytes.
    pub len: usize,
}

/// Extents to be read; their indexes count from 0.
pub type Extents<'a> = dyn Iterator<Item = Extent> + 'a;

/// Extents of several files, each with the index of its file; their own indexes count from 0.
pub type FileExtents<'a> = dyn Iterator<Item = (usize, Extent)> + 'a;

/// Takes the bytes of the extent with this index, in any order of extents.
pub type Visit<'a> = dyn FnMut(usize, &[u8]) -> Result<()> + 'a;

/// An open file. All calls may come from several threads at once.
pub trait BlockFile: Debug + Send + Sync {
    /// The file's name, for errors.
    fn place(&self) -> &Place;

    /// The file's size, in bytes.
    fn size(&self) -> Result<u64>;

    /// Fills `bytes` from `offset` on. Fewer bytes than that in the file is an error.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()>;

    /// Reads all `extents`, as many at once as the back end can, and shows each to `visit` when
    /// it is there. Takes extents only as it needs them, so that what it takes to find the next
    /// ones is done while others are being read. Stops at the first error.
    fn read_many(&self, extents: &mut Extents<'_>, visit: &mut Visit<'_>) -> Result<()>;

    /// Reads extents, each of the file with this index among `files`, as [`BlockFile::read_many`]
    /// does of one file. This file, whose resources it uses, should be one of them.
    fn read_across(
        &self,
        files: &[&dyn BlockFile],
        extents: &mut FileExtents<'_>,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        read_each(files, extents, visit)
    }

    /// What the system knows the file by, if it can be read by that past the page cache.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The bytes of the file, if it is mapped.
    fn mapped(&self) -> Option<&[u8]> {
        None
    }

    /// Writes all of `bytes` at `offset`; the file grows as needed.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Writes bytes at several offsets, as many at once as the back end can, in any order. They
    /// must not overlap. After an error each of them may be written, or not, or in part.
    fn write_many(&self, writes: &[(u64, &[u8])]) -> Result<()> {
        writes.iter().try_for_each(|(offset, bytes)| self.write_at(*offset, bytes))
    }

    /// Makes the file at least `size` bytes long, with zeros, and takes room for all of it on the
    /// device: a full disk is reported now, and not by a write below `size` (but for file systems
    /// that never overwrite). Slower, by writing the zeros, where the file system cannot do it.
    ///
    /// # Errors
    /// The file is open to read.
    fn allocate(&self, size: u64) -> Result<()> {
        let _ = size;
        Err(refused("write", &self.place().file)(Errno::BADF))
    }

    /// Makes an extent zeros and gives the room of its whole blocks back to the file system. The
    /// file stays as long as it is; what of the extent is behind its end is left out. Where the
    /// file system cannot do it, the zeros are written, and the room stays taken.
    ///
    /// # Errors
    /// The file is open to read.
    fn punch_hole(&self, extent: Extent) -> Result<()> {
        let _ = extent;
        Err(refused("write", &self.place().file)(Errno::BADF))
    }

    /// Returns when all that was written is on the device.
    fn sync(&self) -> Result<()>;
}

/// A lock, held until it is dropped or the process ends.
pub trait Lock: Debug + Send + Sync {}

/// A file system.
pub trait Disk: Debug + Send + Sync {
    /// A new empty file, to read and write; replaces one of that name, which stays as it is for
    /// those who have it open.
    fn create(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>>;

    /// Opens an existing file, to read.
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>>;

    /// Opens an existing file, to read and write.
    ///
    /// # Errors
    /// `access` is [`Access::Mapped`]: a file that changes must not be mapped.
    fn open_to_write(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>>;

    /// Whether a file or folder of that name is there.
    fn exists(&self, path: &Path) -> Result<bool>;

    /// The names of the files and folders in a folder, sorted. The root of relative paths is "".
    fn list(&self, folder: &Path) -> Result<Vec<String>>;

    /// Makes a folder, and those above it. One that is there already is fine.
    fn create_folder(&self, folder: &Path) -> Result<()>;

    /// Removes an empty folder.
    fn remove_folder(&self, folder: &Path) -> Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> Result<()>;

    /// Renames a file, replacing one of the new name, atomically.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Returns when all names made, changed and removed in the folder are on the device.
    fn sync_folder(&self, folder: &Path) -> Result<()>;

    /// Takes an exclusive lock on a file or folder; `Busy` if another process or handle holds one,
    /// shared or not.
    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>>;

    /// Takes a shared lock on a file or folder: others can hold one too. Waits while somebody
    /// holds an exclusive one.
    fn share(&self, path: &Path) -> Result<Box<dyn Lock>>;

    /// Whether the name is a symbolic link, wherever it leads.
    fn is_link(&self, path: &Path) -> Result<bool> {
        let _ = path;
        Ok(false)
    }

    /// The path from the root of the file system on, without symbolic links as far as it exists;
    /// the path itself on disks that have no working folder.
    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        Ok(path.to_owned())
    }

    /// The room that is left on the device for new files, in bytes.
    fn free_bytes(&self, folder: &Path) -> Result<u64>;
}

/// Reads a whole file, which may be as long as `size_max` bytes, into an aligned buffer.
pub fn read_all(file: &dyn BlockFile, size_max: u64) -> Result<Buffer> {
    let size = file.size()?;
    if size > size_max {
        let kind = ErrorKind::Limit { what: "file size", limit: size_max, got: size };
        return Err(Error::new(kind).at(file.place()));
    }
    let mut bytes = Buffer::zeroed(size as usize);
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// [`BlockFile::read_across`] for back ends that read one extent at a time.
fn read_each(
    files: &[&dyn BlockFile],
    extents: &mut FileExtents<'_>,
    visit: &mut Visit<'_>,
) -> Result<()> {
    let mut buffer = Buffer::zeroed(0);
    for (i, (file, extent)) in extents.enumerate() {
        let bytes = fit(&mut buffer, extent.len);
        files[file].read_at(extent.offset, bytes)?;
        visit(i, bytes)?;
    }
    Ok(())
}

/// The first `len` bytes of a buffer, or of a longer one in its place.
fn fit(buffer: &mut Buffer, len: usize) -> &mut [u8] {
    if buffer.len() < len {
        *buffer = Buffer::zeroed(len);
    }
    &mut buffer[..len]
}

/// Replaces a small file atomically: `write` fills a new file under the same name with `.new`
/// behind it, which is synced and renamed. After a crash the old file is there or the new one, and
/// perhaps a file with `.new`, which can be removed.
pub(crate) fn replace_file(
    disk: &dyn Disk,
    path: &Path,
    write: impl FnOnce(&dyn BlockFile) -> Result<()>,
) -> Result<()> {
    let new = new_name(path);
    let file = disk.create(&new, Access::Cached)?;
    write(file.as_ref())?;
    file.sync()?;
    drop(file);
    disk.rename(&new, path)?;
    disk.sync_folder(path.parent().unwrap_or(Path::new("")))
}

/// The name under which [`replace_file`] writes.
pub(crate) fn new_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// The error of a call on `path` that the system refused.
fn refused<E: Into<io::Error>>(action: &'static str, path: &Path) -> impl FnOnce(E) -> Error {
    move |source| Error::io(action, source.into()).at(&Place::file(path))
}

/// Refuses to open a file to write if it would be mapped.
fn refuse_map(path: &Path, access: Access) -> Result<()> {
    if access != Access::Mapped {
        return Ok(());
    }
    let what = "a file that changes cannot be mapped; use cached or direct access";
    Err(refused("open", path)(io::Error::new(io::ErrorKind::InvalidInput, what)))
}

/// The part of an extent that a file of this size has.
fn within(extent: Extent, size: u64) -> Extent {
    let len = size.saturating_sub(extent.offset).min(extent.len as u64) as usize;
    Extent { len, ..extent }
}

/// The error of reading `extent` where the file has only the first `got` bytes of it.
fn past_end(place: &Place, extent: Extent, got: usize) -> Error {
    let kind = ErrorKind::Truncated { expected: extent.len as u64, got: got as u64 };
    Error::new(kind).at(&place.offset(extent.offset))
}
