//! A file of the operating system, with positioned reads and writes.
#![expect(clippy::disallowed_methods, reason = "all file access goes through `io`")]

use super::{
    BlockFile, Buffer, Extent,
    disk::{check_whole, refused, within},
};
use crate::error::{Error, Place, Result};
use rustix::{
    fs::{Advice, FallocateFlags, OFlags, fadvise, fallocate, fcntl_getfl, fcntl_setfl},
    io::Errno,
};
use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::Path,
    sync::Arc,
};

/// Options for opening a file or a folder for reading. Without the flag, which has no effect on
/// files, opening a pipe would block.
pub(super) fn at_once() -> OpenOptions {
    let mut options = File::options();
    options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    options
}

/// Options for opening a file for reading and writing.
pub(super) fn changing() -> OpenOptions {
    let mut options = at_once();
    options.write(true);
    options
}

/// A file with positioned reads and writes, through the page cache unless [`OsFile::bypass_cache`]
/// was called.
#[derive(Debug)]
pub(super) struct OsFile {
    pub(super) file: Arc<File>,
    place: Place,
}

impl OsFile {
    pub(super) fn open(action: &'static str, path: &Path, options: &OpenOptions) -> Result<OsFile> {
        let file = options.open(path).map_err(refused(action, path))?;
        let kind = file.metadata().map_err(refused(action, path))?.file_type();
        if kind.is_dir() {
            return Err(refused(action, path)(Errno::ISDIR));
        }
        if !kind.is_file() {
            let what = io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file");
            return Err(refused(action, path)(what));
        }
        Ok(OsFile { file: Arc::new(file), place: Place::file(path) })
    }

    /// Changes the allocation of an extent on the device. Writes zeros if the file system does not
    /// support that.
    fn fallocate(&self, flags: FallocateFlags, offset: u64, len: u64) -> Result<()> {
        const ZEROS_SIZE: u64 = 1 << 20;
        if len == 0 {
            return Ok(());
        }
        match fallocate(&self.file, flags, offset, len) {
            Err(Errno::OPNOTSUPP) => {}
            answer => return answer.map_err(refused("write", &self.place.file)),
        }
        let zeros = Buffer::zeroed(ZEROS_SIZE.min(len) as usize);
        (0..len).step_by(zeros.len()).try_for_each(|done| {
            self.write_at(offset + done, &zeros[..zeros.len().min((len - done) as usize)])
        })
    }

    /// Makes reads and writes bypass the page cache. If the file system does not support that,
    /// disables read-ahead and returns `false`.
    pub(super) fn bypass_cache(&self) -> Result<bool> {
        let flags = fcntl_getfl(&self.file).map_err(refused("open", &self.place.file))?;
        match fcntl_setfl(&self.file, flags | OFlags::DIRECT) {
            Ok(()) => Ok(true),
            Err(Errno::INVAL) => fadvise(&self.file, 0, None, Advice::Random).map(|()| false),
            Err(errno) => Err(errno),
        }
        .map_err(refused("open", &self.place.file))
    }

    /// Reads up to `bytes.len()` bytes from `offset` on, as many as the file has; returns their
    /// number.
    pub(super) fn read_available(&self, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        // The system refuses offsets that no file can reach; they are past the end.
        if offset.saturating_add(bytes.len() as u64) > i64::MAX.cast_unsigned() {
            return Ok(0);
        }
        let mut done = 0;
        while done < bytes.len() {
            match self.file.read_at(&mut bytes[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(len) => done += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // With `O_DIRECT`, a read that reaches the unaligned end of a file returns the last
                // bytes, and the next read, at an unaligned offset, is refused.
                Err(error) if done > 0 && error.kind() == io::ErrorKind::InvalidInput => break,
                Err(error) => {
                    return Err(Error::io("read", error).at(&self.place.offset(offset)));
                }
            }
        }
        Ok(done)
    }
}

impl BlockFile for OsFile {
    fn place(&self) -> &Place {
        &self.place
    }

    fn size(&self) -> Result<u64> {
        let metadata = self.file.metadata().map_err(refused("measure", &self.place.file))?;
        Ok(metadata.len())
    }

    fn device_bytes(&self) -> Result<u64> {
        /// The unit of `st_blocks`, whatever the block size of the file system.
        const UNIT: u64 = 512;
        let metadata = self.file.metadata().map_err(refused("measure", &self.place.file))?;
        Ok(metadata.blocks() * UNIT)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let got = self.read_available(offset, bytes)?;
        check_whole(&self.place, Extent { offset, len: bytes.len() }, got)
    }

    fn descriptor(&self) -> Option<Arc<File>> {
        Some(self.file.clone())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file
            .write_all_at(bytes, offset)
            .map_err(|error| Error::io("write", error).at(&self.place.offset(offset)))
    }

    fn allocate(&self, size: u64) -> Result<()> {
        let missing = size.saturating_sub(self.size()?);
        self.fallocate(FallocateFlags::empty(), size - missing, missing)
    }

    fn punch_hole(&self, extent: Extent) -> Result<()> {
        let Extent { offset, len } = within(extent, self.size()?);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.fallocate(flags, offset, len as u64)
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(refused("sync", &self.place.file))
    }
}
