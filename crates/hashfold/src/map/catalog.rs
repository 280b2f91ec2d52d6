//! The catalog of a map: a file that says where the entries of each group are.
//!
//! `docs/formats/map.md` has the same tables. The body of the file lists all groups in the order of
//! their key ranges, and ends with zeros that pad it to a multiple of 4096 bytes. A group:
//!
//! | field        | size |                                                                     |
//! |--------------|-----:|---------------------------------------------------------------------|
//! | depth        |    1 | length of the prefix in bits, at most 64; the range begins where the previous one ends |
//! | blocks       |    … | number of blocks in the span, or 0: a variable-length integer       |
//! | first        |    … | number of the first block: a variable-length integer; only if there are blocks, like the next three fields |
//! | write        |    … | number of the write that wrote the blocks: a variable-length integer |
//! | fences       |  4 n | of each block: the 32 bits after the prefix of its first hash       |
//! | sizes        |    … | of the entries in the span                                          |
//! | packet_count |    … | number of packets: a variable-length integer                        |
//! | packets      |    … | newest first                                                        |
//!
//! A packet:
//!
//! | field  | size |                                                              |
//! |--------|-----:|--------------------------------------------------------------|
//! | block  |    … | number of its block: a variable-length integer               |
//! | write  |    … | number of the write that wrote the block: a variable-length integer |
//! | sizes  |    … | of its entries                                               |
//! | filter |    … | its Bloom filter: size, the number k of probes (1 byte; not in version 1), bits |
//!
//! Large values: for each packet and then the span of each group, in order. All of this is absent if
//! there is no large value and no entry of a span that expires.
//!
//! | field  | size |                                                                      |
//! |--------|-----:|----------------------------------------------------------------------|
//! | count  |    … | number of large values: a variable-length integer                    |
//! | bytes  |    … | of all of them together: a variable-length integer; only if there are some, like the next two fields |
//! | sizes  |    8 | of the shortest and of the longest one, 4 bytes each                 |
//! | places |    … | of each value: its first block, its number of blocks; variable-length integers, ascending |
//!
//! Entries of spans that expire, for the span of each group, in order. All of this is absent if there
//! is no such entry. The large values are not, then, even if there are none.
//!
//! | field  | size |                                                                      |
//! |--------|-----:|----------------------------------------------------------------------|
//! | count  |    … | number of entries that expire: a variable-length integer; 0 also if there is no span |
//! | first  |    8 | time at which the first of them expires, in milliseconds since 1970-01-01 UTC; only if there are some, like the next field |
//! | middle |    8 | time at which at least half of them have expired                     |
//!
//! Sizes:
//!
//! | field   | size |                                                                 |
//! |---------|-----:|-----------------------------------------------------------------|
//! | entries |    … | number of entries: a variable-length integer                    |
//! | bytes   |    … | of all keys and values, with 8 for each entry that expires: a variable-length integer |
//! | keys    |    4 | size of the shortest and of the longest key, 2 bytes each       |
//! | values  |    4 | size of the shortest and of the longest value, 2 bytes each; 65535 and 0 if there are none               |
//!
//! The fields of the footer:
//!
//! | field      | size |                                                                       |
//! |------------|-----:|-----------------------------------------------------------------------|
//! | groups     |    8 | number of groups                                                      |
//! | body_size  |    8 | of the body without its padding, in bytes                             |
//! | seq        |    8 | all changes before this sequence number are in the groups             |
//! | logged     |    8 | no change from this sequence number on is in the groups; the changes between are durable in the log |
//! | next_write |    8 | larger than the number of every write in the groups                   |

use super::{
    bloom::{Bloom, PROBES_V1},
    devices::Identity,
    expiries::Expiries,
    large::{Owner, Owners},
    prefix::{DEPTH_MAX, Prefix},
    sizes::{LargeSizes, Sizes},
    space::{Blocks, Space},
    span::{Packet, Span, Stored},
};
use crate::{
    checksum::{crc32c, crc32c_append},
    codec::{Decoder, put_bytes, put_varint, within},
    error::{Error, Result, check_sum},
    io::{
        ALIGNMENT, Access, BlockFile, Buffer, Disk,
        frame::{FileKind, Footer, Header, check_zeros},
    },
};
use std::{collections::HashMap, path::Path, sync::Arc};

const PREFIX: &str = "catalog-";
/// Number of bytes of a catalog that are collected for one write. A catalog is as large as all addresses
/// and Bloom filters in RAM together, and a copy of them would exceed the memory budget.
const PART_BYTES: usize = if cfg!(test) { 8 << 10 } else { 1 << 20 };
/// The largest number of a write and of a change. Only a damaged file has larger ones.
const NUMBER_MAX: u64 = u64::MAX / 2;

/// Returns the name of a catalog.
pub(super) fn name(number: u64) -> String {
    format!("{PREFIX}{number:010}")
}

/// Whether a file in the folder of a map is a catalog.
pub(super) fn is_catalog(file_name: &str) -> bool {
    let number = file_name.strip_prefix(PREFIX).and_then(|number| number.parse().ok());
    number.is_some_and(|number| name(number) == file_name)
}

/// The sequence numbers of a catalog, and its next write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// All changes before this sequence number are in the groups.
    pub(super) seq: u64,
    /// No change from this sequence number on is in the groups.
    pub(super) logged: u64,
    /// Larger than the number of every write in the groups.
    pub(super) next_write: u64,
}

/// A catalog that is written in parts.
struct Parts {
    file: Arc<dyn BlockFile>,
    /// The bytes that are not written yet, from `offset` on.
    bytes: Vec<u8>,
    /// A multiple of [`ALIGNMENT`].
    offset: u64,
    /// Checksum of the bytes of the body that are written.
    sum: u32,
}

impl Parts {
    /// Writes the header. The body follows it.
    fn begin(file: Arc<dyn BlockFile>, header: &Header) -> Result<Parts> {
        file.write_at(0, &header.encode())?;
        let bytes = Vec::with_capacity(PART_BYTES);
        Ok(Parts { file, bytes, offset: ALIGNMENT as u64, sum: crc32c(&[]) })
    }

    /// Appends what `put` encodes for each group.
    fn put_all(
        &mut self,
        groups: &[Arc<Stored>],
        put: impl Fn(&mut Vec<u8>, &Stored),
    ) -> Result<()> {
        for stored in groups {
            put(&mut self.bytes, stored);
            if self.bytes.len() >= PART_BYTES {
                self.write_blocks()?;
            }
        }
        Ok(())
    }

    /// Returns the size of the body so far, in bytes.
    fn body_size(&self) -> u64 {
        self.offset - ALIGNMENT as u64 + self.bytes.len() as u64
    }

    /// Writes the whole blocks of the bytes.
    fn write_blocks(&mut self) -> Result<()> {
        let whole = self.bytes.len() / ALIGNMENT * ALIGNMENT;
        self.file.write_at(self.offset, &self.bytes[..whole])?;
        self.sum = crc32c_append(self.sum, &self.bytes[..whole]);
        self.offset += whole as u64;
        self.bytes.drain(..whole);
        Ok(())
    }

    /// Writes the rest of the body and the footer, and syncs the file. Returns its size, in bytes.
    fn finish(mut self, fields: Vec<u8>) -> Result<u64> {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
        let body_sum = crc32c_append(self.sum, &self.bytes);
        let end = self.offset + self.bytes.len() as u64;
        let footer = Footer { fields, body_sum }.encode(end);
        self.bytes.extend_from_slice(&footer);
        self.file.write_at(self.offset, &self.bytes)?;
        self.file.sync()?;
        Ok(end + footer.len() as u64)
    }
}

/// Writes and syncs a catalog. Returns its size, in bytes.
pub(super) fn write(
    disk: &dyn Disk,
    path: &Path,
    identity: Identity,
    position: Position,
    groups: &[Arc<Stored>],
) -> Result<u64> {
    let header = Header::new(FileKind::MapCatalog, identity.seed, identity.id);
    let mut parts = Parts::begin(disk.create(path, Access::Cached)?, &header)?;
    parts.put_all(groups, put_group)?;
    let expire = groups.iter().any(|stored| !stored.expiries().is_empty());
    let is_large = |stored: &Arc<Stored>| stored.owners().any(|owners| !owners.is_empty());
    if expire || groups.iter().any(is_large) {
        parts.put_all(groups, put_large)?;
    }
    if expire {
        parts.put_all(groups, |out, stored| stored.expiries().encode(out))?;
    }
    let Position { seq, logged, next_write } = position;
    let numbers = [groups.len() as u64, parts.body_size(), seq, logged, next_write];
    parts.finish(numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
}

/// Reads a catalog, and claims the blocks of its groups. Returns the owners of large values, too.
pub(super) fn read(
    file: &dyn BlockFile,
    identity: Identity,
    space: &Arc<Space>,
) -> Result<(Position, Vec<Stored>, Owners)> {
    let version = Header::read_of(file, FileKind::MapCatalog, identity.seed, identity.id)?.version;
    let (footer, end) = Footer::read(file)?;
    let mut fields = Decoder::new(&footer.fields);
    let mut field = || fields.u64();
    let [groups, body_size, seq, logged, next_write] =
        [field()?, field()?, field()?, field()?, field()?];
    let body_place = file.place().offset(ALIGNMENT as u64);
    let mut body = Buffer::zeroed((end - ALIGNMENT as u64) as usize);
    file.read_at(ALIGNMENT as u64, &mut body)?;
    let decoded = (|| {
        fields.end()?;
        check_sum(footer.body_sum, crc32c(&body))?;
        within("size of the catalog's body", 0..=body.len() as u64, body_size)?;
        within("end of the log in the catalog", 0..=NUMBER_MAX, logged)?;
        within("sequence number of the catalog", 0..=logged, seq)?;
        within("next write of the catalog", 1..=NUMBER_MAX, next_write)?;
        let (body, padding) = body.split_at(body_size as usize);
        check_zeros(padding)?;
        decode_groups((body, version), groups, next_write, space)
    })();
    let (groups, owners) = decoded.map_err(|error: Error| error.at(&body_place))?;
    Ok((Position { seq, logged, next_write }, groups, owners))
}

fn put_group(out: &mut Vec<u8>, stored: &Stored) {
    out.push(stored.prefix.depth);
    put_varint(out, stored.span_blocks());
    if let Some(span) = &stored.span {
        put_varint(out, span.blocks.first);
        put_varint(out, span.write);
        out.extend(span.fences.iter().flat_map(|fence| fence.to_le_bytes()));
        span.sizes.encode(out);
    }
    put_varint(out, stored.packets.len() as u64);
    for packet in &stored.packets {
        put_varint(out, packet.block.first);
        put_varint(out, packet.write);
        packet.sizes.encode(out);
        put_bytes(out, packet.filter.bytes());
    }
}

fn put_large(out: &mut Vec<u8>, stored: &Stored) {
    let packets = stored.packets.iter().map(|packet| (&packet.sizes, &packet.owners));
    let span = stored.span.iter().map(|span| (&span.sizes, &span.owners));
    for (sizes, owners) in packets.chain(span) {
        put_varint(out, owners.len() as u64);
        if !owners.is_empty() {
            sizes.large.encode(out);
        }
        for owner in owners {
            put_varint(out, owner.first);
            put_varint(out, owner.count);
        }
    }
}

/// A decoder of the groups of a catalog.
struct Groups<'a> {
    fields: Decoder<'a>,
    /// The format version of the catalog.
    version: u16,
    next_write: u64,
    space: &'a Arc<Space>,
    /// The blocks of packets that were claimed.
    blocks: HashMap<u64, Arc<Blocks>>,
    /// The owners of large values.
    owners: Owners,
}

fn decode_groups(
    (body, version): (&[u8], u16),
    count: u64,
    next_write: u64,
    space: &Arc<Space>,
) -> Result<(Vec<Stored>, Owners)> {
    let fields = Decoder::new(body);
    let (blocks, owners) = (HashMap::new(), Owners::default());
    let mut decoder = Groups { fields, version, next_write, space, blocks, owners };
    let mut groups = Vec::new();
    let mut start = Some(0);
    for _ in 0..count {
        let depth =
            within("prefix of a group in bits", 0..=DEPTH_MAX.into(), decoder.fields.u8()?.into())?;
        let depth = depth as u8;
        // The start of a range has no bits after its prefix.
        let is_prefix = |start: &u64| start.checked_shl(depth.into()).unwrap_or(0) == 0;
        let Some(first) = start.filter(is_prefix) else {
            let expected = "ranges that follow each other";
            return Err(Error::field("prefix of a group in bits", expected, depth));
        };
        let prefix = Prefix { start: first, depth };
        groups.push(decoder.group(prefix)?);
        start = prefix.end();
    }
    if groups.is_empty() || start.is_some() {
        return Err(Error::field("number of groups", "all hashes in one of them", count));
    }
    if !decoder.fields.rest().is_empty() {
        groups.iter_mut().try_for_each(|stored| decoder.large(stored))?;
    }
    if !decoder.fields.rest().is_empty() {
        groups.iter_mut().try_for_each(|stored| decoder.expiries(stored))?;
    }
    decoder.fields.end()?;
    Ok((groups, decoder.owners))
}

impl Groups<'_> {
    fn group(&mut self, prefix: Prefix) -> Result<Stored> {
        let span = match self.fields.varint()? {
            0 => None,
            count => Some(Arc::new(self.span(count)?)),
        };
        let mut packets = Vec::new();
        for _ in 0..self.fields.varint()? {
            packets.push(Arc::new(self.packet()?));
        }
        Ok(Stored { prefix, span, packets })
    }

    fn span(&mut self, count: u64) -> Result<Span> {
        let first = self.fields.varint()?;
        let write = self.write()?;
        let size =
            count.checked_mul(4).ok_or_else(|| Error::field("blocks of a span", "less", count))?;
        let (fences, _) = self.fields.bytes(size)?.as_chunks::<4>();
        let fences: Box<[u32]> = fences.iter().map(|fence| u32::from_le_bytes(*fence)).collect();
        if !fences.is_sorted() {
            return Err(Error::field("fences of a span", "ascending numbers", "others"));
        }
        let sizes = Sizes::decode(&mut self.fields, count)?;
        let blocks = self.space.claim(first, count)?;
        let (owners, expiries) = (Box::default(), Expiries::default());
        let mirror = self.space.new_mirror();
        Ok(Span { blocks, write, fences, sizes, owners, expiries, mirror })
    }

    fn packet(&mut self) -> Result<Packet> {
        let number = self.fields.varint()?;
        let write = self.write()?;
        let sizes = Sizes::decode(&mut self.fields, 1)?;
        let filter = self.fields.sized_bytes()?;
        let filter = match self.version {
            1 => Bloom::from_bits(PROBES_V1, filter),
            _ => Bloom::from_bytes(filter),
        };
        let block = match self.blocks.get(&number) {
            Some(block) => block.clone(),
            None => {
                let block = Arc::new(self.space.claim(number, 1)?);
                self.blocks.insert(number, block.clone());
                block
            }
        };
        Ok(Packet { block, write, filter, sizes, owners: Box::default() })
    }

    /// Decodes the large values of a group.
    fn large(&mut self, stored: &mut Stored) -> Result<()> {
        for packet in &mut stored.packets {
            let packet = Arc::get_mut(packet).expect("it was made just now");
            packet.owners = self.owners(&mut packet.sizes)?;
        }
        if let Some(span) = &mut stored.span {
            let span = Arc::get_mut(span).expect("it was made just now");
            span.owners = self.owners(&mut span.sizes)?;
        }
        Ok(())
    }

    /// Decodes when the entries of a group's span expire.
    fn expiries(&mut self, stored: &mut Stored) -> Result<()> {
        let entries = stored.span.as_ref().map_or(0, |span| span.sizes.entries);
        let expiries = Expiries::decode(&mut self.fields, entries)?;
        if let Some(span) = &mut stored.span {
            Arc::get_mut(span).expect("it was made just now").expiries = expiries;
        }
        Ok(())
    }

    fn owners(&mut self, sizes: &mut Sizes) -> Result<Box<[Owner]>> {
        let count = within("number of large values", 0..=sizes.entries, self.fields.varint()?)?;
        if count == 0 {
            return Ok(Box::default());
        }
        sizes.large = LargeSizes::decode(&mut self.fields)?;
        let mut owners: Vec<Owner> = Vec::new();
        for _ in 0..count {
            let (first, blocks) = (self.fields.varint()?, self.fields.varint()?);
            if owners.last().is_some_and(|last| last.first >= first) {
                return Err(Error::field("places of large values", "ascending numbers", first));
            }
            owners.push(self.owners.claim_blocks(self.space, first, blocks)?);
        }
        Ok(owners.into())
    }

    fn write(&mut self) -> Result<u64> {
        within("number of a write", 0..=self.next_write.saturating_sub(1), self.fields.varint()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        io::{CountingDisk, MemoryDisk},
        key::Seed,
    };

    #[test]
    fn a_large_catalog_is_written_in_parts_and_comes_back() {
        let disk = CountingDisk::on(Arc::new(MemoryDisk::default()));
        let identity = Identity { seed: Seed(1), id: 2 };
        let position = Position { seq: 3, logged: 5, next_write: 7 };
        let groups: Vec<Arc<Stored>> =
            Prefix::all(14).into_iter().map(Stored::empty).map(Arc::new).collect();
        let path = Path::new(PREFIX);
        let size = write(&disk, path, identity, position, &groups).unwrap();
        let moved = disk.take();
        assert_eq!(moved.written_bytes, size);
        assert!(size / moved.writes <= PART_BYTES as u64 && moved.writes > 5, "{moved:?}");
        let space = Space::new(disk.create(Path::new("data"), Access::Cached).unwrap()).unwrap();
        let file = disk.open(path, Access::Cached).unwrap();
        let (found, stored, _) = read(&*file, identity, &space).unwrap();
        assert_eq!(found, position);
        assert!(stored.iter().map(|stored| stored.prefix).eq(Prefix::all(14)));
    }
}
