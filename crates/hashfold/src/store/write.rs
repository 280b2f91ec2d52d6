//! Making versions: from nothing, from the current one and a batch, from a delta.

use super::{
    batch::{Batch, SPILL},
    check::MENDED,
    join::{Join, Keep},
    layer::{Kind, LayerBuilder, Watch, folder_of, table_id, table_of},
    pointer::{self, Pointer},
    read::{merged, open_layer},
    slot::SLOTS,
    tree,
    version::{
        Attributes, Changes, Chunk, DELTAS_MAX, NUMBER_MAX, Shape, VersionInfo, VersionName,
        file_name, number_of,
    },
};
use crate::{
    error::{Error, ErrorKind, Place, Result},
    folder::{self, LockedFolder, Site, TABLES, VERSIONS},
    io::{Access, Disk, WRITER_BYTES_MAX, new_name, replace_file},
    key::Seed,
    manifest::Kind as DataSetKind,
    run::{Run as _, SortOptions, Sorted, VALUE_BYTES_MAX, VecRun},
    table::{OpenOptions, SCAN_BYTES_MAX, Table, is_table_file},
    work::{Executor, Pending},
};
use std::{
    collections::HashSet,
    iter,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

/// Deltas of a chunk, at most, unless they are asked for: each costs every lookup of a key that it
/// does not have 1/256 of a device read.
const DELTAS_UNFOLDED_MAX: usize = 4;

/// Deltas are folded into their base when they come to this part of it. A byte that changes is
/// then written about twice and ten times more in folds, instead of as often as the base is larger
/// than the batch: the size ratio between levels that LSM-trees use (LevelDB's 10; O'Neil et al.,
/// *The Log-Structured Merge-Tree*, 1996, section 3.2).
const FOLD_RATIO: u64 = 10;

/// The memory for reading and writing chunks side by side, in bytes, beside a sixteenth of the
/// memory for sorting.
const SIDE_BYTES_MIN: usize = 8 << 20;

/// What a store is, from its first version on.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Of all hashes in the store. Random, unless builds must be reproducible.
    pub seed: Seed,
    /// A number that no other store has.
    pub id: u64,
    /// How tables are built.
    pub shape: Shape,
    /// What to keep with every version, such as the schema.
    pub attributes: Attributes,
}

/// How a batch becomes a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// As a delta while that is cheap, else by merging: four deltas at most, with a tenth of the
    /// bytes of what they change.
    #[default]
    Auto,
    /// Merge it with all that is there, chunk by chunk.
    Merge,
    /// Write the batch alone, to be looked up first.
    Delta,
    /// The batch is all that there shall be.
    Replace,
}

/// What to note about a new version.
#[derive(Clone, Debug, Default)]
pub struct VersionFacts {
    /// A number that no other version has: random.
    pub id: u64,
    /// Seconds since 1970.
    pub created_s: u64,
    /// Inputs, commands, whatever may be asked for one day.
    pub provenance: Attributes,
}

/// Changes a store, as the only one who does.
///
/// Versions that it makes are complete and on the device when they are returned, and nobody sees
/// them until they are published. What a crash leaves behind is removed by the next writer.
pub struct StoreWriter {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) folder: PathBuf,
    executor: Arc<dyn Executor>,
    pub(super) pointer: Pointer,
    /// Of a store that has no version yet.
    options: Option<StoreOptions>,
    watch: Watch,
    /// What this process knows of the folder's names is on the device.
    pub(super) is_settled: bool,
    /// Versions that the pointer on the disk does not list.
    unlisted: Vec<u64>,
    _lock: LockedFolder,
}

impl StoreWriter {
    /// Makes a store. `Exists` if there is one with versions already, `Busy` if somebody else is
    /// writing there.
    pub fn create(
        disk: Arc<dyn Disk>,
        folder: &Path,
        options: StoreOptions,
        executor: Arc<dyn Executor>,
    ) -> Result<StoreWriter> {
        options.shape.index.check()?;
        let home = LockedFolder::create(disk, folder, DataSetKind::Store, Site::Own)?;
        folder::check_kind(home.disk.as_ref(), folder, DataSetKind::Store)?;
        let mut pointer = Pointer::new(options.seed, options.id);
        match Pointer::read(home.disk.as_ref(), folder) {
            // Making the first version ended before it was there. Its number is gone.
            Ok(old) if old.current.is_none() && old.versions.is_empty() => {
                pointer.newest = old.newest;
            }
            Ok(_) => return Err(Error::new(ErrorKind::Exists).at(&Place::file(folder))),
            Err(error) if error.is_absent() => {}
            Err(error) => return Err(error),
        }
        for path in [folder.join(VERSIONS), folder.join(TABLES)] {
            home.disk.create_folder(&path)?;
        }
        if !numbers(home.disk.as_ref(), folder)?.is_empty() {
            return Err(Error::new(ErrorKind::Exists).at(&Place::file(folder)));
        }
        pointer.replace(home.disk.as_ref(), folder)?;
        home.sync_above()?;
        let mut writer = StoreWriter::new(home, executor, pointer);
        (writer.options, writer.is_settled) = (Some(options), true);
        writer.sweep()?;
        Ok(writer)
    }

    /// Opens a store to change it. `Busy` if somebody else has.
    pub fn open(
        disk: Arc<dyn Disk>,
        folder: &Path,
        executor: Arc<dyn Executor>,
    ) -> Result<StoreWriter> {
        let pointer = Pointer::read(disk.as_ref(), folder)?;
        let mut writer = StoreWriter::new(LockedFolder::open(disk, folder)?, executor, pointer);
        writer.settle()?;
        writer.sweep()?;
        Ok(writer)
    }

    pub(super) fn new(
        home: LockedFolder,
        executor: Arc<dyn Executor>,
        pointer: Pointer,
    ) -> StoreWriter {
        StoreWriter {
            disk: home.disk.clone(),
            folder: home.path.clone(),
            executor,
            pointer,
            options: None,
            watch: Arc::new(|_| Ok(())),
            is_settled: false,
            unlisted: Vec::new(),
            _lock: home,
        }
    }

    /// Reads the pointer, and makes the names that are there permanent, if that is not known: a
    /// call may have failed after it was done, and whoever wrote here before may have been killed
    /// before the end. What a power cut could bring back must not be removed.
    pub(super) fn settle(&mut self) -> Result<()> {
        if !self.is_settled {
            self.pointer = Pointer::read(self.disk.as_ref(), &self.folder)?;
            self.disk.sync_folder(&self.folder)?;
            self.disk.sync_folder(&self.versions())?;
            self.adopt()?;
            self.is_settled = true;
        }
        Ok(())
    }

    /// Lists the versions that the pointer does not know: of a writer that was killed, or newer
    /// than a pointer that was restored from a copy. Those that they were made from may be lost,
    /// and are listed too.
    fn adopt(&mut self) -> Result<()> {
        let there = numbers(self.disk.as_ref(), &self.folder)?;
        let known = self.pointer.newest;
        self.pointer.removing.retain(|number| there.contains(number));
        let listed: Vec<u64> = self.pointer.versions.iter().map(|version| version.number).collect();
        self.unlisted.clear();
        for number in there.into_iter().rev() {
            self.pointer.newest = self.pointer.newest.max(number);
            if !listed.contains(&number)
                && !self.pointer.removing.contains(&number)
                && let Ok(info) = self.version(number)
            {
                self.pointer.add(info.name);
                self.unlisted.push(number);
                let parent = info.parent.filter(|parent| parent.number > known);
                parent.into_iter().for_each(|parent| self.pointer.add(parent));
            }
        }
        self.unlisted.reverse();
        Ok(())
    }

    /// Versions that `CURRENT` did not list when the writer read it: a writer was killed before it
    /// did, or `CURRENT` was restored from an older copy. They are whole, and listed with the next
    /// change.
    pub fn unlisted(&self) -> &[u64] {
        &self.unlisted
    }

    /// The same writer, telling `watch` how far it is.
    #[must_use]
    pub fn watched_by(mut self, watch: Watch) -> StoreWriter {
        self.watch = watch;
        self
    }

    /// Which version is current. This also tells, after an error, whether something was done
    /// before it; only the next change that succeeds makes sure that it lasts.
    pub fn pointer(&self) -> &Pointer {
        &self.pointer
    }

    /// What a version consists of.
    pub fn version(&self, number: u64) -> Result<VersionInfo> {
        VersionInfo::read(self.disk.as_ref(), &self.versions(), number, Some(&self.pointer))
    }

    /// The version that the next one is made from: the current one.
    pub fn parent(&self) -> Result<Option<VersionInfo>> {
        self.pointer.current.map(|number| self.version(number)).transpose()
    }

    pub(super) fn versions(&self) -> PathBuf {
        self.folder.join(VERSIONS)
    }

    pub(super) fn tables(&self) -> PathBuf {
        self.folder.join(TABLES)
    }

    fn shape(&self, parent: Option<&VersionInfo>) -> Result<Shape> {
        match (parent, &self.options) {
            (Some(parent), _) => Ok(parent.shape),
            (None, Some(options)) => Ok(options.shape),
            // Nothing was published yet, or it cannot be read; some version knows.
            (None, None) => Ok(self.newest()?.shape),
        }
    }

    /// The newest version that is there.
    fn newest(&self) -> Result<VersionInfo> {
        let newest = self.numbers()?.pop();
        let absent = || Error::new(ErrorKind::Absent).at(&Place::file(&self.versions()));
        self.version(newest.ok_or_else(absent)?)
    }

    /// The numbers of all versions that have files, in order.
    pub fn numbers(&self) -> Result<Vec<u64>> {
        let mut numbers = numbers(self.disk.as_ref(), &self.folder)?;
        numbers.retain(|number| !self.pointer.removing.contains(number));
        Ok(numbers)
    }

    /// Takes the entries of a batch. They are sorted in so much memory, but a mebibyte for each
    /// chunk at least, and spilled to the store's folder if that is too little.
    pub fn batch(&self, options: SortOptions) -> Result<Batch> {
        let shape = self.shape(self.parent()?.as_ref())?;
        let (tables, seed) = (self.tables(), self.pointer.seed);
        Batch::new(&self.disk, &tables, seed, shape.slots, options, &self.executor)
    }

    /// Makes a version of the current one and a batch. `Exists` if there is a version with its id.
    pub fn write(&mut self, batch: Batch, mode: Mode, facts: VersionFacts) -> Result<VersionInfo> {
        self.settle()?;
        self.check_new(facts.id)?;
        let parent = self.parent()?.map(Arc::new);
        let shape = self.shape(parent.as_deref())?;
        if batch.slots() != shape.slots {
            let expected = format!("for {} chunks", shape.slots.chunks());
            return Err(Error::argument("batch", expected, batch.slots().chunks()));
        }
        let memory_bytes = batch.memory_bytes();
        let runs = batch.finish()?;
        let attributes = match (&parent, &self.options) {
            (Some(parent), _) => parent.attributes.clone(),
            (None, Some(options)) => options.attributes.clone(),
            (None, None) => self.newest()?.attributes,
        };
        let job = |(chunk, run)| {
            let builder = self.layer_builder(self.new_table_id(facts.id, chunk as u32)?, shape);
            let old = parent.clone().map(|parent| (chunk, parent));
            Ok(ChunkJob { run, mode, old, builder })
        };
        let jobs: Result<Vec<ChunkJob>> = runs.into_iter().enumerate().map(job).collect();
        let built = match self.build_chunks(jobs?, memory_bytes) {
            Ok(built) => built,
            Err(error) => {
                // What was made already is of no use. What cannot be removed now will be later.
                let _ = self.sweep();
                return Err(error);
            }
        };
        let changes = built.iter().map(|(_, changes)| *changes).try_fold(
            Changes::default(),
            |mut sum, changes| {
                sum.add(changes?);
                Some(sum)
            },
        );
        let info = VersionInfo {
            seed: self.pointer.seed,
            store: self.pointer.store,
            name: VersionName { number: self.next_number()?, id: facts.id },
            parent: parent.as_ref().map(|parent| parent.name),
            created_s: facts.created_s,
            shape,
            changes,
            chunks: built.into_iter().map(|(chunk, _)| chunk).collect(),
            attributes,
            provenance: facts.provenance,
        };
        self.add(&info)?;
        Ok(info)
    }

    /// The id of the table of a chunk that is made for a version. The first choice may be taken:
    /// by an earlier version of this id, which is gone and has left tables to later ones.
    fn new_table_id(&self, version: u64, chunk: u32) -> Result<u64> {
        let mut salted = chunk;
        loop {
            let id = table_id(version, salted);
            if !self.disk.exists(&folder_of(&self.tables(), id))? {
                return Ok(id);
            }
            salted += SLOTS;
        }
    }

    fn layer_builder(&self, id: u64, shape: Shape) -> LayerBuilder {
        LayerBuilder {
            disk: self.disk.clone(),
            tables: self.tables(),
            id,
            seed: self.pointer.seed,
            shape,
            executor: self.executor.clone(),
            watch: self.watch.clone(),
        }
    }

    /// Builds chunks, several at once, beside sorters that have so much memory.
    fn build_chunks(
        &self,
        jobs: Vec<ChunkJob>,
        memory_bytes: usize,
    ) -> Result<Vec<(Chunk, Option<Changes>)>> {
        if jobs.len() == 1 {
            return jobs.into_iter().map(ChunkJob::run).collect();
        }
        let executor = self.executor.as_ref();
        let lines = side_by_side(&jobs, memory_bytes).min(executor.width().max(1));
        let queue = Arc::new(Mutex::new(jobs.into_iter().enumerate()));
        let line = |_| {
            let queue = queue.clone();
            let take = move || queue.lock().expect("nothing panics under this lock").next();
            let built = iter::from_fn(take).map(|(number, job)| (number, job.run()));
            Pending::start(executor, move || built.collect::<Vec<_>>())
        };
        let pending: Vec<_> = (0..lines).map(line).collect();
        // All are waited for, also after an error: none may go on to write.
        let mut done: Vec<_> = pending.into_iter().flat_map(Pending::wait).collect();
        done.sort_unstable_by_key(|(number, _)| *number);
        done.into_iter().map(|(_, built)| built).collect()
    }

    /// Tables have their ids from their version's.
    fn check_new(&self, id: u64) -> Result<()> {
        for number in self.numbers()? {
            if self.version(number).is_ok_and(|info| info.name.id == id) {
                let path = self.versions().join(file_name(number));
                return Err(Error::new(ErrorKind::Exists).at(&Place::file(&path)));
            }
        }
        Ok(())
    }

    /// A number that no version had.
    fn next_number(&self) -> Result<u64> {
        let number = self.pointer.newest + 1;
        if number > NUMBER_MAX {
            let (what, limit) = ("version number", NUMBER_MAX);
            let error = Error::new(ErrorKind::Limit { what, limit, got: number });
            return Err(error.at(&Place::file(&self.versions())));
        }
        Ok(number)
    }

    /// Writes a version's file: from here on the version is there.
    fn add(&mut self, info: &VersionInfo) -> Result<()> {
        let added = self.try_add(info);
        if added.is_err() {
            self.is_settled = false;
            // Whoever is told that it failed may try again, under the same id. What cannot be
            // removed now will be later.
            let _ = self.withdraw(info.name.number);
        }
        added
    }

    fn try_add(&mut self, info: &VersionInfo) -> Result<()> {
        let path = self.versions().join(file_name(info.name.number));
        let bytes = info.encode().map_err(|error| error.at(&Place::file(&path)))?;
        self.disk.sync_folder(&self.tables())?;
        replace_file(self.disk.as_ref(), &path, |file| file.write_at(0, &bytes))?;
        let mut pointer = self.pointer.clone();
        pointer.add(info.name);
        self.replace(pointer)
    }

    /// Removes a version that nobody was told of, if it got its name.
    fn withdraw(&mut self, number: u64) -> Result<()> {
        if self.pointer.version(number).is_some() {
            let mut pointer = self.pointer.clone();
            pointer.strike(number);
            self.replace(pointer)?;
        }
        let path = self.versions().join(file_name(number));
        if self.disk.exists(&path)? {
            let _lock = self.disk.lock(&path)?;
            self.disk.remove(&path)?;
        }
        self.sweep().map(|_| ())
    }

    /// Removes what a crash left behind: versions that were being removed, tables that no version
    /// consists of, and files that never got their names. Removes no table where a version is lost
    /// or cannot be read: nobody knows what it needs.
    pub(super) fn sweep(&self) -> Result<u64> {
        let (disk, versions) = (self.disk.as_ref(), self.versions());
        let new_pointer = new_name(&self.folder.join(pointer::NAME));
        if disk.exists(&new_pointer)? {
            folder::remove_file(disk, &new_pointer)?;
        }
        let is_new = |name: &&String| name.strip_suffix(".new").and_then(number_of).is_some();
        for name in disk.list(&versions)?.iter().filter(is_new) {
            folder::remove_file(disk, &versions.join(name))?;
        }
        for number in &self.pointer.removing {
            let path = versions.join(file_name(*number));
            // Who has it open keeps it.
            if disk.exists(&path)?
                && let Ok(_lock) = disk.lock(&path)
            {
                disk.remove(&path)?;
            }
        }
        match self.used_tables(None)? {
            Some(used) => self.sweep_tables(&used),
            None => Ok(0),
        }
    }

    /// The tables of all versions but one; `None` if a version is lost or cannot be read.
    pub(super) fn used_tables(&self, but: Option<u64>) -> Result<Option<HashSet<u64>>> {
        let mut all = numbers(self.disk.as_ref(), &self.folder)?;
        all.extend(self.pointer.versions.iter().map(|version| version.number));
        let mut used = HashSet::new();
        for number in all.into_iter().filter(|number| Some(*number) != but) {
            match self.version(number) {
                Ok(info) => used.extend(info.layers().map(|layer| layer.table)),
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(used))
    }

    fn sweep_tables(&self, used: &HashSet<u64>) -> Result<u64> {
        let (disk, tables) = (self.disk.as_ref(), self.tables());
        let mut spare = disk.list(&tables)?;
        spare.retain(|name| match table_of(name) {
            Some(table) => !used.contains(&table),
            None => name.ends_with(MENDED) || name.starts_with(SPILL),
        });
        if !spare.is_empty() {
            // A version that is gone must not come back after its tables are.
            disk.sync_folder(&self.versions())?;
        }
        let mut removed = 0;
        for name in spare {
            removed += remove_table(disk, &tables.join(name))?;
        }
        Ok(removed)
    }
}

/// The numbers of all versions in a store's folder, in order.
pub(super) fn numbers(disk: &dyn Disk, folder: &Path) -> Result<Vec<u64>> {
    let names = disk.list(&folder.join(VERSIONS))?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| number_of(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Removes a table's folder, or a file in its place; returns how many bytes that frees. Files that
/// are not of a table stay, and the folder with them; a link goes, and what it leads to stays.
pub(super) fn remove_table(disk: &dyn Disk, path: &Path) -> Result<u64> {
    if disk.is_link(path)? {
        disk.remove(path)?;
        return Ok(0);
    }
    if !disk.exists(path)? {
        return Ok(0);
    }
    let Ok(names) = disk.list(path) else {
        disk.remove(path)?;
        return Ok(0);
    };
    let (ours, others): (Vec<_>, Vec<_>) =
        names.into_iter().partition(|name| name == tree::NAME || is_table_file(name));
    let mut bytes = 0;
    for name in ours {
        let file = path.join(name);
        bytes += disk.open(&file, Access::Cached).and_then(|file| file.size()).unwrap_or(0);
        disk.remove(&file)?;
    }
    if others.is_empty() {
        disk.remove_folder(path)?;
    }
    Ok(bytes)
}

/// The maximum number of chunks that are built at once beside sorters with `memory_bytes`.
fn side_by_side(jobs: &[ChunkJob], memory_bytes: usize) -> usize {
    let old = jobs.iter().filter_map(|job| job.old.as_ref());
    let layers = old.map(|(number, parent)| parent.chunks[*number].layers.len()).max();
    let each_bytes = WRITER_BYTES_MAX + layers.unwrap_or(0) * SCAN_BYTES_MAX;
    ((SIDE_BYTES_MIN + memory_bytes / 16) / each_bytes).max(1)
}

/// What is done for one chunk.
struct ChunkJob {
    run: Sorted,
    mode: Mode,
    /// The chunk in the parent version.
    old: Option<(usize, Arc<VersionInfo>)>,
    builder: LayerBuilder,
}

impl ChunkJob {
    fn run(self) -> Result<(Chunk, Option<Changes>)> {
        let Some((number, parent)) = &self.old else { return self.build_first() };
        let old = parent.chunks[*number].clone();
        match self.plan(&old) {
            Plan::Share => {
                let unchanged = old.base().entries;
                let is_counted = old.deltas().is_empty();
                let changes = is_counted.then_some(Changes { unchanged, ..Changes::default() });
                Ok((old, changes))
            }
            Plan::Delta => {
                let layer = self.builder.build(Kind::Delta, self.run)?;
                Ok((Chunk { layers: [vec![layer], old.layers].concat() }, None))
            }
            Plan::Join(keep) => self.join(keep),
        }
    }

    fn plan(&self, old: &Chunk) -> Plan {
        let summary = self.run.summary();
        let is_empty = summary.entries_max == 0;
        let deltas: u64 = old.deltas().iter().map(|layer| layer.bytes).sum();
        // A delta puts a byte in front of each value.
        let is_cheap = old.deltas().len() < DELTAS_UNFOLDED_MAX
            && summary.values.max < VALUE_BYTES_MAX as u64
            && (deltas + summary.bytes_max) * FOLD_RATIO <= old.base().bytes;
        match self.mode {
            Mode::Replace => Plan::Join(Keep::Replace),
            Mode::Merge if is_empty && old.deltas().is_empty() => Plan::Share,
            Mode::Merge => Plan::Join(Keep::Overlay),
            Mode::Auto | Mode::Delta if is_empty => Plan::Share,
            Mode::Delta if old.deltas().len() < DELTAS_MAX => Plan::Delta,
            Mode::Auto if is_cheap => Plan::Delta,
            Mode::Auto | Mode::Delta => Plan::Join(Keep::Overlay),
        }
    }

    fn build_first(self) -> Result<(Chunk, Option<Changes>)> {
        let nothing = VecRun::new(Vec::new(), self.run.seed());
        let mut join = Join::new(nothing, self.run, Keep::Replace);
        let layer = self.builder.build(Kind::Base, &mut join)?;
        Ok((Chunk { layers: vec![layer] }, Some(join.changes())))
    }

    /// Reads the old chunk beside the batch.
    fn join(self, keep: Keep) -> Result<(Chunk, Option<Changes>)> {
        let (number, parent) = self.old.expect("only an old chunk is joined");
        let (disk, tables) = (&self.builder.disk, &self.builder.tables);
        let options = OpenOptions { data: Access::Direct, index: Access::Mapped };
        let chunk = &parent.chunks[number];
        let open = |layer| open_layer(disk, tables, &parent, layer, options).map(Arc::new);
        let open: Result<Vec<Arc<Table>>> = chunk.layers.iter().map(open).collect();
        let old = merged(chunk, &open?, Some(&self.builder.executor));
        let mut join = Join::new(old, self.run, keep);
        let layer = self.builder.build(Kind::Base, &mut join)?;
        Ok((Chunk { layers: vec![layer] }, Some(join.changes())))
    }
}

/// What becomes of a chunk.
enum Plan {
    /// It stays as it is.
    Share,
    Delta,
    Join(Keep),
}
