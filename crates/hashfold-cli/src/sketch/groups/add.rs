//! `hashfold sketch add DIR --by COL`: a sketch for each group of rows.

use super::{Groups, attributes};
use crate::{
    device,
    failure::{Exit, Failure, Result},
    folder,
    input::{Inputs, Selection},
    output::write_line,
    preview,
    progress::{Progress, Show, Unit},
    rows::{self, FileArgs},
    stop::Stop,
    units,
    wait::WaitArgs,
};
use clap::Args;
use hashfold::{
    Env,
    run::Run,
    sketch::{GroupBuilder, GroupOptions, GroupUnion},
    table::{TableBuilder, TableOptions, TableStats},
};
use serde_json::json;
use std::{path::Path, time::Instant};

/// Options for groups of rows.
#[derive(Args, Debug)]
pub(in crate::sketch) struct GroupArgs {
    /// Column with the groups: make a table with a sketch for each group, or add to it. FILE is a folder
    /// then, KEY... are files of rows, and --key is the column whose distinct values are counted in each
    /// group; nulls are not
    #[arg(long, value_name = "COL", requires = "key")]
    by: Option<String>,
    /// Memory budget for groups, at least 1MiB, and 64 · 2^P with --precision P; the rest spills to the folder [default: 1GiB]
    #[arg(long, value_name = "SIZE", requires = "by", value_parser = units::parse_memory)]
    memory: Option<usize>,
    #[command(flatten)]
    wait: WaitArgs,
}

/// The arguments of `sketch add --by`.
pub(in crate::sketch) struct Call<'a> {
    pub(in crate::sketch) folder: &'a Path,
    pub(in crate::sketch) inputs: Vec<String>,
    pub(in crate::sketch) files: &'a FileArgs,
    pub(in crate::sketch) precision: Option<u8>,
    pub(in crate::sketch) json: bool,
}

/// Results that the summary shows.
struct Outcome {
    rows: u64,
    bad_rows: u64,
    spilled_bytes: u64,
    seconds: f64,
}

impl GroupArgs {
    /// Whether rows are grouped.
    pub(in crate::sketch) fn is_given(&self) -> bool {
        self.by.is_some()
    }

    /// Adds the rows of files to the groups of their column.
    pub(in crate::sketch) fn run(&self, call: &Call<'_>) -> Result<Exit> {
        let start = Instant::now();
        let by = self.by.as_deref().expect("it was asked for");
        check_columns(by, call.files)?;
        check_folder(call.folder)?;
        let stop = Stop::on_signals()?;
        let inputs = Inputs::open(&call.inputs, self.read_options(by, call.files), &stop)?;
        let env = Env { executor: device::executor(None), ..Env::system() };
        let old = Groups::open_if_any(call.folder)?;
        let options = self.options(call, by, old.as_ref())?;
        let table = table_options(&env, by, &options)?;
        let create = || Ok(TableBuilder::with(call.folder, table.clone())?);
        let builder = self.wait.retry(&stop, create)?;
        // Others may have changed the groups before the folder was locked.
        let old = Groups::open_if_any(call.folder)?;
        if self.options(call, by, old.as_ref())? != options {
            let path = call.folder.display();
            let message =
                format!("{path}: was replaced by another table meanwhile; add the rows again");
            return Err(Failure { exit: Exit::Busy, message });
        }
        let mut groups = GroupBuilder::new(&env, builder.spill_path(), &options)?;
        let bad_rows = take(inputs, call, &stop, &mut groups)?;
        let added = groups.finish()?;
        let stats = added.stats();
        let mut run: Box<dyn Run> = Box::new(added);
        if let Some(old) = old {
            let scan = old.table.scan().reading_ahead(env.executor.clone());
            run = Box::new(GroupUnion::new(vec![Box::new(scan), run], &options)?);
        }
        let total = Some(run.summary().entries_max);
        let progress = Progress::start(call.show(), "writing", Unit::Entries, total);
        let table = builder.build(&mut run, &stop.watch(progress))?;
        let seconds = start.elapsed().as_secs_f64();
        let (rows, spilled_bytes) = (stats.rows, stats.spilled_bytes);
        call.report(&table, &Outcome { rows, bad_rows, spilled_bytes, seconds })?;
        Ok(Exit::Done)
    }

    fn read_options(&self, by: &str, files: &FileArgs) -> crate::input::ReadOptions {
        let key = files.key.clone().expect("--by requires it");
        let selection =
            Selection { values: vec![key], values_are_keys: true, ..Selection::default() };
        let mut options = files.read_options(selection);
        options.selection.key = Some(by.to_owned());
        options
    }

    /// Returns the options of the group-by: those of the groups that are there.
    fn options(&self, call: &Call<'_>, by: &str, old: Option<&Groups>) -> Result<GroupOptions> {
        let options = match self.memory {
            Some(memory) => GroupOptions::new().memory(memory),
            None => GroupOptions::new(),
        };
        let precision = call.precision.unwrap_or(super::super::add::PRECISION);
        let Some(old) = old else { return Ok(options.precision(precision)) };
        let path = old.path.display();
        if call.precision.is_some_and(|precision| precision != old.precision) {
            return Err(Failure::usage(format!(
                "{path}: has the precision {}, expected {precision}; --precision is for new sketches",
                old.precision
            )));
        }
        if by != old.by {
            return Err(Failure::usage(format!(
                "{path}: has groups by \"{}\", expected \"{}\"; name another folder",
                preview::name(&old.by),
                preview::name(by)
            )));
        }
        let seed = old.table.stats().seed;
        Ok(options.precision(old.precision).family(old.family).seed(seed))
    }
}

/// Refuses one column for the groups and for their keys: each group would have one key, its name.
fn check_columns(by: &str, files: &FileArgs) -> Result<()> {
    match files.key.as_deref() == Some(by) {
        false => Ok(()),
        true => Err(Failure::usage(format!(
            "--by and --key name the same column \"{}\", so that each group would have one key; name \
             the column whose values are counted with --key",
            preview::name(by)
        ))),
    }
}

/// Refuses a folder that holds others than groups, before any input is read.
fn check_folder(path: &Path) -> Result<()> {
    if path.is_file() {
        return Err(Failure::usage(format!(
            "{}: is a file, expected a folder for a table of groups; without --by, keys are added to a sketch",
            path.display()
        )));
    }
    match Groups::open_if_any(path)? {
        Some(_) => Ok(()),
        None => folder::check_empty(path, "table of groups", &[hashfold::manifest::FIRST_NAME]),
    }
}

/// Returns the options of the table.
fn table_options(env: &Env, by: &str, options: &GroupOptions) -> Result<TableOptions> {
    let table = TableOptions::new().env(env.clone()).id(device::random()?).replace(true);
    Ok(table.seed(options.group_seed()).attributes(attributes(by, options.attribute()?)))
}

/// Adds all rows. Returns the number of bad rows.
fn take(inputs: Inputs, call: &Call<'_>, stop: &Stop, groups: &mut GroupBuilder) -> Result<u64> {
    let meter = inputs.meter.clone();
    let feed = inputs.start(call.files.bad_row_policy())?;
    let progress = rows::progress(&call.inputs, call.show());
    let taken = rows::take_all(feed, &meter, progress, stop, |group, key| {
        match key {
            Some(key) => groups.add(group, key)?,
            // A null is no key, but its group is there.
            None => groups.add_group(group)?,
        }
        Ok(())
    })?;
    Ok(taken.bad_rows)
}

impl Call<'_> {
    fn show(&self) -> Show {
        if self.json { Show::Json } else { Show::Text }
    }

    fn report(&self, table: &TableStats, outcome: &Outcome) -> Result<()> {
        let &Outcome { rows, bad_rows, spilled_bytes, seconds } = outcome;
        let path = self.folder.display();
        if self.json {
            return write_line(json!({
                "event": "added", "groups": path.to_string(), "rows": rows, "bad_rows": bad_rows,
                "group_count": table.entries, "bytes": table.data_bytes,
                "spilled_bytes": spilled_bytes, "seconds": seconds,
            }));
        }
        write_line(format_args!(
            "added to {path}: {}{}; {seconds:.1} s, {} rows/s\n{}, {}",
            units::counted(rows, "row", "rows"),
            self.files.bad_rows_note(bad_rows),
            units::count(units::per_second(rows, seconds)),
            units::counted(table.entries, "group", "groups"),
            units::bytes(table.data_bytes),
        ))
    }
}
