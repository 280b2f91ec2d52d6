//! Comparing and copying a few bytes, of which the number is not known to the compiler: with few branches, and for the usual numbers without
//! a call.

use std::ops::RangeInclusive;

/// Whether two keys of one length are the same.
#[inline]
pub(super) fn is_same(one: &[u8], other: &[u8]) -> bool {
    const WORD: usize = size_of::<u64>();
    match (one.first_chunk::<WORD>(), other.first_chunk()) {
        (Some(first), Some(other_first)) if one.len() <= 2 * WORD => {
            // The words overlap, so that two of them are all bytes.
            first == other_first && one.last_chunk::<WORD>() == other.last_chunk()
        }
        _ => one == other,
    }
}

/// Copies bytes to a slice of the same length.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub(super) fn copy(from: &[u8], to: &mut [u8]) {
    if !(copy_as::<8>(from, to) || copy_as::<16>(from, to)) {
        to.copy_from_slice(from);
    }
}

/// Copies bytes as two words that may overlap; returns `false`, and copies nothing, if they are too few or too many for that, or the
/// lengths differ.
#[inline(always)]
fn copy_as<const WORD: usize>(from: &[u8], to: &mut [u8]) -> bool {
    let (Some(first), Some(last)) = (from.first_chunk::<WORD>(), from.last_chunk::<WORD>()) else {
        return false;
    };
    if from.len() > 2 * WORD || to.len() != from.len() {
        return false;
    }
    to[..WORD].copy_from_slice(first);
    let start = to.len() - WORD;
    to[start..].copy_from_slice(last);
    true
}

/// Size of a piece of a short copy, in bytes.
const PIECE_BYTES: usize = 16;

/// Number of pieces.
const PIECES: usize = 8;

/// Up to 128 bytes, 16 at least, in eight pieces, the last ones of which may be the same: copied without a branch on their number,
/// which is often mispredicted in a copy of any number of bytes.
pub(super) struct Pieces([[u8; PIECE_BYTES]; PIECES]);

impl Pieces {
    /// The numbers of bytes.
    pub(super) const SIZES: RangeInclusive<usize> = PIECE_BYTES..=PIECES * PIECE_BYTES;

    /// Returns where a piece of this number of bytes starts.
    #[inline(always)]
    fn start(len: usize, piece: usize) -> usize {
        (piece * PIECE_BYTES).min(len - PIECE_BYTES)
    }

    #[inline(always)]
    pub(super) fn read(bytes: &[u8]) -> Pieces {
        let mut pieces = [[0; PIECE_BYTES]; PIECES];
        for (i, piece) in pieces.iter_mut().enumerate() {
            let rest = &bytes[Pieces::start(bytes.len(), i)..];
            *piece = *rest.first_chunk().expect("a piece is in the bytes");
        }
        Pieces(pieces)
    }

    #[inline(always)]
    pub(super) fn write(&self, bytes: &mut [u8]) {
        let len = bytes.len();
        for (i, piece) in self.0.iter().enumerate() {
            let rest = &mut bytes[Pieces::start(len, i)..];
            *rest.first_chunk_mut().expect("a piece is in the bytes") = *piece;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys of each length are the same if all bytes are, and no key is that differs in one bit.
    #[test]
    fn keys_are_compared_with_all_their_bytes() {
        for len in 0..=40 {
            let key: Vec<u8> = (0..len as u8).collect();
            assert!(is_same(&key, &key.clone()));
            for bit in 0..len * 8 {
                let mut other = key.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                assert!(!is_same(&key, &other), "{len} {bit}");
            }
        }
    }

    /// Bytes of each number are copied, and no others.
    #[test]
    fn bytes_of_any_number_are_copied() {
        for len in 0..=200 {
            let from: Vec<u8> = (1..=len as u8).collect();
            let mut to = vec![0; len + 2];
            copy(&from, &mut to[1..=len]);
            assert_eq!((&to[1..=len], to[0], to[len + 1]), (&from[..], 0, 0));
            if Pieces::SIZES.contains(&len) {
                to.fill(0);
                Pieces::read(&from).write(&mut to[1..=len]);
                assert_eq!((&to[1..=len], to[0], to[len + 1]), (&from[..], 0, 0));
            }
        }
    }
}
