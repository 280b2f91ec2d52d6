//! The three indexes of a data file behind one interface: from a hash to the place of its entry.

use super::{
    absent::{AbsentBits, AbsentBitsBuilder},
    bracket::Bracket,
    fences::{Fences, FencesBuilder},
    image::{Image, IndexBytes, Sections},
    layout::{Layout, Position},
    locations::{Locations, LocationsBuilder},
    options::{BUCKET_SIZE_OF_LARGE_ENTRIES, IndexChoice, IndexOptions},
    trie::{Marks, Trie, TrieBuilder},
};
use crate::{
    error::{Error, Result},
    key::KeyHash,
};
use std::{ops::Range, sync::Arc};

/// The role of the index file in the manifest.
pub(super) const INDEX_ROLE: &str = "index";

/// Properties of the data that are known before the data file is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) layout: Layout,
    pub(super) entries: u64,
    pub(super) blocks: u64,
}

impl Expected {
    /// Returns the options with the kind of index that suits these data, if none is named: fences where a
    /// block holds many entries, else a dense trie with small buckets.
    pub(super) fn choose(&self, options: &IndexOptions) -> IndexOptions {
        /// Minimum of entries per block for fences. Below it, the dense trie takes little more
        /// memory and never reads a second block.
        const ENTRIES_A_BLOCK_FOR_FENCES: u64 = 8;
        let has_small_entries = self.entries >= ENTRIES_A_BLOCK_FOR_FENCES * self.blocks;
        let (choice, bucket_size) = match options.choice {
            IndexChoice::Auto if !has_small_entries => {
                (IndexChoice::Dense, options.bucket_size.min(BUCKET_SIZE_OF_LARGE_ENTRIES))
            }
            IndexChoice::Auto if options.absent_bits > 0 => {
                (IndexChoice::Dense, options.bucket_size)
            }
            IndexChoice::Auto => (IndexChoice::Fences, options.bucket_size),
            choice => (choice, options.bucket_size),
        };
        IndexOptions { choice, bucket_size, ..*options }
    }

    fn locations(&self) -> Option<LocationsBuilder> {
        let arithmetic = self.layout.entry_size().is_some();
        (!arithmetic).then(|| LocationsBuilder::new(self.entries, self.blocks))
    }
}

/// A builder of any index, which takes one entry at a time.
#[derive(Debug)]
pub(super) enum IndexBuilder {
    Trie {
        trie: Box<TrieBuilder>,
        is_dense: bool,
        locations: Option<LocationsBuilder>,
        fingerprints: Option<AbsentBitsBuilder>,
    },
    Fences(FencesBuilder),
}

impl IndexBuilder {
    pub(super) fn new(options: &IndexOptions, expected: &Expected) -> IndexBuilder {
        let options = expected.choose(options);
        if options.choice == IndexChoice::Fences {
            return IndexBuilder::Fences(FencesBuilder::new(expected.entries, expected.blocks));
        }
        let is_dense = options.choice != IndexChoice::Sparse;
        let absent_bits = Some(options.absent_bits).filter(|&bits| bits > 0 && is_dense);
        IndexBuilder::Trie {
            trie: Box::new(TrieBuilder::new(options.trie(), expected.entries, !is_dense)),
            is_dense,
            locations: expected.locations(),
            fingerprints: absent_bits.map(AbsentBitsBuilder::new),
        }
    }

    /// Adds the next entry, which starts in this block.
    #[inline]
    pub(super) fn push(&mut self, hash: KeyHash, block: u64) {
        match self {
            IndexBuilder::Fences(fences) => fences.push(hash, block),
            IndexBuilder::Trie { trie, locations, fingerprints, .. } => {
                trie.push(hash, block);
                locations.iter_mut().for_each(|locations| locations.push(block));
                fingerprints.iter_mut().for_each(|fingerprints| fingerprints.push(hash));
            }
        }
    }

    pub(super) fn finish(self) -> Image {
        let mut image = Image::default();
        match self {
            IndexBuilder::Trie { trie, is_dense, locations, fingerprints } => {
                image.field(if is_dense { DENSE } else { SPARSE });
                image.field(u64::from(locations.is_some()));
                if is_dense {
                    image.field(u64::from(fingerprints.is_some()));
                }
                trie.finish(&mut image);
                locations.into_iter().for_each(|locations| locations.finish(&mut image));
                fingerprints.into_iter().for_each(|fingerprints| fingerprints.finish(&mut image));
            }
            IndexBuilder::Fences(fences) => {
                image.field(FENCES);
                fences.finish(&mut image);
            }
        }
        image
    }
}

const DENSE: u64 = 1;
const SPARSE: u64 = 2;
const FENCES: u64 = 3;

/// Properties of the data file that an index is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Indexed {
    pub(super) layout: Layout,
    pub(super) entries: u64,
    pub(super) blocks: u64,
    /// Whether any entry continues in a second block.
    pub(super) straddles: bool,
}

/// The place where a lookup continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LookupTarget {
    /// The key is not in the table.
    Nowhere,
    /// If the key is in the table, its entry starts at this position and lies in these blocks.
    At(Position, Range<u64>),
    /// If the key is in the table, its entry starts in one of these blocks.
    In(Range<u64>),
    /// If the key is in the table, its entry starts in the first of these blocks or in an earlier one.
    UpTo(Range<u64>),
    /// If the key is in the table, its entry starts between two blocks: there is no index.
    Between(Bracket),
}

impl LookupTarget {
    /// Returns the place of an entry at a position that follows from its rank.
    #[inline]
    pub(super) fn at(position: Position, layout: &Layout) -> LookupTarget {
        let last = layout.entry_size().unwrap_or(1) as u64 - 1;
        let end = layout.step(position, last, layout.block_size).block + 1;
        LookupTarget::At(position, position.block..end)
    }
}

/// A [`LookupTarget`] in a mapped file, in few bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The key is not in the table.
    Nowhere,
    /// If the key is in the table, its entry starts at this position.
    At(Position),
    /// If the key is in the table, its entry starts in this block.
    In(u64),
    /// If the key is in the table, its entry starts in this block or an earlier one.
    UpTo(u64),
    /// If the key is in the table, its entry starts in one of several blocks.
    Several,
}

impl From<LookupTarget> for Place {
    #[inline]
    fn from(target: LookupTarget) -> Place {
        match target {
            LookupTarget::Nowhere => Place::Nowhere,
            LookupTarget::At(position, _) => Place::At(position),
            LookupTarget::In(blocks) if blocks.end - blocks.start == 1 => Place::In(blocks.start),
            LookupTarget::UpTo(blocks) => Place::UpTo(blocks.start),
            LookupTarget::In(_) | LookupTarget::Between(_) => Place::Several,
        }
    }
}

/// An index in memory.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) parts: Parts,
    bytes: Arc<dyn IndexBytes>,
    data: Indexed,
}

#[derive(Debug)]
pub(super) enum Parts {
    Trie(TrieParts),
    Fences(Fences),
}

/// A trie, and what leads from its ranks to blocks.
#[derive(Debug)]
pub(super) struct TrieParts {
    pub(super) trie: Trie,
    /// Whether the trie gives the rank of each key; otherwise it gives the ranks of a block.
    pub(super) is_dense: bool,
    /// The blocks of the ranks, unless they can be computed.
    pub(super) locations: Option<Locations>,
    pub(super) fingerprints: Option<AbsentBits>,
}

impl Index {
    /// Reads an index from the fields and the body of its file.
    pub(super) fn open(fields: &[u8], bytes: Arc<dyn IndexBytes>, data: Indexed) -> Result<Index> {
        let (mut fields, mut sections) = Sections::split(fields, bytes.bytes())?;
        let kind = fields.u64()?;
        let parts = match kind {
            DENSE | SPARSE => {
                let is_dense = kind == DENSE;
                let has_locations = flag(&mut fields)?;
                let has_fingerprints = is_dense && flag(&mut fields)?;
                let trie = open_trie(&mut fields, &mut sections, &data)?;
                let locations = has_locations
                    .then(|| Locations::open(&mut fields, &mut sections))
                    .transpose()?;
                let fingerprints = has_fingerprints
                    .then(|| AbsentBits::open(&mut fields, &mut sections, data.entries))
                    .transpose()?;
                Parts::Trie(TrieParts { trie, is_dense, locations, fingerprints })
            }
            FENCES => Parts::Fences(Fences::open(&mut fields, &mut sections)?),
            other => return Err(Error::field("kind of index", "1 to 3", other)),
        };
        fields.end()?;
        let index = Index { parts, bytes, data };
        index.check_locations()?;
        Ok(index)
    }

    fn check_locations(&self) -> Result<()> {
        let Parts::Trie(TrieParts { locations, .. }) = &self.parts else { return Ok(()) };
        let needed = self.data.layout.entry_size().is_none();
        if locations.is_some() == needed {
            return Ok(());
        }
        Err(Error::field("locations", format!("{needed}"), format!("{}", locations.is_some())))
    }

    /// Returns the place of a key with this hash.
    pub(super) fn target(&self, hash: KeyHash) -> LookupTarget {
        if self.data.entries == 0 {
            return LookupTarget::Nowhere;
        }
        let bytes = self.bytes.bytes();
        match &self.parts {
            Parts::Trie(parts) if parts.is_dense => {
                self.dense_target(parts, hash, parts.trie.ranks(bytes, hash))
            }
            Parts::Trie(TrieParts { trie, locations, .. }) => {
                let mark = |ranks: Range<u64>, marks: &mut Marks| {
                    self.mark(locations.as_ref(), ranks, marks);
                };
                self.blocks_of(locations.as_ref(), trie.span(bytes, hash, mark))
            }
            Parts::Fences(fences) => self.fenced(fences.block(bytes, hash)),
        }
    }

    /// Returns the places of keys with these hashes; the cache misses of many keys overlap.
    pub(super) fn targets(&self, hashes: &[KeyHash]) -> Vec<LookupTarget> {
        let mut targets = Vec::with_capacity(hashes.len());
        self.each_target(hashes, |_, target| targets.push(target));
        targets
    }

    /// Calls `visit` with the place of each key with one of these hashes.
    #[inline]
    fn each_target(&self, hashes: &[KeyHash], mut visit: impl FnMut(usize, LookupTarget)) {
        match &self.parts {
            Parts::Trie(parts) if parts.is_dense && self.data.entries > 0 => {
                parts.trie.ranks_many(self.bytes.bytes(), hashes, |i, ranks| {
                    visit(i, self.dense_target(parts, hashes[i], ranks));
                });
            }
            Parts::Fences(fences) if self.data.entries > 0 => {
                let bytes = self.bytes.bytes();
                for (i, hash) in hashes.iter().enumerate() {
                    visit(i, self.fenced(fences.block(bytes, *hash)));
                }
            }
            _ => hashes.iter().enumerate().for_each(|(i, hash)| visit(i, self.target(*hash))),
        }
    }

    /// Returns the place of a key with this hash in a mapped file, and the part of the block, in units of
    /// 1 / 256, that probably comes before its entry, if the index tells.
    #[inline]
    pub(super) fn place_and_part(&self, hash: KeyHash) -> (Place, Option<u8>) {
        match &self.parts {
            Parts::Fences(fences) if self.data.entries > 0 => {
                let (block, part) = fences.block_and_part(self.bytes.bytes(), hash);
                (self.fenced(block).into(), part)
            }
            _ => (self.target(hash).into(), None),
        }
    }

    /// Writes the places of keys with these hashes in a mapped file to `places`.
    pub(super) fn places(&self, hashes: &[KeyHash], places: &mut [Place]) {
        self.each_target(hashes, |i, target| places[i] = target.into());
    }

    #[inline]
    fn fenced(&self, block: u64) -> LookupTarget {
        let block = block.min(self.data.blocks.saturating_sub(1));
        LookupTarget::UpTo(block..block + 1)
    }

    #[inline]
    fn dense_target(&self, parts: &TrieParts, hash: KeyHash, ranks: Range<u64>) -> LookupTarget {
        let TrieParts { locations, fingerprints, .. } = parts;
        if ranks.is_empty() {
            return LookupTarget::Nowhere;
        }
        if ranks.end - ranks.start > 1 {
            return self.blocks_of(locations.as_ref(), ranks);
        }
        let rank = ranks.start;
        if let Some(fingerprints) = fingerprints
            && !fingerprints.may_be(self.bytes.bytes(), rank, hash)
        {
            return LookupTarget::Nowhere;
        }
        match self.data.layout.position(rank) {
            Some(position) => LookupTarget::at(position, &self.data.layout),
            None => self.blocks_of(locations.as_ref(), ranks),
        }
    }

    /// Returns the blocks in which the entries with these ranks lie.
    fn blocks_of(&self, locations: Option<&Locations>, ranks: Range<u64>) -> LookupTarget {
        if ranks.is_empty() {
            return LookupTarget::Nowhere;
        }
        let start = self.block(locations, ranks.start);
        let last_start = match ranks.end - ranks.start {
            1 => start,
            _ => self.block(locations, ranks.end - 1),
        };
        // The last of these entries ends before the next one starts, in the same block or an
        // earlier one.
        let last = if !self.data.straddles {
            last_start
        } else if ranks.end < self.data.entries {
            self.block(locations, ranks.end)
        } else {
            self.data.blocks.saturating_sub(1)
        };
        let end = last.saturating_add(1).min(self.data.blocks);
        if start < end { LookupTarget::In(start..end) } else { LookupTarget::Nowhere }
    }

    /// Returns the block in which the entry with this rank starts.
    fn block(&self, locations: Option<&Locations>, rank: u64) -> u64 {
        match locations {
            Some(locations) => locations.block(self.bytes.bytes(), rank),
            None => self.data.layout.position(rank).map_or(0, |position| position.block),
        }
    }

    fn mark(&self, locations: Option<&Locations>, ranks: Range<u64>, marks: &mut Marks) {
        if ranks.is_empty() {
            return;
        }
        if let Some(locations) = locations {
            let first = ranks.start;
            locations.starts(self.bytes.bytes(), ranks, |rank| {
                if rank > first {
                    marks.add(rank);
                }
            });
            return;
        }
        if let Some(count) = self.data.layout.entries_per_block() {
            let mut start = (ranks.start / count + 1) * count;
            while start < ranks.end {
                marks.add(start);
                start += count;
            }
            return;
        }
        let mut last = self.block(None, ranks.start);
        for rank in ranks.start + 1..ranks.end {
            let block = self.block(None, rank);
            if block != last {
                marks.add(rank);
            }
            last = block;
        }
    }

    /// Whether the index places an entry with this rank and hash at this position.
    pub(super) fn agrees(&self, rank: u64, hash: KeyHash, at: Position) -> bool {
        match self.target(hash) {
            LookupTarget::Nowhere => false,
            LookupTarget::At(position, _) => position == at,
            LookupTarget::In(blocks) => {
                blocks.contains(&at.block)
                    && match &self.parts {
                        Parts::Trie(TrieParts { trie, is_dense: true, .. }) => {
                            trie.ranks(self.bytes.bytes(), hash).contains(&rank)
                        }
                        _ => true,
                    }
            }
            LookupTarget::UpTo(blocks) => at.block <= blocks.start,
            LookupTarget::Between(_) => unreachable!("an index leads to blocks"),
        }
    }

    /// Whether bytes of a mapped index are known to be lost.
    #[inline]
    pub(super) fn is_lost(&self) -> bool {
        self.bytes.is_lost()
    }

    /// Checks the bytes of a mapped index after they were used.
    #[inline]
    pub(super) fn check_map(&self) -> Result<()> {
        self.bytes.check()
    }

    pub(super) fn size(&self) -> u64 {
        self.bytes.bytes().len() as u64
    }
}

fn flag(fields: &mut crate::codec::Decoder<'_>) -> Result<bool> {
    match fields.u64()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Error::field("flag", "0 or 1", other)),
    }
}

fn open_trie(
    fields: &mut crate::codec::Decoder<'_>,
    sections: &mut Sections<'_>,
    data: &Indexed,
) -> Result<Trie> {
    let trie = Trie::open(fields, sections)?;
    if trie.keys != data.entries {
        return Err(Error::field("keys of the index", data.entries.to_string(), trie.keys));
    }
    Ok(trie)
}
