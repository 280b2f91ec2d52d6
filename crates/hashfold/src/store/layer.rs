//! Building the table of a layer: collects the facts for the version file, and hashes the files.

use super::{
    delta::Tagged,
    tree::{FileTree, HashingDisk},
    version::{Layer, Shape},
};
use crate::{
    error::Result,
    io::{Access, Disk},
    key::{KeyHash, Seed},
    manifest::{self, Manifest},
    run::{Entry, Run, Summary},
    table::{IndexChoice, IndexOptions, TableBuilder, TableOptions},
    work::Executor,
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// A callback for progress: called with the number of entries written or read since the last call.
/// An error that it returns ends the work.
pub type Watch = Arc<dyn Fn(u64) -> Result<()> + Send + Sync>;

/// Bits per key of the fingerprints of a delta: all but 1 in 256 lookups of absent keys read
/// nothing.
const DELTA_ABSENT_BITS: u32 = 8;

/// The suffix of files that are being mended, which are written beside the tables.
pub(super) const MENDED: &str = ".mended";

/// Number of entries between two calls of a [`Watch`].
pub(super) const WATCH_EVERY: u64 = 1 << 12;

/// The kind of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
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

/// Returns the id of the table of a chunk of a version.
pub(super) fn table_id(version: u64, chunk: u32) -> u64 {
    KeyHash::of(&chunk.to_le_bytes(), Seed(version)).high()
}

/// A builder of the table of a layer.
pub(super) struct LayerBuilder {
    pub(super) disk: Arc<dyn Disk>,
    /// The folder of all tables.
    pub(super) tables: PathBuf,
    pub(super) id: u64,
    pub(super) seed: Seed,
    pub(super) shape: Shape,
    pub(super) executor: Arc<dyn Executor>,
    pub(super) watch: Watch,
}

impl LayerBuilder {
    /// Builds the table of a run. The table is durable when this returns.
    pub(super) fn build(&self, kind: Kind, run: impl Run) -> Result<Layer> {
        let folder = folder_of(&self.tables, self.id);
        let disk = Arc::new(HashingDisk::new(self.disk.clone()));
        let executor = self.executor.clone();
        let builder =
            TableBuilder::create_part(disk.clone(), &folder, self.options(kind), executor)?;
        let mut watched = Watched::new(run, self.watch.clone());
        match kind {
            Kind::Base => builder.build(&mut watched)?,
            Kind::Delta => builder.build(&mut Tagged::new(&mut watched))?,
        };
        watched.tell()?;
        let manifest = Manifest::read(self.disk.as_ref(), &folder)?;
        let names = manifest.files.into_iter().map(|file| file.name);
        let tree = disk.tree(names.chain([manifest::NAME.to_owned()]));
        tree.write(self.disk.as_ref(), &folder, self.seed, self.id)?;
        Ok(Layer {
            table: self.id,
            entries: watched.sizes.entries_max,
            deletions: watched.deletions,
            hashes: watched.hashes.map(|(first, last)| first..=last),
            sizes: watched.sizes,
            bytes: tree.files.iter().map(FileTree::size).sum(),
            root: tree.root(),
        })
    }

    fn options(&self, kind: Kind) -> TableOptions {
        let index = match kind {
            Kind::Base => self.shape.index,
            Kind::Delta => IndexOptions {
                choice: IndexChoice::Dense,
                absent_bits: DELTA_ABSENT_BITS,
                ..IndexOptions::default()
            },
        };
        TableOptions {
            index,
            block_size: self.shape.block_size,
            access: Access::Direct,
            ..TableOptions::new(self.seed, self.id)
        }
    }
}

/// A run that collects the facts of its entries for the version file.
struct Watched<R> {
    run: R,
    watch: Watch,
    /// Number of entries since the last call of the watch.
    untold: u64,
    deletions: u64,
    hashes: Option<(KeyHash, KeyHash)>,
    sizes: Summary,
}

impl<R: Run> Watched<R> {
    fn new(run: R, watch: Watch) -> Watched<R> {
        Watched { run, watch, untold: 0, deletions: 0, hashes: None, sizes: Summary::EMPTY }
    }

    fn tell(&mut self) -> Result<()> {
        (self.watch)(std::mem::take(&mut self.untold))
    }
}

impl<R: Run> Run for Watched<R> {
    fn seed(&self) -> Seed {
        self.run.seed()
    }

    fn summary(&self) -> Summary {
        self.run.summary()
    }

    #[inline]
    fn advance(&mut self) -> Result<bool> {
        if self.untold == WATCH_EVERY {
            self.tell()?;
        }
        if !self.run.advance()? {
            return Ok(false);
        }
        let entry = self.run.entry();
        self.untold += 1;
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
