//! Files read and written past the page cache.

use super::{
    ALIGNMENT, BlockFile, Buffer, Extent, Extents, FileExtents, Visit, os::OsFile, past_end,
    read_each, uring::Ring,
};
use crate::error::{Place, Result};
use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::Mutex,
};

/// How much of a read into unaligned memory goes through a buffer at a time, in bytes.
const BOUNCE_SIZE: usize = 1 << 20;

/// A file opened with `O_DIRECT`.
#[derive(Debug)]
pub(super) struct DirectFile {
    direct: OsFile,
    /// The same file through the page cache, if it can be written: for writes that are not
    /// aligned. The kernel keeps both views the same.
    cached: Option<OsFile>,
    /// Rings that no batch uses now. Setting one up costs more than a small batch.
    rings: Mutex<Vec<Ring>>,
}

impl DirectFile {
    pub(super) fn new(direct: OsFile, cached: Option<OsFile>) -> DirectFile {
        DirectFile { direct, cached, rings: Mutex::default() }
    }

    /// Reads whole blocks into a buffer and copies what was asked for.
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
        if done < bytes.len() {
            return Err(past_end(self.place(), Extent { offset, len: bytes.len() }, done));
        }
        Ok(())
    }
}

impl BlockFile for DirectFile {
    fn place(&self) -> &Place {
        self.direct.place()
    }

    fn size(&self) -> Result<u64> {
        self.direct.size()
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
        let idle = self.rings.lock().expect("nothing panics under this lock").pop();
        let known: Option<Vec<_>> =
            files.iter().map(|&file| Some((file, file.descriptor()?))).collect();
        // Old kernels and sandboxes refuse rings.
        let (Some(mut ring), Some(known)) = (idle.or_else(|| Ring::new().ok()), known) else {
            return read_each(files, extents, visit);
        };
        ring.read_across(&known, extents, visit)?;
        self.rings.lock().expect("nothing panics under this lock").push(ring);
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.direct.file.as_fd())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        match &self.cached {
            Some(cached) if !is_aligned(offset, bytes) => cached.write_at(offset, bytes),
            _ => self.direct.write_at(offset, bytes),
        }
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
