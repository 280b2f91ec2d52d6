//! Loading a filter from the pieces of a dump: `BF.LOADCHUNK` and `CF.LOADCHUNK`.
//!
//! ```text
//!  LOADCHUNK ─ checked piece → channel → CascadeFilter::build, in a thread of its own ─→ a filter, after the last piece
//! ```
//!
//! Until the last piece, the folder has no filter: neither clients nor a server that starts after a crash see
//! a part of one.

use super::home::MakeError;
use crate::piece::{Dumped, Piece};
use hashfold::{
    Env, ErrorKind, Seed,
    checksum::crc32c,
    filter::cascade::{CascadeFilter, CascadeOptions, CascadeSettings},
    fingerprints::{FingerprintBatch, Fingerprints, Universe},
    manifest,
    work::{Executor as _, MemoryBudget, Reserved, Threads},
};
use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError, TryLockError,
        mpsc::{Receiver, SyncSender, channel, sync_channel},
    },
    time::Duration,
};

/// Maximum number of filters that are loaded at a time: each has its memory, and a thread.
const LOADS_MAX: usize = 4;

/// A load that gets no piece for this long ends.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Number of pieces that wait to be written.
const PIECES_WAITING: usize = 1;

/// The reason why a piece is not taken. The load is as it was before.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// The bytes are no piece, not this piece, or of a filter of another mode.
    BadPiece,
    /// The piece is not the next one of the dump.
    NotNext,
    /// Another connection loads a piece of the filter now.
    Busy,
    /// As many filters are loaded as may be.
    TooMany(usize),
    /// No filter can be made.
    Make(MakeError),
}

impl From<hashfold::Error> for LoadError {
    fn from(error: hashfold::Error) -> LoadError {
        LoadError::Make(MakeError::Failed(error))
    }
}

/// The filters that are being loaded, by key.
#[derive(Debug)]
pub(crate) struct Loads {
    running: Mutex<BTreeMap<Vec<u8>, Arc<Mutex<Load>>>>,
    /// Dropped after the loads, for which its threads wait.
    threads: LazyLock<Threads>,
}

/// Where a filter is made, and with how much memory.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) env: Env,
    /// A folder that no other filter gets as long as this is kept.
    pub(crate) folder: Arc<Path>,
    pub(crate) memory_bytes: usize,
    /// The budget in which this memory is reserved.
    pub(crate) memory: MemoryBudget,
}

/// A filter that was loaded.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) filter: CascadeFilter,
    pub(crate) memory: Reserved,
    pub(crate) folder: Arc<Path>,
}

/// Chooses where a filter is made.
type ChooseSite<'a> = dyn Fn() -> hashfold::Result<Site> + 'a;

/// A filter that is being loaded.
#[derive(Debug)]
struct Load {
    of: Dumped,
    /// Number of the next piece.
    next: u64,
    /// Number of fingerprints so far, and the largest one.
    taken: u64,
    largest: Option<u64>,
    /// Checksum of the piece before, which a client may send again.
    before: u32,
    pieces: SyncSender<Option<FingerprintBatch>>,
    outcome: Receiver<hashfold::Result<CascadeFilter>>,
    folder: Arc<Path>,
    /// The time of the last piece, by the server's clock.
    touched: Duration,
    /// The memory of the filter; `None` after the last piece.
    memory: Option<Reserved>,
}

impl Loads {
    pub(crate) fn new() -> Loads {
        Loads { running: Mutex::default(), threads: LazyLock::new(|| Threads::new(LOADS_MAX)) }
    }

    /// Whether a filter of this name is being loaded.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.lock().contains_key(key)
    }

    /// Returns the number of filters that are being loaded.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Takes a piece. Returns the filter if it was the last one. The first piece begins a load, in place of one
    /// of the same name that was not finished.
    pub(crate) fn take(
        &self,
        key: &[u8],
        (piece, sum): (Piece, u32),
        site: &ChooseSite<'_>,
        now: Duration,
    ) -> Result<Option<Loaded>, LoadError> {
        let known = self.lock().get(key).cloned();
        if let Some(load) = known {
            let mut load = match load.try_lock() {
                Ok(load) => load,
                Err(TryLockError::Poisoned(error)) => error.into_inner(),
                Err(TryLockError::WouldBlock) => return Err(LoadError::Busy),
            };
            if load.has_taken(&piece, sum) {
                return Ok(None);
            }
            if piece.number > 1 {
                return self.go_on(key, &mut load, (piece, sum), now);
            }
            self.lock().remove(key);
            load.end();
        }
        if piece.number > 1 {
            return Err(LoadError::NotNext);
        }
        let load = self.begin(key, &piece.of, site()?, now)?;
        let mut load = load.lock().unwrap_or_else(PoisonError::into_inner);
        self.go_on(key, &mut load, (piece, sum), now)
    }

    /// Starts to build a filter.
    fn begin(
        &self,
        key: &[u8],
        of: &Dumped,
        site: Site,
        now: Duration,
    ) -> Result<Arc<Mutex<Load>>, LoadError> {
        let mut running = self.lock();
        if running.contains_key(key) {
            return Err(LoadError::Busy);
        }
        // Without a thread, the job would wait for its own caller.
        if running.len() >= LOADS_MAX.min(self.threads.width()) {
            return Err(LoadError::TooMany(running.len()));
        }
        let memory = Some(site.memory.reserve(site.memory_bytes as u64)?);
        let (pieces, receiver) = sync_channel(PIECES_WAITING);
        let (sender, outcome) = channel();
        let (of, folder) = (*of, site.folder.clone());
        self.threads.spawn(Box::new(move || {
            let run = Pieces { seed: of.seed, universe: of.universe, receiver, is_done: false };
            let built = build(&of, &site, run);
            drop(site);
            // Nobody takes the outcome of a load that was given up.
            let _ = sender.send(built);
        }));
        let load = Arc::new(Mutex::new(Load {
            of,
            next: 1,
            taken: 0,
            largest: None,
            before: 0,
            pieces,
            outcome,
            folder,
            touched: now,
            memory,
        }));
        running.insert(key.to_vec(), load.clone());
        Ok(load)
    }

    /// Takes the next piece of a load. The load ends after the last one, and after a failure of building.
    fn go_on(
        &self,
        key: &[u8],
        load: &mut Load,
        piece: (Piece, u32),
        now: Duration,
    ) -> Result<Option<Loaded>, LoadError> {
        load.touched = now;
        let taken = load.take(piece);
        if matches!(taken, Ok(Some(_)) | Err(LoadError::Make(_))) {
            self.lock().remove(key);
        }
        taken
    }

    /// Ends loads that get no further pieces.
    pub(crate) fn forget_idle(&self, now: Duration) {
        self.lock().retain(|_, load| match load.try_lock() {
            Ok(load) => now.saturating_sub(load.touched) < IDLE_MAX,
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Poisoned(_)) => false,
        });
    }

    /// Ends all loads.
    pub(crate) fn end(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, Arc<Mutex<Load>>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Load {
    /// Whether a piece is the one that was taken last.
    fn has_taken(&self, piece: &Piece, sum: u32) -> bool {
        piece.of == self.of && piece.number + 1 == self.next && sum == self.before
    }

    /// Takes the next piece. Returns the filter if it was the last one.
    fn take(&mut self, (piece, sum): (Piece, u32)) -> Result<Option<Loaded>, LoadError> {
        if piece.of != self.of || piece.number != self.next {
            return Err(LoadError::NotNext);
        }
        let ascends = match (self.largest, piece.items.first()) {
            (Some(largest), Some(first)) => largest < first,
            _ => true,
        };
        if piece.before != self.taken || !ascends {
            return Err(LoadError::BadPiece);
        }
        let Piece { is_last, items, .. } = piece;
        let (count, largest) = (items.len() as u64, items.last());
        self.send(Some(items))?;
        self.next += 1;
        self.taken += count;
        self.largest = largest.or(self.largest);
        self.before = sum;
        if !is_last {
            return Ok(None);
        }
        self.send(None)?;
        let (filter, folder) = (self.outcome()?, self.folder.clone());
        Ok(self.memory.take().map(|memory| Loaded { filter, memory, folder }))
    }

    /// Passes fingerprints on, or the end of them.
    fn send(&mut self, items: Option<FingerprintBatch>) -> Result<(), LoadError> {
        match self.pieces.send(items) {
            Ok(()) => Ok(()),
            // The filter cannot be built, and the outcome says why.
            Err(_) => self.outcome().map(drop),
        }
    }

    fn outcome(&self) -> Result<CascadeFilter, LoadError> {
        let outcome = self.outcome.recv().unwrap_or_else(|_| Err(ErrorKind::Stopped.into()));
        Ok(outcome?)
    }

    /// Gives the load up, and waits until its folder is free.
    fn end(&mut self) {
        // The job waits for pieces of the sender that is dropped here.
        self.pieces = sync_channel(PIECES_WAITING).0;
        let _ = self.outcome.recv();
    }
}

/// Builds a filter. After a failure, nothing is left of it.
fn build(of: &Dumped, site: &Site, mut run: Pieces) -> hashfold::Result<CascadeFilter> {
    let options = CascadeOptions {
        seed: of.seed,
        id: site.env.random.next_u64(),
        mode: of.mode,
        capacity: of.capacity,
        universe: of.universe,
        window: of.window,
        expansion: of.expansion,
    };
    let settings = CascadeSettings {
        memory_bytes: site.memory_bytes,
        wal: true,
        ..CascadeSettings::new(site.env.clone())
    };
    let is_new = !site.env.disk.exists(&site.folder)?;
    let built = CascadeFilter::build(&site.folder, &options, settings, &mut run);
    if built.is_err() && is_new {
        sweep(&site.env, &site.folder);
    }
    built
}

/// Removes what a crash or a failure has left of a filter that was being made. Whatever cannot be removed
/// stays, and is no filter.
pub(crate) fn sweep(env: &Env, folder: &Path) {
    let disk = env.disk.as_ref();
    let names = disk.list(folder).unwrap_or_default();
    if names.iter().any(|name| name == manifest::FIRST_NAME) {
        let runs = names.iter().map(String::as_str).filter(|name| name.starts_with("run-"));
        // The file that marks an unfinished filter is the last one.
        for name in runs.chain([manifest::NEW_NAME, manifest::FIRST_NAME]) {
            let _ = disk.remove(&folder.join(name));
        }
    }
    let _ = disk.remove_folder(folder);
}

/// The fingerprints of the pieces of a dump, as they come.
struct Pieces {
    seed: Seed,
    universe: Universe,
    receiver: Receiver<Option<FingerprintBatch>>,
    is_done: bool,
}

impl Fingerprints for Pieces {
    fn seed(&self) -> Seed {
        self.seed
    }

    fn universe(&self) -> Universe {
        self.universe
    }

    fn append_to(&mut self, batch: &mut FingerprintBatch) -> hashfold::Result<bool> {
        while !self.is_done {
            match self.receiver.recv() {
                Ok(Some(items)) if items.is_empty() => {}
                Ok(Some(items)) => {
                    for (fingerprint, count) in items.iter() {
                        batch.push(fingerprint, count)?;
                    }
                    return Ok(true);
                }
                Ok(None) => self.is_done = true,
                Err(_) => return Err(ErrorKind::Stopped.into()),
            }
        }
        Ok(false)
    }
}

/// Decodes a piece that a client sends with an iterator.
///
/// # Errors
/// `BadPiece` if the bytes are no piece, or that of another iterator.
pub(crate) fn decode(iterator: i64, bytes: &[u8]) -> Result<(Piece, u32), LoadError> {
    let piece = Piece::decode(bytes).map_err(|_| LoadError::BadPiece)?;
    match piece.of.iterator(piece.number) == iterator {
        true => Ok((piece, crc32c(bytes))),
        false => Err(LoadError::BadPiece),
    }
}
