//! Options for building and opening tables, and the statistics of a table.

use super::{
    absent::ABSENT_BITS_MAX,
    layout::check_block_size,
    trie::{CODING_LIMIT_DEFAULT, TrieOptions},
};
use crate::{
    env::Env,
    error::{Error, ErrorKind, Result},
    io::{ALIGNMENT, Access},
    key::Seed,
    options::AccessReason,
    run::SortOptions,
};
use std::fmt;

/// Maximum size of a table's attributes, names included, in bytes.
pub const ATTRIBUTES_SIZE_MAX: u64 = 1 << 20;

/// Maximum of the mean number of keys per bucket of a dense trie that [`IndexChoice::Auto`] chose for large
/// entries: beside them, a bit more per key counts less than lookups that decode less.
pub const BUCKET_SIZE_OF_LARGE_ENTRIES: u32 = 16;

/// The kind of index of a table. Any kind can be built over the same data file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexChoice {
    /// Fences if a block holds eight entries or more, else a dense trie with at most
    /// [`BUCKET_SIZE_OF_LARGE_ENTRIES`] keys per bucket.
    #[default]
    Auto,
    /// A dense trie, the rank of every entry: about 2.6 bits per key with buckets of 64 keys, always one
    /// device read.
    Dense,
    /// A sparse trie, the exact block of every entry: 0.3 to 1.5 bits per key for small entries,
    /// always one device read.
    Sparse,
    /// Fences, the block of every entry or the one after it: 0.1 to 1 bits per key for small
    /// entries; about 1 lookup in 100 needs a second device read.
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

/// Options for building an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexOptions {
    /// The kind of index.
    pub choice: IndexChoice,
    /// Tries: mean number of keys in a bucket (the paper's g), 8 to 512. Smaller buckets are faster
    /// and take more memory. A trie that [`IndexChoice::Auto`] chose for large entries has at most
    /// [`BUCKET_SIZE_OF_LARGE_ENTRIES`].
    pub bucket_size: u32,
    /// Tries: keys of the largest node with a Huffman code (the paper's hmax), at most 256.
    pub coding_limit: u32,
    /// Dense tries: bits per key of the fingerprints that rule out absent keys without a device
    /// read, 0 to 32.
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
            let expected = "dense or auto, because of the absent bits";
            return Err(Error::argument("index", expected, self.choice));
        }
        Ok(())
    }
}

/// Options for building a table.
///
/// ```
/// use hashfold::{Seed, TableOptions, table::IndexChoice};
///
/// let options = TableOptions::new().seed(Seed(7)).index(IndexChoice::Dense).replace(true);
/// ```
#[derive(Clone, Debug)]
pub struct TableOptions {
    pub(super) env: Env,
    pub(super) seed: Option<Seed>,
    pub(super) id: Option<u64>,
    pub(super) index: IndexOptions,
    pub(super) block_size: usize,
    pub(super) access: Access,
    pub(super) replace: bool,
    pub(super) attributes: Vec<(String, Vec<u8>)>,
    pub(super) sort: SortOptions,
}

impl Default for TableOptions {
    /// Returns [`TableOptions::new`].
    fn default() -> TableOptions {
        TableOptions::new()
    }
}

impl TableOptions {
    /// Returns the default options: [`Env::system`], a random seed and id, [`IndexChoice::Auto`],
    /// blocks of 4096 bytes, files written with [`Access::Direct`], and no replacing.
    pub fn new() -> TableOptions {
        TableOptions {
            env: Env::system(),
            seed: None,
            id: None,
            index: IndexOptions::default(),
            block_size: ALIGNMENT,
            access: Access::Direct,
            replace: false,
            attributes: Vec::new(),
            sort: SortOptions::default(),
        }
    }

    /// Sets the disk, the executor, the clock and the random numbers.
    #[must_use]
    pub fn env(self, env: Env) -> TableOptions {
        TableOptions { env, ..self }
    }

    /// Sets the seed that keys are hashed with, for reproducible builds. A user who knows the seed
    /// can choose keys that spoil the index. The default is a random number.
    #[must_use]
    pub fn seed(self, seed: Seed) -> TableOptions {
        TableOptions { seed: Some(seed), ..self }
    }

    /// Sets the table's id, a number that no other table has: all files of the table carry it. The
    /// default is a random number.
    #[must_use]
    pub fn id(self, id: u64) -> TableOptions {
        TableOptions { id: Some(id), ..self }
    }

    /// Sets the options of the index, or only its kind.
    #[must_use]
    pub fn index(self, index: impl Into<IndexOptions>) -> TableOptions {
        TableOptions { index: index.into(), ..self }
    }

    /// Sets the size of a block, the unit of reading and of checksums, in bytes: a power of two,
    /// 4096 to 65536. The default is 4096.
    #[must_use]
    pub fn block_size(self, block_size: usize) -> TableOptions {
        TableOptions { block_size, ..self }
    }

    /// Sets how the new files are written. The default is [`Access::Direct`]: a build displaces nothing
    /// in the page cache, and a map of the files later has pages of 2 MiB, if the system has them.
    /// With [`Access::Cached`], the files are in memory when they are built, in small pages.
    #[must_use]
    pub fn access(self, access: Access) -> TableOptions {
        TableOptions { access, ..self }
    }

    /// Sets whether an existing table is replaced once the new one is complete. The default is
    /// `false`.
    #[must_use]
    pub fn replace(self, replace: bool) -> TableOptions {
        TableOptions { replace, ..self }
    }

    /// Sets the attributes, which are stored with the table, such as its schema: names and values.
    #[must_use]
    pub fn attributes(self, attributes: Vec<(String, Vec<u8>)>) -> TableOptions {
        TableOptions { attributes, ..self }
    }

    /// Sets the memory of the sort of entries that come in any order, and which of several entries
    /// with one key is kept. The default is 1 GiB and the last one.
    #[must_use]
    pub fn sort(self, sort: SortOptions) -> TableOptions {
        TableOptions { sort, ..self }
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

impl From<IndexChoice> for IndexOptions {
    fn from(choice: IndexChoice) -> IndexOptions {
        IndexOptions { choice, ..IndexOptions::default() }
    }
}

/// The statistics of a table. Reading them does not read entries.
#[derive(Clone, Debug, PartialEq)]
pub struct TableStats {
    /// Seed that keys are hashed with.
    pub seed: Seed,
    /// Id of the data.
    pub id: u64,
    /// Generation of the manifest: grows with each build and each `reindex`.
    pub generation: u64,
    /// Number of entries.
    pub entries: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Size of a block, in bytes.
    pub block_size: usize,
    /// Size of each key in bytes, if all keys have the same size.
    pub key_size: Option<usize>,
    /// Size of each value in bytes, if all values have the same size.
    pub value_size: Option<usize>,
    /// Size of all keys together, in bytes.
    pub key_bytes: u64,
    /// Size of all values together, in bytes.
    pub value_bytes: u64,
    /// Size of the data file, in bytes.
    pub data_bytes: u64,
    /// The way in which blocks are read.
    pub access: Access,
    /// The reason why blocks are read in this way.
    pub access_reason: AccessReason,
    /// Size of the index in memory, in bytes.
    pub index_bytes: u64,
    /// Sizes of the parts of the index; `None` if the table is read without one.
    pub index: Option<IndexStats>,
}

impl TableStats {
    /// Returns the bits of memory per key. Padding, which matters only in small tables, is left
    /// out.
    pub fn index_bits_per_key(&self) -> f64 {
        let IndexStats { coded_bytes, directory_bytes, location_bytes, fingerprint_bytes, .. } =
            self.index.unwrap_or_default();
        let bytes = coded_bytes + directory_bytes + location_bytes + fingerprint_bytes;
        bits_per_key(bytes, self.entries)
    }
}

/// The kind of an index, its parameters, and the sizes of its parts in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// The kind of index.
    pub choice: IndexChoice,
    /// Tries: mean number of keys in a bucket.
    pub bucket_size: u32,
    /// Dense tries: bits per key of the fingerprints that rule out absent keys.
    pub absent_bits: u32,
    /// Size of the code of tries, or of the bytes of fences.
    pub coded_bytes: u64,
    /// Size of the directory of buckets, or of the anchors of fences.
    pub directory_bytes: u64,
    /// Size of the map from ranks to blocks, which exists if entries differ in size.
    pub location_bytes: u64,
    /// Size of the fingerprints.
    pub fingerprint_bytes: u64,
    /// Number of superblocks that did not fit their compact form and list their hashes or fences in
    /// full.
    pub explicit_superblocks: u64,
}

/// Returns the bits per key, or 0 if there are no keys.
pub(super) fn bits_per_key(bytes: u64, keys: u64) -> f64 {
    if keys == 0 { 0.0 } else { bytes as f64 * 8.0 / keys as f64 }
}
