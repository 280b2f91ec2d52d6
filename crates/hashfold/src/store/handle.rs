//! A store by its path: updates, readers, versions.

use super::{
    batch::Batch,
    follow::StoreReader,
    options::StoreOptions,
    plan::UpdateMode,
    pointer::Pointer,
    read::{Version, versions},
    version::VersionInfo,
    write::{StoreWriter, VersionFacts},
};
use crate::{
    env::Env,
    error::{ErrorKind, Result},
    options::ReadOptions,
    run::{Run, SortOptions},
    work::Watch,
};
use std::{
    fmt,
    path::{Path, PathBuf},
};

/// A store: a data set that changes in whole versions, without stopping its readers.
///
/// The handle holds no lock and no files; clones are the same store. [`Store::update`] locks the
/// store for one writer, [`Store::reader`] opens the current version. See
/// [the module](crate::store) for versions, gates and retention, which [`StoreWriter`] offers.
///
/// ```
/// # std::env::set_current_dir(std::env::temp_dir())?;
/// # let _ = std::fs::remove_dir_all("hashfold-people");
/// use hashfold::Store;
///
/// let store = Store::open_or_create("hashfold-people")?;
/// let mut update = store.update()?;
/// update.put("4711", "Eve")?;
/// update.put("4701", "Adam")?;
/// update.publish()?;
///
/// let reader = store.reader()?;
/// assert_eq!(reader.get("4711")?.as_deref(), Some(&b"Eve"[..]));
///
/// let mut update = store.update()?;
/// update.delete("4701")?;
/// update.publish()?;
/// reader.refresh()?; // otherwise, the reader follows within a second
/// assert!(!reader.contains("4701")?);
///
/// store.roll_back()?;
/// reader.refresh()?;
/// assert!(reader.contains("4701")?);
/// # std::fs::remove_dir_all("hashfold-people")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
    /// The options of a store without versions; their environment is that of the store.
    options: StoreOptions,
}

impl Store {
    /// Opens the store in a folder.
    ///
    /// # Errors
    /// `Absent` if there is no store, `WrongKind` if the folder has a data set of another kind.
    pub fn open(folder: impl AsRef<Path>) -> Result<Store> {
        Store::open_in(Env::system(), folder)
    }

    /// Opens the store in a folder of another disk, with another executor or another clock.
    ///
    /// # Errors
    /// The errors of [`Store::open`].
    pub fn open_in(env: Env, folder: impl AsRef<Path>) -> Result<Store> {
        Pointer::read(env.disk.as_ref(), folder.as_ref())?;
        let options = StoreOptions::new().env(env);
        Ok(Store { folder: folder.as_ref().to_owned(), options })
    }

    /// Opens the store in a folder, or creates one with the default options.
    ///
    /// # Errors
    /// `WrongKind` if the folder has a data set of another kind, `Busy` if another process creates a
    /// data set there.
    pub fn open_or_create(folder: impl AsRef<Path>) -> Result<Store> {
        Store::open_or_create_with(folder, StoreOptions::new())
    }

    /// Opens the store in a folder, or creates one. The options of a store that has versions do not
    /// change.
    ///
    /// # Errors
    /// The errors of [`Store::open_or_create`], and `Argument` if an option is outside its range.
    pub fn open_or_create_with(folder: impl AsRef<Path>, options: StoreOptions) -> Result<Store> {
        let folder = folder.as_ref().to_owned();
        match Pointer::read(options.env.disk.as_ref(), &folder) {
            Ok(_) => {}
            Err(error) if error.is_absent() => drop(StoreWriter::create(&folder, options.clone())?),
            Err(error) => return Err(error),
        }
        Ok(Store { folder, options })
    }

    /// Begins an update: locks the store, and collects changes in 256 MiB of memory and in files in
    /// the store's folder.
    ///
    /// # Errors
    /// `Busy` if another writer has the store open.
    pub fn update(&self) -> Result<Update> {
        self.update_within(SortOptions::within(256 << 20))
    }

    /// Begins an update that sorts its changes with these options.
    ///
    /// # Errors
    /// The errors of [`Store::update`].
    pub fn update_within(&self, sort: SortOptions) -> Result<Update> {
        let writer = self.writer()?;
        let (batch, mode) = (writer.batch(sort)?, UpdateMode::Auto);
        Ok(Update { env: self.options.env.clone(), writer, batch, mode })
    }

    /// Opens the store for writing: for gates, retention, deltas, repair.
    ///
    /// # Errors
    /// `Busy` if another writer has the store open.
    pub fn writer(&self) -> Result<StoreWriter> {
        let env = &self.options.env;
        let pointer = Pointer::read(env.disk.as_ref(), &self.folder)?;
        if pointer.current.is_none() && pointer.versions.is_empty() {
            match StoreWriter::create(&self.folder, self.options.clone()) {
                // The first writer was killed between its version file and the pointer, which does not list the version.
                Err(error) if matches!(error.kind(), ErrorKind::Exists) => {}
                created => return created,
            }
        }
        StoreWriter::open(env, &self.folder)
    }

    /// Opens the current version. The reader follows later versions.
    ///
    /// # Errors
    /// `Unpublished` if no version is current.
    pub fn reader(&self) -> Result<StoreReader> {
        StoreReader::open_with(&self.folder, &self.read_options())
    }

    /// Opens one version, which never changes.
    ///
    /// # Errors
    /// `Absent` if there is no version with this number.
    pub fn version(&self, number: u64) -> Result<Version> {
        Version::open(&self.folder, number, &self.read_options())
    }

    /// Returns the descriptions of all versions in the order of their numbers, with an error for
    /// each version that is lost or cannot be read.
    pub fn versions(&self) -> Result<Vec<(u64, Result<VersionInfo>)>> {
        versions(&self.options.env, &self.folder)
    }

    /// Makes the version before the current one current, and marks the current one as bad. Returns
    /// the number of the version that is now current.
    ///
    /// # Errors
    /// `Absent` if there is no earlier good version, `Busy` if a writer has the store open.
    pub fn roll_back(&self) -> Result<u64> {
        self.writer()?.roll_back()
    }

    fn read_options(&self) -> ReadOptions {
        ReadOptions::new().env(self.options.env.clone())
    }
}

/// A batch of changes that becomes a version. It holds the store's lock. Dropping it gives up the
/// changes.
pub struct Update {
    env: Env,
    writer: StoreWriter,
    batch: Batch,
    mode: UpdateMode,
}

impl Update {
    /// Sets the value of a key. Of several changes of a key, the last one counts.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.batch.push(key.as_ref(), Some(value.as_ref()))
    }

    /// Deletes a key; a key that is absent stays absent.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.batch.push(key.as_ref(), None)
    }

    /// Applies all entries of a run, such as a table's scan.
    pub fn merge(&mut self, run: &mut dyn Run) -> Result<()> {
        self.batch.push_run(run)
    }

    /// Makes the changes the whole content of the new version, or writes them as a delta, or merges
    /// them: see [`UpdateMode`].
    #[must_use]
    pub fn mode(self, mode: UpdateMode) -> Update {
        Update { mode, ..self }
    }

    /// Writes the new version and makes it current: durable and for all readers at once, or not at
    /// all. Returns its description. Checks no gates: [`StoreWriter::report`] does.
    pub fn publish(self) -> Result<VersionInfo> {
        self.publish_with(&Watch::default())
    }

    /// Publishes the update as [`Update::publish`] does. `watch` counts entries.
    pub fn publish_with(mut self, watch: &Watch) -> Result<VersionInfo> {
        let facts = VersionFacts {
            id: self.env.random.next_u64(),
            created_s: self.env.clock.unix_time().as_secs(),
            ..VersionFacts::default()
        };
        let info = self.writer.write(self.batch, self.mode, facts, watch)?;
        self.writer.publish(info.name.number)?;
        Ok(info)
    }
}

impl fmt::Debug for Update {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Update({} changes, {:?})", self.batch.entries(), self.mode)
    }
}
