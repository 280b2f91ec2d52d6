//! Publishing, rolling back, pinning: changes to the pointer only.

use super::{
    gates::{Gates, Objection, Report},
    pointer::{Pointer, VersionName},
    read::Version,
    tables::open_layer,
    verify::{as_damage, verify},
    version::VersionInfo,
    write::StoreWriter,
};
use crate::{
    error::{Error, Place, Result, check_same},
    options::ReadOptions,
    work::Watch,
};
use std::collections::HashSet;

impl StoreWriter {
    /// Compares a version with the current one and lists the gates that it does not pass.
    pub fn report(&self, number: u64, gates: &Gates) -> Result<Report> {
        let options = ReadOptions::new().env(self.env.clone());
        let open = |number| Version::open(&self.folder, number, &options);
        let whole = |number| open(number).and_then(Version::whole);
        // Damage that the version shares with others does not prevent it.
        let new = open(number)?;
        let current = self.pointer.current.filter(|current| *current != number);
        // A damaged current version must not prevent its successor.
        let (current, lost) = match current.map(whole).transpose() {
            Ok(current) => (current, None),
            Err(error) => (None, Some(as_damage(error)?)),
        };
        let mut report = gates.check(current.as_ref(), &new)?;
        report.objections.extend(lost.filter(|_| gates.compare()).map(|lost| Objection {
            what: "current version",
            expected: "one to compare with".to_owned(),
            got: lost.to_string(),
        }));
        if gates.read_back {
            let found = verify(&self.env, &self.folder, number, &Watch::default())?;
            report.objections.extend(found.damage.into_iter().map(|damage| Objection {
                what: "bytes read back",
                expected: "those that were written".to_owned(),
                got: damage.to_string(),
            }));
        }
        Ok(report)
    }

    /// Makes a version current, without checking any gate. Readers see it from then on. A version
    /// that is marked bad is refused until [`StoreWriter::forgive`].
    ///
    /// Opens the tables that the current version does not have, so that no version is published that
    /// readers cannot open. Then only the pointer is written, whatever the size of the data is.
    ///
    /// # Errors
    /// Damage of a table's index, or the error of the device that a reader would get.
    pub fn publish(&mut self, number: u64) -> Result<()> {
        self.settle()?;
        let info = self.version(number)?;
        self.open_new_tables(&info)?;
        self.make_current(number)
    }

    /// Makes a version current that the caller has open, as [`StoreWriter::publish`] does. Opens no table again,
    /// which would take the memory of its index twice.
    ///
    /// # Errors
    /// The damage that was found when the version was opened; `Mismatch` if it is not one of this store.
    pub fn publish_open(&mut self, version: &Version) -> Result<()> {
        self.settle()?;
        version.damage().first().map_or(Ok(()), |damage| Err(damage.clone()))?;
        let VersionName { number, id } = version.info().name;
        check_same("version id", self.version(number)?.name.id, id)?;
        self.make_current(number)
    }

    /// Makes a version current that can be opened.
    fn make_current(&mut self, number: u64) -> Result<()> {
        if self.pointer.bad.contains(&number) {
            let expected = "a version that is not marked bad";
            return Err(Error::argument("version to publish", expected, number));
        }
        self.change(|pointer| pointer.publish(number))
    }

    /// Makes no version current, as before the first publication: readers find none when they open the store.
    /// The version that was current can be published again.
    pub fn unpublish(&mut self) -> Result<()> {
        self.settle()?;
        self.change(Pointer::unpublish)
    }

    /// Opens the tables of a version that the current version does not have.
    fn open_new_tables(&self, info: &VersionInfo) -> Result<()> {
        let current = self.parent().ok().flatten();
        let tables = current.iter().flat_map(VersionInfo::layers).map(|layer| layer.table);
        let known: HashSet<u64> = tables.collect();
        let options = ReadOptions::new().env(self.env.clone());
        let mut new = info.layers().filter(|layer| !known.contains(&layer.table));
        new.try_for_each(|layer| {
            let table = open_layer(&self.tables(), info, layer, &options)?;
            table.index_damage().map_or(Ok(()), |damage| Err(damage.clone()))
        })
    }

    /// Returns the version that a rollback makes current: the last one that was current, is not
    /// marked bad, and has other entries than the current version.
    pub fn previous(&self) -> Option<u64> {
        let current = self.content_of(self.pointer.current);
        self.pointer.earlier().find(|number| self.content_of(Some(*number)) != current)
    }

    /// Returns the first version with the entries of a version: the version itself or, if it was made
    /// without changes (a merge of deltas, a batch that was applied twice), the content of its parent.
    /// `None` for a version that is not listed.
    pub(super) fn content_of(&self, number: Option<u64>) -> Option<VersionName> {
        let mut first = self.pointer.version(number?)?;
        while let Ok(info) = self.version(first.number)
            && let Some(parent) = info.parent
            && info.name == first
            && parent.number < first.number
            && self.is_unchanged(&info, parent)
        {
            first = parent;
        }
        Some(first)
    }

    /// Whether a version is known to have the entries of its parent: no change was counted, or it has
    /// the same tables.
    fn is_unchanged(&self, info: &VersionInfo, parent: VersionName) -> bool {
        info.changes.is_some_and(|changes| changes.total() == 0)
            || self.version(parent.number).is_ok_and(|parent| info.layers().eq(parent.layers()))
    }

    /// Makes the previous version current ([`StoreWriter::previous`]), and marks the current version
    /// as bad, with all versions that were current and have the same entries. Returns the number of
    /// the new current version.
    ///
    /// # Errors
    /// `Missing` if the version is lost: [`StoreWriter::publish`] makes an older one current.
    pub fn roll_back(&mut self) -> Result<u64> {
        self.settle()?;
        let Some(previous) = self.previous() else {
            let expected = "a version that was current and has other entries";
            let error = Error::argument("version to roll back to", expected, "none");
            return Err(error.at(&Place::file(&self.folder)));
        };
        // A lost version is an error, not skipped.
        self.version(previous)?;
        let content = self.content_of(self.pointer.current);
        let earlier = self.pointer.earlier();
        let mut bad: Vec<u64> =
            earlier.filter(|number| self.content_of(Some(*number)) == content).collect();
        bad.extend(self.pointer.current);
        bad.sort_unstable();
        self.change(|pointer| {
            pointer.bad.extend(bad);
            pointer.publish(previous);
        })?;
        Ok(previous)
    }

    /// Marks a version that is not current as bad, so that it is not published by accident. Then
    /// only its age can keep it.
    pub fn condemn(&mut self, number: u64) -> Result<()> {
        self.settle()?;
        self.version(number)?;
        if self.pointer.current == Some(number) {
            let expected = "a version that is not current";
            return Err(Error::argument("version to mark as bad", expected, number));
        }
        if self.pointer.bad.contains(&number) {
            return Ok(());
        }
        self.change(|pointer| pointer.bad.push(number))
    }

    /// Removes the mark of a bad version, so that it can be published again.
    pub fn forgive(&mut self, number: u64) -> Result<()> {
        self.settle()?;
        self.change(|pointer| pointer.bad.retain(|bad| *bad != number))
    }

    /// Pins a version, so that no rule removes it, or releases its pin.
    pub fn pin(&mut self, number: u64, pin: Pin) -> Result<()> {
        self.settle()?;
        self.version(number)?;
        self.change(|pointer| {
            pointer.pinned.retain(|pinned| *pinned != number);
            match pin {
                Pin::Keep => pointer.pinned.push(number),
                Pin::Release => {}
            }
        })
    }

    /// Changes the pointer, on the disk and here.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Pointer)) -> Result<()> {
        let mut pointer = self.pointer.clone();
        change(&mut pointer);
        let replaced = pointer.replace(self.env.disk.as_ref(), &self.folder);
        self.is_settled = replaced.is_ok();
        match &replaced {
            Ok(()) => self.pointer = pointer,
            // The pointer may have been replaced, but may not be durable.
            Err(_) => {
                if let Ok(there) = Pointer::read(self.env.disk.as_ref(), &self.folder) {
                    self.pointer = there;
                }
            }
        }
        replaced
    }
}

/// The new state of a version's pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// The version is kept regardless of the rules.
    Keep,
    /// The version is kept only as far as the rules say.
    Release,
}
