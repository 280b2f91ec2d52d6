//! Backups: the state of a map at one moment, as a new map in another folder.
//!
//! The entries are copied a group at a time, into spans. The manifest is published last: before, the
//! folder is not a map.

use super::{
    core::Core,
    large,
    new_group::NewGroup,
    options::MapOptions,
    pointer::Pointer,
    read::{Entries, Part},
    recovery, snapshot,
    span::Stored,
    view::View,
};
use crate::{error::Result, work::Watch};
use std::{path::Path, sync::Arc};

/// Writes all entries of this moment to a new map.
pub(super) fn backup(core: &Arc<Core>, to: &Path, watch: &Watch) -> Result<()> {
    let snapshot = snapshot::take(core);
    let options = MapOptions {
        seed: Some(core.identity.seed),
        attributes: core.attributes.clone(),
        devices: Vec::new(),
        ..core.options.clone()
    };
    let new = recovery::begin(to, options)?;
    let mut copied = Vec::new();
    for view in snapshot.views() {
        copy_group(core, (view, snapshot.now()), &new, &mut copied, watch)?;
    }
    recovery::publish(&new, copied.into_iter().map(Arc::new).collect())
}

/// Copies the entries of a group.
fn copy_group(
    core: &Core,
    (view, now): (&View, u64),
    new: &Core,
    copied: &mut Vec<Stored>,
    watch: &Watch,
) -> Result<()> {
    let mut group = NewGroup::default();
    let View { stored, lists } = view;
    let hashes = &stored.prefix.hashes();
    let part = Part { stored, lists, hashes, now };
    let (file, identity) = (&*core.space.file, core.identity);
    let mut entries = Entries::read(file, identity, part)?;
    while entries.advance() {
        let read =
            |pointer: Pointer| large::read(file, identity.id, pointer, view.owner(pointer.first));
        group.push(new, entries.entry()?, read)?;
        watch.add(1)?;
    }
    group.write(new, stored.prefix, copied)
}
