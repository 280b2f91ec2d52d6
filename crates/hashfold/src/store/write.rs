//! Making versions: from a first batch, from the current version and a batch, or from a delta file.

use super::{
    batch::{Batch, SPILL},
    job::{Built, TableJob, build_all},
    layer::{LayerBuilder, MENDED, folder_of, table_id, table_of},
    options::{NewStore, StoreOptions},
    plan::{NewKind, NewTable, Plan, TableSizes, UpdateMode},
    pointer::{self, NUMBER_MAX, Pointer, VersionName},
    read::Version,
    slot::{SLOTS, SlotMap},
    tree,
    version::{Attributes, Changes, Layer, Shape, VersionInfo, file_name, number_of, numbers},
};
use crate::{
    env::Env,
    error::{Error, ErrorKind, Place, Result},
    folder::{self, LockedFolder, Site, TABLES, VERSIONS},
    io::{Access, Disk, new_name, replace_file},
    manifest::{FIRST_NAME, Kind as DataSetKind},
    options::ReadOptions,
    run::{Run as _, SortOptions},
    table::is_table_file,
    work::Watch,
};
use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Facts to record with a new version.
#[derive(Clone, Debug, Default)]
pub struct VersionFacts {
    /// A number that no other version has, such as a random one.
    pub id: u64,
    /// Time of creation, in seconds since 1970.
    pub created_s: u64,
    /// The user's notes: inputs, commands.
    pub provenance: Attributes,
}

/// The layers of a version that is being made, and how it differs from its parent: in all chunks, if
/// that was counted, and in the merged chunks.
struct Draft {
    bases: Vec<Layer>,
    deltas: Vec<Layer>,
    changes: Option<Changes>,
    merged: Changes,
}

/// The writer of a store. A store has one writer at a time.
///
/// A version that a method returns is complete and durable; readers do not see it until it is
/// published. The next writer removes the remains of a crash.
pub struct StoreWriter {
    pub(super) folder: PathBuf,
    pub(super) env: Env,
    pub(super) pointer: Pointer,
    /// The description of a store that has no version yet.
    new: Option<NewStore>,
    table_sizes: TableSizes,
    /// Whether the names in the folder are known to be durable.
    pub(super) is_settled: bool,
    /// Attributes of the next version that its parent does not have.
    pub(super) attributes: Attributes,
    /// Versions that the pointer on the disk does not list.
    unlisted: Vec<u64>,
    _lock: LockedFolder,
}

impl StoreWriter {
    /// Creates a store.
    ///
    /// # Errors
    /// `Exists` if the folder has a store with versions, `Busy` if another process writes there,
    /// `WrongKind` if the folder has a data set of another kind.
    pub fn create(folder: impl AsRef<Path>, options: StoreOptions) -> Result<StoreWriter> {
        let new = options.check()?;
        let (env, folder) = (options.env, folder.as_ref());
        let home = LockedFolder::create(env.disk.clone(), folder, DataSetKind::Store, Site::Own)?;
        folder::check_kind(home.disk.as_ref(), folder, DataSetKind::Store)?;
        let mut pointer = Pointer::new(new.seed, new.id);
        match Pointer::read(home.disk.as_ref(), folder) {
            // An earlier writer ended before its first version was complete. The version's number
            // is used up.
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
        let mut writer = StoreWriter::new(home, env, pointer);
        (writer.new, writer.is_settled) = (Some(new), true);
        writer.sweep()?;
        Ok(writer)
    }

    /// Opens a store for writing.
    ///
    /// # Errors
    /// `Busy` if another process writes there, `Absent` if there is no store.
    pub fn open(env: &Env, folder: impl AsRef<Path>) -> Result<StoreWriter> {
        let writer = StoreWriter::open_unswept(env, folder.as_ref())?;
        writer.sweep()?;
        Ok(writer)
    }

    /// Opens a store for writing that the caller has written to before, when `CURRENT` had this sequence number. If no
    /// other writer has changed `CURRENT` since then, the files of the versions are not read, and what a crash of
    /// another process may have left stays until the next [`StoreWriter::open`].
    ///
    /// # Errors
    /// The errors of [`StoreWriter::open`].
    pub fn open_again(env: &Env, folder: impl AsRef<Path>, sequence: u64) -> Result<StoreWriter> {
        let writer = StoreWriter::open_unswept(env, folder.as_ref())?;
        if writer.pointer.sequence != sequence {
            writer.sweep()?;
        }
        Ok(writer)
    }

    fn open_unswept(env: &Env, folder: &Path) -> Result<StoreWriter> {
        let disk = env.disk.clone();
        let pointer = Pointer::read(disk.as_ref(), folder)?;
        let mut writer = StoreWriter::new(LockedFolder::open(disk, folder)?, env.clone(), pointer);
        writer.settle()?;
        Ok(writer)
    }

    pub(super) fn new(home: LockedFolder, env: Env, pointer: Pointer) -> StoreWriter {
        StoreWriter {
            folder: home.path.clone(),
            env,
            pointer,
            new: None,
            table_sizes: TableSizes::default(),
            is_settled: false,
            attributes: Vec::new(),
            unlisted: Vec::new(),
            _lock: home,
        }
    }

    /// Reads the pointer. Makes the names in the folder durable if they may not be: an earlier call
    /// may have failed after it took effect, and an earlier writer may have been killed. A file
    /// whose name a power cut could bring back must not be removed.
    pub(super) fn settle(&mut self) -> Result<()> {
        if !self.is_settled {
            self.pointer = Pointer::read(self.env.disk.as_ref(), &self.folder)?;
            self.env.disk.sync_folder(&self.folder)?;
            self.env.disk.sync_folder(&self.versions())?;
            self.list_unlisted()?;
            self.is_settled = true;
        }
        Ok(())
    }

    /// Lists the versions that the pointer does not know: a killed writer made them, or they are
    /// newer than a pointer that was restored from a copy. Their parents may be lost, and are
    /// listed as well.
    fn list_unlisted(&mut self) -> Result<()> {
        let there = numbers(self.env.disk.as_ref(), &self.folder)?;
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

    /// Returns the environment that the writer uses.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Returns the versions that `CURRENT` did not list when the writer read it: their writer was
    /// killed, or `CURRENT` was restored from an older copy. They are whole, and the next change
    /// lists them.
    pub fn unlisted(&self) -> &[u64] {
        &self.unlisted
    }

    /// Returns the pointer, which names the current version. After an error it also shows whether
    /// the call had taken effect; only the next successful change makes that durable.
    pub fn pointer(&self) -> &Pointer {
        &self.pointer
    }

    /// Returns the description of a version.
    pub fn version(&self, number: u64) -> Result<VersionInfo> {
        VersionInfo::read(self.env.disk.as_ref(), &self.versions(), number, Some(&self.pointer))
    }

    /// Sets the options of the next version of a store in which no version is current: the version is
    /// made from nothing, and follows no version that was not published.
    pub fn start_over(&mut self, options: &StoreOptions) -> Result<()> {
        let (seed, id) = (self.pointer.seed, self.pointer.store);
        self.new = Some(NewStore { seed, id, ..options.check()? });
        Ok(())
    }

    /// Returns the current version, which the next version is made from.
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
        match (parent, &self.new) {
            (Some(parent), _) => Ok(parent.shape),
            (None, Some(new)) => Ok(new.shape),
            // No version is current, or it cannot be read; another version has the shape, too.
            (None, None) => Ok(self.newest()?.shape),
        }
    }

    /// Returns the newest version.
    fn newest(&self) -> Result<VersionInfo> {
        let newest = self.numbers()?.pop();
        let absent = || Error::new(ErrorKind::Absent).at(&Place::file(&self.versions()));
        self.version(newest.ok_or_else(absent)?)
    }

    /// Returns the numbers of all versions that have files, in order.
    pub fn numbers(&self) -> Result<Vec<u64>> {
        let mut numbers = numbers(self.env.disk.as_ref(), &self.folder)?;
        numbers.retain(|number| !self.pointer.removing.contains(number));
        Ok(numbers)
    }

    /// Sets the sizes from which on a table is not joined with its neighbours, in place of the
    /// default. They are not kept with the store.
    pub fn set_table_sizes(&mut self, sizes: TableSizes) {
        self.table_sizes = sizes;
    }

    /// Makes an empty batch. Its entries are sorted in the memory of `options`, at least 1 MiB for
    /// each table that it changes, and spilled to the store's folder if they do not fit.
    pub fn batch(&self, options: SortOptions) -> Result<Batch> {
        let parent = self.parent()?;
        let slots = self.shape(parent.as_ref())?.slots;
        let bases = parent.iter().flat_map(|parent| &parent.bases);
        let cuts: Vec<u32> = bases.map(|base| base.chunks.bounds().end).collect();
        self.batch_of((slots, &cuts), options)
    }

    /// Makes an empty batch whose parts end at some chunks.
    fn batch_of(&self, slots: (SlotMap, &[u32]), options: SortOptions) -> Result<Batch> {
        let (tables, seed) = (self.tables(), self.pointer.seed);
        Batch::new(&self.env.disk, &tables, seed, slots, options, &self.env.executor)
    }

    /// Sets an attribute of the next version that is written, and so of those made from it.
    pub fn set_attribute(&mut self, name: &str, value: Vec<u8>) {
        self.attributes.retain(|(other, _)| other != name);
        self.attributes.push((name.to_owned(), value));
    }

    /// Returns the attributes of the next version.
    fn next_attributes(&mut self, parent: Option<&VersionInfo>) -> Result<Attributes> {
        let mut attributes = match (parent, &self.new) {
            (Some(parent), _) => parent.attributes.clone(),
            (None, Some(new)) => new.attributes.clone(),
            (None, None) => self.newest()?.attributes,
        };
        attributes.retain(|(name, _)| self.attributes.iter().all(|(new, _)| new != name));
        attributes.append(&mut self.attributes);
        Ok(attributes)
    }

    /// Makes a version from the current version and a batch. `watch` counts entries.
    ///
    /// # Errors
    /// `Exists` if there is a version with this id; the errors of the batch and of the device.
    pub fn write(
        &mut self,
        batch: Batch,
        mode: UpdateMode,
        facts: VersionFacts,
        watch: &Watch,
    ) -> Result<VersionInfo> {
        self.settle()?;
        self.check_new(facts.id)?;
        let parent = self.parent()?.map(Arc::new);
        let shape = self.shape(parent.as_deref())?;
        if batch.slots != shape.slots {
            let expected = format!("for {} chunks", shape.slots.chunks());
            return Err(Error::argument("batch", expected, batch.slots.chunks()));
        }
        let draft = self.build(batch, parent.as_ref(), (mode, shape), facts.id, watch)?;
        self.add_version(draft, parent.as_deref(), shape, facts)
    }

    /// Makes a version with the entries of the current version and another number of chunks. Reads
    /// all entries, sorts them in the memory of `sort`, and spills them to the store's folder if they do
    /// not fit. `watch` counts entries, each twice: when it is read, and when it is written.
    ///
    /// # Errors
    /// `Argument` if there is no current version, `Exists` if there is a version with this id; damage.
    pub fn rechunk(
        &mut self,
        slots: SlotMap,
        sort: SortOptions,
        facts: VersionFacts,
        watch: &Watch,
    ) -> Result<VersionInfo> {
        self.settle()?;
        self.check_new(facts.id)?;
        let Some(parent) = self.parent()? else {
            return Err(Error::argument("store", "a current version", "none"));
        };
        let shape = Shape { slots, ..parent.shape };
        let mut batch = self.batch_of((slots, &[]), sort)?;
        let options = ReadOptions::new().env(self.env.clone());
        let options = options.data(Access::Direct).index(Access::Mapped);
        let old = Version::open(&self.folder, parent.name.number, &options)?;
        let mut steps = watch.steps();
        for chunks in old.parts() {
            let mut run = old.scan_chunks_ahead(chunks, &self.env.executor);
            while run.advance()? {
                steps.step()?;
                batch.push(run.entry().key, run.entry().value)?;
            }
        }
        drop(old);
        let mut draft = self.build(batch, None, (UpdateMode::Replace, shape), facts.id, watch)?;
        let unchanged = draft.bases.iter().map(|base| base.entries).sum();
        draft.merged = Changes { unchanged, ..Changes::default() };
        draft.changes = Some(draft.merged);
        self.add_version(draft, Some(&parent), shape, facts)
    }

    /// Describes a version whose tables are built, and adds it to the store.
    fn add_version(
        &mut self,
        draft: Draft,
        parent: Option<&VersionInfo>,
        shape: Shape,
        facts: VersionFacts,
    ) -> Result<VersionInfo> {
        let attributes = self.next_attributes(parent)?;
        let info = VersionInfo {
            seed: self.pointer.seed,
            store: self.pointer.store,
            name: VersionName { number: self.next_number()?, id: facts.id },
            parent: parent.map(|parent| parent.name),
            created_s: facts.created_s,
            shape,
            changes: draft.changes,
            merged: draft.merged,
            bases: draft.bases,
            deltas: draft.deltas,
            attributes,
            provenance: facts.provenance,
        };
        self.add(&info)?;
        Ok(info)
    }

    /// Builds the layers of a version from a batch and the version that it changes.
    fn build(
        &self,
        batch: Batch,
        parent: Option<&Arc<VersionInfo>>,
        (mode, shape): (UpdateMode, Shape),
        id: u64,
        watch: &Watch,
    ) -> Result<Draft> {
        let memory_bytes = batch.memory_bytes;
        let old = parent.map(Arc::as_ref);
        let plan = Plan::new(old, batch.finish()?, mode, self.table_sizes);
        let (rebuilt, mut is_counted) = (plan.rebuilt(), plan.is_counted(old));
        let mut merged = Changes::default();
        if is_counted {
            merged.unchanged = plan.shared.iter().map(|base| base.entries).sum();
        }
        let mut bases = plan.shared;
        let kept = old.into_iter().flat_map(|old| &old.deltas);
        let mut deltas: Vec<Layer> = kept.filter_map(|delta| delta.without(&rebuilt)).collect();
        let kinds: Vec<NewKind> = plan.tables.iter().map(|table| table.kind).collect();
        let built = self.build_tables(plan.tables, (id, shape), parent, memory_bytes, watch)?;
        for (kind, (layer, counted)) in kinds.into_iter().zip(built) {
            match kind {
                NewKind::Delta => {
                    let parent = old.expect("a delta has a parent");
                    if !self.drop_repeat(&layer, parent)? {
                        deltas.push(layer);
                    }
                }
                NewKind::Base(_) => {
                    bases.push(layer);
                    is_counted &= counted.is_some();
                }
            }
            merged.add(counted.unwrap_or_default());
        }
        bases.sort_unstable_by_key(|base| base.chunks.bounds().start);
        Ok(Draft { bases, deltas, changes: is_counted.then_some(merged), merged })
    }

    /// Builds the tables of a version.
    fn build_tables(
        &self,
        tables: Vec<NewTable>,
        (id, shape): (u64, Shape),
        parent: Option<&Arc<VersionInfo>>,
        memory_bytes: usize,
        watch: &Watch,
    ) -> Result<Vec<Built>> {
        let job = |table: NewTable| {
            let builder = LayerBuilder {
                disk: self.env.disk.clone(),
                tables: self.tables(),
                id: self.new_table_id(id, table.chunks.bounds().start)?,
                chunks: table.chunks.clone(),
                seed: self.pointer.seed,
                shape,
                executor: self.env.executor.clone(),
                watch: watch.clone(),
            };
            Ok(TableJob { table, parent: parent.cloned(), builder })
        };
        let jobs: Result<Vec<TableJob>> = tables.into_iter().map(job).collect();
        build_all(jobs?, self.env.executor.as_ref(), memory_bytes).inspect_err(|_| {
            // The tables made so far are useless. The next writer removes what cannot be removed
            // now.
            let _ = self.sweep();
        })
    }

    /// Returns an id for the table of a version that has this chunk first. The first choice may be
    /// taken: an earlier version of this id has been removed, but later versions still use its
    /// tables.
    fn new_table_id(&self, version: u64, chunk: u32) -> Result<u64> {
        let mut salted = chunk;
        loop {
            let id = table_id(version, salted);
            if !self.env.disk.exists(&folder_of(&self.tables(), id))? {
                return Ok(id);
            }
            salted += SLOTS;
        }
    }

    /// Refuses the id of an existing version, because ids of tables follow from it.
    fn check_new(&self, id: u64) -> Result<()> {
        // The pointer lists all versions, so that only the file of one with this id is read.
        let same = self.pointer.versions.iter().filter(|version| version.id == id);
        for number in same.map(|version| version.number) {
            if self.version(number).is_ok() {
                let path = self.versions().join(file_name(number));
                return Err(Error::new(ErrorKind::Exists).at(&Place::file(&path)));
            }
        }
        Ok(())
    }

    /// Returns a number that no version has had.
    fn next_number(&self) -> Result<u64> {
        let number = self.pointer.newest + 1;
        if number > NUMBER_MAX {
            let (what, limit) = ("version number", NUMBER_MAX);
            let error = Error::new(ErrorKind::Limit { what, limit, got: number });
            return Err(error.at(&Place::file(&self.versions())));
        }
        Ok(number)
    }

    /// Writes the file of a version. From here on the version exists.
    fn add(&mut self, info: &VersionInfo) -> Result<()> {
        let path = self.versions().join(file_name(info.name.number));
        let bytes = info.encode().map_err(|error| error.at(&Place::file(&path)))?;
        let added = self.add_file(info, &bytes);
        if added.is_err() {
            // The caller may retry under the same id. The next writer removes what cannot be
            // removed now.
            let _ = self.withdraw(info.name.number);
        }
        added
    }

    /// Writes the file of a version, with these bytes, and lists the version. After an error, the
    /// version may exist.
    pub(super) fn add_file(&mut self, info: &VersionInfo, bytes: &[u8]) -> Result<()> {
        let added = self.try_add(info, bytes);
        self.is_settled &= added.is_ok();
        added
    }

    fn try_add(&mut self, info: &VersionInfo, bytes: &[u8]) -> Result<()> {
        let path = self.versions().join(file_name(info.name.number));
        self.env.disk.sync_folder(&self.tables())?;
        replace_file(self.env.disk.as_ref(), &path, |file| file.write_at(0, bytes))?;
        self.change(|pointer| pointer.add(info.name))
    }

    /// Removes the file of a version that was never returned to the caller.
    fn withdraw(&mut self, number: u64) -> Result<()> {
        if self.pointer.version(number).is_some() {
            self.change(|pointer| pointer.strike(number))?;
        }
        let path = self.versions().join(file_name(number));
        if self.env.disk.exists(&path)? {
            let _lock = self.env.disk.lock(&path)?;
            self.env.disk.remove(&path)?;
        }
        self.sweep().map(|_| ())
    }

    /// Removes the remains of a crash: versions whose removal was interrupted, tables that no
    /// version has, and unfinished files. Removes no table if a version is lost or cannot be read,
    /// because its tables are then unknown.
    pub(super) fn sweep(&self) -> Result<u64> {
        let (disk, versions) = (self.env.disk.as_ref(), self.versions());
        let new_pointer = new_name(&self.folder.join(pointer::NAME));
        // The second file is of a copy that was killed at its end.
        for path in [new_pointer, self.folder.join(FIRST_NAME)] {
            if disk.exists(&path)? {
                folder::remove_file(disk, &path)?;
            }
        }
        let is_new = |name: &&String| name.strip_suffix(".new").and_then(number_of).is_some();
        for name in disk.list(&versions)?.iter().filter(is_new) {
            folder::remove_file(disk, &versions.join(name))?;
        }
        for number in &self.pointer.removing {
            let path = versions.join(file_name(*number));
            // A version that a reader has open stays.
            if disk.exists(&path)?
                && let Ok(_lock) = disk.lock(&path)
            {
                disk.remove(&path)?;
            }
        }
        match self.used_tables(&[])? {
            Some(used) => self.sweep_tables(&used),
            None => Ok(0),
        }
    }

    /// Returns the tables of all versions except `but`; `None` if a version is lost or cannot be
    /// read.
    pub(super) fn used_tables(&self, but: &[u64]) -> Result<Option<HashSet<u64>>> {
        let mut all = numbers(self.env.disk.as_ref(), &self.folder)?;
        all.extend(self.pointer.versions.iter().map(|version| version.number));
        let mut used = HashSet::new();
        for number in all.into_iter().filter(|number| !but.contains(number)) {
            match self.version(number) {
                Ok(info) => used.extend(info.layers().map(|layer| layer.table)),
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(used))
    }

    fn sweep_tables(&self, used: &HashSet<u64>) -> Result<u64> {
        let (disk, tables) = (self.env.disk.as_ref(), self.tables());
        let mut spare = disk.list(&tables)?;
        spare.retain(|name| match table_of(name) {
            Some(table) => !used.contains(&table),
            None => name.ends_with(MENDED) || name == SPILL,
        });
        if !spare.is_empty() {
            // The name of the version must be durably removed before its tables.
            disk.sync_folder(&self.versions())?;
        }
        let mut removed = 0;
        for name in spare {
            removed += remove_table(disk, &tables.join(name))?;
        }
        Ok(removed)
    }
}

/// Removes a table's folder, or a file in its place; returns the number of bytes that are freed.
/// Other files in the folder stay, and the folder with them. A link is removed, its target stays.
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
