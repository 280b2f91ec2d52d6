//! The lines that report damage, and the last line, which reports the amounts read.

use crate::{
    failure::{Exit, Failure, Result},
    output::write_line,
    units,
};
use hashfold::Error;
use serde_json::{Value, json};
use std::path::Path;

/// Prints the damage of a data set and the amounts read: as a JSON object if one is given, else as
/// text if there is no damage. Damage is a failure whose message says what to do.
pub(crate) fn conclude(
    folder: &Path,
    damage: &[Error],
    object: Option<Value>,
    read: &str,
    remedy: &str,
) -> Result<Exit> {
    print_damage(damage, object.is_some())?;
    let (folder, problems) = (folder.display(), damage.len());
    if let Some(mut object) = object {
        object["event"] = json!("verified");
        object["problems"] = json!(problems);
        write_line(object)?;
    } else if damage.is_empty() {
        write_line(format_args!("verified {folder}: {read}, no damage"))?;
    }
    if damage.is_empty() {
        return Ok(Exit::Done);
    }
    let found = units::counted(problems as u64, "problem", "problems");
    Err(Failure { exit: Exit::No, message: format!("{folder}: {found} found; {remedy}") })
}

/// Prints one line per problem.
pub(super) fn print_damage(damages: &[Error], json: bool) -> Result<()> {
    damages.iter().try_for_each(|damage| match json {
        true => write_line(damage_json(damage)),
        false => write_line(damage),
    })
}

fn damage_json(damage: &Error) -> Value {
    let place = damage.place();
    json!({
        "event": "problem",
        "file": place.map(|place| place.file.to_string_lossy()),
        "offset": place.and_then(|place| place.offset),
        "what": damage.kind().to_string(),
    })
}
