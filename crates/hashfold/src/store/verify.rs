//! Verifying versions piece by piece, and repairing them from another copy of the store.

use super::{
    layer::{MENDED, folder_of},
    pointer::Pointer,
    read::recheck,
    tree::{self, FileTree, Tree, check_pieces},
    version::{Layer, VersionInfo, file_name},
    write::StoreWriter,
};
use crate::{
    env::Env,
    error::{Error, ErrorClass, ErrorKind, Place, Result},
    folder::{TABLES, VERSIONS},
    io::{Access, Buffer, Disk, replace_file},
    verify::VerifyReport,
    work::Watch,
};
use std::{collections::HashSet, path::Path};

/// The amounts that checking and mending a store count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreFigures {
    /// Number of tables that were read.
    pub tables: u64,
    /// Number of bytes that were read.
    pub bytes: u64,
    /// Number of pieces and files that were mended.
    pub mended: u64,
}

/// Reads all files of a version and compares them with the hashes of the bytes that were written.
/// `watch` counts bytes.
pub fn verify(
    env: &Env,
    folder: impl AsRef<Path>,
    number: u64,
    watch: &Watch,
) -> Result<VerifyReport<StoreFigures>> {
    verify_versions(env, folder, &[number], watch)
}

/// Reads all files of some versions, as [`verify`] does. A table that several versions have is read
/// once, and its damage is reported once.
pub fn verify_versions(
    env: &Env,
    folder: impl AsRef<Path>,
    numbers: &[u64],
    watch: &Watch,
) -> Result<VerifyReport<StoreFigures>> {
    let (mut report, mut known) = (VerifyReport::default(), HashSet::new());
    for number in numbers {
        verify_one(env.disk.as_ref(), folder.as_ref(), *number, (&mut report, &mut known), watch)?;
    }
    Ok(report)
}

/// Checks a version, without the tables that are known already.
fn verify_one(
    disk: &dyn Disk,
    folder: &Path,
    number: u64,
    (report, known): (&mut VerifyReport<StoreFigures>, &mut HashSet<u64>),
    watch: &Watch,
) -> Result<()> {
    let path = folder.join(VERSIONS).join(file_name(number));
    let of = Pointer::read(disk, folder).ok();
    // The lock prevents a removal, so a file that is gone is damage.
    let _share = match disk.exists(&path)? {
        true => Some(disk.share(&path)?),
        false => None,
    };
    let info = VersionInfo::read(disk, &folder.join(VERSIONS), number, of.as_ref());
    let info = info.map_err(|error| recheck(error, disk, folder, number));
    let Some(info) = report.note(info)? else { return Ok(()) };
    for layer in info.layers().filter(|layer| known.insert(layer.table)) {
        let table = folder_of(&folder.join(TABLES), layer.table);
        report.figures.tables += 1;
        let tree = Tree::read(disk, &table, layer.table, &layer.root).map_err(if_lost);
        let Some(tree) = report.note(tree)? else { continue };
        for file in &tree.files {
            check_file(disk, &table, file, report, watch)?;
        }
    }
    Ok(())
}

fn check_file(
    disk: &dyn Disk,
    table: &Path,
    tree: &FileTree,
    report: &mut VerifyReport<StoreFigures>,
    watch: &Watch,
) -> Result<()> {
    let path = table.join(&tree.name);
    let file = disk.open(&path, Access::Direct).map_err(if_lost);
    let Some(file) = report.note(file)? else { return Ok(()) };
    let size = file.size()?;
    if size != tree.size() {
        let error = Error::field("file size", tree.size().to_string(), size);
        report.damage.push(error.at(file.place()));
    }
    let VerifyReport { damage, figures } = report;
    check_pieces(file.as_ref(), tree, &mut |piece, good| {
        let len = piece.bytes.end - piece.bytes.start;
        figures.bytes += len;
        if good.is_none() && piece.bytes.end <= size {
            let error = Error::field("BLAKE3 of a piece", tree::hex(&piece.hash), "another");
            let error = error.at(&file.place().offset(piece.bytes.start));
            damage.push(error);
        }
        watch.add(len)
    })
}

/// Returns an error that is damage, which a check reports. Fails with any other error, which ends
/// the check. A missing file that is named is damage.
pub(super) fn as_damage(error: Error) -> Result<Error> {
    let error = if_lost(error);
    if error.class() == ErrorClass::Damage { Ok(error) } else { Err(error) }
}

/// Turns the error of opening a file that is not there into damage.
pub(super) fn if_lost(error: Error) -> Error {
    error.if_lost("file of the store")
}

/// Returns an error that is damage that can be mended or given up; fails with any other error. A
/// file of a newer format is whole: only a newer Hashfold may replace or remove it.
pub(super) fn as_mendable(error: Error) -> Result<Error> {
    match error.kind() {
        ErrorKind::Version { .. } => Err(error),
        _ => as_damage(error),
    }
}

impl StoreWriter {
    /// Mends a version from another copy of the store, in the folder `other`: copies each piece
    /// that is missing or damaged here and whole there. Returns the damage, and the number of
    /// pieces that were mended. `watch` counts bytes that were checked.
    pub fn repair(
        &mut self,
        number: u64,
        other: &Path,
        watch: &Watch,
    ) -> Result<VerifyReport<StoreFigures>> {
        self.settle()?;
        let (info, lost) = match self.version(number) {
            Ok(info) => (info, None),
            Err(error) => {
                let lost = as_mendable(error)?;
                match self.restore_version(number, other) {
                    Ok(info) => (info, Some(lost)),
                    Err(error) => {
                        let damage = vec![lost, as_damage(error)?];
                        return Ok(VerifyReport { damage, ..VerifyReport::default() });
                    }
                }
            }
        };
        let mut report = verify(&self.env, &self.folder, number, watch)?;
        if !report.damage.is_empty() {
            let (tables, other, watch) = (self.tables(), other.join(TABLES), Watch::default());
            let copy = TableCopy {
                disk: self.env.disk.as_ref(),
                tables: &tables,
                other: &other,
                watch: &watch,
            };
            for layer in info.layers() {
                // Damage that the copy cannot mend is reported, and the rest is mended.
                let mended = copy.mend(&info, layer, &mut report.figures.mended).map_err(if_lost);
                report.note(mended)?;
            }
        }
        report.figures.mended += u64::from(lost.is_some());
        report.damage.extend(lost);
        Ok(report)
    }

    /// Restores the file of a version from the other copy. The file must be of the version that
    /// `CURRENT` lists: a copy that was changed separately may have given the number to another
    /// version.
    pub(super) fn restore_version(&self, number: u64, other: &Path) -> Result<VersionInfo> {
        let disk = self.env.disk.as_ref();
        let info = VersionInfo::read(disk, &other.join(VERSIONS), number, Some(&self.pointer))
            .map_err(|error| match error.is_absent() {
                true => Error::missing(format!("version {number} in the copy"), other),
                false => error,
            })?;
        let bytes = info.encode()?;
        replace_file(disk, &self.versions().join(file_name(number)), |file| {
            file.write_at(0, &bytes)
        })?;
        Ok(info)
    }
}

/// The tables of a store, and those of another copy.
pub(super) struct TableCopy<'a> {
    pub(super) disk: &'a dyn Disk,
    /// The folder of the tables.
    pub(super) tables: &'a Path,
    /// The folder of the tables in the other copy.
    pub(super) other: &'a Path,
    /// Counts the bytes that are written.
    pub(super) watch: &'a Watch,
}

impl TableCopy<'_> {
    /// Copies the pieces of a table that are missing or damaged here and whole there, and adds their
    /// number to `mended`.
    pub(super) fn mend(&self, info: &VersionInfo, layer: &Layer, mended: &mut u64) -> Result<()> {
        let disk = self.disk;
        let table = folder_of(self.tables, layer.table);
        let source = folder_of(self.other, layer.table);
        let tree = match Tree::read(disk, &table, layer.table, &layer.root) {
            Ok(tree) => tree,
            Err(error) => {
                as_mendable(error)?;
                let tree = Tree::read(disk, &source, layer.table, &layer.root)?;
                disk.create_folder(&table)?;
                tree.write(disk, &table, info.seed, layer.table)?;
                *mended += 1;
                tree
            }
        };
        let mut unmended = Ok(());
        for file in &tree.files {
            match self.mend_file(&table, &source, file) {
                Ok(pieces) => *mended += pieces,
                Err(error) => unmended = Err(as_damage(error)?),
            }
        }
        disk.sync_folder(&table)?;
        disk.sync_folder(self.tables)?;
        unmended
    }

    /// Rewrites a file if any piece of it is damaged: good pieces from here, the others from the
    /// other copy. Returns the number of pieces that were mended.
    fn mend_file(&self, table: &Path, source: &Path, tree: &FileTree) -> Result<u64> {
        let disk = self.disk;
        let path = table.join(&tree.name);
        // Beside the tables, where the next writer removes unknown files.
        let id = table.file_name().unwrap_or_default().to_string_lossy();
        let new = self.tables.join(format!("{id}-{}{MENDED}", tree.name));
        let here = match disk.open(&path, Access::Cached) {
            Ok(file) => Some(file),
            Err(error) => as_damage(error).map(|_| None)?,
        };
        // The offsets of the damaged pieces, in order.
        let mut bad = Vec::new();
        match &here {
            Some(file) => check_pieces(file.as_ref(), tree, &mut |piece, good| {
                bad.extend(good.is_none().then_some(piece.bytes.start));
                Ok(())
            })?,
            None => bad.extend(tree.pieces.iter().map(|piece| piece.bytes.start)),
        }
        let is_long = here.as_ref().map(|file| file.size()).transpose()? > Some(tree.size());
        if bad.is_empty() && !is_long {
            return Ok(0);
        }
        let there = disk.open(&source.join(&tree.name), Access::Cached)?;
        let file = disk.create(&new, Access::Cached)?;
        let mut bytes = Buffer::zeroed(0);
        for piece in &tree.pieces {
            let (start, len) = (piece.bytes.start, (piece.bytes.end - piece.bytes.start) as usize);
            if bytes.len() != len {
                bytes = Buffer::zeroed(len);
            }
            let is_bad = bad.binary_search(&start).is_ok();
            match &here {
                Some(here) if !is_bad => here.read_at(start, &mut bytes)?,
                _ => there.read_at(start, &mut bytes)?,
            }
            if tree::hash(&bytes) != piece.hash {
                let expected = tree::hex(&piece.hash);
                let error =
                    Error::field("BLAKE3 of a piece", expected, "different, as in this store");
                return Err(error.at(&Place::file(&source.join(&tree.name)).offset(start)));
            }
            file.write_at(start, &bytes)?;
            self.watch.add(len as u64)?;
        }
        file.sync()?;
        drop(file);
        disk.rename(&new, &path)?;
        Ok(bad.len() as u64 + u64::from(is_long))
    }
}
