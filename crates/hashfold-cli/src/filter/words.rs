//! The figures of a filter in words, the same for all verbs.

use crate::units;
use hashfold::{
    filter::{
        Mode,
        cascade::{CascadeStats, Window},
    },
    fingerprints::Universe,
};

/// Minimum number of fingerprints for which the bits per fingerprint say something: the smallest
/// file has several KiB.
const BITS_MIN: u64 = 10_000;

/// `set, exact` or `set for 1,000 keys, false-positive rate 0.04 % when full`.
pub(super) fn kind(mode: Mode, capacity: u64, universe: Universe) -> String {
    let mode = match mode {
        Mode::Set => "set",
        Mode::Multiset => "multiset",
    };
    match universe == Universe::EXACT {
        true => format!("{mode}, exact"),
        false => format!(
            "{mode} for {}, false-positive rate {} when full",
            units::counted(capacity, "key", "keys"),
            units::percent(capacity as f64 / universe.size() as f64)
        ),
    }
}

/// `, keeps keys for 7d in epochs of 1d`; nothing without a window.
pub(super) fn window(window: Option<Window>) -> String {
    let text = |window: Window| {
        let (length, epoch) = (window.length().as_secs(), window.epoch_length().as_secs());
        format!(
            ", keeps keys for {} in epochs of {}",
            units::seconds(length),
            units::seconds(epoch)
        )
    };
    window.map_or_else(String::new, text)
}

/// `3, numbers 20778 to 20780`, and with a window how far the epochs reach back.
pub(super) fn epochs(stats: &CascadeStats, now_s: u64) -> String {
    let (Some(first), Some(last)) = (stats.epochs.first(), stats.epochs.last()) else {
        return "0".into();
    };
    let numbers = match stats.epochs.len() as u64 {
        1 => format!("1, number {}", last.number),
        count => format!("{}, numbers {} to {}", units::count(count), first.number, last.number),
    };
    let reach = stats.window.map(|window| {
        let start_s = first.number * window.epoch_length().as_secs();
        format!("; the oldest began {} ago", units::seconds(now_s.saturating_sub(start_s)))
    });
    numbers + &reach.unwrap_or_default()
}

/// `1,000 keys`, or `at most 1,000 keys` while runs are not merged.
pub(super) fn keys(stats: &CascadeStats) -> String {
    let count = units::counted(stats.keys_max(), "key", "keys");
    if stats.is_merged() { count } else { format!("at most {count}") }
}

/// `at most 300, 30 % of the capacity`.
pub(super) fn fill(stats: &CascadeStats) -> String {
    let at_most = if stats.is_merged() { "" } else { "at most " };
    let count = units::count(stats.keys_max());
    match is_exact(stats) {
        true => format!("{at_most}{count}"),
        false => format!("{at_most}{count}, {} of the capacity", units::percent(stats.fill())),
    }
}

/// `1,200 fingerprints, 100 of them tombstones`; a tombstone is a removal.
pub(super) fn fingerprints(fingerprints: u64, tombstones: u64) -> String {
    let count = units::counted(fingerprints, "fingerprint", "fingerprints");
    match tombstones {
        0 => count,
        1 => format!("{count}, 1 of them a tombstone"),
        _ => format!("{count}, {} of them tombstones", units::count(tombstones)),
    }
}

/// The false-positive rate now, beside the promised one.
pub(super) fn false_positives(stats: &CascadeStats) -> String {
    let (now, promised) = (stats.false_positive_rate(), stats.false_positive_rate_promised());
    if now == 0.0 {
        return "none: the filter is empty".into();
    }
    if is_exact(stats) {
        return format!("practically none: 1 in {:.1e} absent keys", 1.0 / now);
    }
    let at_most = if stats.is_merged() { "" } else { "at most " };
    let (now, promised) = (units::percent(now), units::percent(promised));
    match stats.fill() > 1.0 {
        false => format!("{at_most}{now} of absent keys now, {promised} when full"),
        true => format!(
            "{at_most}{now} of absent keys now, {:.1} times the promised {promised}: the filter is \
             over its capacity, {}",
            stats.fill(),
            match stats.is_merged() {
                true => "make a larger one",
                false => "if `hashfold filter merge` does not change that, make a larger one",
            }
        ),
    }
}

/// `1.50 MiB, 13.20 bits per fingerprint`; a small filter has no bits per fingerprint.
pub(super) fn size(stats: &CascadeStats) -> String {
    let size = units::bytes(stats.file_bytes);
    match stats.fingerprints {
        0..BITS_MIN => size.to_string(),
        _ => format!("{size}, {:.2} bits per fingerprint", stats.bits_per_fingerprint()),
    }
}

/// Whether the filter stores 64-bit fingerprints, and so has no capacity.
pub(super) fn is_exact(stats: &CascadeStats) -> bool {
    stats.universe == Universe::EXACT
}
