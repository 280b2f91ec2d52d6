//! The keys and values of a measurement, each a function of its number.

/// Size of a key in bytes, as in the paper's workload after hashing.
pub const KEY_SIZE: usize = 16;

pub type Key = [u8; KEY_SIZE];

/// `count` entries in random order, the same for all peers.
#[derive(Debug)]
pub struct Data {
    pub seed: u64,
    pub count: u64,
    pub value_size: usize,
    /// Random bytes that values are cut from.
    noise: Vec<u8>,
}

impl Data {
    pub fn new(seed: u64, count: u64, value_size: usize) -> Data {
        /// Size of the random bytes: they fit in the cache, so that making values costs almost
        /// nothing.
        const NOISE_BYTES: u64 = 1 << 18;
        let words = (0..NOISE_BYTES / 8).map(|i| mix(mix(seed ^ 0x6e6f_6973) ^ i));
        Data { seed, count, value_size, noise: words.flat_map(u64::to_le_bytes).collect() }
    }

    /// Returns the key with this number. The first eight bytes of different keys differ. Numbers
    /// from `count` on give absent keys.
    #[inline]
    pub fn key(&self, i: u64) -> Key {
        let high = mix(i.wrapping_add(mix(self.seed)));
        let low = mix(high ^ self.seed);
        let mut key = [0; KEY_SIZE];
        key[..8].copy_from_slice(&high.to_be_bytes());
        key[8..].copy_from_slice(&low.to_be_bytes());
        key
    }

    /// Writes the value of the key with this number to `value`: incompressible noise, and the
    /// number, if it fits.
    #[inline]
    pub fn fill_value(&self, i: u64, value: &mut Vec<u8>) {
        let start = mix(i) as usize % (self.noise.len() - self.value_size);
        value.clear();
        value.extend_from_slice(&self.noise[start..][..self.value_size]);
        if let Some(head) = value.first_chunk_mut::<8>() {
            *head = i.to_le_bytes();
        }
    }

    /// Returns the size of keys and values, in bytes.
    pub fn payload(&self) -> u64 {
        self.count * (KEY_SIZE + self.value_size) as u64
    }
}

/// Maps 64-bit numbers to pseudorandom ones, one to one: the finalizer of SplitMix64.
#[inline]
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Returns a large number that is coprime to `count`: its multiples modulo `count` are all numbers
/// below `count`.
pub fn coprime(count: u64) -> u64 {
    let have_divisor = |a: u64, b: u64| {
        let (mut a, mut b) = (a, b);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a > 1
    };
    let start = (count as f64 * 0.618) as u64;
    (start.max(1)..).find(|&step| !have_divisor(count, step)).unwrap_or(1)
}
