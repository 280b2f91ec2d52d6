//! Options that several verbs have in common.

use crate::{device, failure::Result, units};
use clap::{Args, ValueEnum};
use hashfold::{
    ReadOptions, Seed,
    io::Access,
    table::{IndexChoice, IndexOptions},
};

/// Options for the index of a table.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct IndexArgs {
    /// Index over the entries, kept in RAM; auto suits most data
    ///
    /// Entries are small if at least eight fit into a block. How to choose: fences for small entries;
    /// sparse for small entries if no lookup may take a second read; dense for large entries, or with
    /// --absent-bits if many lookups are of absent keys. `reindex` changes the index of a table later.
    #[arg(long, default_value = "auto")]
    index: IndexName,
    /// Average number of keys per bucket of a dense or sparse index, at most 16 if `auto` chose it;
    /// larger buckets take less RAM and more CPU time per lookup
    #[arg(long, default_value_t = 64, value_name = "KEYS", value_parser = units::parse_number::<u32>)]
    bucket_size: u32,
    /// Largest node of a dense or sparse index, in keys, that is coded with Huffman codes; larger
    /// nodes are coded with Rice codes
    #[arg(long, default_value_t = 32, value_name = "KEYS", value_parser = units::parse_number::<u32>)]
    coding_limit: u32,
    /// Extra bits of RAM per key in a dense index; N bits save all but one in 2^N of the device
    /// reads for absent keys
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = units::parse_number::<u32>)]
    absent_bits: u32,
}

/// An index, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum IndexName {
    /// Fences for small entries, dense for large ones
    Auto,
    /// Rank of every entry: about 2.6 bits of RAM per key, 1 device read per lookup, 21 ns of CPU time
    /// per key to build
    Dense,
    /// Block of every entry: 0.3 to 1.5 bits of RAM per key for small entries, 1 device read, about
    /// 10 ns to build
    Sparse,
    /// Block of an entry or the block after it: 0.1 to 1 bit of RAM per key, a second device read
    /// for about 1 % of lookups, 1 ns to build
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

/// Options for building tables.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ShapeArgs {
    /// Seed of the hash; the same seed and input give the same files [default: random]
    #[arg(long, value_name = "N", value_parser = parse_seed)]
    pub(crate) seed: Option<Seed>,
    #[command(flatten)]
    pub(crate) index: IndexArgs,
    /// Size of a block, the unit of device reads: 4KiB to 64KiB
    #[arg(long, default_value = "4KiB", value_name = "SIZE", value_parser = units::parse_bytes)]
    pub(crate) block_size: usize,
}

impl ShapeArgs {
    /// Returns the given seed, or an unpredictable random seed.
    pub(crate) fn seed(&self) -> Result<Seed> {
        match self.seed {
            Some(seed) => Ok(seed),
            None => Ok(Seed(device::random()?)),
        }
    }
}

/// Parses a seed: a decimal number, or hexadecimal digits after `0x`.
pub(crate) fn parse_seed(text: &str) -> Result<Seed, String> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    number.map(Seed).map_err(|_| {
        "expected a number from 0 to 2^64 - 1, in decimal or as hexadecimal digits after 0x".into()
    })
}

/// Options for reading data.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct AccessArgs {
    /// Way to read the data: auto maps them if they fit in free memory [default: auto to look up keys,
    /// cached to scan and to compare, direct to verify]
    #[arg(long)]
    access: Option<AccessName>,
}

impl AccessArgs {
    /// Whether the user chose a way.
    pub(crate) fn is_given(self) -> bool {
        self.access.is_some()
    }

    /// Sets the way to read data that are looked up by keys.
    pub(crate) fn to_look_up(self, options: ReadOptions) -> ReadOptions {
        self.set(options, AccessName::Auto)
    }

    /// Sets the way to read data from front to back.
    pub(crate) fn to_scan(self, options: ReadOptions) -> ReadOptions {
        self.set(options, AccessName::Cached)
    }

    /// Sets the way to read data that are checked: those on the device, not in the page cache.
    pub(crate) fn to_verify(self, options: ReadOptions) -> ReadOptions {
        self.set(options, AccessName::Direct)
    }

    fn set(self, options: ReadOptions, default: AccessName) -> ReadOptions {
        match self.access.unwrap_or(default) {
            AccessName::Auto => options,
            AccessName::Mapped => options.data(Access::Mapped),
            AccessName::Cached => options.data(Access::Cached),
            AccessName::Direct => options.data(Access::Direct),
        }
    }
}

/// Ways to read data from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AccessName {
    /// Mapped if the data fit in free memory, else direct
    Auto,
    /// Read through a memory map
    Mapped,
    /// Read through the page cache
    Cached,
    /// Bypass the page cache, many reads in flight
    Direct,
}

/// Returns the name of a way to read data, as `--access` takes it.
pub(crate) fn access_name(access: Access) -> &'static str {
    match access {
        Access::Mapped => "mapped",
        Access::Cached => "cached",
        Access::Direct => "direct",
    }
}
