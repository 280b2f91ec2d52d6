//! Windows as tables and as versions of stores.

use crate::{
    places::{is_file, is_no_folder},
    rows::Layout,
    versions::{Versions, provenance, while_busy},
};
use hashfold::{
    Env, Error, ErrorClass, ErrorKind, ReadOptions, Result, Seed, Table, TableBuilder,
    TableOptions,
    pipeline::{Sink, Window},
    run::VecRun,
    store::Attributes,
    work::Watch,
};
use hashfold_rows::{Schema, utc_of_ms};
use serde_json::json;
use std::{
    iter,
    path::{Path, PathBuf},
};

/// Name of the attribute of a table or version that has the window.
const WINDOW: &str = "window";

/// Writes each window as a table, whose folder has the name of the window's start.
#[derive(Debug)]
pub(crate) struct TableSink {
    /// Folder of the tables.
    pub(crate) folder: PathBuf,
    pub(crate) layout: Layout,
    pub(crate) env: Env,
    /// Id of the run, and of those that it continues.
    pub(crate) run: u64,
    /// Names of tables of windows that had one already, as they were before the first window; `None` before that.
    pub(crate) numbered: Option<Vec<String>>,
}

/// Publishes each window as a version of a store.
#[derive(Debug)]
pub(crate) struct StoreSink {
    pub(crate) versions: Versions,
    pub(crate) layout: Layout,
    /// Id of the run, and of those that it continues.
    pub(crate) run: u64,
}

/// Returns the name of a window: `2026-11-27T01-00-00Z`, with milliseconds if they are not 0, or `all`.
pub(crate) fn window_name(span: Option<(i64, i64)>) -> String {
    span.map_or_else(|| "all".into(), |(start, _)| utc_of_ms(start).replace(':', "-"))
}

/// Returns the id of a run as it is in attributes.
pub(crate) fn run_name(run: u64) -> String {
    format!("{run:016x}")
}

/// Returns the attributes of a window. The last one says which one it is, and of which run.
fn attributes(layout: &Layout, window: &Window<'_>, run: u64) -> Attributes {
    let span = window.span();
    let window = json!({
        "summary": window.summary().name,
        "start_ms": span.map(|(start, _)| start),
        "end_ms": span.map(|(_, end)| end),
        "run": run_name(run),
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
    /// Begins the table of a window; `None` if it is there, since a crash came after it. One of another run stays: the name of
    /// the new one ends with a number then.
    fn begin(&mut self, window: &Window<'_>) -> Result<Option<TableBuilder>> {
        let name = window_name(window.span());
        let attributes = attributes(&self.layout, window, self.run);
        let own = attributes.last().cloned();
        let named = self.folder.join(&name);
        // Those of other runs, which its name avoids, may have been removed since.
        for folder in iter::once(named.clone()).chain(self.numbered(&name)?) {
            if self.is_own(&folder, own.as_ref())? {
                return Ok(None);
            }
        }
        let options = TableOptions::new().env(self.env.clone()).attributes(attributes);
        let (mut folder, mut number) = (named, 1);
        loop {
            match while_busy(&self.env, || TableBuilder::with(&folder, options.clone())) {
                Err(error) if is_data_set(&error) || is_file(self.env.disk.as_ref(), &folder) => {}
                // A damaged table is found by `hashfold verify`.
                Err(error) if error.class() == ErrorClass::Damage => {}
                builder => return builder.map(Some),
            }
            number += 1;
            folder = self.folder.join(format!("{name}-{number}"));
        }
    }

    /// Returns the tables of a window whose names end with a number, as they were before the first window.
    fn numbered(&mut self, name: &str) -> Result<Vec<PathBuf>> {
        let all = match &self.numbered {
            Some(all) => all,
            None => {
                let mut all = self.env.disk.list(&self.folder)?;
                all.retain(|name| without_number(name).is_some());
                self.numbered.insert(all)
            }
        };
        let of_window = all.iter().filter(|numbered| without_number(numbered) == Some(name));
        Ok(of_window.map(|numbered| self.folder.join(numbered)).collect())
    }

    /// Whether the table in a folder has an attribute.
    fn is_own(&self, folder: &Path, own: Option<&(String, Vec<u8>)>) -> Result<bool> {
        match Table::open_with(folder, &ReadOptions::new().env(self.env.clone())) {
            Ok(table) => Ok(own.is_some_and(|(name, of)| table.attribute(name) == Some(of))),
            Err(error) if error.class() == ErrorClass::Damage || is_no_table(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Whether there is no table: a file, a data set of another kind, or a folder without a manifest, since a crash came before
/// that.
fn is_no_table(error: &Error) -> bool {
    error.is_absent() || is_data_set(error) || is_no_folder(error)
}

/// Whether a table cannot be made or opened since a data set is there: a table, or one of another kind.
fn is_data_set(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Exists | ErrorKind::WrongKind { .. })
}

/// Returns the name of a window from that of a table with a number at its end.
fn without_number(name: &str) -> Option<&str> {
    let (name, number) = name.rsplit_once('-')?;
    number.parse::<u64>().is_ok().then_some(name)
}

impl Sink for TableSink {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        let Some(builder) = self.begin(window)? else { return Ok(()) };
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
        let attributes = attributes(&self.layout, window, self.run);
        let mut notes = vec![("summary", window.summary().name.clone())];
        if let Some((start, end)) = window.span() {
            notes.extend([("start", utc_of_ms(start)), ("end", utc_of_ms(end))]);
        }
        let facts = (attributes, provenance(notes));
        let layout = &self.layout;
        self.versions
            .publish(facts, &mut |batch| batch.push_run(&mut run(layout, window, Seed(0))?))
    }
}
