//! The places of the log's records among the writes of the data file, if there is no catalog.
//!
//! After its last break, the log has all changes, so these records are newer than all blocks. A *break* is a
//! gap, or a record of which a part cannot be read. Blocks may have the changes that are missing there, and so
//! win over the records before the break: but only blocks of writes that began after those of the values and
//! parts that these records name. A record is logged after its values and parts are written, so blocks of
//! earlier writes have earlier changes only.
//!
//! ```text
//! blocks up to write 7 ─→ records to the 1st break, ─→ blocks up to write 9 ─→ records to the 2nd break, ─→ ...
//!                         which name writes up to 7                            which name writes up to 9
//! ```

use std::ops::Range;

/// The breaks of a log.
#[derive(Debug, Default)]
pub(super) struct Breaks {
    /// For each break: the sequence number after it, and the highest number of a write that is named before. Both
    /// ascend.
    breaks: Vec<(u64, u64)>,
    /// Sequence numbers of the records so far, with the gaps between them.
    seqs: Option<Range<u64>>,
    /// The highest number of a write that they name.
    write: u64,
}

/// A record of the log.
#[derive(Clone, Debug)]
pub(super) struct Logged {
    pub(super) seqs: Range<u64>,
    /// The highest number of a write of the values and parts that the record names, or 0.
    pub(super) write: u64,
    /// Whether all of its parts can be read.
    pub(super) is_whole: bool,
}

impl Breaks {
    /// Adds the next record of the log.
    pub(super) fn add(&mut self, Logged { seqs, write, is_whole }: Logged) {
        let before = self.seqs.get_or_insert(seqs.start..seqs.start);
        if before.end < seqs.start {
            self.breaks.push((seqs.start, self.write));
        }
        before.end = seqs.end;
        self.write = self.write.max(write);
        if !is_whole {
            self.breaks.push((seqs.end, self.write));
        }
    }

    /// Returns the number of the last write whose blocks are older than the record that begins at a sequence number.
    pub(super) fn last_write_before(&self, seq: u64) -> u64 {
        let next = self.breaks.partition_point(|(end, _)| *end <= seq);
        self.breaks.get(next).map_or(u64::MAX, |(_, write)| *write)
    }

    /// Returns the sequence numbers of the records that blocks may win over, and the number of the last write before
    /// such blocks.
    pub(super) fn demoted(&self) -> Option<(Range<u64>, u64)> {
        let (first, last) = (self.breaks.first()?, self.breaks.last()?);
        let start = self.seqs.as_ref().map_or(0, |seqs| seqs.start);
        Some((start..last.0, first.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_before_blocks_that_may_have_what_is_missing_after_them() {
        let mut breaks = Breaks::default();
        assert_eq!((breaks.last_write_before(5), breaks.demoted()), (u64::MAX, None));
        let records = [
            (3..4, 0, true),
            (4..6, 20, true),
            (6..7, 10, true),
            // After a gap.
            (9..12, 0, true),
            (12..20, 31, false),
            (20..21, 0, true),
        ];
        for (seqs, write, is_whole) in records {
            breaks.add(Logged { seqs, write, is_whole });
        }
        let places = [3, 4, 6, 9, 12, 20].map(|seq| breaks.last_write_before(seq));
        assert_eq!(places, [20, 20, 20, 31, 31, u64::MAX]);
        assert_eq!(breaks.demoted(), Some((3..20, 20)));
    }
}
