//! Windows as tables and as versions of stores.

use crate::rows::Layout;
use hashfold::{
    Env, Error, ErrorKind, ReadOptions, Result, Seed, Store, StoreOptions, Table, TableBuilder,
    TableOptions,
    pipeline::{Sink, Window},
    run::{SortOptions, VecRun},
    store::{Attributes, Batch, Pointer, UpdateMode, VersionFacts, VersionName},
    work::Watch,
};
use hashfold_rows::{Schema, utc};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Memory for sorting a window, in bytes.
const SORT_BYTES: usize = 64 << 20;
/// Name of the attribute of a table or version that has the window.
const WINDOW: &str = "window";

/// Writes each window as a table, whose folder has the name of the window's start.
#[derive(Debug)]
pub(crate) struct TableSink {
    /// Folder of the tables.
    pub(crate) folder: PathBuf,
    pub(crate) layout: Layout,
    pub(crate) env: Env,
    /// Whether windows can come again that were written before a crash.
    pub(crate) continues: bool,
}

/// Publishes each window as a version of a store.
#[derive(Debug)]
pub(crate) struct StoreSink {
    /// Folder of the store.
    pub(crate) folder: PathBuf,
    pub(crate) layout: Layout,
    pub(crate) env: Env,
    /// Whether windows can come again that were published before a crash.
    pub(crate) continues: bool,
}

/// Returns the name of a window: `2026-11-27T01-00-00Z`, with milliseconds if they are not 0, or `all`.
pub(crate) fn window_name(span: Option<(i64, i64)>) -> String {
    let Some((start, _)) = span else { return "all".into() };
    let name = time(start).replace(':', "-");
    if start < 0 { format!("before-1970-{}", start.unsigned_abs()) } else { name }
}

/// Returns a time as in RFC 3339; times before 1970 are those of 1970.
pub(crate) fn time(time_ms: i64) -> String {
    let time_ms = time_ms.max(0).unsigned_abs();
    let text = utc(time_ms / 1000);
    match time_ms % 1000 {
        0 => text,
        ms => format!("{}.{ms:03}Z", text.trim_end_matches('Z')),
    }
}

fn attributes(layout: &Layout, window: &Window<'_>) -> Attributes {
    let span = window.span();
    let window = json!({
        "summary": window.summary().name,
        "start_ms": span.map(|(start, _)| start),
        "end_ms": span.map(|(_, end)| end),
    });
    vec![
        (Schema::ATTRIBUTE.into(), layout.schema.to_json()),
        (WINDOW.into(), window.to_string().into_bytes()),
    ]
}

fn run(layout: &Layout, window: &Window<'_>, seed: Seed) -> Result<VecRun> {
    window.run(seed, &mut |group, outputs, key, value| layout.encode(group, outputs, key, value))
}

impl TableSink {
    /// Begins the table of a window. After a crash, a window can come again, with the same entries, and is replaced. One of
    /// another run stays: the name of the new one ends with a number then.
    fn begin(&self, window: &Window<'_>) -> Result<TableBuilder> {
        let name = window_name(window.span());
        let options = TableOptions::new()
            .env(self.env.clone())
            .replace(self.continues)
            .attributes(attributes(&self.layout, window));
        let (mut folder, mut number) = (self.folder.join(&name), 1);
        loop {
            match TableBuilder::with(&folder, options.clone()) {
                Err(error) if matches!(error.kind(), ErrorKind::Exists) => number += 1,
                builder => return builder,
            }
            folder = self.folder.join(format!("{name}-{number}"));
        }
    }
}

impl Sink for TableSink {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        let builder = self.begin(window)?;
        let mut run = run(&self.layout, window, builder.seed())?;
        builder.build(&mut run, &Watch::default())?;
        Ok(())
    }
}

/// Refuses a run whose only window has a table already, from another run.
pub(crate) fn check_new(env: &Env, folder: &Path) -> Result<()> {
    match Table::open_with(folder, &ReadOptions::new().env(env.clone())) {
        Ok(_) => {
            let expected = "a new one: give another folder as `out`, remove this one, or use `checkpoints`, with which \
                            a run continues the one before";
            let got = format!("{}, which another run has written", folder.display());
            Err(Error::argument("table of a summary", expected, got))
        }
        Err(error) if error.is_absent() => Ok(()),
        Err(error) => Err(error),
    }
}

impl Sink for StoreSink {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        let attributes = attributes(&self.layout, window);
        let mut notes = vec![("summary", window.summary().name.clone())];
        if let Some((start, end)) = window.span() {
            notes.extend([("start", time(start)), ("end", time(end))]);
        }
        let facts = (attributes, provenance(notes));
        publish(&self.env, &self.folder, self.continues, facts, &mut |batch| {
            batch.push_run(&mut run(&self.layout, window, Seed(0))?)
        })
    }
}

/// Returns what `hashfold versions` shows of a version: names and texts.
pub(crate) fn provenance(notes: Vec<(&str, String)>) -> Attributes {
    notes.into_iter().map(|(name, text)| (name.into(), text.into_bytes())).collect()
}

/// Publishes a version of a store with the entries that `fill` puts into a batch, and no others. The last attribute says what
/// the version is of: if `continues`, and there is a version with this attribute, no other is made; it is published if a
/// crash came before that.
pub(crate) fn publish(
    env: &Env,
    folder: &Path,
    continues: bool,
    (attributes, provenance): (Attributes, Attributes),
    fill: &mut dyn FnMut(&mut Batch) -> Result<()>,
) -> Result<()> {
    let options = StoreOptions::new().env(env.clone()).chunks(1).attributes(attributes.clone());
    let store = Store::open_or_create_with(folder, options)?;
    let mut writer = store.writer()?;
    let own = attributes.last();
    let is_own = |name: &VersionName| {
        // A damaged version is found by `hashfold verify`.
        let info = writer.version(name.number);
        info.is_ok_and(|info| info.attributes.iter().any(|attribute| Some(attribute) == own))
    };
    if let Some(VersionName { number, .. }) =
        writer.pointer().versions.iter().find(|name| continues && is_own(name)).copied()
    {
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
    writer.publish(version.name.number)
}
