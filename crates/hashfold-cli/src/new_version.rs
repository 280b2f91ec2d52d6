//! A new version of a store, from its batch to its publication: options and report of `update`,
//! `delete` and `map export`.

use crate::{
    device,
    failure::{Exit, Result},
    folder,
    output::{write_line, write_note},
    progress::Show,
    release::{GateArgs, Intent, Lines, Release},
    stop::Stop,
    units,
    wait::WaitArgs,
};
use clap::Args;
use hashfold::{
    Env,
    manifest::Kind,
    store::{Attributes, StoreOptions, StoreWriter, VersionFacts, VersionInfo},
};
use serde_json::{Map, Value, json};
use std::{path::Path, time::Instant};

/// Options of the verbs that make a version from a batch.
#[derive(Args, Debug)]
pub(crate) struct NewVersionArgs {
    /// Make the version without publishing it; `hashfold publish` publishes it later
    #[arg(long)]
    pub(crate) no_publish: bool,
    /// Make the version, report how it differs from the current one, and remove it; costs as much
    /// as the real call
    #[arg(long)]
    dry_run: bool,
    /// Note to keep with the version, shown by `versions --json`; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    note: Vec<(String, String)>,
    /// Threads that sort and write [default: number of cores + 2]
    #[arg(long, value_name = "N", value_parser = units::parse_threads)]
    pub(crate) threads: Option<usize>,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    /// Print progress and summary as JSON objects on standard output
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten, next_help_heading = "Gates")]
    gates: GateArgs,
}

/// A new version, and facts about its input.
pub(crate) struct Made {
    pub(crate) info: VersionInfo,
    /// Words about the input for the summary: `; from 2,000 rows, 3 bad rows skipped`.
    pub(crate) note: String,
    /// The same facts for --json.
    pub(crate) facts: Map<String, Value>,
    /// Columns that the store did not have before.
    pub(crate) added: Option<String>,
}

impl NewVersionArgs {
    /// Opens the store for writing.
    pub(crate) fn open(&self, store: &Path, stop: &Stop) -> Result<StoreWriter> {
        let executor = device::executor(self.threads);
        self.wait.retry(stop, || folder::open_store(store, executor.clone()))
    }

    /// Opens a store, or makes it, and does work with it that makes a version. `options` are those of a
    /// new store, and of a store without a current version.
    pub(crate) fn with_store(
        &self,
        store: &Path,
        stop: &Stop,
        options: &dyn Fn() -> Result<StoreOptions>,
        work: impl FnOnce(&mut StoreWriter) -> Result<Exit>,
    ) -> Result<Exit> {
        let is_new = !store.exists();
        let mut writer = self.wait.retry(stop, || self.open_or_create(store, options))?;
        let result = work(&mut writer);
        // A failure leaves no store without versions, or an empty one that the next call reuses.
        let _ = writer.abandon();
        if is_new && result.is_err() {
            // Fails if there is a version.
            let _ = device::disk().remove_folder(store);
        }
        result
    }

    fn open_or_create(
        &self,
        store: &Path,
        options: &dyn Fn() -> Result<StoreOptions>,
    ) -> Result<StoreWriter> {
        let executor = device::executor(self.threads);
        if folder::holds(store)?.kind() != Some(Kind::Store) {
            // A killed first update leaves these.
            folder::check_empty(store, "store", &["CURRENT.new", "tables", "versions"])?;
            let env = Env { executor, ..Env::system() };
            return Ok(StoreWriter::create(store, options()?.env(env))?);
        }
        let mut writer = folder::open_store(store, executor)?;
        if writer.pointer().current.is_none() {
            writer.start_over(&options()?)?;
            note_unpublished(store, &writer.numbers()?);
        }
        Ok(writer)
    }

    /// Returns the facts to record with the version.
    pub(crate) fn facts<'a>(
        &self,
        origin: impl Iterator<Item = (&'a str, String)>,
    ) -> Result<VersionFacts> {
        let notes = self.note.iter().map(|(name, value)| (name.as_str(), value.clone()));
        let all = origin.map(|(name, value)| (name.to_owned(), value.into_bytes()));
        let notes = notes.map(|(name, value)| (name.to_owned(), value.into_bytes()));
        let provenance: Attributes = all.chain(notes).collect();
        Ok(VersionFacts { id: device::random()?, created_s: device::now_s(), provenance })
    }

    pub(crate) fn show(&self) -> Show {
        if self.json { Show::Json } else { Show::Text }
    }

    /// Says that there was nothing to change: version `number` stays current, and `has` says what it
    /// has.
    pub(crate) fn finish_unchanged(
        &self,
        did: &str,
        store: &Path,
        (number, has): (u64, &str),
        mut facts: Map<String, Value>,
    ) -> Result<Exit> {
        match self.json {
            true => {
                facts.insert("event".into(), json!(event(did)));
                facts.insert("store".into(), json!(store.to_string_lossy()));
                facts.insert("version".into(), json!(number));
                facts.insert("published".into(), json!(true));
                facts.insert("changed".into(), json!(false));
                write_line(Value::Object(facts))?;
            }
            false => write_line(format_args!(
                "{did} {}: version {number} is current and has {has}; nothing was changed",
                store.display()
            ))?,
        }
        Ok(Exit::Done)
    }

    /// Checks the version against the gates, then publishes, keeps or removes it. `did` names the
    /// work for the summary: `updated`, `deleted from`, `exported to`. A version is removed if this fails.
    pub(crate) fn finish(
        &self,
        did: &str,
        store: &Path,
        writer: &mut StoreWriter,
        made: &Made,
        start: Instant,
    ) -> Result<Exit> {
        let intent = if self.dry_run || self.no_publish { Intent::Keep } else { Intent::Publish };
        let number = made.info.name.number;
        let release = Release::decide(writer, made.info.clone(), &self.gates, intent);
        if self.dry_run || release.is_err() {
            let discarded = writer.discard(number);
            // After another failure, what cannot be removed now stays as an unpublished version.
            if release.is_ok() {
                discarded?;
            }
        }
        let release = release?;
        let seconds = start.elapsed().as_secs_f64();
        if self.json {
            let mut object = json!({ "event": event(did) });
            let map = object.as_object_mut().expect("it is an object");
            map.extend(release.to_json(store));
            map.extend(made.facts.clone());
            map.extend([
                ("dry_run".into(), json!(self.dry_run)),
                ("columns_added".into(), json!(made.added)),
                ("seconds".into(), json!(seconds)),
            ]);
            write_line(object)?;
        } else {
            let state = if self.dry_run { "not kept" } else { release.state() };
            write_line(format_args!(
                "{did} {}: version {number}, {state}: {}{}; {seconds:.1} s",
                store.display(),
                release.describe(),
                made.note,
            ))?;
            if let Some(added) = &made.added {
                write_line(format_args!("columns added, null in older rows: {added}"))?;
            }
        }
        let state = if self.dry_run { "would not be published" } else { "is not published" };
        release.conclude(store, state, if self.json { Lines::Json } else { Lines::Text })
    }
}

/// Returns the name of an event: the first word of what was done.
fn event(did: &str) -> &str {
    did.split_once(' ').map_or(did, |(first, _)| first)
}

/// Says that a new version does not follow the versions of the store, none of which is current.
fn note_unpublished(store: &Path, numbers: &[u64]) {
    if !numbers.is_empty() {
        let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
        write_note(format_args!(
            "hashfold: note: {}: no version is current, so the new version is made from nothing; \
             version {} was never published",
            store.display(),
            numbers.join(", ")
        ));
    }
}

/// Parses `NAME=VALUE`.
pub(crate) fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err("expected a name, '=' and a value".into()),
    }
}
