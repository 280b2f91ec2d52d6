//! The external sort for peers that need their keys in order: by distribution, as Hashfold sorts by
//! hash, so that no peer is slowed down by a bad sort.
//!
//! Pairs are distributed to [`BUCKETS`] buckets by their first bits. Pairs that do not fit into
//! memory are spilled through the page cache, in the background. Random keys fill the buckets
//! evenly.

use super::Budget;
use crate::{
    Result,
    data::{Data, KEY_SIZE},
};
use hashfold::{
    io::{Access, BlockFile, Buffer, Disk, Extent, OsDisk},
    work::{Pending, Threads},
};
use std::{
    collections::VecDeque,
    path::Path,
    sync::{Arc, Mutex},
};

/// Number of buckets: for the measured data sizes, a bucket fits roughly into the last-level cache.
pub const BUCKETS: usize = 64;
const CHUNK_SIZE: usize = 1 << 18;
/// Maximum number of chunks being written to the spill file.
const WRITES_MAX: usize = 8;

/// A sorter of pairs of a fixed size, in any order.
pub struct PairSorter {
    pair_size: usize,
    open: Vec<Chunk>,
    kept: Vec<Vec<Chunk>>,
    /// Number of chunks that may still be kept in memory.
    keep_left: usize,
    spilled: Vec<Vec<Extent>>,
    spill: Spill,
}

struct Chunk {
    bytes: Buffer,
    len: usize,
}

impl Chunk {
    fn new() -> Chunk {
        Chunk { bytes: Buffer::zeroed(CHUNK_SIZE), len: 0 }
    }
}

impl PairSorter {
    pub fn new(data: &Data, budget: Budget, folder: &Path) -> Result<PairSorter> {
        let pair_size = KEY_SIZE + data.value_size;
        assert!(pair_size <= CHUNK_SIZE);
        // The rest is for the open chunks, and for the buckets that are being sorted.
        let keep_left = (budget.memory_bytes / 4 * 3 / CHUNK_SIZE).saturating_sub(BUCKETS);
        Ok(PairSorter {
            pair_size,
            open: (0..BUCKETS).map(|_| Chunk::new()).collect(),
            kept: (0..BUCKETS).map(|_| Vec::new()).collect(),
            keep_left,
            spilled: vec![Vec::new(); BUCKETS],
            spill: Spill::create(folder)?,
        })
    }

    #[inline]
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let bucket = key[0] as usize * BUCKETS / 256;
        let chunk = &mut self.open[bucket];
        let pair = &mut chunk.bytes[chunk.len..][..self.pair_size];
        pair[..KEY_SIZE].copy_from_slice(key);
        pair[KEY_SIZE..].copy_from_slice(value);
        chunk.len += self.pair_size;
        if chunk.len + self.pair_size > CHUNK_SIZE { self.close(bucket) } else { Ok(()) }
    }

    fn close(&mut self, bucket: usize) -> Result<()> {
        if self.keep_left > 0 {
            self.keep_left -= 1;
            self.kept[bucket].push(std::mem::replace(&mut self.open[bucket], Chunk::new()));
            return Ok(());
        }
        let empty = self.spill.buffer()?;
        let full = std::mem::replace(&mut self.open[bucket], Chunk { bytes: empty, len: 0 });
        let extent = self.spill.write(full.bytes);
        self.spilled[bucket].push(extent);
        Ok(())
    }

    pub fn finish(mut self) -> Result<SortedBuckets> {
        for (kept, open) in self.kept.iter_mut().zip(self.open) {
            kept.push(open);
        }
        Ok(SortedBuckets {
            pair_size: self.pair_size,
            kept: Mutex::new(self.kept),
            spilled: self.spilled,
            file: self.spill.finish()?,
        })
    }
}

/// The buckets. Each is loaded once, in any thread.
pub struct SortedBuckets {
    pair_size: usize,
    kept: Mutex<Vec<Vec<Chunk>>>,
    spilled: Vec<Vec<Extent>>,
    file: Arc<dyn BlockFile>,
}

impl SortedBuckets {
    /// Returns the size of the spill, which went through the page cache.
    pub fn spilled_bytes(&self) -> u64 {
        let chunks: usize = self.spilled.iter().map(Vec::len).sum();
        (chunks * CHUNK_SIZE) as u64
    }

    /// Loads and sorts the pairs of a bucket.
    pub fn load(&self, bucket: usize) -> Result<SortedPairs> {
        let mut chunks =
            std::mem::take(&mut self.kept.lock().expect("nothing panics under this lock")[bucket]);
        let full = CHUNK_SIZE / self.pair_size * self.pair_size;
        let mut extents = self.spilled[bucket].iter().copied();
        self.file.read_many(&mut extents, &mut |_, bytes| {
            let mut chunk = Chunk { len: full, ..Chunk::new() };
            chunk.bytes.copy_from_slice(bytes);
            chunks.push(chunk);
            Ok(())
        })?;
        let mut order = Vec::new();
        for (i, chunk) in chunks.iter().enumerate() {
            for offset in (0..chunk.len).step_by(self.pair_size) {
                let head = chunk.bytes[offset..].first_chunk().expect("a key is longer");
                let place = (i * CHUNK_SIZE + offset) as u64;
                order.push((u64::from_be_bytes(*head), place));
            }
        }
        // The first eight bytes of different keys differ.
        order.sort_unstable();
        Ok(SortedPairs { pair_size: self.pair_size, chunks, order })
    }

    /// Passes all pairs to `take` in key order; the next bucket is loaded and sorted in the
    /// background.
    pub fn for_each(self, mut take: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        let pool = Threads::new(1);
        let buckets = Arc::new(self);
        let load = |bucket| {
            let buckets = buckets.clone();
            Pending::start(&pool, move || buckets.load(bucket))
        };
        let mut next = Some(load(0));
        for bucket in 1..=BUCKETS {
            let pairs = next.take().expect("a bucket is loading").wait()?;
            next = (bucket < BUCKETS).then(|| load(bucket));
            for (key, value) in pairs.iter() {
                take(key, value)?;
            }
        }
        Ok(())
    }
}

pub struct SortedPairs {
    pair_size: usize,
    chunks: Vec<Chunk>,
    order: Vec<(u64, u64)>,
}

impl SortedPairs {
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.order.iter().map(|&(_, place)| {
            let (chunk, offset) = (place as usize / CHUNK_SIZE, place as usize % CHUNK_SIZE);
            self.chunks[chunk].bytes[offset..][..self.pair_size].split_at(KEY_SIZE)
        })
    }
}

/// The spill file, written in the background.
struct Spill {
    file: Arc<dyn BlockFile>,
    end: u64,
    pool: Threads,
    writes: VecDeque<Pending<hashfold::Result<Buffer>>>,
}

impl Spill {
    /// Creates an unnamed file, which is removed when it is closed.
    fn create(folder: &Path) -> Result<Spill> {
        let path = folder.join("spill");
        let file = OsDisk.create(&path, Access::Cached)?;
        OsDisk.remove(&path)?;
        Ok(Spill { file, end: 0, pool: Threads::new(1), writes: VecDeque::new() })
    }

    /// Returns a buffer to fill: that of the oldest write, if enough writes are in flight.
    fn buffer(&mut self) -> Result<Buffer> {
        if self.writes.len() < WRITES_MAX {
            return Ok(Buffer::zeroed(CHUNK_SIZE));
        }
        let oldest = self.writes.pop_front().expect("there are some");
        Ok(oldest.wait()?)
    }

    fn write(&mut self, bytes: Buffer) -> Extent {
        let extent = Extent { offset: self.end, len: CHUNK_SIZE };
        self.end += CHUNK_SIZE as u64;
        let file = self.file.clone();
        self.writes.push_back(Pending::start(&self.pool, move || {
            file.write_at(extent.offset, &bytes)?;
            Ok(bytes)
        }));
        extent
    }

    fn finish(self) -> Result<Arc<dyn BlockFile>> {
        for write in self.writes {
            write.wait()?;
        }
        Ok(self.file)
    }
}

/// Returns all entries of `data`, sorted by key.
pub fn sort(data: &Data, budget: Budget, folder: &Path) -> Result<SortedBuckets> {
    let mut sorter = PairSorter::new(data, budget, folder)?;
    let mut value = Vec::new();
    for i in 0..data.count {
        data.fill_value(i, &mut value);
        sorter.push(&data.key(i), &value)?;
    }
    sorter.finish()
}
