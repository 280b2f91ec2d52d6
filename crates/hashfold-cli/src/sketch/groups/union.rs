//! `hashfold sketch union OUT DIR...`: one table of the groups of several.

use super::{super::file::refuse_existing, Groups, attributes, require_folders};
use crate::{
    device,
    failure::{Exit, Failure, Result},
    folder,
    output::write_line,
    preview,
    progress::{Progress, Show, Unit},
    stop::Stop,
    units,
    wait::WaitArgs,
};
use hashfold::{
    Env,
    run::Run,
    sketch::{GroupOptions, GroupUnion},
    table::{TableBuilder, TableOptions},
};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Writes the union of tables of groups, in one sequential merge.
pub(in crate::sketch) fn union(
    (out, replace): (&Path, bool),
    folders: &[PathBuf],
    (wait, show): (WaitArgs, Show),
) -> Result<()> {
    require_folders(folders)?;
    match Groups::open_if_any(out)? {
        Some(_) => refuse_existing(out, folders, replace)?,
        None => folder::check_empty(out, "table of groups", &[hashfold::manifest::FIRST_NAME])?,
    }
    let (_, options, by) = open(folders)?;
    let stop = Stop::on_signals()?;
    let env = Env { executor: device::executor(None), ..Env::system() };
    let table = TableOptions::new()
        .env(env.clone())
        .seed(options.group_seed())
        .id(device::random()?)
        .attributes(attributes(&by, options.attribute()?))
        .replace(true);
    let builder = wait.retry(&stop, || Ok(TableBuilder::with(out, table.clone())?))?;
    // Others may have added to the table before it was locked.
    let (all, now, by_now) = open(folders)?;
    if (now, &by_now) != (options, &by) {
        let path = out.display();
        let message = format!("{path}: its parts were replaced meanwhile; unite them again");
        return Err(Failure { exit: Exit::Busy, message });
    }
    let scan = |groups: &Groups| -> Box<dyn Run> {
        Box::new(groups.table.scan().reading_ahead(env.executor.clone()))
    };
    let mut run = GroupUnion::new(all.iter().map(scan).collect(), &options)?;
    let total = Some(run.summary().entries_max);
    let progress = Progress::start(show, "writing", Unit::Entries, total);
    let table = builder.build(&mut run, &stop.watch(progress))?;
    if show == Show::Json {
        return write_line(json!({
            "event": "united", "groups": out.display().to_string(), "group_count": table.entries,
            "bytes": table.data_bytes,
        }));
    }
    write_line(format_args!(
        "wrote {}: {}, {}",
        out.display(),
        units::counted(table.entries, "group", "groups"),
        units::bytes(table.data_bytes),
    ))
}

/// Opens tables of groups, which are alike. Returns the options of their union, and the column with the groups.
fn open(folders: &[PathBuf]) -> Result<(Vec<Groups>, GroupOptions, String)> {
    let all: Vec<Groups> = folders.iter().map(|path| Groups::open(path)).collect::<Result<_>>()?;
    let first = &all[0];
    all[1..].iter().try_for_each(|other| check_alike(first, other))?;
    let precision = all.iter().map(|groups| groups.precision).min().unwrap_or_default();
    let options = GroupOptions::new().family(first.family).precision(precision);
    let (options, by) = (options.seed(first.table.stats().seed), first.by.clone());
    Ok((all, options, by))
}

/// Refuses groups that cannot be combined with others.
fn check_alike(first: &Groups, other: &Groups) -> Result<()> {
    let path = other.path.display();
    if other.by != first.by {
        return Err(Failure::usage(format!(
            "{path}: has groups by \"{}\", expected \"{}\", as in {}",
            preview::name(&other.by),
            preview::name(&first.by),
            first.path.display()
        )));
    }
    if other.family != first.family {
        return Err(Failure::usage(format!(
            "{path}: has the hash function {}, expected {}, as in {}; add the rows again",
            other.family,
            first.family,
            first.path.display()
        )));
    }
    Ok(())
}
