//! An index over sorted hashes without a table: a dense numbering of keys, and a subject for
//! measurements.

use super::{
    fences::{Fences, FencesBuilder},
    image::{Image, Sections},
    options::{IndexChoice, IndexOptions, IndexStats},
    trie::{self, CODING_LIMIT_MAX, Marks, Trie, TrieBuilder},
};
use crate::{
    error::{Error, ErrorKind, Result},
    io::Buffer,
    key::KeyHash,
};
use std::ops::Range;

/// A map from hashes to their ranks among all hashes, or to blocks with equal numbers of hashes.
///
/// ```
/// use hashfold::{KeyHash, Seed, table::{HashIndex, IndexOptions}};
/// let mut hashes: Vec<KeyHash> =
///     (0..1000_u32).map(|key| KeyHash::of(&key.to_le_bytes(), Seed(1))).collect();
/// hashes.sort();
/// let index = HashIndex::dense(hashes.iter().copied(), 1000, &IndexOptions::default())?;
/// assert_eq!(index.ranks(hashes[123]), 123..124);
/// # Ok::<(), hashfold::Error>(())
/// ```
#[derive(Debug)]
pub struct HashIndex {
    parts: HashParts,
    body: Buffer,
    entries_per_block: u64,
}

#[derive(Debug)]
enum HashParts {
    Dense(Trie),
    Sparse(Trie),
    Fences(Fences),
}

impl HashIndex {
    /// Builds an index of the rank of each hash, from hashes in ascending order. `count` is their
    /// approximate number.
    pub fn dense(
        hashes: impl IntoIterator<Item = KeyHash>,
        count: u64,
        options: &IndexOptions,
    ) -> Result<HashIndex> {
        HashIndex::build(IndexChoice::Dense, hashes, count, 1, options)
    }

    /// Builds an index of the exact block of each hash, from hashes in ascending order.
    pub fn sparse(
        hashes: impl IntoIterator<Item = KeyHash>,
        count: u64,
        entries_per_block: u64,
        options: &IndexOptions,
    ) -> Result<HashIndex> {
        HashIndex::build(IndexChoice::Sparse, hashes, count, entries_per_block, options)
    }

    /// Builds an index of the block of each hash, or the block after it, from hashes in ascending
    /// order.
    pub fn fences(
        hashes: impl IntoIterator<Item = KeyHash>,
        count: u64,
        entries_per_block: u64,
    ) -> Result<HashIndex> {
        let options = IndexOptions::default();
        HashIndex::build(IndexChoice::Fences, hashes, count, entries_per_block, &options)
    }

    fn build(
        choice: IndexChoice,
        hashes: impl IntoIterator<Item = KeyHash>,
        count: u64,
        entries_per_block: u64,
        options: &IndexOptions,
    ) -> Result<HashIndex> {
        options.check()?;
        if entries_per_block == 0 {
            return Err(Error::argument("entries per block", "at least 1", 0));
        }
        let mut image = Image::default();
        if choice == IndexChoice::Fences {
            let mut fences = FencesBuilder::new(count, count.div_ceil(entries_per_block));
            feed(hashes, entries_per_block, |hash, block| fences.push(hash, block))?;
            fences.finish(&mut image);
        } else {
            let mut trie = TrieBuilder::new(options.trie(), count, choice == IndexChoice::Sparse);
            feed(hashes, entries_per_block, |hash, block| trie.push(hash, block))?;
            trie.finish(&mut image);
        }
        let (fields, parts) = image.into_parts();
        let mut body = Buffer::zeroed(parts.iter().map(Vec::len).sum());
        let mut start = 0;
        for part in parts {
            body[start..][..part.len()].copy_from_slice(&part);
            start += part.len();
        }
        let (mut fields, mut sections) = Sections::split(&fields, &body)?;
        let parts = match choice {
            IndexChoice::Fences => HashParts::Fences(Fences::open(&mut fields, &mut sections)?),
            IndexChoice::Sparse => HashParts::Sparse(Trie::open(&mut fields, &mut sections)?),
            _ => HashParts::Dense(Trie::open(&mut fields, &mut sections)?),
        };
        Ok(HashIndex { parts, body, entries_per_block })
    }

    /// Returns the ranks that a hash may have.
    ///
    /// A dense index returns one rank, or several if the hash was given several times. A sparse
    /// index returns ranks in one block. Fences return all ranks of one block. The range is empty
    /// if the hash is certainly absent; an absent hash may also get the rank of another hash.
    #[inline]
    pub fn ranks(&self, hash: KeyHash) -> Range<u64> {
        match &self.parts {
            HashParts::Dense(trie) => trie.ranks(&self.body, hash),
            HashParts::Sparse(trie) => {
                let per_block = self.entries_per_block;
                trie.span(&self.body, hash, |ranks: Range<u64>, marks: &mut Marks| {
                    let mut start = (ranks.start / per_block + 1) * per_block;
                    while start < ranks.end {
                        marks.add(start);
                        start += per_block;
                    }
                })
            }
            HashParts::Fences(fences) => {
                let block = fences.block(&self.body, hash);
                block * self.entries_per_block..(block + 1) * self.entries_per_block
            }
        }
    }

    /// Appends [`HashIndex::ranks`] of each hash to `out`. A dense index overlaps the cache misses
    /// of many lookups.
    pub fn ranks_many(&self, hashes: &[KeyHash], out: &mut Vec<Range<u64>>) {
        match &self.parts {
            HashParts::Dense(trie) => {
                trie.ranks_many(&self.body, hashes, |_, ranks| out.push(ranks));
            }
            _ => out.extend(hashes.iter().map(|hash| self.ranks(*hash))),
        }
    }

    /// Returns the sizes of the parts of the index.
    pub fn stats(&self) -> IndexStats {
        match &self.parts {
            HashParts::Dense(trie) => trie.stats(IndexChoice::Dense),
            HashParts::Sparse(trie) => trie.stats(IndexChoice::Sparse),
            HashParts::Fences(fences) => fences.stats(),
        }
    }

    /// Returns the size of the index in memory, in bytes.
    pub fn bytes(&self) -> u64 {
        self.body.len() as u64
    }
}

fn feed(
    hashes: impl IntoIterator<Item = KeyHash>,
    entries_per_block: u64,
    mut push: impl FnMut(KeyHash, u64),
) -> Result<()> {
    let mut last = KeyHash::from_bits(0);
    let (mut block, mut left) = (0, entries_per_block);
    for hash in hashes {
        if hash < last {
            return Err(ErrorKind::Order { previous: last, got: hash }.into());
        }
        if left == 0 {
            (block, left) = (block + 1, entries_per_block);
        }
        push(hash, block);
        left -= 1;
        last = hash;
    }
    Ok(())
}

/// Returns the expected size of a dense trie of `keys` uniform hashes, in bits, without the number
/// of keys: the paper's Figure 3.
pub fn expected_trie_bits(keys: u32, coding_limit: u32) -> Result<f64> {
    /// The largest trie, in keys.
    const KEYS_MAX: u32 = 1023;
    if coding_limit > CODING_LIMIT_MAX || keys > KEYS_MAX {
        let expected = format!("at most {KEYS_MAX} keys and limit {CODING_LIMIT_MAX}");
        return Err(Error::argument("trie", expected, format!("{keys} and {coding_limit}")));
    }
    Ok(trie::expected_bits(keys as usize, coding_limit))
}
