//! The hash functions of other programs' sketches: MurmurHash by Austin Appleby (public domain).

/// Hashes a key with MurmurHash64A, for little-endian input.
pub(super) fn murmur_hash_64a(key: &[u8], seed: u64) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    const R: u32 = 47;
    let mut h = seed ^ (key.len() as u64).wrapping_mul(M);
    let (words, rest) = key.as_chunks::<8>();
    for word in words {
        let mut k = u64::from_le_bytes(*word).wrapping_mul(M);
        k = (k ^ k >> R).wrapping_mul(M);
        h = (h ^ k).wrapping_mul(M);
    }
    if !rest.is_empty() {
        h = (h ^ little_endian(rest)).wrapping_mul(M);
    }
    h = (h ^ h >> R).wrapping_mul(M);
    h ^ h >> R
}

/// Hashes a key with `MurmurHash3_x64_128`: the first and the second 64 bits, both of which start with the seed.
pub(super) fn murmur_hash_3(key: &[u8], seed: u64) -> [u64; 2] {
    let mut h = [seed, seed];
    let (blocks, rest) = key.as_chunks::<16>();
    for block in blocks {
        let (low, high) = block.split_at(8);
        h[0] ^= scramble(little_endian(low), 0);
        h[0] = h[0].rotate_left(27).wrapping_add(h[1]);
        h[0] = h[0].wrapping_mul(5).wrapping_add(0x52dc_e729);
        h[1] ^= scramble(little_endian(high), 1);
        h[1] = h[1].rotate_left(31).wrapping_add(h[0]);
        h[1] = h[1].wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    let (low, high) = rest.split_at(rest.len().min(8));
    h[0] ^= scramble(little_endian(low), 0);
    h[1] ^= scramble(little_endian(high), 1);
    h = h.map(|half| half ^ key.len() as u64);
    h = add_each_other(h);
    add_each_other(h.map(finish))
}

/// Mixes 64 bits of a block, the first or the second ones. Zeros stay zeros.
fn scramble(k: u64, half: usize) -> u64 {
    const FACTORS: [u64; 2] = [0x87c3_7b91_1142_53d5, 0x4cf5_ad43_2745_937f];
    const TURNS: [u32; 2] = [31, 33];
    k.wrapping_mul(FACTORS[half]).rotate_left(TURNS[half]).wrapping_mul(FACTORS[1 - half])
}

fn add_each_other([a, b]: [u64; 2]) -> [u64; 2] {
    let a = a.wrapping_add(b);
    [a, b.wrapping_add(a)]
}

fn finish(k: u64) -> u64 {
    let k = (k ^ k >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let k = (k ^ k >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ k >> 33
}

/// Returns up to 8 bytes as a number.
fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values that other implementations publish.
    #[test]
    fn hashes_are_those_of_other_implementations() {
        assert_eq!(murmur_hash_3(b"", 0), [0, 0]);
        assert_eq!(murmur_hash_3(b"hello", 0), [0xcbd8_a7b3_41bd_9b02, 0x5b1e_906a_48ae_1d19]);
        let text = b"The quick brown fox jumps over the lazy dog";
        assert_eq!(murmur_hash_3(text, 0), [0xe34b_bc7b_bc07_1b6c, 0x7a43_3ca9_c49a_9347]);
    }
}
