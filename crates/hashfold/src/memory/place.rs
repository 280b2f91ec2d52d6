//! Where a hash is in an index.

use super::{arena::At, line::Format};

/// Where the pairs of a hash are, or would be: two lines of a group. It is found again when the group was rebuilt since.
///
/// It is written and read field by field: copied as a whole, it would be read in larger pieces than it was written in, for
/// which a processor waits.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) hash: u64,
    /// The number of groups that had been rebuilt.
    pub(super) rebuilds: u64,
    pub(super) lines: [At; 2],
    pub(super) group: u32,
    pub(super) format: Format,
    /// Whether the group has lines.
    pub(super) has_lines: bool,
    /// The slot that had the hash when it was looked for ahead, which is asked first, by its bit of
    /// [`kernel::equal`](super::kernel::equal); 0 without such a slot.
    pub(super) seen: u16,
}

impl Place {
    /// Makes the place of a hash whose group is not known.
    #[inline]
    pub(super) const fn unknown(hash: u64) -> Place {
        let (lines, format) = ([At::FIRST; 2], Format::Wide);
        // A number that no index comes near.
        let rebuilds = u64::MAX / 2;
        Place { hash, rebuilds, lines, group: 0, format, has_lines: false, seen: 0 }
    }
}
