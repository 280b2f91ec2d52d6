//! `hashfold verify` of a store: checks versions, and repairs them from a copy.

use super::{args::VerifyArgs, report::print_damage};
use crate::{
    device,
    failure::{Exit, Failure, Result},
    folder,
    output::write_line,
    progress::{Progress, Unit},
    stop::Stop,
    units,
};
use hashfold::{
    Env, ErrorClass,
    store::{self, CurrentFrom, Mending, Pointer, StoreFigures, StoreWriter},
    verify::VerifyReport,
    work::Watch,
};
use serde_json::json;
use std::{collections::HashMap, path::Path};

/// Totals of all versions that were read.
#[derive(Default)]
struct Found {
    versions: Vec<u64>,
    tables: u64,
    bytes: u64,
    problems: u64,
    repaired: u64,
    /// Number of problems that are left.
    left: u64,
}

impl Found {
    fn add(&mut self, report: &VerifyReport<StoreFigures>) {
        self.tables += report.figures.tables;
        self.bytes += report.figures.bytes;
        self.problems += report.damage.len() as u64;
        self.repaired += report.figures.mended;
    }
}

pub(super) fn run(args: &VerifyArgs) -> Result<Exit> {
    let folder = &args.source.folder;
    let stop = Stop::on_signals()?;
    let mut found = Found::default();
    let mut writer = match args.repairs() {
        true => Some(mend(args, &mut found)?),
        false => None,
    };
    // Damage that prevents opening the store is reported like any other.
    if let Err(error) = Pointer::read(device::disk().as_ref(), folder) {
        if error.class() != ErrorClass::Damage {
            return Err(error.into());
        }
        print_damage(&[error], args.json)?;
        (found.problems, found.left) = (1, 1);
        return conclude(args, &found);
    }
    let numbers = match (args.all, args.source.version) {
        (true, _) => all(folder)?,
        (false, Some(number)) => vec![number],
        (false, None) => vec![folder::current(folder)?],
    };
    match writer.as_mut().zip(args.repair_from.as_deref()) {
        None => check(args, &numbers, &stop, &mut found)?,
        Some((writer, copy)) => {
            numbers
                .iter()
                .try_for_each(|number| repair(args, *number, (writer, copy), &stop, &mut found))?;
        }
    }
    check_others(args, &numbers, &mut found)?;
    conclude(args, &found)
}

fn all(folder: &Path) -> Result<Vec<u64>> {
    let versions = store::versions(&Env::system(), folder)?;
    Ok(versions.into_iter().map(|(number, _)| number).collect())
}

/// Repairs `CURRENT` and the version files, and opens the store to repair its tables.
fn mend(args: &VerifyArgs, found: &mut Found) -> Result<StoreWriter> {
    let (folder, copy) = (&args.source.folder, args.repair_from.as_deref());
    let (executor, version) = (device::executor(None), args.source.version);
    let mending = StoreWriter::mend(&Env { executor, ..Env::system() }, folder, copy, version)?;
    let Mending { writer, report, current_from } = mending;
    print_damage(&report.damage, args.json)?;
    found.add(&report);
    folder::note_unlisted(folder, &writer);
    let pointer = writer.pointer();
    if let (Some(from), Some(current)) = (current_from, pointer.current) {
        let (source, doubt) = match from {
            CurrentFrom::Copy => ("copy", Vec::new()),
            CurrentFrom::Versions => ("version files", doubts(folder, pointer, current)),
        };
        match args.json {
            true => write_line(json!({
                "event": "rebuilt CURRENT", "from": source, "version": current,
            }))?,
            false => {
                write_line(format_args!(
                    "rebuilt CURRENT from the {source}: version {current} is current"
                ))?;
                doubt.iter().try_for_each(write_line)?;
            }
        }
    }
    Ok(writer)
}

/// Describes the facts that are unknown after `CURRENT` was rebuilt from version files.
fn doubts(folder: &Path, pointer: &Pointer, current: u64) -> Vec<String> {
    let newest = pointer.versions.last().map_or(current, |newest| newest.number);
    let newer = (newest > current).then(|| {
        format!(
            "version {newest} is newer, and it is not known whether it was published: `hashfold \
             publish {} {newest}` makes it current",
            folder.display()
        )
    });
    let pinned = "all versions are pinned, because it is not known which were pinned or bad";
    newer.into_iter().chain([pinned.to_owned()]).collect()
}

/// Reports other versions whose version files are lost or damaged; they stop the removal of tables.
fn check_others(args: &VerifyArgs, checked: &[u64], found: &mut Found) -> Result<()> {
    for (number, info) in store::versions(&Env::system(), &args.source.folder)? {
        if let Err(error) = info
            && !checked.contains(&number)
        {
            print_damage(&[error], args.json)?;
            found.problems += 1;
            found.left += 1;
        }
    }
    Ok(())
}

/// Verifies versions. The damage of a table that several of them have is printed once.
fn check(args: &VerifyArgs, numbers: &[u64], stop: &Stop, found: &mut Found) -> Result<()> {
    let (disk, folder) = (device::disk(), &args.source.folder);
    let report =
        store::verify_versions(&Env::on(disk), folder, numbers, &watch(args, numbers, stop)?);
    let report = match numbers {
        [number] => report.map_err(folder::about_version(folder, *number))?,
        _ => report?,
    };
    print_damage(&report.damage, args.json)?;
    found.versions.extend(numbers);
    found.add(&report);
    found.left += report.damage.len() as u64;
    Ok(())
}

/// Repairs a version from a copy, and verifies it again.
fn repair(
    args: &VerifyArgs,
    number: u64,
    (writer, copy): (&mut StoreWriter, &Path),
    stop: &Stop,
    found: &mut Found,
) -> Result<()> {
    let (disk, folder) = (device::disk(), &args.source.folder);
    let mut report = writer.repair(number, copy, &watch(args, &[number], stop)?)?;
    print_damage(&report.damage, args.json)?;
    found.versions.push(number);
    found.add(&report);
    if report.figures.mended > 0 {
        report = store::verify(&Env::on(disk), folder, number, &watch(args, &[number], stop)?)?;
    }
    found.left += report.damage.len() as u64;
    Ok(())
}

/// Returns a watch that shows the progress of reading all files of some versions.
fn watch(args: &VerifyArgs, numbers: &[u64], stop: &Stop) -> Result<Watch> {
    let mut tables = HashMap::new();
    for (number, info) in store::versions(&Env::on(device::disk()), &args.source.folder)? {
        if let Ok(info) = info
            && numbers.contains(&number)
        {
            tables.extend(info.layers().map(|layer| (layer.table, layer.bytes)));
        }
    }
    let bytes = (!tables.is_empty()).then(|| tables.values().sum());
    Ok(stop.watch(Progress::start(args.show(), "verifying", Unit::Bytes, bytes)))
}

fn conclude(args: &VerifyArgs, found: &Found) -> Result<Exit> {
    let folder = args.source.folder.display();
    if args.json {
        write_line(json!({
            "event": "verified", "store": args.source.folder.to_string_lossy(),
            "versions": found.versions, "tables": found.tables, "bytes": found.bytes,
            "problems": found.problems, "repaired": found.repaired, "problems_left": found.left,
        }))?;
    } else if found.left == 0 {
        let numbers: Vec<String> = found.versions.iter().map(u64::to_string).collect();
        let what = match found.problems {
            0 => "no damage".into(),
            _ => format!("{} repaired", units::counted(found.repaired, "piece", "pieces")),
        };
        write_line(format_args!(
            "verified {folder}: version {}: {} in {}, {what}",
            numbers.join(", "),
            units::bytes(found.bytes),
            units::counted(found.tables, "table", "tables"),
        ))?;
    }
    match found.left {
        0 => Ok(Exit::Done),
        count => Err(Failure {
            exit: Exit::No,
            message: format!(
                "{folder}: {} found; repair the store with --repair-from COPY (or CURRENT alone \
                 with --repair), roll back to another version, or make this one again",
                units::counted(count, "problem", "problems")
            ),
        }),
    }
}
