//! Checking all of a map.

use super::{
    MapOptions,
    block::{BLOCK_SIZE, Block, BlockId},
    core::Core,
    expiries::Expiries,
    item::{Change, Content, Item, Value},
    large, recovery,
    sizes::Sizes,
    span::Stored,
};
use crate::{
    env::Env,
    error::{Error, ErrorKind, Result, check_same},
    folder,
    io::Buffer,
    key::KeyHash,
    manifest::Kind,
    verify::VerifyReport,
    work::Watch,
};
use std::path::Path;

/// The amounts that [`verify`] has checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MapFigures {
    /// Number of groups.
    pub groups: u64,
    /// Number of blocks, without those of large values.
    pub blocks: u64,
    /// Number of entries in spans.
    pub entries: u64,
    /// Number of changes in packets.
    pub changes: u64,
    /// Number of changes that only the log has, which are in RAM while the map is open.
    pub logged: u64,
}

/// Checks a map that no process has open: its catalog, its log and all of its blocks. The unit of
/// `watch` is bytes.
///
/// # Errors
/// `Absent` if there is no map, `Busy` if it is open; if the manifest cannot be read, or the device
/// fails. Other damage is in the report.
pub fn verify(env: &Env, folder: &Path, watch: &Watch) -> Result<VerifyReport<MapFigures>> {
    folder::read_manifest(&*env.disk, folder, Kind::Map)?;
    match recovery::open(folder, MapOptions::new().env(env.clone())) {
        Ok(core) => verify_open(&core, watch),
        Err(error) => VerifyReport::of(error),
    }
}

/// Checks all blocks of an open map, as they are now.
pub(super) fn verify_open(core: &Core, watch: &Watch) -> Result<VerifyReport<MapFigures>> {
    let mut report = VerifyReport::<MapFigures>::default();
    for group in core.directory.all() {
        let stored = {
            let state = group.state();
            report.figures.logged += state.listed();
            state.stored.clone()
        };
        report.figures.groups += 1;
        check_span(core, &stored, &mut report, watch)?;
        for packet in &stored.packets {
            let id = packet.id(core.identity.id);
            let mut sizes = Sizes::EMPTY;
            let checked = check_block(core, &stored, id, &mut |entry| {
                sizes.add(&Item::new(entry, 0));
                match packet.filter.contains(entry.hash) {
                    true => Ok(()),
                    false => Err(Error::field("Bloom filter of a packet", "all keys", "fewer")),
                }
            });
            let checked = checked.and_then(|()| check_sizes(core, id, (packet.sizes, sizes), true));
            if report.note(checked)?.is_some() {
                report.figures.changes += packet.sizes.entries;
            }
            report.figures.blocks += 1;
            watch.add(BLOCK_SIZE as u64)?;
        }
    }
    Ok(report)
}

/// Checks the blocks of a span: order, fences, sizes.
fn check_span(
    core: &Core,
    stored: &Stored,
    report: &mut VerifyReport<MapFigures>,
    watch: &Watch,
) -> Result<()> {
    let Some(span) = &stored.span else { return Ok(()) };
    let mut sizes = Sizes::EMPTY;
    let mut last: Option<(KeyHash, Vec<u8>)> = None;
    let mut is_whole = true;
    let mut times = Vec::new();
    for (i, fence) in span.fences.iter().enumerate() {
        let id = span.id(i, core.identity.id);
        let mut is_first = true;
        let checked = check_block(core, stored, id, &mut |entry| {
            if is_first {
                let got = stored.prefix.fence(entry.hash);
                check_same("fence of a block", u64::from(*fence), u64::from(got))?;
            }
            is_first = false;
            if let Some((previous, key)) = &last
                && (*previous, key.as_slice()) >= (entry.hash, entry.key)
            {
                return Err(ErrorKind::Order { previous: *previous, got: entry.hash }.into());
            }
            if entry.content == Content::TOMBSTONE {
                return Err(Error::field("entry of a span", "a value", "a tombstone"));
            }
            last = Some((entry.hash, entry.key.to_vec()));
            sizes.add(&Item::new(entry, 0));
            times.extend(entry.content.expires_at);
            Ok(())
        });
        is_whole &= report.note(checked)?.is_some();
        report.figures.blocks += 1;
        watch.add(BLOCK_SIZE as u64)?;
    }
    let id = span.id(0, core.identity.id);
    let has_expiries = span.expiries == Expiries::of(times);
    let checked = check_sizes(core, id, (span.sizes, sizes), has_expiries);
    if is_whole && report.note(checked)?.is_some() {
        report.figures.entries += sizes.entries;
    }
    Ok(())
}

/// Checks a block, and calls `take` with those of its entries that are in the group.
fn check_block(
    core: &Core,
    stored: &Stored,
    id: BlockId,
    take: &mut dyn FnMut(Change<'_>) -> Result<()>,
) -> Result<()> {
    let (file, seed) = (&core.space.file, core.identity.seed);
    let offset = id.number * BLOCK_SIZE as u64;
    let mut bytes = Buffer::zeroed(BLOCK_SIZE);
    file.read_at(offset, &mut bytes)?;
    let checked = (|| {
        let block = Block::decode(&bytes, id)?;
        block.check(seed)?;
        for i in 0..block.count {
            let entry = block.entry(i, seed)?;
            if stored.prefix.contains(entry.hash) {
                take(entry)?;
                if let Value::Large(pointer) = entry.content.value {
                    large::read(&**file, core.identity.id, pointer, stored.owner(pointer.first))?;
                }
            } else if id.kind == super::block::BlockKind::Span {
                let expected = format!("within {}", stored.prefix.name());
                return Err(Error::field("hash in a span", expected, entry.hash));
            }
        }
        Ok(())
    })();
    checked.map_err(|error| error.at(&file.place_at(offset)))
}

/// Compares what the catalog says of entries with what they are; `has_expiries` says whether their expiries are equal.
fn check_sizes(
    core: &Core,
    id: BlockId,
    (expected, got): (Sizes, Sizes),
    has_expiries: bool,
) -> Result<()> {
    let checked =
        check_same("number of entries", expected.entries, got.entries).and_then(
            |()| match expected == got && has_expiries {
                true => Ok(()),
                false => Err(Error::field(
                    "sizes and expiries of entries",
                    "those of the catalog",
                    "others",
                )),
            },
        );
    checked.map_err(|error| error.at(&core.space.file.place_at(id.number * BLOCK_SIZE as u64)))
}
