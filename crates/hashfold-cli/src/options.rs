//! Options that several verbs share.

use crate::{device, failure::Result, units};
use clap::{Args, ValueEnum};
use hashfold::{
    Seed,
    io::Access,
    table::{IndexChoice, IndexOptions},
};

/// The index of a table.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct IndexArgs {
    /// Which index to build
    #[arg(long, default_value = "auto")]
    index: IndexName,
    /// Keys in a bucket of the index, on average: more take less memory and more time
    #[arg(long, default_value_t = 64, value_name = "KEYS")]
    bucket_size: u32,
    /// Nodes of up to so many keys have Huffman codes, larger ones Rice codes
    #[arg(long, default_value_t = 32, value_name = "KEYS")]
    coding_limit: u32,
    /// Bits a key that tell, mostly without a read, that a key is absent
    #[arg(long, default_value_t = 0, value_name = "N")]
    absent_bits: u32,
}

/// An index, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum IndexName {
    /// By the size of the entries
    Auto,
    /// The rank of every entry
    Dense,
    /// The block of every entry, exactly
    Sparse,
    /// The block of every entry, nearly: some look-ups read the block before it too
    Fences,
}

impl IndexArgs {
    pub(crate) fn options(&self) -> IndexOptions {
        IndexOptions {
            choice: match self.index {
                IndexName::Auto => IndexChoice::Auto,
                IndexName::Dense => IndexChoice::Dense,
                IndexName::Sparse => IndexChoice::Sparse,
                IndexName::Fences => IndexChoice::Fences,
            },
            bucket_size: self.bucket_size,
            coding_limit: self.coding_limit,
            absent_bits: self.absent_bits,
        }
    }
}

/// How tables are built.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ShapeArgs {
    /// The seed of the hash, for builds that can be repeated [default: random]
    #[arg(long, value_name = "N", value_parser = parse_seed)]
    pub(crate) seed: Option<Seed>,
    #[command(flatten)]
    pub(crate) index: IndexArgs,
    /// The unit of reading, in bytes
    #[arg(long, default_value = "4KiB", value_parser = units::parse_bytes)]
    pub(crate) block_size: usize,
}

impl ShapeArgs {
    /// The seed, one that nobody can foresee if none is given.
    pub(crate) fn seed(&self) -> Result<Seed> {
        match self.seed {
            Some(seed) => Ok(seed),
            None => Ok(Seed(device::random()?)),
        }
    }
}

/// Reads a seed: a number, or its hexadecimal digits after `0x`.
pub(crate) fn parse_seed(text: &str) -> Result<Seed, String> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    number.map(Seed).map_err(|error| error.to_string())
}

/// How data are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AccessName {
    /// Past the page cache, many reads at once
    Direct,
    /// Through the page cache
    Cached,
    /// Through a memory map
    Mapped,
}

impl From<AccessName> for Access {
    fn from(name: AccessName) -> Access {
        match name {
            AccessName::Direct => Access::Direct,
            AccessName::Cached => Access::Cached,
            AccessName::Mapped => Access::Mapped,
        }
    }
}
