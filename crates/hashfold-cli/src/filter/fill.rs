//! Filters that are full: warnings of `add` and `merge`, and the room that is left.

use super::words;
use crate::{failure::Result, output::write_note, units};
use hashfold::filter::cascade::{CascadeFilter, CascadeStats};
use std::path::Path;

/// Warns when a filter is full, and each time that its false-positive rate has doubled since.
#[derive(Debug)]
pub(super) struct FillWarnings {
    /// The fill at which the next warning is due.
    next: f64,
}

impl FillWarnings {
    pub(super) fn new() -> FillWarnings {
        FillWarnings { next: 1.0 }
    }

    /// Prints a warning if one is due.
    pub(super) fn check(&mut self, folder: &Path, stats: &CascadeStats) {
        let fill = stats.fill();
        if fill >= self.next {
            write_note(format_args!("hashfold: warning: {}: {}", folder.display(), warning(stats)));
            while self.next <= fill {
                self.next *= 2.0;
            }
        }
    }
}

fn warning(stats: &CascadeStats) -> String {
    let (keys, fill) = (words::keys(stats), units::percent(stats.fill()));
    let promised = units::percent(stats.false_positive_rate_promised());
    let larger = match stats.is_merged() {
        true => "keys that go on arriving need a filter with a larger --capacity",
        false => {
            "keys that were added twice may count twice until `hashfold filter merge`; keys that go \
             on arriving need a filter with a larger --capacity"
        }
    };
    if stats.fill() == 1.0 {
        return format!("full: {keys}; with more, false positives exceed {promised}; {larger}");
    }
    let at_most = if stats.is_merged() { "" } else { "at most " };
    let now = units::percent(stats.false_positive_rate());
    format!(
        "over its capacity: {keys}, {fill} of it; false positives are {at_most}{now} of absent keys now, \
         promised were {promised}; {larger}"
    )
}

/// Returns the number of keys that a filter can take without exceeding its capacity. Merges its
/// runs if `wanted` keys fit only if the exact number of keys is known.
pub(super) fn room(filter: &mut CascadeFilter, wanted: u64) -> Result<u64> {
    let room = |stats: &CascadeStats| stats.capacity.saturating_sub(stats.keys_max());
    let stats = filter.stats();
    if room(&stats) < wanted && !stats.is_merged() {
        filter.merge()?;
    }
    Ok(room(&filter.stats()))
}
