//! Versions of stores, each published once.

use hashfold::{
    Env, ErrorClass, Result, Store, StoreOptions,
    run::SortOptions,
    store::{Attributes, Batch, Pointer, StoreWriter, UpdateMode, VersionFacts},
    work::Watch,
};
use std::{collections::HashMap, path::PathBuf, time::Duration};

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
    /// The numbers of versions by their attributes; `None` before the store is opened for the first time.
    known: Option<HashMap<(String, Vec<u8>), u64>>,
}

impl Versions {
    pub(crate) fn new(folder: PathBuf, env: Env) -> Versions {
        Versions { folder, env, known: None }
    }

    /// Publishes a version with the entries that `fill` puts into a batch, and no others. The last attribute says what the
    /// version is of, and of which run: if there is a version with this attribute, no other is made; it is published if a crash
    /// came before that.
    pub(crate) fn publish(
        &mut self,
        (attributes, provenance): (Attributes, Attributes),
        fill: &mut dyn FnMut(&mut Batch) -> Result<()>,
    ) -> Result<()> {
        let env = &self.env;
        let options = StoreOptions::new().env(env.clone()).chunks(1).attributes(attributes.clone());
        let store = while_busy(env, || Store::open_or_create_with(&self.folder, options.clone()))?;
        let mut writer = while_busy(env, || store.writer())?;
        let known = match &mut self.known {
            Some(known) => known,
            none => none.insert(numbers(&writer)?),
        };
        let own = attributes.last().cloned();
        if let Some(number) = own.as_ref().and_then(|own| known.get(own)).copied() {
            let Pointer { current, published, bad, .. } = writer.pointer();
            let was_current =
                *current == Some(number) || published.contains(&number) || bad.contains(&number);
            return if was_current { Ok(()) } else { writer.publish(number) };
        }
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
        known.extend(own.map(|own| (own, version.name.number)));
        writer.publish(version.name.number)
    }
}

/// Returns the numbers of the versions of a store by their attributes.
fn numbers(writer: &StoreWriter) -> Result<HashMap<(String, Vec<u8>), u64>> {
    let mut numbers = HashMap::new();
    for number in writer.pointer().versions.iter().map(|name| name.number) {
        match writer.version(number) {
            Ok(info) => numbers.extend(info.attributes.into_iter().map(|one| (one, number))),
            // A damaged version is found by `hashfold verify`.
            Err(error) if error.class() == ErrorClass::Damage => {}
            Err(error) => return Err(error),
        }
    }
    Ok(numbers)
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
