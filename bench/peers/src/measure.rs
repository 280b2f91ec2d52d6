//! Clocks and counters of this process.

use crate::Result;
use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The cost of a piece of work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub wall: Duration,
    /// CPU time of all threads of the process, user and system. The kernel's own threads, which
    /// write dirty pages back, are not included.
    pub cpu: Duration,
    /// Bytes read from the device.
    pub read_bytes: u64,
}

/// Runs `work` and measures its cost.
pub fn measure<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Cost)> {
    let read_bytes = read_bytes()?;
    let cpu = cpu_time();
    let start = Instant::now();
    let result = work()?;
    let wall = start.elapsed();
    let cost = Cost { wall, cpu: cpu_time() - cpu, read_bytes: self::read_bytes()? - read_bytes };
    Ok((result, cost))
}

/// Returns the CPU time of the process.
pub fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` can hold a timespec.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    assert_eq!(status, 0, "Linux has this clock");
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

fn read_bytes() -> Result<u64> {
    status_field("/proc/self/io", "read_bytes:")
}

/// Returns the number of bytes that the process has written to devices, dirty pages included.
pub fn written_bytes() -> Result<u64> {
    status_field("/proc/self/io", "write_bytes:")
}

/// Returns the number of read requests that the device of a folder has served, by any process, if the
/// system tells.
pub fn device_reads(folder: &Path) -> Option<u64> {
    let device = fs::metadata(folder).ok()?.dev();
    let (major, minor) = (libc::major(device), libc::minor(device));
    let text = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Returns freed memory to the system, and resets the peak RSS.
pub fn reset_peak_memory() -> Result<()> {
    // SAFETY: the call has no arguments and touches no state of ours.
    unsafe { libc::malloc_trim(0) };
    Ok(fs::write("/proc/self/clear_refs", "5")?)
}

/// Returns the RSS, mapped files included, in bytes.
pub fn memory() -> Result<u64> {
    Ok(status_field("/proc/self/status", "VmRSS:")? * 1024)
}

/// Returns the peak RSS since the last reset, mapped files included, in bytes.
pub fn peak_memory() -> Result<u64> {
    Ok(status_field("/proc/self/status", "VmHWM:")? * 1024)
}

/// Returns the number after a name in a file of `name number` lines.
pub fn status_field(file: &str, name: &str) -> Result<u64> {
    let text = fs::read_to_string(file)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    Ok(number.ok_or_else(|| format!("{file} has no field {name}"))?.parse()?)
}

/// Removes the files of a folder from the page cache.
pub fn drop_cache(folder: &Path) -> Result<()> {
    for path in files(folder)? {
        let file = File::open(&path)?;
        file.sync_all()?;
        // SAFETY: the descriptor is open.
        let code =
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        if code != 0 {
            return Err(io::Error::from_raw_os_error(code).into());
        }
    }
    Ok(())
}

/// Waits until the file system of a folder has finished all requests: the removals of one peer must
/// not slow down the next.
pub fn settle(folder: &Path) -> Result<()> {
    let folder = File::open(folder)?;
    // SAFETY: the descriptor is open.
    match unsafe { libc::syncfs(folder.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error().into()),
    }
}

/// Unit of `st_blocks`, in bytes.
const SECTOR: u64 = 512;

/// Returns the size of a folder's files on the device, in bytes; holes are not counted.
pub fn disk_bytes(folder: &Path) -> Result<u64> {
    files(folder)?.iter().try_fold(0, |sum, file| Ok(sum + fs::metadata(file)?.blocks() * SECTOR))
}

/// Returns the size of all files below a folder on the device, in bytes; a file with several names
/// counts once.
pub fn disk_bytes_below(folder: &Path) -> Result<u64> {
    fn add(folder: &Path, inodes: &mut HashMap<u64, u64>) -> Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let facts = entry.metadata()?;
            if facts.is_dir() {
                add(&entry.path(), inodes)?;
            } else {
                inodes.insert(facts.ino(), facts.blocks() * SECTOR);
            }
        }
        Ok(())
    }
    let mut inodes = HashMap::new();
    add(folder, &mut inodes)?;
    Ok(inodes.values().sum())
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    Ok(files)
}

/// A folder that is removed with its content on drop.
#[derive(Debug)]
pub struct TemporaryFolder {
    pub path: PathBuf,
}

impl TemporaryFolder {
    pub fn create(parent: &Path, name: &str) -> Result<TemporaryFolder> {
        let path = parent.join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(TemporaryFolder { path })
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
