//! Removing the files of filters that are gone.

use super::filter_home::FilterHome;
use hashfold::{Result, io::Disk};
use std::{path::Path, sync::PoisonError};

impl FilterHome {
    /// Removes filters that have expired, and the files of all that were removed. What fails is tried again at
    /// the next call. The files of a folder are removed only when the device surely has it as removed: so a
    /// crash leaves no part of a filter that a server would open.
    pub(crate) fn sweep(&self) {
        let _one = self.sweeping.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.lock();
        if self.remove_expired(&mut state).is_err() {
            return;
        }
        if state.is_doubtful {
            let names = state.names.clone();
            if self.publish(&mut state, names).is_err() {
                return;
            }
        }
        let removed = state.names.removed();
        let is_free = |name: &&String| !state.is_claimed(&self.folder.join(name));
        let folders: Vec<String> = removed.filter(is_free).cloned().collect();
        drop(state);
        if !folders.is_empty() {
            self.remove_folders(folders);
        }
    }

    fn remove_folders(&self, mut folders: Vec<String>) {
        let disk = self.env.disk.as_ref();
        folders.retain(|name| remove_folder(disk, &self.folder.join(name)).is_ok());
        // A folder that came back after a crash would be a filter.
        if folders.is_empty() || disk.sync_folder(&self.folder).is_err() {
            return;
        }
        let mut state = self.lock();
        let mut names = state.names.clone();
        folders.iter().for_each(|name| names.forget(name));
        // After an error, the folders have entries until the next sweep.
        let _ = self.publish(&mut state, names);
    }
}

/// Removes a folder and its files, if it is there.
fn remove_folder(disk: &dyn Disk, folder: &Path) -> Result<()> {
    if !disk.exists(folder)? {
        return Ok(());
    }
    for name in disk.list(folder)? {
        disk.remove(&folder.join(name))?;
    }
    disk.sync_folder(folder)?;
    disk.remove_folder(folder)
}
