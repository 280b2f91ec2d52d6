//! Keys with their values in blocks.
//!
//! ```text
//! reference marked  key │ value
//! otherwise         length of the key (varint of 1 to 3 bytes) │ key │ value
//! above 32767 bytes a head of 16 bytes: length, list ─→ list of extents ─→ blocks, which together have these bytes
//! ```
//!
//! The keys of marked references have one length, that of the first key: most tables have keys of one length, for which
//! the varints would be a large part of short values. All extents but the last are full. The length in a reference to a
//! head is 0, which no other block has.

use super::{
    classes::BLOCK_BYTES_MAX,
    short,
    slabs::{Reference, Slabs},
};
use crate::error::Result;
use std::ops::Range;

/// The length in a reference to a head.
const HEAD_LEN: usize = 0;
const REFERENCE_BYTES: usize = 8;

/// Maximum size of a key's length in bytes.
const KEY_LEN_BYTES_MAX: usize = 3;

/// Keys and values.
#[derive(Debug)]
pub(super) struct Values {
    pub(super) slabs: Slabs,
    /// The length of the keys of marked references: that of the first key that is not empty; 0 without such a key.
    key_len: usize,
}

/// Returns the encoded length of a key.
fn encode_len(len: usize) -> ([u8; KEY_LEN_BYTES_MAX], usize) {
    let mut bytes = [0; KEY_LEN_BYTES_MAX];
    let (mut rest, mut at) = (len, 0);
    loop {
        bytes[at] = (rest & 0x7F) as u8;
        rest >>= 7;
        at += 1;
        if rest == 0 {
            return (bytes, at);
        }
        bytes[at - 1] |= 0x80;
    }
}

/// Returns the length of a key, and the number of bytes that it is encoded in.
#[inline]
fn decode_len(bytes: &[u8]) -> (usize, usize) {
    let (mut len, mut at) = (0, 0);
    loop {
        len |= usize::from(bytes[at] & 0x7F) << (7 * at);
        at += 1;
        if bytes[at - 1] & 0x80 == 0 {
            return (len, at);
        }
    }
}

impl Values {
    pub(super) fn new(slabs: Slabs) -> Values {
        Values { slabs, key_len: 0 }
    }

    /// Returns the length of the key of a reference, and where the key begins in `first`, the first of its pieces.
    #[inline]
    fn key_place(&self, reference: Reference, first: &[u8]) -> (usize, usize) {
        if reference.is_marked() { (self.key_len, 0) } else { decode_len(first) }
    }

    /// Returns the bytes of a key and its value, with the key's length, in pieces.
    fn pieces(&self, reference: Reference) -> impl Iterator<Item = &[u8]> {
        let large = is_head(reference).then(|| self.list(reference).1);
        let single = large.is_none().then(|| self.slabs.block(reference));
        let extents = large.map_or(&[][..], |list| self.slabs.block(list));
        single.into_iter().chain(references(extents).map(|extent| self.slabs.block(extent)))
    }

    /// Returns the length that a head has, and the list.
    fn list(&self, head: Reference) -> (usize, Reference) {
        let (numbers, _) = self.slabs.whole(head).as_chunks::<REFERENCE_BYTES>();
        let [len, list] = [0, 1].map(|i| u64::from_le_bytes(numbers[i]));
        (len as usize, Reference(list))
    }

    fn set_list(&mut self, head: Reference, len: usize, list: Reference) {
        let (numbers, _) = self.slabs.whole_mut(head).as_chunks_mut::<REFERENCE_BYTES>();
        numbers[0] = (len as u64).to_le_bytes();
        numbers[1] = list.0.to_le_bytes();
    }

    /// Whether a reference leads to this key.
    #[inline]
    pub(super) fn is_key(&self, reference: Reference, key: &[u8]) -> bool {
        if reference.is_marked() {
            let is_of_len = key.len() == self.key_len;
            return is_of_len && short::is_same(self.slabs.first(reference, key.len()), key);
        }
        self.is_other_key(reference, key)
    }

    /// Does what [`Values::is_key`] does for a reference that is not marked.
    fn is_other_key(&self, reference: Reference, key: &[u8]) -> bool {
        if !is_head(reference) {
            let block = self.slabs.block(reference);
            let (len, start) = decode_len(block);
            return len == key.len() && short::is_same(&block[start..start + len], key);
        }
        let mut rest = key;
        for (i, piece) in self.pieces(reference).enumerate() {
            let (len, start) = if i == 0 { decode_len(piece) } else { (key.len(), 0) };
            let same = rest.len().min(piece.len() - start);
            if len != key.len() || piece[start..start + same] != rest[..same] {
                return false;
            }
            rest = &rest[same..];
            if rest.is_empty() {
                return true;
            }
        }
        false
    }

    /// Returns the number of bytes of a value, and of its key with the key's length.
    #[inline]
    pub(super) fn sizes(&self, reference: Reference) -> (usize, usize) {
        if reference.is_marked() {
            return (reference.len() - self.key_len, self.key_len);
        }
        self.read_sizes(reference)
    }

    /// Does what [`Values::sizes`] does for a reference that is not marked: its key's length is in the block.
    fn read_sizes(&self, reference: Reference) -> (usize, usize) {
        let (total, first) = match is_head(reference) {
            false => (reference.len(), self.slabs.block(reference)),
            true => (self.list(reference).0, self.pieces(reference).next().unwrap_or(&[])),
        };
        let (len, start) = self.key_place(reference, first);
        (total - start - len, start + len)
    }

    /// Adds the value to `out`.
    pub(super) fn read_value(&self, reference: Reference, out: &mut Vec<u8>) {
        let (size, start) = self.sizes(reference);
        self.read_range(reference, start..start + size, out);
    }

    /// Adds bytes to `out` of those of a key and its value, with the key's length.
    fn read_range(&self, reference: Reference, range: Range<usize>, out: &mut Vec<u8>) {
        out.reserve(range.len());
        let mut place = 0;
        for piece in self.pieces(reference) {
            let end = place + piece.len();
            let [first, last] = [range.start, range.end].map(|at| at.clamp(place, end) - place);
            out.extend_from_slice(&piece[first..last]);
            place = end;
            if place >= range.end {
                break;
            }
        }
    }

    /// Returns a part of a value, and the size of the whole value in bytes, for which `part` returns the range: what is in its
    /// block, or a copy in `scratch` if the value has extents.
    #[inline]
    pub(super) fn part<'a>(
        &'a self,
        reference: Reference,
        part: impl FnOnce(usize) -> Range<usize>,
        scratch: &'a mut Vec<u8>,
    ) -> (&'a [u8], usize) {
        if is_head(reference) {
            let (size, start) = self.sizes(reference);
            let part = part(size);
            assert!(
                part.start <= part.end && part.end <= size,
                "the part {part:?} is not in {size} bytes"
            );
            scratch.clear();
            self.read_range(reference, start + part.start..start + part.end, scratch);
            return (scratch, size);
        }
        let block = self.slabs.block(reference);
        let (len, start) = self.key_place(reference, block);
        let value = &block[start + len..];
        (&value[part(value.len())], value.len())
    }

    /// Returns the key: that in its block, or a copy in `scratch` if it has extents.
    pub(super) fn key<'a>(&'a self, reference: Reference, scratch: &'a mut Vec<u8>) -> &'a [u8] {
        if !is_head(reference) {
            let block = self.slabs.block(reference);
            let (len, start) = self.key_place(reference, block);
            return &block[start..start + len];
        }
        scratch.clear();
        let mut len = 0;
        for (i, piece) in self.pieces(reference).enumerate() {
            let rest = match i {
                0 => {
                    let (key_len, start) = decode_len(piece);
                    len = key_len;
                    &piece[start..]
                }
                _ => piece,
            };
            scratch.extend_from_slice(&rest[..rest.len().min(len - scratch.len())]);
            if scratch.len() == len {
                break;
            }
        }
        scratch
    }

    /// Adds the key and then its value to `out`; returns the length of the key.
    pub(super) fn read(&self, reference: Reference, out: &mut Vec<u8>) -> usize {
        let mut key_len = 0;
        for (i, piece) in self.pieces(reference).enumerate() {
            let (len, start) = match i {
                0 => self.key_place(reference, piece),
                _ => (key_len, 0),
            };
            key_len = len;
            out.extend_from_slice(&piece[start..]);
        }
        key_len
    }

    /// Stores a key and a value.
    ///
    /// # Errors
    /// `Memory` if the budget is exhausted; `Limit` if there are too many pages. Nothing is stored then.
    #[inline]
    pub(super) fn store(&mut self, key: &[u8], value: &[u8]) -> Result<Reference> {
        if self.key_len == 0 {
            self.key_len = key.len();
        }
        let (len, len_size) = encode_len(key.len());
        let is_marked = key.len() == self.key_len && !key.is_empty();
        let len_size = if is_marked { 0 } else { len_size };
        let total = len_size + key.len() + value.len();
        if total > BLOCK_BYTES_MAX {
            return self.store_large(key, value);
        }
        let reference = self.slabs.allocate(total)?;
        let block = self.slabs.block_mut(reference);
        let (head, rest) = block.split_at_mut(len_size);
        if !is_marked {
            head.copy_from_slice(&len[..len_size]);
        }
        let (first, second) = rest.split_at_mut(key.len());
        short::copy(key, first);
        short::copy(value, second);
        Ok(if is_marked { reference.marked() } else { reference })
    }

    /// Stores a key and a value in extents.
    #[cold]
    fn store_large(&mut self, key: &[u8], value: &[u8]) -> Result<Reference> {
        let (len, len_size) = encode_len(key.len());
        self.store_extents(&[&len[..len_size], key, value].concat())
    }

    /// Stores bytes in extents.
    fn store_extents(&mut self, bytes: &[u8]) -> Result<Reference> {
        let parts = bytes.chunks(BLOCK_BYTES_MAX);
        let lens = [HEAD_LEN, parts.len() * REFERENCE_BYTES].into_iter();
        let blocks = self.slabs.allocate_all(lens.chain(parts.clone().map(<[u8]>::len)))?;
        let (head, list) = (blocks[0], blocks[1]);
        for (i, (part, extent)) in parts.zip(&blocks[2..]).enumerate() {
            self.slabs.block_mut(*extent).copy_from_slice(part);
            self.set_extent(list, i, *extent);
        }
        self.set_list(head, bytes.len(), list);
        Ok(head)
    }

    fn set_extent(&mut self, list: Reference, i: usize, extent: Reference) {
        let places = self.slabs.block_mut(list).as_chunks_mut::<REFERENCE_BYTES>().0;
        places[i] = extent.0.to_le_bytes();
    }

    /// Adds bytes to a value; returns its new reference. What is not needed any more is freed.
    ///
    /// # Errors
    /// Those of [`Values::store`]; the value is unchanged then.
    #[inline]
    pub(super) fn append(&mut self, reference: Reference, bytes: &[u8]) -> Result<Reference> {
        if is_head(reference) {
            return self.append_to_extents(reference, bytes);
        }
        if reference.len() + bytes.len() > BLOCK_BYTES_MAX {
            return self.outgrow(reference, bytes);
        }
        self.append_to_block(reference, bytes)
    }

    /// Moves a value to extents, with bytes that are added to it.
    #[cold]
    fn outgrow(&mut self, reference: Reference, bytes: &[u8]) -> Result<Reference> {
        let block = self.slabs.block(reference);
        let (len, start) = self.key_place(reference, block);
        let (key, value) = block[start..].split_at(len);
        let (key, value) = (key.to_vec(), [value, bytes].concat());
        let large = self.store_large(&key, &value)?;
        self.free_block(reference);
        Ok(large)
    }

    /// Adds bytes to a block, which moves if it has another class then.
    #[inline]
    fn append_to_block(&mut self, reference: Reference, bytes: &[u8]) -> Result<Reference> {
        let (len, total) = (reference.len(), reference.len() + bytes.len());
        let longer = if self.slabs.stays(reference, total) {
            // Snapshots read no bytes beyond the length that they know.
            self.slabs.resize(reference, total)
        } else {
            let longer = self.slabs.copy(reference, total)?;
            self.free_block(reference);
            longer
        };
        short::copy(bytes, &mut self.slabs.block_mut(longer)[len..]);
        Ok(longer)
    }

    /// Adds bytes to extents. A head and a list that a snapshot may read are replaced; otherwise, only the places of the last
    /// extent and of further ones are written.
    fn append_to_extents(&mut self, head: Reference, bytes: &[u8]) -> Result<Reference> {
        let (len, list) = self.list(head);
        let count = list.len() / REFERENCE_BYTES;
        let last = references(self.slabs.block(list)).next_back().expect("a list has extents");
        let (now, later) = bytes.split_at(bytes.len().min(BLOCK_BYTES_MAX - last.len()));
        let (longer, later) = (last.len() + now.len(), later.chunks(BLOCK_BYTES_MAX));
        let list_len = (count + later.len()) * REFERENCE_BYTES;
        // A head leads to its list: if no snapshot may read the list, none reads the head.
        let is_kept = self.slabs.keeper(list).is_some();
        let lens = [
            (!self.slabs.stays(last, longer)).then_some(longer),
            is_kept.then_some(HEAD_LEN),
            (is_kept || !self.slabs.stays(list, list_len)).then_some(list_len),
        ];
        let new = lens.into_iter().flatten().chain(later.clone().map(<[u8]>::len));
        let mut new = self.slabs.allocate_all(new)?.into_iter();
        // Nothing fails from here on.
        let [new_last, new_head, new_list] = lens.map(|len| len.and_then(|_| new.next()));
        let longer = self.moved(last, new_last).unwrap_or_else(|| self.slabs.resize(last, longer));
        self.slabs.block_mut(longer)[last.len()..].copy_from_slice(now);
        let list = self.moved(list, new_list).unwrap_or_else(|| self.slabs.resize(list, list_len));
        self.set_extent(list, count - 1, longer);
        for (i, (bytes, extent)) in later.zip(new).enumerate() {
            self.slabs.block_mut(extent).copy_from_slice(bytes);
            self.set_extent(list, count + i, extent);
        }
        let head = self.moved(head, new_head).unwrap_or(head);
        self.set_list(head, len + bytes.len(), list);
        Ok(head)
    }

    /// Moves the contents of a block to a new one, if there is one, and frees the old one. Returns the new one.
    fn moved(&mut self, from: Reference, to: Option<Reference>) -> Option<Reference> {
        let to = Reference(to?.0 | from.0 & 1);
        self.slabs.copy_to(from, to);
        self.free_block(from);
        Some(to)
    }

    /// Replaces a value in its place, if the place has the right size and no snapshot may read it; returns its
    /// new reference.
    #[inline]
    pub(super) fn overwrite(&mut self, reference: Reference, value: &[u8]) -> Option<Reference> {
        if is_head(reference) || self.slabs.keeper(reference).is_some() {
            return None;
        }
        let (len, start) = self.key_place(reference, self.slabs.block(reference));
        let total = start + len + value.len();
        if total > BLOCK_BYTES_MAX || !self.slabs.stays(reference, total) {
            return None;
        }
        let reference = self.slabs.resize(reference, total);
        self.slabs.block_mut(reference)[start + len..].copy_from_slice(value);
        Some(reference)
    }

    /// Frees a key with its value.
    #[inline]
    pub(super) fn free(&mut self, reference: Reference) {
        if is_head(reference) {
            let (_, list) = self.list(reference);
            let extents: Vec<_> = references(self.slabs.block(list)).collect();
            extents.into_iter().for_each(|extent| self.free_block(extent));
            self.free_block(list);
        }
        self.free_block(reference);
    }

    #[inline]
    fn free_block(&mut self, reference: Reference) {
        match self.slabs.keeper(reference) {
            Some(snapshot) => self.slabs.free_after(snapshot, reference),
            None => self.slabs.free(reference),
        }
    }

    /// Whether a block of a key and its value is to leave its page.
    pub(super) fn is_leaving(&self, reference: Reference) -> bool {
        let blocks = |reference: Reference| self.slabs.is_leaving(reference);
        blocks(reference)
            || is_head(reference) && {
                let list = self.list(reference).1;
                blocks(list) || references(self.slabs.block(list)).any(blocks)
            }
    }

    /// Moves the blocks of a key and its value that are to leave their pages, one by one; returns the new reference. When
    /// there is no memory for a block, it and those behind it stay, and the error is returned beside the reference.
    pub(super) fn leave(&mut self, reference: Reference) -> (Reference, Result<()>) {
        let (head, list) = match self.leave_head(reference) {
            Err(error) => return (reference, Err(error)),
            Ok((head, None)) => return (head, Ok(())),
            Ok((head, Some(list))) => (head, list),
        };
        let extents: Vec<_> = references(self.slabs.block(list)).collect();
        for (i, extent) in extents.into_iter().enumerate() {
            match self.leave_block(extent) {
                Ok(moved) => self.set_extent(list, i, moved),
                Err(error) => return (head, Err(error)),
            }
        }
        (head, Ok(()))
    }

    /// Moves the block of a key and its value; of one with extents, its head and its list, which no snapshot reads then.
    fn leave_head(&mut self, reference: Reference) -> Result<(Reference, Option<Reference>)> {
        if !is_head(reference) {
            return Ok((self.leave_block(reference)?, None));
        }
        let (len, list) = self.list(reference);
        let is_kept = self.slabs.keeper(list).is_some();
        let moves = |block| is_kept || self.slabs.is_leaving(block);
        let lens = [reference, list].map(|block: Reference| moves(block).then_some(block.len()));
        let mut new = self.slabs.allocate_all(lens.into_iter().flatten())?.into_iter();
        let [new_head, new_list] = lens.map(|len| len.and_then(|_| new.next()));
        let list = self.moved(list, new_list).unwrap_or(list);
        let head = self.moved(reference, new_head).unwrap_or(reference);
        self.set_list(head, len, list);
        Ok((head, Some(list)))
    }

    fn leave_block(&mut self, reference: Reference) -> Result<Reference> {
        if !self.slabs.is_leaving(reference) {
            return Ok(reference);
        }
        let moved = self.slabs.copy(reference, reference.len())?;
        self.free_block(reference);
        Ok(moved)
    }
}

/// Whether a reference leads to a head.
#[inline]
fn is_head(reference: Reference) -> bool {
    reference.len() == HEAD_LEN
}

/// Returns the references of a list.
fn references(list: &[u8]) -> impl DoubleEndedIterator<Item = Reference> {
    list.as_chunks::<REFERENCE_BYTES>().0.iter().map(|bytes| Reference(u64::from_le_bytes(*bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::MemoryBudget;
    use std::collections::BTreeSet;

    fn read(values: &Values, reference: Reference) -> (Vec<u8>, Vec<u8>) {
        let mut key = Vec::new();
        let len = values.read(reference, &mut key);
        let value = key.split_off(len);
        (key, value)
    }

    /// Keys and values around all limits, appended to piece by piece: without a snapshot, and with one that began before the
    /// first page was opened, or after, so that it keeps the old values.
    #[test]
    fn values_of_all_sizes_are_stored_and_grow() {
        for ([first, then], first_len) in [
            ([None, None], 0),
            ([None, Some(1)], 0),
            ([Some(1), Some(1)], 5),
            ([Some(1), Some(2)], 127),
        ] {
            for key_len in [0, 1, 127, 128, 16_383, 16_384, 32_763, 32_764, 32_765, 65_535] {
                let slabs = Slabs::new(&MemoryBudget::unlimited(), None);
                let mut values = Values { slabs, key_len: first_len };
                values.slabs.kept_for = first;
                let key: Vec<u8> = (0..key_len).map(|i| i as u8).collect();
                let mut expected = vec![7];
                let mut reference = values.store(&key, &expected).unwrap();
                let (old, mut before) = (reference, read(&values, reference));
                values.slabs.kept_for = then;
                let is_kept = values.slabs.keeper(reference).is_some();
                assert_eq!(is_kept, then.is_some() && first != then);
                for more in [0, 1, 15, 300, 32_000, 1000, 70_000, 16, 0] {
                    let bytes: Vec<u8> = (0..more).map(|i| (i * 7 + more) as u8).collect();
                    reference = values.append(reference, &bytes).unwrap();
                    expected.extend_from_slice(&bytes);
                    assert!(values.is_key(reference, &key));
                    assert!(!values.is_key(reference, &expected));
                    assert_eq!(read(&values, reference), (key.clone(), expected.clone()));
                    assert_eq!(values.sizes(reference).0, expected.len());
                }
                let mut value = Vec::new();
                values.read_value(reference, &mut value);
                assert_eq!(value, expected);
                assert_eq!(
                    values.part(reference, |size| 0..size, &mut value),
                    (&expected[..], expected.len())
                );
                assert_eq!(values.key(reference, &mut value), key);
                if is_kept {
                    assert_eq!(read(&values, old), before);
                    before = read(&values, reference);
                    // What was appended beside the snapshot is on new pages.
                    values.slabs.kept_for = Some(3);
                    let grown = values.append(reference, &[1; 40_000]).unwrap();
                    assert_eq!(read(&values, reference), before);
                    reference = grown;
                }
                values.free(reference);
                values.slabs.free_deferred(None, usize::MAX);
                assert_eq!(values.slabs.page_bytes(), 0);
            }
        }
    }
    /// Short appends to a long value write its last extent and that place of its list. Beside a snapshot, the first one replaces
    /// what the snapshot may read, and the others change what is new.
    #[test]
    fn appends_to_a_long_value_change_it_in_its_place() {
        let slabs = Slabs::new(&MemoryBudget::unlimited(), None);
        let mut values = Values { slabs, key_len: 3 };
        let mut reference = values.store(b"key", &vec![1; 40 * BLOCK_BYTES_MAX]).unwrap();
        let mut expected = vec![1; 40 * BLOCK_BYTES_MAX];
        for snapshot in [None, Some(1), Some(2)] {
            values.slabs.kept_for = snapshot;
            let (mut places, before) = (BTreeSet::new(), values.slabs.deferred());
            for i in 0..1000 {
                reference = values.append(reference, &[i as u8; 8]).unwrap();
                expected.extend([i as u8; 8]);
                places.insert((reference, values.list(reference).1));
            }
            // Few blocks of a class that pages from before have free.
            let most = if snapshot.is_none() { 1 } else { 200 };
            assert!(places.len() <= most, "{} {snapshot:?}", places.len());
            let deferred = values.slabs.deferred() - before;
            assert!(deferred <= 2 * most + 100, "{deferred} {snapshot:?}");
            assert_eq!(read(&values, reference), (b"key".to_vec(), expected.clone()));
        }
    }
}
