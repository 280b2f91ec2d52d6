//! Retention: which versions are kept, and removing the others.

use super::{
    layer::folder_of,
    pointer::{self, VersionName},
    verify::as_mendable,
    version::{VersionInfo, file_name},
    write::{StoreWriter, remove_table},
};
use crate::{
    error::{Error, ErrorKind, Place, Result},
    io::{Access, Disk, Lock},
    work::Watch,
};
use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

/// The rules that decide which versions are kept.
///
/// The current version, pinned versions and versions in use are always kept. Versions that were
/// rolled back are kept only by their age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Number of the newest published versions that are kept besides the current one. Of several
    /// versions with the same entries, such as a version and its merge, only the newest counts.
    pub keep: usize,
    /// Age below which versions are kept, in seconds.
    pub age_s_min: u64,
    /// Age below which versions that were never current are kept, in seconds: they failed a gate, or
    /// were not published yet.
    pub unpublished_age_s_min: u64,
    /// Current time, in seconds since 1970. A version from the future counts as young.
    pub now_s: u64,
    /// Minimum free space on the device, in bytes. Below it, older versions are removed although
    /// the other rules would keep them, except for the version before the current one and for those
    /// that were never current.
    pub free_bytes_min: u64,
}

/// The reason why a version is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The version is current.
    Current,
    /// The version is pinned.
    Pinned,
    /// The version is open in a reader.
    InUse,
    /// The version was never current, and is younger than the rules' age for such versions.
    Unpublished,
    /// The version is one of the newest.
    New,
    /// The version is younger than the rules' minimum age.
    Young,
    /// The version cannot be read, and may be needed to find the cause.
    Damaged,
    /// The file of the version is missing; it can be restored from a copy, or given up.
    Lost,
}

/// The result of a collection, or of planning one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Numbers of the versions that were removed.
    pub versions: Vec<u64>,
    /// Number of tables that were removed.
    pub tables: u64,
    /// Size of the removed files, in bytes.
    pub bytes: u64,
    /// The versions that were kept, and why.
    pub kept: Vec<(u64, Reason)>,
}

impl StoreWriter {
    /// Removes the versions that no rule keeps, and the tables that no version needs. `watch`
    /// counts freed bytes; it may block, to limit the rate. If it cancels the call, the next
    /// collection removes the rest.
    pub fn collect(&mut self, rules: &Retention, watch: &Watch) -> Result<Removed> {
        let mut removed = self.apply_rules(rules, Action::Remove(watch))?;
        // An interrupted collection may have left files.
        removed.bytes += self.sweep()?;
        Ok(removed)
    }

    /// Returns what [`StoreWriter::collect`] would remove, and removes nothing.
    pub fn plan_collection(&mut self, rules: &Retention) -> Result<Removed> {
        self.apply_rules(rules, Action::Plan)
    }

    fn apply_rules(&mut self, rules: &Retention, action: Action<'_>) -> Result<Removed> {
        self.settle()?;
        // If the current version is lost or damaged, any other version may be needed.
        self.parent()?;
        let mut removed = Removed::default();
        let mut spare = Vec::new();
        for (number, reason) in self.judge(rules)? {
            match reason {
                None => self.take(number, &mut removed, action)?,
                Some(reason @ (Reason::New | Reason::Young)) => spare.push((number, reason)),
                Some(reason) => removed.kept.push((number, reason)),
            }
        }
        let previous = self.previous();
        for (number, reason) in spare {
            let planned = if matches!(action, Action::Plan) { removed.bytes } else { 0 };
            let is_full = self.env.disk.free_bytes(&self.folder)?.saturating_add(planned)
                < rules.free_bytes_min;
            match is_full && previous != Some(number) {
                true => self.take(number, &mut removed, action)?,
                false => removed.kept.push((number, reason)),
            }
        }
        removed.kept.sort_unstable_by_key(|(number, _)| *number);
        Ok(removed)
    }

    /// Removes a version that was never current, and the tables that only this version has. If it is
    /// the newest version, its number is used again.
    ///
    /// # Errors
    /// `Busy` if a reader has the version open.
    pub fn discard(&mut self, number: u64) -> Result<Removed> {
        self.version(number)?;
        let pointer = &self.pointer;
        let was_current = pointer.current == Some(number) || pointer.published.contains(&number);
        if was_current || pointer.pinned.contains(&number) {
            let expected = "a version that was never current and is not pinned";
            return Err(Error::argument("version to discard", expected, number));
        }
        let mut removed = Removed::default();
        self.take(number, &mut removed, Action::Remove(&Watch::default()))?;
        if !removed.kept.is_empty() {
            let path = self.versions().join(file_name(number));
            return Err(Error::new(ErrorKind::Busy).at(&Place::file(&path)));
        }
        if self.pointer.newest == number {
            self.change(|pointer| pointer.newest = number - 1)?;
        }
        Ok(removed)
    }

    /// Gives up a version whose file is missing or damaged and that no copy can restore. The next
    /// collection removes its tables, unless other versions have them.
    pub fn give_up(&mut self, number: u64) -> Result<()> {
        self.settle()?;
        let is_lost = match self.version(number) {
            Ok(_) => false,
            Err(error) => as_mendable(error).is_ok(),
        };
        if !is_lost || self.pointer.current == Some(number) {
            let expected = "a version that is not current and whose file is missing or damaged";
            return Err(Error::argument("version to give up", expected, number));
        }
        self.change(|pointer| pointer.strike(number))
    }

    /// Removes a store without versions; its folder stays. A store with versions is not changed.
    pub fn abandon(self) -> Result<()> {
        if !self.numbers()?.is_empty() || !self.pointer.versions.is_empty() {
            return Ok(());
        }
        self.sweep()?;
        // Without its pointer the folder is not a store.
        self.env.disk.remove(&self.folder.join(pointer::NAME))?;
        self.env.disk.remove_folder(&self.versions())?;
        self.env.disk.remove_folder(&self.tables())?;
        self.env.disk.sync_folder(&self.folder)
    }

    /// Returns the reason to keep each version, oldest first; `None` if the version can be removed.
    fn judge(&self, rules: &Retention) -> Result<Vec<(u64, Option<Reason>)>> {
        let pointer = &self.pointer;
        let mut left = rules.keep;
        // Versions with the same entries as a newer one that is kept give nothing to roll back to.
        let mut contents: Vec<VersionName> = self.content_of(pointer.current).into_iter().collect();
        let mut judged = Vec::new();
        let there = self.numbers()?;
        let lost = pointer.versions.iter().map(|version| version.number);
        let mut all: Vec<u64> = lost.filter(|number| !there.contains(number)).collect();
        all.extend(&there);
        all.sort_unstable();
        for number in all.into_iter().rev() {
            let was_current = pointer.published.contains(&number);
            let is_good = was_current && !pointer.bad.contains(&number);
            let content = self.content_of(Some(number));
            let is_younger = |info: &VersionInfo, age_s_min| {
                rules.now_s.saturating_sub(info.created_s) < age_s_min
            };
            let reason = match self.version(number) {
                _ if pointer.current == Some(number) => Some(Reason::Current),
                Err(_) if !there.contains(&number) => Some(Reason::Lost),
                Err(_) => Some(Reason::Damaged),
                _ if pointer.pinned.contains(&number) => Some(Reason::Pinned),
                Ok(info) if !was_current => {
                    let age_s_min = rules.unpublished_age_s_min.max(rules.age_s_min);
                    is_younger(&info, age_s_min).then_some(Reason::Unpublished)
                }
                _ if is_good && left > 0 && content.is_none_or(|it| !contents.contains(&it)) => {
                    left -= 1;
                    contents.extend(content);
                    Some(Reason::New)
                }
                Ok(info) => is_younger(&info, rules.age_s_min).then_some(Reason::Young),
            };
            judged.push((number, reason));
        }
        judged.reverse();
        Ok(judged)
    }

    /// Removes a version that no reader has open, and the tables that only this version has; or
    /// counts them.
    fn take(&mut self, number: u64, removed: &mut Removed, action: Action<'_>) -> Result<()> {
        let path = self.versions().join(file_name(number));
        let _lock: Box<dyn Lock> = match self.env.disk.lock(&path) {
            Ok(lock) => lock,
            Err(error) if error.is_busy() => {
                removed.kept.push((number, Reason::InUse));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let mut tables: HashSet<u64> = self.version(number)?.layers().map(|l| l.table).collect();
        removed.versions.push(number);
        match self.used_tables(&removed.versions)? {
            Some(used) => tables.retain(|table| !used.contains(table)),
            // The tables of the other versions are unknown.
            None => tables.clear(),
        }
        let folders = tables.into_iter().map(|table| folder_of(&self.tables(), table));
        let folders: Vec<PathBuf> = folders.collect();
        removed.tables += folders.len() as u64;
        match action {
            Action::Plan => {
                for folder in &folders {
                    removed.bytes += folder_bytes(self.env.disk.as_ref(), folder);
                }
                Ok(())
            }
            Action::Remove(watch) => self.remove_version(number, &folders, &mut |bytes| {
                removed.bytes += bytes;
                watch.add(bytes)
            }),
        }
    }

    /// Removes a version whose file is locked, and these tables; calls `freed` with the bytes of each
    /// table.
    fn remove_version(
        &mut self,
        number: u64,
        tables: &[PathBuf],
        freed: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        self.change(|pointer| pointer.strike(number))?;
        // The version's name must be durably removed before its tables: an existing version is
        // complete.
        self.env.disk.remove(&self.versions().join(file_name(number)))?;
        self.env.disk.sync_folder(&self.versions())?;
        self.pointer.removing.retain(|removing| *removing != number);
        for table in tables {
            freed(remove_table(self.env.disk.as_ref(), table)?)?;
        }
        Ok(())
    }
}

/// The treatment of the versions that no rule keeps.
#[derive(Clone, Copy)]
enum Action<'a> {
    /// Removes them; the watch counts freed bytes.
    Remove(&'a Watch),
    /// Counts them.
    Plan,
}

/// Returns the size of the files in a folder, in bytes.
fn folder_bytes(disk: &dyn Disk, folder: &Path) -> u64 {
    let size = |name| disk.open(&folder.join(name), Access::Cached).and_then(|file| file.size());
    let names = disk.list(folder).unwrap_or_default();
    names.into_iter().filter_map(|name| size(name).ok()).sum()
}
