//! Checking a whole table.

use super::{layout::Position, lookup::OpenFiles, scan::TableScan};
use crate::{
    error::{Error, ErrorKind, Result},
    key::KeyHash,
    run::Run,
    verify::VerifyReport,
    work::Watch,
};

/// Maximum number of damages in the report of a table.
pub const DAMAGE_MAX: usize = 1000;

/// The amounts that the check of a table counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableFigures {
    /// Number of blocks that were read.
    pub blocks: u64,
    /// Number of entries that were read.
    pub entries: u64,
}

/// Number of blocks between two calls of the watch.
const WATCH_BLOCKS: u64 = 1024;

pub(super) fn verify(
    files: &OpenFiles,
    index_damage: Option<&Error>,
    watch: &Watch,
) -> Result<VerifyReport<TableFigures>> {
    let mut report = VerifyReport::default();
    let file = &files.data;
    let mut scan = TableScan::new(file);
    let mut check = Check { files, last: (KeyHash::from_bits(0), Vec::new()) };
    let mut seen = 0;
    loop {
        match scan.advance() {
            Ok(true) => check.entry(&scan, &mut report),
            Ok(false) => break,
            // An error of the device ends the check, because the data cannot be read.
            Err(error) if matches!(error.kind(), ErrorKind::Io { .. }) => return Err(error),
            Err(error) => {
                // An entry that continues in a damaged block has reported it already.
                if report.damage.last().is_none_or(|last| last.place() != error.place()) {
                    add(&mut report, error);
                }
                let next = scan.next_block();
                scan.resume_at(next);
            }
        }
        if scan.next_block() >= seen + WATCH_BLOCKS {
            watch.add(scan.next_block() - seen)?;
            seen = scan.next_block();
        }
    }
    report.figures.blocks = scan.next_block();
    if report.is_sound() && report.figures.entries != file.totals.entries {
        let (expected, got) = (file.totals.entries.to_string(), report.figures.entries);
        add(&mut report, Error::field("entries", expected, got).at(file.file.place()));
    }
    watch.add(report.figures.blocks - seen)?;
    index_damage.into_iter().for_each(|damage| add(&mut report, damage.clone()));
    Ok(report)
}

fn add(report: &mut VerifyReport<TableFigures>, damage: Error) {
    if report.damage.len() < DAMAGE_MAX {
        report.damage.push(damage);
    }
}

struct Check<'a> {
    files: &'a OpenFiles,
    last: (KeyHash, Vec<u8>),
}

impl Check<'_> {
    fn entry(&mut self, scan: &TableScan, report: &mut VerifyReport<TableFigures>) {
        let entry = scan.entry();
        let at = scan.position();
        let place = self.place(at);
        let (last_hash, last_key) = &mut self.last;
        if report.figures.entries > 0
            && (*last_hash, last_key.as_slice()) >= (entry.hash, entry.key)
        {
            let kind = ErrorKind::Order { previous: *last_hash, got: entry.hash };
            add(report, Error::new(kind).at(&place));
        }
        *last_hash = entry.hash;
        last_key.clear();
        last_key.extend(entry.key);
        // After damage the ranks of entries are unknown.
        let index = self.files.index.as_ref().filter(|_| report.is_sound());
        if index.is_some_and(|index| !index.agrees(report.figures.entries, entry.hash, at)) {
            let got = "elsewhere; build the index again";
            let error = Error::field("place of the entry in the index", "here", got);
            add(report, error.at(&place));
        }
        report.figures.entries += 1;
    }

    fn place(&self, at: Position) -> crate::error::Place {
        let data = &self.files.data;
        data.file.place().offset(data.context.layout.file_offset(at))
    }
}
