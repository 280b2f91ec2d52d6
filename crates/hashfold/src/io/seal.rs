//! The checksum of a block that is read alone.
//!
//! A sealed block begins with a CRC-32C. It covers the rest of the block and then these fields,
//! which are not stored. The same table stands in `docs/formats/frame.md`:
//!
//! | size | field   |                                                                          |
//! |-----:|---------|--------------------------------------------------------------------------|
//! |    8 | number  | of the block in its file                                                 |
//! |    8 | file id | that of the file's header                                                |
//! |    8 | epoch   | of the place in the file; 0 where no place is written a second time      |
//!
//! So the checksum also detects a block in the wrong place, of another file, or from an earlier use
//! of the same place.

use crate::{
    checksum::{crc32c, crc32c_append},
    error::{ErrorKind, Result, check_sum},
};

/// Size of the checksum at the start of a sealed block, in bytes.
pub const SEAL_SIZE: usize = 4;

/// The identity of a block, which its checksum covers besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// Number of the block in its file.
    pub number: u64,
    /// Id of the file, as in its header.
    pub file_id: u64,
    /// Number of the use of the block's place; 0 in files whose places are written once.
    pub epoch: u64,
}

impl Seal {
    /// Returns the seal of a block in a file whose places are written once.
    pub fn of(number: u64, file_id: u64) -> Seal {
        Seal { number, file_id, epoch: 0 }
    }

    /// Writes the checksum of a block that is otherwise complete.
    pub fn put(self, block: &mut [u8]) {
        let sum = self.checksum(block);
        block[..SEAL_SIZE].copy_from_slice(&sum.to_le_bytes());
    }

    /// Checks the checksum of a block.
    ///
    /// # Errors
    /// The block is damaged, or it belongs to another place, file or epoch.
    #[inline]
    pub fn check(self, block: &[u8]) -> Result<()> {
        let Some((expected, _)) = block.split_first_chunk() else {
            let (expected, got) = (SEAL_SIZE as u64, block.len() as u64);
            return Err(ErrorKind::Truncated { expected, got }.into());
        };
        check_sum(u32::from_le_bytes(*expected), self.checksum(block))
    }

    fn checksum(self, block: &[u8]) -> u32 {
        let mut place = [0; 24];
        place[..8].copy_from_slice(&self.number.to_le_bytes());
        place[8..16].copy_from_slice(&self.file_id.to_le_bytes());
        place[16..].copy_from_slice(&self.epoch.to_le_bytes());
        crc32c_append(crc32c(&block[SEAL_SIZE..]), &place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_block_is_known_by_its_bytes_number_file_and_epoch() {
        let seal = Seal { number: 3, file_id: 4, epoch: 5 };
        let mut block: Vec<u8> = (0..100).collect();
        seal.put(&mut block);
        seal.check(&block).unwrap();
        for bit in 0..8 * block.len() {
            let mut bad = block.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(seal.check(&bad).is_err(), "bit {bit}");
        }
        for other in [Seal { number: 2, ..seal }, Seal { file_id: 5, ..seal }, Seal::of(3, 4)] {
            assert!(other.check(&block).is_err(), "{other:?}");
        }
        for len in 0..block.len() {
            assert!(seal.check(&block[..len]).is_err(), "{len}");
        }
    }
}
