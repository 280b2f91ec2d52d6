//! A new map with all entries of a salvage, in spans. Its manifest is published last.

use super::run::Salvage;
use crate::{
    error::Result,
    map::{
        MapOptions,
        block::BLOCK_SIZE,
        new_group::NewGroup,
        options::Shape,
        prefix::{DEPTH_MAX, Prefix},
        recovery,
    },
    run::Run,
    work::Watch,
};
use std::{path::Path, sync::Arc};

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
        ..from.options.clone()
    };
    let depth = depth(from.block_bytes_max(), &options.shape);
    let new = recovery::begin(folder, options)?;
    let mut groups = Vec::new();
    let mut count = 0;
    let mut is_more = from.advance()?;
    let mut start = Some(0);
    while let Some(first) = start {
        let prefix = Prefix { start: first, depth };
        let mut group = NewGroup::default();
        while is_more && prefix.contains(from.change().0.hash) {
            let (change, large) = from.change();
            group.push(&new, change, |_| Ok(large))?;
            watch.add(1)?;
            count += 1;
            is_more = from.advance()?;
        }
        group.write(&new, prefix, &mut groups)?;
        start = prefix.end();
    }
    recovery::publish(&new, groups.into_iter().map(Arc::new).collect())?;
    Ok(count)
}

/// Returns the depth of groups that have half of the blocks that a group may have, on average.
fn depth(bytes: u64, shape: &Shape) -> u8 {
    let group_bytes = (shape.span_blocks_max / 2).max(1) * BLOCK_SIZE as u64;
    let depth = bytes.div_ceil(group_bytes).max(1).next_power_of_two().ilog2() as u8;
    depth.clamp(shape.first_depth, DEPTH_MAX / 2)
}
