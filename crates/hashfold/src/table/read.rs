//! Looking up keys in a table.

use super::{
    absent::AbsentBits,
    blocks::{DataBlocks, Found},
    data::{DATA_ROLE, DataFile},
    image::IndexBytes,
    index::{INDEX_ROLE, Index, Indexed, LookupTarget, Parts, TrieParts},
    layout::Position,
    locations::Locations,
    options::{IndexChoice, IndexStats, TableStats},
    scan::TableScan,
    verify::{self, TableFigures},
};
use crate::{
    checksum::crc32c,
    error::{Error, ErrorKind, Result, check_sum},
    folder::{self, Site},
    io::{
        ALIGNMENT, Access, BlockFile, Buffer, Disk,
        frame::{FileKind, Footer, Header},
    },
    key::KeyHash,
    manifest::{FileEntry, Kind, Manifest},
    options::ReadOptions,
    verify::VerifyReport,
    work::Watch,
};
use std::{cell::RefCell, iter, ops::Range, path::Path, sync::Arc};

/// Maximum number of attempts to open a table that is being replaced.
const ATTEMPTS_MAX: usize = 8;

/// Number of keys that are looked up in the index together, while blocks of earlier keys are being
/// read.
const TARGETS_AT_ONCE: usize = 64;

/// A callback of [`Table::get_many`]: takes the index of a key, and its value or `None`.
pub type VisitValue<'a> = dyn FnMut(usize, Option<&[u8]>) -> Result<()> + 'a;

/// An open table: its index is in memory, its entries are on the device.
///
/// An open table does not change, even if another build replaces it. Threads can share a table;
/// clones are the same table.
#[derive(Clone, Debug)]
pub struct Table {
    inner: Arc<OpenTable>,
}

#[derive(Debug)]
struct OpenTable {
    data: DataFile,
    index: Index,
    stats: TableStats,
    attributes: Vec<(String, Vec<u8>)>,
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
            let error = match Table::open_named(folder, &manifest, options, site) {
                Ok(table) => return Ok(table),
                Err(error) => error,
            };
            // The files that this manifest names may be gone because another manifest has been
            // published.
            attempts += 1;
            match Manifest::read(disk.as_ref(), folder) {
                Ok(newer) if newer != manifest && attempts < ATTEMPTS_MAX => manifest = newer,
                _ => return Err(error),
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
        let disk = &options.env.disk;
        let data = Table::open_data((disk, site), folder, manifest, options.data)?;
        let entry = manifest.file(INDEX_ROLE)?;
        let file = open_file((disk, site), folder, entry, options.index)?;
        Header::read_of(file.as_ref(), FileKind::TableIndex, manifest.seed, manifest.id)?;
        let index = read_index(file.clone(), data.indexed())
            .map_err(|error| error.at(&file.place().offset(ALIGNMENT as u64)))?;
        let stats = stats(manifest, &data, &index)?;
        let attributes = manifest.attributes.clone();
        Ok(Table { inner: Arc::new(OpenTable { data, index, stats, attributes }) })
    }

    /// Opens the data file that a manifest names.
    pub(super) fn open_data(
        disk: (&Arc<dyn Disk>, Site),
        folder: &Path,
        manifest: &Manifest,
        access: Access,
    ) -> Result<DataFile> {
        let file = open_file(disk, folder, manifest.file(DATA_ROLE)?, access)?;
        DataFile::open(file, manifest.id, manifest.seed)
    }

    /// Returns the value of a key. Takes one device read; with an index of fences, a second one for about
    /// 1 % of the keys.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let mut value = None;
        self.get_with(key.as_ref(), &mut |found| value = found.map(<[u8]>::to_vec))?;
        Ok(value)
    }

    /// Whether a key is in the table. Reads as much as [`Table::get`].
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let mut contains = false;
        self.get_with(key.as_ref(), &mut |found| contains = found.is_some())?;
        Ok(contains)
    }

    /// Calls `visit` once, with the value of a key, or `None` if the key is absent.
    pub fn get_with(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        let hash = KeyHash::of(key, self.inner.stats.seed);
        let mut lookup =
            Some(Lookup { part: 0, index: 0, hash, target: self.inner.index.target(hash) });
        let mut scratch = Vec::new();
        while let Some(now) = lookup.take() {
            let Some(blocks) = now.blocks() else {
                visit(None);
                break;
            };
            let mut extent = iter::once(self.inner.data.extent(&blocks));
            self.inner.data.file.read_many(&mut extent, &mut |_, bytes| {
                match self.search(&now, key, bytes, &mut scratch)? {
                    Outcome::Done(value) => visit(value),
                    Outcome::Again(target) => lookup = Some(Lookup { target, ..now.clone() }),
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Looks up many keys, with many device reads in flight. `visit` is called once for each key,
    /// in any order, with the index of the key and its value, or `None` if the key is absent.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K], visit: &mut VisitValue<'_>) -> Result<()> {
        get_many_in(&[(self, 0..keys.len())], keys, visit)
    }

    /// Returns the lookups of keys, the first of which has the index `first`.
    fn lookups<K: AsRef<[u8]>>(&self, part: usize, first: usize, keys: &[K]) -> Vec<Lookup> {
        let seed = self.inner.stats.seed;
        let hashes: Vec<KeyHash> = keys.iter().map(|key| KeyHash::of(key.as_ref(), seed)).collect();
        let targets = self.inner.index.targets(&hashes);
        let both = hashes.into_iter().zip(targets).zip(first..);
        both.map(|((hash, target), index)| Lookup { part, index, hash, target }).collect()
    }

    fn search<'s>(
        &'s self,
        lookup: &Lookup,
        key: &[u8],
        bytes: &'s [u8],
        scratch: &'s mut Vec<u8>,
    ) -> Result<Outcome<'s>> {
        let Some(range) = lookup.blocks() else { return Ok(Outcome::Done(None)) };
        let blocks = DataBlocks::new(&self.inner.data.context, range.start, bytes);
        let found = match lookup.target {
            LookupTarget::At(position, _) => blocks.search_at(position, key, scratch)?,
            _ => blocks.search(lookup.hash, key, scratch)?,
        };
        Ok(match (found, &lookup.target) {
            (Found::Value(value), _) => Outcome::Done(Some(value)),
            (Found::Before, LookupTarget::UpTo(block)) if *block > 0 => {
                Outcome::Again(LookupTarget::UpTo(block - 1))
            }
            (Found::More(blocks), LookupTarget::At(position, _)) => {
                Outcome::Again(LookupTarget::At(*position, blocks))
            }
            (Found::More(blocks), _) => Outcome::Again(LookupTarget::In(blocks)),
            (Found::Absent | Found::Before, _) => Outcome::Done(None),
        })
    }

    /// Returns all entries as a run.
    pub fn scan(&self) -> TableScan {
        TableScan::new(&self.inner.data)
    }

    /// Calls `visit` with the keys of about `count` entries that are spread evenly over the table:
    /// one key from each sampled block, or several if the table has fewer than `count` blocks.
    pub fn sample(&self, count: u64, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.scan().sample(count, visit)
    }

    /// Whether a lookup of this key reads a block.
    #[cfg(test)]
    pub(super) fn would_read(&self, key: &[u8]) -> bool {
        self.inner.index.target(KeyHash::of(key, self.inner.stats.seed)) != LookupTarget::Nowhere
    }

    /// Reads the whole table, and checks every block, the order of the entries, and that the index
    /// finds each entry. Damage is listed in the report. `watch` counts blocks.
    pub fn verify(&self, watch: &Watch) -> Result<VerifyReport<TableFigures>> {
        verify::verify(&self.inner.data, &self.inner.index, watch)
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
    let mut absent = Vec::new();
    let groups = parts.iter().enumerate().flat_map(|(part, (table, range))| {
        let starts = range.clone().step_by(TARGETS_AT_ONCE);
        starts.map(move |start| (part, *table, start..range.end.min(start + TARGETS_AT_ONCE)))
    });
    let lookups =
        groups.flat_map(|(part, table, group)| table.lookups(part, group.start, &keys[group]));
    let mut to_read = lookups.filter(|lookup| {
        let is_absent = lookup.target == LookupTarget::Nowhere;
        absent.extend(is_absent.then_some(lookup.index));
        !is_absent
    });
    let mut again = read_round(parts, &mut to_read, keys, visit)?;
    absent.into_iter().try_for_each(|index| visit(index, None))?;
    while !again.is_empty() {
        again = read_round(parts, &mut again.into_iter(), keys, visit)?;
    }
    Ok(())
}

/// Reads once for each lookup. Returns the lookups that must read again.
fn read_round<K: AsRef<[u8]>>(
    parts: &[LookupPart<'_>],
    lookups: &mut dyn Iterator<Item = Lookup>,
    keys: &[K],
    visit: &mut VisitValue<'_>,
) -> Result<Vec<Lookup>> {
    let files: Vec<&dyn BlockFile> =
        parts.iter().map(|(table, _)| &*table.inner.data.file).collect();
    let Some(first) = files.first() else { return Ok(Vec::new()) };
    let started = RefCell::new(Vec::new());
    let mut extents = lookups.map(|lookup| {
        let data = &parts[lookup.part].0.inner.data;
        let extent = (lookup.part, data.extent(&lookup.blocks().unwrap_or(0..0)));
        started.borrow_mut().push(lookup);
        extent
    });
    let (mut again, mut scratch) = (Vec::new(), Vec::new());
    first.read_across(&files, &mut extents, &mut |i, bytes| {
        let lookup = &started.borrow()[i];
        let (table, key) = (parts[lookup.part].0, keys[lookup.index].as_ref());
        match table.search(lookup, key, bytes, &mut scratch)? {
            Outcome::Done(value) => visit(lookup.index, value)?,
            Outcome::Again(target) => again.push(Lookup { target, ..lookup.clone() }),
        }
        Ok(())
    })?;
    Ok(again)
}

/// A key that is being looked up.
#[derive(Clone, Debug)]
struct Lookup {
    /// Index of the table, and of the key.
    part: usize,
    index: usize,
    hash: KeyHash,
    target: LookupTarget,
}

impl Lookup {
    /// Returns the blocks to read next.
    fn blocks(&self) -> Option<Range<u64>> {
        match &self.target {
            LookupTarget::Nowhere => None,
            LookupTarget::At(Position { .. }, blocks) | LookupTarget::In(blocks) => {
                Some(blocks.clone())
            }
            LookupTarget::UpTo(block) => Some(*block..block + 1),
        }
    }
}

enum Outcome<'a> {
    Done(Option<&'a [u8]>),
    Again(LookupTarget),
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

fn stats(manifest: &Manifest, data: &DataFile, index: &Index) -> Result<TableStats> {
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
        index_bytes: index.size(),
        index: index_stats(index),
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
