//! Building a table from a run, and a new index for a table that is there.

use super::{
    data::DataWriter,
    image::Image,
    index::{Expected, IndexBuilder},
    layout::Layout,
    options::{IndexOptions, OpenOptions, TableOptions, TableStats},
    read::Table,
};
use crate::{
    checksum::crc32c_append,
    error::{Error, ErrorKind, Place, Result},
    io::{
        Access, Disk, Lock, Writer,
        frame::{FileKind, Footer, Header},
    },
    manifest::{self, FileEntry, Manifest},
    run::{Run, SortOptions, Sorter, Summary},
    work::Executor,
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

pub(super) const DATA_ROLE: &str = "data";
pub(super) const INDEX_ROLE: &str = "index";
const SPILL_ROLE: &str = "spill";

/// Builds a table in a folder, which it locks.
///
/// Nothing of the new table can be seen before [`TableBuilder::build`] has returned; until then
/// the folder holds what it held before. A builder that is dropped leaves nothing behind; what a
/// crash leaves behind is removed by the next builder.
#[derive(Debug)]
pub struct TableBuilder {
    folder: LockedFolder,
    options: TableOptions,
    executor: Arc<dyn Executor>,
    /// What is there already.
    old: Option<Manifest>,
}

impl TableBuilder {
    /// Makes and locks the folder. `Exists` if a table is there that is not to be replaced,
    /// `Busy` if somebody else is building there.
    pub fn create(
        disk: Arc<dyn Disk>,
        folder: &Path,
        options: TableOptions,
        executor: Arc<dyn Executor>,
    ) -> Result<TableBuilder> {
        options.check()?;
        let folder = LockedFolder::create(disk, folder)?;
        let old = match folder.manifest() {
            Ok(old) => old,
            // A table to be replaced may be damaged.
            Err(_) if options.replace => None,
            Err(error) => return Err(error),
        };
        if old.is_some() && !options.replace {
            return Err(Error::new(ErrorKind::Exists).at(&Place::file(&folder.path)));
        }
        folder.sweep(old.as_ref())?;
        Ok(TableBuilder { folder, options, executor, old })
    }

    /// A sorter for the table's entries, which spills into its folder.
    pub fn sorter(&self, options: SortOptions) -> Result<Sorter> {
        Sorter::new(
            self.folder.disk.clone(),
            self.folder.path.join(file_name(SPILL_ROLE, self.options.id, 0)),
            self.options.seed,
            options,
            self.executor.clone(),
        )
    }

    /// Writes the table in one pass over its run and publishes it. Tombstones are left out.
    /// `summary` must hold for the run: all keys or values of one size only if it says so.
    pub fn build(self, run: &mut dyn Run, summary: &Summary) -> Result<TableStats> {
        let generation = self.old.as_ref().map_or(0, |old| old.generation) + 1;
        let data = self.write_data(run, summary, generation)?;
        let index = write_index(&self.folder, &self.header(), data.index, generation)?;
        let manifest = Manifest {
            seed: self.options.seed,
            id: self.options.id,
            generation,
            files: vec![data.file, index],
            attributes: self.options.attributes.clone(),
        };
        self.folder.publish(&manifest)?;
        let table = Table::open(&self.folder.disk, &self.folder.path, OpenOptions::default())?;
        Ok(table.stats().clone())
    }

    fn header(&self) -> Header {
        Header::new(FileKind::TableData, self.options.seed, self.options.id)
    }

    fn write_data(&self, run: &mut dyn Run, summary: &Summary, generation: u64) -> Result<Written> {
        let layout = Layout::of(summary, self.options.block_size);
        let name = file_name(DATA_ROLE, self.options.id, generation);
        let path = self.folder.path.join(&name);
        let file = self.folder.disk.create(&path, self.options.access)?;
        let place = file.place().clone();
        let mut data =
            DataWriter::new(file.clone(), self.executor.clone(), layout, &self.header())?;
        let expected = expected(layout, summary);
        let mut index = IndexBuilder::new(&self.options.index, &expected);
        while run.advance()? {
            let entry = run.entry();
            let Some(value) = entry.value else { continue };
            check_shape(&layout, entry.key, value)?;
            let block = data.push(&entry, value).map_err(|error| error.at(&place))?;
            index.push(entry.hash, block);
        }
        data.finish()?;
        file.sync()?;
        let file = FileEntry { role: DATA_ROLE.to_owned(), name, size: file.size()? };
        Ok(Written { file, index })
    }
}

/// A data file that has been written, and its index, which has not.
struct Written {
    file: FileEntry,
    index: IndexBuilder,
}

fn expected(layout: Layout, summary: &Summary) -> Expected {
    let entries = summary.entries_max;
    let mean = summary.bytes_max / entries.max(1);
    let sizes = layout.encoded_size(0, mean as usize) as u64 - mean;
    let bytes = summary.bytes_max + sizes * entries;
    let blocks = match layout.entries_per_block() {
        Some(count) => entries.div_ceil(count),
        None => bytes.div_ceil(layout.payload() as u64),
    };
    Expected { layout, entries, blocks }
}

/// The run must be as its summary promised.
#[inline]
fn check_shape(layout: &Layout, key: &[u8], value: &[u8]) -> Result<()> {
    for (what, expected, got) in
        [("key size", layout.key_size, key.len()), ("value size", layout.value_size, value.len())]
    {
        if let Some(expected) = expected
            && expected != got
        {
            return Err(Error::argument(what, format!("{expected}, as of all before"), got));
        }
    }
    Ok(())
}

fn write_index(
    folder: &LockedFolder,
    data: &Header,
    index: IndexBuilder,
    generation: u64,
) -> Result<FileEntry> {
    let image: Image = index.finish();
    let name = file_name(INDEX_ROLE, data.id, generation);
    let file = folder.disk.create(&folder.path.join(&name), Access::Cached)?;
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

/// Builds another index over a table's data, which stay as they are. Readers that have the table
/// open go on with the old index.
pub fn reindex(disk: &Arc<dyn Disk>, folder: &Path, options: &IndexOptions) -> Result<TableStats> {
    options.check()?;
    if !disk.exists(&folder.join(manifest::NAME))? {
        return Err(Error::new(ErrorKind::Absent).at(&Place::file(folder)));
    }
    let folder = LockedFolder::create(disk.clone(), folder)?;
    let mut manifest = Manifest::read(disk.as_ref(), &folder.path)?;
    folder.sweep(Some(&manifest))?;
    let table = Table::open_data(disk, &folder.path, &manifest, Access::Cached)?;
    let data = table.indexed();
    let expected = Expected { layout: data.layout, entries: data.entries, blocks: data.blocks };
    let mut index = IndexBuilder::new(options, &expected);
    let mut scan = table.scan();
    while scan.advance()? {
        index.push(scan.entry().hash, scan.position().block);
    }
    manifest.generation += 1;
    let header = Header::new(FileKind::TableData, manifest.seed, manifest.id);
    let file = write_index(&folder, &header, index, manifest.generation)?;
    manifest.files.retain(|file| file.role != INDEX_ROLE);
    manifest.files.push(file);
    folder.publish(&manifest)?;
    Ok(Table::open(disk, &folder.path, OpenOptions::default())?.stats().clone())
}

/// The name of a file of a table.
fn file_name(role: &str, id: u64, generation: u64) -> String {
    format!("{role}-{id:016x}-{generation}")
}

/// Whether a file has such a name, so that it may be removed.
fn is_ours(name: &str) -> bool {
    if name == manifest::NEW_NAME {
        return true;
    }
    let mut parts = name.splitn(3, '-');
    let role = parts.next().is_some_and(|r| [DATA_ROLE, INDEX_ROLE, SPILL_ROLE].contains(&r));
    let id = parts.next().is_some_and(|id| id.len() == 16 && u64::from_str_radix(id, 16).is_ok());
    role && id && parts.next().is_some_and(|generation| generation.parse::<u64>().is_ok())
}

/// A folder in which only this process writes. When it is dropped, files that no manifest names
/// are removed, and the folder itself if it was made for nothing.
#[derive(Debug)]
struct LockedFolder {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    made_here: bool,
    _lock: Box<dyn Lock>,
}

impl LockedFolder {
    fn create(disk: Arc<dyn Disk>, path: &Path) -> Result<LockedFolder> {
        let made_here = !disk.exists(path)?;
        disk.create_folder(path)?;
        let lock = disk.lock(path)?;
        Ok(LockedFolder { disk, path: path.to_owned(), made_here, _lock: lock })
    }

    /// The manifest that is there, if any.
    fn manifest(&self) -> Result<Option<Manifest>> {
        match Manifest::read(self.disk.as_ref(), &self.path) {
            Ok(manifest) => Ok(Some(manifest)),
            Err(error) if matches!(error.kind(), ErrorKind::Absent) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes the manifest current, and the folder's own name permanent.
    fn publish(&self, manifest: &Manifest) -> Result<()> {
        manifest.publish(self.disk.as_ref(), &self.path)?;
        if self.made_here {
            self.disk.sync_folder(self.path.parent().unwrap_or(Path::new("")))?;
        }
        self.sweep(Some(manifest))
    }

    /// Removes what a crash or an earlier manifest left behind.
    fn sweep(&self, manifest: Option<&Manifest>) -> Result<()> {
        for name in self.disk.list(&self.path)? {
            let named = manifest.is_some_and(|m| m.files.iter().any(|file| file.name == name));
            if is_ours(&name) && !named {
                self.disk.remove(&self.path.join(&name))?;
            }
        }
        Ok(())
    }
}

impl Drop for LockedFolder {
    fn drop(&mut self) {
        // Errors have no one to go to here; what stays is removed by the next builder.
        let Ok(manifest) = self.manifest() else { return };
        let _ = self.sweep(manifest.as_ref());
        if manifest.is_none() && self.made_here {
            let _ = self.disk.remove_folder(&self.path);
        }
    }
}
