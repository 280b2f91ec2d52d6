//! The data file of a table: its writer, and its footer.
//!
//! The fields of the footer, 8 bytes each (`docs/formats/table.md` has the same table):
//!
//! | field          |                                                                       |
//! |----------------|-----------------------------------------------------------------------|
//! | block_size     | in bytes                                                              |
//! | key_size       | of each key in bytes; all ones if they differ                         |
//! | value_size     | of each value in bytes; all ones if they differ                       |
//! | arrangement    | 0 packed, 1 tagged, 2 slotted; in version 1 this field is missing     |
//! | entries        |                                                                       |
//! | blocks         |                                                                       |
//! | key_bytes      | of all keys together                                                  |
//! | value_bytes    | of all values together                                                |
//! | straddling     | number of entries that continue in a second block                     |

use super::{
    blocks::{Context, DataBlocks},
    checked::CheckedBlocks,
    index::Indexed,
    layout::{Arrangement, BLOCK_SIZE_MAX, BlockHead, Layout, Position},
    mapped::MappedBlocks,
    tags::tag_of,
};
use crate::{
    codec::{Decoder, write_varint},
    error::{Error, ErrorKind, Result},
    io::{
        ALIGNMENT, BlockFile, Buffer, Extent, Seal, UNIT_SIZE, Writer,
        frame::{FileKind, Footer, Header},
    },
    key::{KeyHash, Seed},
    options::Checks,
    run::{Entry, KEY_BYTES_MAX, SizeRange, Summary, VALUE_BYTES_MAX, check_sizes},
    work::{Executor, Watch},
};
use std::{ops::Range, sync::Arc};

/// The role of the data file in the manifest.
pub(super) const DATA_ROLE: &str = "data";

// A unit consists of whole blocks.
const _: () = assert!(UNIT_SIZE.is_multiple_of(BLOCK_SIZE_MAX));

/// Number of bytes that are brought into memory at once: a large page.
const WARM_PIECE: usize = 2 << 20;

/// The totals of a data file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) entries: u64,
    pub(super) blocks: u64,
    pub(super) key_bytes: u64,
    pub(super) value_bytes: u64,
    pub(super) straddling: u64,
}

/// The writer of a data file.
#[derive(Debug)]
pub(super) struct DataWriter {
    layout: Layout,
    file: Arc<dyn BlockFile>,
    /// The writer of the blocks. Checksums are computed in the background.
    writer: Writer,
    block: Vec<u8>,
    head: BlockHead,
    /// The position of the first free byte, and the end of the block's payload.
    next: Position,
    payload_end: usize,
    /// The offsets and the tags of the entries that start in the block, and the offset after the last
    /// of them, or 0 if it continues.
    starts: Vec<u16>,
    tags: Vec<u8>,
    end: u16,
    last: Option<KeyHash>,
    last_key: Vec<u8>,
    totals: Totals,
}

impl DataWriter {
    pub(super) fn new(
        file: Arc<dyn BlockFile>,
        executor: Arc<dyn Executor>,
        layout: Layout,
        header: &Header,
    ) -> Result<DataWriter> {
        let mut block = Buffer::zeroed(ALIGNMENT);
        block.copy_from_slice(&header.encode());
        file.write_at(0, &block)?;
        let (id, block_size) = (header.id, layout.block_size);
        let seal_all = move |offset: u64, unit: &mut [u8]| {
            let first = (offset - ALIGNMENT as u64) / block_size as u64;
            for (number, block) in (first..).zip(unit.chunks_exact_mut(block_size)) {
                Seal::of(number, id).put(block);
            }
        };
        let start = ALIGNMENT as u64;
        let writer = Writer::starting_at(start, file.clone(), executor, Arc::new(seal_all));
        Ok(DataWriter {
            layout,
            file,
            writer,
            block: vec![0; layout.block_size],
            head: BlockHead::default(),
            next: Position { block: 0, offset: layout.entries_start },
            payload_end: layout.payload_end(0),
            starts: Vec::new(),
            tags: Vec::new(),
            end: 0,
            last: None,
            last_key: Vec::new(),
            totals: Totals::default(),
        })
    }

    /// Appends an entry; returns the block in which it starts.
    #[inline]
    pub(super) fn push(&mut self, entry: &Entry<'_>, value: &[u8]) -> Result<u64> {
        if let Some(last) = self.last
            && (last, self.last_key.as_slice()) >= (entry.hash, entry.key)
        {
            return Err(ErrorKind::Order { previous: last, got: entry.hash }.into());
        }
        // A larger entry could be written, but not be read again.
        check_sizes(entry.key, Some(value))?;
        let size = self.layout.encoded_size(entry.key.len(), value.len());
        let (start, continues) = self.layout.place(self.next, self.head.count, size);
        if start.block > self.next.block {
            self.end_block()?;
        }
        self.begin(entry.hash, start.offset, (!continues).then_some(size));
        self.last = Some(entry.hash);
        self.last_key.clear();
        self.last_key.extend_from_slice(entry.key);
        self.write_sizes(entry.key.len(), value.len(), continues)?;
        self.write(entry.key)?;
        self.write(value)?;
        if self.layout.entry_size() == Some(1) && entry.key.is_empty() && value.is_empty() {
            // The empty entry takes one byte, so that every entry has a place of its own.
            self.write(&[0])?;
        }
        self.totals.entries += 1;
        self.totals.key_bytes += entry.key.len() as u64;
        self.totals.value_bytes += value.len() as u64;
        self.totals.straddling += u64::from(continues);
        Ok(start.block)
    }

    /// Notes in the block that an entry starts at `offset`. Its size is `None` if it continues.
    #[inline]
    fn begin(&mut self, hash: KeyHash, offset: usize, size: Option<usize>) {
        if self.head.count == 0 {
            self.head.first = offset;
        }
        self.head.count += 1;
        self.payload_end = self.layout.payload_end(self.head.count);
        if self.layout.arrangement != Arrangement::Packed {
            self.starts.push(offset as u16);
            self.tags.push(tag_of(hash));
            self.end = size.map_or(0, |size| (offset + size) as u16);
        }
    }

    fn write_sizes(&mut self, key: usize, value: usize, continues: bool) -> Result<()> {
        let offset = self.next.offset;
        let mut len = 0;
        if self.layout.key_size.is_none() {
            len += write_varint(&mut self.block[offset + len..], key as u64);
        }
        if self.layout.has_value_size(continues) {
            len += write_varint(&mut self.block[offset + len..], value as u64);
        }
        self.advance(len)
    }

    #[inline]
    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let free = &mut self.block[self.next.offset..self.payload_end];
            let len = free.len().min(bytes.len());
            free[..len].copy_from_slice(&bytes[..len]);
            bytes = &bytes[len..];
            self.advance(len)?;
        }
        Ok(())
    }

    #[inline]
    fn advance(&mut self, len: usize) -> Result<()> {
        self.next.offset += len;
        if self.next.offset == self.payload_end {
            self.end_block()?;
        }
        Ok(())
    }

    /// Writes the block, with zeros after its entries, and begins the next one.
    fn end_block(&mut self) -> Result<()> {
        self.block[self.next.offset..].fill(0);
        self.layout.write_slots(&mut self.block, &self.starts, self.end, &self.tags);
        self.head.write(&mut self.block);
        self.writer.append(&self.block)?;
        self.starts.clear();
        self.tags.clear();
        self.head =
            BlockHead { before: self.last.map_or(0, KeyHash::high), ..BlockHead::default() };
        self.next = Position { block: self.next.block + 1, offset: self.layout.entries_start };
        self.payload_end = self.layout.payload_end(0);
        Ok(())
    }

    /// Writes the last block and the footer.
    pub(super) fn finish(mut self) -> Result<Totals> {
        if self.next.offset > self.layout.entries_start || self.head.count > 0 {
            self.end_block()?;
        }
        self.totals.blocks = self.next.block;
        let Totals { entries, blocks, key_bytes, value_bytes, straddling } = self.totals;
        let totals = [entries, blocks, key_bytes, value_bytes, straddling];
        let fields = self.layout.encode().into_iter().chain(totals);
        let footer = Footer { fields: fields.flat_map(u64::to_le_bytes).collect(), body_sum: 0 };
        let start = self.writer.position();
        let footer = footer.encode(start);
        let mut block = Buffer::zeroed(footer.len());
        block.copy_from_slice(&footer);
        self.writer.finish()?;
        self.file.write_at(start, &block)?;
        Ok(self.totals)
    }
}

/// An open data file.
#[derive(Debug)]
pub(super) struct DataFile {
    pub(super) file: Arc<dyn BlockFile>,
    pub(super) context: Context,
    pub(super) totals: Totals,
    /// The blocks of a mapped file that need not be checked again; none ever if each is checked always.
    checked: Option<CheckedBlocks>,
}

impl DataFile {
    /// Opens a data file. Checks the header, the footer, and that the file has this id and this
    /// seed. `checks` says how often the blocks of a mapped file are checked.
    pub(super) fn open(
        file: Arc<dyn BlockFile>,
        id: u64,
        seed: Seed,
        checks: Checks,
    ) -> Result<DataFile> {
        let header = Header::read_of(file.as_ref(), FileKind::TableData, seed, id)?;
        let (footer, start) = Footer::read(file.as_ref())?;
        let (layout, totals) = decode(&footer.fields, start, header.version)
            .map_err(|error| error.at(&file.place().offset(start)))?;
        let place = file.place().clone();
        let context = Context { layout, id, seed, place, blocks: totals.blocks };
        let kept = if checks == Checks::Once { totals.blocks } else { 0 };
        let checked = file.mapped().map(|_| CheckedBlocks::none_of(kept));
        Ok(DataFile { file, context, totals, checked })
    }

    /// Whether the file is mapped.
    #[inline]
    pub(super) fn is_mapped(&self) -> bool {
        self.checked.is_some()
    }

    /// Returns the bytes of blocks of a mapped file.
    ///
    /// # Errors
    /// `Truncated` if the map ends before them.
    #[inline]
    pub(super) fn mapped(&self, blocks: &Range<u64>) -> Result<&[u8]> {
        let extent = self.extent(blocks);
        let all = self.file.mapped().unwrap_or(&[]);
        let rest = usize::try_from(extent.offset).ok().and_then(|start| all.get(start..));
        let rest = rest.unwrap_or(&[]);
        rest.get(..extent.len).ok_or_else(|| self.ends_before(extent, rest.len()))
    }

    /// Returns the error for an extent of which the map has only the first `got` bytes.
    #[cold]
    fn ends_before(&self, Extent { offset, len }: Extent, got: usize) -> Error {
        let kind = ErrorKind::Truncated { expected: len as u64, got: got as u64 };
        Error::new(kind).at(&self.context.place.offset(offset))
    }

    /// Returns a view of the blocks in `bytes`, the first of which has the number `first`. Each block
    /// is checked when it is used: once, or each time.
    #[inline]
    pub(super) fn blocks<'a>(&'a self, first: u64, bytes: &'a [u8]) -> DataBlocks<'a> {
        DataBlocks::new(&self.context, first, bytes).checked_once(self.checked.as_ref())
    }

    /// Returns a view of all blocks, if the file is mapped.
    #[inline]
    pub(super) fn mapped_blocks(&self) -> Option<MappedBlocks<'_>> {
        let checked = self.checked.as_ref()?;
        let bytes = self.file.mapped().and_then(|bytes| bytes.get(ALIGNMENT..));
        Some(MappedBlocks::new(&self.context, checked, bytes.unwrap_or(&[])))
    }

    /// Announces that a block, which may be on the device only, will be read.
    #[cold]
    pub(super) fn announce(&self, block: u64) {
        if self.checked.as_ref().is_some_and(|checked| checked.keeps(block)) {
            self.file.will_need(self.extent(&(block..block + 1)));
        }
    }

    /// Brings a mapped file into memory, in pieces, and counts their bytes.
    pub(super) fn warm(&self, watch: &Watch) -> Result<()> {
        let size = self.file.size()?;
        for offset in (0..size).step_by(WARM_PIECE) {
            let len = (size - offset).min(WARM_PIECE as u64);
            watch.add(len)?;
            self.file.warm(Extent { offset, len: len as usize });
        }
        self.file.check_map()
    }

    /// Returns the place of blocks in the file.
    pub(super) fn extent(&self, blocks: &Range<u64>) -> Extent {
        let layout = self.context.layout;
        Extent {
            offset: layout.file_offset(Position { block: blocks.start, offset: 0 }),
            len: (blocks.end - blocks.start) as usize * layout.block_size,
        }
    }

    /// Bounds on the entries, as known without reading them.
    pub(super) fn summary(&self) -> Summary {
        let totals = &self.totals;
        let Layout { key_size, value_size, .. } = self.context.layout;
        let range = |size: Option<usize>, max: usize| match size {
            _ if totals.entries == 0 => SizeRange::EMPTY,
            Some(size) => SizeRange { min: size as u64, max: size as u64 },
            None => SizeRange { min: 0, max: max as u64 },
        };
        Summary {
            entries_max: totals.entries,
            keys: range(key_size, KEY_BYTES_MAX),
            values: range(value_size, VALUE_BYTES_MAX),
            bytes_max: totals.key_bytes + totals.value_bytes,
        }
    }

    /// Returns the properties of the data file that an index needs.
    pub(super) fn indexed(&self) -> Indexed {
        Indexed {
            layout: self.context.layout,
            entries: self.totals.entries,
            blocks: self.totals.blocks,
            straddles: self.totals.straddling > 0,
        }
    }
}

fn decode(fields: &[u8], footer_start: u64, version: u16) -> Result<(Layout, Totals)> {
    let mut fields = Decoder::new(fields);
    let layout = Layout::decode(&mut fields, version)?;
    let totals = Totals {
        entries: fields.u64()?,
        blocks: fields.u64()?,
        key_bytes: fields.u64()?,
        value_bytes: fields.u64()?,
        straddling: fields.u64()?,
    };
    fields.end()?;
    let body = footer_start - ALIGNMENT as u64;
    if totals.blocks.checked_mul(layout.block_size as u64) != Some(body) {
        let expected = format!("{} in {body} bytes", body / layout.block_size as u64);
        return Err(Error::field("number of blocks", expected, totals.blocks));
    }
    let payload = totals.blocks * layout.payload() as u64;
    // The position of each rank must be in the file.
    let entries_max = match layout.entries_per_block() {
        Some(count) => totals.blocks * count,
        None => payload / layout.entry_size().unwrap_or(1) as u64,
    };
    if totals.entries > entries_max {
        let expected = format!("at most {entries_max} in {body} bytes");
        return Err(Error::field("number of entries", expected, totals.entries));
    }
    let Totals { key_bytes, value_bytes, .. } = totals;
    if key_bytes.checked_add(value_bytes).is_none_or(|bytes| bytes > payload) {
        let expected = format!("at most {payload} in {body} bytes");
        let got = format!("{key_bytes} and {value_bytes}");
        return Err(Error::field("bytes of keys and of values", expected, got));
    }
    Ok((layout, totals))
}
