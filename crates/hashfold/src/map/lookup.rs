//! Lookups: the changes in RAM, then at most one block for most keys.

use super::{
    block::{BLOCK_SIZE, Block, BlockId},
    core::Core,
    item::Value,
    large::{self, Owner},
    pointer::Pointer,
    span::Stored,
};
use crate::{
    error::{Error, Result},
    io::{BlockFile, Extent},
    key::KeyHash,
};
use std::{collections::VecDeque, sync::Arc};

/// Where a key may be, after the changes in RAM were searched.
enum Found {
    /// The value, or `None` if the key is deleted.
    Value(Option<Vec<u8>>),
    /// A large value, and the owner of its blocks.
    Large(Pointer, Option<Owner>),
    /// Not in RAM: the group's blocks at that moment.
    Elsewhere(Arc<Stored>),
}

/// Looks up a key.
pub(super) fn get(core: &Core, key: &[u8]) -> Result<Option<Vec<u8>>> {
    let hash = KeyHash::of(key, core.identity.seed);
    match in_memory(core, hash, key) {
        Found::Value(value) => Ok(value),
        Found::Large(pointer, owner) => read_large(core, pointer, owner.as_ref()).map(Some),
        Found::Elsewhere(stored) => in_blocks(core, &stored, hash, key),
    }
}

fn read_large(core: &Core, pointer: Pointer, owner: Option<&Owner>) -> Result<Vec<u8>> {
    large::read(&*core.space.file, core.identity.id, pointer, owner)
}

/// Returns the value of a key; reads it if it is large.
pub(super) fn value(
    core: &Core,
    value: Value<'_>,
    owner: Option<&Owner>,
) -> Result<Option<Vec<u8>>> {
    match value {
        Value::Tombstone => Ok(None),
        Value::Inline(value) => Ok(Some(value.to_vec())),
        Value::Large(pointer) => read_large(core, pointer, owner).map(Some),
    }
}

/// Searches the changes in RAM.
fn in_memory(core: &Core, hash: KeyHash, key: &[u8]) -> Found {
    loop {
        let group = core.directory.find(hash);
        let mut state = group.state();
        if state.is_replaced {
            continue;
        }
        if let Some((value, owner)) = state.find(hash, key) {
            return match value {
                Value::Tombstone => Found::Value(None),
                Value::Inline(value) => Found::Value(Some(value.to_vec())),
                Value::Large(pointer) => Found::Large(pointer, owner.cloned()),
            };
        }
        if !state.stored.packets.is_empty() {
            state.wear.lookups = state.wear.lookups.saturating_add(1);
            if state.wear.lookups >= state.wear.lookups_max {
                // Once; the next flush sets another limit.
                state.wear.lookups_max = u32::MAX;
                core.tasks.add_merge(group.prefix.start);
            }
        }
        return Found::Elsewhere(state.stored.clone());
    }
}

/// Searches the blocks of a group, newest first.
pub(super) fn in_blocks(
    core: &Core,
    stored: &Stored,
    hash: KeyHash,
    key: &[u8],
) -> Result<Option<Vec<u8>>> {
    let file = &*core.space.file;
    let mut bytes = crate::io::Buffer::zeroed(BLOCK_SIZE);
    for id in stored.places(hash, core.identity.id) {
        file.read_at(id.number * BLOCK_SIZE as u64, &mut bytes)?;
        if let Some(found) = find(file, &bytes, id, hash, key)? {
            return match found {
                Value::Large(pointer) => {
                    read_large(core, pointer, stored.owner(pointer.first)).map(Some)
                }
                found => value(core, found, None),
            };
        }
    }
    Ok(None)
}

/// Searches one block.
fn find<'a>(
    file: &dyn BlockFile,
    bytes: &'a [u8],
    id: BlockId,
    hash: KeyHash,
    key: &[u8],
) -> Result<Option<Value<'a>>> {
    let found = Block::decode(bytes, id).and_then(|block| block.find(hash, key));
    let place = |error: Error| error.at(&file.place().offset(id.number * BLOCK_SIZE as u64));
    found.map_err(place)
}

/// A key of [`get_many`] that is not found yet.
struct Open {
    /// The index of the key.
    key: usize,
    hash: KeyHash,
    /// The blocks to be searched, newest first.
    places: VecDeque<BlockId>,
    /// Keeps the blocks from being used again.
    stored: Arc<Stored>,
}

/// Looks up many keys, with their reads in flight together. `values[i]` is that of `keys[i]`.
pub(super) fn get_many(core: &Core, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
    let mut values = vec![None; keys.len()];
    let mut open = Vec::new();
    let mut large: Vec<(usize, Pointer, Option<Owner>)> = Vec::new();
    for (i, key) in keys.iter().enumerate() {
        let hash = KeyHash::of(key, core.identity.seed);
        match in_memory(core, hash, key) {
            Found::Value(value) => values[i] = value,
            Found::Large(pointer, owner) => large.push((i, pointer, owner)),
            Found::Elsewhere(stored) => {
                let places = stored.places(hash, core.identity.id).collect();
                open.push(Open { key: i, hash, places, stored });
            }
        }
    }
    // Each round reads one block for each key. Nearly all keys need one round.
    loop {
        open.retain(|key| !key.places.is_empty());
        if open.is_empty() {
            break;
        }
        let ids: Vec<BlockId> = open.iter_mut().filter_map(|key| key.places.pop_front()).collect();
        let file = &*core.space.file;
        let extent =
            |id: &BlockId| Extent { offset: id.number * BLOCK_SIZE as u64, len: BLOCK_SIZE };
        file.read_many(&mut ids.iter().map(extent), &mut |i, bytes| {
            let key = &mut open[i];
            if let Some(found) = find(file, bytes, ids[i], key.hash, keys[key.key])? {
                key.places.clear();
                match found {
                    Value::Tombstone => {}
                    Value::Inline(value) => values[key.key] = Some(value.to_vec()),
                    Value::Large(pointer) => {
                        let owner = key.stored.owner(pointer.first).cloned();
                        large.push((key.key, pointer, owner));
                    }
                }
            }
            Ok(())
        })?;
    }
    for (i, pointer, owner) in large {
        values[i] = Some(read_large(core, pointer, owner.as_ref())?);
    }
    Ok(values)
}
