//! Which versions are kept, and removing the others.

use super::{
    check::as_mendable,
    pointer,
    version::file_name,
    write::{StoreWriter, remove_table},
};
use crate::{
    error::{Error, ErrorKind, Place, Result},
    folder::VERSIONS,
    io::Lock,
};
use std::collections::HashSet;

/// Which versions are kept. The current one, pinned ones, those in use, and those that were never
/// published are kept whatever the rules say, unless the last are marked bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// The newest versions besides the current one, so many.
    pub keep: usize,
    /// Versions younger than this, in seconds.
    pub age_s_min: u64,
    /// The time now, in seconds since 1970. A version from the future is young.
    pub now_s: u64,
    /// With less than this free on the device, older versions go that the other rules would
    /// keep, but for the one before the current one; in bytes.
    pub free_bytes_min: u64,
}

/// Why a version is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is the current one.
    Current,
    /// Somebody pinned it.
    Pinned,
    /// Somebody has it open.
    InUse,
    /// It was not published yet.
    Unpublished,
    /// It is one of the newest.
    New,
    /// It is younger than versions must be to go.
    Young,
    /// It cannot be read, and may be needed to find out what is wrong.
    Damaged,
    /// Its file is missing; it can be restored from a copy, or given up.
    Lost,
}

/// What was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Numbers of versions.
    pub versions: Vec<u64>,
    /// Tables.
    pub tables: u64,
    /// Of their files, in bytes.
    pub bytes: u64,
    /// The versions that stay, and why.
    pub kept: Vec<(u64, Reason)>,
}

impl StoreWriter {
    /// Removes versions that no rule keeps, and tables that no version needs. `pace` is told how
    /// many bytes were freed since the last call, before it goes on: it can take its time. Its
    /// error ends the work; what was not removed is removed the next time.
    pub fn collect(
        &mut self,
        rules: &Retention,
        pace: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Removed> {
        self.settle()?;
        // Where the current version is lost or damaged, any other may be needed.
        self.parent()?;
        let mut removed = Removed::default();
        let mut spare = Vec::new();
        for (number, reason) in self.judge(rules)? {
            match reason {
                None => self.remove_version(number, &mut removed, pace)?,
                Some(reason @ (Reason::New | Reason::Young)) => spare.push((number, reason)),
                Some(reason) => removed.kept.push((number, reason)),
            }
        }
        let previous = self.pointer.previous();
        for (number, reason) in spare {
            let is_full = self.disk.free_bytes(&self.folder)? < rules.free_bytes_min;
            match is_full && previous != Some(number) {
                true => self.remove_version(number, &mut removed, pace)?,
                false => removed.kept.push((number, reason)),
            }
        }
        removed.kept.sort_unstable_by_key(|(number, _)| *number);
        // What was left by an earlier end in the middle.
        removed.bytes += self.sweep()?;
        Ok(removed)
    }

    /// Removes a version that was never current, and the tables that only it needs. `Busy` if
    /// somebody has it open.
    pub fn discard(&mut self, number: u64) -> Result<Removed> {
        self.version(number)?;
        let pointer = &self.pointer;
        let was_current = pointer.current == Some(number) || pointer.published.contains(&number);
        if was_current || pointer.pinned.contains(&number) {
            let expected = "one that was never current and is not pinned";
            return Err(Error::argument("version to discard", expected, number));
        }
        let mut removed = Removed::default();
        self.remove_version(number, &mut removed, &mut |_| Ok(()))?;
        match removed.kept.is_empty() {
            true => Ok(removed),
            false => {
                let path = self.versions().join(file_name(number));
                Err(Error::new(ErrorKind::Busy).at(&Place::file(&path)))
            }
        }
    }

    /// Gives up a version whose file is missing or damaged, and that no copy can restore. Its tables
    /// are removed with the next collection unless other versions need them.
    pub fn give_up(&mut self, number: u64) -> Result<()> {
        self.settle()?;
        let is_lost = match self.version(number) {
            Ok(_) => false,
            Err(error) => as_mendable(error).is_ok(),
        };
        if !is_lost || self.pointer.current == Some(number) {
            let expected = "one whose file is missing or damaged, and that is not current";
            return Err(Error::argument("version to give up", expected, number));
        }
        let mut pointer = self.pointer.clone();
        pointer.strike(number);
        self.replace(pointer)
    }

    /// Removes a store that has no version, as if it had never been made; its folder stays. One
    /// that has versions stays as it is.
    pub fn abandon(self) -> Result<()> {
        if !self.numbers()?.is_empty() || !self.pointer.versions.is_empty() {
            return Ok(());
        }
        self.sweep()?;
        // Without its pointer it is no store; what is left then is nobody's.
        self.disk.remove(&self.folder.join(pointer::NAME))?;
        self.disk.remove_folder(&self.versions())?;
        self.disk.remove_folder(&self.tables())?;
        self.disk.sync_folder(&self.folder)
    }

    /// What the rules say of each version, the oldest first; `None`: it can go.
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

    /// Removes a version that nobody uses, and the tables that only it needs.
    fn remove_version(
        &mut self,
        number: u64,
        removed: &mut Removed,
        pace: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
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
            // Nobody knows which tables the others need.
            None => tables.clear(),
        }
        let mut pointer = self.pointer.clone();
        pointer.strike(number);
        self.replace(pointer)?;
        // The name goes before the tables, for good: a version that is there is whole.
        self.disk.remove(&path)?;
        self.disk.sync_folder(&self.versions())?;
        self.pointer.removing.retain(|removing| *removing != number);
        removed.versions.push(number);
        for table in tables {
            let folder = super::layer::folder_of(&self.tables(), table);
            let bytes = remove_table(self.disk.as_ref(), &folder)?;
            removed.tables += 1;
            removed.bytes += bytes;
            pace(bytes)?;
        }
        Ok(())
    }
}
