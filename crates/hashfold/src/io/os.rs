//! The file system of the operating system.
#![expect(clippy::disallowed_methods, reason = "all file access goes through this module")]

use super::{
    Access, BlockFile, Buffer, Disk, Extent, Extents, Lock, Visit, direct::DirectFile,
    mapped::MappedFile, past_end, read_each, refuse_map, refused, within,
};
use crate::error::{Error, ErrorKind, Place, Result};
use rustix::{
    fs::{
        Advice, FallocateFlags, FlockOperation, OFlags, fadvise, fallocate, fcntl_getfl,
        fcntl_setfl, flock, statvfs,
    },
    io::Errno,
};
use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

/// The file system of the operating system.
///
/// [`Access::Mapped`] requires that no process truncates the file: reading a mapped page that was
/// truncated ends the process (`SIGBUS`). This library never truncates a file.
///
/// On a file system that refuses `O_DIRECT`, [`Access::Direct`] is [`Access::Cached`] without
/// read-ahead.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsDisk;

impl Disk for OsDisk {
    fn create(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(refused("create", path)(error));
            }
            _ => {}
        }
        // A new file has nothing to map; it is mapped when it is opened again.
        OsFile::open("create", path, changing().create_new(true))?.changing(access)
    }

    fn open_to_write(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>> {
        refuse_map(path, access)?;
        OsFile::open("open", path, &changing())?.changing(access)
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>> {
        let file = OsFile::open("open", path, &at_once())?;
        match access {
            Access::Mapped => Ok(Arc::new(MappedFile::new(file)?)),
            Access::Direct if file.bypass_cache()? => Ok(Arc::new(DirectFile::new(file, None))),
            Access::Cached | Access::Direct => Ok(Arc::new(file)),
        }
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        or_here(path).try_exists().map_err(refused("find", path))
    }

    fn list(&self, folder: &Path) -> Result<Vec<String>> {
        let entries = fs::read_dir(or_here(folder)).map_err(refused("list", folder))?;
        // A name that is not UTF-8 was not made by this library; it is listed with replacement
        // characters.
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        let names: io::Result<Vec<String>> = entries.map(|entry| entry.map(name)).collect();
        let mut names = names.map_err(refused("list", folder))?;
        names.sort_unstable();
        Ok(names)
    }

    fn create_folder(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(or_here(folder)).map_err(refused("create", folder))
    }

    fn remove_folder(&self, folder: &Path) -> Result<()> {
        fs::remove_dir(folder).map_err(refused("remove", folder))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(refused("remove", path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(refused("rename", from))
    }

    fn sync_folder(&self, folder: &Path) -> Result<()> {
        let open = open_folder(folder);
        open.and_then(|folder| folder.sync_all()).map_err(refused("sync", folder))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        let file = at_once().open(or_here(path)).map_err(refused("lock", path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Box::new(OsLock(file))),
            Err(Errno::WOULDBLOCK) => Err(Error::new(ErrorKind::Busy).at(&Place::file(path))),
            Err(errno) => Err(refused("lock", path)(errno)),
        }
    }

    fn share(&self, path: &Path) -> Result<Box<dyn Lock>> {
        let file = at_once().open(or_here(path)).map_err(refused("lock", path))?;
        loop {
            match flock(&file, FlockOperation::LockShared) {
                Ok(()) => return Ok(Box::new(OsLock(file))),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(refused("lock", path)(errno)),
            }
        }
    }

    fn is_link(&self, path: &Path) -> Result<bool> {
        match fs::symlink_metadata(or_here(path)) {
            Ok(metadata) => Ok(metadata.is_symlink()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(refused("find", path)(error)),
        }
    }

    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        let path = std::path::absolute(or_here(path)).map_err(refused("find", path))?;
        for above in path.ancestors() {
            if let Ok(real) = fs::canonicalize(above) {
                let rest = path.strip_prefix(above).expect("it is an ancestor");
                return Ok(real.join(rest));
            }
        }
        Ok(path)
    }

    fn free_bytes(&self, folder: &Path) -> Result<u64> {
        let stat = statvfs(or_here(folder)).map_err(refused("measure", folder))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

fn open_folder(folder: &Path) -> io::Result<File> {
    let directory = OFlags::DIRECTORY.bits().cast_signed();
    File::options().read(true).custom_flags(directory).open(or_here(folder))
}

/// Returns the folder itself, or the working folder if it is empty.
fn or_here(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

/// Options for opening a file or a folder for reading. Without the flag, which has no effect on
/// files, opening a pipe would block.
fn at_once() -> OpenOptions {
    let mut options = File::options();
    options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    options
}

/// Options for opening a file for reading and writing.
fn changing() -> OpenOptions {
    let mut options = at_once();
    options.write(true);
    options
}

/// A lock that the kernel holds as long as the file or folder is open.
#[derive(Debug)]
struct OsLock(#[expect(dead_code, reason = "held, not used")] File);

impl Lock for OsLock {}

/// A file with positioned reads and writes, through the page cache unless [`OsFile::bypass_cache`]
/// was called.
#[derive(Debug)]
pub(super) struct OsFile {
    pub(super) file: File,
    place: Place,
}

impl OsFile {
    fn open(action: &'static str, path: &Path, options: &OpenOptions) -> Result<OsFile> {
        let file = options.open(path).map_err(refused(action, path))?;
        let kind = file.metadata().map_err(refused(action, path))?.file_type();
        if kind.is_dir() {
            return Err(refused(action, path)(Errno::ISDIR));
        }
        if !kind.is_file() {
            let what = io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file");
            return Err(refused(action, path)(what));
        }
        Ok(OsFile { file, place: Place::file(path) })
    }

    /// Returns a file that is open for reading and writing, past the page cache if that is
    /// requested and possible.
    fn changing(self, access: Access) -> Result<Arc<dyn BlockFile>> {
        if access == Access::Direct {
            let direct = OsFile::open("open", &self.place.file, &changing())?;
            if direct.bypass_cache()? {
                return Ok(Arc::new(DirectFile::new(direct, Some(self))));
            }
        }
        Ok(Arc::new(self))
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
    fn bypass_cache(&self) -> Result<bool> {
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

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let got = self.read_available(offset, bytes)?;
        if got < bytes.len() {
            return Err(past_end(&self.place, Extent { offset, len: bytes.len() }, got));
        }
        Ok(())
    }

    fn read_many(&self, extents: &mut Extents<'_>, visit: &mut Visit<'_>) -> Result<()> {
        read_each(&[self], &mut extents.map(|extent| (0, extent)), visit)
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
