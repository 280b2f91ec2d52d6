//! URL-like keys: deterministic, distinct, and 111 bytes long on average, as in the paper.
//!
//! ```text
//! http://www.northfield-garden.co.uk/travel/river/…/winter-0000a1b2c3
//!                host of 97 pages      path           number, scrambled
//! ```

use hashfold::{KeyHash, Seed};

/// The 16-quantiles of lengths in bytes, with linear interpolation: most URLs have 60 to 130 bytes,
/// a few have hundreds. The mean is 111.
const LENGTHS: [u64; 17] =
    [32, 48, 58, 65, 72, 79, 86, 93, 100, 107, 115, 124, 135, 149, 168, 200, 322];

/// Mean size of a key, in bytes.
pub const MEAN_SIZE: usize = 111;

const WORDS: [&str; 32] = [
    "about", "archive", "article", "autumn", "bridge", "budget", "castle", "council", "design",
    "events", "family", "football", "forum", "gallery", "garden", "guide", "harbour", "history",
    "hotels", "index", "library", "market", "museum", "music", "news", "northern", "photos",
    "railway", "research", "river", "school", "travel",
];

const PAGES_PER_HOST: u64 = 97;

/// Number of digits after the dash that distinguishes keys.
const DIGITS: u32 = 10;

/// Keys are numbered below this.
pub const COUNT_MAX: u64 = 1 << (4 * DIGITS);

/// Writes the key with this number to `url`.
pub fn url(i: u64, seed: u64, url: &mut Vec<u8>) {
    assert!(i < COUNT_MAX);
    url.clear();
    let mut draw = Draws { key: i, seed, count: 0 };
    let length = length(draw.next()) as usize - 1 - DIGITS as usize;
    let mut host = Draws { key: i / PAGES_PER_HOST, seed: !seed, count: 0 };
    url.extend(b"http://www.");
    url.extend(host.word());
    url.push(b'-');
    url.extend(host.word());
    url.extend(b".co.uk/");
    while url.len() < length {
        url.extend(draw.word());
        url.push(b'/');
    }
    url.truncate(length);
    // Multiplication by an odd number keeps all numbers below the power of two distinct.
    let scrambled = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % COUNT_MAX;
    url.extend(format!("-{scrambled:0width$x}", width = DIGITS as usize).bytes());
}

/// Returns the length at a random position among all lengths.
fn length(draw: u64) -> u64 {
    let quantile = (draw >> 60) as usize;
    let (low, high) = (LENGTHS[quantile], LENGTHS[quantile + 1]);
    let share = (draw << 4) >> 32;
    low + ((share * (high - low + 1)) >> 32).min(high - low)
}

/// Pseudorandom numbers.
struct Draws {
    key: u64,
    seed: u64,
    count: u64,
}

impl Draws {
    fn next(&mut self) -> u64 {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.key.to_le_bytes());
        bytes[8..].copy_from_slice(&self.count.to_le_bytes());
        self.count += 1;
        KeyHash::of(&bytes, Seed(self.seed)).high()
    }

    fn word(&mut self) -> impl Iterator<Item = u8> + use<> {
        WORDS[(self.next() % WORDS.len() as u64) as usize].bytes()
    }
}
