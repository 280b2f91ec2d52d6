//! Options of a map, and the figures of `stat`.

use crate::{
    env::Env,
    error::{Error, Result},
    io::{ALIGNMENT, Access},
    key::Seed,
    wal::WAL_BYTES_MAX,
};
use std::path::PathBuf;

/// The smallest memory budget, in bytes.
pub const MAP_MEMORY_MIN: usize = 8 << 20;
/// Maximum memory of changes, in bytes. Places in lists and in batches have 32 bits.
const BUFFER_BYTES_MAX: usize = 2 << 30;
/// Maximum memory of the writes of open transactions, in bytes. With more, a spill would hold other writers up
/// longer, and save few reads.
const TRANSACTION_BYTES_MAX: usize = 64 << 20;
const MEMORY_DEFAULT: usize = 64 << 20;
const WAL_BYTES_DEFAULT: u64 = 128 << 20;
const _: () = assert!(WAL_BYTES_MAX < MAP_MEMORY_MIN);

/// The smallest stripe of a map on several devices, in bytes.
const STRIPE_BYTES_MIN: u32 = if cfg!(test) { ALIGNMENT as u32 } else { 64 << 10 };
/// The largest stripe, in bytes.
pub(super) const STRIPE_BYTES_MAX: u32 = 1 << 30;
/// More than a span, so that nearly all spans are on one device.
const STRIPE_BYTES_DEFAULT: u32 = 1 << 20;

/// When a change is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// When the call returns. Threads that write at the same time share a sync.
    #[default]
    Immediate,
    /// Soon: the call starts a sync in the background, and does not wait for it. One sync covers
    /// all changes since the last one began, so a change is durable after the time of two syncs at
    /// most, once a thread of the executor is free.
    Group,
    /// After [`Map::sync`](super::Map::sync), [`Map::wait_durable`](super::Map::wait_durable) or a
    /// checkpoint.
    Buffered,
}

/// Options of a [`Map`](super::Map).
///
/// ```
/// use hashfold::map::{Durability, MapOptions};
/// let options = MapOptions::new().memory(256 << 20).durability(Durability::Group);
/// ```
#[derive(Clone, Debug)]
pub struct MapOptions {
    pub(super) env: Env,
    pub(super) seed: Option<Seed>,
    pub(super) attributes: Vec<(String, Vec<u8>)>,
    pub(super) memory_bytes: usize,
    pub(super) wal_bytes: u64,
    pub(super) durability: Durability,
    pub(super) access: Access,
    /// The folders of all devices but the first.
    pub(super) devices: Vec<PathBuf>,
    pub(super) stripe_bytes: u32,
    pub(super) mirror_bytes: u64,
    pub(super) shape: Shape,
}

/// The sizes that decide when groups are flushed, merged and split.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Maximum number of blocks in a span. A group with more is split.
    pub(super) span_blocks_max: u64,
    /// Number of blocks that a flush writes at once.
    pub(super) flush_blocks: u64,
    /// Maximum number of packets of a group.
    pub(super) packets_max: usize,
    /// A group is merged when its packets have more entries than fit in this number of blocks, and
    /// in half of its span.
    pub(super) packet_blocks_min: u64,
    /// Length of the groups' prefixes in a new map.
    pub(super) first_depth: u8,
    /// Memory for changes that no packet has yet, in bytes.
    pub(super) buffer_bytes: usize,
    /// The part of `buffer_bytes` that the writes of open transactions may take, all of them together.
    pub(super) transaction_bytes: usize,
    /// Memory for packets: their Bloom filters and addresses, in bytes.
    pub(super) packet_bytes: u64,
    /// Memory that is kept for the next merge, in bytes.
    pub(super) spare_bytes: usize,
}

impl Shape {
    /// Returns the sizes for a memory budget. The batches of the log take their part first.
    fn of(memory_bytes: usize) -> Shape {
        let rest = memory_bytes - WAL_BYTES_MAX;
        let buffer_bytes = (rest / 5 * 2).min(BUFFER_BYTES_MAX);
        Shape {
            // Four coarse writes of 16 blocks.
            span_blocks_max: 64,
            flush_blocks: 16,
            packets_max: 64,
            packet_blocks_min: 16,
            first_depth: 4,
            // With a quarter for packets, the rest is for merges, and for what an allocator loses.
            buffer_bytes,
            transaction_bytes: (buffer_bytes / 4).min(TRANSACTION_BYTES_MAX),
            packet_bytes: rest as u64 / 4,
            spare_bytes: rest / 10,
        }
    }
}

impl Default for MapOptions {
    fn default() -> MapOptions {
        MapOptions {
            env: Env::system(),
            seed: None,
            attributes: Vec::new(),
            memory_bytes: MEMORY_DEFAULT,
            wal_bytes: WAL_BYTES_DEFAULT,
            durability: Durability::default(),
            access: Access::Cached,
            devices: Vec::new(),
            stripe_bytes: STRIPE_BYTES_DEFAULT,
            mirror_bytes: 0,
            shape: Shape::of(MEMORY_DEFAULT),
        }
    }
}

impl MapOptions {
    /// Returns the default options: [`Env::system`], 64 MiB of memory, [`Durability::Immediate`], a
    /// random seed.
    pub fn new() -> MapOptions {
        MapOptions::default()
    }

    /// Sets the disk, the executor, the clock and the random numbers.
    #[must_use]
    pub fn env(self, env: Env) -> MapOptions {
        MapOptions { env, ..self }
    }

    /// Sets the seed of a new map, for a map whose runs can be merged with those of another data
    /// set. By default, the seed is random.
    #[must_use]
    pub fn seed(self, seed: Seed) -> MapOptions {
        MapOptions { seed: Some(seed), ..self }
    }

    /// Sets the attributes of a new map: names and values that the library stores and does not read,
    /// such as the names of columns. They never change.
    #[must_use]
    pub fn attributes(self, attributes: Vec<(String, Vec<u8>)>) -> MapOptions {
        MapOptions { attributes, ..self }
    }

    /// Sets the memory budget in bytes: for the log, for changes that are not on the device in
    /// order (at most 2 GiB, of which open transactions take up to a quarter), and for packets, which are changes that a merge has not put in order: Bloom filters, about 2
    /// bytes per change, and addresses, about 160 bytes per packet. The addresses of entries in order
    /// take more memory: 4 bytes per block of 4 KiB, and about 64 bytes per value above 1 KiB. A budget below [`MAP_MEMORY_MIN`] is refused when the map
    /// is opened.
    #[must_use]
    pub fn memory(self, bytes: usize) -> MapOptions {
        let shape = if bytes < MAP_MEMORY_MIN { self.shape } else { Shape::of(bytes) };
        MapOptions { memory_bytes: bytes, shape, ..self }
    }

    /// Sets the size of the write-ahead log, in bytes, from which on a checkpoint shortens it. More
    /// means fewer checkpoints, and a longer recovery after a crash. A checkpoint in the background
    /// keeps up to half of the log, so on the device, the log may take twice this size, and two more
    /// segments: each is an eighth of this size, but 1 to 64 MiB. A sync takes at least 4 KiB of the
    /// log: if small changes are synced one by one, it may take eight times this size. The default is
    /// 128 MiB.
    #[must_use]
    pub fn wal_bytes(self, bytes: u64) -> MapOptions {
        MapOptions { wal_bytes: bytes, ..self }
    }

    /// Sets when changes are durable. The default is [`Durability::Immediate`].
    #[must_use]
    pub fn durability(self, durability: Durability) -> MapOptions {
        MapOptions { durability, ..self }
    }

    /// Sets how blocks are read and written: [`Access::Cached`] by default; [`Access::Direct`]
    /// leaves the page cache to others.
    #[must_use]
    pub fn access(self, access: Access) -> MapOptions {
        MapOptions { access, ..self }
    }

    /// Spreads the blocks of a new map over several devices: over the folder of the map, and over one
    /// folder for each other device, which is created if it is missing. Stripes are on one device after
    /// the other ([`MapOptions::stripe_bytes`]), so reads and writes use all of them. The map is whole only with all folders: the
    /// loss of a device loses its share of the entries. The log, the catalog and the manifest stay in the
    /// folder of the map. There are at most 255 other devices.
    ///
    /// The manifest keeps the folders, as paths from the root of the file system on, so a map is opened
    /// without this option. If they have moved, this option says where they are now, in the same order;
    /// the next checkpoint keeps that.
    #[must_use]
    pub fn devices(self, folders: impl IntoIterator<Item = impl Into<PathBuf>>) -> MapOptions {
        MapOptions { devices: folders.into_iter().map(Into::into).collect(), ..self }
    }

    /// Sets the size of the stripes of a new map on several devices, in bytes: a multiple of 4096, from
    /// 64 KiB to 1 GiB. The default is 1 MiB. A group of blocks that is cut takes two reads when it is
    /// merged.
    #[must_use]
    pub fn stripe_bytes(self, bytes: u32) -> MapOptions {
        MapOptions { stripe_bytes: bytes, ..self }
    }

    /// Lets a map on several devices copy groups that are read much more often than others to a second
    /// device, with at most this number of bytes. A lookup reads the copy if fewer reads are in flight on
    /// its device. Copies are for this process only: after the map is opened, there are none, and they make
    /// way for entries when a device is full. The default is 0: no copies.
    #[must_use]
    pub fn mirrors(self, bytes: u64) -> MapOptions {
        MapOptions { mirror_bytes: bytes, ..self }
    }

    pub(super) fn check(&self) -> Result<()> {
        let stripes = STRIPE_BYTES_MIN..=STRIPE_BYTES_MAX;
        let (stripe, block) = (self.stripe_bytes, ALIGNMENT as u32);
        if !stripes.contains(&stripe) || !stripe.is_multiple_of(block) {
            let expected =
                format!("a multiple of {block} from {STRIPE_BYTES_MIN} to {STRIPE_BYTES_MAX}");
            return Err(Error::argument("size of a stripe in bytes", expected, stripe));
        }
        if self.memory_bytes >= MAP_MEMORY_MIN {
            return Ok(());
        }
        let expected = format!("at least {MAP_MEMORY_MIN}");
        Err(Error::argument("memory of a map in bytes", expected, self.memory_bytes))
    }
}

/// The figures of a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MapStats {
    /// Upper bound on the number of entries: changes that are not merged yet may replace or delete
    /// entries, and expired entries count until a merge removes them. Exact after
    /// [`Map::compact`](super::Map::compact).
    pub entries_max: u64,
    /// Number of groups.
    pub groups: u64,
    /// Number of blocks in spans.
    pub span_blocks: u64,
    /// Number of packets.
    pub packets: u64,
    /// Number of changes in packets.
    pub packet_entries: u64,
    /// Number of blocks with packets.
    pub packet_blocks: u64,
    /// Number of large values: above 1 KiB, in blocks of their own.
    pub large_values: u64,
    /// Number of blocks of large values.
    pub large_blocks: u64,
    /// Number of blocks with copies of others, on another device ([`MapOptions::mirrors`]).
    pub mirror_blocks: u64,
    /// Number of changes that only RAM and the write-ahead log have.
    pub buffered_entries: u64,
    /// Memory of these changes, in bytes.
    pub buffered_bytes: u64,
    /// Memory of the writes of open transactions, in bytes: of those in RAM, and of the places of others.
    pub transaction_bytes: u64,
    /// Memory of packets: their Bloom filters and addresses, in bytes.
    pub packet_bytes: u64,
    /// Memory of the addresses of blocks, in bytes.
    pub address_bytes: u64,
    /// Size of the data file, in bytes.
    pub file_bytes: u64,
    /// Free bytes in the data file. Most take no space on the device: see
    /// [`Map::space`](super::Map::space).
    pub free_bytes: u64,
    /// Sequence number after the last change.
    pub seq: u64,
    /// Changes before this sequence number are durable.
    pub durable_seq: u64,
    /// Number of blocks written to the data file since the map was opened.
    pub blocks_written: u64,
    /// Number of merges since the map was opened.
    pub merges: u64,
    /// Number of flushes since the map was opened.
    pub flushes: u64,
    /// Number of checkpoints since the map was opened.
    pub checkpoints: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places in lists and in batches have 32 bits.
    #[test]
    fn changes_in_ram_take_at_most_half_of_what_32_bits_address() {
        for shift in 0..20 {
            let shape = Shape::of(MAP_MEMORY_MIN << shift);
            assert!(shape.buffer_bytes <= 2 << 30, "{shape:?}");
            assert!(shape.packet_bytes >= shape.buffer_bytes as u64 / 2);
        }
    }
}
