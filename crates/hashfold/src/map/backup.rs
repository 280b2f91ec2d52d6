//! Backups: the state of a map at one moment, as a new map in another folder.
//!
//! The entries are copied a group at a time, into spans. The manifest is published last: before, the
//! folder is not a map.

use super::{
    batch::Batch,
    core::Core,
    item::{Change, Content, Value},
    large::{self, Owners},
    merge::write_spans,
    options::MapOptions,
    read::{Entries, Part},
    recovery,
    snapshot::{self, View},
    span::Stored,
};
use crate::{error::Result, work::Watch};
use std::{path::Path, sync::Arc};

/// Writes all entries of this moment to a new map.
pub(super) fn backup(core: &Arc<Core>, to: &Path, watch: &Watch) -> Result<()> {
    let snapshot = snapshot::take(core);
    let options = MapOptions {
        seed: Some(core.identity.seed),
        attributes: core.attributes.clone(),
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
    let mut batch = Batch::default();
    let mut owners = Owners::default();
    let View { stored, lists } = view;
    let hashes = &stored.prefix.hashes();
    let part = Part { stored, lists, hashes, now };
    let mut entries = Entries::read(&*core.space.file, core.identity, part)?;
    while entries.advance() {
        let change = entries.entry()?;
        let change = match change.content.value {
            Value::Large(pointer) => {
                let owner = view.owner(pointer.first);
                let value = large::read(&*core.space.file, core.identity.id, pointer, owner)?;
                let (pointer, owner) = new.write_large(&value)?;
                owners.insert(&owner);
                let content = Content { value: Value::Large(pointer), ..change.content };
                Change { content, ..change }
            }
            Value::Tombstone | Value::Inline(_) => change,
        };
        batch.push(change, 0);
        watch.add(1)?;
    }
    let owner = |first| owners.get(first);
    write_spans(new, stored.prefix, (&batch.items, &batch.bytes), &owner, copied)
}
