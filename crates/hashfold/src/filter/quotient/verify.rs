//! Checking a whole file: its fingerprints must encode to the same blocks.

use super::{
    append::{Appender, Overfull},
    filter::{COPIES_MAX, QuotientFilter, QuotientView, Usage, memory},
    scan::Feed,
    storage::{Memory, Storage},
};
use crate::{
    checksum::crc32c,
    error::{Error, Result, check_sum},
    verify::VerifyReport,
};
use std::collections::BTreeMap;

/// The amounts that the check of a quotient filter counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotientFigures {
    /// Number of blocks that were read.
    pub blocks: u64,
    /// Number of different fingerprints that were read.
    pub distinct: u64,
}

impl QuotientView {
    /// Checks the whole file: its checksum, and that its blocks are a valid encoding. Needs memory
    /// for a copy of the filter. The figures are 0 if the file is damaged.
    ///
    /// # Errors
    /// If there is not enough memory for the copy.
    pub fn verify(&self) -> Result<VerifyReport<QuotientFigures>> {
        let mut report = VerifyReport::default();
        if let Some(filter) = report.note(self.to_memory())? {
            let blocks = filter.layout.blocks as u64;
            report.figures = QuotientFigures { blocks, distinct: filter.counts.distinct };
        }
        Ok(report)
    }

    /// Copies the filter into memory, where it is mutable. Checks the whole file.
    pub fn to_memory(&self) -> Result<QuotientFilter> {
        let place = self.storage.file.place();
        self.check_sum().and_then(|()| self.copy()).map_err(|error| error.at(place))
    }

    fn check_sum(&self) -> Result<()> {
        check_sum(self.storage.body_sum, crc32c(self.storage.body()))
    }

    /// Rebuilds the blocks from their fingerprints. A multiset of fingerprints has a single
    /// encoding, so the blocks must be the same.
    fn copy(&self) -> Result<QuotientFilter> {
        let more = self.check_more()?;
        let mut appender = Appender::new(self.layout, memory(self.layout)?, self.machine);
        let (mut feed, mut stretch) = (Feed::new(self), Vec::new());
        let mut tally = Tally::default();
        loop {
            stretch.clear();
            feed.read(&mut stretch)?;
            if stretch.is_empty() {
                break;
            }
            tally.add(&stretch, &more)?;
            appender.append(&stretch).map_err(|Overfull| not_ours())?;
        }
        let blocks = appender.finish().map_err(|Overfull| not_ours())?;
        if *blocks != *self.storage.blocks() {
            return Err(not_ours());
        }
        tally.check(&self.counts, &more)?;
        Ok(QuotientFilter {
            universe: self.universe,
            layout: self.layout,
            machine: self.machine,
            rules: self.rules,
            counts: self.counts,
            storage: Memory { blocks, more },
        })
    }

    /// Returns the second section, if it is valid.
    fn check_more(&self) -> Result<BTreeMap<u64, u64>> {
        let mut last = None;
        let mut map = BTreeMap::new();
        for (fingerprint, more) in self.storage.all_more() {
            if last.is_some_and(|last| last >= fingerprint) || more == 0 {
                let got = format!("{more} more of fingerprint {fingerprint}");
                return Err(Error::field("counts", "ascending, none 0", got));
            }
            last = Some(fingerprint);
            map.insert(fingerprint, more);
        }
        Ok(map)
    }
}

fn not_ours() -> Error {
    Error::field("blocks", "as this library writes them", "others")
}

/// Counts the fingerprints that are read from a file.
#[derive(Debug, Default)]
struct Tally {
    slots: u64,
    distinct: u64,
    last: Option<u64>,
    copies: u64,
    /// Number of fingerprints with the maximum number of copies in slots and further copies in the
    /// second section.
    with_more: usize,
}

impl Tally {
    fn add(&mut self, stretch: &[u64], more: &BTreeMap<u64, u64>) -> Result<()> {
        self.slots += stretch.len() as u64;
        for &fingerprint in stretch {
            let again = self.last == Some(fingerprint);
            self.copies = if again { self.copies + 1 } else { 1 };
            self.distinct += u64::from(!again);
            self.last = Some(fingerprint);
            if self.copies > COPIES_MAX {
                let expected = format!("at most {COPIES_MAX}");
                return Err(Error::field("copies of a fingerprint", expected, self.copies));
            }
            if self.copies == COPIES_MAX && more.contains_key(&fingerprint) {
                self.with_more += 1;
            }
        }
        Ok(())
    }

    fn check(&self, counts: &Usage, more: &BTreeMap<u64, u64>) -> Result<()> {
        let beside = more.values().try_fold(0_u64, |sum, &more| sum.checked_add(more));
        let items = beside.and_then(|beside| beside.checked_add(self.slots));
        for (what, expected, got) in [
            ("full slots", counts.slots, Some(self.slots)),
            ("different fingerprints", counts.distinct, Some(self.distinct)),
            ("items", counts.items, items),
            ("fingerprints with more copies", more.len() as u64, Some(self.with_more as u64)),
        ] {
            if got != Some(expected) {
                let got = got.map_or("too many to count".to_owned(), |got| got.to_string());
                return Err(Error::field(what, expected.to_string(), got));
            }
        }
        Ok(())
    }
}
