//! Retention: which versions are kept, and removing the others.

use super::{
    pointer,
    verify::as_mendable,
    version::file_name,
    write::{StoreWriter, remove_table},
};
use crate::{
    error::{Error, ErrorKind, Place, Result},
    folder::VERSIONS,
    io::Lock,
    work::Watch,
};
use std::collections::HashSet;

/// The rules that decide which versions are kept.
///
/// The current version, pinned versions, versions in use and versions that were never published are
/// always kept, except for unpublished ones that are marked bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Number of the newest versions that are kept besides the current one.
    pub keep: usize,
    /// Age below which versions are kept, in seconds.
    pub age_s_min: u64,
    /// Current time, in seconds since 1970. A version from the future counts as young.
    pub now_s: u64,
    /// Minimum free space on the device, in bytes. Below it, older versions are removed although
    /// the other rules would keep them, except for the version before the current one.
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
    /// The version was not published yet.
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

/// The result of a collection.
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
        self.settle()?;
        // If the current version is lost or damaged, any other version may be needed.
        self.parent()?;
        let mut removed = Removed::default();
        let mut spare = Vec::new();
        for (number, reason) in self.judge(rules)? {
            match reason {
                None => self.remove_version(number, &mut removed, watch)?,
                Some(reason @ (Reason::New | Reason::Young)) => spare.push((number, reason)),
                Some(reason) => removed.kept.push((number, reason)),
            }
        }
        let previous = self.pointer.previous();
        for (number, reason) in spare {
            let is_full = self.disk.free_bytes(&self.folder)? < rules.free_bytes_min;
            match is_full && previous != Some(number) {
                true => self.remove_version(number, &mut removed, watch)?,
                false => removed.kept.push((number, reason)),
            }
        }
        removed.kept.sort_unstable_by_key(|(number, _)| *number);
        // An interrupted collection may have left files.
        removed.bytes += self.sweep()?;
        Ok(removed)
    }

    /// Removes a version that was never current, and the tables that only this version has.
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
        self.remove_version(number, &mut removed, &Watch::default())?;
        match removed.kept.is_empty() {
            true => Ok(removed),
            false => {
                let path = self.versions().join(file_name(number));
                Err(Error::new(ErrorKind::Busy).at(&Place::file(&path)))
            }
        }
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
        self.disk.remove(&self.folder.join(pointer::NAME))?;
        self.disk.remove_folder(&self.versions())?;
        self.disk.remove_folder(&self.tables())?;
        self.disk.sync_folder(&self.folder)
    }

    /// Returns the reason to keep each version, oldest first; `None` if the version can be removed.
    fn judge(&self, rules: &Retention) -> Result<Vec<(u64, Option<Reason>)>> {
        let pointer = &self.pointer;
        let mut left = rules.keep;
        let mut judged = Vec::new();
        let there = self.numbers()?;
        let lost = pointer.versions.iter().map(|version| version.number);
        let mut all: Vec<u64> = lost.filter(|number| !there.contains(number)).collect();
        all.extend(&there);
        all.sort_unstable();
        for number in all.into_iter().rev() {
            let is_bad = pointer.bad.contains(&number);
            let was_current = pointer.published.contains(&number);
            let reason = match self.version(number) {
                _ if pointer.current == Some(number) => Some(Reason::Current),
                Err(_) if !there.contains(&number) => Some(Reason::Lost),
                Err(_) => Some(Reason::Damaged),
                _ if pointer.pinned.contains(&number) => Some(Reason::Pinned),
                _ if !was_current && !is_bad => Some(Reason::Unpublished),
                _ if !is_bad && left > 0 => {
                    left -= 1;
                    Some(Reason::New)
                }
                Ok(info) if rules.now_s.saturating_sub(info.created_s) < rules.age_s_min => {
                    Some(Reason::Young)
                }
                Ok(_) => None,
            };
            judged.push((number, reason));
        }
        judged.reverse();
        Ok(judged)
    }

    /// Removes a version that no reader has open, and the tables that only this version has.
    fn remove_version(&mut self, number: u64, removed: &mut Removed, watch: &Watch) -> Result<()> {
        let path = self.folder.join(VERSIONS).join(file_name(number));
        let _lock: Box<dyn Lock> = match self.disk.lock(&path) {
            Ok(lock) => lock,
            Err(error) if error.is_busy() => {
                removed.kept.push((number, Reason::InUse));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let mut tables: HashSet<u64> = self.version(number)?.layers().map(|l| l.table).collect();
        match self.used_tables(Some(number))? {
            Some(used) => tables.retain(|table| !used.contains(table)),
            // The tables of the other versions are unknown.
            None => tables.clear(),
        }
        self.change(|pointer| pointer.strike(number))?;
        // The version's name must be durably removed before its tables: an existing version is
        // complete.
        self.disk.remove(&path)?;
        self.disk.sync_folder(&self.versions())?;
        self.pointer.removing.retain(|removing| *removing != number);
        removed.versions.push(number);
        for table in tables {
            let folder = super::layer::folder_of(&self.tables(), table);
            let bytes = remove_table(self.disk.as_ref(), &folder)?;
            removed.tables += 1;
            removed.bytes += bytes;
            watch.add(bytes)?;
        }
        Ok(())
    }
}
