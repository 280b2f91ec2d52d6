//! Building the table of a layer: collects the facts for the version file, and hashes the files.

use super::{
    chunks::ChunkSet,
    delta::Tagged,
    tree::{FileTree, HashingDisk},
    version::{Layer, Shape},
};
use crate::{
    env::Env,
    error::Result,
    folder::Site,
    io::Disk,
    key::{KeyHash, Seed},
    manifest::{self, Manifest},
    run::{Entry, Run, Summary},
    table::{IndexChoice, IndexOptions, TableBuilder, TableOptions},
    work::{Executor, Watch},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// Bits per key of the fingerprints of a delta: all but 1 in 256 lookups of absent keys read
/// nothing.
const DELTA_ABSENT_BITS: u32 = 8;

/// The suffix of files that are being mended, which are written beside the tables.
pub(super) const MENDED: &str = ".mended";

/// The kind of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LayerKind {
    Base,
    Delta,
}

/// Returns the folder of a table.
pub(super) fn folder_of(tables: &Path, id: u64) -> PathBuf {
    tables.join(format!("{id:016x}"))
}

/// Returns the id in a name that [`folder_of`] made.
pub(super) fn table_of(name: &str) -> Option<u64> {
    let id = u64::from_str_radix(name, 16).ok()?;
    (format!("{id:016x}") == name).then_some(id)
}

/// Returns the id of the table of a version that has this chunk first.
pub(super) fn table_id(version: u64, chunk: u32) -> u64 {
    KeyHash::of(&chunk.to_le_bytes(), Seed(version)).high()
}

/// A builder of the table of a layer.
pub(super) struct LayerBuilder {
    pub(super) disk: Arc<dyn Disk>,
    /// The folder of all tables.
    pub(super) tables: PathBuf,
    pub(super) id: u64,
    /// The chunks of the table's entries.
    pub(super) chunks: ChunkSet,
    pub(super) seed: Seed,
    pub(super) shape: Shape,
    pub(super) executor: Arc<dyn Executor>,
    pub(super) watch: Watch,
}

impl LayerBuilder {
    /// Builds the table of a run. The table is durable when this returns.
    pub(super) fn build(&self, kind: LayerKind, run: impl Run) -> Result<Layer> {
        let folder = folder_of(&self.tables, self.id);
        let disk = Arc::new(HashingDisk::new(self.disk.clone()));
        let env = Env { executor: self.executor.clone(), ..Env::on(disk.clone()) };
        let builder = TableBuilder::create_at(&folder, self.options(kind).env(env), Site::Part)?;
        let mut measured = Measured::new(run);
        match kind {
            LayerKind::Base => builder.build(&mut measured, &self.watch)?,
            LayerKind::Delta => builder.build(&mut Tagged::new(&mut measured), &self.watch)?,
        };
        let manifest = Manifest::read(self.disk.as_ref(), &folder)?;
        let names = manifest.files.into_iter().map(|file| file.name);
        let tree = disk.tree(names.chain([manifest::NAME.to_owned()]));
        tree.write(self.disk.as_ref(), &folder, self.seed, self.id)?;
        Ok(Layer {
            chunks: self.chunks.clone(),
            is_part: false,
            table: self.id,
            entries: measured.sizes.entries_max,
            deletions: measured.deletions,
            hashes: measured.hashes.map(|(first, last)| first..=last),
            sizes: measured.sizes,
            bytes: tree.files.iter().map(FileTree::size).sum(),
            root: tree.root(),
        })
    }

    fn options(&self, kind: LayerKind) -> TableOptions {
        let index = match kind {
            LayerKind::Base => self.shape.index,
            LayerKind::Delta => IndexOptions {
                choice: IndexChoice::Dense,
                absent_bits: DELTA_ABSENT_BITS,
                ..IndexOptions::default()
            },
        };
        TableOptions::new()
            .seed(self.seed)
            .id(self.id)
            .index(index)
            .block_size(self.shape.block_size)
    }
}

/// A run that collects the facts of its entries for the version file.
struct Measured<R> {
    run: R,
    deletions: u64,
    hashes: Option<(KeyHash, KeyHash)>,
    sizes: Summary,
}

impl<R: Run> Measured<R> {
    fn new(run: R) -> Measured<R> {
        Measured { run, deletions: 0, hashes: None, sizes: Summary::EMPTY }
    }
}

impl<R: Run> Run for Measured<R> {
    fn seed(&self) -> Seed {
        self.run.seed()
    }

    fn summary(&self) -> Summary {
        self.run.summary()
    }

    #[inline]
    fn advance(&mut self) -> Result<bool> {
        if !self.run.advance()? {
            return Ok(false);
        }
        let entry = self.run.entry();
        self.deletions += u64::from(entry.value.is_none());
        self.sizes.add(entry.key, entry.value);
        let first = self.hashes.map_or(entry.hash, |(first, _)| first);
        self.hashes = Some((first, entry.hash));
        Ok(true)
    }

    #[inline]
    fn entry(&self) -> Entry<'_> {
        self.run.entry()
    }
}
