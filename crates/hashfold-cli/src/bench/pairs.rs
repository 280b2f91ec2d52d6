//! Numbered key-value pairs, and files of them: the data of the measurements.

use super::{ensure, random::noise};
use crate::failure::Result;
use hashfold::{
    KeyHash, Seed,
    io::{ALIGNMENT, Access, Buffer, Disk, OsDisk, Writer},
    work::{Executor, Pending, Threads},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

pub(crate) const KEY_SIZE: usize = 16;

/// Size of a value's head, its number and its generation, in bytes.
const HEAD_SIZE: usize = 16;

/// Approximate size of a read, in bytes.
const UNIT_SIZE: usize = 1 << 20;

/// Random bytes that values are cut from.
const NOISE_SIZE: u64 = 1 << 20;

/// Sizes of pairs: a name, and the size in bytes.
pub(crate) const PAIR_SIZES: [(&str, u64); 2] = [("64b", 64), ("1kib", 1024)];

/// Callback that takes a key and its value; no value means a deletion.
pub(crate) type PushRow<'a> = dyn FnMut(&[u8], Option<&[u8]>) -> Result<()> + 'a;

/// A change of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) number: u64,
    /// Generation of its value, or [`Row::DELETED`].
    pub(crate) generation: u64,
}

impl Row {
    pub(crate) const DELETED: u64 = u64::MAX;

    /// A pair with its first value.
    pub(crate) fn first(number: u64) -> Row {
        Row { number, generation: 0 }
    }

    /// Returns the row that has a value.
    pub(crate) fn of(value: &[u8]) -> Option<Row> {
        let (number, rest) = value.split_first_chunk()?;
        let generation = rest.first_chunk()?;
        Some(Row {
            number: u64::from_le_bytes(*number),
            generation: u64::from_le_bytes(*generation),
        })
    }
}

/// Pairs of a 16-byte key and a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pairs {
    pub(crate) name: &'static str,
    pub(crate) count: u64,
    pub(crate) value_size: usize,
    pub(crate) seed: u64,
}

/// A file of rows.
#[derive(Debug)]
pub(crate) struct RowFile {
    pub(crate) path: PathBuf,
    pub(crate) count: u64,
}

impl Pairs {
    /// Makes pairs of this size, `bytes` in total.
    pub(crate) fn new(name: &'static str, pair_size: u64, bytes: u64, seed: u64) -> Pairs {
        let value_size = pair_size as usize - KEY_SIZE;
        assert!(value_size >= HEAD_SIZE);
        Pairs { name, count: bytes / pair_size, value_size, seed }
    }

    /// Size of key and value, in bytes.
    pub(crate) fn size(&self) -> usize {
        KEY_SIZE + self.value_size
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.count * self.size() as u64
    }

    pub(crate) fn key(&self, i: u64) -> [u8; KEY_SIZE] {
        KeyHash::of(&i.to_le_bytes(), Seed(self.seed)).bits().to_le_bytes()
    }

    /// Returns the random bytes that values are cut from.
    pub(crate) fn noise(&self) -> Vec<u8> {
        noise(NOISE_SIZE, self.seed).collect()
    }

    /// Writes the key and the value of a row.
    pub(crate) fn fill(&self, row: Row, noise: &[u8], pair: &mut [u8]) {
        pair[..KEY_SIZE].copy_from_slice(&self.key(row.number));
        let at = (row.number as usize * 16) % (noise.len() - pair.len());
        pair[KEY_SIZE..].copy_from_slice(&noise[at..][..self.value_size]);
        let head = &mut pair[KEY_SIZE..][..HEAD_SIZE];
        head[..8].copy_from_slice(&row.number.to_le_bytes());
        head[8..].copy_from_slice(&row.generation.to_le_bytes());
    }

    /// Writes a file of rows in the given order, with `O_DIRECT`.
    pub(crate) fn write(
        &self,
        path: PathBuf,
        rows: impl Iterator<Item = Row>,
        threads: usize,
    ) -> Result<RowFile> {
        let file = OsDisk.create(&path, Access::Direct)?;
        let mut writer = Writer::new(file.clone(), Arc::new(Threads::new(threads)));
        let noise = self.noise();
        let mut pair = vec![0; self.size()];
        let mut count = 0;
        for row in rows {
            self.fill(row, &noise, &mut pair);
            writer.append(&pair)?;
            count += 1;
        }
        let end = writer.position();
        writer.append(&vec![0; (end.next_multiple_of(ALIGNMENT as u64) - end) as usize])?;
        writer.finish()?;
        file.sync()?;
        Ok(RowFile { path, count })
    }

    /// Reads a file with `O_DIRECT`, in large units, one unit ahead.
    pub(crate) fn read(
        &self,
        disk: &dyn Disk,
        rows: &RowFile,
        executor: &dyn Executor,
        push: &mut PushRow<'_>,
    ) -> Result<()> {
        let size = self.size();
        let unit = (UNIT_SIZE / size * size).next_multiple_of(ALIGNMENT * size);
        let file = disk.open(&rows.path, Access::Direct)?;
        let file_size = file.size()?;
        let start = |offset: u64, mut bytes: Buffer| {
            let file = file.clone();
            Pending::start(executor, move || {
                let len = bytes.len().min((file_size - offset) as usize);
                file.read_at(offset, &mut bytes[..len]).map(|()| bytes)
            })
        };
        let mut ahead = (file_size > 0).then(|| start(0, Buffer::zeroed(unit)));
        let mut spare = Buffer::zeroed(unit);
        let mut left = rows.count as usize;
        let mut offset = 0;
        while let Some(pending) = ahead.take() {
            let bytes = pending.wait()?;
            offset += unit as u64;
            if offset < file_size {
                ahead = Some(start(offset, spare));
            }
            for pair in bytes.chunks_exact(size).take(left) {
                let (key, value) = pair.split_at(KEY_SIZE);
                let is_deleted = value[8..HEAD_SIZE] == Row::DELETED.to_le_bytes();
                push(key, (!is_deleted).then_some(value))?;
            }
            left -= left.min(unit / size);
            spare = bytes;
        }
        ensure(left == 0, || format!("the input is short by {left} pairs"))
    }
}

/// Removes a folder with its contents, if it exists.
pub(crate) fn remove_all(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(crate::failure::Failure::io(folder.display(), "remove", &error))
        }
        _ => Ok(()),
    }
}
