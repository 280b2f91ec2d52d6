//! The disk: the only module that accesses files.
//!
//! All other modules use a [`Disk`] (names, folders, renames, locks) and [`BlockFile`]s (bytes at
//! offsets), so the same code runs on the real file system ([`OsDisk`]), in RAM ([`MemoryDisk`])
//! and on a disk that loses power, tears writes, fills up and flips bits ([`FaultyDisk`]).
//!
//! Assumptions about a disk: bytes are durable after [`BlockFile::sync`] of their file, a name is
//! durable after [`Disk::sync_folder`] of its folder, and a rename is atomic. Unsynced writes may
//! be lost, torn at any sector, or done in any order.

mod buffer;
mod counting;
mod direct;
mod disk;
mod faulty;
pub mod frame;
mod free_memory;
mod in_threads;
mod layer;
mod map_faults;
mod mapped;
mod memory;
mod names;
mod os;
mod os_file;
mod pool;
mod queue;
mod seal;
mod segment;
mod striped;
#[cfg(test)]
mod tests;
mod uring;
mod whole;
mod words;
mod writer;

pub use self::{
    buffer::{ALIGNMENT, Buffer},
    counting::{CountingDisk, Moved},
    disk::{Access, BlockFile, Disk, Extent, Extents, FileExtents, Lock, Visit},
    faulty::{Fault, FaultPlan, FaultyDisk},
    layer::{DiskLayer, FileLayer},
    memory::MemoryDisk,
    os::OsDisk,
    queue::WriteQueue,
    seal::{SEAL_SIZE, Seal},
    uring::check_io_uring,
    whole::{create_durable_folder, read_all, replace_file},
    words::Words,
    writer::{Prepare, UNIT_SIZE, WRITER_BYTES_MAX, Writer},
};
pub(crate) use self::{
    segment::{LARGE_PAGE_BYTES, Part, SEGMENT_BYTES, Segment},
    striped::{Completeness, Device, StripedFile},
    whole::{folders_above, new_name},
};
