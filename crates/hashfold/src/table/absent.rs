//! AbsentBits: a few bits of each entry's hash, by rank. A dense trie gives an absent key some
//! rank; the fingerprint of that rank rules out most absent keys without a device read. With `bits`
//! bits, the false-positive rate is 2^-bits.

use super::image::{Image, Sections};
use crate::{
    codec::{Decoder, within},
    error::Result,
    key::KeyHash,
};
use std::ops::Range;

/// The longest fingerprint, in bits.
pub const ABSENT_BITS_MAX: u32 = 32;

/// Zero bytes at the end, so that eight bytes can be read at any place.
const PADDING: usize = 8;

/// A builder that takes fingerprints in the order of ranks.
#[derive(Debug)]
pub(super) struct AbsentBitsBuilder {
    bits: u32,
    bytes: Vec<u8>,
    /// Bits that do not fill a byte yet; the next field is their number.
    rest: u64,
    rest_len: u32,
}

impl AbsentBitsBuilder {
    /// Makes a builder of fingerprints of 1 to [`ABSENT_BITS_MAX`] bits.
    pub(super) fn new(bits: u32) -> AbsentBitsBuilder {
        debug_assert!((1..=ABSENT_BITS_MAX).contains(&bits));
        AbsentBitsBuilder { bits, bytes: Vec::new(), rest: 0, rest_len: 0 }
    }

    pub(super) fn push(&mut self, hash: KeyHash) {
        self.rest |= fingerprint(hash, self.bits) << self.rest_len;
        self.rest_len += self.bits;
        while self.rest_len >= 8 {
            self.bytes.push(self.rest as u8);
            self.rest >>= 8;
            self.rest_len -= 8;
        }
    }

    /// Adds the fingerprints to an index: one field and one section.
    pub(super) fn finish(mut self, image: &mut Image) {
        self.bytes.push(self.rest as u8);
        self.bytes.extend([0; PADDING]);
        image.field(u64::from(self.bits));
        image.section(self.bytes);
    }
}

/// Returns the top `bits` of the low half of a hash, which ranks do not depend on.
fn fingerprint(hash: KeyHash, bits: u32) -> u64 {
    hash.low() >> (64 - bits)
}

/// The fingerprints of an index in memory.
#[derive(Debug)]
pub(super) struct AbsentBits {
    /// Length of a fingerprint, in bits.
    pub(super) bits: u32,
    bytes: Range<usize>,
}

impl AbsentBits {
    /// Reads the field, and finds the section that [`AbsentBitsBuilder::finish`] wrote.
    pub(super) fn open(
        fields: &mut Decoder<'_>,
        sections: &mut Sections<'_>,
        entries: u64,
    ) -> Result<AbsentBits> {
        let bits = within("fingerprint bits", 1..=u64::from(ABSENT_BITS_MAX), fields.u64()?)?;
        let size = entries.checked_mul(bits).map(|bits| bits / 8 + 1 + PADDING as u64);
        let bytes = sections.next_of_size("fingerprints", size.unwrap_or(u64::MAX))?;
        Ok(AbsentBits { bits: bits as u32, bytes })
    }

    /// Whether the entry with this rank may have this hash.
    pub(super) fn may_be(&self, bytes: &[u8], rank: u64, hash: KeyHash) -> bool {
        let bit = rank * u64::from(self.bits);
        let bytes = bytes[self.bytes.clone()].get((bit / 8) as usize..);
        let Some(word) = bytes.and_then(|bytes| bytes.first_chunk()) else { return true };
        let found = u64::from_le_bytes(*word) >> (bit % 8) & ((1 << self.bits) - 1);
        found == fingerprint(hash, self.bits)
    }

    /// Returns the size in memory, in bytes.
    pub(super) fn size(&self) -> u64 {
        self.bytes.len() as u64
    }
}
