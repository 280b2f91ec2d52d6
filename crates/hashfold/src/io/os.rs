//! The file system of the operating system.
#![expect(clippy::disallowed_methods, reason = "all file access goes through this module")]

use super::{
    Access, BlockFile, Disk, Lock,
    direct::{DirectFile, open_to_read},
    disk::{refuse_map, refused},
    free_memory::free_memory,
    mapped::MappedFile,
    os_file::{OsFile, at_once, changing},
    pool::{FILES, PooledFile},
};
use crate::error::{Error, ErrorKind, Place, Result};
use rustix::{
    fs::{FlockOperation, OFlags, flock, statvfs},
    io::Errno,
};
use std::{
    fs::{self, File},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

/// The file system of the operating system.
///
/// [`Access::Mapped`] expects that no process changes the file, and this library never does. If
/// another program cuts a mapped file, reads return an error: a handler of `SIGBUS`, which is
/// installed with the first map, puts zeros in the place of lost pages, and passes on the signals
/// that concern other memory to the handler that was there before. A program that installs another
/// handler of `SIGBUS` later must call this one from it; otherwise a file that is cut ends the
/// process.
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
        with_access(OsFile::open("create", path, changing().create_new(true))?, access)
    }

    fn open_to_write(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>> {
        refuse_map(path, access)?;
        with_access(OsFile::open("open", path, &changing())?, access)
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>> {
        match access {
            Access::Mapped => Ok(Arc::new(MappedFile::open(path)?)),
            Access::Cached | Access::Direct => open_to_read(path, access),
        }
    }

    fn open_named(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>> {
        match access {
            Access::Mapped => self.open(path, access),
            Access::Cached | Access::Direct => {
                Ok(Arc::new(PooledFile::open(&FILES, path, access)?))
            }
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
                if rest.components().any(|part| part == Component::ParentDir) {
                    // The name before it does not exist, and is no link.
                    return self.absolute(&without_parents(real, rest));
                }
                // Joining nothing would append a separator, which a file does not take.
                let is_whole = rest.as_os_str().is_empty();
                return Ok(if is_whole { real } else { real.join(rest) });
            }
        }
        Ok(path)
    }

    fn free_bytes(&self, folder: &Path) -> Result<u64> {
        let stat = statvfs(or_here(folder)).map_err(refused("measure", folder))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn free_memory(&self) -> u64 {
        free_memory()
    }
}

/// Joins paths of which the second one begins with names that do not exist, and takes each `..` for the removal of the
/// name before it.
fn without_parents(mut path: PathBuf, rest: &Path) -> PathBuf {
    for part in rest.components() {
        match part {
            Component::ParentDir => _ = path.pop(),
            part => path.push(part),
        }
    }
    path
}

/// Returns a file that is open for reading and writing, past the page cache if that is requested and
/// possible.
fn with_access(file: OsFile, access: Access) -> Result<Arc<dyn BlockFile>> {
    if access == Access::Direct {
        let direct = OsFile::open("open", &file.place().file, &changing())?;
        if direct.bypass_cache()? {
            return Ok(Arc::new(DirectFile::new(direct, Some(file))));
        }
    }
    Ok(Arc::new(file))
}

fn open_folder(folder: &Path) -> io::Result<File> {
    let directory = OFlags::DIRECTORY.bits().cast_signed();
    File::options().read(true).custom_flags(directory).open(or_here(folder))
}

/// Returns the folder itself, or the working folder if it is empty.
fn or_here(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

/// A lock that the kernel holds on a file or folder.
#[derive(Debug)]
pub(super) struct OsLock(pub(super) File);

impl Lock for OsLock {}

impl Drop for OsLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that another thread starts just now has it open, too,
        // until it runs its program. If unlocking fails, closing is all that can be done.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}
