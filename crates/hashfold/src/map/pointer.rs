//! The pointer to a large value, which an entry has in place of the value.
//!
//! `docs/formats/map.md` has the same table:
//!
//! | size | field |                                              |
//! |-----:|-------|----------------------------------------------|
//! |    8 | first | number of the first block                    |
//! |    8 | write | number of the write that wrote the value     |
//! |    4 | size  | of the value, in bytes: 1025 to 67108864     |

use crate::{
    codec::{Decoder, within},
    error::Result,
};

/// The longest value of a map, in bytes.
pub const VALUE_BYTES_MAX: usize = 64 << 20;
/// The longest value that is not large, in bytes: a quarter of a block.
pub(super) const INLINE_BYTES_MAX: usize = 1024;
/// Size of an encoded pointer, in bytes.
pub(super) const POINTER_SIZE: usize = 20;

/// The place of a large value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pointer {
    /// Number of the first block.
    pub(super) first: u64,
    /// Number of the write that wrote the value.
    pub(super) write: u64,
    /// Size of the value, in bytes.
    pub(super) size: u32,
}

impl Pointer {
    pub(super) fn encode(self) -> [u8; POINTER_SIZE] {
        let mut out = [0; POINTER_SIZE];
        out[..8].copy_from_slice(&self.first.to_le_bytes());
        out[8..16].copy_from_slice(&self.write.to_le_bytes());
        out[16..].copy_from_slice(&self.size.to_le_bytes());
        out
    }

    /// Decodes a pointer of 20 bytes.
    pub(super) fn decode(bytes: &[u8]) -> Result<Pointer> {
        let mut fields = Decoder::new(bytes);
        let (first, write, size) = (fields.u64()?, fields.u64()?, fields.u32()?);
        fields.end()?;
        let sizes = INLINE_BYTES_MAX as u64 + 1..=VALUE_BYTES_MAX as u64;
        within("size of a large value in bytes", sizes, size.into())?;
        Ok(Pointer { first, write, size })
    }
}
