//! Versions of stores, each published once.

use hashfold::{
    Env, ErrorClass, Result, Store, StoreOptions,
    run::SortOptions,
    store::{Attributes, Batch, Pointer, StoreWriter, UpdateMode, VersionFacts},
    work::Watch,
};
use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    time::Duration,
};

/// Memory for sorting the entries of a version, in bytes.
const SORT_BYTES: usize = 64 << 20;
/// Time for which another process can write to a store, or to the folder of a table, until the run ends with an error.
const BUSY_MAX: Duration = Duration::from_secs(60);
/// Time between two attempts to write.
const BUSY_INTERVAL: Duration = Duration::from_millis(100);

/// Publishes versions of a store, but for those that a run before has published.
#[derive(Debug)]
pub(crate) struct Versions {
    /// Folder of the store.
    folder: PathBuf,
    env: Env,
    /// The versions of the store; `None` before it is opened for the first time.
    known: Option<Known>,
    /// Sequence number of `CURRENT` after the last publication.
    sequence: Option<u64>,
}

/// The versions that a store had when it was opened for the first time. A run publishes nothing twice itself.
#[derive(Debug, Default)]
struct Known {
    /// Attributes of versions that were published, whether they are still there or not.
    published: HashSet<Attribute>,
    /// Numbers of versions that were not published, since a crash came before that, by their attributes.
    unpublished: HashMap<Attribute, u64>,
}

type Attribute = (String, Vec<u8>);

impl Versions {
    pub(crate) fn new(folder: PathBuf, env: Env) -> Versions {
        Versions { folder, env, known: None, sequence: None }
    }

    /// Publishes a version with the entries that `fill` puts into a batch, and no others. The last attribute says what the
    /// version is of, and of which run: if there is a version with this attribute, no other is made; it is published if a crash
    /// came before that.
    pub(crate) fn publish(
        &mut self,
        (attributes, provenance): (Attributes, Attributes),
        fill: &mut dyn FnMut(&mut Batch) -> Result<()>,
    ) -> Result<()> {
        let own = attributes.last().cloned();
        let mut writer = while_busy(&self.env, || self.writer(&attributes))?;
        let known = match &mut self.known {
            Some(known) => known,
            none => none.insert(Known::read(&writer)?),
        };
        if own.as_ref().is_some_and(|own| known.published.contains(own)) {
            return Ok(());
        }
        let kept = own.as_ref().and_then(|own| known.unpublished.get(own)).copied();
        let number = match kept.filter(|number| writer.pointer().version(*number).is_some()) {
            Some(number) if was_published(writer.pointer(), number) => return Ok(()),
            Some(number) => number,
            None => write(&self.env, &mut writer, (attributes, provenance), fill)?,
        };
        writer.publish(number)?;
        self.sequence = Some(writer.pointer().sequence);
        Ok(())
    }

    /// Opens the store for writing, or creates it.
    fn writer(&self, attributes: &Attributes) -> Result<StoreWriter> {
        let (env, folder) = (&self.env, &self.folder);
        if let Some(sequence) = self.sequence {
            match StoreWriter::open_again(env, folder, sequence) {
                // It was removed since.
                Err(error) if error.is_absent() => {}
                opened => return opened,
            }
        }
        let options = StoreOptions::new().env(env.clone()).chunks(1).attributes(attributes.clone());
        Store::open_or_create_with(folder, options)?.writer()
    }
}

impl Known {
    /// Reads the attributes of all versions of a store.
    fn read(writer: &StoreWriter) -> Result<Known> {
        let (mut known, pointer) = (Known::default(), writer.pointer());
        for number in pointer.versions.iter().map(|name| name.number) {
            match writer.version(number) {
                Ok(info) if was_published(pointer, number) => {
                    known.published.extend(info.attributes);
                }
                Ok(info) => {
                    known.unpublished.extend(info.attributes.into_iter().map(|one| (one, number)));
                }
                // A damaged version is found by `hashfold verify`.
                Err(error) if error.class() == ErrorClass::Damage => {}
                Err(error) => return Err(error),
            }
        }
        Ok(known)
    }
}

/// Whether a version is current or was so before. One that is marked bad counts: it is not published again.
fn was_published(pointer: &Pointer, number: u64) -> bool {
    let Pointer { current, published, bad, .. } = pointer;
    *current == Some(number) || published.contains(&number) || bad.contains(&number)
}

/// Writes a version with the entries that `fill` puts into a batch, and no others. Returns its number.
fn write(
    env: &Env,
    writer: &mut StoreWriter,
    (attributes, provenance): (Attributes, Attributes),
    fill: &mut dyn FnMut(&mut Batch) -> Result<()>,
) -> Result<u64> {
    for (name, value) in attributes {
        writer.set_attribute(&name, value);
    }
    let mut batch = writer.batch(SortOptions::within(SORT_BYTES))?;
    fill(&mut batch)?;
    let facts = VersionFacts {
        id: env.random.next_u64(),
        created_s: env.clock.unix_time().as_secs(),
        provenance,
    };
    let version = writer.write(batch, UpdateMode::Replace, facts, &Watch::default())?;
    Ok(version.name.number)
}

/// Returns what `hashfold versions` shows of a version: names and texts.
pub(crate) fn provenance(notes: Vec<(&str, String)>) -> Attributes {
    notes.into_iter().map(|(name, text)| (name.into(), text.into_bytes())).collect()
}

/// Calls `open` again while another process writes there, for a minute.
pub(crate) fn while_busy<T>(env: &Env, mut open: impl FnMut() -> Result<T>) -> Result<T> {
    let end = env.clock.now() + BUSY_MAX;
    loop {
        match open() {
            Err(error) if error.class() == ErrorClass::Busy && env.clock.now() < end => {
                env.clock.sleep(BUSY_INTERVAL);
            }
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hashfold::{
        io::{Disk, DiskLayer, MemoryDisk},
        store::Retention,
    };
    use std::{
        path::Path,
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering::Relaxed},
        },
    };

    const FOLDER: &str = "store";

    /// A disk in RAM that counts how often files of versions are opened.
    #[derive(Debug, Default)]
    struct Counting {
        disk: MemoryDisk,
        opened: AtomicU64,
    }

    #[derive(Debug)]
    struct Counted(Arc<Counting>);

    impl DiskLayer for Counted {
        fn below(&self) -> &dyn Disk {
            &self.0.disk
        }

        fn before_open(&self, path: &Path) {
            let is_of_version = path.parent().is_some_and(|folder| folder.ends_with("versions"));
            self.0.opened.fetch_add(is_of_version.into(), Relaxed);
        }
    }

    fn env() -> (Env, Arc<Counting>) {
        let counting = Arc::<Counting>::default();
        (Env { disk: Arc::new(Counted(counting.clone())), ..Env::simulated(1) }, counting)
    }

    fn publish(versions: &mut Versions, window: u64) {
        let attributes = vec![("window".to_owned(), window.to_string().into_bytes())];
        let mut fill = |batch: &mut Batch| batch.push(b"window", Some(&window.to_le_bytes()));
        versions.publish((attributes, Vec::new()), &mut fill).unwrap();
    }

    /// Returns the numbers of all versions, and the window of the current one.
    fn there(env: &Env) -> (Vec<u64>, u64) {
        let store = Store::open_in(env.clone(), FOLDER).unwrap();
        let value = store.reader().unwrap().get("window").unwrap().unwrap();
        let numbers = store.versions().unwrap().into_iter().map(|(number, _)| number).collect();
        (numbers, u64::from_le_bytes(value[..].try_into().unwrap()))
    }

    /// The versions that a store keeps are read once in a run, not for each window.
    #[test]
    fn the_time_of_a_window_is_independent_of_the_number_of_versions() {
        let (env, counting) = env();
        let mut versions = Versions::new(FOLDER.into(), env);
        let opened = (0..100).map(|window| {
            counting.opened.store(0, Relaxed);
            publish(&mut versions, window);
            counting.opened.load(Relaxed)
        });
        let opened: Vec<u64> = opened.collect();
        assert_eq!(opened[2], opened[99], "{opened:?}");
    }

    /// Another process publishes a version of its own between two windows.
    #[test]
    fn versions_of_other_processes_stay() {
        let (env, _) = env();
        let mut versions = Versions::new(FOLDER.into(), env.clone());
        publish(&mut versions, 1);
        let mut update = Store::open_in(env.clone(), FOLDER).unwrap().update().unwrap();
        update.put("window", 100_u64.to_le_bytes()).unwrap();
        update.publish().unwrap();
        publish(&mut versions, 2);
        assert_eq!(there(&env), (vec![1, 2, 3], 2));
    }

    /// A run that continues has seen a version that is removed before it comes to its window again: the window is not published
    /// again.
    #[test]
    fn a_version_that_is_removed_while_the_run_goes_on_is_not_published_again() {
        let (env, _) = env();
        let mut versions = Versions::new(FOLDER.into(), env.clone());
        (1..=3).for_each(|window| publish(&mut versions, window));
        let mut next = Versions::new(FOLDER.into(), env.clone());
        publish(&mut next, 1);
        let mut writer = Store::open_in(env.clone(), FOLDER).unwrap().writer().unwrap();
        let removed = writer.collect(&Retention::default(), &Watch::default()).unwrap();
        assert_eq!(removed.versions, [1, 2]);
        drop(writer);
        publish(&mut next, 2);
        publish(&mut next, 3);
        assert_eq!(there(&env), (vec![3], 3));
        publish(&mut next, 4);
        assert_eq!(there(&env), (vec![3, 4], 4));
    }
}
