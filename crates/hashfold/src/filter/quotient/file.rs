//! A filter as a file: the blocks are the same bytes as in memory.
//!
//! The fields of the footer, 8 bytes each (the same table stands in `docs/formats/quotient.md`):
//!
//! | field          |                                                                       |
//! |----------------|-----------------------------------------------------------------------|
//! | fingerprints   | the largest possible fingerprint                                      |
//! | remainder_bits | bits in a remainder, 1 to 56                                          |
//! | blocks         | number of blocks with quotients; `min(blocks, 64)` spare blocks follow |
//! | mode           | 0 set, 1 multiset                                                     |
//! | growth         | when the filter is full: 0 refuse keys, 1 double                      |
//! | items          | number of keys, copies included                                       |
//! | distinct       | number of different fingerprints                                      |
//! | slots          | number of full slots                                                  |
//! | slots_max      | maximum number of full slots                                          |
//! | more           | number of fingerprints with more than four copies                     |

use super::{
    filter::{QuotientFilter, QuotientView, Rules, Usage},
    kernel::Processor,
    layout::{BLOCK_SLOTS, REMAINDER_BITS_MAX, SlotLayout},
    options::Growth,
    storage::{InFile, MORE_BYTES, Storage},
};
use crate::{
    checksum::{crc32c, crc32c_append},
    codec::{Decoder, within},
    error::{Error, Result},
    filter::Mode,
    fingerprints::Universe,
    io::{
        ALIGNMENT, Access, BlockFile, Buffer, Disk,
        frame::{FileKind, Footer, Header},
        read_all, replace_file,
    },
};
use std::{path::Path, sync::Arc};

/// Alignment of the second section, in bytes.
const SECTION_ALIGNMENT: usize = 64;

impl<S: Storage> QuotientFilter<S> {
    /// Writes the filter to a file, atomically: a crash leaves either the old file or the new one.
    /// The new file is first written under a name with the suffix `.new`. `id` is a number of the
    /// caller's choice, which [`QuotientView::id`] returns.
    pub fn save(&self, disk: &dyn Disk, path: &Path, id: u64) -> Result<()> {
        replace_file(disk, path, |file| self.write(file, id))
    }

    fn write(&self, file: &dyn BlockFile, id: u64) -> Result<()> {
        let header = Header::new(FileKind::Quotient, self.rules.seed, id).encode();
        let blocks = self.storage.blocks();
        let mut rest = vec![0; blocks.len().next_multiple_of(SECTION_ALIGNMENT) - blocks.len()];
        let mut more_count = 0;
        for (fingerprint, more) in self.storage.all_more() {
            rest.extend(fingerprint.to_le_bytes());
            rest.extend(more.to_le_bytes());
            more_count += 1;
        }
        let size = blocks.len() + rest.len();
        rest.resize(rest.len() + size.next_multiple_of(ALIGNMENT) - size, 0);
        let body_sum = crc32c_append(crc32c(blocks), &rest);
        let footer = Footer { fields: self.fields(more_count), body_sum };
        let mut offset = 0;
        for part in [&header[..], blocks, &rest] {
            file.write_at(offset, part)?;
            offset += part.len() as u64;
        }
        file.write_at(offset, &footer.encode(offset))
    }

    fn fields(&self, more_count: u64) -> Vec<u8> {
        let fields = [
            self.universe.last(),
            u64::from(self.layout.remainder_bits),
            self.layout.blocks as u64,
            match self.rules.mode {
                Mode::Set => 0,
                Mode::Multiset => 1,
            },
            match self.rules.growth {
                Growth::Refuse => 0,
                Growth::Double => 1,
            },
            self.counts.items,
            self.counts.distinct,
            self.counts.slots,
            self.counts.slots_max,
            more_count,
        ];
        fields.iter().flat_map(|field| field.to_le_bytes()).collect()
    }
}

impl QuotientFilter {
    /// Reads a filter from a file and checks the whole file. Returns the filter and the file's id.
    pub fn read(disk: &dyn Disk, path: &Path, access: Access) -> Result<(QuotientFilter, u64)> {
        let view = QuotientView::open(disk, path, access)?;
        Ok((view.to_memory()?, view.id()))
    }
}

impl QuotientView {
    /// Opens a filter in a file without reading the whole file: with [`Access::Mapped`] only the
    /// pages that lookups touch are read. Lookups check nothing, so damage may lead to wrong
    /// answers, but not to panics; [`QuotientView::verify`] checks the file.
    pub fn open(disk: &dyn Disk, path: &Path, access: Access) -> Result<QuotientView> {
        let file = disk.open(path, access)?;
        let header = Header::read(file.as_ref(), FileKind::Quotient)?;
        let (footer, footer_start) = Footer::read(file.as_ref())?;
        let open = FileFields::decode(&footer.fields, header, footer.body_sum, footer_start);
        let fields = open.map_err(|error| error.at(file.place()))?;
        let read = match file.mapped() {
            Some(mapped) if mapped.len() as u64 >= footer_start => None,
            _ => Some(read_all(file.as_ref(), u64::MAX)?),
        };
        Ok(fields.view(file, read))
    }

    /// Returns the id that [`QuotientFilter::save`] wrote to the file.
    pub fn id(&self) -> u64 {
        self.storage.id
    }
}

/// The fields of the header and the footer.
struct FileFields {
    universe: Universe,
    layout: SlotLayout,
    rules: Rules,
    counts: Usage,
    more_count: usize,
    body_sum: u32,
    body_end: usize,
    id: u64,
}

impl FileFields {
    fn decode(
        fields: &[u8],
        header: Header,
        body_sum: u32,
        footer_start: u64,
    ) -> Result<FileFields> {
        let mut fields = Decoder::new(fields);
        let universe = Universe::with_size(u128::from(fields.u64()?) + 1)
            .map_err(|_| Error::field("largest fingerprint", "at least 1", 0))?;
        let bits = within("remainder bits", 1..=u64::from(REMAINDER_BITS_MAX), fields.u64()?)?;
        let blocks = within("blocks", 1..=u64::MAX / BLOCK_SLOTS as u64, fields.u64()?)?;
        let layout = SlotLayout::new(u128::from(blocks) * BLOCK_SLOTS as u128, bits as u32)
            .ok_or_else(|| Error::field("blocks", "a number that fits in memory", blocks))?;
        let mode = match within("mode", 0..=1, fields.u64()?)? {
            0 => Mode::Set,
            _ => Mode::Multiset,
        };
        let growth = match within("growth", 0..=1, fields.u64()?)? {
            0 => Growth::Refuse,
            _ => Growth::Double,
        };
        let (items, distinct, slots) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let slots_max = within("slots that may be full", 0..=layout.slots(), fields.u64()?)?;
        within("full slots", 0..=slots_max, slots)?;
        within("different fingerprints", 0..=slots, distinct)?;
        within("items", slots..=u64::MAX, items)?;
        let more_count = within("fingerprints with more copies", 0..=distinct, fields.u64()?)?;
        fields.end()?;
        let largest = (layout.slots() - 1).min(u64::MAX >> bits);
        within("quotient of the largest fingerprint", 0..=largest, universe.last() >> bits)?;
        let body = layout.bytes().next_multiple_of(SECTION_ALIGNMENT) as u64;
        let body = body.checked_add(more_count.saturating_mul(MORE_BYTES as u64));
        let body_end = body
            .and_then(|body| body.checked_next_multiple_of(ALIGNMENT as u64))
            .and_then(|body| body.checked_add(ALIGNMENT as u64))
            .filter(|&body_end| body_end == footer_start);
        let Some(body_end) = body_end else {
            let expected = format!("of {blocks} blocks and {more_count} counts");
            return Err(Error::field("size of the body", expected, footer_start));
        };
        let rules = Rules { mode, growth, seed: header.seed };
        let counts = Usage { items, distinct, slots, slots_max };
        let (more_count, body_end) = (more_count as usize, body_end as usize);
        Ok(FileFields {
            universe,
            layout,
            rules,
            counts,
            more_count,
            body_sum,
            body_end,
            id: header.id,
        })
    }

    fn view(self, file: Arc<dyn BlockFile>, read: Option<Buffer>) -> QuotientView {
        let blocks = ALIGNMENT..ALIGNMENT + self.layout.bytes();
        let start = blocks.end.next_multiple_of(SECTION_ALIGNMENT);
        let storage = InFile {
            file,
            read,
            more: start..start + self.more_count * MORE_BYTES,
            blocks,
            body: ALIGNMENT..self.body_end,
            body_sum: self.body_sum,
            id: self.id,
        };
        QuotientFilter {
            universe: self.universe,
            layout: self.layout,
            machine: Processor::best(),
            rules: self.rules,
            counts: self.counts,
            storage,
        }
    }
}
