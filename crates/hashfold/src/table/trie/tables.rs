//! Decoding tables: one access decodes a node, several nodes, or a whole small trie.

use super::code::{
    CODING_LIMIT_MAX, CodeBook, Decoded, HUFFMAN_BITS_MAX, SMALL_MAX, Word, decode_distance,
    decode_rice,
};
use std::sync::{Arc, LazyLock};

/// Number of bits that index the tables of nodes.
pub(super) const NODE_BITS: u32 = HUFFMAN_BITS_MAX;
const NODE_ROW: usize = 1 << NODE_BITS;

/// Number of bits that index the tables of whole small tries.
pub(super) const LEAF_BITS: u32 = 11;
const LEAF_ROW: usize = 1 << LEAF_BITS;

/// The largest trie that is decoded whole, in keys.
pub(super) const LEAF_KEYS_MAX: usize = 5;

/// Number of key bits among which the relevant ones of a whole small trie must be.
const LEAF_KEY_BITS: u32 = 12;
/// Maximum number of relevant key bits of a whole small trie.
const LEAF_MASK_BITS: u32 = 4;

/// Size of a number in the decoder's stack, in bits: the size of a pending subtrie, less one.
pub(super) const SIZE_BITS: u32 = 5;
const _: () = assert!(SMALL_MAX == 1 << SIZE_BITS);
const PENDING_MAX: usize = 4;

/// A node's code: `len << 12 | symbol`; 0 if the next bits are not such a code.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Step(u16);

impl Step {
    fn new(symbol: usize, len: u32) -> Step {
        Step((len as u16) << 12 | symbol as u16)
    }

    #[inline]
    pub(super) fn get(self) -> Option<Decoded> {
        let decoded = Decoded { symbol: usize::from(self.0 & 0xfff), len: u32::from(self.0 >> 12) };
        (decoded.len != 0).then_some(decoded)
    }
}

/// Several nodes of a subtrie that is being skipped.
///
/// | bits  | meaning                                                                            |
/// |-------|------------------------------------------------------------------------------------|
/// | 0-19  | sizes of up to four subtries that come next, each less one, the first one lowest   |
/// | 20-24 | 5 times their number                                                               |
/// | 25-28 | bits of code that were used; 0: the next code is longer than the table is wide     |
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Skip(u32);

impl Skip {
    #[inline]
    pub(super) fn pending(self) -> u64 {
        u64::from(self.0 & 0xf_ffff)
    }

    #[inline]
    pub(super) fn shift(self) -> u32 {
        self.0 >> 20 & 31
    }

    #[inline]
    pub(super) fn used(self) -> u32 {
        self.0 >> 25
    }
}

/// A whole trie of 2 to 5 keys.
///
/// | bits  | meaning                                                                            |
/// |-------|------------------------------------------------------------------------------------|
/// | 0-47  | 16 ranks of 3 bits, by the relevant key bits                                        |
/// | 48-59 | which of the next 12 key bits are relevant, the next one highest                   |
/// | 60    | 1 if the trie fits                                                                  |
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Leaf(u64);

impl Leaf {
    #[inline]
    pub(super) fn fits(self) -> bool {
        self.0 >> 60 != 0
    }

    /// Returns a mask of the relevant bits among the key's next 64 bits.
    #[inline]
    pub(super) fn mask(self) -> u64 {
        self.0 >> 48 << (64 - LEAF_KEY_BITS)
    }

    /// Returns the rank for the relevant key bits.
    #[inline]
    pub(super) fn rank(self, bits: u64) -> u64 {
        self.0 >> (3 * bits) & 7
    }
}

/// The tables of one direction.
#[derive(Debug)]
pub(super) struct OneWay {
    step: Vec<[Step; NODE_ROW]>,
    skip: Vec<[Skip; NODE_ROW]>,
    leaf: Vec<[Leaf; LEAF_ROW]>,
}

impl OneWay {
    /// Returns the node of `keys` keys at the head of these [`NODE_BITS`] bits, if a table has it.
    #[inline]
    pub(super) fn step(&self, keys: usize, bits: usize) -> Option<Decoded> {
        self.step.get(keys)?[bits & (NODE_ROW - 1)].get()
    }

    /// Returns the nodes of a subtrie of 2 to [`SMALL_MAX`] keys at the head of these bits.
    #[inline]
    pub(super) fn skip(&self, keys: usize, bits: usize) -> Skip {
        self.skip[(keys - 1) & (SMALL_MAX - 1)][bits & (NODE_ROW - 1)]
    }

    /// Returns the trie of 2 to [`LEAF_KEYS_MAX`] keys at the head of these [`LEAF_BITS`] bits.
    #[inline]
    pub(super) fn leaf(&self, keys: usize, bits: usize) -> Leaf {
        self.leaf[keys & 7][bits & (LEAF_ROW - 1)]
    }
}

/// The code book, and its tables in both directions.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) book: CodeBook,
    pub(super) forward: OneWay,
    pub(super) backward: OneWay,
}

/// The limit on Huffman coding whose tables are computed once per process.
pub(crate) const CODING_LIMIT_DEFAULT: u32 = 32;

impl Tables {
    /// Returns the tables for one limit on Huffman coding, at most [`CODING_LIMIT_MAX`].
    pub(super) fn new(limit: u32) -> Arc<Tables> {
        static DEFAULT: LazyLock<Arc<Tables>> =
            LazyLock::new(|| Arc::new(Tables::build(CODING_LIMIT_DEFAULT)));
        match limit {
            CODING_LIMIT_DEFAULT => DEFAULT.clone(),
            _ => Arc::new(Tables::build(limit)),
        }
    }

    fn build(limit: u32) -> Tables {
        assert!(limit <= CODING_LIMIT_MAX);
        let book = CodeBook::new(limit);
        let (forward, backward) = (one_way::<false>(&book), one_way::<true>(&book));
        Tables { book, forward, backward }
    }

    /// Returns the tables of a direction.
    #[inline]
    pub(super) fn one_way<const BACKWARD: bool>(&self) -> &OneWay {
        if BACKWARD { &self.backward } else { &self.forward }
    }

    /// Decodes any node of at least 2 keys from a window of `CODE_BITS_MAX` bits or more.
    #[inline]
    pub(super) fn node<const BACKWARD: bool>(&self, keys: usize, window: u64) -> Decoded {
        let bits = if BACKWARD { window >> (64 - NODE_BITS) } else { window };
        match self.one_way::<BACKWARD>().step(keys, bits as usize) {
            Some(found) if keys <= SMALL_MAX => found,
            Some(found) => decode_distance::<BACKWARD>(window, found, keys),
            None => decode_rice::<BACKWARD>(window, self.book.rice_parameter(keys), keys),
        }
    }
}

/// Returns the expected bits of a trie of `keys` uniform hashes, without the number of keys.
pub(in crate::table) fn expected_bits(keys: usize, coding_limit: u32) -> f64 {
    Tables::new(coding_limit).book.expected_bits(keys)
}

/// Returns a row of a table. Forward, an entry is indexed by bits with the first one lowest;
/// backward, with the first one highest.
fn row<T, const BACKWARD: bool, const N: usize>(entry: impl Fn(usize) -> T) -> [T; N] {
    let mirrored = |i: usize| i.reverse_bits() >> (usize::BITS - N.ilog2());
    std::array::from_fn(|i| entry(if BACKWARD { mirrored(i) } else { i }))
}

fn one_way<const BACKWARD: bool>(book: &CodeBook) -> OneWay {
    let step = (0..).map_while(|keys| book.huffman(keys)).map(|words| {
        let plain = step_row(words);
        row::<_, BACKWARD, NODE_ROW>(|bits| plain[bits])
    });
    let skip = (1..=SMALL_MAX)
        .map(|keys| row::<_, BACKWARD, NODE_ROW>(|bits| skip_entry::<BACKWARD>(book, keys, bits)));
    let leaf = (0..8)
        .map(|keys| row::<_, BACKWARD, LEAF_ROW>(|bits| leaf_entry::<BACKWARD>(book, keys, bits)));
    OneWay { step: step.collect(), skip: skip.collect(), leaf: leaf.collect() }
}

fn step_row(words: &[Word]) -> [Step; NODE_ROW] {
    let mut row = [Step::default(); NODE_ROW];
    for (symbol, word) in words.iter().enumerate() {
        for rest in 0..NODE_ROW >> word.len {
            row[word.bits as usize | rest << word.len] = Step::new(symbol, word.len);
        }
    }
    row
}

/// Reads one node from `bits`, of which `len` are known, first bit lowest.
fn read<const BACKWARD: bool>(
    book: &CodeBook,
    keys: usize,
    bits: usize,
    len: u32,
) -> Option<Decoded> {
    if !book.is_plain_huffman(keys) {
        // The unknown bits are ones, which end a unary part; a code that used one of them did not
        // fit.
        let window = bits as u64 | u64::MAX << len;
        let window = if BACKWARD { window.reverse_bits() } else { window };
        let found = decode_rice::<BACKWARD>(window, book.rice_parameter(keys), keys);
        return (found.len <= len && found.symbol < keys).then_some(found);
    }
    let words = book.huffman(keys)?;
    let fits = |word: &Word| word.len <= len && bits as u64 & ((1 << word.len) - 1) == word.bits;
    let symbol = words.iter().position(fits)?;
    Some(Decoded { symbol, len: words[symbol].len })
}

fn skip_entry<const BACKWARD: bool>(book: &CodeBook, keys: usize, bits: usize) -> Skip {
    if keys < 2 {
        return Skip::default();
    }
    let mut pending = vec![keys];
    let mut used = 0;
    while let Some(&size) = pending.last() {
        let Some(node) = read::<BACKWARD>(book, size, bits >> used, NODE_BITS - used) else {
            break;
        };
        let mut after = pending.clone();
        if node.symbol > 0 {
            after.pop();
            after
                .extend([size.saturating_sub(node.symbol), node.symbol].iter().filter(|&&s| s > 1));
        }
        if after.len() > PENDING_MAX {
            break;
        }
        (pending, used) = (after, used + node.len);
    }
    if used == 0 {
        return Skip::default();
    }
    let packed = pending.iter().fold(0, |packed, size| packed << SIZE_BITS | (size - 1) as u32);
    Skip(packed | (SIZE_BITS * pending.len() as u32) << 20 | used << 25)
}

/// A node of a small trie: the keys below it, its depth, and the places of its children if it
/// splits.
struct LeafNode {
    depth: u32,
    left_keys: u64,
    left: Option<Box<LeafNode>>,
    right: Option<Box<LeafNode>>,
}

fn leaf_entry<const BACKWARD: bool>(book: &CodeBook, keys: usize, bits: usize) -> Leaf {
    if !(2..=LEAF_KEYS_MAX).contains(&keys) {
        return Leaf(0);
    }
    let mut used = 0;
    let Some(root) = leaf_node::<BACKWARD>(book, keys, 0, bits, &mut used) else { return Leaf(0) };
    let mut mask = 0_u64;
    collect_depths(&root, &mut mask);
    if mask.count_ones() > LEAF_MASK_BITS {
        return Leaf(0);
    }
    let mut entry = 1 << 60 | mask << 48;
    for relevant in 0..1 << mask.count_ones() {
        entry |= leaf_rank(&root, mask, relevant) << (3 * relevant);
    }
    Leaf(entry)
}

fn leaf_node<const BACKWARD: bool>(
    book: &CodeBook,
    keys: usize,
    mut depth: u32,
    bits: usize,
    used: &mut u32,
) -> Option<Box<LeafNode>> {
    let left_keys = loop {
        let node = read::<BACKWARD>(book, keys, bits >> *used, LEAF_BITS - *used)?;
        *used += node.len;
        if node.symbol > 0 {
            break node.symbol;
        }
        depth += 1;
    };
    if depth >= LEAF_KEY_BITS || left_keys >= keys {
        return None;
    }
    let mut child = |keys: usize| match keys {
        1 => Some(None),
        _ => leaf_node::<BACKWARD>(book, keys, depth + 1, bits, used).map(Some),
    };
    let (left, right) = (child(left_keys)?, child(keys - left_keys)?);
    Some(Box::new(LeafNode { depth, left_keys: left_keys as u64, left, right }))
}

fn collect_depths(node: &LeafNode, mask: &mut u64) {
    *mask |= 1 << (LEAF_KEY_BITS - 1 - node.depth);
    for child in [&node.left, &node.right].into_iter().flatten() {
        collect_depths(child, mask);
    }
}

/// Returns the rank of a key whose bits under `mask` are `relevant`, the deepest bit lowest.
fn leaf_rank(root: &LeafNode, mask: u64, relevant: u64) -> u64 {
    let (mut node, mut rank) = (Some(root), 0);
    while let Some(here) = node {
        let place = LEAF_KEY_BITS - 1 - here.depth;
        let deeper = (mask & ((1 << place) - 1)).count_ones();
        if relevant >> deeper & 1 == 0 {
            node = here.left.as_deref();
        } else {
            rank += here.left_keys;
            node = here.right.as_deref();
        }
    }
    rank
}
