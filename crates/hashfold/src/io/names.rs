//! A tree of names in RAM, for the disks in RAM.

use super::Lock;
use crate::error::{Error, ErrorKind, Place, Result};
use rustix::io::Errno;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path, PathBuf},
    sync::{Arc, Condvar, Mutex},
};

/// The result of a call to a disk in RAM; the caller adds the place.
pub(super) type Answer<T> = std::result::Result<T, Errno>;

/// The meaning of a name: a folder, or a file that `F` identifies.
#[derive(Clone, Debug)]
pub(super) enum Node<F> {
    Folder,
    File(F),
}

/// One atomic change of a tree: a name is removed, then a name is added.
#[derive(Clone, Debug)]
pub(super) struct NameChange<F> {
    goes: Option<PathBuf>,
    comes: Option<(PathBuf, Node<F>)>,
}

impl<F> NameChange<F> {
    fn remove(path: PathBuf) -> NameChange<F> {
        NameChange { goes: Some(path), comes: None }
    }

    fn set(path: PathBuf, node: Node<F>) -> NameChange<F> {
        NameChange { goes: None, comes: Some((path, node)) }
    }

    /// Returns the folders that must be synced to make the change durable. A removed folder is
    /// among them, because its content must be removed first.
    pub(super) fn folders(&self) -> BTreeSet<&Path> {
        let goes = self.goes.as_deref();
        let comes = self.comes.as_ref().map(|(path, _)| path.as_path());
        goes.into_iter().chain(comes).map(parent).chain(goes).collect()
    }
}

/// The names of a disk. A method that changes names returns its changes in order; a method that
/// fails changes nothing.
#[derive(Clone, Debug)]
pub(super) struct Names<F>(BTreeMap<PathBuf, Node<F>>);

impl<F> Default for Names<F> {
    fn default() -> Names<F> {
        Names(BTreeMap::new())
    }
}

impl<F: Clone> Names<F> {
    pub(super) fn exists(&self, path: &Path) -> bool {
        self.folder(path).is_ok() || self.0.contains_key(&clean(path))
    }

    pub(super) fn file(&self, path: &Path) -> Answer<F> {
        match self.0.get(&clean(path)) {
            Some(Node::File(file)) => Ok(file.clone()),
            _ => Err(self.folder(path).err().unwrap_or(Errno::ISDIR)),
        }
    }

    /// Succeeds if `path` is a folder. The roots of absolute and relative names are folders.
    pub(super) fn folder(&self, path: &Path) -> Answer<()> {
        match self.0.get(&clean(path)) {
            Some(Node::Folder) => Ok(()),
            Some(Node::File(_)) => Err(Errno::NOTDIR),
            None if clean(path).parent().is_none() => Ok(()),
            None => Err(Errno::NOENT),
        }
    }

    /// Succeeds if `path` is a file or a folder.
    pub(super) fn node(&self, path: &Path) -> Answer<()> {
        if self.exists(path) { Ok(()) } else { Err(Errno::NOENT) }
    }

    pub(super) fn list(&self, folder: &Path) -> Answer<Vec<String>> {
        self.folder(folder)?;
        let folder = clean(folder);
        let inside = self.0.keys().filter(|path| parent(path) == folder);
        let names = inside.filter_map(|path| path.file_name());
        Ok(names.map(|name| name.to_string_lossy().into_owned()).collect())
    }

    pub(super) fn create(&mut self, path: &Path, file: F) -> Answer<Vec<NameChange<F>>> {
        self.check_target(path)?;
        let path = clean(path);
        let old = self.0.contains_key(&path).then(|| NameChange::remove(path.clone()));
        Ok(self.apply_all(old.into_iter().chain([NameChange::set(path, Node::File(file))])))
    }

    pub(super) fn remove(&mut self, path: &Path) -> Answer<Vec<NameChange<F>>> {
        self.file(path)?;
        Ok(self.apply_all([NameChange::remove(clean(path))]))
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> Answer<Vec<NameChange<F>>> {
        let file = self.file(from)?;
        self.check_target(to)?;
        let comes = Some((clean(to), Node::File(file)));
        Ok(self.apply_all([NameChange { goes: Some(clean(from)), comes }]))
    }

    pub(super) fn create_folder(&mut self, folder: &Path) -> Answer<Vec<NameChange<F>>> {
        let folder = clean(folder);
        let mut missing = Vec::new();
        for path in folder.ancestors() {
            match self.folder(path) {
                Err(Errno::NOENT) => missing.push(NameChange::set(path.to_owned(), Node::Folder)),
                Err(_) if path == folder => return Err(Errno::EXIST),
                answer => {
                    answer?;
                    break;
                }
            }
        }
        Ok(self.apply_all(missing.into_iter().rev()))
    }

    pub(super) fn remove_folder(&mut self, folder: &Path) -> Answer<Vec<NameChange<F>>> {
        if !self.list(folder)?.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        Ok(self.apply_all([NameChange::remove(clean(folder))]))
    }

    /// Applies a change. Removing a folder removes its content.
    pub(super) fn apply(&mut self, change: &NameChange<F>) {
        if let Some(goes) = &change.goes {
            self.0.retain(|path, _| !path.starts_with(goes));
        }
        if let Some((path, node)) = &change.comes {
            self.0.insert(path.clone(), node.clone());
        }
    }

    /// Returns the same tree with `to` applied to each file. Names whose folder is missing are left
    /// out.
    pub(super) fn map<G: Clone>(&self, mut to: impl FnMut(&F) -> G) -> Names<G> {
        let mut names = Names::default();
        // Paths ascend, so a folder comes before its content.
        for (path, node) in &self.0 {
            if names.folder(parent(path)).is_ok() {
                let node = match node {
                    Node::Folder => Node::Folder,
                    Node::File(file) => Node::File(to(file)),
                };
                names.0.insert(path.clone(), node);
            }
        }
        names
    }

    fn apply_all(
        &mut self,
        changes: impl IntoIterator<Item = NameChange<F>>,
    ) -> Vec<NameChange<F>> {
        changes.into_iter().inspect(|change| self.apply(change)).collect()
    }

    /// Succeeds if a file can get this name.
    fn check_target(&self, path: &Path) -> Answer<()> {
        if self.folder(path).is_ok() {
            return Err(Errno::ISDIR);
        }
        self.folder(parent(&clean(path)))
    }
}

/// The names that are locked.
#[derive(Clone, Debug, Default)]
pub(super) struct Locks(Arc<LockTable>);

#[derive(Debug, Default)]
struct LockTable {
    held: Mutex<BTreeMap<PathBuf, Hold>>,
    /// Notified when a lock is released.
    released: Condvar,
}

/// The kind of a held lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Exclusive,
    /// The number of holders.
    Shared(usize),
}

const NO_PANIC: &str = "nothing panics under this lock";

impl Locks {
    /// Takes the exclusive lock of `path`; `Busy` if it is locked.
    pub(super) fn take(&self, path: &Path) -> Result<Box<dyn Lock>> {
        let name = clean(path);
        let mut held = self.0.held.lock().expect(NO_PANIC);
        if held.contains_key(&name) {
            return Err(Error::new(ErrorKind::Busy).at(&Place::file(path)));
        }
        held.insert(name.clone(), Hold::Exclusive);
        Ok(Box::new(Held { name, locks: self.clone() }))
    }

    /// Takes a shared lock of `path`. Waits while an exclusive lock is held.
    pub(super) fn share(&self, path: &Path) -> Box<dyn Lock> {
        let name = clean(path);
        let held = self.0.held.lock().expect(NO_PANIC);
        let is_exclusive = |held: &mut BTreeMap<_, _>| held.get(&name) == Some(&Hold::Exclusive);
        let mut held = self.0.released.wait_while(held, is_exclusive).expect(NO_PANIC);
        let hold = held.entry(name.clone()).or_insert(Hold::Shared(0));
        if let Hold::Shared(count) = hold {
            *count += 1;
        }
        drop(held);
        Box::new(Held { name, locks: self.clone() })
    }
}

#[derive(Debug)]
struct Held {
    name: PathBuf,
    locks: Locks,
}

impl Lock for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.locks.0.held.lock().expect(NO_PANIC);
        match held.get_mut(&self.name) {
            Some(Hold::Shared(count)) if *count > 1 => *count -= 1,
            _ => {
                held.remove(&self.name);
            }
        }
        self.locks.0.released.notify_all();
    }
}

/// Returns the folder of a clean path.
fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

/// Returns the canonical spelling of a path.
pub(super) fn clean(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}
