//! Tables of groups: a sketch for each group of rows. `add --by` makes them; the other verbs take a folder where they take
//! a file.

mod add;
mod count;
mod show;
mod union;

pub(super) use self::{
    add::{Call, GroupArgs},
    count::{Which, count},
    show::show,
    union::union,
};

use crate::{
    failure::{Exit, Failure, Result},
    folder, preview,
};
use hashfold::{
    Error, ErrorKind, ReadOptions, Table,
    error::Place,
    folder::Contents,
    io::Access,
    manifest::Kind,
    sketch::{Family, Hll, groups::GROUPS_ATTRIBUTE},
};
use hashfold_rows::{Column, Kind as ColumnKind, Schema};
use std::path::{Path, PathBuf};

/// Name of the column with the sketches.
const SKETCH_COLUMN: &str = "sketch";

/// An open table of groups.
#[derive(Debug)]
pub(super) struct Groups {
    path: PathBuf,
    table: Table,
    /// Name of the column with the groups.
    by: String,
    family: Family,
    precision: u8,
}

impl Groups {
    /// Opens a table of groups; `None` if there is no data set in the folder.
    fn open_if_any(path: &Path) -> Result<Option<Groups>> {
        match folder::holds(path)? {
            Contents::Nothing => return Ok(None),
            contents if contents.kind() == Some(Kind::Table) => {}
            _ => folder::refuse_store(path, "expected a table of groups")?,
        }
        let table = Table::open_with(path, &ReadOptions::new().index(Access::Mapped))?;
        let Some(attribute) = table.attribute(GROUPS_ATTRIBUTE) else {
            return Err(Failure::usage(format!(
                "{}: is a table whose values are not sketches; `hashfold sketch add DIR --by COL --key COL \
                 FILE` makes a table of groups",
                path.display()
            )));
        };
        let empty = Hll::from_bytes(attribute).map_err(|error| error.at(&Place::file(path)))?;
        let by = Schema::of_table(&table)?.key;
        let (family, precision) = (empty.family(), empty.precision());
        Ok(Some(Groups { path: path.to_owned(), table, by, family, precision }))
    }

    /// Opens a table of groups.
    pub(super) fn open(path: &Path) -> Result<Groups> {
        Groups::open_if_any(path)?.ok_or_else(|| {
            let path = path.display();
            Failure::usage(format!(
                "{path}: there are no groups here; `hashfold sketch add {path} --by COL --key COL FILE` \
                 makes them"
            ))
        })
    }

    /// Returns the sketch of a group.
    fn get_if_any(&self, group: &[u8]) -> Result<Option<Hll>> {
        let value = self.table.get(group)?;
        value.map(|value| self.read(group, &value)).transpose()
    }

    /// Returns the sketch of a group.
    pub(super) fn get(&self, group: &[u8]) -> Result<Hll> {
        self.get_if_any(group)?.ok_or_else(|| self.absent(group))
    }

    fn absent(&self, group: &[u8]) -> Failure {
        let (path, group) = (self.path.display(), preview::key(group));
        Failure { exit: Exit::No, message: format!("{path}: there is no group {group}") }
    }

    /// Reads the sketch of a group; names the group if it is damaged.
    fn read(&self, group: &[u8], value: &[u8]) -> Result<Hll> {
        let sketch = Hll::from_bytes(value).map_err(|reason| {
            let kind = ErrorKind::Value { key: group.into(), reason: Box::new(reason) };
            Error::new(kind).at(&Place::file(&self.path))
        });
        Ok(sketch?)
    }
}

/// Whether a path is the folder of a table of groups.
pub(super) fn is_table(path: &Path) -> Result<bool> {
    if !path.is_dir() || folder::holds(path)?.kind() != Some(Kind::Table) {
        return Ok(false);
    }
    let table = Table::open_with(path, &ReadOptions::new().without_index())?;
    Ok(table.attribute(GROUPS_ATTRIBUTE).is_some())
}

/// Splits `DIR:GROUP` if there is a folder of this name; each may have colons.
pub(super) fn split(path: &Path) -> Option<(&Path, &str)> {
    let path = path.to_str()?;
    let parts = path.match_indices(':').map(|(at, _)| (Path::new(&path[..at]), &path[at + 1..]));
    parts.into_iter().find(|(folder, _)| folder.is_dir())
}

/// Refuses files among folders.
fn require_folders(paths: &[PathBuf]) -> Result<()> {
    match paths.iter().find(|path| !path.is_dir()) {
        None => Ok(()),
        Some(file) => Err(Failure::usage(format!(
            "{}: is no folder, and a table of groups is combined with others only; one group is DIR:GROUP",
            file.display()
        ))),
    }
}

/// Returns the attributes of a table of groups.
fn attributes(by: &str, sketches: (String, Vec<u8>)) -> Vec<(String, Vec<u8>)> {
    let column = Column { name: SKETCH_COLUMN.into(), kind: ColumnKind::Binary };
    let schema = Schema::new(by, vec![column]);
    vec![(Schema::ATTRIBUTE.to_owned(), schema.to_json()), sketches]
}
