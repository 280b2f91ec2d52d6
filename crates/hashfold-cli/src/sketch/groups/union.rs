//! `hashfold sketch union OUT DIR...`: one table of the groups of several.

use super::{Groups, attributes, require_folders};
use crate::{
    device,
    failure::{Failure, Result},
    folder,
    output::write_line,
    preview,
    progress::{Progress, Show, Unit},
    stop::Stop,
    units,
};
use hashfold::{
    Env,
    run::Run,
    sketch::{GroupOptions, GroupUnion},
    table::{TableBuilder, TableOptions},
};
use std::path::{Path, PathBuf};

/// Writes the union of tables of groups, in one sequential merge.
pub(in crate::sketch) fn union(out: &Path, folders: &[PathBuf]) -> Result<()> {
    require_folders(folders)?;
    if Groups::open_if_any(out)?.is_none() {
        folder::check_empty(out, "table of groups", &[hashfold::manifest::FIRST_NAME])?;
    }
    let all: Vec<Groups> = folders.iter().map(|path| Groups::open(path)).collect::<Result<_>>()?;
    let (first, family, seed) = (&all[0], all[0].family, all[0].table.stats().seed);
    for other in &all[1..] {
        check_alike(first, other)?;
    }
    let precision = all.iter().map(|groups| groups.precision).min().unwrap_or_default();
    let stop = Stop::on_signals()?;
    let env = Env { executor: device::executor(None), ..Env::system() };
    let sketches = GroupOptions::new().family(family).precision(precision).attribute()?;
    let options = TableOptions::new()
        .env(env.clone())
        .seed(seed)
        .id(device::random()?)
        .attributes(attributes(&first.by, sketches))
        .replace(true);
    let builder = TableBuilder::with(out, options)?;
    let scan = |groups: &Groups| -> Box<dyn Run> {
        Box::new(groups.table.scan().reading_ahead(env.executor.clone()))
    };
    let mut run = GroupUnion::new(all.iter().map(scan).collect(), family, precision)?;
    let total = Some(run.summary().entries_max);
    let progress = Progress::start(Show::Text, "writing", Unit::Entries, total);
    let table = builder.build(&mut run, &stop.watch(progress))?;
    write_line(format_args!(
        "wrote {}: {}, {}",
        out.display(),
        units::counted(table.entries, "group", "groups"),
        units::bytes(table.data_bytes),
    ))
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
