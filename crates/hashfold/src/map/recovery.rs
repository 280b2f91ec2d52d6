//! Creating the folder of a map, and opening it, also after a crash.

use super::{
    block::BLOCK_SIZE,
    catalog,
    checkpoint::{CATALOG, DATA, publish_first},
    core::{Core, Published, Start},
    devices::{self, Devices, Identity},
    directory::Directory,
    group::Group,
    item::{Change, Value},
    large::{self, Owner, Owners},
    log::{self, Expand, Logged, Part},
    maintain::{relieve, relieve_packets},
    options::MapOptions,
    pointer::Pointer,
    prefix::Prefix,
    rental,
    span::Stored,
};
use crate::{
    codec::within,
    error::{Error, ErrorKind, Place, Result, check_same},
    folder::{self, LockedFolder, Site},
    io::{ALIGNMENT, Access, BlockFile},
    key::Seed,
    manifest::{FIRST_NAME, Kind, NAME, NEW_NAME},
    wal::{Segments, Wal, WalFolder},
};
use std::{
    path::Path,
    sync::{Arc, atomic::Ordering::SeqCst},
};

/// Returns the sizes of the log's segments. A checkpoint shortens the log after each `wal_bytes` bytes
/// and keeps up to half of it, so that the log has up to twice that many.
fn segments(wal_bytes: u64) -> Segments {
    const FIRST_SIZE: u64 = if cfg!(test) { 20 << 10 } else { 1 << 20 };
    const SIZE_MAX: u64 = if cfg!(test) { FIRST_SIZE } else { 64 << 20 };
    // The space of a segment is taken when it begins, and that of the next one when it is half full.
    let size_max = (wal_bytes / 8).next_multiple_of(ALIGNMENT as u64).clamp(FIRST_SIZE, SIZE_MAX);
    Segments { first_size: FIRST_SIZE, size_max, spares_max: if cfg!(test) { 1 } else { 2 } }
}

/// Number of segments of a log beyond which a checkpoint is due when the map is opened. Each process
/// that makes changes begins a segment, and one that ends without a checkpoint leaves it. It takes its
/// full size, and opening the map takes longer with each.
const SEGMENTS_MAX: usize = 8;

/// Name of the file into which a sort for an import spills. It is unlinked as soon as it is created.
pub(super) const SPILL_NAME: &str = "import-spill";

/// The largest generation. Only a damaged manifest has a larger one.
const GENERATION_MAX: u64 = u64::MAX / 2;

/// Creates a map.
///
/// # Errors
/// `Exists` if there is a map in the folder.
pub(super) fn create(folder: &Path, options: MapOptions) -> Result<Core> {
    let core = begin(folder, options)?;
    publish(
        &core,
        core.directory.all().iter().map(|group| group.state().stored.clone()).collect(),
    )?;
    open_log(core, 0, 0, Owners::default())
}

/// Begins a map: the folder is one after [`publish`].
///
/// # Errors
/// `Exists` if there is a map in the folder.
pub(super) fn begin(folder: &Path, options: MapOptions) -> Result<Core> {
    options.check()?;
    let folder = LockedFolder::create(options.env.disk.clone(), folder, Kind::Map, Site::Own)?;
    folder::check_kind(&*folder.disk, &folder.path, Kind::Map)?;
    if folder.disk.exists(&folder.path.join(NAME))? {
        return Err(Error::new(ErrorKind::Exists).at(&Place::file(&folder.path)));
    }
    folder.sync_above()?;
    folder.begin_first()?;
    let random = || options.env.random.next_u64();
    let identity = Identity { seed: options.seed.unwrap_or_else(|| Seed(random())), id: random() };
    let devices = Devices::create(&folder, identity, &options)?;
    let groups: Vec<Stored> =
        Prefix::all(options.shape.first_depth).into_iter().map(Stored::empty).collect();
    let start = Start {
        directory: directory(&groups, identity.seed),
        published: Published {
            generation: 0,
            seq: 0,
            logged: 0,
            images: Vec::new(),
            token: 0,
            is_marked: true,
        },
        next_write: 1,
        // No process has written to this file before.
        owns_numbers: true,
        attributes: options.attributes.clone(),
    };
    let space = devices.space(&options)?;
    Ok(Core::new((folder, devices), (identity, options), space, start))
}

/// Publishes a new map with these groups, which are in order.
pub(super) fn publish(core: &Core, groups: Vec<Arc<Stored>>) -> Result<()> {
    publish_first(core, groups)?;
    core.devices.end_first()?;
    core.folder.remove(|name| name == FIRST_NAME)
}

/// Opens a map: reads its catalog, and replays the log.
pub(super) fn open(folder: &Path, options: MapOptions) -> Result<Core> {
    options.check()?;
    folder::read_manifest(&*options.env.disk, folder, Kind::Map)
        .map_err(|error| devices::explain(&*options.env.disk, folder, error))?;
    let folder = LockedFolder::open(options.env.disk.clone(), folder)?;
    // Names in the folder may come from a process that was killed, and not be durable yet.
    folder.disk.sync_folder(&folder.path)?;
    let manifest = folder::read_manifest(&*folder.disk, &folder.path, Kind::Map)?;
    within("generation of the manifest", 0..=GENERATION_MAX, manifest.generation)
        .map_err(|error| error.at(&Place::file(&folder.path.join(NAME))))?;
    let identity = Identity { seed: manifest.seed, id: manifest.id };
    let devices = Devices::open(&folder, &manifest, &options)?;
    check_size(&*devices.file, manifest.file(DATA)?.size)?;
    let space = devices.space(&options)?;
    let named = manifest.file(CATALOG)?;
    let path = folder.path.join(&named.name);
    let catalog = folder::open_file(&*folder.disk, &path, Access::Cached, "catalog of the map")?;
    check_same("size of the catalog", named.size, catalog.size()?)
        .map_err(|error| error.at(catalog.place()))?;
    let (position, groups, owners) = catalog::read(&*catalog, identity, &space)?;
    let current = named.name.clone();
    folder.remove(|name| {
        catalog::is_catalog(name) && name != current
            || [NEW_NAME, FIRST_NAME, SPILL_NAME].contains(&name)
    })?;
    let groups: Vec<Stored> = groups;
    let images = vec![groups.iter().cloned().map(Arc::new).collect()];
    let start = Start {
        directory: directory(&groups, identity.seed),
        published: Published {
            generation: manifest.generation,
            seq: position.seq,
            logged: position.logged,
            images,
            token: manifest.tokens.current,
            is_marked: devices.are_marked,
        },
        next_write: position.next_write,
        owns_numbers: false,
        attributes: manifest.attributes,
    };
    let core = Core::new((folder, devices), (identity, options), space, start);
    for group in core.directory.all() {
        let mut state = group.state();
        if !state.stored.packets.is_empty() {
            state.wear = rental::begin(&*core.options.env.random, &state.stored);
        }
    }
    open_log(core, position.seq, position.logged, owners)
}

/// Refuses a data file without all blocks that it had at the last checkpoint.
fn check_size(file: &dyn BlockFile, expected: u64) -> Result<()> {
    let got = file.size()?;
    if got >= expected {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Truncated { expected, got }).at(&file.place_at(got)))
}

fn directory(groups: &[Stored], seed: Seed) -> Directory {
    Directory::new(groups.iter().map(|stored| Group::new(stored.clone(), seed)).collect())
}

/// Opens the log, and applies its changes from `seq` on; those before `logged` must be there.
/// `owners` are those of the large values in the catalog.
fn open_log(core: Core, seq: u64, logged: u64, mut owners: Owners) -> Result<Core> {
    let Identity { seed, id } = core.identity;
    let (env, folder) = (core.options.env.clone(), core.folder.path.clone());
    let home = WalFolder { env, folder, seed, id };
    core.space.set_replaying(true);
    let mut relieves_above = core.buffer_bytes_max();
    let wal = Wal::open(home, segments(core.options.wal_bytes), seq..logged, &mut |record| {
        core.counters.log_bytes.fetch_add(record.payload.len() as u64, SeqCst);
        let (owners, relieves_above) = (&mut owners, &mut relieves_above);
        let mut replay = Replay { core: &core, seq: record.seq, owners, relieves_above };
        log::decode(record.payload, record.count, seed, |logged| match logged {
            Logged::Clear => {
                core.clear();
                Ok(())
            }
            logged => log::expand(logged, seed, &mut replay),
        })
    })?;
    core.space.set_replaying(false);
    core.tasks.needs_checkpoint.fetch_or(wal.segment_count() > SEGMENTS_MAX, SeqCst);
    core.log.set(wal).expect("it is set here only");
    Ok(core)
}

/// Applies the changes of a record of the log.
struct Replay<'a> {
    core: &'a Core,
    /// Sequence number of the record.
    seq: u64,
    /// Owners of the large values and parts that are known.
    owners: &'a mut Owners,
    /// The memory of changes in RAM above which they are flushed, in bytes.
    relieves_above: &'a mut usize,
}

impl Replay<'_> {
    /// Flushes changes in RAM if these take too much. On a full disk they stay there, above the budget, so that the map can
    /// be read; a flush is tried again when they have grown.
    fn relieve(&mut self) -> Result<()> {
        let core = self.core;
        if core.buffered_bytes() <= *self.relieves_above {
            return Ok(());
        }
        let max = core.buffer_bytes_max();
        let relieved = relieve(core, max).map(|()| relieve_packets(core));
        *self.relieves_above = match &relieved {
            Err(error) if error.is_full() => core.buffered_bytes() + max / 4,
            _ => max,
        };
        relieved.or_else(|error| if error.is_full() { Ok(()) } else { Err(error) })
    }

    /// Returns the owner of a large value, which the log keeps.
    fn owner(&mut self, pointer: Pointer) -> Result<Owner> {
        let owner = self.owners.claim(&self.core.space, pointer)?;
        self.core.keep_logged(self.seq, [owner.clone()].into_iter());
        Ok(owner)
    }
}

impl Expand for Replay<'_> {
    fn read(&mut self, Part { pointer, .. }: Part) -> Result<Vec<u8>> {
        // A log that names a part again and again would take long to replay.
        if self.owners.get(pointer.first).is_some() {
            let got = format!("block {}, which another change has", pointer.first);
            let expected = "blocks that only this part has";
            return Err(Error::field("place of a part of a record", expected, got));
        }
        let owner = self.owner(pointer)?;
        let Core { space, identity, counters, .. } = self.core;
        counters.log_bytes.fetch_add(owner.count * BLOCK_SIZE as u64, SeqCst);
        large::read(&*space.file, identity.id, pointer, Some(&owner))
    }

    fn take(&mut self, change: Change<'_>) -> Result<()> {
        self.relieve()?;
        let owner = match change.content.value {
            Value::Large(pointer) => Some(self.owner(pointer)?),
            Value::Tombstone | Value::Inline(_) => None,
        };
        self.core.apply(change, self.seq, owner.as_ref());
        Ok(())
    }
}
