//! Fetching the pieces of one file: several at once, each checked before it is written.

use crate::{
    error::{Error, Result},
    fetch::FetchOptions,
    objects::Objects,
    rate::RateLimit,
    remote::Remote,
};
use hashfold::{
    Env,
    io::{Access, BlockFile, Buffer},
    store::{FilePiece, FileTree},
    work::Watch,
};
use std::{
    path::Path,
    slice::Iter,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
};

/// Number of times that a piece is read before its bytes count as damaged.
pub(crate) const TRIES: usize = 3;

/// The source of files and the limits of a transfer.
pub(crate) struct Transfer<'a> {
    pub(crate) env: &'a Env,
    pub(crate) objects: &'a dyn Objects,
    pub(crate) rate: &'a RateLimit,
    /// Number of pieces in flight.
    pub(crate) lanes: usize,
    /// Counts all bytes of files: those that were fetched, and those that were there.
    pub(crate) watch: &'a Watch,
    /// Bytes that were fetched.
    pub(crate) fetched: AtomicU64,
    /// Bytes that an interrupted transfer had left.
    pub(crate) resumed: AtomicU64,
}

impl<'a> Transfer<'a> {
    pub(crate) fn new(
        env: &'a Env,
        remote: &'a Remote,
        options: &'a FetchOptions,
        watch: &'a Watch,
    ) -> Transfer<'a> {
        Transfer {
            env,
            objects: remote.objects(),
            rate: &options.rate,
            lanes: options.lanes.max(1),
            watch,
            fetched: AtomicU64::new(0),
            resumed: AtomicU64::new(0),
        }
    }

    /// Returns for each piece of a file whether its bytes are right. A file that is not there, or that
    /// cannot be read, has none. Reads at the rate of the transfer.
    pub(crate) fn right_pieces(&self, path: &Path, tree: &FileTree) -> Result<Vec<bool>> {
        let disk = self.env.disk.as_ref();
        let file = match disk.exists(path)? {
            true => disk.open(path, Access::Direct).ok(),
            false => None,
        };
        let is_right = |piece: &FilePiece| {
            self.watch.add(0)?;
            let Some(file) = &file else { return Ok(false) };
            self.rate.take(self.env.clock.as_ref(), piece.size());
            let mut bytes = Buffer::zeroed(piece.size() as usize);
            let read = file.read_at(piece.bytes.start, &mut bytes);
            Ok(read.is_ok() && piece.matches(&bytes))
        };
        tree.pieces.iter().map(is_right).collect()
    }

    /// Copies pieces of a file to a new one.
    pub(crate) fn copy_pieces<'p>(
        &self,
        from: &Path,
        to: &Path,
        pieces: impl Iterator<Item = &'p FilePiece>,
    ) -> Result<()> {
        let disk = self.env.disk.as_ref();
        let new = disk.create(to, Access::Direct)?;
        for piece in pieces {
            self.watch.add(0)?;
            let mut bytes = Buffer::zeroed(piece.size() as usize);
            disk.open(from, Access::Direct)?.read_at(piece.bytes.start, &mut bytes)?;
            new.write_at(piece.bytes.start, &bytes)?;
        }
        Ok(())
    }

    /// Makes the file at `path` equal to the object `name`, whose pieces are known. Pieces that are
    /// there already are not read again. The file is synced when this returns.
    pub(crate) fn file(&self, path: &Path, name: &str, tree: &FileTree) -> Result<()> {
        let (file, missing) = self.open(path, tree)?;
        let queue = Mutex::new(missing.iter());
        let lane = || self.lane(file.as_ref(), name, &queue);
        thread::scope(|scope| {
            // If the system refuses threads, fewer lanes fetch all pieces.
            let spawn = |_| thread::Builder::new().spawn_scoped(scope, lane).ok();
            let others: Vec<_> = (1..self.lanes.min(missing.len())).filter_map(spawn).collect();
            let first = lane();
            let others =
                others.into_iter().map(|other| other.join().expect("a lane does not panic"));
            others.fold(first, Result::and)
        })?;
        Ok(file.sync()?)
    }

    /// Opens a file to be filled, and returns the pieces that it lacks.
    fn open<'t>(
        &self,
        path: &Path,
        tree: &'t FileTree,
    ) -> Result<(Arc<dyn BlockFile>, Vec<&'t FilePiece>)> {
        let disk = self.env.disk.as_ref();
        // Past the page cache, which has the blocks that readers use.
        let access = Access::Direct;
        if disk.exists(path)? {
            let file = disk.open_to_write(path, access)?;
            let size = file.size()?;
            if size <= tree.size() {
                let mut missing = Vec::new();
                for piece in &tree.pieces {
                    match piece.bytes.end <= size && self.has(file.as_ref(), piece)? {
                        true => self.watch.add(piece.size())?,
                        false => missing.push(piece),
                    }
                }
                return Ok((file, missing));
            }
        }
        Ok((disk.create(path, access)?, tree.pieces.iter().collect()))
    }

    /// Whether a file has a piece already.
    fn has(&self, file: &dyn BlockFile, piece: &FilePiece) -> Result<bool> {
        let mut bytes = Buffer::zeroed(piece.size() as usize);
        file.read_at(piece.bytes.start, &mut bytes)?;
        let has = piece.matches(&bytes);
        if has {
            self.resumed.fetch_add(piece.size(), Relaxed);
        }
        Ok(has)
    }

    /// Fetches pieces until none is left, or until one fails: then no lane begins another.
    fn lane(
        &self,
        file: &dyn BlockFile,
        name: &str,
        queue: &Mutex<Iter<'_, &FilePiece>>,
    ) -> Result<()> {
        let lock = || queue.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffer = Buffer::zeroed(0);
        loop {
            let Some(piece) = lock().next() else { return Ok(()) };
            let fetched = self.piece(file, name, piece, &mut buffer);
            if fetched.is_err() {
                *lock() = [].iter();
                return fetched;
            }
        }
    }

    fn piece(
        &self,
        file: &dyn BlockFile,
        name: &str,
        piece: &FilePiece,
        buffer: &mut Buffer,
    ) -> Result<()> {
        let start = piece.bytes.start;
        let bytes = self.verified(
            || self.objects.get_range(name, piece.bytes.clone()),
            piece.size(),
            |bytes| match piece.matches(bytes) {
                true => Ok(()),
                false => {
                    let expected = format!("{} bytes with the hash of the version", piece.size());
                    let got = format!("{} others", bytes.len());
                    Err(Error::damaged(start, expected, got).at(self.objects.place(name)))
                }
            },
        )?;
        // Aligned memory is written past the page cache.
        if buffer.len() != bytes.len() {
            *buffer = Buffer::zeroed(bytes.len());
        }
        buffer.copy_from_slice(&bytes);
        file.write_at(start, buffer)?;
        self.fetched.fetch_add(piece.size(), Relaxed);
        Ok(self.watch.add(piece.size())?)
    }

    /// Reads bytes at the rate of the transfer, up to three times until they are right. `size` is the
    /// number of bytes that the rate counts. Returns the error of the last attempt.
    pub(crate) fn verified(
        &self,
        read: impl Fn() -> Result<Vec<u8>>,
        size: u64,
        check: impl Fn(&[u8]) -> Result<()>,
    ) -> Result<Vec<u8>> {
        let mut attempt = 1;
        loop {
            self.rate.take(self.env.clock.as_ref(), size);
            let bytes = read().and_then(|bytes| check(&bytes).map(|()| bytes));
            match bytes {
                Err(error) if attempt < TRIES && !error.is_stop() => attempt += 1,
                answer => return answer,
            }
        }
    }
}
