//! CRC-32C (Castagnoli), the checksum of everything on disk.

use crc_fast::{CrcAlgorithm::Crc32Iscsi, Digest, checksum};

/// Returns the CRC-32C of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    checksum(Crc32Iscsi, bytes) as u32
}

/// Continues a CRC-32C: returns the checksum of the bytes that `sum` covers, followed by `bytes`.
#[inline]
pub fn crc32c_append(sum: u32, bytes: &[u8]) -> u32 {
    // The digest's state is the checksum with all bits flipped.
    let mut digest = Digest::new_with_init_state(Crc32Iscsi, u64::from(!sum));
    digest.update(bytes);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check values of the algorithm: 32 zeros (RFC 3720, appendix B.4), and the digits 1 to 9.
    #[test]
    fn known_sums_come_out() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(b""), 0);
    }

    #[test]
    fn a_sum_can_be_taken_in_parts() {
        let bytes: Vec<u8> = (0..5000_u32).map(|i| ((i * i) >> 3) as u8).collect();
        for cut in [0, 1, 7, 16, 255, 256, 1000, 4999, 5000] {
            let (front, back) = bytes.split_at(cut);
            assert_eq!(crc32c_append(crc32c(front), back), crc32c(&bytes));
        }
    }
}
