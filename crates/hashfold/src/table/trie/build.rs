//! Building a trie from ascending hashes.

use super::{
    bits::BitVec,
    directory::{
        self, Address, BUCKET_SIZE_MAX, BUCKETS, EPOCH, EXPLICIT_LINE, Explicit, HASH_SIZE,
        LINE_SIZE, Scale, Superblock,
    },
    encode,
    options::TrieOptions,
    tables::Tables,
};
use crate::{key::KeyHash, table::image::Image};
use std::sync::Arc;

/// A builder of a trie from hashes in ascending order. It needs memory for one superblock besides
/// the trie.
#[derive(Debug)]
pub(in crate::table) struct TrieBuilder {
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
    pub(in crate::table) fn new(options: TrieOptions, keys: u64, sparse: bool) -> TrieBuilder {
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
    pub(in crate::table) fn push(&mut self, hash: KeyHash, block: u64) {
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
        let mut superblock = Superblock { keys: self.counts, ..Superblock::default() };
        let mut first = 0;
        for (count, bits) in self.counts.iter().zip(&mut superblock.bits) {
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
        directory::encode(&superblock, self.rank - rank, code_start - start, self.scale?)
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
    pub(in crate::table) fn finish(mut self, image: &mut Image) {
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
