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
mod faulty;
pub mod frame;
mod memory;
mod os;
mod uring;
mod writer;

pub use self::{
    buffer::Buffer,
    faulty::{FaultPlan, FaultyDisk},
    memory::MemoryDisk,
    os::OsDisk,
    writer::Writer,
};

use crate::error::{Place, Result};
use std::{fmt::Debug, path::Path, sync::Arc};

/// Offsets, lengths and buffers of [`Access::Direct`] reads and writes are multiples of this,
/// and so is the size of every framed file, in bytes.
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
    /// it is there. Stops at the first error.
    fn read_many(&self, extents: &[Extent], visit: &mut Visit<'_>) -> Result<()>;

    /// Writes all of `bytes` at `offset`; the file grows as needed.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Returns when all that was written is on the device.
    fn sync(&self) -> Result<()>;
}

/// A lock, held until it is dropped or the process ends.
pub trait Lock: Debug + Send + Sync {}

/// A file system.
pub trait Disk: Debug + Send + Sync {
    /// A new empty file, to read and write; replaces one of that name.
    fn create(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>>;

    /// An existing file, to read.
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>>;

    /// Whether a file or folder of that name is there.
    fn exists(&self, path: &Path) -> Result<bool>;

    /// The names of the files and folders in a folder, sorted.
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

    /// Takes an exclusive lock on a file, made if need be; `Busy` if another process or handle
    /// holds it.
    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>>;
}

/// Reads a whole file, which may be as long as `size_max` bytes, into an aligned buffer.
pub fn read_all(file: &dyn BlockFile, size_max: u64) -> Result<Buffer> {
    let size = file.size()?;
    if size > size_max {
        let kind =
            crate::error::ErrorKind::Limit { what: "file size", limit: size_max, got: size };
        return Err(crate::error::Error::new(kind).at(file.place()));
    }
    let mut bytes = Buffer::zeroed(size as usize);
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}
