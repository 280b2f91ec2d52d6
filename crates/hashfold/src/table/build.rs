//! Building a table from a run, and rebuilding the index of an existing table.

use super::{
    data::{DATA_ROLE, DataWriter},
    image::Image,
    index::{Expected, INDEX_ROLE, IndexBuilder},
    layout::Layout,
    options::{IndexOptions, TableOptions, TableStats},
    read::Table,
    scan::TableScan,
};
use crate::{
    checksum::crc32c_append,
    env::Env,
    error::{Error, ErrorClass, ErrorKind, Place, Result, check_seed},
    folder::{self, LockedFolder, Site},
    io::{
        Access, Disk, Writer,
        frame::{FileKind, Footer, Header},
    },
    key::{KeyHash, Seed},
    manifest::{self, FileEntry, Kind, Manifest, Tokens},
    options::{Checks, ReadOptions},
    run::{Run, SortOptions, Sorter, Summary},
    work::Watch,
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

const SPILL_ROLE: &str = "spill";

/// A builder of a table in a folder, which it locks.
///
/// Entries come in any order with [`TableBuilder::push`], or as a run with [`TableBuilder::build`].
/// The new table is invisible until [`TableBuilder::finish`] or [`TableBuilder::build`] returns.
/// Until then, the folder holds the old table, or none. A builder that is dropped removes its
/// files. The next builder removes files that a crash has left.
#[derive(Debug)]
pub struct TableBuilder {
    folder: TableFolder,
    options: TableOptions,
    seed: Seed,
    id: u64,
    /// Generation of the new table.
    generation: u64,
    /// The sorter of pushed entries.
    sorter: Option<Sorter>,
}

impl TableBuilder {
    /// Creates and locks the folder of a new table, with the default options.
    ///
    /// # Errors
    /// `Exists` if the folder has a table, `Busy` if another process builds there, `WrongKind` if
    /// the folder has a data set of another kind.
    pub fn new(folder: impl AsRef<Path>) -> Result<TableBuilder> {
        TableBuilder::with(folder, TableOptions::new())
    }

    /// Creates and locks the folder of a table.
    ///
    /// # Errors
    /// `Exists` if the folder has a table that must not be replaced, `Busy` if another process builds
    /// there, `WrongKind` if the folder has a data set of another kind.
    pub fn with(folder: impl AsRef<Path>, options: TableOptions) -> Result<TableBuilder> {
        TableBuilder::create_at(folder.as_ref(), options, Site::Own)
    }

    /// Creates and locks the folder of a table, which may be part of another data set.
    pub(crate) fn create_at(
        folder: &Path,
        options: TableOptions,
        site: Site,
    ) -> Result<TableBuilder> {
        options.check()?;
        let disk = options.env.disk.clone();
        let folder = TableFolder::new(LockedFolder::create(disk, folder, Kind::Table, site)?)?;
        let generation = match folder.manifest() {
            Ok(Some(_)) if !options.replace => {
                return Err(Error::new(ErrorKind::Exists).at(&Place::file(folder.path())));
            }
            Ok(Some(old)) => {
                folder.sweep(Some(&old))?;
                after(old.generation)?
            }
            // The manifest may be lost, or it is damaged and the table is to be replaced. It is
            // then unknown which files belong to the table, so all of them stay until the new table
            // is published, and its files get new names.
            Ok(None) => {
                if site == Site::Own {
                    folder.folder.begin_first()?;
                }
                folder.unused_generation()?
            }
            Err(error) if options.replace && error.class() == ErrorClass::Damage => {
                folder.unused_generation()?
            }
            Err(error) => return Err(error),
        };
        let random = || options.env.random.next_u64();
        let seed = options.seed.unwrap_or_else(|| Seed(random()));
        let id = options.id.unwrap_or_else(random);
        Ok(TableBuilder { folder, options, seed, id, generation, sorter: None })
    }

    /// Changes the id of the new table, for an id that follows from the entries.
    #[must_use]
    pub fn with_id(mut self, id: u64) -> TableBuilder {
        self.id = id;
        self
    }

    /// Sets an attribute of the new table, for one that follows from the entries.
    ///
    /// # Errors
    /// `Limit` if the attributes are too long together.
    pub fn with_attribute(mut self, name: &str, value: Vec<u8>) -> Result<TableBuilder> {
        self.options.attributes.retain(|(other, _)| other != name);
        self.options.attributes.push((name.to_owned(), value));
        self.options.check()?;
        Ok(self)
    }

    /// Returns the seed that keys are hashed with. A run that is given to [`TableBuilder::build`]
    /// must have this seed.
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// Adds an entry. Entries come in any order; of several entries with one key, the last one is
    /// kept unless the options say otherwise. Entries that do not fit in the memory of the sort are
    /// spilled to the table's folder.
    ///
    /// # Errors
    /// `Limit` if the key has more than 65,535 bytes or the value more than 64 MiB; errors of
    /// writing, such as a full disk.
    pub fn push(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        if self.sorter.is_none() {
            self.sorter = Some(self.sorter(self.options.sort)?);
        }
        let sorter = self.sorter.as_mut().expect("it was just made");
        sorter.push(key.as_ref(), Some(value.as_ref()))
    }

    /// Writes the table of all pushed entries, publishes it, and opens it. The table is durable when
    /// this returns.
    ///
    /// # Errors
    /// Errors of writing. In that case, there is no new table.
    pub fn finish(self) -> Result<Table> {
        self.finish_with(&Watch::default())
    }

    /// Writes the table as [`TableBuilder::finish`] does. `watch` counts entries.
    ///
    /// # Errors
    /// Errors of writing, and `Stopped` if the watch ends the call. In these cases, there is no new
    /// table.
    pub fn finish_with(mut self, watch: &Watch) -> Result<Table> {
        let sorter = match self.sorter.take() {
            Some(sorter) => sorter,
            None => self.sorter(self.options.sort)?,
        };
        self.write(&mut sorter.finish()?, watch)
    }

    /// Makes a sorter for the table's entries, which spills into the table's folder. Its run goes to
    /// [`TableBuilder::build`].
    pub fn sorter(&self, options: SortOptions) -> Result<Sorter> {
        Sorter::new(
            self.folder.disk().clone(),
            self.spill_path(),
            self.seed,
            options,
            self.options.env.executor.clone(),
        )
    }

    /// Returns the name for the spill file of a sort of the table's entries. The file is in the table's
    /// folder, and if a crash leaves it there, the next builder removes it.
    pub fn spill_path(&self) -> PathBuf {
        self.folder.path().join(file_name(SPILL_ROLE, self.id, 0))
    }

    /// Writes the table in one pass over its run and publishes it. Tombstones are left out.
    /// `watch` counts entries of the run.
    ///
    /// # Errors
    /// `WrongSeed` if the run's seed is not that of the options, `Argument` if an entry contradicts
    /// the summary of the run.
    pub fn build(self, run: &mut dyn Run, watch: &Watch) -> Result<TableStats> {
        Ok(self.write(run, watch)?.stats().clone())
    }

    fn write(mut self, run: &mut dyn Run, watch: &Watch) -> Result<Table> {
        check_seed(self.seed, run.seed())?;
        let data = self.write_data(run, watch)?;
        let index = write_index(&self.folder, &self.header(), data.index, self.generation)?;
        let manifest = Manifest {
            kind: Kind::Table,
            seed: self.seed,
            id: self.id,
            generation: self.generation,
            files: vec![data.file, index],
            attributes: self.options.attributes.clone(),
            devices: Vec::new(),
            tokens: Tokens::default(),
        };
        self.folder.publish(&manifest)?;
        Table::open_with(self.folder.path(), &ReadOptions::new().env(self.options.env.clone()))
    }

    fn header(&self) -> Header {
        Header::new(FileKind::TableData, self.seed, self.id)
    }

    fn write_data(&self, run: &mut dyn Run, watch: &Watch) -> Result<Written> {
        let summary = run.summary();
        let layout = Layout::of(&summary, self.options.block_size);
        let name = file_name(DATA_ROLE, self.id, self.generation);
        let path = self.folder.path().join(&name);
        let file = self.folder.disk().create(&path, self.options.access)?;
        let place = file.place().clone();
        let executor = self.options.env.executor.clone();
        let mut data = DataWriter::new(file.clone(), executor, layout, &self.header())?;
        let expected = expected(layout, &summary);
        let mut index = IndexBuilder::new(&self.options.index, &expected);
        let mut steps = watch.steps();
        while run.advance()? {
            steps.step()?;
            let entry = run.entry();
            let Some(value) = entry.value else { continue };
            check_shape(&layout, entry.key, value)?;
            let block = data.push(&entry, value).map_err(|error| error.at(&place))?;
            index.push(entry.hash, block);
        }
        steps.finish()?;
        data.finish()?;
        file.sync()?;
        let file = FileEntry { role: DATA_ROLE.to_owned(), name, size: file.size()? };
        Ok(Written { file, index })
    }
}

/// A data file that has been written, and the index that has not.
struct Written {
    file: FileEntry,
    index: IndexBuilder,
}

fn expected(layout: Layout, summary: &Summary) -> Expected {
    Expected { layout, entries: summary.entries_max, blocks: layout.blocks_of(summary) }
}

/// Refuses an entry that contradicts the summary of its run.
#[inline]
fn check_shape(layout: &Layout, key: &[u8], value: &[u8]) -> Result<()> {
    for (what, expected, got) in
        [("key size", layout.key_size, key.len()), ("value size", layout.value_size, value.len())]
    {
        if let Some(expected) = expected
            && expected != got
        {
            return Err(Error::argument(
                what,
                format!("{expected}, as in all entries before"),
                got,
            ));
        }
    }
    Ok(())
}

fn write_index(
    folder: &TableFolder,
    data: &Header,
    index: IndexBuilder,
    generation: u64,
) -> Result<FileEntry> {
    let image: Image = index.finish();
    let name = file_name(INDEX_ROLE, data.id, generation);
    let file = folder.disk().create(&folder.path().join(&name), Access::Cached)?;
    let (fields, parts) = image.into_parts();
    let mut writer = Writer::new(file.clone(), Arc::new(crate::work::Inline));
    writer.append(&Header::new(FileKind::TableIndex, data.seed, data.id).encode())?;
    let mut body_sum = 0;
    for part in &parts {
        body_sum = crc32c_append(body_sum, part);
        writer.append(part)?;
    }
    let footer = Footer { fields, body_sum }.encode(writer.position());
    writer.append(&footer)?;
    writer.finish()?;
    file.sync()?;
    Ok(FileEntry { role: INDEX_ROLE.to_owned(), name, size: file.size()? })
}

/// Rebuilds the index of a table from its data, which stay unchanged. Readers that have the table
/// open keep the old index. `watch` counts entries.
pub fn reindex(
    env: &Env,
    folder: impl AsRef<Path>,
    options: &IndexOptions,
    watch: &Watch,
) -> Result<TableStats> {
    options.check()?;
    let (disk, folder) = (&env.disk, folder.as_ref());
    folder::read_manifest(disk.as_ref(), folder, Kind::Table)?;
    let mut folder = TableFolder::new(LockedFolder::open(disk.clone(), folder)?)?;
    let mut manifest = folder::read_manifest(disk.as_ref(), folder.path(), Kind::Table)?;
    folder.sweep(Some(&manifest))?;
    let how = (Access::Cached, Checks::Always);
    let table = Table::open_data((disk, Site::Own), folder.path(), &manifest, how)?;
    let data = table.indexed();
    let expected = Expected { layout: data.layout, entries: data.entries, blocks: data.blocks };
    let mut index = IndexBuilder::new(options, &expected);
    let mut scan = TableScan::new(&table);
    let mut last = KeyHash::from_bits(0);
    let mut entries = 0;
    let mut steps = watch.steps();
    while scan.advance()? {
        steps.step()?;
        let hash = scan.entry().hash;
        if hash < last {
            let kind = ErrorKind::Order { previous: last, got: hash };
            return Err(Error::new(kind).at(table.file.place()));
        }
        index.push(hash, scan.position().block);
        (last, entries) = (hash, entries + 1);
    }
    steps.finish()?;
    if entries != data.entries {
        let error = Error::field("number of entries", data.entries.to_string(), entries);
        return Err(error.at(table.file.place()));
    }
    manifest.generation = after(manifest.generation)?;
    let header = Header::new(FileKind::TableData, manifest.seed, manifest.id);
    let file = write_index(&folder, &header, index, manifest.generation)?;
    manifest.files.retain(|file| file.role != INDEX_ROLE);
    manifest.files.push(file);
    folder.publish(&manifest)?;
    let table = Table::open_with(folder.path(), &ReadOptions::new().env(env.clone()))?;
    Ok(table.stats().clone())
}

/// Returns the name of a table's file.
fn file_name(role: &str, id: u64, generation: u64) -> String {
    format!("{role}-{id:016x}-{generation}")
}

/// Returns the generation in a name that [`file_name`] made.
fn generation_of(name: &str) -> Option<u64> {
    let mut parts = name.splitn(3, '-');
    let role = parts.next()?;
    let id = parts.next()?;
    let is_ours = [DATA_ROLE, INDEX_ROLE, SPILL_ROLE].contains(&role)
        && id.len() == 16
        && u64::from_str_radix(id, 16).is_ok();
    parts.next()?.parse().ok().filter(|_| is_ours)
}

/// Whether a file may be removed.
fn is_ours(name: &str) -> bool {
    [manifest::NEW_NAME, manifest::FIRST_NAME].contains(&name) || generation_of(name).is_some()
}

/// Whether a file has the name of a table's file.
pub(crate) fn is_table_file(name: &str) -> bool {
    name == manifest::NAME || is_ours(name)
}

/// Returns the next generation. The given one may come from a damaged file.
fn after(generation: u64) -> Result<u64> {
    let next = generation.checked_add(1);
    next.ok_or_else(|| Error::field("generation", "below 2^64 - 1", generation))
}

/// The locked folder of a table. Dropping it removes the files that no manifest names, and the
/// folder itself if it was created in vain.
#[derive(Debug)]
struct TableFolder {
    folder: LockedFolder,
    /// The names in the folder when it was locked.
    before: Vec<String>,
    /// Whether a manifest may name files of this builder.
    is_published: bool,
}

impl TableFolder {
    fn new(folder: LockedFolder) -> Result<TableFolder> {
        let before = folder.disk.list(&folder.path)?;
        Ok(TableFolder { folder, before, is_published: false })
    }

    fn disk(&self) -> &Arc<dyn Disk> {
        &self.folder.disk
    }

    fn path(&self) -> &Path {
        &self.folder.path
    }

    /// Returns the folder's manifest, if it has one.
    fn manifest(&self) -> Result<Option<Manifest>> {
        match Manifest::read(self.disk().as_ref(), self.path()) {
            Ok(manifest) => Ok(Some(manifest)),
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns a generation that no file in the folder has.
    fn unused_generation(&self) -> Result<u64> {
        after(self.before.iter().filter_map(|name| generation_of(name)).max().unwrap_or(0))
    }

    /// Publishes the manifest, after the path of the folder has been made durable.
    fn publish(&mut self, manifest: &Manifest) -> Result<()> {
        self.is_published = true;
        self.folder.publish(manifest)?;
        // The new table is complete even if the old files cannot be removed now.
        let _ = self.sweep(Some(manifest));
        Ok(())
    }

    /// Removes files that a crash or an earlier manifest has left.
    fn sweep(&self, manifest: Option<&Manifest>) -> Result<()> {
        let is_named = |name: &str| {
            manifest.is_some_and(|manifest| manifest.files.iter().any(|file| file.name == name))
        };
        self.folder.remove(|name| is_ours(name) && !is_named(name))
    }
}

impl Drop for TableFolder {
    fn drop(&mut self) {
        // Errors cannot be returned from here; the next builder removes what is left.
        let is_new = |name: &str| is_ours(name) && !self.before.iter().any(|old| old == name);
        let _ = match self.manifest() {
            Ok(Some(manifest)) => self.sweep(Some(&manifest)),
            Ok(None) => self.folder.remove(is_new).and_then(|()| match self.folder.is_new {
                true => self.disk().remove_folder(self.path()),
                false => Ok(()),
            }),
            // The manifest cannot be read, and may name files of this builder.
            Err(_) if self.is_published => Ok(()),
            Err(_) => self.folder.remove(is_new),
        };
    }
}
