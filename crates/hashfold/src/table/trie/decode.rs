//! Reading the trie of one bucket: from a key's bits to its rank.
//!
//! The bits may come from a damaged file: no read leaves the code, and every loop is bounded.

use super::{
    bits::Cursor,
    code::{CODE_BITS_MAX, SMALL_MAX},
    directory::TrieBucket,
    kernel::BitOps,
    marks::Marks,
    tables::{LEAF_BITS, LEAF_KEYS_MAX, NODE_BITS, SIZE_BITS, Tables},
};
use std::ops::Range;

/// Maximum number of nodes on a path, because each node uses up a key bit.
const DEPTH_MAX: usize = 64;

/// Returns the rank of a key in its bucket. If the key is absent, the rank is arbitrary. `None` if
/// the bits are not a trie.
#[inline(always)]
pub(super) fn rank<K: BitOps>(
    tables: &Tables,
    code: &[u8],
    bucket: TrieBucket,
    key: u64,
) -> Option<u64> {
    if bucket.keys < 2 {
        return Some(0);
    }
    let root = root(tables, code, bucket, key)?;
    if root.key >> 63 == 0 {
        descend::<K, false>(tables, root.after, root.left, root.key << 1)
    } else {
        let end = Cursor::<true>::new(code, bucket.end);
        let rank = descend::<K, true>(tables, end, bucket.keys - root.left, root.key << 1)?;
        Some(root.left as u64 + rank)
    }
}

/// The first node that has keys on both sides.
struct RootNode<'a> {
    /// The start of the left subtrie.
    after: Cursor<'a, false>,
    /// Number of keys in the left subtrie.
    left: usize,
    /// The key's bits from this node on.
    key: u64,
}

#[inline(always)]
fn root<'a>(
    tables: &Tables,
    code: &'a [u8],
    bucket: TrieBucket,
    mut key: u64,
) -> Option<RootNode<'a>> {
    let mut cursor = Cursor::<false>::new(code, bucket.start);
    for _ in 0..DEPTH_MAX {
        let node = tables.node::<false>(bucket.keys, cursor.window(CODE_BITS_MAX)?);
        cursor.consume(node.len);
        if node.symbol != 0 {
            return Some(RootNode { after: cursor, left: node.symbol.min(bucket.keys - 1), key });
        }
        key <<= 1;
    }
    None
}

#[inline(always)]
fn descend<K: BitOps, const BACKWARD: bool>(
    tables: &Tables,
    mut cursor: Cursor<'_, BACKWARD>,
    mut keys: usize,
    mut key: u64,
) -> Option<u64> {
    let mut rank = 0;
    for _ in 0..=DEPTH_MAX {
        if keys <= LEAF_KEYS_MAX {
            if keys < 2 {
                return Some(rank);
            }
            let bits = head::<BACKWARD>(cursor.window(LEAF_BITS)?, LEAF_BITS);
            let leaf = tables.one_way::<BACKWARD>().leaf(keys, bits);
            if leaf.fits() {
                return Some(rank + leaf.rank(K::extract(key, leaf.mask())));
            }
        }
        let node = tables.node::<BACKWARD>(keys, cursor.window(CODE_BITS_MAX)?);
        cursor.consume(node.len);
        let (left, right_side) = (node.symbol.min(keys - 1), key >> 63 == 1);
        key <<= 1;
        if left == 0 {
            continue;
        }
        if right_side {
            skip(tables, &mut cursor, left)?;
            rank += left as u64;
            keys -= left;
        } else {
            keys = left;
        }
    }
    None
}

/// Returns the next `len` bits of a window, as an index into the tables of that direction.
#[inline(always)]
fn head<const BACKWARD: bool>(window: u64, len: u32) -> usize {
    if BACKWARD { (window >> (64 - len)) as usize } else { window as usize }
}

/// Steps over a subtrie.
#[inline(always)]
fn skip<const BACKWARD: bool>(
    tables: &Tables,
    cursor: &mut Cursor<'_, BACKWARD>,
    keys: usize,
) -> Option<()> {
    if keys <= SMALL_MAX {
        skip_small(tables, cursor, keys)
    } else {
        skip_large(tables, cursor, keys)
    }
}

/// Steps over a small subtrie. The sizes of the subtries that are still to be skipped, each less
/// one, are a stack in one register; the encoder guarantees that they fit.
#[inline(always)]
fn skip_small<const BACKWARD: bool>(
    tables: &Tables,
    cursor: &mut Cursor<'_, BACKWARD>,
    keys: usize,
) -> Option<()> {
    let one_way = tables.one_way::<BACKWARD>();
    let mut sizes = keys as u64 - 1;
    while sizes != 0 {
        let keys = (sizes % SMALL_MAX as u64) as usize + 1;
        sizes >>= SIZE_BITS;
        let nodes = one_way.skip(keys, head::<BACKWARD>(cursor.window(NODE_BITS)?, NODE_BITS));
        if nodes.used() == 0 {
            sizes = skip_long_node(tables, cursor, keys, sizes)?;
            continue;
        }
        cursor.consume(nodes.used());
        sizes = sizes << nodes.shift() | nodes.pending();
    }
    Some(())
}

/// Steps over one node whose code is longer than the tables are wide. Such nodes exist below a low
/// limit on Huffman coding.
#[cold]
fn skip_long_node<const BACKWARD: bool>(
    tables: &Tables,
    cursor: &mut Cursor<'_, BACKWARD>,
    keys: usize,
    mut sizes: u64,
) -> Option<u64> {
    if keys < 2 {
        return Some(sizes);
    }
    let node = tables.node::<BACKWARD>(keys, cursor.window(CODE_BITS_MAX)?);
    cursor.consume(node.len);
    let left = node.symbol.min(keys - 1);
    let mut push = |keys: usize| {
        if keys > 1 {
            sizes = sizes << SIZE_BITS | (keys - 1) as u64;
        }
    };
    push(keys - left);
    push(left);
    Some(sizes)
}

/// Steps over a large subtrie. Large nodes are few and have a stack of their own.
#[inline(never)]
fn skip_large<const BACKWARD: bool>(
    tables: &Tables,
    cursor: &mut Cursor<'_, BACKWARD>,
    keys: usize,
) -> Option<()> {
    let mut sizes = [0; DEPTH_MAX + 1];
    sizes[0] = keys;
    let mut count = 1;
    while count > 0 {
        count -= 1;
        let keys = sizes[count];
        if keys <= SMALL_MAX {
            if keys > 1 {
                skip_small(tables, cursor, keys)?;
            }
            continue;
        }
        let node = tables.node::<BACKWARD>(keys, cursor.window(CODE_BITS_MAX)?);
        cursor.consume(node.len);
        let left = node.symbol.min(keys - 1);
        for size in [keys - left, left] {
            if size > 0 {
                *sizes.get_mut(count)? = size;
                count += 1;
            }
        }
    }
    Some(())
}

/// Returns the ranks in the bucket among which a key is, for a sparse trie: all of them are in one
/// block.
pub(super) fn span(
    tables: &Tables,
    code: &[u8],
    bucket: TrieBucket,
    key: u64,
    marks: &Marks,
) -> Option<Range<usize>> {
    let all = 0..bucket.keys;
    if is_done(&all, marks) {
        return Some(all);
    }
    let root = root(tables, code, bucket, key)?;
    if root.key >> 63 == 0 {
        descend_span(tables, root.after, 0..root.left, root.key << 1, marks)
    } else {
        let end = Cursor::<true>::new(code, bucket.end);
        descend_span(tables, end, root.left..bucket.keys, root.key << 1, marks)
    }
}

#[inline(always)]
fn is_done(ranks: &Range<usize>, marks: &Marks) -> bool {
    ranks.len() < 2 || marks.is_one_block(ranks)
}

fn descend_span<const BACKWARD: bool>(
    tables: &Tables,
    mut cursor: Cursor<'_, BACKWARD>,
    mut ranks: Range<usize>,
    mut key: u64,
    marks: &Marks,
) -> Option<Range<usize>> {
    for _ in 0..=DEPTH_MAX {
        if is_done(&ranks, marks) {
            return Some(ranks);
        }
        let node = tables.node::<BACKWARD>(ranks.len(), cursor.window(CODE_BITS_MAX)?);
        cursor.consume(node.len);
        let (left, right_side) = (node.symbol.min(ranks.len() - 1), key >> 63 == 1);
        key <<= 1;
        if left == 0 {
            continue;
        }
        let middle = ranks.start + left;
        if right_side {
            skip_span(tables, &mut cursor, ranks.start..middle, marks)?;
            ranks.start = middle;
        } else {
            ranks.end = middle;
        }
    }
    None
}

fn skip_span<const BACKWARD: bool>(
    tables: &Tables,
    cursor: &mut Cursor<'_, BACKWARD>,
    ranks: Range<usize>,
    marks: &Marks,
) -> Option<()> {
    // Ends of the ranges that are still to be skipped; each range starts where the one above it
    // ends.
    let mut ends = [0; DEPTH_MAX + 1];
    ends[0] = ranks.end;
    let mut count = 1;
    let mut start = ranks.start;
    while count > 0 {
        let end = ends[count - 1];
        if is_done(&(start..end), marks) {
            start = end;
            count -= 1;
            continue;
        }
        let node = tables.node::<BACKWARD>(end - start, cursor.window(CODE_BITS_MAX)?);
        cursor.consume(node.len);
        let left = node.symbol.min(end - start - 1);
        if left > 0 {
            *ends.get_mut(count)? = start + left;
            count += 1;
        }
    }
    Some(())
}
