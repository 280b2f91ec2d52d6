//! The two data sets of the paper's section 4.1, and their file: length-prefixed entries, which
//! `hashfold build - --format raw` reads too.

use crate::{Result, measure::ensure, urls};
use hashfold::{
    KeyHash, Seed,
    codec::Decoder,
    io::{ALIGNMENT, Access, Buffer, Disk, OsDisk, Writer},
    work::{Executor, Pending},
};
use std::{
    io::{BufWriter, Write},
    ops::Range,
    path::Path,
    sync::Arc,
};

/// Size of the values of URL-like keys, in bytes.
pub const URL_VALUE_SIZE: usize = 1000;
const SMALL_KEY_SIZE: usize = 64;
const SMALL_VALUE_SIZE: usize = 4;
const NUMBERS_VALUE_SIZE: usize = 1024;
/// Number of digits in most keys, for our numbers of items.
const NUMBERS_KEY_SIZE: usize = 7;
/// Number of bytes of their keys' hashes that small items store.
const SMALL_HASH_SIZE: usize = 12;

/// Size of the key and value sizes before each entry, in bytes.
const HEAD_SIZE: usize = 8;

/// Random bytes that values are cut from.
const NOISE_SIZE: u64 = 1 << 20;

/// The kind of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// URL-like keys with values of this size.
    Urls { value_size: usize },
    /// Keys of 64 bytes, of which the table gets 12 bytes of hash, with values of 4 bytes.
    Small,
    /// Keys that are numbers in decimal, with values of 1024 bytes.
    Numbers,
}

impl Kind {
    /// Returns the mean size of key and value in the table, in bytes.
    pub fn mean_size(self) -> usize {
        match self {
            Kind::Urls { value_size } => urls::MEAN_SIZE + value_size,
            Kind::Small => SMALL_HASH_SIZE + SMALL_VALUE_SIZE,
            Kind::Numbers => NUMBERS_KEY_SIZE + NUMBERS_VALUE_SIZE,
        }
    }
}

/// Numbered items; a value starts with its item's number.
#[derive(Clone, Debug)]
pub struct Items {
    pub kind: Kind,
    pub count: u64,
    pub seed: u64,
    noise: Vec<u8>,
}

/// A callback that takes a key and its value, as the table stores them.
type Push<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;

impl Items {
    pub fn new(kind: Kind, count: u64, seed: u64) -> Items {
        let part = |i: u64| KeyHash::of(&i.to_le_bytes(), Seed(!seed)).bits().to_le_bytes();
        Items { kind, count, seed, noise: (0..NOISE_SIZE / 16).flat_map(part).collect() }
    }

    /// Returns the first of these items.
    pub fn first(&self, count: u64) -> Items {
        assert!(count <= self.count);
        Items { count, ..self.clone() }
    }

    /// Writes the key as the file stores it.
    fn raw_key(&self, i: u64, key: &mut Vec<u8>) {
        match self.kind {
            Kind::Urls { .. } => urls::url(i, self.seed, key),
            Kind::Numbers => {
                key.clear();
                key.extend(i.to_string().bytes());
            }
            Kind::Small => {
                key.clear();
                let part = |j: u64| KeyHash::of(&(4 * i + j).to_le_bytes(), Seed(self.seed)).bits();
                key.extend((0..SMALL_KEY_SIZE as u64 / 16).flat_map(|j| part(j).to_le_bytes()));
            }
        }
    }

    /// Writes the key as the table stores it.
    pub fn key(&self, i: u64, key: &mut Vec<u8>) {
        self.raw_key(i, key);
        if self.kind == Kind::Small {
            let hash = stored(key);
            key.clear();
            key.extend(hash);
        }
    }

    fn value(&self, i: u64, value: &mut Vec<u8>) {
        let size = self.value_size();
        let start = (i as usize * 16) % (self.noise.len() - size);
        value.clear();
        value.extend(&self.noise[start..][..size]);
        let number = self.number(i);
        value[..number.len()].copy_from_slice(&number);
    }

    fn value_size(&self) -> usize {
        match self.kind {
            Kind::Urls { value_size } => value_size,
            Kind::Small => SMALL_VALUE_SIZE,
            Kind::Numbers => NUMBERS_VALUE_SIZE,
        }
    }

    /// Returns the start of an item's value.
    pub fn number(&self, i: u64) -> Vec<u8> {
        let bytes = i.to_le_bytes();
        bytes[..bytes.len().min(self.value_size())].to_vec()
    }

    /// Writes all items to a file, with `O_DIRECT`.
    pub fn write(&self, path: &Path, executor: Arc<dyn Executor>) -> Result<()> {
        self.write_some(0..self.count, path, executor)
    }

    /// Writes the items with these numbers to a file, with `O_DIRECT`.
    pub fn write_some(
        &self,
        numbers: Range<u64>,
        path: &Path,
        executor: Arc<dyn Executor>,
    ) -> Result<()> {
        let file = OsDisk.create(path, Access::Direct)?;
        let mut writer = Writer::new(file.clone(), executor);
        self.each_entry(numbers, &mut |entry| Ok(writer.append(entry)?))?;
        let end = writer.position();
        writer.append(&vec![0; (end.next_multiple_of(ALIGNMENT as u64) - end) as usize])?;
        writer.finish()?;
        Ok(file.sync()?)
    }

    fn each_entry(
        &self,
        numbers: Range<u64>,
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let (mut key, mut value, mut entry) = (Vec::new(), Vec::new(), Vec::new());
        for i in numbers {
            self.raw_key(i, &mut key);
            self.value(i, &mut value);
            entry.clear();
            entry.extend((key.len() as u32).to_le_bytes());
            entry.extend((value.len() as u32).to_le_bytes());
            entry.extend(&key);
            entry.extend(&value);
            visit(&entry)?;
        }
        Ok(())
    }

    /// Reads the first items of a file, which has at least these, with `O_DIRECT` and one unit
    /// ahead.
    pub fn read(&self, path: &Path, executor: &dyn Executor, push: &mut Push<'_>) -> Result<()> {
        let file = OsDisk.open(path, Access::Direct)?;
        let size = file.size()?;
        let start = |offset: u64| {
            let file = file.clone();
            Pending::start(executor, move || {
                let len = UNIT_SIZE.min((size - offset) as usize);
                let mut bytes = Buffer::zeroed(HEADROOM + len);
                file.read_at(offset, &mut bytes[HEADROOM..]).map(|()| bytes)
            })
        };
        let mut ahead = (size > 0).then(|| start(0));
        let mut offset = 0;
        let mut left = self.count;
        let mut rest: Vec<u8> = Vec::new();
        while let Some(unit) = ahead.take() {
            offset += UNIT_SIZE as u64;
            ahead = (offset < size).then(|| start(offset));
            let mut bytes = unit.wait()?;
            let from = HEADROOM - rest.len();
            bytes[from..HEADROOM].copy_from_slice(&rest);
            let used = self.push_entries(&bytes[from..], &mut left, push)?;
            if left == 0 {
                return Ok(());
            }
            rest.clear();
            rest.extend(&bytes[from + used..]);
        }
        ensure(left == 0, || format!("{}: {left} items are missing", path.display()))
    }

    /// Pushes the complete entries in `bytes`, at most `left`. Returns their length.
    fn push_entries(&self, bytes: &[u8], left: &mut u64, push: &mut Push<'_>) -> Result<usize> {
        let mut used = 0;
        while *left > 0
            && let Some((key, value)) = entry(&bytes[used..])
        {
            match self.kind {
                Kind::Urls { .. } | Kind::Numbers => push(key, value)?,
                Kind::Small => push(&stored(key), value)?,
            }
            used += HEAD_SIZE + key.len() + value.len();
            *left -= 1;
        }
        Ok(used)
    }
}

/// Size of the reads of the file, in bytes.
const UNIT_SIZE: usize = 4 << 20;

/// Space before a unit for the start of an entry from the unit before, in bytes.
const HEADROOM: usize = 64 << 10;
const _: () = assert!(HEADROOM.is_multiple_of(ALIGNMENT));

/// Returns the first entry in `bytes`, if it is complete.
fn entry(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut decoder = Decoder::new(bytes);
    let (key, value) = (decoder.u32().ok()?, decoder.u32().ok()?);
    Some((decoder.bytes(u64::from(key)).ok()?, decoder.bytes(u64::from(value)).ok()?))
}

/// Returns the stored part of a small item's key.
fn stored(key: &[u8]) -> [u8; SMALL_HASH_SIZE] {
    let hash = KeyHash::of(key, Seed(12)).bits().to_le_bytes();
    *hash.first_chunk().expect("a hash has 16 bytes")
}

/// Writes URL-like keys with values of this size to standard output.
pub fn write_urls(count: u64, value_size: usize, seed: u64) -> Result<()> {
    let fits = count <= urls::COUNT_MAX && value_size < NOISE_SIZE as usize;
    ensure(fits, || {
        format!("at most {} URLs with values of less than {NOISE_SIZE} bytes", urls::COUNT_MAX)
    })?;
    let items = Items::new(Kind::Urls { value_size }, count, seed);
    let mut out = BufWriter::with_capacity(1 << 20, std::io::stdout().lock());
    items.each_entry(0..count, &mut |entry| Ok(out.write_all(entry)?))?;
    Ok(out.flush()?)
}
