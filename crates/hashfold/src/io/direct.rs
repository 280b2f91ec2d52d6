//! Files that are read and written past the page cache.

use super::{
    ALIGNMENT, Access, BlockFile, Buffer, Extent, Extents, FileExtents, Visit,
    disk::check_whole,
    in_threads,
    os_file::{OsFile, at_once},
    uring::{Ring, Transfer},
};
use crate::error::{Place, Result};
use std::{
    fs::File,
    path::Path,
    sync::{Arc, Mutex},
};

/// Size of the buffer through which unaligned memory is read, in bytes.
const BOUNCE_SIZE: usize = 1 << 20;

/// The rings of this process that are not in use: as many as batches were ever in flight at once.
/// Setting up a ring costs more than a small batch. All files share them, because a ring has a
/// descriptor of its own and keeps up to 16 MiB of buffers.
static RINGS: Mutex<Vec<Ring>> = Mutex::new(Vec::new());

/// Returns a ring for one batch. Old kernels and sandboxes refuse rings.
fn take_ring() -> Option<Ring> {
    let idle = RINGS.lock().expect("nothing panics under this lock").pop();
    idle.or_else(|| Ring::new().ok())
}

/// Keeps a ring for the next batch. A ring that has failed must be dropped.
fn give_back(ring: Ring) {
    RINGS.lock().expect("nothing panics under this lock").push(ring);
}

/// Opens a file for reading without a map, past the page cache if that is requested and possible.
pub(super) fn open_to_read(path: &Path, access: Access) -> Result<Arc<dyn BlockFile>> {
    let file = OsFile::open("open", path, &at_once())?;
    match access {
        Access::Direct if file.bypass_cache()? => Ok(Arc::new(DirectFile::new(file, None))),
        _ => Ok(Arc::new(file)),
    }
}

/// A file opened with `O_DIRECT`.
#[derive(Debug)]
pub(super) struct DirectFile {
    direct: OsFile,
    /// A second handle of the file through the page cache, for unaligned writes, if the file is
    /// writable. The kernel keeps both views consistent.
    cached: Option<OsFile>,
}

impl DirectFile {
    pub(super) fn new(direct: OsFile, cached: Option<OsFile>) -> DirectFile {
        DirectFile { direct, cached }
    }

    /// Returns the file for writes that need not be aligned.
    fn writer(&self) -> &OsFile {
        self.cached.as_ref().unwrap_or(&self.direct)
    }

    /// Reads whole blocks into a buffer and copies the requested bytes.
    fn read_bounced(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let mut buffer = Buffer::zeroed(BOUNCE_SIZE.min(bytes.len() + 2 * ALIGNMENT));
        let mut done = 0;
        while done < bytes.len() {
            let next = offset + done as u64;
            let skipped = (next % ALIGNMENT as u64) as usize;
            let wanted = (skipped + bytes.len() - done).next_multiple_of(ALIGNMENT);
            let wanted = wanted.min(buffer.len() / ALIGNMENT * ALIGNMENT);
            let got = self.direct.read_available(next - skipped as u64, &mut buffer[..wanted])?;
            let len = got.saturating_sub(skipped).min(bytes.len() - done);
            bytes[done..][..len].copy_from_slice(&buffer[skipped..][..len]);
            done += len;
            if got < wanted {
                break;
            }
        }
        check_whole(self.place(), Extent { offset, len: bytes.len() }, done)
    }
}

impl BlockFile for DirectFile {
    fn place(&self) -> &Place {
        self.direct.place()
    }

    fn size(&self) -> Result<u64> {
        self.direct.size()
    }

    fn device_bytes(&self) -> Result<u64> {
        self.direct.device_bytes()
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        if is_aligned(offset, bytes) {
            self.direct.read_at(offset, bytes)
        } else {
            self.read_bounced(offset, bytes)
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
        let Some(mut ring) = take_ring() else {
            return in_threads::read_across(files, extents, visit);
        };
        ring.run(files, extents, &mut Transfer::Read(visit))?;
        give_back(ring);
        Ok(())
    }

    fn descriptor(&self) -> Option<Arc<File>> {
        self.direct.descriptor()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let file = if is_aligned(offset, bytes) { &self.direct } else { self.writer() };
        file.write_at(offset, bytes)
    }

    fn write_many(&self, writes: &[(u64, &[u8])]) -> Result<()> {
        let is_block = |number: u64| number.is_multiple_of(ALIGNMENT as u64);
        let all_blocks = writes.iter().all(|w| is_block(w.0) && is_block(w.1.len() as u64));
        let Some(mut ring) = take_ring().filter(|_| all_blocks && writes.len() > 1) else {
            return writes.iter().try_for_each(|(offset, bytes)| self.write_at(*offset, bytes));
        };
        let mut extents =
            writes.iter().map(|&(offset, bytes)| (0, Extent { offset, len: bytes.len() }));
        ring.run(&[self], &mut extents, &mut Transfer::Write(writes))?;
        give_back(ring);
        Ok(())
    }

    fn allocate(&self, size: u64) -> Result<()> {
        self.writer().allocate(size)
    }

    fn punch_hole(&self, extent: Extent) -> Result<()> {
        self.writer().punch_hole(extent)
    }

    fn sync(&self) -> Result<()> {
        self.direct.sync()
    }
}

fn is_aligned(offset: u64, bytes: &[u8]) -> bool {
    offset.is_multiple_of(ALIGNMENT as u64)
        && bytes.len().is_multiple_of(ALIGNMENT)
        && bytes.as_ptr().addr().is_multiple_of(ALIGNMENT)
}
