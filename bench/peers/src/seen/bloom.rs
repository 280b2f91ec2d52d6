//! The solution that many programs write themselves: a blocked Bloom filter in a mapped file that
//! is larger than its memory. Each key has eight bits in one block of 32 bytes, so it touches one
//! page.
//!
//! Memory is limited by this code and not by a control group, which would need privileges. Only the
//! pages that were touched last stay; between batches, older pages are written, unmapped and
//! dropped from the page cache. Keys are random, so a page that stays is as good as any other, and
//! no other cache would do better. For speed, pages are written in the background during the next
//! batch.

use super::{Options, Peer, Set};
use crate::{Result, data::mix};
use std::{
    collections::VecDeque,
    fs::{File, OpenOptions},
    io::{self, BufWriter, Write},
    os::fd::AsRawFd,
    path::Path,
    ptr,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

pub(super) fn peers() -> Vec<Box<dyn Peer>> {
    vec![Box::new(Mapped { is_ahead: false }), Box::new(Mapped { is_ahead: true })]
}

/// A Bloom filter in a mapped file.
struct Mapped {
    /// Whether all pages of a batch are requested before the first one is waited for.
    is_ahead: bool,
}

const PAGE: usize = 4096;
const BLOCK_WORDS: usize = 8;
/// Bits of the file per key of its capacity: about the paper's 16 GiB for 8.59e9 keys.
const BITS_PER_KEY: u64 = 16;
const PAGE_BLOCKS: u64 = (PAGE / BLOCK_WORDS / size_of::<u32>()) as u64;

impl Peer for Mapped {
    fn name(&self) -> String {
        match self.is_ahead {
            false => "Bloom filter, mapped".to_owned(),
            true => "Bloom filter, mapped, ahead".to_owned(),
        }
    }

    fn note(&self) -> String {
        let ahead = match self.is_ahead {
            false => "one page fault after the other for each thread",
            true => "pages of a batch asked for ahead (MADV_WILLNEED)",
        };
        format!(
            "32-byte blocks, one page a key; {ahead}; filled as if it had a key for each 16 bits; \
             memory enforced by dropping pages between batches"
        )
    }

    fn keys(&self, options: &Options) -> u64 {
        options.keys_bloom
    }

    /// Returns the false-positive rate of a blocked filter with 16 bits per key, eight of them in a
    /// block of 256.
    fn error_max(&self) -> f64 {
        0.004
    }

    fn create(&self, options: &Options, folder: &Path) -> Result<Box<dyn Set>> {
        let bytes = (options.bloom_mib << 20) as usize;
        let file = write_full(&folder.join("bloom"), bytes)?;
        let map = Map::new(file, bytes)?;
        let pages_max = (options.memory << 20) / PAGE;
        let state = Resident {
            pages: VecDeque::new(),
            is_in: vec![false; bytes / PAGE],
            leaving: Vec::new(),
        };
        Ok(Box::new(Filter {
            map,
            is_ahead: self.is_ahead,
            pages_max,
            resident: Mutex::new(state),
        }))
    }
}

/// Writes a file in which as many bits are set as by the keys of its capacity: with 16 bits per
/// key, three in eight.
fn write_full(path: &Path, bytes: usize) -> Result<File> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    let mut writer = BufWriter::with_capacity(1 << 20, &file);
    for i in 0..bytes as u64 / 8 {
        let [a, b, c] = [0, 1, 2].map(|part| mix(3 * i + part));
        writer.write_all(&(a & (b | c)).to_le_bytes())?;
    }
    writer.flush()?;
    drop(writer);
    file.sync_all()?;
    // SAFETY: the descriptor is open.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    Ok(file)
}

/// A writable map of a file.
struct Map {
    start: *mut u8,
    bytes: usize,
    file: File,
}

// SAFETY: the words are only used as atomics.
unsafe impl Sync for Map {}

impl Map {
    fn new(file: File, bytes: usize) -> Result<Map> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new map of a file of this size, which keeps its size as long as it is mapped.
        let start = unsafe {
            let fd = file.as_raw_fd();
            libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd, 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error().into());
        }
        // A fault must load one page, without its neighbours.
        // SAFETY: the advice is for the whole map.
        unsafe { libc::madvise(start, bytes, libc::MADV_RANDOM) };
        Ok(Map { start: start.cast(), bytes, file })
    }

    fn words(&self) -> &[AtomicU32] {
        // SAFETY: the map is aligned, has this size, and lives as long as `self`.
        unsafe {
            let count = self.bytes / size_of::<u32>();
            std::slice::from_raw_parts(self.start.cast::<AtomicU32>(), count)
        }
    }

    fn advise(&self, page: u32, advice: libc::c_int) {
        // SAFETY: the page is in the map; its dropped content is in the page cache.
        unsafe {
            let at = self.start.add(page as usize * PAGE);
            libc::madvise(at.cast(), PAGE, advice);
        }
    }

    /// Starts to write a page, if it has changed.
    fn start_writing(&self, page: u32) {
        let at = i64::from(page) * PAGE as i64;
        // SAFETY: the descriptor is open.
        unsafe {
            let fd = self.file.as_raw_fd();
            libc::sync_file_range(fd, at, PAGE as i64, libc::SYNC_FILE_RANGE_WRITE);
        }
    }

    /// Removes all pages from memory, once they are written.
    fn drop_all(&self) {
        // SAFETY: the range is the whole map and the descriptor is open; dropped pages are in the
        // file.
        unsafe {
            libc::madvise(self.start.cast(), self.bytes, libc::MADV_DONTNEED);
            libc::posix_fadvise(self.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED);
        }
    }

    /// Removes a page from the page cache, once it is written.
    fn drop_cached(&self, page: u32) {
        let at = i64::from(page) * PAGE as i64;
        // SAFETY: the descriptor is open.
        unsafe {
            let fd = self.file.as_raw_fd();
            let wait = libc::SYNC_FILE_RANGE_WAIT_BEFORE;
            libc::sync_file_range(fd, at, PAGE as i64, wait);
            libc::posix_fadvise(fd, at, PAGE as i64, libc::POSIX_FADV_DONTNEED);
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: there is no reference into the map any more.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

/// The pages that may be in memory.
struct Resident {
    /// The pages, oldest first.
    pages: VecDeque<u32>,
    is_in: Vec<bool>,
    /// The pages that are being written before they are dropped.
    leaving: Vec<u32>,
}

struct Filter {
    map: Map,
    is_ahead: bool,
    /// Maximum number of pages in memory.
    pages_max: usize,
    resident: Mutex<Resident>,
}

/// Returns the block of a key, and the key's bits in its words: the split blocks of Apache Parquet.
fn place(key: u64, blocks: u64) -> (usize, [u32; BLOCK_WORDS]) {
    const SALTS: [u32; BLOCK_WORDS] = [
        0x47b6_137b,
        0x4497_4d91,
        0x8824_ad5b,
        0xa2b7_289d,
        0x7054_95c7,
        0x2df1_424b,
        0x9efc_4947,
        0x5c6b_fb31,
    ];
    let block = (u128::from(key) * u128::from(blocks)) >> 64;
    (block as usize, SALTS.map(|salt| 1 << ((key as u32).wrapping_mul(salt) >> 27)))
}

impl Filter {
    fn blocks(&self) -> u64 {
        (self.map.bytes / BLOCK_WORDS / size_of::<u32>()) as u64
    }

    /// Requests the pages of all keys, if this variant does so.
    fn fetch(&self, keys: &[u64]) {
        if !self.is_ahead {
            return;
        }
        for key in keys {
            let page = place(*key, self.blocks()).0 as u64 / PAGE_BLOCKS;
            self.map.advise(page as u32, libc::MADV_WILLNEED);
        }
    }

    /// Drops pages beyond the maximum.
    fn evict(&self, keys: &[u64]) {
        let mut state = self.resident.lock().expect("nothing panics under this lock");
        for key in keys {
            let page = (place(*key, self.blocks()).0 as u64 / PAGE_BLOCKS) as u32;
            if !state.is_in[page as usize] {
                state.is_in[page as usize] = true;
                state.pages.push_back(page);
            }
        }
        for page in std::mem::take(&mut state.leaving) {
            // The page may have been touched again.
            if !state.is_in[page as usize] {
                self.map.drop_cached(page);
            }
        }
        while state.pages.len() > self.pages_max {
            let Some(page) = state.pages.pop_front() else { break };
            state.is_in[page as usize] = false;
            state.leaving.push(page);
            self.map.advise(page, libc::MADV_DONTNEED);
            self.map.start_writing(page);
        }
    }
}

impl Set for Filter {
    fn insert(&mut self, keys: &[u64]) -> Result<()> {
        self.fetch(keys);
        for key in keys {
            let (block, bits) = place(*key, self.blocks());
            for (word, bit) in self.map.words()[block * BLOCK_WORDS..].iter().zip(bits) {
                word.fetch_or(bit, Relaxed);
            }
        }
        self.evict(keys);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.map.file.sync_all()?;
        self.map.drop_all();
        let mut state = self.resident.lock().expect("nothing panics under this lock");
        state.pages.clear();
        state.leaving.clear();
        state.is_in.fill(false);
        Ok(())
    }

    /// The filter has no threads.
    fn finish_work(&mut self) -> Result<()> {
        Ok(())
    }

    fn look_up(&self, keys: &[u64], found: &mut [bool]) -> Result<()> {
        self.fetch(keys);
        for (key, found) in keys.iter().zip(found) {
            let (block, bits) = place(*key, self.blocks());
            let words = self.map.words()[block * BLOCK_WORDS..].iter().zip(bits);
            *found = words.fold(true, |all, (word, bit)| all & (word.load(Relaxed) & bit != 0));
        }
        self.evict(keys);
        Ok(())
    }

    fn room(&self) -> Option<u64> {
        Some(self.map.bytes as u64 * 8 / BITS_PER_KEY)
    }
}
