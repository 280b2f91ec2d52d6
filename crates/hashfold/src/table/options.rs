//! How to build and open tables, and what there is to know of one.

use super::{
    fingerprints::ABSENT_BITS_MAX,
    layout::check_block_size,
    trie::{CODING_LIMIT_DEFAULT, TrieOptions},
};
use crate::{
    error::{Error, ErrorKind, Result},
    io::{ALIGNMENT, Access},
    key::Seed,
};
use std::fmt;

/// All names and values that are kept with a table, at most, in bytes.
pub const ATTRIBUTES_SIZE_MAX: u64 = 1 << 20;

/// Which index a table has. Any can be built over the same data file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexChoice {
    /// Fences where a block holds eight entries or more, else a dense trie.
    #[default]
    Auto,
    /// The rank of every entry: about 2.6 bits a key, always one read.
    Dense,
    /// The block of every entry, exactly: 0.3 to 1.5 bits a key for small entries, always one read.
    Sparse,
    /// The block of every entry, nearly: 0.1 to 1 bits a key for small entries; about one read in
    /// a hundred needs a second block.
    Fences,
}

impl fmt::Display for IndexChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IndexChoice::Auto => "auto",
            IndexChoice::Dense => "dense",
            IndexChoice::Sparse => "sparse",
            IndexChoice::Fences => "fences",
        })
    }
}

/// How to build an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexOptions {
    /// Which index.
    pub choice: IndexChoice,
    /// For tries: mean keys in a bucket (the paper's g), 8 to 512. Smaller is faster and larger.
    pub bucket_size: u32,
    /// For tries: keys of the largest node with a Huffman code (the paper's hmax), at most 256.
    pub coding_limit: u32,
    /// For dense tries: bits a key by which absent keys are told without a read, at most 32.
    pub absent_bits: u32,
}

impl Default for IndexOptions {
    fn default() -> IndexOptions {
        IndexOptions {
            choice: IndexChoice::Auto,
            bucket_size: TrieOptions::default().bucket_size,
            coding_limit: CODING_LIMIT_DEFAULT,
            absent_bits: 0,
        }
    }
}

impl IndexOptions {
    pub(super) fn trie(&self) -> TrieOptions {
        TrieOptions { bucket_size: self.bucket_size, coding_limit: self.coding_limit }
    }

    /// Refuses options outside their ranges.
    pub fn check(&self) -> Result<()> {
        self.trie().check()?;
        if self.absent_bits > ABSENT_BITS_MAX {
            let expected = format!("at most {ABSENT_BITS_MAX}");
            return Err(Error::argument("absent bits", expected, self.absent_bits));
        }
        let ranked = matches!(self.choice, IndexChoice::Auto | IndexChoice::Dense);
        if self.absent_bits > 0 && !ranked {
            let expected = "dense or auto where absent bits are wanted";
            return Err(Error::argument("index", expected, self.choice));
        }
        Ok(())
    }
}

/// How to build a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// Of the hashes. Random, unless builds must be reproducible: whoever knows it can make keys
    /// that spoil the index.
    pub seed: Seed,
    /// A number that no other table has: it ties the table's files together.
    pub id: u64,
    /// The index.
    pub index: IndexOptions,
    /// The unit of reading and of checksums in bytes: a power of two, 4096 to 65536.
    pub block_size: usize,
    /// How the bytes of the new files travel.
    pub access: Access,
    /// Whether a table that is there already is replaced, once the new one is complete.
    pub replace: bool,
    /// Names and values to keep with the table, such as its schema.
    pub attributes: Vec<(String, Vec<u8>)>,
}

impl TableOptions {
    /// The default options with this seed and id.
    pub fn new(seed: Seed, id: u64) -> TableOptions {
        TableOptions {
            seed,
            id,
            index: IndexOptions::default(),
            block_size: ALIGNMENT,
            access: Access::default(),
            replace: false,
            attributes: Vec::new(),
        }
    }

    /// Refuses options outside their ranges.
    pub fn check(&self) -> Result<()> {
        self.index.check()?;
        let size = |(name, value): &(String, Vec<u8>)| name.len() + value.len();
        let got = self.attributes.iter().map(size).sum::<usize>() as u64;
        if got > ATTRIBUTES_SIZE_MAX {
            let what = "size of the attributes in bytes";
            return Err(ErrorKind::Limit { what, limit: ATTRIBUTES_SIZE_MAX, got }.into());
        }
        check_block_size(self.block_size)
    }
}

/// How to open a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// How blocks are read.
    pub data: Access,
    /// [`Access::Mapped`]: the index stays in its file and is mapped. Else it is read into memory.
    pub index: Access,
}

/// What there is to know of a table without reading its entries.
#[derive(Clone, Debug, PartialEq)]
pub struct TableStats {
    /// Of the hashes.
    pub seed: Seed,
    /// Of the data.
    pub id: u64,
    /// How often the table was published: once built, then once for each new index.
    pub generation: u64,
    /// Entries.
    pub entries: u64,
    /// Blocks.
    pub blocks: u64,
    /// The size of a block in bytes.
    pub block_size: usize,
    /// The size of each key, if they have one size, in bytes.
    pub key_size: Option<usize>,
    /// The size of each value, likewise.
    pub value_size: Option<usize>,
    /// All keys together, in bytes.
    pub key_bytes: u64,
    /// All values together, in bytes.
    pub value_bytes: u64,
    /// The data file, in bytes.
    pub data_bytes: u64,
    /// The index in memory, in bytes.
    pub index_bytes: u64,
    /// What the index is made of.
    pub index: IndexStats,
}

impl TableStats {
    /// Bits of memory a key; padding, which counts where entries are few, is left out.
    pub fn index_bits_per_key(&self) -> f64 {
        let IndexStats { coded_bytes, directory_bytes, location_bytes, .. } = self.index;
        let bytes = coded_bytes + directory_bytes + location_bytes + self.index.fingerprint_bytes;
        bits_per_key(bytes, self.entries)
    }
}

/// What an index is made of, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// Which index.
    pub choice: IndexChoice,
    /// For tries: mean keys in a bucket.
    pub bucket_size: u32,
    /// For dense tries: bits a key by which absent keys are told.
    pub absent_bits: u32,
    /// The code of tries, or the bytes of fences.
    pub coded_bytes: u64,
    /// The directory of buckets, or the anchors of fences.
    pub directory_bytes: u64,
    /// From ranks to blocks, where entries differ in size.
    pub location_bytes: u64,
    /// Fingerprints.
    pub fingerprint_bytes: u64,
    /// Superblocks that did not fit their form, which list hashes or fences in full.
    pub explicit_superblocks: u64,
}

/// Bits a key, or 0 where there are no keys.
pub(super) fn bits_per_key(bytes: u64, keys: u64) -> f64 {
    if keys == 0 { 0.0 } else { bytes as f64 * 8.0 / keys as f64 }
}
