//! Making the table of a layer: building it, watching what goes in, hashing what is written.

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

/// Told how many more entries were written or read; its error ends the work.
pub type Watch = Arc<dyn Fn(u64) -> Result<()> + Send + Sync>;

/// Bits a key by which a delta tells, without a read, that it does not have a key: all but one in
/// 256 lookups pass it by.
const DELTA_ABSENT_BITS: u32 = 8;

/// Entries between two calls of a [`Watch`].
pub(super) const WATCH_EVERY: u64 = 1 << 12;

/// What a layer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Base,
    Delta,
}

/// The folder of a table.
pub(super) fn folder_of(tables: &Path, id: u64) -> PathBuf {
    tables.join(format!("{id:016x}"))
}

/// The id in a name that [`folder_of`] made.
pub(super) fn table_of(name: &str) -> Option<u64> {
    let id = u64::from_str_radix(name, 16).ok()?;
    (format!("{id:016x}") == name).then_some(id)
}

/// The id of the table of a chunk that is made for a version.
pub(super) fn table_id(version: u64, chunk: u32) -> u64 {
    KeyHash::of(&chunk.to_le_bytes(), Seed(version)).high()
}

/// Where a layer's table is made, and how.
pub(super) struct LayerBuilder {
    pub(super) disk: Arc<dyn Disk>,
    /// The folder with all tables.
    pub(super) tables: PathBuf,
    pub(super) id: u64,
    pub(super) seed: Seed,
    pub(super) shape: Shape,
    pub(super) executor: Arc<dyn Executor>,
    pub(super) watch: Watch,
}

impl LayerBuilder {
    /// Builds the table of a run, synced.
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

/// Notes what a version file must say of the entries of a run.
struct Watched<R> {
    run: R,
    watch: Watch,
    /// Entries that the watch was not told of.
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
