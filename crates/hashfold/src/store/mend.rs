//! Repairing the files of a store that name all other files: `CURRENT` and the version files.

use super::{
    pointer::{self, Pointer},
    verify::{StoreFigures, as_mendable, if_lost},
    version::{VersionInfo, numbers},
    write::StoreWriter,
};
use crate::{
    env::Env,
    error::{Error, ErrorClass, Place, Result, check_same},
    folder::{LockedFolder, TABLES, VERSIONS},
    io::Disk,
    verify::VerifyReport,
};
use std::path::Path;

/// The source of a new `CURRENT`, after the old one was lost or damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CurrentFrom {
    /// The copy's `CURRENT`: its current version is current.
    Copy,
    /// The version files. The version that the caller chose is current, or else the last version
    /// that another one was made from, which was current then. All versions are pinned, because it
    /// is unknown which ones were pinned or bad, and whether a newer one had been published.
    Versions,
}

/// A store that was opened for repair.
pub struct Mending {
    /// The writer; [`StoreWriter::repair`] mends the tables of a version.
    pub writer: StoreWriter,
    /// The damage of `CURRENT` and of the version files, and the number of files that were mended.
    pub report: VerifyReport<StoreFigures>,
    /// The source of the new `CURRENT`, if it was lost or damaged.
    pub current_from: Option<CurrentFrom>,
}

impl StoreWriter {
    /// Opens a store to mend it, and mends `CURRENT` and the version files: from `copy`, the folder
    /// of another copy of the store, or, for `CURRENT` alone, from the existing version files.
    /// Removes nothing. `current` is the version to make current if `CURRENT` is made from version
    /// files.
    ///
    /// # Errors
    /// `Absent` if there is no store in one of the folders, `Mismatch` if `copy` is of another store,
    /// the damage itself if it cannot be mended.
    pub fn mend(
        env: &Env,
        folder: impl AsRef<Path>,
        copy: Option<&Path>,
        current: Option<u64>,
    ) -> Result<Mending> {
        let (disk, folder) = (env.disk.clone(), folder.as_ref());
        // An unusable copy is reported before anything is changed.
        let copied = copy.map(|copy| Copied::read(disk.as_ref(), copy)).transpose()?;
        let home = LockedFolder::open(disk, folder)?;
        let disk = home.disk.as_ref();
        let mut report: VerifyReport<StoreFigures> = VerifyReport::default();
        let (pointer, current_from) = match Pointer::read(disk, folder) {
            Ok(pointer) => {
                copied.iter().try_for_each(|copied| copied.check_is_of(&pointer))?;
                match copied.as_ref().and_then(|copied| copied.newer(disk, folder, &pointer)) {
                    None => (pointer, None),
                    Some((mut newer, damage)) => {
                        newer.replace(disk, folder)?;
                        report.damage.push(damage);
                        report.figures.mended += 1;
                        (newer, Some(CurrentFrom::Copy))
                    }
                }
            }
            Err(error) => {
                report.damage.push(as_mendable(error)?);
                let (mut pointer, from) = match make_pointer(disk, folder, &copied, current)? {
                    Some(made) => made,
                    None => return Err(report.damage.remove(0)),
                };
                for name in [VERSIONS, TABLES] {
                    disk.create_folder(&folder.join(name))?;
                }
                pointer.replace(disk, folder)?;
                report.figures.mended += 1;
                (pointer, Some(from))
            }
        };
        let mut writer = StoreWriter::new(home, env.clone(), pointer);
        writer.settle()?;
        if let Some(copy) = copy {
            writer.restore_versions(copy, &mut report)?;
        }
        Ok(Mending { writer, report, current_from })
    }

    /// Restores the lost and damaged version files that the copy has.
    fn restore_versions(&self, copy: &Path, report: &mut VerifyReport<StoreFigures>) -> Result<()> {
        for number in self.pointer.versions.iter().map(|version| version.number) {
            if let Err(error) = self.version(number) {
                report.damage.push(as_mendable(error)?);
                let restored = self.restore_version(number, copy).map_err(if_lost);
                let restored = report.note(restored)?;
                report.figures.mended += u64::from(restored.is_some());
            }
        }
        Ok(())
    }
}

/// Another copy of the store.
struct Copied<'a> {
    folder: &'a Path,
    /// The copy's pointer; `None` if it is damaged, in which case the rest of the copy is still
    /// used.
    pointer: Option<Pointer>,
}

impl Copied<'_> {
    fn read<'a>(disk: &dyn Disk, folder: &'a Path) -> Result<Copied<'a>> {
        match Pointer::read(disk, folder) {
            Ok(pointer) => Ok(Copied { folder, pointer: Some(pointer) }),
            Err(error) if error.class() == ErrorClass::Damage => {
                Ok(Copied { folder, pointer: None })
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the copy's pointer, and the damage of this store's pointer, if this one was restored
    /// from an older copy: it does not match the existing versions, and the copy's pointer is
    /// newer.
    fn newer(&self, disk: &dyn Disk, folder: &Path, ours: &Pointer) -> Option<(Pointer, Error)> {
        let theirs = self.pointer.as_ref().filter(|theirs| theirs.sequence > ours.sequence)?;
        let there = numbers(disk, folder).ok()?;
        let listed = ours.versions.iter().map(|version| version.number);
        let fits = there.iter().all(|number| *number <= ours.newest)
            && listed.into_iter().all(|number| there.contains(&number));
        // A copy that was changed separately has other versions with these numbers.
        let versions = folder.join(VERSIONS);
        let is_ours = there.iter().all(|&number| {
            let here = VersionInfo::read(disk, &versions, number, None).ok().map(|info| info.name);
            here.zip(theirs.version(number)).is_none_or(|(here, there)| here == there)
        });
        if fits || !is_ours {
            return None;
        }
        let expected = format!("{} or more, as in the copy", theirs.sequence);
        let damage = Error::field("sequence of CURRENT", expected, ours.sequence);
        Some((theirs.clone(), damage.at(&Place::file(&folder.join(pointer::NAME)))))
    }

    fn check_is_of(&self, ours: &Pointer) -> Result<()> {
        let Some(theirs) = &self.pointer else { return Ok(()) };
        check_same("store", ours.store, theirs.store)
            .and_then(|()| check_same("seed", ours.seed.0, theirs.seed.0))
            .map_err(|error| error.at(&Place::file(self.folder)))
    }
}

/// Makes a pointer to replace a lost one: from a copy, or from the version files.
fn make_pointer(
    disk: &dyn Disk,
    folder: &Path,
    copied: &Option<Copied<'_>>,
    current: Option<u64>,
) -> Result<Option<(Pointer, CurrentFrom)>> {
    // The copy's pointer says which version is current.
    let ours = pointer_of_versions(disk, folder, current.filter(|_| copied.is_none()))?;
    let Some(copied) = copied else { return Ok(ours.map(|ours| (ours, CurrentFrom::Versions))) };
    ours.iter().try_for_each(|ours| copied.check_is_of(ours))?;
    let theirs = copied.pointer.clone().map(|theirs| (theirs, CurrentFrom::Copy));
    Ok(theirs.or_else(|| ours.map(|ours| (ours, CurrentFrom::Versions))))
}

/// Makes a pointer that lists the version files of a folder; the store is that of the newest
/// version. `None` if no file can be read. The ancestors of the current version are listed as
/// published.
fn pointer_of_versions(
    disk: &dyn Disk,
    folder: &Path,
    current: Option<u64>,
) -> Result<Option<Pointer>> {
    let versions = folder.join(VERSIONS);
    if !disk.exists(&versions)? {
        return Ok(None);
    }
    let there = numbers(disk, folder)?;
    let read = |number: &u64| VersionInfo::read(disk, &versions, *number, None).ok();
    let mut infos: Vec<VersionInfo> = there.iter().filter_map(read).collect();
    let Some((seed, store)) = infos.last().map(|newest| (newest.seed, newest.store)) else {
        return Ok(None);
    };
    infos.retain(|info| (info.seed, info.store) == (seed, store));
    let mut pointer = Pointer::new(seed, store);
    infos.iter().for_each(|info| pointer.add(info.name));
    // A version that another one was made from was current then; a newer version may have failed
    // its gates.
    let was_current = infos.iter().filter_map(|info| info.parent).map(|parent| parent.number);
    let known = was_current.filter(|number| pointer.version(*number).is_some()).max();
    let current = current.or(known).unwrap_or(pointer.newest);
    if pointer.version(current).is_none() {
        return Err(Error::missing(format!("file of version {current}"), &versions));
    }
    pointer.current = Some(current);
    // It is unknown which versions were pinned, so nothing is removed before the user says so.
    pointer.pinned = pointer.versions.iter().map(|version| version.number).collect();
    pointer.newest = there.last().map_or(pointer.newest, |last| pointer.newest.max(*last));
    let mut last = current;
    while let Some(parent) =
        infos.iter().find(|info| info.name.number == last).and_then(|i| i.parent)
        && parent.number < last
        && pointer.version(parent.number) == Some(parent)
    {
        pointer.published.insert(0, parent.number);
        last = parent.number;
    }
    Ok(Some(pointer))
}
