//! Looking up keys in the blocks of tables: from memory in passes that prefetch for each other, from
//! the device with many reads in flight.

use super::{
    blocks::{DataBlocks, Found, Last},
    bracket::Bracket,
    data::DataFile,
    index::{Index, LookupTarget, Place},
    mapped::{Answer, MappedBlocks},
};
use crate::{error::Result, io::BlockFile, key::KeyHash};
use std::{borrow::Cow, cell::RefCell, iter, ops::Range};

/// Number of keys that are looked up together: their cache misses overlap, and blocks of earlier keys
/// are read while the places of these are computed.
pub(super) const GROUP: usize = 64;

/// Number of blocks that a lookup without an index reads at once, if no other lookup waits for the
/// device.
const BLOCKS_ALONE: u64 = 2;

/// A callback of [`Table::get_many`](super::Table::get_many): takes the index of a key, and its value
/// or `None`.
pub type VisitValue<'a> = dyn FnMut(usize, Option<&[u8]>) -> Result<()> + 'a;

/// The open files of a table.
#[derive(Debug)]
pub(super) struct OpenFiles {
    pub(super) data: DataFile,
    pub(super) index: Option<Index>,
}

/// The files of a table, and the range of the keys that are looked up in it.
pub(super) type FilesPart<'a> = (&'a OpenFiles, Range<usize>);

impl OpenFiles {
    /// Returns the place of a key with this hash. Without an index, `width` is the number of blocks
    /// to read at once.
    #[inline]
    pub(super) fn target(&self, hash: KeyHash, width: u64) -> LookupTarget {
        match &self.index {
            Some(index) => index.target(hash),
            None if self.data.totals.entries == 0 => LookupTarget::Nowhere,
            None => LookupTarget::Between(Bracket::new(hash, self.data.context.blocks, width)),
        }
    }

    /// Returns the lookups of keys, the first of which has the index `first`.
    fn lookups<K: AsRef<[u8]>>(&self, part: usize, first: usize, keys: &[K]) -> Vec<Lookup> {
        let seed = self.data.context.seed;
        let hashes: Vec<KeyHash> = keys.iter().map(|key| KeyHash::of(key.as_ref(), seed)).collect();
        let targets = match &self.index {
            Some(index) => index.targets(&hashes),
            None => hashes.iter().map(|hash| self.target(*hash, 1)).collect(),
        };
        let both = hashes.into_iter().zip(targets).zip(first..);
        both.map(|((hash, target), key)| Lookup { part, key, hash, target }).collect()
    }

    /// Calls `visit` once, with the value of a key, or `None` if the key is absent.
    pub(super) fn get_with(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        if let Some(blocks) = self.data.mapped_blocks() {
            visit(self.get_mapped(blocks, key)?.as_deref());
            return self.check_maps();
        }
        self.refuse_lost()?;
        let read = self.read_with(key, visit);
        // Zeros in the place of a lost page are no other damage.
        self.check_maps().and(read)
    }

    /// Calls `visit` once, with the value of a key in a data file that is read.
    fn read_with(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        let mut lookup = Some(self.lookup(key));
        while let Some(now) = lookup.take() {
            let Some(blocks) = now.blocks() else {
                visit(None);
                break;
            };
            let mut extent = iter::once(self.data.extent(&blocks));
            self.data.file.read_many(&mut extent, &mut |_, bytes| {
                match now.search(&self.data, key, bytes)? {
                    Outcome::Done(value) => visit(value.as_deref()),
                    Outcome::Again(target) => lookup = Some(Lookup { target, ..now.clone() }),
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Returns the value of a key in a mapped data file, of which `blocks` is the view.
    #[inline]
    pub(super) fn get_mapped<'t>(
        &'t self,
        blocks: MappedBlocks<'t>,
        key: &[u8],
    ) -> Result<Option<Cow<'t, [u8]>>> {
        self.refuse_lost()?;
        let hash = blocks.hash(key);
        let (place, part) = self.place_and_part(hash);
        blocks.prefetch_alone(place, part);
        let value = match blocks.answer(hash, blocks.aim(hash, place), key) {
            Answer::Value(value) => Some(Cow::Borrowed(value)),
            Answer::Absent => None,
            Answer::Parts(parts) => Some(Cow::Owned(parts.concat())),
            Answer::Unknown => return self.search_mapped(hash, place, key),
        };
        self.check_maps()?;
        Ok(value)
    }

    /// Returns the value of a key in a mapped data file, at its place by the index. This is the
    /// general search.
    #[inline(never)] // The view of the mapped blocks finds nearly all keys.
    pub(super) fn search_mapped(
        &self,
        hash: KeyHash,
        place: Place,
        key: &[u8],
    ) -> Result<Option<Cow<'_, [u8]>>> {
        let target = match place {
            Place::Nowhere => LookupTarget::Nowhere,
            Place::At(position) => LookupTarget::at(position, &self.data.context.layout),
            Place::In(block) => LookupTarget::In(block..block + 1),
            Place::UpTo(block) => LookupTarget::UpTo(block..block + 1),
            Place::Several => self.target(hash, BLOCKS_ALONE),
        };
        let lookup = Lookup { part: 0, key: 0, hash, target };
        let found = lookup.finish_mapped(&self.data, key);
        // Zeros in the place of a lost page are no other damage.
        self.check_maps()?;
        found
    }

    #[inline]
    fn place_and_part(&self, hash: KeyHash) -> (Place, Option<u8>) {
        match &self.index {
            Some(index) => index.place_and_part(hash),
            None => (self.target(hash, BLOCKS_ALONE).into(), None),
        }
    }

    /// Writes the places of keys with these hashes to `places`.
    pub(super) fn places(&self, hashes: &[KeyHash], places: &mut [Place]) {
        match &self.index {
            Some(index) => index.places(hashes, places),
            None => {
                for (place, hash) in places.iter_mut().zip(hashes) {
                    *place = self.target(*hash, 1).into();
                }
            }
        }
    }

    #[inline]
    fn lookup(&self, key: &[u8]) -> Lookup {
        let hash = KeyHash::of(key, self.data.context.seed);
        Lookup { part: 0, key: 0, hash, target: self.target(hash, BLOCKS_ALONE) }
    }

    /// Refuses files whose maps are known to be lost, before their bytes are used.
    #[inline]
    pub(super) fn refuse_lost(&self) -> Result<()> {
        let is_lost = self.data.file.is_lost() || self.index.as_ref().is_some_and(Index::is_lost);
        if is_lost { self.check_maps() } else { Ok(()) }
    }

    /// Checks the mapped files after their bytes were used.
    #[inline]
    pub(super) fn check_maps(&self) -> Result<()> {
        self.data.file.check_map()?;
        self.index.as_ref().map_or(Ok(()), Index::check_map)
    }
}

/// A key that is being looked up.
#[derive(Clone, Debug)]
struct Lookup {
    /// Index of the part that has the table.
    part: usize,
    /// Index of the key.
    key: usize,
    hash: KeyHash,
    target: LookupTarget,
}

/// The result of searching the blocks of a lookup.
enum Outcome<'a> {
    Done(Option<Cow<'a, [u8]>>),
    Again(LookupTarget),
}

impl Lookup {
    /// Returns the blocks to read next.
    #[inline]
    fn blocks(&self) -> Option<Range<u64>> {
        match &self.target {
            LookupTarget::Nowhere => None,
            LookupTarget::At(_, blocks) | LookupTarget::In(blocks) | LookupTarget::UpTo(blocks) => {
                Some(blocks.clone())
            }
            LookupTarget::Between(bracket) => Some(bracket.next()),
        }
    }

    /// Searches for the key in its blocks, which have been read.
    #[inline]
    fn search<'b>(&self, data: &'b DataFile, key: &[u8], bytes: &'b [u8]) -> Result<Outcome<'b>> {
        let Some(range) = self.blocks() else { return Ok(Outcome::Done(None)) };
        let blocks = data.blocks(range.start, bytes);
        let found = match &self.target {
            LookupTarget::Between(bracket) => {
                return search_between(bracket, &blocks, self.hash, key);
            }
            LookupTarget::At(position, _) => blocks.search_at(*position, key)?,
            LookupTarget::UpTo(_) => blocks.search_first(self.hash, key)?,
            _ => blocks.search(self.hash, key)?,
        };
        Ok(match (found, &self.target) {
            (Found::Entry(entry), _) => Outcome::Done(Some(blocks.value(&entry)?)),
            (Found::Before(_), LookupTarget::UpTo(blocks)) if blocks.start > 0 => {
                Outcome::Again(LookupTarget::UpTo(blocks.start - 1..blocks.start))
            }
            (Found::More(blocks), LookupTarget::At(position, _)) => {
                Outcome::Again(LookupTarget::At(*position, blocks))
            }
            (Found::More(blocks), LookupTarget::UpTo(_)) => {
                Outcome::Again(LookupTarget::UpTo(blocks))
            }
            // The index has named all blocks with the key's entry, and this is the last entry there.
            (Found::More(blocks), _) => Outcome::Again(LookupTarget::In(blocks)),
            (Found::Absent | Found::Before(_), _) => Outcome::Done(None),
        })
    }

    /// Finds the value of a key in a mapped data file.
    #[inline]
    fn finish_mapped<'t>(
        mut self,
        data: &'t DataFile,
        key: &[u8],
    ) -> Result<Option<Cow<'t, [u8]>>> {
        loop {
            let Some(blocks) = self.blocks() else { return Ok(None) };
            match self.search(data, key, data.mapped(&blocks)?)? {
                Outcome::Done(value) => return Ok(value),
                Outcome::Again(target) => self.target = target,
            }
        }
    }
}

/// Searches for a key without an index in the blocks of a guess. The entry is in them, or between
/// them and one end of the bracket.
fn search_between<'b>(
    bracket: &Bracket,
    blocks: &DataBlocks<'b>,
    hash: KeyHash,
    key: &[u8],
) -> Result<Outcome<'b>> {
    let next = match blocks.search(hash, key)? {
        Found::Entry(entry) => return Ok(Outcome::Done(Some(blocks.value(&entry)?))),
        Found::More(blocks) => Some(bracket.reading(blocks)),
        Found::Before(before) => bracket.below(hash, before),
        Found::Absent => match blocks.last_hash()? {
            Last::Hash(last) if hash < last => None,
            Last::Hash(last) => bracket.above(hash, last.high()),
            // Its entry would start before the last block, where it was not found.
            Last::Before(before) if hash.high() < before => None,
            Last::Before(before) => bracket.above(hash, before),
        },
    };
    Ok(next.map_or(Outcome::Done(None), |next| Outcome::Again(LookupTarget::Between(next))))
}

/// Looks up keys in those tables that are not mapped, with the device reads of all tables in flight
/// together. `visit` is called once for each key of these tables, as by
/// [`Table::get_many`](super::Table::get_many).
pub(super) fn read_many<K: AsRef<[u8]>>(
    parts: &[FilesPart<'_>],
    keys: &[K],
    visit: &mut VisitValue<'_>,
) -> Result<()> {
    let mut absent = Vec::new();
    let mut to_read = lookups_on_device(parts, keys).filter(|lookup| {
        let is_absent = lookup.target == LookupTarget::Nowhere;
        absent.extend(is_absent.then_some(lookup.key));
        !is_absent
    });
    let mut again = read_round(parts, &mut to_read, keys, visit)?;
    drop(to_read);
    absent.into_iter().try_for_each(|key| visit(key, None))?;
    while !again.is_empty() {
        again = read_round(parts, &mut again.into_iter(), keys, visit)?;
    }
    Ok(())
}

/// Returns the lookups of the keys of those tables that are not mapped, each with its place by the
/// index.
fn lookups_on_device<'a, K: AsRef<[u8]>>(
    parts: &'a [FilesPart<'a>],
    keys: &'a [K],
) -> impl Iterator<Item = Lookup> + 'a {
    let wanted = parts.iter().enumerate().filter(|(_, (files, _))| !files.data.is_mapped());
    let groups = wanted.flat_map(|(part, (files, range))| {
        let starts = range.clone().step_by(GROUP);
        starts.map(move |start| (part, *files, start..range.end.min(start + GROUP)))
    });
    groups.flat_map(|(part, files, group)| files.lookups(part, group.start, &keys[group]))
}

/// Reads once for each lookup. Returns the lookups that must read again.
fn read_round<K: AsRef<[u8]>>(
    parts: &[FilesPart<'_>],
    lookups: &mut dyn Iterator<Item = Lookup>,
    keys: &[K],
    visit: &mut VisitValue<'_>,
) -> Result<Vec<Lookup>> {
    let files: Vec<&dyn BlockFile> = parts.iter().map(|(files, _)| &*files.data.file).collect();
    // All but the mapped ones were opened alike.
    let first = parts.iter().find(|(files, _)| !files.data.is_mapped());
    let Some((first, _)) = first else { return Ok(Vec::new()) };
    let started = RefCell::new(Vec::new());
    let mut extents = lookups.map(|lookup| {
        let data = &parts[lookup.part].0.data;
        let extent = (lookup.part, data.extent(&lookup.blocks().unwrap_or(0..0)));
        started.borrow_mut().push(lookup);
        extent
    });
    let mut again = Vec::new();
    first.data.file.read_across(&files, &mut extents, &mut |i, bytes| {
        let lookup = &started.borrow()[i];
        let (data, key) = (&parts[lookup.part].0.data, keys[lookup.key].as_ref());
        match lookup.search(data, key, bytes)? {
            Outcome::Done(value) => visit(lookup.key, value.as_deref())?,
            Outcome::Again(target) => again.push(Lookup { target, ..lookup.clone() }),
        }
        Ok(())
    })?;
    Ok(again)
}
