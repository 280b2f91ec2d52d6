//! CRC-32C (Castagnoli), the checksum of everything on disk.

/// The CRC-32C of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// The CRC-32C of what was summed up before, followed by `bytes`.
#[inline]
pub fn crc32c_append(sum: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(sum, bytes)
}
