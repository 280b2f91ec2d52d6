//! A folder as a remote: conditional writes by a lock, a new file, and a rename.

use crate::{
    error::{Error, ErrorKind, Result},
    objects::{Found, Listed, Object, Objects, Parts, Tag, When},
};
use hashfold::{
    Env, ErrorKind as StoreErrorKind,
    folder::{Contents, check_outside},
    io::{Access, BlockFile, Disk, Lock, read_all},
};
use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Time to wait for another process that writes beside an object.
const LOCK_WAIT: Duration = Duration::from_secs(30);
/// Time between two attempts to take the lock.
const LOCK_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum depth of the folders below a remote.
const DEPTH_MAX: usize = 8;

/// A folder of a local or shared file system as a set of objects, each of them a file.
///
/// A write locks the folder of its object (`flock`), checks the condition, writes and syncs a new file,
/// renames it, and syncs the folder. Readers take no lock. On a network file system, all machines must
/// share its locks.
#[derive(Clone, Debug)]
pub struct FolderObjects {
    root: PathBuf,
    env: Env,
}

impl FolderObjects {
    /// Takes a folder, which the first write creates.
    ///
    /// # Errors
    /// The folder is a data set or inside one.
    pub fn new(env: Env, root: impl AsRef<Path>) -> Result<FolderObjects> {
        let root = root.as_ref();
        if let Some(kind) = Contents::of(env.disk.as_ref(), root)?.kind() {
            let got = format!("the {} {}", kind.name(), root.display());
            return Err(Error::argument("remote", "a folder for pushed versions", got));
        }
        check_outside(env.disk.as_ref(), root)?;
        Ok(FolderObjects { root: root.to_owned(), env })
    }

    fn disk(&self) -> &dyn Disk {
        self.env.disk.as_ref()
    }

    /// Returns the file of an object. A component that could lead out of the folder is refused here,
    /// whoever made the name.
    fn path(&self, name: &str) -> Result<PathBuf> {
        let is_plain = |part: &str| !part.is_empty() && !part.starts_with('.');
        if name.split('/').all(is_plain) && !name.contains(['\\', '\0']) {
            return Ok(self.root.join(name));
        }
        Err(Error::argument("name of an object", "components without leading dots", name))
    }

    /// Opens the file of an object, if it exists.
    fn open(&self, name: &str) -> Result<Option<Arc<dyn BlockFile>>> {
        match self.disk().open(&self.path(name)?, Access::Cached) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates the folder of an object, durably, and locks it.
    fn lock(&self, folder: &Path) -> Result<Box<dyn Lock>> {
        let disk = self.disk();
        let mut missing = Vec::new();
        for path in folder.ancestors() {
            if disk.exists(path)? {
                break;
            }
            missing.push(path);
        }
        if !missing.is_empty() {
            disk.create_folder(folder)?;
            missing.into_iter().try_for_each(|path| disk.sync_folder(folder_of(path)))?;
        }
        let end = self.env.clock.now() + LOCK_WAIT;
        loop {
            match disk.lock(folder) {
                Err(error) if error.is_busy() && self.env.clock.now() < end => {
                    self.env.clock.sleep(LOCK_INTERVAL);
                }
                locked => return Ok(locked?),
            }
        }
    }

    /// Writes the file of an object under the lock of its folder. `write` fills the new file.
    fn replace(
        &self,
        path: &Path,
        access: Access,
        write: impl FnOnce(&dyn BlockFile) -> Result<()>,
    ) -> Result<()> {
        let (disk, folder) = (self.disk(), folder_of(path));
        // Names of objects never begin with a dot, so this is no object.
        let new = folder.join(format!(".{}.new", name_of(path)));
        let file = disk.create(&new, access)?;
        write(file.as_ref())?;
        file.sync()?;
        drop(file);
        disk.rename(&new, path)?;
        Ok(disk.sync_folder(folder)?)
    }

    /// Adds the objects in a folder and its subfolders to a listing.
    fn list_in(&self, name: &str, depth: usize, listed: &mut Vec<Listed>) -> Result<()> {
        let disk = self.disk();
        let names = disk.list(&self.path(name)?)?;
        for file in names.iter().filter(|file| !file.starts_with('.')) {
            let name = format!("{name}/{file}");
            let path = self.path(&name)?;
            if disk.list(&path).is_ok() {
                if depth > 0 {
                    self.list_in(&name, depth - 1, listed)?;
                }
            } else if let Some(file) = self.open(&name)? {
                listed.push(Listed { name, size: file.size()? });
            }
        }
        Ok(())
    }
}

impl Objects for FolderObjects {
    fn place(&self, name: &str) -> String {
        self.root.join(name).display().to_string()
    }

    fn check_there(&self) -> Result<()> {
        if self.disk().exists(&self.root)? {
            return Ok(());
        }
        let message =
            "the folder does not exist; is its file system mounted? The first push makes it";
        Err(Error::remote("read", message).at(self.root.display().to_string()))
    }

    fn get(&self, name: &str, size_max: u64, known: Option<&Tag>) -> Result<Found> {
        let Some(file) = self.open(name)? else { return Ok(Found::Absent) };
        let bytes = read_all(file.as_ref(), size_max).map_err(|error| match error.kind() {
            StoreErrorKind::Limit { limit, got, .. } => {
                let kind = ErrorKind::Limit { what: "size", limit: *limit, got: *got };
                Error::new(kind).at(self.place(name))
            }
            _ => error.into(),
        })?;
        let tag = tag_of(&bytes);
        if known == Some(&tag) {
            return Ok(Found::Unchanged);
        }
        Ok(Found::Object(Object { bytes: bytes.to_vec(), tag }))
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>> {
        let Some(file) = self.open(name)? else {
            let what = "object of this name".to_owned();
            return Err(Error::new(ErrorKind::Absent { what }).at(self.place(name)));
        };
        let end = range.end.min(file.size()?);
        let mut bytes = vec![0; end.saturating_sub(range.start) as usize];
        file.read_at(range.start, &mut bytes)?;
        Ok(bytes)
    }

    fn put(&self, name: &str, bytes: &[u8], when: When<'_>) -> Result<Option<Tag>> {
        let path = self.path(name)?;
        let _lock = self.lock(folder_of(&path))?;
        let holds = match when {
            When::Always => true,
            When::Absent => !self.disk().exists(&path)?,
            When::Is(tag) => match self.open(name)? {
                Some(file) => tag_of(&read_all(file.as_ref(), u64::MAX)?) == *tag,
                None => false,
            },
        };
        if !holds {
            return Ok(None);
        }
        self.replace(&path, Access::Cached, |file| Ok(file.write_at(0, bytes)?))?;
        Ok(Some(tag_of(bytes)))
    }

    fn upload(&self, name: &str, _: u64, parts: &mut Parts<'_>) -> Result<()> {
        let path = self.path(name)?;
        let _lock = self.lock(folder_of(&path))?;
        self.replace(&path, Access::Cached, |file| {
            let mut end = 0;
            while let Some(part) = parts()? {
                file.write_at(end, &part)?;
                end += part.len() as u64;
            }
            Ok(())
        })
    }

    fn list(&self, folder: &str) -> Result<Vec<Listed>> {
        let mut listed = Vec::new();
        if self.disk().exists(&self.path(folder)?)? {
            self.list_in(folder, DEPTH_MAX, &mut listed)?;
        }
        Ok(listed)
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.path(name)?;
        match self.disk().remove(&path) {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Returns the tag of a content: its hash, since every change of an object has another content.
fn tag_of(bytes: &[u8]) -> Tag {
    Tag { e_tag: Some(blake3::hash(bytes).to_hex().to_string()), version: None }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
