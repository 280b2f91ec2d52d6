//! The pool of chunks, and unnamed files for chunks beyond the memory budget.

use super::options::MemoryPlan;
use crate::{
    checksum::crc32c,
    error::{Place, Result, check_sum},
    io::{Access, BlockFile, Buffer, Disk, Extent, WriteQueue},
    work::{Executor, Pending},
};
use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
};

/// Maximum number of chunks that are read at once; each takes its size in memory in addition to its
/// destination.
const READS_AT_ONCE: usize = 8;

/// Number of chunks that one background job allocates.
const MADE_AT_ONCE: usize = 16;

/// The place of a chunk in the spill: its number. 32 bits suffice for a petabyte in chunks of 256
/// KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpillChunk(u32);

/// The files for chunks that do not fit into memory. Several sorters with the same options can share
/// them, because each file takes descriptors. They are created before the first write, and freed
/// when the last sorter, or its run, is dropped.
#[derive(Debug)]
pub(crate) struct SpillFiles {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    executor: Arc<dyn Executor>,
    /// Number of sorters, each of which has a part of the page cache.
    sorters: u32,
    state: Mutex<FilesState>,
}

#[derive(Debug, Default)]
struct FilesState {
    file: Option<SpillFile>,
    /// Whether a file still has a name.
    named: bool,
    /// Length of the files together, in chunks.
    chunks: u32,
    /// Numbers of the chunks in the files that can be overwritten.
    holes: Vec<u32>,
}

/// The pool of chunks, and the files for the chunks that do not fit into the pool.
#[derive(Debug)]
pub(super) struct Spill {
    plan: MemoryPlan,
    /// The files after the first write.
    file: Option<SpillFile>,
    files: Arc<SpillFiles>,
    /// The unused chunks in memory.
    free: Vec<Buffer>,
    /// The new chunks that are being allocated.
    coming: Option<Pending<Vec<Buffer>>>,
    /// Number of all chunks in memory: free, being allocated, in buckets, or being written.
    chunks: usize,
    /// Maximum of `chunks`.
    chunks_max: usize,
    /// The writes in flight. The queue has failed when a write or a read has, so that entries are
    /// lost. Invariant: a piece is written once before it is read, and read once before its place
    /// is given to another chunk. So only [`Spill::take_back`] and [`Spill::written`] give access to
    /// what the files hold, and both wait for these writes.
    queue: WriteQueue,
    /// The pieces being written, with the numbers of their writes, the oldest first.
    writing: VecDeque<(SpillChunk, u64)>,
    spilled_bytes: u64,
}

impl Spill {
    pub(super) fn new(files: Arc<SpillFiles>, plan: MemoryPlan) -> Spill {
        let executor = files.executor.clone();
        Spill {
            plan,
            file: None,
            files,
            free: Vec::new(),
            coming: None,
            chunks: 0,
            chunks_max: plan.chunk_count,
            // The pool bounds them.
            queue: WriteQueue::new(executor, plan.chunk_count),
            writing: VecDeque::new(),
            spilled_bytes: 0,
        }
    }

    pub(super) fn executor(&self) -> &Arc<dyn Executor> {
        self.queue.executor()
    }

    /// Waits for all writes, then returns the files, if there are any.
    pub(super) fn written(&mut self) -> Result<Option<SpillFile>> {
        self.flush()?;
        Ok(self.file.clone())
    }

    pub(super) fn chunk_bytes(&self) -> usize {
        self.plan.chunk_bytes
    }

    /// Returns the memory of the pool's chunks, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.chunks * self.plan.chunk_bytes
    }

    /// Returns the number of bytes written so far.
    pub(super) fn spilled_bytes(&self) -> u64 {
        self.spilled_bytes
    }

    /// Whether a batch should be written now, so that the pool does not run dry although
    /// `reserve_bytes` of the memory are reserved for other uses.
    pub(super) fn is_low(&mut self, reserve_bytes: usize) -> bool {
        self.chunks_max = self.plan.chunks_beside(reserve_bytes);
        let used = self.chunks - self.free.len() - self.writing.len();
        used + self.plan.spare_chunks() > self.chunks_max
    }

    /// Returns a chunk with arbitrary content. Waits for a write if the pool is dry.
    pub(super) fn chunk(&mut self) -> Result<Buffer> {
        self.check()?;
        self.collect();
        loop {
            if let Some(chunk) = self.free.pop() {
                return Ok(chunk);
            }
            if let Some(coming) = self.coming.take() {
                self.free = coming.wait();
            } else if self.chunks >= self.chunks_max {
                self.wait()?;
            }
            self.make_chunks();
        }
    }

    /// Starts to allocate new chunks, a quarter of what there are, if the limit allows. The
    /// allocation is slow because the system clears the memory.
    fn make_chunks(&mut self) {
        let at_once = match self.executor().width() {
            0 => 1,
            _ => (self.chunks / 4).clamp(1, MADE_AT_ONCE),
        };
        let count = at_once.min(self.chunks_max.saturating_sub(self.chunks));
        if count > 0 {
            self.chunks += count;
            let size = self.plan.chunk_bytes;
            self.coming = Some(Pending::start(&**self.executor(), move || {
                (0..count).map(|_| Buffer::resident(size)).collect()
            }));
        }
    }

    /// Returns an unused chunk to the pool.
    pub(super) fn put_back(&mut self, chunk: Buffer) {
        self.free.push(chunk);
    }

    /// Frees all unused chunks.
    pub(super) fn shrink(&mut self) {
        self.free.extend(self.coming.take().into_iter().flat_map(Pending::wait));
        self.chunks -= self.free.len();
        self.free = Vec::new();
    }

    /// Returns a free place in the files for a chunk, which the caller must write.
    pub(super) fn place(&mut self) -> SpillChunk {
        self.files.place()
    }

    /// Starts to write chunks to their places.
    pub(super) fn write(&mut self, batch: Vec<(SpillChunk, Buffer)>) -> Result<()> {
        self.check()?;
        let file = self.open_file().inspect_err(|_| self.queue.fail())?;
        self.spilled_bytes += (batch.len() * self.plan.chunk_bytes) as u64;
        for (piece, chunk) in batch {
            let file = file.clone();
            let number = self.queue.start(chunk, move |chunk| file.write(piece, chunk))?;
            self.writing.push_back((piece, number));
        }
        self.collect();
        Ok(())
    }

    /// Takes back the memory of the chunks that were written.
    fn collect(&mut self) {
        while let Some(chunk) = self.queue.take_buffer() {
            self.free.push(chunk);
        }
        let done = self.writing.len().saturating_sub(self.queue.in_flight());
        self.writing.drain(..done);
    }

    /// Waits until all chunks are written.
    pub(super) fn flush(&mut self) -> Result<()> {
        let written = self.queue.wait_until(0);
        self.collect();
        written.and_then(|()| self.check())
    }

    /// Reads a chunk back, for the last time. Waits until it is written.
    pub(super) fn take_back(&mut self, piece: SpillChunk) -> Result<Buffer> {
        if let Some(&(_, number)) = self.writing.iter().find(|writing| writing.0 == piece) {
            self.queue.wait_for(number)?;
        }
        let mut chunk = self.chunk()?;
        let file = self.file.as_ref().expect("it holds the piece");
        file.read(&[piece], &mut chunk).inspect_err(|_| self.queue.fail())?;
        self.files.state().holes.push(piece.0);
        Ok(chunk)
    }

    fn open_file(&mut self) -> Result<SpillFile> {
        if let Some(file) = &self.file {
            return Ok(file.clone());
        }
        let file = self.files.open(&self.plan)?;
        Ok(self.file.insert(file).clone())
    }

    /// Waits for the oldest write.
    fn wait(&mut self) -> Result<()> {
        let oldest = self.queue.in_flight().checked_sub(1);
        self.queue.wait_until(oldest.expect("chunks are free or being written"))?;
        self.collect();
        Ok(())
    }

    fn check(&self) -> Result<()> {
        self.queue.check("sort", || Place::file(&self.files.path))
    }
}

impl SpillFiles {
    /// Returns files, not yet created, for a number of sorters with the same options. They have the
    /// name `path` while they are created.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        path: PathBuf,
        executor: Arc<dyn Executor>,
        sorters: u32,
    ) -> Arc<SpillFiles> {
        Arc::new(SpillFiles { disk, path, executor, sorters, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, FilesState> {
        self.state.lock().expect("nothing panics under this lock")
    }

    /// Returns a free place for a chunk.
    fn place(&self) -> SpillChunk {
        let mut state = self.state();
        let number = state.holes.pop().unwrap_or_else(|| {
            let end = state.chunks;
            state.chunks = end.checked_add(1).expect("no disk holds 2^32 chunks");
            end
        });
        SpillChunk(number)
    }

    /// Returns the files, which are created if there are none.
    fn open(&self, plan: &MemoryPlan) -> Result<SpillFile> {
        let mut state = self.state();
        if let Some(file) = &state.file {
            return Ok(file.clone());
        }
        let near = self.unnamed(&mut state, Access::Cached)?;
        let far = self.unnamed(&mut state, Access::Direct)?;
        let near_chunks = plan.near_chunks.saturating_mul(self.sorters);
        let chunk_bytes = plan.chunk_bytes;
        let file = SpillFile { near, far, near_chunks, chunk_bytes, sums: Arc::default() };
        Ok(state.file.insert(file).clone())
    }

    /// Creates a file without a name: its space is freed when the last handle is closed, also if
    /// this process is killed.
    fn unnamed(&self, state: &mut FilesState, access: Access) -> Result<Arc<dyn BlockFile>> {
        let file = self.disk.create(&self.path, access)?;
        state.named = true;
        self.disk.remove(&self.path)?;
        state.named = false;
        Ok(file)
    }
}

impl Drop for SpillFiles {
    fn drop(&mut self) {
        let (is_named, file) = {
            let mut state = self.state();
            (state.named, state.file.take())
        };
        if is_named {
            // Errors cannot be returned from here.
            let _ = self.disk.remove(&self.path);
        }
        if let Some(file) = file {
            // Freeing the blocks of a large file can take the device seconds.
            self.executor.spawn(Box::new(move || drop(file)));
        }
    }
}

/// The spill files, as seen by the jobs that write and read them.
#[derive(Clone, Debug)]
pub(super) struct SpillFile {
    /// The file for the first chunks, which goes through the page cache.
    near: Arc<dyn BlockFile>,
    /// The file for all other chunks, which bypasses the page cache.
    far: Arc<dyn BlockFile>,
    near_chunks: u32,
    pub(super) chunk_bytes: usize,
    /// The checksum of each chunk.
    sums: Arc<Mutex<Vec<u32>>>,
}

impl SpillFile {
    fn write(&self, piece: SpillChunk, chunk: &[u8]) -> Result<()> {
        self.note(piece, crc32c(chunk));
        let (file, offset) = self.find(piece);
        file.write_at(offset, chunk)
    }

    /// Reads chunks, one after the other, into `bytes`, with several reads in flight: a single read
    /// at a time is far below the throughput of a device.
    pub(super) fn read(&self, pieces: &[SpillChunk], bytes: &mut [u8]) -> Result<()> {
        let mut rest = bytes;
        for pieces in pieces.chunk_by(|&a, &b| self.is_near(a) == self.is_near(b)) {
            for pieces in pieces.chunks(READS_AT_ONCE) {
                let (now, later) = rest.split_at_mut(pieces.len() * self.chunk_bytes);
                self.read_some(pieces, now)?;
                rest = later;
            }
        }
        Ok(())
    }

    /// Reads chunks that are in one file, with all reads in flight at once.
    fn read_some(&self, pieces: &[SpillChunk], bytes: &mut [u8]) -> Result<()> {
        let Some(&first) = pieces.first() else { return Ok(()) };
        let extent = |&piece| Extent { offset: self.find(piece).1, len: self.chunk_bytes };
        self.find(first).0.read_many(&mut pieces.iter().map(extent), &mut |i, chunk| {
            self.verify(pieces[i], chunk)?;
            bytes[i * self.chunk_bytes..][..self.chunk_bytes].copy_from_slice(chunk);
            Ok(())
        })
    }

    fn note(&self, piece: SpillChunk, sum: u32) {
        let (mut sums, at) = (self.sums(), piece.0 as usize);
        if sums.len() <= at {
            sums.resize(at + 1, 0);
        }
        sums[at] = sum;
    }

    fn sums(&self) -> MutexGuard<'_, Vec<u32>> {
        self.sums.lock().expect("nothing panics under this lock")
    }

    fn verify(&self, piece: SpillChunk, chunk: &[u8]) -> Result<()> {
        let sum = self.sums()[piece.0 as usize];
        check_sum(sum, crc32c(chunk)).map_err(|error| {
            let (file, offset) = self.find(piece);
            error.at(&file.place().offset(offset))
        })
    }

    fn is_near(&self, piece: SpillChunk) -> bool {
        piece.0 < self.near_chunks
    }

    /// Returns the file that holds a piece, and its offset there.
    fn find(&self, piece: SpillChunk) -> (&Arc<dyn BlockFile>, u64) {
        let (file, number) = match self.is_near(piece) {
            true => (&self.near, piece.0),
            false => (&self.far, piece.0 - self.near_chunks),
        };
        (file, u64::from(number) * self.chunk_bytes as u64)
    }
}
