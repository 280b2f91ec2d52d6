//! Looking up hashes in a trie.

use super::{
    bits::PADDING,
    code::CODING_LIMIT_MAX,
    decode,
    directory::{
        Address, BUCKET_SIZE_MAX, EPOCH, EPOCH_SIZE, EXPLICIT_SIZE, Explicit, HASH_SIZE, LINE_SIZE,
        Line, Scale, TrieBucket,
    },
    kernel::{BitOps, Portable},
    marks::Marks,
    tables::Tables,
};
#[cfg(target_arch = "x86_64")]
use crate::cpu::Instructions;
use crate::{
    codec::{Decoder, within},
    error::{Error, Result},
    key::KeyHash,
    run::prefetch::prefetch,
    table::{
        image::Sections,
        options::{IndexChoice, IndexStats},
    },
};
use std::{ops::Range, sync::Arc};

/// The instructions that lookups use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Machine {
    Portable,
    #[cfg(target_arch = "x86_64")]
    V3,
}

impl Machine {
    pub(super) fn best() -> Machine {
        #[cfg(target_arch = "x86_64")]
        if Instructions::in_use() >= Instructions::V3 {
            return Machine::V3;
        }
        Machine::Portable
    }
}

/// A trie in memory.
#[derive(Debug)]
pub(in crate::table) struct Trie {
    tables: Arc<Tables>,
    machine: Machine,
    superblocks: u64,
    pub(in crate::table) keys: u64,
    scale: Scale,
    lines: Range<usize>,
    epochs: Box<[(u64, u64)]>,
    explicit: Box<[Explicit]>,
    explicit_hashes: Range<usize>,
    code: Range<usize>,
}

/// Number of lookups whose cache misses overlap.
const GROUP: usize = 64;

impl Trie {
    /// Reads the fields and finds the sections that [`TrieBuilder::finish`] wrote.
    pub(in crate::table) fn open(
        fields: &mut Decoder<'_>,
        sections: &mut Sections<'_>,
    ) -> Result<Trie> {
        let superblocks = fields.u64()?;
        let keys = fields.u64()?;
        let bucket_size = small(fields, "bucket size", u64::from(BUCKET_SIZE_MAX))?;
        let slope = small(fields, "slope", 1 << 16)?;
        let coding_limit = small(fields, "coding limit", u64::from(CODING_LIMIT_MAX))?;
        let lines_size = superblocks.checked_mul(LINE_SIZE as u64).filter(|&size| size > 0);
        let Some(lines_size) = lines_size else {
            return Err(Error::field("superblocks", "at least 1", superblocks));
        };
        let lines = sections.next_of_size("lines", lines_size)?;
        let epochs =
            sections.next_of_size("epochs", superblocks.div_ceil(EPOCH) * EPOCH_SIZE as u64)?;
        let explicit = sections.next_section()?;
        let explicit_hashes = sections.next_section()?;
        let code = sections.next_section()?;
        let bytes = sections.bytes();
        if code.len() < 2 * PADDING || explicit_hashes.len() % HASH_SIZE != 0 {
            return Err(Error::field("code size", "padding at both ends", code.len()));
        }
        Ok(Trie {
            tables: Tables::new(coding_limit),
            machine: Machine::best(),
            superblocks,
            keys,
            scale: Scale { bucket_size, slope },
            lines,
            epochs: numbers(&bytes[epochs]).map(|[rank, bits]| (rank, bits)).collect(),
            explicit: numbers(&bytes[explicit])
                .map(|[superblock, first_rank, first_hash]| Explicit {
                    superblock,
                    first_rank,
                    first_hash,
                })
                .collect(),
            explicit_hashes,
            code,
        })
    }

    /// Returns the sizes of the trie's parts.
    pub(in crate::table) fn stats(&self, choice: IndexChoice) -> IndexStats {
        let tries =
            self.code.len() + self.explicit_hashes.len() + self.explicit.len() * EXPLICIT_SIZE;
        IndexStats {
            choice,
            bucket_size: self.scale.bucket_size,
            coded_bytes: tries as u64,
            directory_bytes: (self.lines.len() + self.epochs.len() * EPOCH_SIZE) as u64,
            explicit_superblocks: self.explicit.len() as u64,
            ..IndexStats::default()
        }
    }

    /// Returns the ranks that a hash may have in a dense trie: one, or several if keys agree in all
    /// 128 bits, or none if the hash is certainly absent. `bytes` is the body of the index.
    #[inline]
    pub(in crate::table) fn ranks(&self, bytes: &[u8], hash: KeyHash) -> Range<u64> {
        let address = Address::of(hash.high(), self.superblocks);
        let rank = match self.machine {
            Machine::Portable => self.rank::<Portable>(bytes, address),
            #[cfg(target_arch = "x86_64")]
            Machine::V3 => v3::rank(self, bytes, address),
        };
        match rank {
            Some(rank) => rank..(rank + 1).min(self.keys),
            None => self.listed(bytes, hash, address),
        }
    }

    /// Calls `visit` with the index of each hash and its [`Trie::ranks`]; the cache misses of many
    /// lookups overlap.
    pub(in crate::table) fn ranks_many(
        &self,
        bytes: &[u8],
        hashes: &[KeyHash],
        mut visit: impl FnMut(usize, Range<u64>),
    ) {
        let mut first = 0;
        for group in hashes.chunks(GROUP) {
            let visit = |i, ranks| visit(first + i, ranks);
            match self.machine {
                Machine::Portable => self.rank_group::<Portable>(bytes, group, visit),
                #[cfg(target_arch = "x86_64")]
                Machine::V3 => v3::rank_group(self, bytes, group, visit),
            }
            first += GROUP;
        }
    }

    #[inline(always)]
    fn line<'a>(&self, bytes: &'a [u8], superblock: u64) -> Line<'a> {
        let lines = bytes[self.lines.clone()].as_chunks::<LINE_SIZE>().0;
        Line(&lines[superblock as usize])
    }

    #[inline(always)]
    fn bucket<K: BitOps>(&self, bytes: &[u8], address: Address) -> Option<TrieBucket> {
        let line = self.line(bytes, address.superblock);
        let mut bucket = line.bucket::<K>(address.bucket, self.scale)?;
        let (rank, bits) = self.epochs[(address.superblock / EPOCH) as usize];
        bucket.first_rank = bucket.first_rank.wrapping_add(rank);
        bucket.start = bucket.start.wrapping_add(bits);
        bucket.end = bucket.end.wrapping_add(bits);
        Some(bucket)
    }

    #[inline(always)]
    fn rank<K: BitOps>(&self, bytes: &[u8], address: Address) -> Option<u64> {
        let bucket = self.bucket::<K>(bytes, address)?;
        let code = &bytes[self.code.clone()];
        let rank = decode::rank::<K>(&self.tables, code, bucket, address.fraction)?;
        Some((bucket.first_rank.wrapping_add(rank)).min(self.keys.saturating_sub(1)))
    }

    #[inline(always)]
    fn rank_group<K: BitOps>(
        &self,
        bytes: &[u8],
        hashes: &[KeyHash],
        mut visit: impl FnMut(usize, Range<u64>),
    ) {
        let code = &bytes[self.code.clone()];
        let mut addresses = [Address { superblock: 0, bucket: 0, fraction: 0 }; GROUP];
        let mut buckets = [None; GROUP];
        for (address, hash) in addresses.iter_mut().zip(hashes) {
            *address = Address::of(hash.high(), self.superblocks);
            prefetch(self.line(bytes, address.superblock).0, 0);
        }
        for (bucket, address) in buckets.iter_mut().zip(&addresses[..hashes.len()]) {
            *bucket = self.bucket::<K>(bytes, *address);
            if let Some(TrieBucket { start, end, .. }) = *bucket {
                for bit in [start, end] {
                    prefetch(code, bit as usize / 8 + PADDING / 2);
                }
            }
        }
        for (i, hash) in hashes.iter().enumerate() {
            let rank = buckets[i].and_then(|bucket: TrieBucket| {
                let fraction = addresses[i].fraction;
                let rank = decode::rank::<K>(&self.tables, code, bucket, fraction)?;
                Some(bucket.first_rank.wrapping_add(rank).min(self.keys.saturating_sub(1)))
            });
            let ranks = match rank {
                Some(rank) => rank..(rank + 1).min(self.keys),
                None => self.listed(bytes, *hash, addresses[i]),
            };
            visit(i, ranks);
        }
    }

    /// Returns the ranks of a hash in an explicit superblock.
    #[cold]
    fn listed(&self, bytes: &[u8], hash: KeyHash, address: Address) -> Range<u64> {
        let superblock = address.superblock;
        let Ok(at) = self.explicit.binary_search_by_key(&superblock, |e| e.superblock) else {
            return 0..0;
        };
        let hashes = bytes[self.explicit_hashes.clone()].as_chunks::<HASH_SIZE>().0;
        let start = (self.explicit[at].first_hash as usize).min(hashes.len());
        let end = self.explicit.get(at + 1).map_or(hashes.len(), |next| next.first_hash as usize);
        let hashes = hashes.get(start..end).unwrap_or(&[]);
        let value = |bytes: &[u8; HASH_SIZE]| u128::from_le_bytes(*bytes);
        let first = hashes.partition_point(|h| value(h) < hash.bits());
        let count = hashes[first..].partition_point(|h| value(h) == hash.bits());
        let rank = self.explicit[at].first_rank.saturating_add(first as u64);
        rank.min(self.keys)..rank.saturating_add(count as u64).min(self.keys)
    }

    /// Returns the ranks of keys that share a block with a key of this hash, in a sparse trie; none
    /// if the hash is certainly absent. `mark` marks the ranks of a bucket's keys, except the
    /// first, at which a block begins.
    pub(in crate::table) fn span(
        &self,
        bytes: &[u8],
        hash: KeyHash,
        mark: impl FnOnce(Range<u64>, &mut Marks),
    ) -> Range<u64> {
        let address = Address::of(hash.high(), self.superblocks);
        let Some(bucket) = self.bucket::<Portable>(bytes, address) else {
            return self.listed(bytes, hash, address);
        };
        let rank = |i: usize| bucket.first_rank.saturating_add(i as u64).min(self.keys);
        let mut marks = Marks::new(bucket.first_rank);
        mark(rank(0)..rank(bucket.keys), &mut marks);
        let code = &bytes[self.code.clone()];
        decode::span(&self.tables, code, bucket, address.fraction, &marks)
            .map_or(0..0, |ranks| rank(ranks.start)..rank(ranks.end))
    }

    /// Disables the processor's special instructions.
    #[cfg(test)]
    pub(super) fn portable(mut self) -> Trie {
        self.machine = Machine::Portable;
        self
    }
}

/// Reads a number of at most `max`.
fn small(fields: &mut Decoder<'_>, what: &'static str, max: u64) -> Result<u32> {
    Ok(within(what, 0..=max, fields.u64()?)? as u32)
}

/// Returns rows of `N` numbers.
fn numbers<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u64; N]> {
    let (words, _) = bytes.as_chunks::<8>();
    let (rows, _) = words.as_chunks::<N>();
    rows.iter().map(|row| row.map(u64::from_le_bytes))
}

/// The lookup code, compiled for processors of the x86-64-v3 level.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod v3 {
    use super::{super::kernel::V3, Address, KeyHash, Machine, Range, Trie};

    #[inline]
    pub(super) fn rank(trie: &Trie, bytes: &[u8], address: Address) -> Option<u64> {
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
        fn compiled(trie: &Trie, bytes: &[u8], address: Address) -> Option<u64> {
            trie.rank::<V3>(bytes, address)
        }
        debug_assert_eq!(trie.machine, Machine::V3);
        // SAFETY: `Machine::best` found these features; nothing else makes a `Machine::V3`.
        unsafe { compiled(trie, bytes, address) }
    }

    pub(super) fn rank_group(
        trie: &Trie,
        bytes: &[u8],
        hashes: &[KeyHash],
        visit: impl FnMut(usize, Range<u64>),
    ) {
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
        fn compiled(
            trie: &Trie,
            bytes: &[u8],
            hashes: &[KeyHash],
            visit: impl FnMut(usize, Range<u64>),
        ) {
            trie.rank_group::<V3>(bytes, hashes, visit);
        }
        debug_assert_eq!(trie.machine, Machine::V3);
        // SAFETY: as above.
        unsafe { compiled(trie, bytes, hashes, visit) }
    }
}
