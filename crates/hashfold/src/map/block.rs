//! The block of a map: entries in order of (hash, key), of any sizes, in 4096 bytes.
//!
//! Hashes are not stored. A search compares one byte of the hash with the tag of each entry, and
//! then compares keys. `docs/formats/map.md` has the same tables. A block:
//!
//! | offset | size | field      |                                                                  |
//! |-------:|-----:|------------|------------------------------------------------------------------|
//! |      0 |    4 | checksum   | seal (frame.md) of the block, with `write` as the epoch          |
//! |      4 |    1 | kind       | 1 block of a span, 2 block of packets                            |
//! |      5 |    1 | layout     | 1 slots, 2 all keys of one size and all values of one size       |
//! |      6 |    2 | count      | number of entries, at least 1                                    |
//! |      8 |    8 | number     | of the block: its offset in the file, divided by 4096            |
//! |     16 |    8 | write      | number of the write that wrote the block                         |
//! |     24 |    2 | key_size   | in bytes; layout 2 only, else 0                                  |
//! |     26 |    2 | value_size | in bytes; layout 2 only, else 0                                  |
//! |     28 |    2 | end        | of the last entry: its offset in the block                       |
//! |     30 |    2 | zero       |                                                                  |
//! |     32 |    n | tags       | lowest byte of the hash of each of the n entries                 |
//! |        |  4 n | slots      | layout 1 only                                                    |
//! |        |    … | entries    | the key and the value of each entry, without gaps; then zeros    |
//!
//! A slot:
//!
//! | offset | size | field    |                                                               |
//! |-------:|-----:|----------|---------------------------------------------------------------|
//! |      0 |    2 | start    | of the entry: its offset in the block                         |
//! |      2 |    2 | key_size | in bytes; plus 32768 for a tombstone, which has no value; plus 16384 if the value is a pointer to a large value; plus 8192 if the entry expires |

use super::{
    item::{Change, Content, EXPIRY_SIZE, Form, Item},
    pointer::{INLINE_BYTES_MAX, POINTER_SIZE},
};
use crate::{
    codec::{Decoder, within},
    error::{Error, Result, check_same},
    io::Seal,
    key::{KeyHash, Seed},
};
use std::ops::Range;

/// Size of a block, in bytes.
pub(super) const BLOCK_SIZE: usize = 4096;
/// Size of the fields before the tags, in bytes.
const HEAD_SIZE: usize = 32;
const SLOT_SIZE: usize = 4;
/// Maximum size of what a block has of an entry besides its key and value, in bytes.
pub(super) const ENTRY_EXTRA_MAX: usize = 1 + SLOT_SIZE;
/// The bit of a slot's key size that marks a tombstone.
const TOMBSTONE: u16 = 1 << 15;
/// The bit of a slot's key size that marks a pointer to a large value.
const LARGE: u16 = 1 << 14;
/// The bit of a slot's key size that marks an entry that expires.
const EXPIRES: u16 = 1 << 13;
const SLOTS: u8 = 1;
const EQUAL_SIZES: u8 = 2;

/// The longest key of a map, in bytes: a quarter of a block.
pub const KEY_BYTES_MAX: usize = BLOCK_SIZE / 4;
const ENTRY_SIZE_MAX: usize = KEY_BYTES_MAX + EXPIRY_SIZE + INLINE_BYTES_MAX;
const _: () = assert!(HEAD_SIZE + 1 + SLOT_SIZE + ENTRY_SIZE_MAX <= BLOCK_SIZE);
const _: () = assert!(INLINE_BYTES_MAX == BLOCK_SIZE / 4);
const _: () = assert!(KEY_BYTES_MAX < EXPIRES as usize && INLINE_BYTES_MAX >= POINTER_SIZE);

/// The purpose of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    /// Entries of one group, and no tombstones.
    Span = 1,
    /// Changes of one group or several.
    Packets = 2,
    /// A part of a large value.
    Large = 3,
}

/// The identity of a block: a block that was misdirected, or is older, has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockId {
    pub(super) kind: BlockKind,
    /// Number of the block in its file.
    pub(super) number: u64,
    /// Id of the file.
    pub(super) file_id: u64,
    /// Number of the write that wrote the block.
    pub(super) write: u64,
}

impl BlockId {
    pub(super) fn seal(self) -> Seal {
        Seal { number: self.number, file_id: self.file_id, epoch: self.write }
    }
}

/// Checks a block, and makes it that of another place: `number`.
///
/// # Errors
/// The block is damaged.
pub(super) fn renumber(block: &mut [u8], id: BlockId, number: u64) -> Result<()> {
    id.seal().check(block)?;
    block[8..16].copy_from_slice(&number.to_le_bytes());
    BlockId { number, ..id }.seal().put(block);
    Ok(())
}

/// The size of a block that is being filled.
#[derive(Clone, Copy, Debug)]
struct Fill {
    count: usize,
    /// Size of all keys and values, in bytes.
    bytes: usize,
    /// The sizes of key and value that all entries share. A tombstone, a pointer and an entry that
    /// expires have no shared sizes.
    equal: Option<(u16, u16)>,
}

impl Fill {
    const EMPTY: Fill = Fill { count: 0, bytes: 0, equal: None };

    fn with(self, item: &Item) -> Fill {
        let value_size = item.value_size().filter(|_| item.form == Form::default());
        let sizes = value_size.map(|value| (item.key_size, value));
        let equal =
            if self.count == 0 { sizes } else { self.equal.filter(|_| self.equal == sizes) };
        Fill { count: self.count + 1, bytes: self.bytes + item.size(), equal }
    }

    /// Returns the offset of the first entry.
    fn entries_start(&self) -> usize {
        let slot = if self.equal.is_some() { 0 } else { SLOT_SIZE };
        HEAD_SIZE + self.count * (1 + slot)
    }
}

/// Returns how many of the first items fit in one block: at least one, if there is one.
pub(super) fn fitting(items: &[Item]) -> usize {
    let mut fill = Fill::EMPTY;
    for item in items {
        let next = fill.with(item);
        if next.entries_start() + next.bytes > BLOCK_SIZE {
            break;
        }
        fill = next;
    }
    fill.count
}

/// Encodes a block from items that fit in it; `bytes` holds their keys and values.
pub(super) fn encode(items: &[Item], bytes: &[u8], id: BlockId, out: &mut [u8]) {
    assert!(!items.is_empty());
    assert_eq!(out.len(), BLOCK_SIZE);
    let fill = items.iter().fold(Fill::EMPTY, Fill::with);
    let start = fill.entries_start();
    let end = start + fill.bytes;
    assert!(end <= BLOCK_SIZE);
    out.fill(0);
    let (key_size, value_size) = fill.equal.unwrap_or_default();
    out[4] = id.kind as u8;
    out[5] = if fill.equal.is_some() { EQUAL_SIZES } else { SLOTS };
    out[6..8].copy_from_slice(&(items.len() as u16).to_le_bytes());
    out[8..16].copy_from_slice(&id.number.to_le_bytes());
    out[16..24].copy_from_slice(&id.write.to_le_bytes());
    out[24..26].copy_from_slice(&key_size.to_le_bytes());
    out[26..28].copy_from_slice(&value_size.to_le_bytes());
    out[28..30].copy_from_slice(&(end as u16).to_le_bytes());
    let mut at = start;
    for (i, item) in items.iter().enumerate() {
        out[HEAD_SIZE + i] = tag_of(item.hash);
        if fill.equal.is_none() {
            let slot = &mut out[HEAD_SIZE + items.len() + SLOT_SIZE * i..][..SLOT_SIZE];
            slot[..2].copy_from_slice(&(at as u16).to_le_bytes());
            slot[2..].copy_from_slice(&(item.key_size | marks_of(item)).to_le_bytes());
        }
        let entry = &bytes[item.start as usize..][..item.size()];
        out[at..][..entry.len()].copy_from_slice(entry);
        at += entry.len();
    }
    id.seal().put(out);
}

fn tag_of(hash: KeyHash) -> u8 {
    hash.low() as u8
}

/// Returns the bits of a slot's key size that say what follows the key.
fn marks_of(item: &Item) -> u16 {
    let Form { is_large, expires } = item.form;
    let marks = [(item.value_size().is_none(), TOMBSTONE), (is_large, LARGE), (expires, EXPIRES)];
    marks.iter().filter(|(is_set, _)| *is_set).map(|(_, mark)| mark).sum()
}

/// Refuses sizes that no entry of a map has.
fn check_entry(key_size: usize, value_size: usize) -> Result<()> {
    within("key size in a block", 0..=KEY_BYTES_MAX as u64, key_size as u64)?;
    within("value size in a block", 0..=INLINE_BYTES_MAX as u64, value_size as u64).map(drop)
}

/// A block whose checksum was checked. Its slots are checked when they are used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block<'a> {
    bytes: &'a [u8],
    pub(super) count: usize,
    layout: u8,
    key_size: usize,
    value_size: usize,
    end: usize,
}

/// The key and the content of an entry: offsets in the block.
#[derive(Clone, Debug, PartialEq, Eq)]
struct EntryRange {
    key: Range<usize>,
    /// The time at which the entry expires, if it does, and the value or the pointer to it; `None`
    /// for a tombstone.
    content: Option<Range<usize>>,
    form: Form,
}

impl<'a> Block<'a> {
    /// Decodes a block, which must have this identity.
    ///
    /// # Errors
    /// Damage, without a place.
    pub(super) fn decode(bytes: &'a [u8], id: BlockId) -> Result<Block<'a>> {
        if bytes.len() != BLOCK_SIZE {
            return Err(Error::field("size of a block", BLOCK_SIZE.to_string(), bytes.len()));
        }
        id.seal().check(bytes)?;
        let mut fields = Decoder::new(&bytes[4..HEAD_SIZE]);
        let (kind, layout, count) = (fields.u8()?, fields.u8()?, fields.u16()? as usize);
        check_same("kind of block", id.kind as u64, u64::from(kind))?;
        check_same("number of the block", id.number, fields.u64()?)?;
        check_same("write of the block", id.write, fields.u64()?)?;
        let (key_size, value_size) = (fields.u16()? as usize, fields.u16()? as usize);
        let end = fields.u16()? as usize;
        let entries = match layout {
            SLOTS => HEAD_SIZE + count * (1 + SLOT_SIZE),
            EQUAL_SIZES => HEAD_SIZE + count * (1 + key_size + value_size),
            _ => return Err(Error::field("layout of a block", "1 or 2", layout)),
        };
        if count == 0 || entries > end || end > BLOCK_SIZE {
            let expected = format!("1 or more that end at byte {end} of {BLOCK_SIZE}");
            return Err(Error::field("number of entries in a block", expected, count));
        }
        check_entry(key_size, value_size)?;
        Ok(Block { bytes, count, layout, key_size, value_size, end })
    }

    /// Returns the place of an entry in the block, checked.
    fn range(&self, i: usize) -> Result<EntryRange> {
        assert!(i < self.count);
        if self.layout == EQUAL_SIZES {
            let start = HEAD_SIZE + self.count + i * (self.key_size + self.value_size);
            let middle = start + self.key_size;
            let content = Some(middle..middle + self.value_size);
            return Ok(EntryRange { key: start..middle, content, form: Form::default() });
        }
        let (start, key_size) = self.slot(i);
        let end = if i + 1 < self.count { self.slot(i + 1).0 } else { self.end };
        let middle = start + usize::from(key_size & !(TOMBSTONE | LARGE | EXPIRES));
        let is_deleted = key_size & TOMBSTONE != 0;
        let form = Form { is_large: key_size & LARGE != 0, expires: key_size & EXPIRES != 0 };
        let first = HEAD_SIZE + self.count * (1 + SLOT_SIZE);
        let value = middle + form.expiry_size();
        if start < first
            || value > end
            || end > self.end
            || (is_deleted && (middle < end || form != Form::default()))
        {
            let expected = format!("within bytes {first} to {}", self.end);
            let got = format!("bytes {start} to {end} with a key up to byte {middle}");
            return Err(Error::field("entry of a block", expected, got));
        }
        check_entry(middle - start, end - value)?;
        Ok(EntryRange { key: start..middle, content: (!is_deleted).then_some(middle..end), form })
    }

    fn slot(&self, i: usize) -> (usize, u16) {
        let slot = &self.bytes[HEAD_SIZE + self.count + SLOT_SIZE * i..];
        let number = |at: usize| u16::from_le_bytes([slot[at], slot[at + 1]]);
        (number(0).into(), number(2))
    }

    /// Returns an entry, with the hash of its key.
    pub(super) fn entry(&self, i: usize, seed: Seed) -> Result<Change<'a>> {
        let range = self.range(i)?;
        let key = &self.bytes[range.key.clone()];
        Ok(Change { hash: KeyHash::of(key, seed), key, content: self.content(range)? })
    }

    fn content(&self, range: EntryRange) -> Result<Content<'a>> {
        match range.content {
            None => Ok(Content::TOMBSTONE),
            Some(content) => Content::decode(&self.bytes[content], range.form),
        }
    }

    /// Finds a key.
    pub(super) fn find(&self, hash: KeyHash, key: &[u8]) -> Result<Option<Content<'a>>> {
        let tags = &self.bytes[HEAD_SIZE..][..self.count];
        for (i, _) in tags.iter().enumerate().filter(|(_, tag)| **tag == tag_of(hash)) {
            let range = self.range(i)?;
            if &self.bytes[range.key.clone()] == key {
                return self.content(range).map(Some);
            }
        }
        Ok(None)
    }

    /// Returns the number of entries with hashes below `start`.
    pub(super) fn entries_below(&self, start: KeyHash, seed: Seed) -> Result<usize> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if self.entry(middle, seed)?.hash < start {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Checks that tags are right and padding is zeros.
    pub(super) fn check(&self, seed: Seed) -> Result<()> {
        for i in 0..self.count {
            let expected = tag_of(self.entry(i, seed)?.hash);
            let got = self.bytes[HEAD_SIZE + i];
            check_same("tag of an entry", u64::from(expected), u64::from(got))?;
        }
        crate::io::frame::check_zeros(&self.bytes[self.end..])
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{batch::Batch, item::Value, pointer::Pointer},
        *,
    };

    const SEED: Seed = Seed(5);
    const ID: BlockId = BlockId { kind: BlockKind::Packets, number: 3, file_id: 4, write: 5 };

    type Pairs<'a> = [(&'a [u8], Option<&'a [u8]>)];

    const POINTER: Pointer = Pointer { first: 7, write: 8, size: 5000 };

    /// Returns the content of a pair; "large" stands for a large value. Values that end with "@"
    /// expire.
    fn content(value: Option<&[u8]>) -> Content<'_> {
        let expires = value.is_some_and(|value| value.ends_with(b"@"));
        let value = match value {
            None => Value::Tombstone,
            Some(b"large" | b"large@") => Value::Large(POINTER),
            Some(value) => Value::Inline(value),
        };
        Content { value, expires_at: expires.then_some(0x0102_0304_0506_0708) }
    }

    fn batch(pairs: &Pairs<'_>) -> Batch {
        let mut batch = Batch::default();
        for (key, bytes) in pairs {
            let content = content(*bytes);
            batch.push(Change { hash: KeyHash::of(key, SEED), key, content }, 0);
        }
        batch.settle(0);
        batch
    }

    fn encoded(pairs: &Pairs<'_>) -> Vec<u8> {
        let batch = batch(pairs);
        assert_eq!(fitting(&batch.items), batch.items.len());
        let mut out = vec![1; BLOCK_SIZE];
        encode(&batch.items, &batch.bytes, ID, &mut out);
        out
    }

    #[track_caller]
    fn check(pairs: &Pairs<'_>, layout: u8) {
        let bytes = encoded(pairs);
        let block = Block::decode(&bytes, ID).unwrap();
        assert_eq!((block.count, block.layout), (pairs.len(), layout));
        block.check(SEED).unwrap();
        for (key, bytes) in pairs {
            let found = block.find(KeyHash::of(key, SEED), key).unwrap();
            assert_eq!(found, Some(content(*bytes)));
        }
        assert_eq!(block.find(KeyHash::of(b"absent", SEED), b"absent").unwrap(), None);
        let hashes: Vec<_> = (0..block.count).map(|i| block.entry(i, SEED).unwrap().hash).collect();
        assert!(hashes.is_sorted());
        for (i, hash) in hashes.iter().enumerate() {
            assert_eq!(block.entries_below(*hash, SEED).unwrap(), i);
        }
    }

    #[test]
    fn entries_of_any_sizes_come_back() {
        check(&[(b"a", Some(b"1"))], EQUAL_SIZES);
        check(&[(b"a", Some(b"1")), (b"b", Some(b"2")), (b"c", Some(b""))], SLOTS);
        check(&[(b"a", None), (b"", Some(b"2")), (b"cc", Some(b"longer"))], SLOTS);
        check(&[(b"", Some(b""))], EQUAL_SIZES);
        check(&[(&[7; KEY_BYTES_MAX], Some(&[8; INLINE_BYTES_MAX])), (b"x", None)], SLOTS);
        check(&[(b"a", Some(b"large"))], SLOTS);
        check(&[(b"a", Some(b"large")), (b"b", None), (b"c", Some(b"inline"))], SLOTS);
        check(&[(b"a", Some(b"@"))], SLOTS);
        check(&[(b"a", Some(b"1@")), (b"b", Some(b"2@")), (b"c", Some(b"33"))], SLOTS);
        check(&[(b"a", Some(b"large@")), (b"", Some(b"@")), (b"c", None)], SLOTS);
        let longest = [&[8; INLINE_BYTES_MAX - 1][..], b"@"].concat();
        check(&[(&[7; KEY_BYTES_MAX], Some(&longest))], SLOTS);
    }

    #[test]
    fn records_of_16_bytes_take_17() {
        let keys: Vec<[u8; 8]> = (0..1000_u64).map(u64::to_le_bytes).collect();
        let pairs: Vec<_> = keys.iter().map(|key| (&key[..], Some(&b"12345678"[..]))).collect();
        assert_eq!(fitting(&batch(&pairs).items), (BLOCK_SIZE - HEAD_SIZE) / 17);
        check(&pairs[..239], EQUAL_SIZES);
    }

    #[test]
    fn a_flipped_bit_or_another_place_is_detected() {
        let bytes = encoded(&[(b"a", Some(b"1")), (b"b", None)]);
        for bit in 0..8 * BLOCK_SIZE {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Block::decode(&bad, ID).is_err(), "bit {bit}");
        }
        let others = [
            BlockId { number: 2, ..ID },
            BlockId { write: 4, ..ID },
            BlockId { file_id: 3, ..ID },
            BlockId { kind: BlockKind::Span, ..ID },
        ];
        assert!(others.iter().all(|other| Block::decode(&bytes, *other).is_err()));
        assert!(Block::decode(&bytes[..4095], ID).is_err());
    }

    /// Every value of every byte of the fields and slots, with a valid checksum.
    #[test]
    fn forged_fields_never_panic() {
        let pairs: [&Pairs<'_>; 2] = [
            &[(b"a", Some(b"large")), (b"bb", None), (b"c", Some(b"33"))],
            &[(b"a", Some(b"large@")), (b"bb", Some(b"22@")), (b"c", Some(b"@"))],
        ];
        pairs.into_iter().for_each(check_forged);
    }

    #[track_caller]
    fn check_forged(pairs: &Pairs<'_>) {
        let good = encoded(pairs);
        let mut refused = 0;
        for (at, byte) in (4..64).flat_map(|at| (0..=255).map(move |byte| (at, byte))) {
            let mut bytes = good.clone();
            bytes[at] = byte;
            ID.seal().put(&mut bytes);
            let read = Block::decode(&bytes, ID).and_then(|block| {
                (0..block.count).try_for_each(|i| block.entry(i, SEED).map(drop))?;
                block.find(KeyHash::of(b"a", SEED), b"a")?;
                block.check(SEED)
            });
            refused += usize::from(read.is_err());
        }
        assert!(refused > 5000, "{refused}");
    }
}
