use super::Plan;
use crate::{
    checksum::crc32c,
    error::{Error, ErrorKind, Place, Result},
    io::{Access, BlockFile, Buffer, Disk, Extent},
    work::{Executor, Pending},
};
use std::{
    collections::VecDeque,
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
};

/// Chunks that are read at once; each takes its size in memory besides the place it is read to.
const READS_AT_ONCE: usize = 8;

/// A chunk in the spill file: its place there, in chunks. Enough for a petabyte in chunks of
/// 256 KiB.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece(u32);

/// The pool of chunks, and the file that takes what does not fit into the pool.
#[derive(Debug)]
pub(super) struct Spill {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    access: Access,
    plan: Plan,
    executor: Arc<dyn Executor>,
    /// Created with the first write.
    file: Option<SpillFile>,
    /// Whether the file still has its name.
    named: bool,
    /// The length of the file, in chunks.
    file_chunks: u32,
    /// Numbers of chunks in the file that can be overwritten.
    holes: Vec<u32>,
    /// Chunks in memory that nobody uses.
    free: Vec<Buffer>,
    /// All chunks of the pool that are in memory: free, in buckets, or being written.
    chunks: usize,
    /// Chunks being written.
    writing: usize,
    writes: VecDeque<Pending<Result<Vec<Buffer>>>>,
    spilled_bytes: u64,
    /// A write has failed, so entries are lost.
    failed: bool,
}

impl Spill {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        path: PathBuf,
        access: Access,
        plan: Plan,
        executor: Arc<dyn Executor>,
    ) -> Spill {
        Spill {
            disk,
            path,
            access,
            plan,
            executor,
            file: None,
            named: false,
            file_chunks: 0,
            holes: Vec::new(),
            free: Vec::new(),
            chunks: 0,
            writing: 0,
            writes: VecDeque::new(),
            spilled_bytes: 0,
            failed: false,
        }
    }

    pub(super) fn executor(&self) -> &Arc<dyn Executor> {
        &self.executor
    }

    pub(super) fn file(&self) -> Option<&SpillFile> {
        self.file.as_ref()
    }

    pub(super) fn chunk_bytes(&self) -> usize {
        self.plan.chunk_bytes
    }

    /// The memory that the pool's chunks take.
    pub(super) fn memory_bytes(&self) -> usize {
        self.chunks * self.plan.chunk_bytes
    }

    /// All bytes written so far.
    pub(super) fn spilled_bytes(&self) -> u64 {
        self.spilled_bytes
    }

    /// Whether it is time to write a batch, so that the pool does not run dry.
    pub(super) fn is_low(&self) -> bool {
        let spare = self.plan.chunk_count - self.chunks + self.free.len() + self.writing;
        spare < self.plan.spare_chunks()
    }

    /// A chunk with arbitrary bytes. Waits for a write if the pool is dry.
    pub(super) fn chunk(&mut self) -> Result<Buffer> {
        self.check()?;
        loop {
            if let Some(chunk) = self.free.pop() {
                return Ok(chunk);
            }
            if self.chunks < self.plan.chunk_count {
                self.chunks += 1;
                return Ok(Buffer::zeroed(self.plan.chunk_bytes));
            }
            self.wait()?;
        }
    }

    /// Takes a chunk that is not needed any more.
    pub(super) fn put_back(&mut self, chunk: Buffer) {
        self.free.push(chunk);
    }

    /// Frees all chunks that nobody uses.
    pub(super) fn shrink(&mut self) {
        self.chunks -= self.free.len();
        self.free = Vec::new();
    }

    /// Finds a place in the file for a chunk, which the caller will write.
    pub(super) fn place(&mut self) -> Piece {
        let number = self.holes.pop().unwrap_or_else(|| {
            let end = self.file_chunks;
            self.file_chunks = end.checked_add(1).expect("no disk has room for so many chunks");
            end
        });
        Piece(number)
    }

    /// Starts to write chunks to their places.
    pub(super) fn write(&mut self, batch: Vec<(Piece, Buffer)>) -> Result<()> {
        self.check()?;
        let file = self.open_file().inspect_err(|_| self.failed = true)?;
        self.writing += batch.len();
        self.spilled_bytes += (batch.len() * self.plan.chunk_bytes) as u64;
        self.writes.push_back(Pending::start(&*self.executor, move || file.write(batch)));
        Ok(())
    }

    /// Returns when all is written.
    pub(super) fn flush(&mut self) -> Result<()> {
        while !self.writes.is_empty() {
            self.wait()?;
        }
        self.check()
    }

    /// Reads a chunk back, for the last time.
    pub(super) fn take_back(&mut self, piece: Piece) -> Result<Buffer> {
        let mut chunk = self.chunk()?;
        self.file.as_ref().expect("it holds the piece").read(&[piece], &mut chunk)?;
        self.holes.push(piece.0);
        Ok(chunk)
    }

    fn open_file(&mut self) -> Result<SpillFile> {
        if let Some(file) = &self.file {
            return Ok(file.clone());
        }
        let file = self.disk.create(&self.path, self.access)?;
        // Without a name the file ends with its last handle, also if this process is killed.
        self.named = true;
        self.disk.remove(&self.path)?;
        self.named = false;
        Ok(self
            .file
            .insert(SpillFile { file, chunk_bytes: self.plan.chunk_bytes, sums: Arc::default() })
            .clone())
    }

    /// Waits for the oldest write.
    fn wait(&mut self) -> Result<()> {
        let write = self.writes.pop_front().expect("chunks are free or being written");
        match write.wait() {
            Ok(chunks) => {
                self.writing -= chunks.len();
                self.free.extend(chunks);
                Ok(())
            }
            Err(error) => {
                self.failed = true;
                Err(error)
            }
        }
    }

    fn check(&self) -> Result<()> {
        if !self.failed {
            return Ok(());
        }
        let source = io::Error::other("an earlier write failed, so entries are missing");
        Err(Error::io("go on sorting", source).at(&Place::file(&self.path)))
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        while let Some(write) = self.writes.pop_front() {
            let _ = write.wait();
        }
        if self.named {
            // Nobody is left who could be told of an error.
            let _ = self.disk.remove(&self.path);
        }
        if let Some(file) = self.file.take() {
            // Freeing the blocks of a large file can take the device seconds.
            self.executor.spawn(Box::new(move || drop(file)));
        }
    }
}

/// The spill file, seen by the jobs that write and read it.
#[derive(Clone, Debug)]
pub(super) struct SpillFile {
    file: Arc<dyn BlockFile>,
    chunk_bytes: usize,
    /// The checksum of each chunk in the file.
    sums: Arc<Mutex<Vec<u32>>>,
}

impl SpillFile {
    pub(super) fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// Writes chunks and returns their memory.
    fn write(&self, batch: Vec<(Piece, Buffer)>) -> Result<Vec<Buffer>> {
        for (piece, chunk) in &batch {
            self.note(*piece, crc32c(chunk));
            self.file.write_at(self.offset(*piece), chunk)?;
        }
        Ok(batch.into_iter().map(|(_, chunk)| chunk).collect())
    }

    /// Reads chunks, one after the other, to the front of `bytes`. Several reads are under way at
    /// once: a device is far from its rate with one.
    pub(super) fn read(&self, pieces: &[Piece], bytes: &mut [u8]) -> Result<()> {
        let groups = bytes.chunks_mut(READS_AT_ONCE * self.chunk_bytes);
        for (pieces, bytes) in pieces.chunks(READS_AT_ONCE).zip(groups) {
            let extents: Vec<Extent> = pieces
                .iter()
                .map(|&piece| Extent { offset: self.offset(piece), len: self.chunk_bytes })
                .collect();
            self.file.read_many(&extents, &mut |i, chunk| {
                self.verify(pieces[i], chunk)?;
                bytes[i * self.chunk_bytes..][..self.chunk_bytes].copy_from_slice(chunk);
                Ok(())
            })?;
        }
        Ok(())
    }

    fn note(&self, piece: Piece, sum: u32) {
        let (mut sums, at) = (self.sums(), piece.0 as usize);
        if sums.len() <= at {
            sums.resize(at + 1, 0);
        }
        sums[at] = sum;
    }

    fn sums(&self) -> MutexGuard<'_, Vec<u32>> {
        self.sums.lock().expect("nothing panics under this lock")
    }

    fn verify(&self, piece: Piece, chunk: &[u8]) -> Result<()> {
        let (expected, got) = (self.sums()[piece.0 as usize], crc32c(chunk));
        if expected == got {
            return Ok(());
        }
        let place = self.file.place().offset(self.offset(piece));
        Err(Error::new(ErrorKind::Checksum { expected, got }).at(&place))
    }

    fn offset(&self, piece: Piece) -> u64 {
        u64::from(piece.0) * self.chunk_bytes as u64
    }
}
