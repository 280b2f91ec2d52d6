//! A run of fingerprints on flash.
//!
//! A run is a framed file: blocks of 4096 bytes (see `filter::block`), then the index, then the
//! footer. These tables also stand in `docs/formats/cascade.md`. The file's id is the filter's id
//! plus the run's number, wrapping. The index:
//!
//! | field  | size |                                                                      |
//! |--------|-----:|----------------------------------------------------------------------|
//! | prefix |    4 | for each block: the first 32 bits of its first fingerprint           |
//! | zeros  |    … | padding to a multiple of 4096 bytes                                  |
//!
//! The width of a fingerprint, from which its first 32 bits are taken, is that of the largest
//! possible fingerprint. The fields of the footer:
//!
//! | field     | size |                                                                       |
//! |-----------|-----:|-----------------------------------------------------------------------|
//! | last      |    8 | the largest possible fingerprint                                      |
//! | blocks    |    8 | number of blocks                                                      |
//! | items     |    8 | number of fingerprints                                                |
//! | counted   |    8 | number of fingerprints whose count is not 1                           |
//! | negative  |    8 | number of fingerprints whose count is negative                        |
//! | index_sum |    4 | CRC-32C of the index, padding included                                |
//! | since     |    8 | generation of the manifest that was current when the run was begun    |

use super::{
    key_range::KeyRange,
    resident::{IndexClaim, MemoryBudget, Resident},
};
use crate::{
    checksum::{crc32c, crc32c_append},
    codec::{Decoder, within},
    error::{Error, Place, Result, check_same, check_sum},
    filter::{
        block::{BLOCK_SIZE, Block, Bytes, ITEMS_MAX, unseal},
        index::BlockIndex,
        pack::{BlockSink, Packer},
    },
    fingerprints::{FingerprintBatch, Universe},
    folder,
    io::{
        ALIGNMENT, Access, BlockFile, Buffer, Disk, Extent, Seal, Writer,
        frame::{FileKind, Footer, Header},
    },
    key::Seed,
    work::Executor,
};
use std::{
    ops::Range,
    path::Path,
    sync::{Arc, Mutex},
};

const _: () = assert!(BLOCK_SIZE == ALIGNMENT);

/// Returns the file name of the run with this number.
pub(super) fn name(number: u64) -> String {
    format!("run-{number:010}")
}

/// The facts about a run that its footer holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) blocks: u64,
    /// Number of fingerprints.
    pub(super) items: u64,
    /// Number of fingerprints with a count other than 1.
    pub(super) counted: u64,
    /// Number of fingerprints with a count below 0.
    pub(super) negative: u64,
}

impl Facts {
    /// Checks that a file of this size can have this content.
    fn check(&self, file_size: u64) -> Result<()> {
        // Lookups store block numbers in 32 bits.
        let blocks_max = (file_size / BLOCK_SIZE as u64).min(u32::MAX.into());
        let items_max = self.blocks.saturating_mul(ITEMS_MAX as u64);
        within("blocks", 0..=blocks_max, self.blocks)?;
        within("fingerprints", self.blocks..=items_max, self.items)?;
        within("fingerprints with counts", 0..=self.items, self.counted)?;
        within("fingerprints with counts below 0", 0..=self.counted, self.negative)?;
        Ok(())
    }

    pub(super) fn add(&mut self, items: &FingerprintBatch) {
        self.items += items.len() as u64;
        self.counted += items.exceptions.len() as u64;
        self.negative += items.exceptions.iter().filter(|it| it.count < 0).count() as u64;
    }
}

/// An open run file.
#[derive(Debug)]
pub(super) struct RunFile {
    pub(super) name: RunName,
    pub(super) file: Arc<dyn BlockFile>,
    /// Size of the file, in bytes.
    pub(super) file_size: u64,
    pub(super) facts: Facts,
    pub(super) index: BlockIndex,
    /// The claim on the memory of the index.
    _claim: IndexClaim,
    resident: Mutex<Option<Arc<Resident>>>,
}

/// The identity of a run: its filter and its number.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunName {
    pub(super) seed: Seed,
    /// Id of the filter.
    pub(super) id: u64,
    pub(super) universe: Universe,
    pub(super) number: u64,
}

impl RunName {
    fn file_id(self) -> u64 {
        self.id.wrapping_add(self.number)
    }
}

impl RunFile {
    /// Opens a run file and reads its index, thinned out as the budget requires.
    pub(super) fn open(
        disk: &dyn Disk,
        folder: &Path,
        name: RunName,
        access: Access,
        budget: &Arc<MemoryBudget>,
    ) -> Result<RunFile> {
        let path = folder.join(self::name(name.number));
        let file = folder::open_file(disk, &path, access, "run of the filter")?;
        Header::read_of(&*file, FileKind::FilterRun, name.seed, name.file_id())?;
        let at = |error: Error| error.at(file.place());
        let (footer, footer_start) = Footer::read(&*file)?;
        let Fields { universe, facts, index_sum, .. } = decode(&footer.fields).map_err(at)?;
        check_same("largest fingerprint", name.universe.last(), universe).map_err(at)?;
        facts.check(file.size()?).map_err(at)?;
        let index_start = ALIGNMENT as u64 + facts.blocks * BLOCK_SIZE as u64;
        let index_size = (facts.blocks * 4).next_multiple_of(ALIGNMENT as u64);
        if index_start + index_size != footer_start {
            let expected = format!("those before byte {footer_start}");
            return Err(at(Error::field("blocks", expected, facts.blocks)));
        }
        let index = read_index(&*file, index_start, index_size, index_sum, &facts, name.universe)?;
        let file_size = file.size()?;
        let (index, claim) = fitted(index, budget);
        Ok(RunFile {
            name,
            file,
            file_size,
            facts,
            index,
            _claim: claim,
            resident: Mutex::default(),
        })
    }

    pub(super) fn number(&self) -> u64 {
        self.name.number
    }

    pub(super) fn place(&self) -> &Place {
        self.file.place()
    }

    /// Returns the part of the run that is kept in memory.
    pub(super) fn resident(&self) -> Option<Arc<Resident>> {
        self.resident.lock().expect("nothing panics under this lock").clone()
    }

    pub(super) fn set_resident(&self, resident: Option<Resident>) {
        let resident = resident.map(Arc::new);
        *self.resident.lock().expect("nothing panics under this lock") = resident;
    }

    /// Returns the number of fingerprints in the blocks of a key range.
    pub(super) fn items_in(&self, range: KeyRange) -> u64 {
        let Facts { blocks, items, .. } = self.facts;
        let blocks_here = u128::from(self.blocks_in(range).count() as u64);
        (blocks_here * u128::from(items)).checked_div(blocks.into()).unwrap_or(0) as u64
    }

    /// Returns the blocks that may have fingerprints of a key range.
    pub(super) fn blocks_in(&self, range: KeyRange) -> Range<u64> {
        let first = self.index.candidates(range.first).start as u64;
        let end = (self.index.candidates(range.last).end as u64).min(self.facts.blocks);
        first.min(end)..end
    }

    /// Returns the place of these blocks in the file.
    pub(super) fn extent(&self, first: u64, count: u64) -> Extent {
        let size = BLOCK_SIZE as u64;
        Extent { offset: ALIGNMENT as u64 + first * size, len: (count * size) as usize }
    }

    /// Checks the checksum of a block that was read, and returns the block.
    pub(super) fn block<'a>(&self, number: u64, bytes: &'a [u8]) -> Result<Block<'a>> {
        unseal(bytes, number, self.name.file_id())
            .map_err(|error| error.at(&self.place().offset(self.extent(number, 1).offset)))
    }
}

/// Thins out the index as far as the memory budget requires; returns the index and its claim.
fn fitted(index: BlockIndex, budget: &Arc<MemoryBudget>) -> (BlockIndex, IndexClaim) {
    let full = BlockIndex::bytes_of(index.prefixes().len());
    let index = index.thin(budget.index_stride(full));
    let claim = budget.claim_index(index.bytes());
    (index, claim)
}

fn read_index(
    file: &dyn BlockFile,
    start: u64,
    size: u64,
    expected: u32,
    facts: &Facts,
    universe: Universe,
) -> Result<BlockIndex> {
    let mut bytes = Buffer::zeroed(size as usize);
    file.read_at(start, &mut bytes)?;
    let at = |error: Error| error.at(&file.place().offset(start));
    check_sum(expected, crc32c(&bytes)).map_err(at)?;
    let prefixes = bytes.as_chunks::<4>().0.iter().map(|prefix| u32::from_le_bytes(*prefix));
    let prefixes: Vec<u32> = prefixes.take(facts.blocks as usize).collect();
    BlockIndex::from_prefixes(universe, prefixes).map_err(at)
}

/// The fields of the footer.
struct Fields {
    /// The largest possible fingerprint.
    universe: u64,
    facts: Facts,
    index_sum: u32,
    since: u64,
}

fn decode(fields: &[u8]) -> Result<Fields> {
    let mut fields = Decoder::new(fields);
    let universe = fields.u64()?;
    let facts = Facts {
        blocks: fields.u64()?,
        items: fields.u64()?,
        counted: fields.u64()?,
        negative: fields.u64()?,
    };
    let (index_sum, since) = (fields.u32()?, fields.u64()?);
    fields.end()?;
    Ok(Fields { universe, facts, index_sum, since })
}

/// Returns the generation of the manifest that was current when a run was begun; `None` if there is
/// no complete run of the filter with this number.
pub(super) fn since(disk: &dyn Disk, folder: &Path, name: RunName) -> Option<u64> {
    let file = disk.open(&folder.join(self::name(name.number)), Access::Cached).ok()?;
    Header::read_of(&*file, FileKind::FilterRun, name.seed, name.file_id()).ok()?;
    let (footer, _) = Footer::read(&*file).ok()?;
    decode(&footer.fields).ok().map(|fields| fields.since)
}

/// Writes a run from front to back.
pub(super) struct RunWriter {
    name: RunName,
    packer: Packer,
    sink: Sink,
    facts: Facts,
    /// Generation of the manifest that was current when the run was begun.
    since: u64,
}

struct Sink {
    id: u64,
    writer: Writer,
    file: Arc<dyn BlockFile>,
    index: BlockIndex,
    budget: Arc<MemoryBudget>,
    /// The claim on the memory of the growing index.
    claim: IndexClaim,
    blocks: u64,
    resident: Option<Resident>,
}

/// Number of blocks after which the memory of a growing index is counted again.
const INDEX_STEP: u64 = 1 << 10;

impl BlockSink for Sink {
    fn take(&mut self, first: u64, block: &mut Bytes) -> Result<()> {
        Seal::of(self.blocks, self.id).put(block);
        self.blocks += 1;
        self.index.push(first);
        if self.blocks.is_multiple_of(INDEX_STEP) {
            self.claim.set(self.index.bytes());
        }
        if let Some(resident) = &mut self.resident {
            resident.take_block(first, block);
        }
        self.writer.append(block)
    }
}

impl RunWriter {
    /// Creates a file, begun when the manifest of the generation `since` was current. `resident`
    /// takes the part of the run that stays in memory, and `budget` counts the index.
    pub(super) fn create(
        (disk, folder): (&dyn Disk, &Path),
        (name, since): (RunName, u64),
        resident: Option<Resident>,
        budget: &Arc<MemoryBudget>,
        executor: Arc<dyn Executor>,
    ) -> Result<RunWriter> {
        let file = disk.create(&folder.join(self::name(name.number)), Access::Direct)?;
        let id = name.file_id();
        let mut writer = Writer::new(file.clone(), executor);
        writer.append(&Header::new(FileKind::FilterRun, name.seed, id).encode())?;
        let index = BlockIndex::new(name.universe);
        let packer = Packer::new(name.universe, index.cut_shift());
        let (budget, claim) = (budget.clone(), budget.claim_index(0));
        let sink = Sink { id, writer, file, index, budget, claim, blocks: 0, resident };
        Ok(RunWriter { name, packer, sink, facts: Facts::default(), since })
    }

    /// Returns the number of fingerprints so far.
    pub(super) fn items(&self) -> u64 {
        self.facts.items
    }

    /// Writes the next items.
    pub(super) fn push(&mut self, items: &FingerprintBatch) -> Result<()> {
        self.facts.add(items);
        if let Some(resident) = &mut self.sink.resident {
            resident.take_items(items)?;
        }
        self.packer.push(items, &mut self.sink)
    }

    /// Finishes the file and syncs it; the caller must sync its name.
    pub(super) fn finish(
        mut self,
        disk: &dyn Disk,
        folder: &Path,
        access: Access,
    ) -> Result<RunFile> {
        self.packer.finish(&mut self.sink)?;
        let Sink { mut writer, file, index, budget, claim, blocks, resident, .. } = self.sink;
        let facts = Facts { blocks, ..self.facts };
        let index_sum = write_index(&index, &mut writer)?;
        let mut fields = Vec::new();
        let Facts { items, counted, negative, .. } = facts;
        for field in [self.name.universe.last(), blocks, items, counted, negative] {
            fields.extend(field.to_le_bytes());
        }
        fields.extend(index_sum.to_le_bytes());
        fields.extend(self.since.to_le_bytes());
        let footer = Footer { fields, body_sum: 0 }.encode(writer.position());
        writer.append(&footer)?;
        let file_size = writer.position();
        writer.finish()?;
        file.sync()?;
        drop(file);
        let file = disk.open(&folder.join(name(self.name.number)), access)?;
        let resident = resident.map(Resident::finish).transpose()?.flatten();
        let resident = Mutex::new(resident.map(Arc::new));
        drop(claim);
        let (index, claim) = fitted(index, &budget);
        Ok(RunFile { name: self.name, file, file_size, facts, index, _claim: claim, resident })
    }
}

/// Writes an index and its padding, piece by piece; returns their checksum.
fn write_index(index: &BlockIndex, writer: &mut Writer) -> Result<u32> {
    let mut sum = crc32c(b"");
    let mut bytes = Vec::new();
    for prefixes in index.prefixes().chunks(ALIGNMENT / size_of::<u32>()) {
        bytes.clear();
        bytes.extend(prefixes.iter().flat_map(|prefix| prefix.to_le_bytes()));
        bytes.resize(ALIGNMENT, 0);
        sum = crc32c_append(sum, &bytes);
        writer.append(&bytes)?;
    }
    Ok(sum)
}
