//! The version file, which lists the chunks and tables of a version.
//!
//! A version file is a frame without a body. Its name in the folder `versions` is the version's
//! number in ten digits. Its header has the store's seed and the version's id. The fields of its
//! footer (`docs/formats/store.md` has the same tables; counts are variable-length integers, texts
//! and bytes are preceded by their sizes):
//!
//! | field         | size |                                                                  |
//! |---------------|-----:|------------------------------------------------------------------|
//! | store         |    8 | the store's id                                                   |
//! | number        |    8 | the version's number, from 1 on                                  |
//! | parent        |   16 | number and id of the version that it was made from, or zeros     |
//! | created       |    8 | seconds since 1970                                               |
//! | block_size    |    4 | of its tables, in bytes                                          |
//! | bucket_size   |    4 | of its tables' indexes                                           |
//! | coding_limit  |    4 | of its tables' indexes                                           |
//! | absent_bits   |    4 | of its tables' indexes                                           |
//! | index         |    1 | 0 auto, 1 dense, 2 sparse, 3 fences                              |
//! | changes       |    1 | 1 if the next four count all chunks; 0 if only those merged      |
//! | added         |    8 | keys that the parent does not have                               |
//! | changed       |    8 | keys that have another value in the parent                       |
//! | removed       |    8 | keys that only the parent has                                    |
//! | unchanged     |    8 | keys that have the same value in the parent                      |
//! | chunks        |    … | the number of chunks                                             |
//! | bases         |    … | count, then the layers, in the order of their chunks             |
//! | deltas        |    … | count, then the layers, the newest last                          |
//! | attributes    |    … | count, then for each: name, value                                |
//! | provenance    |    … | count, then for each: name, value                                |
//!
//! A layer is a table, and the chunks whose keys are looked up in it. Each chunk is in one base and
//! in at most 64 deltas:
//!
//! | field         | size |                                                                  |
//! |---------------|-----:|------------------------------------------------------------------|
//! | chunks        |    … | count of ranges, then for each: first chunk, count of chunks     |
//! | part          |    1 | 1 if the table has entries of other chunks, too, else 0          |
//! | table         |    8 | the table's id, which names its folder                           |
//! | entries       |    8 | deletions included                                               |
//! | deletions     |    8 | 0 in a base                                                      |
//! | first, last   |   32 | the hashes of its first and last entry, or zeros                 |
//! | key sizes     |   16 | of the shortest and the longest, in bytes                        |
//! | value sizes   |   16 | of the shortest and the longest, in bytes, without deletions     |
//! | payload       |    8 | of keys and values together, in bytes                            |
//! | bytes         |    8 | of its files together                                            |
//! | root          |   32 | the BLAKE3 hash of its block tree's pieces                       |

use super::{
    chunks::{ChunkSet, common},
    pointer::{NUMBER_MAX, Pointer, VersionName},
    slot::{SLOTS, SlotMap},
};
use crate::{
    codec::{Decoder, put_attributes, put_varint, within},
    error::{Error, ErrorKind, Place, Result, check_same},
    folder::{self, VERSIONS},
    io::{
        Access, BlockFile, Disk,
        frame::{FileKind, Header, encode_fields, read_fields},
    },
    key::{KeyHash, Seed},
    run::{KEY_BYTES_MAX, SizeRange, Summary, VALUE_BYTES_MAX},
    table::{IndexChoice, IndexOptions, TableOptions},
};
use std::{
    collections::HashSet,
    ops::{Range, RangeInclusive},
    path::Path,
};

/// Maximum number of deltas over a base.
pub const DELTAS_MAX: usize = 64;

/// Maximum number of entries, keys or bytes of a version: far above any real version, and low
/// enough that sums and small multiples fit into 64 bits.
const COUNT_MAX: u64 = 1 << 56;

/// The root hash of a table's block tree.
pub type Root = [u8; 32];

/// The user's names and values, which the library stores and does not read.
pub type Attributes = Vec<(String, Vec<u8>)>;

/// The way in which a version's tables are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The division of keys into chunks.
    pub slots: SlotMap,
    /// Options of the bases' indexes; the index of a delta is always dense.
    pub index: IndexOptions,
    /// Size of a block, the unit of reading, in bytes.
    pub block_size: usize,
}

/// The differences between a version and its parent, in keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Number of keys that the parent does not have.
    pub added: u64,
    /// Number of keys that have another value in the parent.
    pub changed: u64,
    /// Number of keys that only the parent has.
    pub removed: u64,
    /// Number of keys that have the same value in the parent.
    pub unchanged: u64,
}

impl Changes {
    /// Returns the number of keys that differ.
    pub fn total(&self) -> u64 {
        self.added + self.changed + self.removed
    }

    pub(super) fn add(&mut self, other: Changes) {
        self.added += other.added;
        self.changed += other.changed;
        self.removed += other.removed;
        self.unchanged += other.unchanged;
    }
}

/// One table of a version, and the chunks whose keys are looked up in it.
///
/// Every chunk is in one base, and in any number of deltas over it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// The chunks whose keys are looked up in the table: of a base, one range.
    pub chunks: ChunkSet,
    /// Whether the table also has entries of chunks that were merged later. These entries are not
    /// part of the version. A base has none.
    pub is_part: bool,
    /// Id of the table, which names its folder.
    pub table: u64,
    /// Number of entries, deletions included.
    pub entries: u64,
    /// Number of entries that are deletions; 0 in a base.
    pub deletions: u64,
    /// The first and the last hash, if there are entries.
    pub hashes: Option<RangeInclusive<KeyHash>>,
    /// The sizes of the keys and values; deletions have no value.
    pub sizes: Summary,
    /// Size of the table's files together, in bytes.
    pub bytes: u64,
    /// Root hash of the table's block tree.
    pub root: Root,
}

impl Layer {
    /// Returns the layer after some of its chunks got new bases; `None` if none are left.
    pub(super) fn without(&self, rebuilt: &ChunkSet) -> Option<Layer> {
        let chunks = self.chunks.without(rebuilt);
        let is_part = self.is_part || chunks != self.chunks;
        (!chunks.is_empty()).then(|| Layer { chunks, is_part, ..self.clone() })
    }
}

/// The description of a version: its tables and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionInfo {
    /// Seed that all keys of the store are hashed with.
    pub seed: Seed,
    /// Id of the store.
    pub store: u64,
    /// Number and id of the version.
    pub name: VersionName,
    /// The version that this one was made from.
    pub parent: Option<VersionName>,
    /// Time of creation by the writer's clock, in seconds since 1970.
    pub created_s: u64,
    /// The way in which the version's tables are built.
    pub shape: Shape,
    /// Differences from the parent, if they were counted; they are not counted for deltas.
    pub changes: Option<Changes>,
    /// Differences from the parent in the chunks that were merged: all of `changes` if they were
    /// counted.
    pub merged: Changes,
    /// The layers that the deltas change, in the order of their chunks.
    pub bases: Vec<Layer>,
    /// The changes to the bases, oldest first.
    pub deltas: Vec<Layer>,
    /// The user's attributes of the data, such as the schema.
    pub attributes: Attributes,
    /// The user's notes about this version: inputs, commands.
    pub provenance: Attributes,
}

impl VersionInfo {
    /// Returns all layers, each with a table of its own.
    pub fn layers(&self) -> impl Iterator<Item = &Layer> {
        self.bases.iter().chain(&self.deltas)
    }

    /// Returns the number of entries. It is exact if there are no deltas, and else a range: an
    /// entry of a delta may be new or replace an older one, and a deletion may delete nothing.
    pub fn entries(&self) -> RangeInclusive<u64> {
        let puts = |layer: &Layer| layer.entries - layer.deletions;
        let base: u64 = self.bases.iter().map(|layer| layer.entries).sum();
        let deleted: u64 = self.deltas.iter().map(|layer| layer.deletions).sum();
        let most = base + self.deltas.iter().map(puts).sum::<u64>();
        // No layer is above these, so all of their puts are there.
        let mut is_covered = vec![false; self.shape.slots.chunks() as usize];
        let mut newest_puts = 0;
        for delta in self.deltas.iter().rev() {
            if !delta.is_part && !delta.chunks.iter().any(|chunk| is_covered[chunk as usize]) {
                newest_puts += puts(delta);
            }
            delta.chunks.iter().for_each(|chunk| is_covered[chunk as usize] = true);
        }
        base.saturating_sub(deleted).max(newest_puts)..=most
    }

    /// Returns the number of deltas over the chunk that has the most.
    pub fn delta_depth(&self) -> usize {
        self.delta_depth_in(&(0..self.shape.slots.chunks()))
    }

    /// Returns the number of deltas over the chunk of a range that has the most.
    pub(super) fn delta_depth_in(&self, chunks: &Range<u32>) -> usize {
        let ranges = self.deltas.iter().flat_map(|delta| delta.chunks.ranges());
        depth(ranges.map(|range| common(range, chunks)).filter(|range| !range.is_empty()))
    }

    /// Returns the size of the version's files together, in bytes, those shared with other versions
    /// included.
    pub fn bytes(&self) -> u64 {
        self.layers().map(|layer| layer.bytes).sum()
    }

    /// Reads the description of a version from the folder `versions`. The version must belong to
    /// the store of the given pointer, if that could be read.
    pub(super) fn read(
        disk: &dyn Disk,
        versions: &Path,
        number: u64,
        of: Option<&Pointer>,
    ) -> Result<VersionInfo> {
        let path = versions.join(file_name(number));
        let listed = of.and_then(|of| of.version(number));
        if !disk.exists(&path)? {
            return Err(no_file(listed, &path));
        }
        let file = folder::open_file(disk, &path, Access::Cached, "file of the version")?;
        let info = VersionInfo::of_file(file.as_ref(), number)?;
        let Some(of) = of else { return Ok(info) };
        let id = listed.map_or(info.name.id, |listed| listed.id);
        check_same("store", of.store, info.store)
            .and_then(|()| check_same("seed", of.seed.0, info.seed.0))
            .and_then(|()| check_same("version id", id, info.name.id))
            .map_err(|error| error.at(file.place()))?;
        Ok(info)
    }

    /// Reads the description of a version from its file.
    pub(super) fn of_file(file: &dyn BlockFile, number: u64) -> Result<VersionInfo> {
        let info = read_fields(file, FileKind::Version, decode)?;
        match info.name.number == number {
            true => Ok(info),
            false => {
                let error = Error::field("version number", number.to_string(), info.name.number);
                Err(error.at(file.place()))
            }
        }
    }

    /// Returns the bytes of the version file.
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let header = Header::new(FileKind::Version, self.seed, self.name.id);
        encode_fields(&header, self.encode_fields())
    }

    fn encode_fields(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let parent = self.parent.unwrap_or(VersionName { number: 0, id: 0 });
        let numbers = [self.store, self.name.number, parent.number, parent.id, self.created_s];
        out.extend(numbers.into_iter().flat_map(u64::to_le_bytes));
        let index = &self.shape.index;
        let sizes = [self.shape.block_size as u32, index.bucket_size, index.coding_limit];
        out.extend(sizes.into_iter().chain([index.absent_bits]).flat_map(u32::to_le_bytes));
        out.push(index_number(index.choice));
        out.push(u8::from(self.changes.is_some()));
        let Changes { added, changed, removed, unchanged } = self.changes.unwrap_or(self.merged);
        let counts = [added, changed, removed, unchanged];
        out.extend(counts.into_iter().flat_map(u64::to_le_bytes));
        put_varint(&mut out, u64::from(self.shape.slots.chunks()));
        for layers in [&self.bases, &self.deltas] {
            put_varint(&mut out, layers.len() as u64);
            layers.iter().for_each(|layer| encode_layer(layer, &mut out));
        }
        put_attributes(&mut out, &self.attributes);
        put_attributes(&mut out, &self.provenance);
        out
    }
}

/// Returns the error for a version without a file: the version is lost if it is listed.
pub(super) fn no_file(listed: Option<VersionName>, path: &Path) -> Error {
    match listed {
        Some(name) => Error::missing(format!("file of version {}", name.number), path),
        None => Error::new(ErrorKind::Absent).at(&Place::file(path)),
    }
}

/// Returns the name of a version's file.
pub(super) fn file_name(number: u64) -> String {
    format!("{number:010}")
}

/// Returns the number in a name that [`file_name`] made.
pub(super) fn number_of(name: &str) -> Option<u64> {
    let number = name.parse().ok()?;
    ((1..=NUMBER_MAX).contains(&number) && file_name(number) == name).then_some(number)
}

/// Returns the numbers of all versions in a store's folder, in order.
pub(super) fn numbers(disk: &dyn Disk, folder: &Path) -> Result<Vec<u64>> {
    let names = disk.list(&folder.join(VERSIONS))?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| number_of(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Returns the maximum number of ranges that have a chunk in common.
fn depth(ranges: impl Iterator<Item = Range<u32>>) -> usize {
    let mut ends: Vec<(u32, bool)> =
        ranges.flat_map(|range| [(range.start, true), (range.end, false)]).collect();
    // Where one range ends and another starts, the end comes first.
    ends.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, is_start) in ends {
        now = if is_start { now + 1 } else { now - 1 };
        most = most.max(now);
    }
    most
}

fn encode_layer(layer: &Layer, out: &mut Vec<u8>) {
    put_varint(out, layer.chunks.ranges().len() as u64);
    for range in layer.chunks.ranges() {
        put_varint(out, u64::from(range.start));
        put_varint(out, u64::from(range.end - range.start));
    }
    out.push(u8::from(layer.is_part));
    out.extend(
        [layer.table, layer.entries, layer.deletions].into_iter().flat_map(u64::to_le_bytes),
    );
    let hash = |hash: Option<&KeyHash>| hash.map_or(0, |hash| hash.bits()).to_le_bytes();
    out.extend(hash(layer.hashes.as_ref().map(RangeInclusive::start)));
    out.extend(hash(layer.hashes.as_ref().map(RangeInclusive::end)));
    let Summary { keys, values, bytes_max, .. } = layer.sizes;
    let sizes = [keys.min, keys.max, values.min, values.max, bytes_max, layer.bytes];
    out.extend(sizes.into_iter().flat_map(u64::to_le_bytes));
    out.extend(layer.root);
}

fn decode(header: &Header, fields: &[u8]) -> Result<VersionInfo> {
    let mut fields = Decoder::new(fields);
    let store = fields.u64()?;
    let number = within("version number", 1..=NUMBER_MAX, fields.u64()?)?;
    let parent = VersionName { number: fields.u64()?, id: fields.u64()? };
    let created_s = fields.u64()?;
    let block_size = fields.u32()? as usize;
    let mut index = IndexOptions {
        bucket_size: fields.u32()?,
        coding_limit: fields.u32()?,
        absent_bits: fields.u32()?,
        choice: IndexChoice::Auto,
    };
    index.choice = index_choice(fields.u8()?)?;
    check_shape(header, index, block_size)?;
    let (changes, merged) = decode_changes(&mut fields)?;
    let chunks = within("number of chunks", 1..=u64::from(SLOTS), fields.varint()?)? as u32;
    let (bases, deltas) = decode_layers(&mut fields, chunks)?;
    let (attributes, provenance) = (fields.attributes()?, fields.attributes()?);
    fields.end()?;
    let slots = SlotMap::new(chunks)?;
    Ok(VersionInfo {
        seed: header.seed,
        store,
        name: VersionName { number, id: header.id },
        parent: (parent.number > 0).then_some(parent),
        created_s,
        shape: Shape { slots, index, block_size },
        changes,
        merged,
        bases,
        deltas,
        attributes,
        provenance,
    })
}

/// Refuses a shape that table builders would refuse.
fn check_shape(header: &Header, index: IndexOptions, block_size: usize) -> Result<()> {
    let refused =
        |what| move |error: Error| Error::field(what, "a value that tables accept", error);
    index.check().map_err(refused("index options"))?;
    let options =
        TableOptions::new().seed(header.seed).id(header.id).index(index).block_size(block_size);
    options.check().map_err(refused("block size in bytes"))
}

/// Adds a number to a sum. Refuses a sum above [`COUNT_MAX`].
fn add(what: &'static str, sum: &mut u64, number: u64) -> Result<()> {
    *sum = sum.saturating_add(number);
    match *sum <= COUNT_MAX {
        true => Ok(()),
        false => Err(Error::field(what, format!("at most {COUNT_MAX} in all"), number)),
    }
}

fn decode_flag(what: &'static str, fields: &mut Decoder<'_>) -> Result<bool> {
    match fields.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        got => Err(Error::field(what, "0 or 1", got)),
    }
}

/// Returns the changes, if they were counted in all chunks, and those of the merged chunks.
fn decode_changes(fields: &mut Decoder<'_>) -> Result<(Option<Changes>, Changes)> {
    let is_known = decode_flag("whether changes are known", fields)?;
    let changes = Changes {
        added: fields.u64()?,
        changed: fields.u64()?,
        removed: fields.u64()?,
        unchanged: fields.u64()?,
    };
    let (mut sum, Changes { added, changed, removed, unchanged }) = (0, changes);
    for number in [added, changed, removed, unchanged] {
        add("number of keys", &mut sum, number)?;
    }
    Ok((is_known.then_some(changes), changes))
}

/// Reads the bases and the deltas of a version with this number of chunks.
fn decode_layers(fields: &mut Decoder<'_>, chunks: u32) -> Result<(Vec<Layer>, Vec<Layer>)> {
    let mut layers = [Vec::new(), Vec::new()];
    let (mut entries, mut payload, mut bytes) = (0, 0, 0);
    let mut tables = HashSet::new();
    for layers in &mut layers {
        for _ in 0..fields.varint()? {
            let layer = decode_layer(fields, chunks)?;
            add("number of entries", &mut entries, layer.entries)?;
            add("payload in bytes", &mut payload, layer.sizes.bytes_max)?;
            add("size of files in bytes", &mut bytes, layer.bytes)?;
            if !tables.insert(layer.table) {
                let got = format!("{:016x}", layer.table);
                return Err(Error::field("table of a layer", "another one in each layer", got));
            }
            layers.push(layer);
        }
    }
    let [bases, deltas] = layers;
    check_bases(&bases, chunks)?;
    let depth = depth(deltas.iter().flat_map(|delta| delta.chunks.ranges()).cloned());
    within("number of deltas of a chunk", 0..=DELTAS_MAX as u64, depth as u64)?;
    Ok((bases, deltas))
}

/// Refuses bases that do not have every chunk once, in order.
fn check_bases(bases: &[Layer], chunks: u32) -> Result<()> {
    let mut next = 0;
    for base in bases {
        if base.deletions > 0 {
            return Err(Error::field("deletions", "0 in a base", base.deletions));
        }
        let expected = next..base.chunks.bounds().end;
        if base.is_part || base.chunks != expected.clone().into() {
            let expected = format!("one range, from {next} on");
            return Err(Error::field("chunks of a base", expected, &base.chunks));
        }
        next = expected.end;
    }
    match next == chunks {
        true => Ok(()),
        false => Err(Error::field("chunks of all bases", format!("0 to {}", chunks - 1), next)),
    }
}

/// Reads the chunks of a layer, in a version with `count` chunks.
fn decode_chunk_set(fields: &mut Decoder<'_>, count: u32) -> Result<ChunkSet> {
    let mut chunks = ChunkSet::default();
    // A range that does not touch the one before it starts at least here.
    let mut least = 0;
    for _ in 0..fields.varint()? {
        let most = u64::from(count);
        let start = within("first chunk of a range", least..=most - 1, fields.varint()?)?;
        let len = within("chunks of a range", 1..=most - start, fields.varint()?)?;
        chunks.push(start as u32..(start + len) as u32);
        least = start + len + 1;
    }
    match chunks.is_empty() {
        true => Err(Error::field("chunks of a layer", "at least one", "none")),
        false => Ok(chunks),
    }
}

fn decode_layer(fields: &mut Decoder<'_>, count: u32) -> Result<Layer> {
    let chunks = decode_chunk_set(fields, count)?;
    let is_part = decode_flag("whether a table has other entries", fields)?;
    let (table, entries, deletions) = (fields.u64()?, fields.u64()?, fields.u64()?);
    if deletions > entries {
        return Err(Error::field("deletions", format!("at most {entries}"), deletions));
    }
    let (first, last) =
        (u128::from_le_bytes(fields.array()?), u128::from_le_bytes(fields.array()?));
    if first > last {
        return Err(Error::field("last hash", format!("{first:#034x} or more"), last));
    }
    let hashes = (entries > 0).then(|| KeyHash::from_bits(first)..=KeyHash::from_bits(last));
    let sizes = Summary {
        entries_max: entries,
        keys: decode_range("size of keys in bytes", fields, KEY_BYTES_MAX)?,
        values: decode_range("size of values in bytes", fields, VALUE_BYTES_MAX)?,
        bytes_max: fields.u64()?,
    };
    let bytes = fields.u64()?;
    let root = fields.array()?;
    Ok(Layer { chunks, is_part, table, entries, deletions, hashes, sizes, bytes, root })
}

fn decode_range(what: &'static str, fields: &mut Decoder<'_>, limit: usize) -> Result<SizeRange> {
    let range = SizeRange { min: fields.u64()?, max: fields.u64()? };
    if range != SizeRange::EMPTY && !(range.min..=limit as u64).contains(&range.max) {
        let got = format!("{} to {}", range.min, range.max);
        return Err(Error::field(what, format!("at most {limit}"), got));
    }
    Ok(range)
}

const INDEXES: [IndexChoice; 4] =
    [IndexChoice::Auto, IndexChoice::Dense, IndexChoice::Sparse, IndexChoice::Fences];

fn index_number(choice: IndexChoice) -> u8 {
    INDEXES.iter().position(|known| *known == choice).expect("all are listed") as u8
}

fn index_choice(number: u8) -> Result<IndexChoice> {
    let known = INDEXES.get(usize::from(number)).copied();
    known.ok_or_else(|| Error::field("index", "0 to 3", number))
}
