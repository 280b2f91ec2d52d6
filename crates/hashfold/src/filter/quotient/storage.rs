//! The storage of a filter's bytes: memory or a file.

use crate::{
    codec::Decoder,
    io::{BlockFile, Buffer},
};
use std::{collections::BTreeMap, ops::Range, sync::Arc};

/// The storage of a filter's bytes: [`Memory`] or [`InFile`].
pub trait Storage: Send + Sync {
    /// Returns all blocks.
    fn blocks(&self) -> &[u8];

    /// Returns the number of copies of a fingerprint beyond those in slots.
    fn more(&self, fingerprint: u64) -> u64;

    /// Returns all fingerprints with copies beyond those in slots, in ascending order, with the
    /// number of these copies.
    fn all_more(&self) -> Box<dyn Iterator<Item = (u64, u64)> + '_>;
}

/// The storage of a filter in memory, which can be changed.
#[derive(Debug)]
pub struct Memory {
    pub(super) blocks: Buffer,
    /// The numbers of copies beyond those in slots, by fingerprint.
    pub(super) more: BTreeMap<u64, u64>,
}

impl Storage for Memory {
    #[inline(always)]
    fn blocks(&self) -> &[u8] {
        &self.blocks
    }

    fn more(&self, fingerprint: u64) -> u64 {
        self.more.get(&fingerprint).copied().unwrap_or(0)
    }

    fn all_more(&self) -> Box<dyn Iterator<Item = (u64, u64)> + '_> {
        Box::new(self.more.iter().map(|(&fingerprint, &more)| (fingerprint, more)))
    }
}

/// The storage of a filter in a file, which is mapped or was read. It never changes, and its bytes
/// are not trusted.
#[derive(Debug)]
pub struct InFile {
    pub(super) file: Arc<dyn BlockFile>,
    /// The file's bytes, if it is not mapped.
    pub(super) read: Option<Buffer>,
    pub(super) blocks: Range<usize>,
    pub(super) more: Range<usize>,
    /// The range of the body in the file, and its checksum.
    pub(super) body: Range<usize>,
    pub(super) body_sum: u32,
    pub(super) id: u64,
}

/// Size of a fingerprint and its number of further copies in a file, in bytes.
pub(super) const MORE_BYTES: usize = 16;

impl InFile {
    fn part(&self, range: &Range<usize>) -> &[u8] {
        let all = match &self.read {
            Some(read) => read,
            None => self.file.mapped().unwrap_or(&[]),
        };
        &all[range.clone()]
    }

    /// Returns all bytes that the checksum covers.
    pub(super) fn body(&self) -> &[u8] {
        self.part(&self.body)
    }

    fn entries(&self) -> &[[u8; MORE_BYTES]] {
        self.part(&self.more).as_chunks().0
    }
}

fn decode(entry: &[u8; MORE_BYTES]) -> (u64, u64) {
    let mut fields = Decoder::new(entry);
    let mut field = || fields.u64().expect("an entry has two fields");
    (field(), field())
}

impl Storage for InFile {
    #[inline(always)]
    fn blocks(&self) -> &[u8] {
        self.part(&self.blocks)
    }

    fn more(&self, fingerprint: u64) -> u64 {
        let entries = self.entries();
        let found = entries.binary_search_by_key(&fingerprint, |entry| decode(entry).0);
        found.map_or(0, |i| decode(&entries[i]).1)
    }

    fn all_more(&self) -> Box<dyn Iterator<Item = (u64, u64)> + '_> {
        Box::new(self.entries().iter().map(decode))
    }
}
