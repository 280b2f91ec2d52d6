//! The codes of trie nodes: a node's size determines the code of the size of its left subtrie.
//!
//! Hashes are uniform, so the left size of a node with C keys is binomial(C, 1/2). A node is one
//! *symbol*: its left size, where 0 means "all keys on one side" (the paper's merged code of 0 and C:
//! the side does not change the rank of any key in the trie). `docs/formats/table.md` has the same
//! table.
//!
//! | keys in the node        | code                                                              |
//! |-------------------------|-------------------------------------------------------------------|
//! | 0, 1                    | nothing                                                           |
//! | 2 to 32, within the limit | canonical Huffman code of the symbol, at most 10 bits            |
//! | 33 to the limit         | canonical Huffman code of the distance from C/2, with an escape   |
//! | above the limit         | Golomb-Rice code of the distance from C/2, with an escape         |
//!
//! The paper (section 2.4) uses Elias-gamma codes above the limit. Rice codes with a parameter per
//! size are smaller (2.359 instead of 2.399 bits per key at 256 keys and limit 32) and as fast.

/// The longest Huffman code, in bits. A limit below 16 costs less than 0.001 bits per key, and
/// keeps the decoding tables in the first-level cache.
pub(super) const HUFFMAN_BITS_MAX: u32 = 10;

/// The largest node, in keys, whose symbols have Huffman codes of their own; the decoder has tables
/// for these.
pub(super) const SMALL_MAX: usize = 32;

/// The largest limit on Huffman coding, in keys.
pub const CODING_LIMIT_MAX: u32 = 256;

/// The largest node, in keys.
pub(super) const KEYS_MAX: usize = 1023;

/// Number of distances with codes of their own in nodes of 33 and more keys; one more code is the
/// escape.
const DISTANCES: usize = 31;

/// Number of zeros in a Rice code's unary part that mean an escape.
const UNARY_MAX: u32 = 24;

/// Size of an escaped symbol, in bits.
const RAW_BITS: u32 = 10;
const _: () = assert!(KEYS_MAX < 1 << RAW_BITS);

/// The longest of all codes, in bits.
pub(super) const CODE_BITS_MAX: u32 = UNARY_MAX + 1 + RAW_BITS;
const _: () = assert!(HUFFMAN_BITS_MAX + RAW_BITS <= CODE_BITS_MAX);

/// A code word: `len` bits, the first bit lowest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) bits: u64,
    pub(super) len: u32,
}

/// The end of a bit sequence that is read first. Codes are read as they are written, but a plain
/// number in a code has its lowest bit first if it is read forward, and its highest bit first if it
/// is read backward, so that both readers find it in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Backward,
}

/// The codes for one limit on Huffman coding.
#[derive(Debug)]
pub(super) struct CodeBook {
    limit: usize,
    /// For each node size up to `limit`: the words of its symbols, or of its distances and the
    /// escape.
    huffman: Vec<Vec<Word>>,
    /// For each node size: the Rice parameter.
    rice: Vec<u8>,
}

impl CodeBook {
    /// Makes the code book for a limit on Huffman coding, in keys.
    ///
    /// # Panics
    /// If `limit` is above [`CODING_LIMIT_MAX`].
    pub(super) fn new(limit: u32) -> CodeBook {
        assert!(limit <= CODING_LIMIT_MAX);
        let limit = limit as usize;
        let huffman = (0..=limit)
            .map(|keys| match keys {
                0 | 1 => Vec::new(),
                2..=SMALL_MAX => huffman_words(&symbol_weights(keys)),
                _ => huffman_words(&distance_weights(keys)),
            })
            .collect();
        let rice = (0..=KEYS_MAX).map(best_rice_parameter).collect();
        CodeBook { limit, huffman, rice }
    }

    /// Whether nodes of this size have a Huffman code for each symbol.
    pub(super) fn is_plain_huffman(&self, keys: usize) -> bool {
        keys <= self.limit && keys <= SMALL_MAX
    }

    /// Returns the words of the Huffman code for nodes of this size.
    pub(super) fn huffman(&self, keys: usize) -> Option<&[Word]> {
        (keys <= self.limit).then(|| self.huffman[keys].as_slice())
    }

    /// Returns the Rice parameter for nodes of this size.
    pub(super) fn rice_parameter(&self, keys: usize) -> u32 {
        u32::from(self.rice[keys])
    }

    /// Returns the code word of a symbol of a node with `keys` keys.
    #[inline]
    pub(super) fn word(&self, keys: usize, symbol: usize, direction: Direction) -> Word {
        debug_assert!(symbol < keys && keys <= KEYS_MAX);
        if keys > self.limit {
            return rice_word(self.rice_parameter(keys), keys, symbol, direction);
        }
        let words = &self.huffman[keys];
        if keys <= SMALL_MAX {
            return words[symbol];
        }
        let distance = distance(keys, symbol);
        if distance < DISTANCES {
            return words[distance];
        }
        words[DISTANCES].then(number(symbol, RAW_BITS, direction))
    }

    /// Returns the expected bits of a trie of `keys` uniform hashes.
    pub(super) fn expected_bits(&self, keys: usize) -> f64 {
        let mut expected = vec![0.0; keys + 1];
        for n in 2..=keys {
            let weights = symbol_weights(n);
            let mut bits = 0.0;
            for (symbol, weight) in weights.iter().enumerate() {
                bits += weight * f64::from(self.word(n, symbol, Direction::Forward).len);
                if symbol > 0 {
                    bits += weight * (expected[symbol] + expected[n - symbol]);
                }
            }
            expected[n] = bits / (1.0 - weights[0]);
        }
        expected[keys]
    }
}

impl Word {
    fn then(self, next: Word) -> Word {
        Word { bits: self.bits | next.bits << self.len, len: self.len + next.len }
    }
}

fn number(value: usize, len: u32, direction: Direction) -> Word {
    let value = value as u64;
    let bits = match direction {
        Direction::Forward => value,
        Direction::Backward if len == 0 => 0,
        Direction::Backward => value.reverse_bits() >> (64 - len),
    };
    Word { bits, len }
}

fn rice_word(parameter: u32, keys: usize, symbol: usize, direction: Direction) -> Word {
    let distance = distance(keys, symbol);
    let unary = (distance >> parameter) as u32;
    if unary >= UNARY_MAX {
        let escape = Word { bits: 1 << UNARY_MAX, len: UNARY_MAX + 1 };
        return escape.then(number(symbol, RAW_BITS, direction));
    }
    let unary = Word { bits: 1 << unary, len: unary + 1 };
    unary.then(number(distance & ((1 << parameter) - 1), parameter, direction))
}

/// Returns the distance of a left size from the middle as one number: 0, then 1 for one above, 2
/// for one below, and so on.
fn distance(keys: usize, left: usize) -> usize {
    let middle = keys / 2;
    if left > middle { 2 * (left - middle) - 1 } else { 2 * (middle - left) }
}

/// Returns the left size at a distance from the middle; the inverse of [`distance`].
#[inline]
fn left_at(keys: usize, distance: usize) -> usize {
    let middle = keys / 2;
    let step = distance.div_ceil(2);
    if distance % 2 == 1 { middle.wrapping_add(step) } else { middle.wrapping_sub(step) }
}

/// A decoded node of more than [`SMALL_MAX`] keys, or above the limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decoded {
    pub(super) symbol: usize,
    pub(super) len: u32,
}

/// Reads a Rice code from a window of at least [`CODE_BITS_MAX`] bits, whose next bit is the lowest
/// (forward) or highest (backward). Illegal bits may give an illegal symbol.
#[inline]
pub(super) fn decode_rice<const BACKWARD: bool>(window: u64, r: u32, keys: usize) -> Decoded {
    let unary = if BACKWARD { window.leading_zeros() } else { window.trailing_zeros() };
    if unary >= UNARY_MAX {
        let symbol = take::<BACKWARD>(window, UNARY_MAX + 1, RAW_BITS);
        return Decoded { symbol, len: UNARY_MAX + 1 + RAW_BITS };
    }
    let low = take::<BACKWARD>(window, unary + 1, r);
    let distance = (unary as usize) << r | low;
    Decoded { symbol: left_at(keys, distance), len: unary + 1 + r }
}

/// Completes a Huffman code of a distance or the escape, as found in a table.
#[inline]
pub(super) fn decode_distance<const BACKWARD: bool>(
    window: u64,
    found: Decoded,
    keys: usize,
) -> Decoded {
    if found.symbol < DISTANCES {
        return Decoded { symbol: left_at(keys, found.symbol), len: found.len };
    }
    let symbol = take::<BACKWARD>(window, found.len, RAW_BITS);
    Decoded { symbol, len: found.len + RAW_BITS }
}

/// Returns `len` bits after the first `skipped`, as a number; `skipped + len < 64`.
#[inline]
fn take<const BACKWARD: bool>(window: u64, skipped: u32, len: u32) -> usize {
    if BACKWARD {
        ((window << skipped) >> 1 >> (63 - len)) as usize
    } else {
        ((window >> skipped) & ((1 << len) - 1)) as usize
    }
}

/// Returns the probability of each symbol of a node with `keys` keys.
fn symbol_weights(keys: usize) -> Vec<f64> {
    let mut weights = Vec::with_capacity(keys);
    // Exact up to 1023 keys: 2^-1023 is a (subnormal) double, and grows back from there.
    let mut weight = 0.5_f64.powi(keys as i32);
    for left in 0..keys {
        weights.push(if left == 0 { 2.0 * weight } else { weight });
        weight *= (keys - left) as f64 / (left + 1) as f64;
    }
    weights
}

/// Returns the probability of each distance below [`DISTANCES`], and of all others together.
fn distance_weights(keys: usize) -> Vec<f64> {
    let mut weights = vec![0.0; DISTANCES + 1];
    for (symbol, weight) in symbol_weights(keys).into_iter().enumerate() {
        weights[distance(keys, symbol).min(DISTANCES)] += weight;
    }
    weights
}

/// Returns the Rice parameter with the shortest expected code.
fn best_rice_parameter(keys: usize) -> u8 {
    if keys < 2 {
        return 0;
    }
    let weights = symbol_weights(keys);
    let expected = |r: u32| -> f64 {
        let len = |symbol| rice_word(r, keys, symbol, Direction::Forward).len;
        weights.iter().enumerate().map(|(symbol, w)| w * f64::from(len(symbol))).sum()
    };
    (0..8).min_by(|&a, &b| expected(a).total_cmp(&expected(b))).unwrap_or(0) as u8
}

/// Returns the canonical code words of an optimal prefix code of at most [`HUFFMAN_BITS_MAX`] bits.
fn huffman_words(weights: &[f64]) -> Vec<Word> {
    let lens = huffman_lens(weights);
    let mut order: Vec<usize> = (0..lens.len()).collect();
    order.sort_by_key(|&symbol| (lens[symbol], symbol));
    let mut words = vec![Word::default(); lens.len()];
    let mut code = 0_u64;
    let mut code_len = 0;
    for symbol in order {
        code <<= lens[symbol] - code_len;
        code_len = lens[symbol];
        words[symbol] = Word { bits: code.reverse_bits() >> (64 - code_len), len: code_len };
        code += 1;
    }
    words
}

/// Returns the optimal code lengths under the limit, by package-merge (Larmore and Hirschberg).
fn huffman_lens(weights: &[f64]) -> Vec<u32> {
    // A package: a weight, and how often each symbol is in it.
    type Package = (f64, Vec<u16>);
    let single = |symbol: usize| {
        let mut counts = vec![0; weights.len()];
        counts[symbol] = 1;
        (weights[symbol], counts)
    };
    let singles: Vec<Package> = (0..weights.len()).map(single).collect();
    let mut packages: Vec<Package> = Vec::new();
    for _ in 0..HUFFMAN_BITS_MAX {
        let pairs = packages.chunks_exact(2).map(|pair| {
            let counts = pair[0].1.iter().zip(&pair[1].1).map(|(a, b)| a + b).collect();
            (pair[0].0 + pair[1].0, counts)
        });
        packages = singles.iter().cloned().chain(pairs).collect();
        packages.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let mut lens = vec![0; weights.len()];
    for (_, counts) in &packages[..2 * (weights.len() - 1)] {
        for (len, count) in lens.iter_mut().zip(counts) {
            *len += u32::from(*count);
        }
    }
    lens
}
