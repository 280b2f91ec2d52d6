//! Deltas that repeat the delta below them, such as those of a batch that is applied twice.

use super::{
    delta::Untagged,
    layer::folder_of,
    tables::{is_of_table, open_layer},
    version::{Layer, VersionInfo},
    write::{StoreWriter, remove_table},
};
use crate::{error::Result, io::Access, options::ReadOptions, run::Run, table::TableScan};

impl StoreWriter {
    /// Removes the table of a new delta that has the same entries as the delta of `parent` right
    /// below it; returns whether it did. The version then shares the delta of its parent. Reads both
    /// tables, but only if their facts in the version file are equal.
    pub(super) fn drop_repeat(&self, new: &Layer, parent: &VersionInfo) -> Result<bool> {
        let is_below =
            |old: &&Layer| old.chunks.ranges().iter().any(|range| new.chunks.count_in(range) > 0);
        let Some(old) = parent.deltas.iter().rev().find(is_below) else { return Ok(false) };
        let facts = |layer: &Layer| {
            let hashes = layer.hashes.clone();
            (layer.chunks.clone(), layer.entries, layer.deletions, hashes, layer.sizes)
        };
        let is_repeat = !old.is_part
            && facts(old) == facts(new)
            && match self.have_same_entries(old, new, parent) {
                // A damaged delta is not shared.
                Err(error) if is_of_table(&error) => false,
                same => same?,
            };
        if is_repeat {
            remove_table(self.env.disk.as_ref(), &folder_of(&self.tables(), new.table))?;
        }
        Ok(is_repeat)
    }

    fn have_same_entries(&self, old: &Layer, new: &Layer, info: &VersionInfo) -> Result<bool> {
        let options = ReadOptions::new().env(self.env.clone());
        let options = options.data(Access::Direct).index(Access::Mapped);
        let scan = |layer: &Layer| -> Result<Untagged<TableScan>> {
            let table = open_layer(&self.tables(), info, layer, &options)?;
            Ok(Untagged(table.scan().reading_ahead(self.env.executor.clone())))
        };
        let (mut old, mut new) = (scan(old)?, scan(new)?);
        while old.advance()? {
            if !new.advance()? || old.entry() != new.entry() {
                return Ok(false);
            }
        }
        Ok(!new.advance()?)
    }
}
