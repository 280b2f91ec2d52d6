//! The files of a damaged map, as far as they can be read.

use super::{
    collect::{ALL_HASHES, Collector},
    found::FoundBlocks,
    loss::Lost,
    named,
    order::{Breaks, Logged},
    patient::PatientDisk,
    run::Salvage,
};
use crate::{
    error::{Error, ErrorClass, Place, Result},
    folder::{self, LockedFolder},
    io::{
        Access, BlockFile, Disk, DiskLayer,
        frame::{FileKind, Header},
    },
    manifest::{Kind, Manifest},
    map::{
        MapOptions,
        catalog::{self, Position},
        checkpoint::{CATALOG, DATA},
        devices::{self, DATA_NAME, Identity},
        space::Space,
        span::Stored,
    },
    wal::{self, WalFiles},
    work::Watch,
};
use std::{path::Path, sync::Arc};

/// Reads what is left of a damaged map that no process has open. All of it is sorted in the memory
/// that `options` give; if that is too little, in a file that is created under the name `spill` and
/// unlinked at once. The damaged map is not changed, and stays locked until the result is dropped.
/// Seed, attributes and durability of the options have no effect. The unit of `watch` is bytes.
///
/// ```
/// # std::env::set_current_dir(std::env::temp_dir())?;
/// # for folder in ["hf-damaged", "hf-mended"] { let _ = std::fs::remove_dir_all(folder); }
/// use hashfold::{map::{self, Map, MapOptions}, work::Watch};
///
/// let map = Map::open_or_create("hf-damaged")?;
/// map.put("anna", "120")?;
/// map.close()?;
/// std::fs::remove_file("hf-damaged/MANIFEST")?;
/// assert!(Map::open_or_create("hf-damaged").is_err());
///
/// let watch = Watch::default();
/// let mut left = map::salvage("hf-damaged", "hf-spill", MapOptions::new(), &watch)?;
/// left.write_map("hf-mended", &watch)?;
/// assert_eq!(left.losses().len(), 1);
/// assert_eq!(Map::open_or_create("hf-mended")?.get("anna")?.as_deref(), Some(&b"120"[..]));
/// # for folder in ["hf-damaged", "hf-mended"] { std::fs::remove_dir_all(folder)?; }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// `Absent` if there is no map, `WrongKind` if there is another data set, `Busy` if the map is open;
/// damage if all files are damaged that have the seed; errors of the spill file. All other damage,
/// and blocks that the device cannot read, are in [`Salvage::losses`].
pub fn salvage(
    folder: impl AsRef<Path>,
    spill: impl AsRef<Path>,
    options: MapOptions,
    watch: &Watch,
) -> Result<Salvage> {
    options.check()?;
    let locked = LockedFolder::open(options.env.disk.clone(), folder.as_ref())?;
    let patient = PatientDisk::on(options.env.disk.clone());
    let remains = Remains::find(&patient, folder.as_ref(), &options)?;
    let sorted_in = (&options, spill.as_ref());
    let mut out = Collector::new(remains.identity, sorted_in, patient.failures(), watch)?;
    remains.collect(&mut out)?;
    let file = out.file.clone();
    let (sorted, summary, losses) = out.finish()?;
    let now = options.env.clock.unix_time().as_millis() as u64;
    Ok(Salvage {
        sorted,
        summary,
        losses,
        folder: locked,
        identity: remains.identity,
        options,
        attributes: remains.manifest.map_or_else(|_| Vec::new(), |manifest| manifest.attributes),
        file,
        failures: patient.failures(),
        now,
        large: Vec::new(),
    })
}

/// The files of a map, of which some may be missing or damaged.
struct Remains<'a> {
    disk: &'a dyn Disk,
    folder: &'a Path,
    identity: Identity,
    manifest: Result<Manifest>,
    /// The data file, whose header is not checked.
    data: Result<Arc<dyn BlockFile>>,
    /// The errors of devices that are lost, if the data file is on several.
    lost_devices: Vec<Error>,
    /// The errors of files that say which device a folder is.
    unmarked_devices: Vec<Error>,
}

impl<'a> Remains<'a> {
    fn find(disk: &'a PatientDisk, folder: &'a Path, options: &MapOptions) -> Result<Remains<'a>> {
        let manifest = folder::read_manifest(disk, folder, Kind::Map);
        if let Err(error) = &manifest
            && error.class() != ErrorClass::Damage
        {
            return Err(error.clone());
        }
        let path = folder.join(DATA_NAME);
        let data = folder::open_file(disk, &path, Access::Cached, "data file of the map");
        let identity = match &manifest {
            Ok(Manifest { seed, id, .. }) => Identity { seed: *seed, id: *id },
            Err(error) => identity(disk, folder)?.ok_or_else(|| error.clone())?,
        };
        let named = manifest.as_ref().ok().map(|manifest| &*manifest.devices);
        let found = devices::remains(disk.below(), folder, identity, (named, &*options.devices));
        let mut remains = Remains {
            disk,
            folder,
            identity,
            manifest,
            data,
            lost_devices: Vec::new(),
            unmarked_devices: Vec::new(),
        };
        match found {
            Ok(None) => {}
            Ok(Some(found)) => {
                remains.data = Ok(disk.over_opened(found.file));
                (remains.lost_devices, remains.unmarked_devices) = (found.lost, found.unmarked);
            }
            Err(error) if error.class() == ErrorClass::Damage => remains.data = Err(error),
            Err(error) => return Err(error),
        }
        Ok(remains)
    }

    /// Collects all changes that can be read.
    fn collect(&self, out: &mut Collector<'_>) -> Result<()> {
        self.note_files(out);
        out.file = self.data.as_ref().ok().cloned();
        match self.catalog() {
            Some(Ok((position, groups))) => {
                named::collect(&groups, out)?;
                self.collect_log(position, out)
            }
            Some(Err(error)) if error.class() != ErrorClass::Damage => Err(error),
            damaged => {
                damaged.and_then(Result::err).into_iter().for_each(|error| {
                    out.lose(error, Lost::Catalog);
                });
                self.collect_without_catalog(out)
            }
        }
    }

    /// Notes what is wrong with the manifest and the data file as a whole.
    fn note_files(&self, out: &mut Collector<'_>) {
        if let Err(error) = &self.manifest {
            out.lose(error.clone(), Lost::Attributes);
        }
        for error in &self.lost_devices {
            out.lose(error.clone(), Lost::Entries(ALL_HASHES));
        }
        for error in &self.unmarked_devices {
            out.lose(error.clone(), Lost::Nothing);
        }
        let Identity { seed, id } = self.identity;
        let header =
            |file: &Arc<dyn BlockFile>| Header::read_of(&**file, FileKind::MapData, seed, id).err();
        match &self.data {
            Ok(file) => header(file).into_iter().for_each(|error| out.lose(error, Lost::Nothing)),
            Err(error) => out.lose(error.clone(), Lost::Entries(ALL_HASHES)),
        }
    }

    /// Reads the catalog that the manifest names, or the newest one if there is no manifest. Returns
    /// `None` if there is no data file.
    fn catalog(&self) -> Option<Result<(Position, Vec<Stored>)>> {
        let data = self.data.as_ref().ok()?;
        Some(self.catalog_name().and_then(|(name, size)| {
            let space = Space::with_size(data.clone(), data.size()?.max(size));
            let path = self.folder.join(name);
            let file = folder::open_file(self.disk, &path, Access::Cached, "catalog of the map")?;
            let (position, groups, _) = catalog::read(&*file, self.identity, &space)?;
            Ok((position, groups))
        }))
    }

    /// Returns the name of the catalog, and the size of the data file that goes with it, in bytes.
    fn catalog_name(&self) -> Result<(String, u64)> {
        if let Ok(manifest) = &self.manifest {
            return Ok((manifest.file(CATALOG)?.name.clone(), manifest.file(DATA)?.size));
        }
        // A catalog is complete before it is named. A newer one than the current is as good.
        let names =
            self.disk.list(self.folder)?.into_iter().filter(|name| catalog::is_catalog(name));
        let newest = names.max_by_key(|name| (name.len(), name.clone()));
        let missing = || Error::missing("catalog of the map", self.folder);
        Ok((newest.ok_or_else(missing)?, 0))
    }

    fn log(&self) -> WalFiles<'a> {
        let Identity { seed, id } = self.identity;
        WalFiles { disk: self.disk, folder: self.folder, seed, id }
    }

    /// Collects the changes of the log that the groups may not have.
    fn collect_log(&self, position: Position, out: &mut Collector<'_>) -> Result<()> {
        let needed = position.seq..position.logged;
        let lost = wal::salvage(self.log(), needed, &mut |record| out.push_record(record))?;
        self.note_log(lost, out);
        Ok(())
    }

    fn note_log(&self, lost: wal::LostRecords, out: &mut Collector<'_>) {
        lost.damage.into_iter().for_each(|error| out.lose(error, Lost::Nothing));
        for seqs in lost.seqs {
            let expected = format!("changes from {} on", seqs.start);
            let error = Error::field("records of the log", expected, "none");
            out.lose(error.at(&Place::file(self.folder)), Lost::Records(seqs));
        }
    }

    /// Collects the entries of all blocks, and all changes of the log.
    fn collect_without_catalog(&self, out: &mut Collector<'_>) -> Result<()> {
        // The log may have gaps: segments that wait to be recycled have old changes. So does a record whose parts
        // are gone because a checkpoint has freed them.
        let mut breaks = Breaks::default();
        let mut lost = wal::salvage(self.log(), 0..0, &mut |record| {
            let (write, is_whole) = (out.last_write_named(record), out.has_parts(record));
            breaks.add(Logged { seqs: record.seq..record.end(), write, is_whole });
            Ok(())
        })?;
        out.forget_parts();
        let mut blocks = FoundBlocks::find(out)?;
        self.note_demoted(&breaks, &blocks, out);
        let mut take = |record: wal::Record<'_>| {
            blocks.collect_up_to(breaks.last_write_before(record.seq), out)?;
            out.push_record(record)
        };
        wal::salvage(self.log(), 0..0, &mut take)?;
        blocks.collect_up_to(u64::MAX, out)?;
        // No log need begin with the first change.
        lost.seqs.retain(|seqs| seqs.start > 0);
        self.note_log(lost, out);
        Ok(())
    }

    /// Notes the changes that blocks may win over although they are older.
    fn note_demoted(&self, breaks: &Breaks, blocks: &FoundBlocks, out: &mut Collector<'_>) {
        let demoted = breaks.demoted().filter(|(_, write)| blocks.has_after(*write));
        if let Some((seqs, _)) = demoted {
            let expected = format!("all changes from {} on, with their parts", seqs.start);
            let error = Error::field("records of the log", expected, "some that are gone");
            out.lose(error.at(&Place::file(self.folder)), Lost::Order(seqs));
        }
    }
}

/// Returns the seed and the id that the first file with an intact header has.
fn identity(disk: &dyn Disk, folder: &Path) -> Result<Option<Identity>> {
    for name in disk.list(folder)? {
        let kind = match &*name {
            DATA_NAME => FileKind::MapData,
            name if catalog::is_catalog(name) => FileKind::MapCatalog,
            name if name.starts_with("wal-") => FileKind::Wal,
            _ => continue,
        };
        let file = disk.open(&folder.join(&name), Access::Cached)?;
        if let Ok(Header { seed, id, .. }) = Header::read(&*file, kind) {
            return Ok(Some(Identity { seed, id }));
        }
    }
    Ok(None)
}
