//! Lookups: the changes in RAM, then at most one block for most keys.

use super::{
    block::{BLOCK_SIZE, Block, BlockId},
    core::Core,
    item::{Content, Value},
    large::{self, Owner},
    mirroring::{self, Choice},
    pointer::Pointer,
    space::Blocks,
    span::Stored,
};
use crate::{
    error::{Error, Result},
    io::{BlockFile, Extent},
    key::KeyHash,
};
use std::{cell::RefCell, collections::VecDeque, sync::Arc};

/// The value of a key, and the time from which on the entry is absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiring {
    /// The value.
    pub value: Vec<u8>,
    /// Milliseconds since 1970-01-01 UTC; `None` if the entry does not expire.
    pub expires_at: Option<u64>,
}

/// Where a key may be, after the changes in RAM were searched.
enum Found {
    /// The value, or `None` if the key is deleted.
    Value(Option<Expiring>),
    /// A large value.
    Large(LargeValue),
    /// Not in RAM: the group's blocks at that moment.
    Elsewhere(Arc<Stored>),
}

/// A large value that is still to be read.
struct LargeValue {
    pointer: Pointer,
    expires_at: Option<u64>,
    owner: Option<Owner>,
}

impl LargeValue {
    fn read(self, core: &Core) -> Result<Expiring> {
        let value = read_large(core, self.pointer, self.owner.as_ref())?;
        Ok(Expiring { value, expires_at: self.expires_at })
    }
}

/// Looks up a key.
pub(super) fn get(core: &Core, key: &[u8]) -> Result<Option<Expiring>> {
    core.check_whole()?;
    let hash = KeyHash::of(key, core.identity.seed);
    let now = core.now();
    match in_memory(core, (hash, key), now) {
        Found::Value(value) => Ok(value),
        Found::Large(value) => value.read(core).map(Some),
        Found::Elsewhere(stored) => in_blocks(core, &stored, (hash, key), now),
    }
}

/// Returns whether there is a value for a key. A large value is not read.
pub(super) fn contains(core: &Core, key: &[u8]) -> Result<bool> {
    core.check_whole()?;
    let hash = KeyHash::of(key, core.identity.seed);
    let now = core.now();
    let found = match in_memory(core, (hash, key), now) {
        Found::Value(value) => return Ok(value.is_some()),
        Found::Large(_) => return Ok(true),
        Found::Elsewhere(stored) => search_blocks(core, &stored, (hash, key), |found, _| {
            Ok(!matches!(found.at(now).value, Value::Tombstone))
        })?,
    };
    Ok(found.unwrap_or(false))
}

fn read_large(core: &Core, pointer: Pointer, owner: Option<&Owner>) -> Result<Vec<u8>> {
    large::read(&*core.space.file, core.identity.id, pointer, owner)
}

/// Returns the value of a key; reads it if it is large.
pub(super) fn resolve(
    core: &Core,
    content: Content<'_>,
    owner: Option<&Owner>,
) -> Result<Option<Expiring>> {
    let value = match content.value {
        Value::Tombstone => return Ok(None),
        Value::Inline(value) => value.to_vec(),
        Value::Large(pointer) => read_large(core, pointer, owner)?,
    };
    Ok(Some(Expiring { value, expires_at: content.expires_at }))
}

/// Searches the changes in RAM.
fn in_memory(core: &Core, (hash, key): (KeyHash, &[u8]), now: u64) -> Found {
    loop {
        let group = core.directory.find(hash);
        let mut state = group.state();
        if state.is_replaced {
            continue;
        }
        if let Some((content, owner)) = state.find(hash, key) {
            let Content { value, expires_at } = content.at(now);
            return match value {
                Value::Tombstone => Found::Value(None),
                Value::Inline(value) => {
                    Found::Value(Some(Expiring { value: value.to_vec(), expires_at }))
                }
                Value::Large(pointer) => {
                    Found::Large(LargeValue { pointer, expires_at, owner: owner.cloned() })
                }
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

/// Returns the value of a key from the blocks of a group.
pub(super) fn in_blocks(
    core: &Core,
    stored: &Stored,
    (hash, key): (KeyHash, &[u8]),
    now: u64,
) -> Result<Option<Expiring>> {
    let read = |found: Content<'_>, owner: Option<&Owner>| resolve(core, found.at(now), owner);
    Ok(search_blocks(core, stored, (hash, key), read)?.flatten())
}

/// Searches the blocks of a group, newest first. Returns what `take` makes of the entry and the owner of its large value.
fn search_blocks<T>(
    core: &Core,
    stored: &Stored,
    (hash, key): (KeyHash, &[u8]),
    take: impl FnOnce(Content<'_>, Option<&Owner>) -> Result<T>,
) -> Result<Option<T>> {
    let file = &*core.space.file;
    let mut bytes = crate::io::Buffer::zeroed(BLOCK_SIZE);
    for id in stored.places(hash, core.identity.id) {
        let id = read_block(core, stored, id, &mut bytes)?;
        if let Some(found) = find(file, &bytes, id, hash, key)? {
            let owner = match found.value {
                Value::Large(pointer) => stored.owner(pointer.first),
                Value::Tombstone | Value::Inline(_) => None,
            };
            return take(found, owner).map(Some);
        }
    }
    Ok(None)
}

/// Reads a block of a group, or its copy on another device. Returns which one.
fn read_block(core: &Core, stored: &Stored, id: BlockId, bytes: &mut [u8]) -> Result<BlockId> {
    let file = &*core.space.file;
    let read = |id: BlockId, bytes: &mut [u8]| file.read_at(id.number * BLOCK_SIZE as u64, bytes);
    let Choice { id: chosen, copy } = mirroring::choose(core, stored, id);
    if copy.is_some() {
        if read(chosen, bytes).and_then(|()| chosen.seal().check(bytes)).is_ok() {
            return Ok(chosen);
        }
        mirroring::give_up(stored);
    }
    read(id, bytes).map(|()| id)
}

/// Searches one block.
fn find<'a>(
    file: &dyn BlockFile,
    bytes: &'a [u8],
    id: BlockId,
    hash: KeyHash,
    key: &[u8],
) -> Result<Option<Content<'a>>> {
    let found = Block::decode(bytes, id).and_then(|block| block.find(hash, key));
    let place = |error: Error| error.at(&file.place_at(id.number * BLOCK_SIZE as u64));
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
    /// Whether copies may be read: until a read of one fails.
    may_copy: bool,
}

impl Open {
    /// Chooses where to read a block.
    fn choose(&self, core: &Core, id: BlockId) -> Choice {
        match self.may_copy {
            true => mirroring::choose(core, &self.stored, id),
            false => Choice { id, copy: None },
        }
    }

    /// Returns to a block that was chosen, whose original will be read.
    fn read_again(&mut self, Choice { id, copy }: &Choice) {
        let id = match copy {
            Some(copy) => {
                mirroring::give_up(&self.stored);
                original(*id, copy, &self.stored)
            }
            None => *id,
        };
        self.places.push_front(id);
        self.may_copy = false;
    }
}

/// A round of reads.
#[derive(Default)]
struct Round {
    /// For each read: its block, and its key until the block was searched.
    reads: Vec<(Choice, Option<Open>)>,
    /// Keys that are not found yet.
    open: Vec<Open>,
}

impl Round {
    /// Reads blocks again from the originals, if an error may be that of a copy.
    ///
    /// # Errors
    /// `error`, if only originals were read.
    fn read_again(&mut self, error: Error) -> Result<()> {
        let is_copied =
            |(choice, key): &(Choice, Option<Open>)| key.is_some() && choice.copy.is_some();
        if !self.reads.iter().any(is_copied) {
            return Err(error);
        }
        for (choice, key) in self.reads.drain(..) {
            self.open.extend(key.map(|mut key| {
                key.read_again(&choice);
                key
            }));
        }
        Ok(())
    }
}

/// A function that takes the value of each key of a lookup: the index of the key, and what was found.
pub(super) type VisitFound<'a> = dyn FnMut(usize, Option<Expiring>) -> Result<()> + 'a;

/// The answers of a lookup.
struct Answers<'a, 'v> {
    visit: &'a mut VisitFound<'v>,
    /// Large values, which are read at the end.
    large: Vec<(usize, LargeValue)>,
    /// The error with which `visit` has ended the lookup.
    error: Option<Error>,
}

impl Answers<'_, '_> {
    /// Takes what was found for a key.
    ///
    /// # Errors
    /// The error with which `visit` has ended the lookup.
    fn take(&mut self, key: &Open, found: Content<'_>) -> Result<()> {
        let Content { value, expires_at } = found;
        match value {
            Value::Tombstone => _ = self.give(key.key, None),
            Value::Inline(value) => {
                _ = self.give(key.key, Some(Expiring { value: value.to_vec(), expires_at }));
            }
            Value::Large(pointer) => {
                let owner = key.stored.owner(pointer.first).cloned();
                self.large.push((key.key, LargeValue { pointer, expires_at, owner }));
            }
        }
        self.error.clone().map_or(Ok(()), Err)
    }

    /// Gives an answer, unless there was an error. Returns whether the lookup goes on.
    fn give(&mut self, key: usize, found: Option<Expiring>) -> bool {
        self.error = self.error.take().or_else(|| (self.visit)(key, found).err());
        self.error.is_none()
    }
}

/// Looks up many keys, with their reads in flight together. Returns the values in the order of the keys.
pub(super) fn get_many(core: &Core, keys: &[&[u8]]) -> Result<Vec<Option<Expiring>>> {
    let mut values = vec![None; keys.len()];
    visit_many(core, keys, &mut |i, found| {
        values[i] = found;
        Ok(())
    })?;
    Ok(values)
}

/// Looks up many keys, with their reads in flight together. Calls `visit` once for each, in any order;
/// large values come last, and each is read when the one before it was visited.
pub(super) fn visit_many(core: &Core, keys: &[&[u8]], visit: &mut VisitFound<'_>) -> Result<()> {
    core.check_whole()?;
    let now = core.now();
    let answers = RefCell::new(Answers { visit, large: Vec::new(), error: None });
    // The first reads begin while the places of the next keys are computed.
    let mut first = keys.iter().enumerate().map_while(|(key, bytes)| {
        let hash = KeyHash::of(bytes, core.identity.seed);
        let mut answers = answers.borrow_mut();
        match in_memory(core, (hash, bytes), now) {
            Found::Value(value) => answers.give(key, value).then_some(None),
            Found::Large(value) => {
                answers.large.push((key, value));
                Some(None)
            }
            Found::Elsewhere(stored) => {
                let places = stored.places(hash, core.identity.id).collect();
                Some(Some(Open { key, hash, places, stored, may_copy: true }))
            }
        }
    });
    let mut open = read_round(core, (keys, now), &mut first.by_ref().flatten(), &answers)?;
    // Nearly all keys need one round.
    while !open.is_empty() {
        // After a failure of a copy, some keys have not begun.
        let mut rest = open.into_iter();
        let mut next = rest.by_ref().chain(first.by_ref().flatten());
        open = read_round(core, (keys, now), &mut next, &answers)?;
        open.extend(rest);
    }
    let Answers { visit, large, .. } = answers.into_inner();
    large.into_iter().try_for_each(|(i, value)| visit(i, Some(value.read(core)?)))
}

/// Returns the block of a group's span whose copy is at another place.
fn original(id: BlockId, copy: &Blocks, stored: &Stored) -> BlockId {
    let first = stored.span.as_ref().map_or(0, |span| span.blocks.first);
    BlockId { number: first + (id.number - copy.first), ..id }
}

/// Reads the next block of each key that is not found yet. Returns those that are in none of these. After a failure of a
/// copy, these have the keys whose blocks were not read, and `next` may have some left.
fn read_round(
    core: &Core,
    (keys, now): (&[&[u8]], u64),
    next: &mut dyn Iterator<Item = Open>,
    answers: &RefCell<Answers<'_, '_>>,
) -> Result<Vec<Open>> {
    let round = RefCell::new(Round::default());
    let mut extents = next.map_while(|mut key| match key.places.pop_front() {
        None => answers.borrow_mut().give(key.key, None).then_some(None),
        Some(id) => {
            let choice = key.choose(core, id);
            let offset = choice.id.number * BLOCK_SIZE as u64;
            round.borrow_mut().reads.push((choice, Some(key)));
            Some(Some(Extent { offset, len: BLOCK_SIZE }))
        }
    });
    let file = &*core.space.file;
    let read = file.read_many(&mut extents.by_ref().flatten(), &mut |i, bytes| {
        let Round { reads, open } = &mut *round.borrow_mut();
        let (choice, unread) = &mut reads[i];
        let Some(mut key) = unread.take() else { return Ok(()) };
        if choice.copy.is_some() && choice.id.seal().check(bytes).is_err() {
            key.read_again(choice);
            open.push(key);
            return Ok(());
        }
        match find(file, bytes, choice.id, key.hash, keys[key.key]) {
            Ok(Some(found)) => return answers.borrow_mut().take(&key, found.at(now)),
            Ok(None) => open.push(key),
            Err(error) => {
                *unread = Some(key);
                return Err(error);
            }
        }
        Ok(())
    });
    if let Some(error) = answers.borrow_mut().error.take() {
        return Err(error);
    }
    let mut round = round.into_inner();
    read.or_else(|error| round.read_again(error))?;
    Ok(round.open)
}
