//! A new map with all entries of a salvage, in spans. Its manifest is published last.

use super::run::Salvage;
use crate::{
    error::Result,
    map::{MapOptions, new_groups::NewGroups, recovery},
    run::Run,
    work::Watch,
};
use std::path::Path;

impl Salvage {
    /// Writes all entries that the run has not returned yet to a new map in another folder, with the
    /// same seed and attributes, and the environment and memory of the options. Entries expire there
    /// when they did in the damaged map. After an error or a crash, the
    /// folder is not a map, and a salvage to it can be repeated. Returns the number of entries, which
    /// is the unit of `watch`, too.
    ///
    /// # Errors
    /// `Exists` if there is a map in the folder, `WrongKind` if there is another data set; the disk is
    /// full.
    pub fn write_map(&mut self, folder: impl AsRef<Path>, watch: &Watch) -> Result<u64> {
        write_map(self, folder.as_ref(), watch)
    }
}

/// Writes the entries of `from` to a new map. Returns their number.
fn write_map(from: &mut Salvage, folder: &Path, watch: &Watch) -> Result<u64> {
    let options = MapOptions {
        seed: Some(from.seed()),
        attributes: from.attributes().to_vec(),
        devices: Vec::new(),
        ..from.options.clone()
    };
    let new = recovery::begin(folder, options)?;
    let mut groups = NewGroups::new(&new);
    let mut count = 0;
    while from.advance()? {
        let (change, large) = from.change();
        groups.push(change, |_| Ok(large))?;
        watch.add(1)?;
        count += 1;
    }
    recovery::publish(&new, groups.finish()?)?;
    Ok(count)
}
