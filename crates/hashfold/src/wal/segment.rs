//! The files of a log: preallocated segments.

use super::batch::BATCH_SIZE_MAX;
use crate::{
    env::Env,
    error::{Error, Result},
    io::{
        ALIGNMENT, Access, BlockFile, Buffer, Disk, Seal,
        frame::{FileKind, Header},
    },
    key::Seed,
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

const PREFIX: &str = "wal-";
/// Maximum number of a segment. Files with a larger number are ignored: no log has written them.
const NUMBER_MAX: u64 = u64::MAX / 2;

/// The folder of a log, and the properties that all files of the log share.
#[derive(Clone, Debug)]
pub struct WalFolder {
    /// The disk of the log, the executor for writes in the background, and the clock that limits
    /// how long a commit waits for other threads.
    pub env: Env,
    /// The folder, which must exist.
    pub folder: PathBuf,
    /// Seed of the data set.
    pub seed: Seed,
    /// Id of the log: a number that no other log has.
    pub id: u64,
}

/// The files of a log, for a reader.
#[derive(Clone, Copy, Debug)]
pub struct WalFiles<'a> {
    /// The disk that the log is on.
    pub disk: &'a dyn Disk,
    /// The folder, which must exist.
    pub folder: &'a Path,
    /// Seed of the data set.
    pub seed: Seed,
    /// Id of the log.
    pub id: u64,
}

/// Sizes and number of the segments of a log. A segment has its full size on the file system from
/// the beginning, so a small log begins with small segments.
#[derive(Clone, Copy, Debug)]
pub struct Segments {
    /// Size of the first segment, and of the first one after [`Wal::rotate`](super::Wal::rotate), in
    /// bytes. Each following segment is twice as large, up to [`Segments::size_max`].
    pub first_size: u64,
    /// Maximum size of a segment, in bytes.
    pub size_max: u64,
    /// Maximum number of obsolete segments that are kept to be recycled. Further segments are
    /// removed.
    pub spares_max: usize,
}

impl Segments {
    /// Returns segments of equal size, in bytes, two of which are kept to be recycled.
    pub fn of_size(size: u64) -> Segments {
        Segments { first_size: size, size_max: size, spares_max: 2 }
    }

    /// Refuses invalid sizes.
    pub(super) fn check(&self) -> Result<()> {
        let least = (BATCH_SIZE_MAX + 2 * ALIGNMENT) as u64;
        let is_valid = |size: u64| size >= least && size.is_multiple_of(ALIGNMENT as u64);
        match [self.first_size, self.size_max].into_iter().find(|size| !is_valid(*size)) {
            None => Ok(()),
            Some(size) => {
                let expected = format!("a multiple of {ALIGNMENT} from {least} on");
                Err(Error::argument("size of a segment in bytes", expected, size))
            }
        }
    }
}

impl WalFolder {
    /// Returns the files of the log, for a reader.
    pub fn files(&self) -> WalFiles<'_> {
        let WalFolder { env, folder, seed, id } = self;
        WalFiles { disk: &*env.disk, folder, seed: *seed, id: *id }
    }
}

impl WalFiles<'_> {
    /// Returns the path of a segment.
    pub(super) fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{PREFIX}{number:010}"))
    }

    /// Returns the numbers of all segments, ascending.
    pub(super) fn list(&self) -> Result<Vec<u64>> {
        let names = self.disk.list(self.folder)?;
        let is_valid = |number: &u64| *number <= NUMBER_MAX;
        let number = |name: &String| name.strip_prefix(PREFIX)?.parse().ok().filter(is_valid);
        let mut numbers: Vec<u64> = names.iter().filter_map(number).collect();
        numbers.retain(|&number| names.iter().any(|name| self.path(number).ends_with(name)));
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Returns the space that all segments take on the device, in bytes.
    pub(super) fn device_bytes(&self) -> Result<u64> {
        let bytes = |number| {
            let file = self.disk.open(&self.path(number), Access::Cached);
            match file.and_then(|file| file.device_bytes()) {
                // The log is in use, and segments may be removed.
                Err(error) if error.is_not_found() => Ok(0),
                bytes => bytes,
            }
        };
        self.list()?.into_iter().map(bytes).sum()
    }

    pub(super) fn header(&self) -> Header {
        Header::new(FileKind::Wal, self.seed, self.id)
    }

    /// Waits until all written batches of a segment are durable.
    pub(super) fn sync(&self, number: u64) -> Result<()> {
        self.disk.open(&self.path(number), Access::Cached)?.sync()
    }

    /// Removes a segment, if it exists.
    pub(super) fn remove(&self, number: u64) -> Result<()> {
        let path = self.path(number);
        let is_there = |_: &Error| self.disk.exists(&path).unwrap_or(true);
        self.disk.remove(&path).or_else(|error| if is_there(&error) { Err(error) } else { Ok(()) })
    }
}

/// Returns the seal of the batch at an offset of a segment.
pub(super) fn seal(offset: u64, file_id: u64, number: u64) -> Seal {
    Seal { number: offset / ALIGNMENT as u64, file_id, epoch: number }
}

/// A segment that is being written.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) file: Arc<dyn BlockFile>,
    /// Size of the file, in bytes.
    pub(super) size: u64,
    /// Offset of the next batch.
    pub(super) offset: u64,
    /// Whether a mark follows the last batch.
    pub(super) is_marked: bool,
}

impl Segment {
    /// Creates a segment, or recycles the segment `spare`. Its name and its space are durable when
    /// this returns.
    pub(super) fn make(
        home: &WalFolder,
        number: u64,
        size: u64,
        spare: Option<u64>,
    ) -> Result<Segment> {
        let path = home.files().path(number);
        let file = match spare {
            Some(spare) => Segment::recycle(home, spare, &path, size)?,
            None => Segment::create(home, &path, size)
                .inspect_err(|_| _ = home.env.disk.remove(&path))?,
        };
        // A recycled segment may be larger.
        let size = size.max(file.size()?);
        Ok(Segment { number, file, size, offset: ALIGNMENT as u64, is_marked: false })
    }

    fn create(home: &WalFolder, path: &Path, size: u64) -> Result<Arc<dyn BlockFile>> {
        let file = home.env.disk.create(path, Access::Direct)?;
        let mut header = Buffer::zeroed(ALIGNMENT);
        header.copy_from_slice(&home.files().header().encode());
        file.write_at(0, &header)?;
        file.allocate(size)?;
        file.sync()?;
        home.env.disk.sync_folder(&home.folder)?;
        Ok(file)
    }

    /// Renames an obsolete segment to another number. Its old batches are no longer valid, because
    /// their seals have the old number.
    fn recycle(home: &WalFolder, spare: u64, path: &Path, size: u64) -> Result<Arc<dyn BlockFile>> {
        home.env.disk.rename(&home.files().path(spare), path)?;
        home.env.disk.sync_folder(&home.folder)?;
        let file = home.env.disk.open_to_write(path, Access::Direct)?;
        if file.size()? < size {
            file.allocate(size)?;
            file.sync()?;
        }
        Ok(file)
    }

    /// Returns the seal of the next batch.
    pub(super) fn seal(&self, file_id: u64) -> Seal {
        seal(self.offset, file_id, self.number)
    }

    /// Whether `other` is the same segment with no further batches.
    pub(super) fn has_all_of(&self, other: &Segment) -> bool {
        self.number == other.number && self.offset >= other.offset
    }

    /// Whether a batch of this size and a mark after it fit.
    pub(super) fn has_room(&self, padded_size: usize) -> bool {
        self.offset + (padded_size + ALIGNMENT) as u64 <= self.size
    }
}
