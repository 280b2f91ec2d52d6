//! Lookups: the changes in RAM, then at most one block for most keys.

use super::{
    block::{BLOCK_SIZE, Block, BlockId},
    core::Core,
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
    /// Not in RAM: the group's blocks at that moment.
    Elsewhere(Arc<Stored>),
}

/// Looks up a key.
pub(super) fn get(core: &Core, key: &[u8]) -> Result<Option<Vec<u8>>> {
    let hash = KeyHash::of(key, core.identity.seed);
    match in_memory(core, hash, key) {
        Found::Value(value) => Ok(value),
        Found::Elsewhere(stored) => {
            let places = stored.places(hash, core.identity.id);
            in_blocks(&*core.space.file, places, hash, key)
        }
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
        if let Some(value) = state.find(hash, key) {
            return Found::Value(value.map(<[u8]>::to_vec));
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

/// Searches blocks, newest first.
pub(super) fn in_blocks(
    file: &dyn BlockFile,
    places: impl Iterator<Item = BlockId>,
    hash: KeyHash,
    key: &[u8],
) -> Result<Option<Vec<u8>>> {
    let mut bytes = crate::io::Buffer::zeroed(BLOCK_SIZE);
    for id in places {
        file.read_at(id.number * BLOCK_SIZE as u64, &mut bytes)?;
        if let Some(value) = find(file, &bytes, id, hash, key)? {
            return Ok(value);
        }
    }
    Ok(None)
}

/// Searches one block. Returns the value, or `Some(None)` for a tombstone.
fn find(
    file: &dyn BlockFile,
    bytes: &[u8],
    id: BlockId,
    hash: KeyHash,
    key: &[u8],
) -> Result<Option<Option<Vec<u8>>>> {
    let found = Block::decode(bytes, id).and_then(|block| block.find(hash, key));
    let place = |error: Error| error.at(&file.place().offset(id.number * BLOCK_SIZE as u64));
    Ok(found.map_err(place)?.map(|value| value.map(<[u8]>::to_vec)))
}

/// A key of [`get_many`] that is not found yet.
struct Open {
    /// The index of the key.
    key: usize,
    hash: KeyHash,
    /// The blocks to be searched, newest first.
    places: VecDeque<BlockId>,
    /// Keeps the blocks from being used again.
    _stored: Arc<Stored>,
}

/// Looks up many keys, with their reads in flight together. `values[i]` is that of `keys[i]`.
pub(super) fn get_many(core: &Core, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
    let mut values = vec![None; keys.len()];
    let mut open = Vec::new();
    for (i, key) in keys.iter().enumerate() {
        let hash = KeyHash::of(key, core.identity.seed);
        match in_memory(core, hash, key) {
            Found::Value(value) => values[i] = value,
            Found::Elsewhere(stored) => {
                let places = stored.places(hash, core.identity.id).collect();
                open.push(Open { key: i, hash, places, _stored: stored });
            }
        }
    }
    // Each round reads one block for each key. Nearly all keys need one round.
    loop {
        open.retain(|key| !key.places.is_empty());
        if open.is_empty() {
            return Ok(values);
        }
        let ids: Vec<BlockId> = open.iter_mut().filter_map(|key| key.places.pop_front()).collect();
        let file = &*core.space.file;
        let extent =
            |id: &BlockId| Extent { offset: id.number * BLOCK_SIZE as u64, len: BLOCK_SIZE };
        file.read_many(&mut ids.iter().map(extent), &mut |i, bytes| {
            let key = &mut open[i];
            if let Some(value) = find(file, bytes, ids[i], key.hash, keys[key.key])? {
                values[key.key] = value;
                key.places.clear();
            }
            Ok(())
        })?;
    }
}
