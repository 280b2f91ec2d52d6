//! The versions of a store, as people see them.

use hashfold::{
    Env, Result,
    store::{Pointer, VersionInfo, versions},
};
use std::path::Path;

/// What is known about a version of a store.
#[derive(Debug)]
pub(crate) struct Description {
    pub(crate) info: VersionInfo,
    pub(crate) is_current: bool,
    pub(crate) is_bad: bool,
    pub(crate) is_pinned: bool,
    /// The sequence number of the store's pointer.
    pub(crate) sequence: u64,
}

impl Description {
    /// Returns what a pointer says about a version.
    pub(crate) fn of(info: VersionInfo, pointer: &Pointer) -> Description {
        let number = info.name.number;
        Description {
            is_current: pointer.current == Some(number),
            is_bad: pointer.bad.contains(&number),
            is_pinned: pointer.pinned.contains(&number),
            sequence: pointer.sequence,
            info,
        }
    }

    /// Describes all versions of the store in a folder, in the order of their numbers.
    ///
    /// # Errors
    /// The pointer or the file of a version is damaged.
    pub(crate) fn all(env: &Env, folder: &Path) -> Result<Vec<Description>> {
        let pointer = Pointer::read(env.disk.as_ref(), folder)?;
        let all = versions(env, folder)?;
        all.into_iter().map(|(_, info)| Ok(Description::of(info?, &pointer))).collect()
    }
}
