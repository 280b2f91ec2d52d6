//! Bit sequences that are written at one end and read from either end.

use super::code::Word;

/// Number of zero bytes before and after a sequence of bits, so that a whole window can be read
/// near its ends.
pub(super) const PADDING: usize = 8;

/// A growing sequence of bits; the first bit is the lowest one of the first byte.
#[derive(Debug, Default)]
pub(super) struct BitVec {
    words: Vec<u64>,
    /// Length in bits.
    len: u64,
}

impl BitVec {
    /// Makes an empty sequence with memory for `bits` bits.
    pub(super) fn with_capacity(bits: u64) -> BitVec {
        BitVec { words: Vec::with_capacity((bits / 64 + 1) as usize), len: 0 }
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Appends a word of at most 57 bits.
    #[inline]
    pub(super) fn push(&mut self, word: Word) {
        debug_assert!(word.len <= 57 && word.bits >> word.len == 0);
        let (at, shift) = ((self.len / 64) as usize, (self.len % 64) as u32);
        if shift == 0 {
            self.words.push(word.bits);
        } else {
            self.words[at] |= word.bits << shift;
            if shift + word.len > 64 {
                self.words.push(word.bits >> (64 - shift));
            }
        }
        self.len += u64::from(word.len);
        if word.len == 0 && shift == 0 {
            self.words.pop();
        }
    }

    /// Appends the bits of `other`, last bit first.
    pub(super) fn push_reversed(&mut self, other: &BitVec) {
        let mut left = other.len;
        while left > 0 {
            let len = left.min(32);
            left -= len;
            let bits = other.get(left, len as u32);
            let bits = bits.reverse_bits() >> (64 - len);
            self.push(Word { bits, len: len as u32 });
        }
    }

    /// Drops the bits from `len` on.
    pub(super) fn truncate(&mut self, len: u64) {
        debug_assert!(len <= self.len);
        self.len = len;
        self.words.truncate(len.div_ceil(64) as usize);
        if let Some(last) = self.words.last_mut()
            && !len.is_multiple_of(64)
        {
            *last &= (1 << (len % 64)) - 1;
        }
    }

    /// Returns `len` bits from `start` on, at most 32, the first bit lowest.
    fn get(&self, start: u64, len: u32) -> u64 {
        let (at, shift) = ((start / 64) as usize, (start % 64) as u32);
        let mut bits = self.words[at] >> shift;
        if shift + len > 64 {
            bits |= self.words[at + 1] << (64 - shift);
        }
        bits & ((1 << len) - 1)
    }

    /// Returns the bytes, with [`PADDING`] at both ends.
    pub(super) fn into_padded_bytes(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.words.len() * 8 + 2 * PADDING);
        out.extend([0; PADDING]);
        out.extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
        out.truncate(PADDING + self.len.div_ceil(8) as usize);
        out.extend([0; PADDING]);
        out
    }
}

/// A reading position in a padded sequence of bits, with the next bits in a register.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a, const BACKWARD: bool> {
    bytes: &'a [u8],
    /// Position of the next bit, or, backward, of the bit after it, without the padding.
    pos: u64,
    /// The next bits: the first one lowest, or, backward, highest.
    window: u64,
    /// Number of valid bits in `window`.
    fresh: u32,
}

impl<'a, const BACKWARD: bool> Cursor<'a, BACKWARD> {
    #[inline]
    pub(super) fn new(bytes: &'a [u8], pos: u64) -> Self {
        Cursor { bytes, pos, window: 0, fresh: 0 }
    }

    /// Returns a window with at least `len` bits, where `len` is at most 57; `None` outside of the
    /// sequence.
    #[inline(always)] // The window must stay in a register across the decoder's loops.
    pub(super) fn window(&mut self, len: u32) -> Option<u64> {
        if self.fresh < len {
            self.refill()?;
        }
        Some(self.window)
    }

    #[inline(always)]
    fn refill(&mut self) -> Option<()> {
        if BACKWARD {
            // The eight bytes that end with the byte of the last bit before `pos`.
            let end = self.pos.div_ceil(8);
            let start = usize::try_from(end).ok()?;
            let word = u64::from_le_bytes(*self.bytes.get(start..)?.first_chunk()?);
            let over = (end * 8 - self.pos) as u32;
            self.window = word << over;
            self.fresh = 64 - over;
        } else {
            let start = usize::try_from(self.pos / 8).ok()? + PADDING;
            let word = u64::from_le_bytes(*self.bytes.get(start..)?.first_chunk()?);
            let over = (self.pos % 8) as u32;
            self.window = word >> over;
            self.fresh = 64 - over;
        }
        Some(())
    }

    /// Steps over `len` bits of the window.
    #[inline(always)]
    pub(super) fn consume(&mut self, len: u32) {
        debug_assert!(len <= self.fresh && len < 64);
        self.fresh -= len;
        if BACKWARD {
            self.window <<= len;
            self.pos = self.pos.wrapping_sub(u64::from(len));
        } else {
            self.window >>= len;
            self.pos += u64::from(len);
        }
    }
}
