//! Entropy-coded tries: from a hash to its rank among sorted hashes, with about 2.6 bits per key.
//!
//! After Lim, Andersen and Kaminsky, *Practical Batch-Updatable External Hashing with Sorting*
//! (2013), sections 2.3, 2.4 and 2.6. Hashes are divided into buckets of about `bucket_size` keys.
//! A bucket's binary trie is written as the sizes of left subtries, entropy-coded.
//!
//! ```text
//! hash ── x superblocks ──> superblock ── x 28 ──> bucket ──> fraction: the key's bits in its trie
//!                           │ one cache line: counts and code sizes of 28 buckets
//!                           └> first rank, first bit ──> code: root, left subtrie >...< right subtrie
//! ```
//!
//! A dense trie gives the rank of each key. A sparse trie leaves out subtries inside one block, and
//! gives the ranks of some neighbours, all in that block. Both are right only for keys that are in
//! the trie; for other keys they return an arbitrary rank, or none.

mod bits;
mod code;
mod decode;
mod directory;
mod encode;
mod kernel;
mod tables;
#[cfg(test)]
mod tests;

pub use self::code::CODING_LIMIT_MAX;
pub(super) use self::tables::CODING_LIMIT_DEFAULT;

use self::{
    bits::{BitVec, PADDING},
    code::KEYS_MAX,
    directory::{
        Address, BUCKET_SIZE_MAX, BUCKETS, Bucket, EPOCH, EXPLICIT_LINE, LINE_SIZE, Line, Scale,
        Shape,
    },
    kernel::{Kernel, Portable, prefetch},
    tables::Tables,
};
use super::{
    image::{Image, Sections},
    options::{IndexChoice, IndexStats},
};
use crate::{
    codec::Decoder,
    error::{Error, Result},
    key::KeyHash,
};
use std::{ops::Range, sync::Arc};

/// Range of the mean number of keys in a bucket.
pub const BUCKET_SIZES: Range<u32> = 8..BUCKET_SIZE_MAX + 1;

/// The parameters of the paper's section 4.5. Smaller buckets are faster and take more bits; so do
/// lower limits on Huffman coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrieOptions {
    /// Mean number of keys in a bucket (the paper's g), in [`BUCKET_SIZES`].
    pub(crate) bucket_size: u32,
    /// Keys of the largest trie node with a Huffman code (the paper's hmax), at most
    /// [`CODING_LIMIT_MAX`]; larger nodes have Rice codes.
    pub(crate) coding_limit: u32,
}

impl Default for TrieOptions {
    fn default() -> TrieOptions {
        TrieOptions { bucket_size: 64, coding_limit: CODING_LIMIT_DEFAULT }
    }
}

impl TrieOptions {
    /// Refuses parameters outside their ranges.
    pub(crate) fn check(&self) -> Result<()> {
        if !BUCKET_SIZES.contains(&self.bucket_size) {
            let expected = format!("{} to {BUCKET_SIZE_MAX}", BUCKET_SIZES.start);
            return Err(Error::argument("bucket size", expected, self.bucket_size));
        }
        if self.coding_limit > CODING_LIMIT_MAX {
            let expected = format!("at most {CODING_LIMIT_MAX}");
            return Err(Error::argument("coding limit", expected, self.coding_limit));
        }
        Ok(())
    }
}

/// A superblock that lists its hashes, because a bucket of it cannot be coded: see [`directory`].
#[derive(Clone, Copy, Debug)]
struct Explicit {
    superblock: u64,
    first_rank: u64,
    /// Index of the first hash in the list of hashes.
    first_hash: u64,
}

const EPOCH_SIZE: usize = 16;
const EXPLICIT_SIZE: usize = 24;
const HASH_SIZE: usize = 16;

/// A builder of a trie from hashes in ascending order. It needs memory for one superblock besides
/// the trie.
#[derive(Debug)]
pub(crate) struct TrieBuilder {
    tables: Arc<Tables>,
    options: TrieOptions,
    sparse: bool,
    superblocks: u64,
    scale: Option<Scale>,
    /// Whether the mean number of keys in a bucket has been measured on a superblock.
    is_measured: bool,
    /// Number of keys in the superblocks before this one.
    rank: u64,
    superblock: u64,
    counts: [u32; BUCKETS],
    hashes: Vec<u128>,
    fractions: Vec<u64>,
    blocks: Vec<u64>,
    lines: Vec<u8>,
    epochs: Vec<(u64, u64)>,
    explicit: Vec<Explicit>,
    explicit_hashes: Vec<u8>,
    code: BitVec,
    scratch: BitVec,
}

impl TrieBuilder {
    /// Makes a builder for about `keys` keys. A wrong number only changes the mean bucket size.
    pub(crate) fn new(options: TrieOptions, keys: u64, sparse: bool) -> TrieBuilder {
        let keys = keys.max(1);
        let superblocks = keys.div_ceil(BUCKETS as u64 * u64::from(options.bucket_size));
        let mean = keys.div_ceil(superblocks * BUCKETS as u64) as u32;
        let options = TrieOptions { bucket_size: mean, ..options };
        let tables = Tables::new(options.coding_limit);
        let mut builder = TrieBuilder {
            tables,
            options,
            sparse,
            superblocks,
            scale: None,
            is_measured: false,
            rank: 0,
            superblock: 0,
            counts: [0; BUCKETS],
            hashes: Vec::new(),
            fractions: Vec::new(),
            blocks: Vec::new(),
            lines: Vec::with_capacity(superblocks as usize * LINE_SIZE),
            epochs: Vec::new(),
            explicit: Vec::new(),
            explicit_hashes: Vec::new(),
            code: BitVec::default(),
            scratch: BitVec::default(),
        };
        if !sparse {
            let bits_per_key = builder.scale_to_bucket_size();
            builder.code = BitVec::with_capacity((bits_per_key * 1.02 * keys as f64) as u64);
        }
        builder
    }

    /// Sets the scale of a dense trie; returns the bits of code per key.
    fn scale_to_bucket_size(&mut self) -> f64 {
        let mean = self.options.bucket_size;
        let bits_per_key = self.tables.book.expected_bits(mean as usize) / f64::from(mean);
        self.scale_to(bits_per_key);
        bits_per_key
    }

    /// Measures the mean bucket size on the first superblock. Fewer keys may come than `new` was
    /// given, as in an update that overwrites most of them; measuring makes the counts of all
    /// superblocks fit their lines.
    fn measure(&mut self) {
        let promised = self.options.bucket_size;
        let mean = (self.hashes.len() as f64 / BUCKETS as f64).round() as u32;
        if mean.abs_diff(promised) > 2 + promised / 64 {
            self.options.bucket_size = mean.clamp(1, BUCKET_SIZE_MAX);
            if !self.sparse {
                self.scale_to_bucket_size();
            }
        }
        self.is_measured = true;
    }

    fn scale_to(&mut self, bits_per_key: f64) {
        let slope = (bits_per_key * 256.0).round() as u32;
        self.scale = Some(Scale { bucket_size: self.options.bucket_size, slope });
    }

    /// Adds the next hash, which must not be below the last one. `block` is the block in which its
    /// entry starts; only sparse tries use it.
    #[inline]
    pub(crate) fn push(&mut self, hash: KeyHash, block: u64) {
        let address = Address::of(hash.high(), self.superblocks);
        while self.superblock < address.superblock {
            self.close();
        }
        debug_assert!(self.hashes.last().is_none_or(|&last| last <= hash.bits()));
        self.counts[address.bucket] += 1;
        self.hashes.push(hash.bits());
        self.fractions.push(address.fraction);
        if self.sparse {
            self.blocks.push(block);
        }
    }

    fn close(&mut self) {
        if !self.is_measured && !self.hashes.is_empty() {
            self.measure();
        }
        if self.superblock.is_multiple_of(EPOCH) {
            self.epochs.push((self.rank, self.code.len()));
        }
        let start = self.code.len();
        let line = match self.encode_buckets() {
            Some(line) => line,
            None => {
                self.code.truncate(start);
                self.list_hashes();
                EXPLICIT_LINE
            }
        };
        self.lines.extend(line);
        self.rank += self.hashes.len() as u64;
        self.superblock += 1;
        self.counts = [0; BUCKETS];
        self.hashes.clear();
        self.fractions.clear();
        self.blocks.clear();
    }

    fn encode_buckets(&mut self) -> Option<[u8; LINE_SIZE]> {
        let (rank, start) = *self.epochs.last().expect("the first superblock starts an epoch");
        let code_start = self.code.len();
        let mut shape = Shape { keys: self.counts, ..Shape::default() };
        let mut first = 0;
        for (count, bits) in self.counts.iter().zip(&mut shape.bits) {
            let keys = first..first + *count as usize;
            let blocks = if self.sparse { &self.blocks[keys.clone()] } else { &[] };
            let keys_of = encode::Keys { fractions: &self.fractions[keys.clone()], blocks };
            let before = self.code.len();
            encode::bucket(&self.tables.book, keys_of, &mut self.code, &mut self.scratch)?;
            *bits = (self.code.len() - before) as u32;
            first = keys.end;
        }
        // The part that a sparse trie leaves out depends on the blocks, so it is measured on the
        // first superblock.
        if self.scale.is_none() && !self.hashes.is_empty() {
            self.scale_to((self.code.len() - code_start) as f64 / self.hashes.len() as f64);
        }
        directory::encode(&shape, self.rank - rank, code_start - start, self.scale?)
    }

    #[cold]
    fn list_hashes(&mut self) {
        self.explicit.push(Explicit {
            superblock: self.superblock,
            first_rank: self.rank,
            first_hash: (self.explicit_hashes.len() / HASH_SIZE) as u64,
        });
        self.explicit_hashes.extend(self.hashes.iter().flat_map(|hash| hash.to_le_bytes()));
    }

    /// Adds the trie to an index: its fields and its five sections.
    pub(crate) fn finish(mut self, image: &mut Image) {
        while self.superblock < self.superblocks {
            self.close();
        }
        let fallback = Scale { bucket_size: self.options.bucket_size, slope: 0 };
        let scale = self.scale.unwrap_or(fallback);
        image.field(self.superblocks);
        image.field(self.rank);
        image.field(u64::from(scale.bucket_size));
        image.field(u64::from(scale.slope));
        image.field(u64::from(self.options.coding_limit));
        image.section(self.lines);
        let epochs = self.epochs.iter().flat_map(|&(rank, bits)| [rank, bits]);
        image.section(epochs.flat_map(u64::to_le_bytes).collect());
        let explicit =
            self.explicit.iter().flat_map(|e| [e.superblock, e.first_rank, e.first_hash]);
        image.section(explicit.flat_map(u64::to_le_bytes).collect());
        image.section(self.explicit_hashes);
        image.section(self.code.into_padded_bytes());
    }
}

/// The instructions that lookups use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Machine {
    Portable,
    #[cfg(target_arch = "x86_64")]
    V3,
}

impl Machine {
    fn best() -> Machine {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt")
        {
            return Machine::V3;
        }
        Machine::Portable
    }
}

/// A trie in memory.
#[derive(Debug)]
pub(crate) struct Trie {
    tables: Arc<Tables>,
    machine: Machine,
    superblocks: u64,
    keys: u64,
    scale: Scale,
    lines: Range<usize>,
    epochs: Box<[(u64, u64)]>,
    explicit: Box<[Explicit]>,
    explicit_hashes: Range<usize>,
    code: Range<usize>,
}

/// Number of lookups whose cache misses overlap.
const GROUP: usize = 64;

impl Trie {
    /// Reads the fields and finds the sections that [`TrieBuilder::finish`] wrote.
    pub(crate) fn open(fields: &mut Decoder<'_>, sections: &mut Sections<'_>) -> Result<Trie> {
        let superblocks = fields.u64()?;
        let keys = fields.u64()?;
        let bucket_size = small(fields, "bucket size", u64::from(BUCKET_SIZE_MAX))?;
        let slope = small(fields, "slope", 1 << 16)?;
        let coding_limit = small(fields, "coding limit", u64::from(CODING_LIMIT_MAX))?;
        let lines_size = superblocks.checked_mul(LINE_SIZE as u64).filter(|&size| size > 0);
        let Some(lines_size) = lines_size else {
            return Err(Error::field("superblocks", "at least 1", superblocks));
        };
        let lines = sections.next_of_size("lines", lines_size)?;
        let epochs =
            sections.next_of_size("epochs", superblocks.div_ceil(EPOCH) * EPOCH_SIZE as u64)?;
        let explicit = sections.next_section()?;
        let explicit_hashes = sections.next_section()?;
        let code = sections.next_section()?;
        let bytes = sections.bytes();
        if code.len() < 2 * PADDING || explicit_hashes.len() % HASH_SIZE != 0 {
            return Err(Error::field("code size", "padding at both ends", code.len()));
        }
        Ok(Trie {
            tables: Tables::new(coding_limit),
            machine: Machine::best(),
            superblocks,
            keys,
            scale: Scale { bucket_size, slope },
            lines,
            epochs: numbers(&bytes[epochs]).map(|[rank, bits]| (rank, bits)).collect(),
            explicit: numbers(&bytes[explicit])
                .map(|[superblock, first_rank, first_hash]| Explicit {
                    superblock,
                    first_rank,
                    first_hash,
                })
                .collect(),
            explicit_hashes,
            code,
        })
    }

    /// Returns the number of keys.
    pub(crate) fn keys(&self) -> u64 {
        self.keys
    }

    /// Returns the sizes of the trie's parts.
    pub(crate) fn stats(&self, choice: IndexChoice) -> IndexStats {
        let tries =
            self.code.len() + self.explicit_hashes.len() + self.explicit.len() * EXPLICIT_SIZE;
        IndexStats {
            choice,
            bucket_size: self.scale.bucket_size,
            coded_bytes: tries as u64,
            directory_bytes: (self.lines.len() + self.epochs.len() * EPOCH_SIZE) as u64,
            explicit_superblocks: self.explicit.len() as u64,
            ..IndexStats::default()
        }
    }

    /// Returns the ranks that a hash may have in a dense trie: one, or several if keys agree in all
    /// 128 bits, or none if the hash is certainly absent. `bytes` is the body of the index.
    #[inline]
    pub(crate) fn ranks(&self, bytes: &[u8], hash: KeyHash) -> Range<u64> {
        let address = Address::of(hash.high(), self.superblocks);
        let rank = match self.machine {
            Machine::Portable => self.rank::<Portable>(bytes, address),
            #[cfg(target_arch = "x86_64")]
            Machine::V3 => v3::rank(self, bytes, address),
        };
        match rank {
            Some(rank) => rank..(rank + 1).min(self.keys),
            None => self.listed(bytes, hash, address),
        }
    }

    /// Appends [`Trie::ranks`] of each hash to `out`; the cache misses of many lookups overlap.
    pub(crate) fn ranks_many(&self, bytes: &[u8], hashes: &[KeyHash], out: &mut Vec<Range<u64>>) {
        for group in hashes.chunks(GROUP) {
            match self.machine {
                Machine::Portable => self.rank_group::<Portable>(bytes, group, out),
                #[cfg(target_arch = "x86_64")]
                Machine::V3 => v3::rank_group(self, bytes, group, out),
            }
        }
    }

    #[inline(always)]
    fn line<'a>(&self, bytes: &'a [u8], superblock: u64) -> Line<'a> {
        let lines = bytes[self.lines.clone()].as_chunks::<LINE_SIZE>().0;
        Line(&lines[superblock as usize])
    }

    #[inline(always)]
    fn bucket<K: Kernel>(&self, bytes: &[u8], address: Address) -> Option<Bucket> {
        let line = self.line(bytes, address.superblock);
        let mut bucket = line.bucket::<K>(address.bucket, self.scale)?;
        let (rank, bits) = self.epochs[(address.superblock / EPOCH) as usize];
        bucket.first_rank = bucket.first_rank.wrapping_add(rank);
        bucket.start = bucket.start.wrapping_add(bits);
        bucket.end = bucket.end.wrapping_add(bits);
        Some(bucket)
    }

    #[inline(always)]
    fn rank<K: Kernel>(&self, bytes: &[u8], address: Address) -> Option<u64> {
        let bucket = self.bucket::<K>(bytes, address)?;
        let code = &bytes[self.code.clone()];
        let rank = decode::rank::<K>(&self.tables, code, bucket, address.fraction)?;
        Some((bucket.first_rank.wrapping_add(rank)).min(self.keys.saturating_sub(1)))
    }

    #[inline(always)]
    fn rank_group<K: Kernel>(&self, bytes: &[u8], hashes: &[KeyHash], out: &mut Vec<Range<u64>>) {
        let code = &bytes[self.code.clone()];
        let mut addresses = [Address { superblock: 0, bucket: 0, fraction: 0 }; GROUP];
        let mut buckets = [None; GROUP];
        for (address, hash) in addresses.iter_mut().zip(hashes) {
            *address = Address::of(hash.high(), self.superblocks);
            prefetch(&self.line(bytes, address.superblock).0[0]);
        }
        for (bucket, address) in buckets.iter_mut().zip(&addresses[..hashes.len()]) {
            *bucket = self.bucket::<K>(bytes, *address);
            if let Some(Bucket { start, end, .. }) = *bucket {
                for bit in [start, end] {
                    if let Some(byte) = code.get(bit as usize / 8 + PADDING / 2) {
                        prefetch(byte);
                    }
                }
            }
        }
        for (i, hash) in hashes.iter().enumerate() {
            let rank = buckets[i].and_then(|bucket: Bucket| {
                let fraction = addresses[i].fraction;
                let rank = decode::rank::<K>(&self.tables, code, bucket, fraction)?;
                Some(bucket.first_rank.wrapping_add(rank).min(self.keys.saturating_sub(1)))
            });
            out.push(match rank {
                Some(rank) => rank..(rank + 1).min(self.keys),
                None => self.listed(bytes, *hash, addresses[i]),
            });
        }
    }

    /// Returns the ranks of a hash in an explicit superblock.
    #[cold]
    fn listed(&self, bytes: &[u8], hash: KeyHash, address: Address) -> Range<u64> {
        let superblock = address.superblock;
        let Ok(at) = self.explicit.binary_search_by_key(&superblock, |e| e.superblock) else {
            return 0..0;
        };
        let hashes = bytes[self.explicit_hashes.clone()].as_chunks::<HASH_SIZE>().0;
        let start = (self.explicit[at].first_hash as usize).min(hashes.len());
        let end = self.explicit.get(at + 1).map_or(hashes.len(), |next| next.first_hash as usize);
        let hashes = hashes.get(start..end).unwrap_or(&[]);
        let value = |bytes: &[u8; HASH_SIZE]| u128::from_le_bytes(*bytes);
        let first = hashes.partition_point(|h| value(h) < hash.bits());
        let count = hashes[first..].partition_point(|h| value(h) == hash.bits());
        let rank = self.explicit[at].first_rank.saturating_add(first as u64);
        rank.min(self.keys)..rank.saturating_add(count as u64).min(self.keys)
    }

    /// Returns the ranks of keys that share a block with a key of this hash, in a sparse trie; none
    /// if the hash is certainly absent. `mark` marks the ranks of a bucket's keys, except the
    /// first, at which a block begins.
    pub(crate) fn span(
        &self,
        bytes: &[u8],
        hash: KeyHash,
        mark: impl FnOnce(Range<u64>, &mut Marks),
    ) -> Range<u64> {
        let address = Address::of(hash.high(), self.superblocks);
        let Some(bucket) = self.bucket::<Portable>(bytes, address) else {
            return self.listed(bytes, hash, address);
        };
        let rank = |i: usize| bucket.first_rank.saturating_add(i as u64).min(self.keys);
        let mut marks = Marks { first: bucket.first_rank, words: [0; MARK_WORDS] };
        mark(rank(0)..rank(bucket.keys), &mut marks);
        let code = &bytes[self.code.clone()];
        decode::span(&self.tables, code, bucket, address.fraction, &marks)
            .map_or(0..0, |ranks| rank(ranks.start)..rank(ranks.end))
    }

    /// Disables the processor's special instructions.
    #[cfg(test)]
    fn portable(mut self) -> Trie {
        self.machine = Machine::Portable;
        self
    }
}

const MARK_WORDS: usize = KEYS_MAX.div_ceil(64);

/// The keys of a bucket at which a block begins.
#[derive(Debug)]
pub(crate) struct Marks {
    first: u64,
    words: [u64; MARK_WORDS],
}

impl Marks {
    /// Marks the key with this rank, which must be in the bucket.
    #[inline]
    pub(crate) fn add(&mut self, rank: u64) {
        let i = (rank - self.first) as usize;
        self.words[i / 64] |= 1 << (i % 64);
    }

    /// Whether all these keys of the bucket are in one block.
    #[inline]
    fn is_one_block(&self, keys: &Range<usize>) -> bool {
        let (first, last) = (keys.start + 1, keys.end - 1);
        let words = &self.words[first / 64..=last / 64];
        let head = u64::MAX << (first % 64);
        let tail = u64::MAX >> (63 - last % 64);
        match words {
            [word] => word & head & tail == 0,
            [start, middle @ .., end] => {
                start & head == 0 && end & tail == 0 && middle.iter().all(|&word| word == 0)
            }
            [] => true,
        }
    }
}

/// Returns the expected bits of a trie of `keys` uniform hashes, without the number of keys.
pub(super) fn expected_bits(keys: usize, coding_limit: u32) -> f64 {
    Tables::new(coding_limit).book.expected_bits(keys)
}

/// Reads a number of at most `max`.
fn small(fields: &mut Decoder<'_>, what: &'static str, max: u64) -> Result<u32> {
    let value = fields.u64()?;
    match u32::try_from(value) {
        Ok(small) if value <= max => Ok(small),
        _ => Err(Error::field(what, format!("at most {max}"), value)),
    }
}

/// Returns rows of `N` numbers.
fn numbers<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u64; N]> {
    let (words, _) = bytes.as_chunks::<8>();
    let (rows, _) = words.as_chunks::<N>();
    rows.iter().map(|row| row.map(u64::from_le_bytes))
}

/// The lookup code, compiled for processors of the x86-64-v3 level.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod v3 {
    use super::{Address, KeyHash, Machine, Range, Trie, kernel::V3};

    #[inline]
    pub(super) fn rank(trie: &Trie, bytes: &[u8], address: Address) -> Option<u64> {
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
        fn compiled(trie: &Trie, bytes: &[u8], address: Address) -> Option<u64> {
            trie.rank::<V3>(bytes, address)
        }
        debug_assert_eq!(trie.machine, Machine::V3);
        // SAFETY: `Machine::best` found these features; nothing else makes a `Machine::V3`.
        unsafe { compiled(trie, bytes, address) }
    }

    pub(super) fn rank_group(
        trie: &Trie,
        bytes: &[u8],
        hashes: &[KeyHash],
        out: &mut Vec<Range<u64>>,
    ) {
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
        fn compiled(trie: &Trie, bytes: &[u8], hashes: &[KeyHash], out: &mut Vec<Range<u64>>) {
            trie.rank_group::<V3>(bytes, hashes, out);
        }
        debug_assert_eq!(trie.machine, Machine::V3);
        // SAFETY: as above.
        unsafe { compiled(trie, bytes, hashes, out) }
    }
}
