//! A sliding window over the blocks of a file, with read-ahead in the background.

use super::layout::BLOCK_SIZE_MAX;
use crate::{
    error::Result,
    io::{ALIGNMENT, BlockFile, Buffer},
    work::{Executor, Pending},
};
use std::{collections::VecDeque, sync::Arc};

/// Size of a sequential read, in bytes.
const CHUNK_SIZE: usize = 1 << 20;
/// Size of the first read without read-ahead. Each later one is larger by a part, up to `CHUNK_SIZE`, so that
/// a scan that is dropped early has read at most this much, or a fifth, more than it has used.
const FIRST_SIZE: usize = 1 << 15;
/// A read is larger than the one before by one part in this number.
const GROWTH_PART: usize = 4;
/// Maximum number of chunks that are read ahead: enough to keep a fast device busy.
const AHEAD_MAX: usize = 2;
/// Bytes in front of a chunk for the last blocks of the chunk before, because an entry may lie
/// across both.
const HEAD_SIZE: usize = BLOCK_SIZE_MAX;
const _: () = assert!(HEAD_SIZE.is_multiple_of(ALIGNMENT));
/// Maximum memory of a scan that reads ahead, in bytes, unless an entry is larger than a chunk.
pub(crate) const SCAN_BYTES_MAX: usize = (AHEAD_MAX + 1) * (HEAD_SIZE + CHUNK_SIZE);

/// Consecutive blocks in memory.
pub(super) struct Window {
    file: Arc<dyn BlockFile>,
    block_size: usize,
    /// Number of blocks in the file.
    blocks: u64,
    /// Size of a read, in bytes; a read is larger if more blocks are requested.
    chunk_size: usize,
    /// Size up to which reads grow, in bytes.
    chunk_size_max: usize,
    /// Number of the first block in memory.
    first: u64,
    /// Number of the block after the last one in memory.
    end: u64,
    bytes: Buffer,
    /// Offset of the first block in `bytes`.
    start: usize,
    executor: Option<Arc<dyn Executor>>,
    /// The chunks after this one that are being read.
    ahead: VecDeque<LoadingChunk>,
    /// The memory of chunks that are no longer used.
    spare: Vec<Buffer>,
}

/// A chunk that is being read, with [`HEAD_SIZE`] free bytes in front.
struct LoadingChunk {
    first: u64,
    end: u64,
    read: Pending<(Buffer, Result<()>)>,
}

impl Window {
    /// Makes a window over the blocks of a data file, with no block in memory.
    pub(super) fn new(file: Arc<dyn BlockFile>, block_size: usize, blocks: u64) -> Window {
        Window {
            file,
            block_size,
            blocks,
            chunk_size: FIRST_SIZE,
            chunk_size_max: CHUNK_SIZE,
            first: 0,
            end: 0,
            bytes: Buffer::zeroed(0),
            start: 0,
            executor: None,
            ahead: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    /// Enables read-ahead on `executor`. An executor that works in the caller's thread is ignored:
    /// reading early would only take memory.
    pub(super) fn read_ahead(&mut self, executor: Arc<dyn Executor>) {
        self.executor = Some(executor).filter(|executor| executor.width() > 0);
        if self.executor.is_some() {
            self.chunk_size = self.chunk_size_max;
        }
    }

    /// Limits each read to the requested blocks.
    pub(super) fn read_little(&mut self) {
        (self.chunk_size, self.chunk_size_max) = (self.block_size, self.block_size);
    }

    /// Returns the file.
    pub(super) fn file(&self) -> &Arc<dyn BlockFile> {
        &self.file
    }

    /// Returns the number of the first block in memory.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Returns the blocks in memory.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..][..(self.end - self.first) as usize * self.block_size]
    }

    /// Loads the blocks from `first` to before `end` into memory.
    #[inline]
    pub(super) fn load(&mut self, first: u64, end: u64) -> Result<()> {
        if self.first <= first && end <= self.end { Ok(()) } else { self.slide(first, end) }
    }

    fn slide(&mut self, first: u64, end: u64) -> Result<()> {
        match self.ahead.pop_front() {
            Some(next) if self.continues(&next, first, end) => self.take(first, next)?,
            // The blocks that are being read are not the requested ones.
            _ => {
                self.ahead.clear();
                self.read(first, end)?;
            }
        }
        self.start_ahead();
        Ok(())
    }

    /// Whether the requested blocks are the last blocks here followed by those of `next`.
    fn continues(&self, next: &LoadingChunk, first: u64, end: u64) -> bool {
        let kept = (self.end.saturating_sub(first)) as usize;
        (self.first..=self.end).contains(&first)
            && kept <= HEAD_SIZE / self.block_size
            && self.end == next.first
            && end <= next.end
    }

    /// Moves on to the next chunk, and keeps the blocks from `first` on.
    fn take(&mut self, first: u64, next: LoadingChunk) -> Result<()> {
        let (mut bytes, read) = next.read.wait();
        read?;
        let kept = (self.end - first) as usize * self.block_size;
        let here = self.bytes();
        bytes[HEAD_SIZE - kept..HEAD_SIZE].copy_from_slice(&here[here.len() - kept..]);
        self.spare.push(std::mem::replace(&mut self.bytes, bytes));
        (self.first, self.end, self.start) = (first, next.end, HEAD_SIZE - kept);
        Ok(())
    }

    /// Reads a chunk and waits for it.
    fn read(&mut self, first: u64, end: u64) -> Result<()> {
        let end = end.max(first + (self.chunk_size / self.block_size) as u64).min(self.blocks);
        let size = (end - first) as usize * self.block_size;
        // The window is empty if the read fails.
        (self.first, self.end, self.start) = (first, first, HEAD_SIZE);
        if self.bytes.len() < HEAD_SIZE + size {
            self.bytes = Buffer::zeroed(HEAD_SIZE + size);
        }
        self.file.read_at(offset(first, self.block_size), &mut self.bytes[HEAD_SIZE..][..size])?;
        self.end = end;
        let next = self.chunk_size + self.chunk_size / GROWTH_PART;
        self.chunk_size = next.min(self.chunk_size_max);
        Ok(())
    }

    fn start_ahead(&mut self) {
        let Some(executor) = self.executor.clone() else { return };
        while self.ahead.len() < AHEAD_MAX {
            let first = self.ahead.back().map_or(self.end, |ahead| ahead.end);
            let end = (first + (self.chunk_size / self.block_size) as u64).min(self.blocks);
            if first == end {
                return;
            }
            let (file, block_size) = (self.file.clone(), self.block_size);
            let size = (end - first) as usize * block_size;
            let mut spare = self.spare.pop().filter(|spare| spare.len() >= HEAD_SIZE + size);
            let read = Pending::start(executor.as_ref(), move || {
                let mut bytes = spare.take().unwrap_or_else(|| Buffer::zeroed(HEAD_SIZE + size));
                let read = file.read_at(offset(first, block_size), &mut bytes[HEAD_SIZE..][..size]);
                (bytes, read)
            });
            self.ahead.push_back(LoadingChunk { first, end, read });
        }
    }
}

/// Returns the offset of a block in the file.
fn offset(block: u64, block_size: usize) -> u64 {
    ALIGNMENT as u64 + block * block_size as u64
}

impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Window({}, blocks {} to {})", self.file.place(), self.first, self.end)
    }
}
