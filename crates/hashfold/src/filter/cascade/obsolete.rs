//! Obsolete files: files that the current manifest does not name.
//!
//! They are removed in the background, one after the other: on some devices each removal takes tens
//! of milliseconds, and removing many at once blocks all other requests.

use crate::{io::Disk, work::Executor};
use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
};

/// The files to be removed.
#[derive(Debug)]
pub(super) struct Obsolete {
    disk: Arc<dyn Disk>,
    /// The files to be removed, oldest first.
    queue: Mutex<VecDeque<PathBuf>>,
    /// Held by the thread that removes files.
    removing: Mutex<()>,
}

impl Obsolete {
    pub(super) fn new(disk: Arc<dyn Disk>) -> Arc<Obsolete> {
        Arc::new(Obsolete { disk, queue: Mutex::default(), removing: Mutex::default() })
    }

    pub(super) fn add(&self, files: impl IntoIterator<Item = PathBuf>) {
        self.queue().extend(files);
    }

    /// Starts to remove all files, unless a removal is running.
    pub(super) fn start_removing(self: &Arc<Self>, executor: &dyn Executor) {
        if self.queue().is_empty() {
            return;
        }
        let obsolete = self.clone();
        executor.spawn(Box::new(move || {
            if let Ok(one) = obsolete.removing.try_lock() {
                obsolete.remove(one);
            }
        }));
    }

    /// Removes all files. Files that cannot be removed stay in the queue; the next writer that
    /// opens the filter removes them.
    pub(super) fn remove_all(&self) {
        self.remove(self.removing.lock().expect("nothing panics under this lock"));
    }

    /// Removes files for the last time: afterwards, another filter may use their names.
    pub(super) fn close(&self) {
        self.remove_all();
        self.queue().clear();
    }

    fn remove(&self, _one: MutexGuard<'_, ()>) {
        let mut stuck = Vec::new();
        loop {
            let Some(path) = self.queue().pop_front() else { break };
            if self.disk.remove(&path).is_err() && self.disk.exists(&path).unwrap_or(true) {
                stuck.push(path);
            }
        }
        self.add(stuck);
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<PathBuf>> {
        self.queue.lock().expect("nothing panics under this lock")
    }
}
