//! An open table: its files, and the way to its entries.

use super::{
    absent::AbsentBits,
    data::{DATA_ROLE, DataFile},
    image::IndexBytes,
    index::{INDEX_ROLE, Index, Indexed, Parts, TrieParts},
    locations::Locations,
    lookup::{self, FilesPart, OpenFiles, VisitValue},
    options::{IndexChoice, IndexStats, TableStats},
    pipeline,
    scan::TableScan,
    verify::{self, TableFigures},
};
use crate::{
    checksum::crc32c,
    error::{Error, ErrorClass, ErrorKind, Place, Result, check_sum},
    folder::{self, Site},
    io::{
        ALIGNMENT, Access, BlockFile, Buffer, Disk,
        frame::{FileKind, Footer, Header},
    },
    manifest::{FileEntry, Kind, Manifest},
    options::{AccessReason, Checks, DataAccess, ReadOptions},
    verify::VerifyReport,
    work::{Reserved, Watch},
};
use rustix::io::Errno;
use std::{borrow::Cow, ops::Range, path::Path, sync::Arc};

/// Maximum number of attempts to open a table that is being replaced.
const ATTEMPTS_MAX: usize = 8;

/// An open table: its index is in memory; its entries are mapped, or are read from the device.
///
/// An open table does not change, even if another build replaces it. Threads can share a table;
/// clones are the same table.
///
/// If the index is missing or damaged, lookups search the data file instead, with 2 to 4 reads each,
/// until [`reindex`](super::reindex) builds it again: see [`Table::index_damage`].
#[derive(Clone, Debug)]
pub struct Table {
    inner: Arc<OpenTable>,
}

#[derive(Debug)]
struct OpenTable {
    files: OpenFiles,
    /// The reason why there is no index, unless none was wanted.
    index_damage: Option<Error>,
    stats: TableStats,
    attributes: Vec<(String, Vec<u8>)>,
    /// The memory of the index.
    _memory: Option<Reserved>,
}

/// The body of a mapped index file.
#[derive(Debug)]
struct MappedBody {
    file: Arc<dyn BlockFile>,
    body: Range<usize>,
}

impl IndexBytes for MappedBody {
    fn bytes(&self) -> &[u8] {
        self.file.mapped().and_then(|bytes| bytes.get(self.body.clone())).unwrap_or(&[])
    }

    fn is_lost(&self) -> bool {
        self.file.is_lost()
    }

    fn check(&self) -> Result<()> {
        self.file.check_map()
    }
}

impl Table {
    /// Opens the table in a folder. Its index is read and checked, its data are not read.
    ///
    /// # Errors
    /// `Absent` if the folder has no data set, `WrongKind` if it has one of another kind; damage of the
    /// manifest and of the index.
    pub fn open(folder: impl AsRef<Path>) -> Result<Table> {
        Table::open_with(folder, &ReadOptions::new())
    }

    /// Opens the table in a folder, as [`Table::open`] does.
    ///
    /// # Errors
    /// The errors of [`Table::open`].
    pub fn open_with(folder: impl AsRef<Path>, options: &ReadOptions) -> Result<Table> {
        Table::open_at(folder.as_ref(), options, Site::Own)
    }

    /// Opens the table in a folder. The files of a [`Site::Part`] keep their names as long as the
    /// table is open.
    pub(crate) fn open_at(folder: &Path, options: &ReadOptions, site: Site) -> Result<Table> {
        let disk = &options.env.disk;
        let mut manifest = folder::read_manifest(disk.as_ref(), folder, Kind::Table)?;
        let mut attempts = 0;
        loop {
            let opened = match Table::open_named(folder, &manifest, options, site) {
                Ok(table) if table.inner.index_damage.is_none() => return Ok(table),
                opened => opened,
            };
            // The files that this manifest names may be gone because another manifest has been
            // published.
            attempts += 1;
            match Manifest::read(disk.as_ref(), folder) {
                Ok(newer) if newer != manifest && attempts < ATTEMPTS_MAX => manifest = newer,
                _ => return opened,
            }
        }
    }

    /// Opens the table that consists of the files that a manifest names.
    fn open_named(
        folder: &Path,
        manifest: &Manifest,
        options: &ReadOptions,
        site: Site,
    ) -> Result<Table> {
        let size = manifest.file(DATA_ROLE)?.size;
        // An index that the manifest does not name is lost, which is met below.
        let index_size = manifest.file(INDEX_ROLE).map_or(0, |file| file.size);
        let memory = options.reserve_index(index_size);
        let memory = memory.map_err(|error| error.at(&Place::file(folder)))?;
        let open = |access, reason| {
            let how = (access, options.checks);
            let data = Table::open_data((&options.env.disk, site), folder, manifest, how)?;
            Ok((data, (access, reason)))
        };
        let (data, access) = match options.for_bytes(size).data {
            DataAccess::Decided(access, reason) => open(access, reason)?,
            DataAccess::Fitting | DataAccess::Auto => {
                match open(Access::Mapped, AccessReason::FitsMemory) {
                    Err(error) if is_without_room(&error) => {
                        open(Access::Direct, AccessReason::NoAddressSpace)?
                    }
                    opened => opened?,
                }
            }
        };
        let index = match options.without_index {
            true => Ok(None),
            false => Table::open_index(folder, manifest, options, (site, data.indexed())).map(Some),
        };
        let (index, index_damage) = match index {
            Ok(index) => (index, None),
            Err(error) if is_lost(&error) => (None, Some(error)),
            Err(error) => return Err(error),
        };
        let files = OpenFiles { data, index };
        let stats = stats(manifest, &files, access)?;
        let attributes = manifest.attributes.clone();
        let _memory = memory.filter(|_| files.index.is_some());
        Ok(Table { inner: Arc::new(OpenTable { files, index_damage, stats, attributes, _memory }) })
    }

    /// Opens the data file that a manifest names.
    pub(super) fn open_data(
        disk: (&Arc<dyn Disk>, Site),
        folder: &Path,
        manifest: &Manifest,
        (access, checks): (Access, Checks),
    ) -> Result<DataFile> {
        let file = open_file(disk, folder, manifest.file(DATA_ROLE)?, access)?;
        DataFile::open(file, manifest.id, manifest.seed, checks)
    }

    /// Opens the index file that a manifest names.
    fn open_index(
        folder: &Path,
        manifest: &Manifest,
        options: &ReadOptions,
        (site, data): (Site, Indexed),
    ) -> Result<Index> {
        let entry = manifest.file(INDEX_ROLE)?;
        let file = open_file((&options.env.disk, site), folder, entry, options.index)?;
        Header::read_of(file.as_ref(), FileKind::TableIndex, manifest.seed, manifest.id)?;
        read_index(file.clone(), data)
            .map_err(|error| error.at(&file.place().offset(ALIGNMENT as u64)))
    }

    /// Returns the damage of the index, if it is missing or damaged. Lookups then take more reads.
    pub fn index_damage(&self) -> Option<&Error> {
        self.inner.index_damage.as_ref()
    }

    /// Returns the value of a key. Takes one device read; with an index of fences, a second one for about
    /// 1 % of the keys.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let mut value = None;
        self.get_with(key.as_ref(), &mut |found| value = found.map(<[u8]>::to_vec))?;
        Ok(value)
    }

    /// Returns the value of a key: borrowed from the file if it is mapped
    /// ([`Access::Mapped`]) and the value lies in one block, else copied.
    ///
    /// If another program cuts the file while the value is borrowed, some of its bytes become zeros;
    /// the next lookup returns an error.
    pub fn get_ref(&self, key: impl AsRef<[u8]>) -> Result<Option<Cow<'_, [u8]>>> {
        let files = &self.inner.files;
        match files.data.mapped_blocks() {
            Some(blocks) => files.get_mapped(blocks, key.as_ref()),
            None => Ok(self.get(key)?.map(Cow::Owned)),
        }
    }

    /// Returns the bytes of the data file, if it is mapped.
    pub(crate) fn mapped(&self) -> Option<&[u8]> {
        self.inner.files.data.file.mapped()
    }

    /// Returns the place of a value in the mapped data file, if it was borrowed from there.
    pub(crate) fn mapped_range(&self, value: &[u8]) -> Option<Range<usize>> {
        let all = self.mapped()?.as_ptr_range();
        let start = value.as_ptr().addr().checked_sub(all.start.addr())?;
        let end = start + value.len();
        (all.start.addr() + end <= all.end.addr()).then_some(start..end)
    }

    /// Whether a key is in the table. Reads as much as [`Table::get`].
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let mut contains = false;
        self.get_with(key.as_ref(), &mut |found| contains = found.is_some())?;
        Ok(contains)
    }

    /// Calls `visit` once, with the value of a key, or `None` if the key is absent.
    pub fn get_with(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        self.inner.files.get_with(key, visit)
    }

    /// Looks up many keys, with many device reads in flight, or with overlapping memory accesses if the
    /// data are mapped. `visit` is called once for each key, in any order, with the index of the key and
    /// its value, or `None` if the key is absent.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K], visit: &mut VisitValue<'_>) -> Result<()> {
        get_many_in(&[(self, 0..keys.len())], keys, visit)
    }

    /// Returns all entries as a run.
    pub fn scan(&self) -> TableScan {
        TableScan::new(&self.inner.files.data)
    }

    /// Returns the entries whose hashes have high bits of at least `from`, as a run, to go on with a scan
    /// where another one ended. Finds the first one with about 10 reads.
    pub fn scan_from(&self, from: u64) -> Result<TableScan> {
        self.scan().starting_from(from)
    }

    /// Calls `visit` with the keys of about `count` entries that are spread evenly over the table:
    /// one key from each sampled block, or several if the table has fewer than `count` blocks.
    pub fn sample(&self, count: u64, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.scan().sample(count, visit)
    }

    /// Returns the files of the table.
    #[cfg(test)]
    pub(super) fn files(&self) -> &OpenFiles {
        &self.inner.files
    }

    /// Whether a lookup of this key reads a block.
    #[cfg(test)]
    pub(super) fn would_read(&self, key: &[u8]) -> bool {
        let hash = crate::key::KeyHash::of(key, self.inner.stats.seed);
        self.inner.files.target(hash, 1) != super::index::LookupTarget::Nowhere
    }

    /// Reads the whole table, and checks every block, the order of the entries, and that the index
    /// finds each entry. Damage is listed in the report. `watch` counts blocks.
    pub fn verify(&self, watch: &Watch) -> Result<VerifyReport<TableFigures>> {
        let OpenTable { files, index_damage, .. } = &*self.inner;
        verify::verify(files, index_damage.as_ref(), watch)
    }

    /// Brings the entries of a mapped table into memory, so that no first lookup waits for the device. Does
    /// nothing if entries are read from the device. `watch` counts bytes, before they are read.
    ///
    /// # Errors
    /// The error of `watch`; another process has cut the file.
    pub fn warm(&self, watch: &Watch) -> Result<()> {
        match self.stats().access {
            Access::Mapped => self.inner.files.data.warm(watch),
            _ => Ok(()),
        }
    }

    /// Returns the table's statistics. Reads nothing.
    pub fn stats(&self) -> &TableStats {
        &self.inner.stats
    }

    /// Returns the attribute with this name.
    pub fn attribute(&self, name: &str) -> Option<&[u8]> {
        let found = self.inner.attributes.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_slice())
    }
}

/// A table, and the range of the keys that are looked up in it.
pub(crate) type LookupPart<'a> = (&'a Table, Range<usize>);

/// Looks up keys in several tables, with the device reads of all tables in flight together. `visit`
/// is called once for each key of the parts, as by [`Table::get_many`].
pub(crate) fn get_many_in<K: AsRef<[u8]>>(
    parts: &[LookupPart<'_>],
    keys: &[K],
    visit: &mut VisitValue<'_>,
) -> Result<()> {
    let parts: Vec<FilesPart<'_>> =
        parts.iter().map(|(table, keys)| (&table.inner.files, keys.clone())).collect();
    pipeline::get_many(&parts, keys, visit)?;
    if !parts.iter().all(|(files, _)| files.data.is_mapped()) {
        lookup::read_many(&parts, keys, visit)?;
    }
    // Values were shown as they lie in the maps.
    parts.iter().try_for_each(|(files, _)| files.check_maps())
}

/// Whether an index is missing or damaged, and can be built again. One of a newer format is not.
fn is_lost(error: &Error) -> bool {
    error.class() == ErrorClass::Damage && !matches!(error.kind(), ErrorKind::Version { .. })
}

/// Whether a file could not be mapped because the address space has no gap for it, or the process has
/// too many maps.
fn is_without_room(error: &Error) -> bool {
    let ErrorKind::Io { source, .. } = error.kind() else { return false };
    Errno::from_io_error(source) == Some(Errno::NOMEM)
}

/// Opens a file whose size the manifest records.
fn open_file(
    (disk, site): (&Arc<dyn Disk>, Site),
    folder: &Path,
    entry: &FileEntry,
    access: Access,
) -> Result<Arc<dyn BlockFile>> {
    let path = folder.join(&entry.name);
    let what = format!("{} file of the table", entry.role);
    let opened = match site {
        Site::Own => disk.open(&path, access),
        Site::Part => disk.open_named(&path, access),
    };
    let file = opened.map_err(|error| error.if_lost(&what))?;
    let size = file.size()?;
    if size == entry.size {
        return Ok(file);
    }
    let error = match size < entry.size {
        true => Error::new(ErrorKind::Truncated { expected: entry.size, got: size }),
        false => Error::field("file size", entry.size.to_string(), size),
    };
    Err(error.at(file.place()))
}

fn read_index(file: Arc<dyn BlockFile>, data: Indexed) -> Result<Index> {
    let (footer, footer_start) = Footer::read(file.as_ref())?;
    let body = ALIGNMENT..footer_start as usize;
    let bytes: Arc<dyn IndexBytes> = if file.mapped().is_some() {
        Arc::new(MappedBody { file, body })
    } else {
        let mut bytes = Buffer::zeroed(body.len());
        file.read_at(body.start as u64, &mut bytes)?;
        Arc::new(bytes)
    };
    check_sum(footer.body_sum, crc32c(bytes.bytes()))?;
    Index::open(&footer.fields, bytes, data)
}

fn stats(
    manifest: &Manifest,
    files: &OpenFiles,
    (access, access_reason): (Access, AccessReason),
) -> Result<TableStats> {
    let OpenFiles { data, index } = files;
    Ok(TableStats {
        seed: manifest.seed,
        id: manifest.id,
        generation: manifest.generation,
        entries: data.totals.entries,
        blocks: data.totals.blocks,
        block_size: data.context.layout.block_size,
        key_size: data.context.layout.key_size,
        value_size: data.context.layout.value_size,
        key_bytes: data.totals.key_bytes,
        value_bytes: data.totals.value_bytes,
        data_bytes: data.file.size()?,
        access,
        access_reason,
        index_bytes: index.as_ref().map_or(0, Index::size),
        index: index.as_ref().map(index_stats),
    })
}

fn index_stats(index: &Index) -> IndexStats {
    match &index.parts {
        Parts::Trie(TrieParts { trie, is_dense, locations, fingerprints }) => IndexStats {
            absent_bits: fingerprints.as_ref().map_or(0, |it| it.bits),
            location_bytes: locations.as_ref().map_or(0, Locations::size),
            fingerprint_bytes: fingerprints.as_ref().map_or(0, AbsentBits::size),
            ..trie.stats(if *is_dense { IndexChoice::Dense } else { IndexChoice::Sparse })
        },
        Parts::Fences(fences) => fences.stats(),
    }
}
