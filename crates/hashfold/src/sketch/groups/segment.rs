//! The spill file, and its segments: groups with values, in hash order.
//!
//! A segment is a sequence of bytes in blocks anywhere in the file. The places and the checksums of the
//! blocks are in memory. An entry may continue in the next block:
//!
//! | size       | field      |                            |
//! |-----------:|------------|----------------------------|
//! |          … | key size   | a variable-length integer  |
//! |          … | value size | a variable-length integer  |
//! |   key size | key        |                            |
//! | value size | value      |                            |

use crate::{
    checksum::crc32c,
    codec::put_varint,
    error::{ErrorKind, Result, check_sum},
    io::{Access, BlockFile, Disk},
    key::{KeyHash, Seed},
    run::{Entry, Run, Summary},
};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
};

/// A file for segments, made with the first block, without a name: its space is free when it is
/// dropped.
#[derive(Debug)]
pub(super) struct SpillFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    block_bytes: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    file: Option<Arc<dyn BlockFile>>,
    /// Number of blocks of the file.
    blocks: u64,
    /// Blocks of the file that have been read for the last time.
    free: Vec<u64>,
    written_bytes: u64,
}

impl SpillFile {
    pub(super) fn new(disk: Arc<dyn Disk>, path: PathBuf, block_bytes: usize) -> SpillFile {
        SpillFile { disk, path, block_bytes, state: Mutex::default() }
    }

    /// Number of bytes written so far.
    pub(super) fn written_bytes(&self) -> u64 {
        self.state().written_bytes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics under this lock")
    }

    /// Returns the file, and the number of a block that is free.
    fn place(&self, len: usize) -> Result<(Arc<dyn BlockFile>, u64)> {
        let mut state = self.state();
        let file = match &state.file {
            Some(file) => file.clone(),
            None => {
                let file = self.disk.create(&self.path, Access::Cached)?;
                self.disk.remove(&self.path)?;
                state.file.insert(file).clone()
            }
        };
        let number = state.free.pop().unwrap_or_else(|| {
            state.blocks += 1;
            state.blocks - 1
        });
        state.written_bytes += len as u64;
        Ok((file, number))
    }

    fn write(&self, bytes: &[u8]) -> Result<Block> {
        let (file, number) = self.place(bytes.len())?;
        file.write_at(number * self.block_bytes as u64, bytes)?;
        Ok(Block { number, sum: crc32c(bytes), len: bytes.len() as u32 })
    }

    /// Replaces `bytes` by those of a block, which is free then.
    fn take(&self, block: Block, bytes: &mut Vec<u8>) -> Result<()> {
        let file = self.state().file.clone().expect("a block was written");
        bytes.resize(block.len as usize, 0);
        let offset = block.number * self.block_bytes as u64;
        file.read_at(offset, bytes)?;
        check_sum(block.sum, crc32c(bytes))
            .map_err(|error| error.at(&file.place().offset(offset)))?;
        self.state().free.push(block.number);
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
struct Block {
    number: u64,
    sum: u32,
    len: u32,
}

/// A segment that has been written.
#[derive(Debug)]
pub(super) struct Segment {
    /// The last one first.
    blocks: Vec<Block>,
    /// The exact summary of the entries.
    pub(super) summary: Summary,
    /// Number of merges that the entries have come through.
    pub(super) level: u32,
}

impl Segment {
    /// Returns the memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<Block>()
    }
}

/// Writes a segment.
#[derive(Debug)]
pub(super) struct SegmentWriter {
    file: Arc<SpillFile>,
    block: Vec<u8>,
    segment: Segment,
}

impl SegmentWriter {
    pub(super) fn new(file: &Arc<SpillFile>, level: u32) -> SegmentWriter {
        let segment = Segment { blocks: Vec::new(), summary: Summary::EMPTY, level };
        let block = Vec::with_capacity(file.block_bytes);
        SegmentWriter { file: file.clone(), block, segment }
    }

    /// Appends an entry.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        put_varint(&mut self.block, key.len() as u64);
        put_varint(&mut self.block, value.len() as u64);
        self.segment.summary.add(key, Some(value));
        self.append(key)?;
        self.append(value)
    }

    fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        // The sizes in front of a key may exceed the block by a few bytes.
        while self.block.len() + bytes.len() > self.file.block_bytes {
            let room = self.file.block_bytes.saturating_sub(self.block.len());
            let (now, later) = bytes.split_at(room);
            self.block.extend_from_slice(now);
            let full = self.file.block_bytes;
            self.segment.blocks.push(self.file.write(&self.block[..full])?);
            self.block.drain(..full);
            bytes = later;
        }
        self.block.extend_from_slice(bytes);
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<Segment> {
        if !self.block.is_empty() {
            self.append(&[])?;
            self.segment.blocks.push(self.file.write(&self.block)?);
        }
        self.segment.blocks.reverse();
        Ok(self.segment)
    }
}

/// Reads a segment once, as a run, and frees its blocks.
#[derive(Debug)]
pub(super) struct SegmentReader {
    file: Arc<SpillFile>,
    segment: Segment,
    seed: Seed,
    block: Vec<u8>,
    /// Offset of the next byte in the block.
    at: usize,
    hash: KeyHash,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl SegmentReader {
    pub(super) fn new(file: &Arc<SpillFile>, segment: Segment, seed: Seed) -> SegmentReader {
        SegmentReader {
            file: file.clone(),
            segment,
            seed,
            block: Vec::new(),
            at: 0,
            hash: KeyHash::from_bits(0),
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Loads the next block after the last byte of one; returns whether there is one.
    fn fill(&mut self) -> Result<bool> {
        while self.at == self.block.len() {
            let Some(block) = self.segment.blocks.pop() else { return Ok(false) };
            self.at = 0;
            self.file.take(block, &mut self.block)?;
        }
        Ok(true)
    }

    fn cut_short(&self) -> ErrorKind {
        ErrorKind::Truncated { expected: 1, got: 0 }
    }

    fn varint(&mut self) -> Result<u64> {
        let (mut value, mut shift) = (0, 0);
        while shift < u64::BITS {
            if !self.fill()? {
                break;
            }
            let byte = self.block[self.at];
            self.at += 1;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Ok(value);
            }
            shift += 7;
        }
        Err(self.cut_short().into())
    }

    /// Moves the next `len` bytes to `out`.
    fn bytes(&mut self, len: u64, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        let mut left = len;
        while left > 0 {
            if !self.fill()? {
                return Err(self.cut_short().into());
            }
            let rest = &self.block[self.at..];
            let now = left.min(rest.len() as u64) as usize;
            out.extend_from_slice(&rest[..now]);
            self.at += now;
            left -= now as u64;
        }
        Ok(())
    }
}

impl Run for SegmentReader {
    fn seed(&self) -> Seed {
        self.seed
    }

    fn summary(&self) -> Summary {
        self.segment.summary
    }

    fn advance(&mut self) -> Result<bool> {
        if !self.fill()? {
            return Ok(false);
        }
        let (key_size, value_size) = (self.varint()?, self.varint()?);
        let (mut key, mut value) = (std::mem::take(&mut self.key), std::mem::take(&mut self.value));
        let read = self.bytes(key_size, &mut key).and_then(|()| self.bytes(value_size, &mut value));
        (self.key, self.value) = (key, value);
        read?;
        self.hash = KeyHash::of(&self.key, self.seed);
        Ok(true)
    }

    fn entry(&self) -> Entry<'_> {
        Entry { hash: self.hash, key: &self.key, value: Some(&self.value) }
    }
}
