//! The folders of a map on several devices: the data file is striped over them.
//!
//! The folder of the map is that of the first device; it has the manifest, the catalog and the log,
//! too. The manifest names the other folders. Each folder has a file that says which device it is, so
//! that a missing, foreign or swapped folder is found. This file is framed, of kind 14, and has no
//! body. The fields of its footer (`docs/formats/map.md` has the same table):
//!
//! | field | size |                                                     |
//! |-------|-----:|-----------------------------------------------------|
//! | index |    2 | of the device, from 0 on                            |
//! | count |    2 | number of devices, 2 to 256                         |
//! | unit  |    4 | size of a stripe, in bytes: a multiple of 4096      |
//! | token |    8 | of a manifest of the map; 0 in the first folder     |
//!
//! A copy of the first folder leads to the same other folders. So that no two maps write to these, each
//! manifest has a token of its own, and that of the manifest before it: the other folders get its token once
//! it is published, and before a block is used again that only older manifests need. A folder with another
//! token than these two was changed with another copy of the first folder, and the map does not open.

use super::{
    block::BLOCK_SIZE,
    options::{MapOptions, STRIPE_BYTES_MAX},
    space::Space,
};
use crate::{
    codec::{Decoder, within},
    error::{Error, ErrorKind, Place, Result, check_same},
    folder::{self, LockedFolder, Site},
    io::{
        ALIGNMENT, Access, BlockFile, Completeness, Device, Disk, StripedFile,
        frame::{FileKind, Header, encode_fields, read_fields},
        new_name, replace_file,
    },
    key::Seed,
    manifest::{DEVICES_MAX, FIRST_NAME, Kind, Manifest, NAME, Tokens},
};
use std::{
    collections::BTreeSet,
    iter::once,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The name of the data file, and of its part in the folder of each device.
pub(super) const DATA_NAME: &str = "map-data";
/// The name of the file that says which device a folder is.
pub(super) const DEVICE_NAME: &str = "map-device";

/// The seed and the id of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) seed: Seed,
    /// The id in the headers of all files.
    pub(super) id: u64,
}

/// The data file of a map, and the folders that it is in.
#[derive(Debug)]
pub(super) struct Devices {
    /// The folders of all devices but the first, locked.
    folders: Vec<LockedFolder>,
    pub(super) file: Arc<dyn BlockFile>,
    /// The data file again, if there are several devices.
    striped: Option<Arc<StripedFile>>,
    /// Whether all folders had the token of the current manifest when the map was opened.
    pub(super) are_marked: bool,
}

/// The place of a device among those of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rank {
    index: u16,
    count: u16,
    /// Size of a stripe, in bytes.
    unit: u32,
    /// The token of a manifest.
    token: u64,
}

/// A device of a map on several.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MapDevice {
    /// The folder on the device.
    pub folder: PathBuf,
    /// Space that the part of the data file takes on the device, in bytes.
    pub data_bytes: u64,
    /// Number of reads since the map was opened.
    pub reads: u64,
}

impl Rank {
    fn encode(self) -> Vec<u8> {
        let Rank { index, count, unit, token } = self;
        let place = [index.to_le_bytes(), count.to_le_bytes()].concat();
        [&place[..], &unit.to_le_bytes(), &token.to_le_bytes()].concat()
    }

    fn decode(fields: &[u8]) -> Result<Rank> {
        let mut fields = Decoder::new(fields);
        let (index, count, unit) = (fields.u16()?, fields.u16()?, fields.u32()?);
        let token = fields.u64()?;
        fields.end()?;
        within("number of devices", 2..=DEVICES_MAX + 1, count.into())?;
        within("index of the device", 0..=u64::from(count) - 1, index.into())?;
        within("size of a stripe in bytes", 1..=STRIPE_BYTES_MAX.into(), unit.into())?;
        check_same("end of a stripe in its block", 0, u64::from(unit) % BLOCK_SIZE as u64)?;
        Ok(Rank { index, count, unit, token })
    }

    /// Writes and syncs the file that says which device a folder is, in place of an older one.
    fn write(self, disk: &dyn Disk, folder: &Path, identity: Identity) -> Result<()> {
        let header = Header::new(FileKind::MapDevice, identity.seed, identity.id);
        let bytes = encode_fields(&header, self.encode())?;
        replace_file(disk, &folder.join(DEVICE_NAME), |file| file.write_at(0, &bytes))
    }

    /// Reads which device a folder is.
    fn read(disk: &dyn Disk, folder: &Path, identity: Identity) -> Result<Rank> {
        let path = folder.join(DEVICE_NAME);
        let file = folder::open_file(disk, &path, Access::Cached, "device file of the map")?;
        Header::read_of(&*file, FileKind::MapDevice, identity.seed, identity.id)?;
        read_fields(&*file, FileKind::MapDevice, |_, fields| Rank::decode(fields))
    }

    /// Reads which device a folder is, and refuses it if it is another one. Returns its token.
    fn check(self, disk: &dyn Disk, folder: &Path, identity: Identity) -> Result<u64> {
        let got = Rank::read(disk, folder, identity)?;
        let is = |what, expected: u32, got: u32| match expected == got {
            true => Ok(()),
            false => Err(Error::field(what, expected.to_string(), got)),
        };
        is("index of the device", self.index.into(), got.index.into())
            .and_then(|()| is("number of devices", self.count.into(), got.count.into()))
            .and_then(|()| is("size of a stripe in bytes", self.unit, got.unit))
            .map(|()| got.token)
            .map_err(|error| error.at(&Place::file(&folder.join(DEVICE_NAME))))
    }
}

impl Devices {
    /// Creates the data file of a new map, whose other folders the options name.
    ///
    /// # Errors
    /// `Exists` if another map uses one of the folders; `Argument` if two are the same.
    pub(super) fn create(
        first: &LockedFolder,
        identity: Identity,
        options: &MapOptions,
    ) -> Result<Devices> {
        let disk = &*first.disk;
        let paths = absolute(disk, &options.devices)?;
        check_distinct(&disk.absolute(&first.path)?, &paths)?;
        let file = create_data(first, identity, options.access)?;
        if paths.is_empty() {
            return Ok(Devices::on_one(file));
        }
        let folders: Vec<LockedFolder> =
            paths.iter().map(|path| lock_new(first, path)).collect::<Result<_>>()?;
        let (count, unit) = (1 + folders.len() as u16, options.stripe_bytes);
        let mut devices = vec![Device::new(file, 0)];
        for folder in &folders {
            let file = create_data(folder, identity, options.access)?;
            devices.push(Device::new(file, ALIGNMENT as u64));
        }
        for (index, folder) in (0..).zip(once(first).chain(&folders)) {
            Rank { index, count, unit, token: 0 }.write(disk, &folder.path, identity)?;
        }
        Ok(Devices::on(folders, devices, unit, true))
    }

    /// Opens the data file of a map. Each part has the blocks of the last checkpoint at least, if the
    /// whole has.
    ///
    /// # Errors
    /// `Superseded` if another copy of the first folder has changed the others.
    pub(super) fn open(
        first: &LockedFolder,
        manifest: &Manifest,
        options: &MapOptions,
    ) -> Result<Devices> {
        let (disk, identity) = (&*first.disk, Identity { seed: manifest.seed, id: manifest.id });
        let paths = choose(disk, manifest.devices.clone(), &options.devices)?;
        let file = open_data(disk, &first.path, identity, options.access)?;
        if paths.is_empty() {
            return Ok(Devices::on_one(file));
        }
        let rank = Rank::read(disk, &first.path, identity)?;
        let rank = Rank { index: 0, count: 1 + paths.len() as u16, ..rank };
        rank.check(disk, &first.path, identity)?;
        let (mut folders, mut devices) = (Vec::new(), vec![Device::new(file, 0)]);
        let mut are_marked = true;
        for (index, path) in (1..).zip(&paths) {
            let (folder, token) = open_other(first, path, (Rank { index, ..rank }, manifest))?;
            are_marked &= token == manifest.tokens.current;
            let file = open_data(disk, path, identity, options.access)?;
            devices.push(Device::new(file, ALIGNMENT as u64));
            folders.push(folder);
        }
        Ok(Devices::on(folders, devices, rank.unit, are_marked))
    }

    fn on_one(file: Arc<dyn BlockFile>) -> Devices {
        Devices { folders: Vec::new(), file, striped: None, are_marked: true }
    }

    fn on(
        folders: Vec<LockedFolder>,
        devices: Vec<Device>,
        unit: u32,
        are_marked: bool,
    ) -> Devices {
        let striped = Arc::new(StripedFile::new(devices, unit.into(), Completeness::Whole));
        Devices { folders, file: striped.clone(), striped: Some(striped), are_marked }
    }

    /// Whether there is one device.
    pub(super) fn are_one(&self) -> bool {
        self.folders.is_empty()
    }

    /// Gives the token of a manifest to all folders but the first. After an error, some may have it.
    pub(super) fn mark(&self, identity: Identity, token: u64) -> Result<()> {
        let Some(striped) = &self.striped else { return Ok(()) };
        let (count, unit) = (1 + self.folders.len() as u16, striped.unit() as u32);
        (1..).zip(&self.folders).try_for_each(|(index, folder)| {
            Rank { index, count, unit, token }.write(&*folder.disk, &folder.path, identity)
        })
    }

    /// Makes the space of the data file.
    pub(super) fn space(&self, options: &MapOptions) -> Result<Arc<Space>> {
        let mirrored_max = options.mirror_bytes / BLOCK_SIZE as u64;
        match &self.striped {
            None => Space::new(self.file.clone()),
            Some(striped) => Space::striped_over(striped.clone(), mirrored_max),
        }
    }

    /// Marks the folders as those of a map whose manifest is published.
    pub(super) fn end_first(&self) -> Result<()> {
        self.folders.iter().try_for_each(|folder| {
            folder.remove(|name| name == FIRST_NAME)?;
            folder.disk.sync_folder(&folder.path)
        })
    }

    /// Returns the folders of all devices but the first.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.folders.iter().map(|folder| folder.path.clone()).collect()
    }

    /// Returns the figures of all devices; none if there is one device. `first` is its folder.
    pub(super) fn figures(&self, first: &Path) -> Result<Vec<MapDevice>> {
        let Some(striped) = &self.striped else { return Ok(Vec::new()) };
        let folders = once(first).chain(self.folders.iter().map(|folder| &*folder.path));
        let figures = |(folder, device): (&Path, &Device)| {
            let data_bytes = device.file().device_bytes()?;
            Ok(MapDevice { folder: folder.to_owned(), data_bytes, reads: device.reads() })
        };
        folders.zip(striped.devices()).map(figures).collect()
    }
}

/// Creates the part of a new map's data file that is in a folder.
fn create_data(
    folder: &LockedFolder,
    identity: Identity,
    access: Access,
) -> Result<Arc<dyn BlockFile>> {
    let file = folder.disk.create(&folder.path.join(DATA_NAME), access)?;
    file.write_at(0, &Header::new(FileKind::MapData, identity.seed, identity.id).encode())?;
    Ok(file)
}

fn open_data(
    disk: &dyn Disk,
    folder: &Path,
    identity: Identity,
    access: Access,
) -> Result<Arc<dyn BlockFile>> {
    let opened = disk.open_to_write(&folder.join(DATA_NAME), access);
    let file = opened.map_err(|error| error.if_lost("data file of the map"))?;
    Header::read_of(&*file, FileKind::MapData, identity.seed, identity.id)?;
    Ok(file)
}

/// Creates and locks the folder of a new device, which has the mark of a first build from now on.
fn lock_new(first: &LockedFolder, path: &Path) -> Result<LockedFolder> {
    let folder = LockedFolder::create(first.disk.clone(), path, Kind::Map, Site::Own)?;
    let exists = |name: &str| folder.disk.exists(&path.join(name));
    if exists(NAME)? || exists(DEVICE_NAME)? && !exists(FIRST_NAME)? {
        return Err(Error::new(ErrorKind::Exists).at(&Place::file(path)));
    }
    folder::check_kind(&*folder.disk, path, Kind::Map)?;
    folder.sync_above()?;
    folder.begin_first()?;
    Ok(folder)
}

/// Locks the folder of another device than the first, and checks that no other copy of the first folder has changed it.
/// Returns its token, too.
fn open_other(
    first: &LockedFolder,
    path: &Path,
    (rank, manifest): (Rank, &Manifest),
) -> Result<(LockedFolder, u64)> {
    let folder = LockedFolder::open(first.disk.clone(), path).map_err(|error| {
        let what = || format!("folder of device {} of the map", rank.index);
        if error.is_absent() { Error::missing(what(), path) } else { error }
    })?;
    let identity = Identity { seed: manifest.seed, id: manifest.id };
    let token = rank.check(&*first.disk, path, identity)?;
    let Tokens { current, before } = manifest.tokens;
    if ![current, before].contains(&token) {
        let superseded = ErrorKind::Superseded { device: path.into() };
        return Err(Error::new(superseded).at(&Place::file(&first.path)));
    }
    // Names may come from a process that was killed. With the mark of a first build, the folder would be
    // free for another map after a power cut.
    let new = new_name(DEVICE_NAME.as_ref());
    folder.remove(|name| name == FIRST_NAME || Path::new(name) == new)?;
    first.disk.sync_folder(path)?;
    Ok((folder, token))
}

/// Returns the folders of the other devices: those that the manifest names, unless the caller says
/// others.
fn choose(disk: &dyn Disk, named: Vec<PathBuf>, given: &[PathBuf]) -> Result<Vec<PathBuf>> {
    if given.is_empty() {
        return Ok(named);
    }
    if given.len() != named.len() {
        let what = "number of folders of the map's other devices";
        return Err(Error::argument(what, named.len().to_string(), given.len()));
    }
    absolute(disk, given)
}

fn absolute(disk: &dyn Disk, paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    if paths.len() as u64 > DEVICES_MAX {
        let what = "number of folders of the map's other devices";
        return Err(Error::argument(what, format!("at most {DEVICES_MAX}"), paths.len()));
    }
    paths.iter().map(|path| disk.absolute(path)).collect()
}

/// Refuses a folder that occurs twice.
fn check_distinct(first: &Path, paths: &[PathBuf]) -> Result<()> {
    let mut seen = BTreeSet::from([first]);
    match paths.iter().find(|path| !seen.insert(path)) {
        None => Ok(()),
        Some(path) => {
            let is_first = *path == first;
            let whose = if is_first { "that of the map" } else { "that of another device" };
            let got = format!("{}, {whose}", path.display());
            Err(Error::argument("folder of a device", "another one for each", got))
        }
    }
}

/// Returns the error of a folder without a map, or a better one if it is the folder of another device
/// than the first.
pub(super) fn explain(disk: &dyn Disk, folder: &Path, error: Error) -> Error {
    let rank = || {
        let file = disk.open(&folder.join(DEVICE_NAME), Access::Cached)?;
        read_fields(&*file, FileKind::MapDevice, |_, fields| Rank::decode(fields))
    };
    match (error.kind(), rank()) {
        (ErrorKind::Missing { .. }, Ok(Rank { index: index @ 1.., .. })) => {
            let got = format!("{}, that of device {index}", folder.display());
            Error::argument("folder of a map", "that of its device 0", got)
        }
        _ => error,
    }
}

/// The data file of a damaged map on several devices.
pub(super) struct Remains {
    pub(super) file: Arc<dyn BlockFile>,
    /// The errors of devices that cannot be opened. Reads of their bytes fail.
    pub(super) lost: Vec<Error>,
    /// The errors of the files that say which devices the other folders are. They are taken as they are given.
    pub(super) unmarked: Vec<Error>,
}

/// Opens what is left of the data file of a damaged map, for reading. Returns `None` if the map is on
/// one device, as far as that can be read. `named` are the folders of the other devices in the
/// manifest, if it can be read; `given` are those that the caller says.
pub(super) fn remains(
    disk: &dyn Disk,
    folder: &Path,
    identity: Identity,
    (named, given): (Option<&[PathBuf]>, &[PathBuf]),
) -> Result<Option<Remains>> {
    let first = Rank::read(disk, folder, identity);
    let count = match (named, &first) {
        (Some([]), _) => return Ok(None),
        (None, Err(_)) if given.is_empty() => return Ok(None),
        (Some(named), _) => 1 + named.len() as u16,
        (None, Ok(rank)) => rank.count,
        (None, Err(_)) => 1 + absolute(disk, given)?.len() as u16,
    };
    let paths = match (given, named) {
        ([], named) => named.unwrap_or_default().to_vec(),
        (given, _) => choose(disk, vec![PathBuf::new(); usize::from(count) - 1], given)?,
    };
    let ranks = once(first).chain(paths.iter().map(|path| Rank::read(disk, path, identity)));
    let ranks: Vec<Result<Rank>> = ranks.collect();
    let unit = match ranks.iter().flatten().next() {
        Some(rank) => rank.unit,
        None => return ranks[0].clone().map(|_| None),
    };
    // The folder of another device than the first may be the one that is left.
    let own = ranks[0].as_ref().map_or(0, |rank| rank.index.min(count - 1));
    let (mut lost, mut unmarked, mut devices) = (Vec::new(), Vec::new(), Vec::new());
    for index in 0..count {
        let path = if index == own {
            Some(folder)
        } else {
            paths.get(usize::from(index) - usize::from(index > own)).map(|path| &**path)
        };
        let rank = Rank { index, count, unit, token: 0 };
        let file = open_remains(disk, path, (identity, rank), &mut unmarked);
        let file = file.unwrap_or_else(|error| {
            lost.push(error.clone());
            Arc::new(LostFile { place: Place::file(path.unwrap_or(folder)), error })
        });
        devices.push(Device::new(file, if index == 0 { 0 } else { ALIGNMENT as u64 }));
    }
    let file = Arc::new(StripedFile::new(devices, unit.into(), Completeness::Remains));
    Ok(Some(Remains { file, lost, unmarked }))
}

/// Opens what is left of the part of the data file on a device. Adds the error of the file that says which device the folder is
/// to `unmarked`.
fn open_remains(
    disk: &dyn Disk,
    path: Option<&Path>,
    (identity, rank): (Identity, Rank),
    unmarked: &mut Vec<Error>,
) -> Result<Arc<dyn BlockFile>> {
    let Some(path) = path else {
        let expected = format!("one for device {}", rank.index);
        return Err(Error::argument("folder of a device", expected, "none"));
    };
    let marked = Rank::read(disk, path, identity);
    if marked.is_ok() {
        // Blocks of another device would pass for damaged ones.
        rank.check(disk, path, identity)?;
    }
    let path = path.join(DATA_NAME);
    let file = folder::open_file(disk, &path, Access::Cached, "data file of the map")?;
    unmarked.extend(marked.err());
    Ok(file)
}

/// The file of a device that cannot be opened. Reads return the error of that.
#[derive(Debug)]
struct LostFile {
    place: Place,
    error: Error,
}

impl BlockFile for LostFile {
    fn place(&self) -> &Place {
        &self.place
    }

    fn size(&self) -> Result<u64> {
        Ok(0)
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<()> {
        Err(self.error.clone())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> Result<()> {
        Err(self.error.clone())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}
