//! Numbers as people read them on the pages.

use super::facts::Bounds;
use indicatif::{BinaryBytes, HumanCount, HumanDuration};
use std::time::Duration;

/// `2,000`.
pub(super) fn count(number: &u64) -> String {
    HumanCount(*number).to_string()
}

/// `2,000`, or `2,000 to 2,010`.
pub(super) fn bounds(bounds: &Bounds) -> String {
    match bounds.min == bounds.max {
        true => count(&bounds.max),
        false => format!("{} to {}", count(&bounds.min), count(&bounds.max)),
    }
}

/// `1.20 MiB`.
pub(super) fn bytes(number: &u64) -> String {
    BinaryBytes(*number).to_string()
}

/// `3 minutes`.
pub(super) fn time(seconds: &u64) -> String {
    HumanDuration(Duration::from_secs(*seconds)).to_string()
}

/// `2026-01-31 12:00:00`.
pub(super) fn date(seconds: &u64) -> String {
    hashfold_rows::utc(*seconds).replace('T', " ").replace('Z', "")
}

/// `512 µs`, `2.05 ms`: a time in microseconds.
pub(super) fn microseconds(number: &u64) -> String {
    match *number {
        1_000_000.. => format!("{:.2} s", *number as f64 / 1e6),
        1000.. => format!("{:.2} ms", *number as f64 / 1e3),
        _ => format!("{number} µs"),
    }
}

/// `12.3 %`, or `–` for a part of nothing.
pub(super) fn share(part: &u64, all: &u64) -> String {
    match *all {
        0 => "–".to_owned(),
        all => format!("{:.1} %", *part as f64 * 100.0 / all as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_people_write_them() {
        assert_eq!(count(&1_234_567), "1,234,567");
        assert_eq!(bounds(&Bounds { min: 1000, max: 1000 }), "1,000");
        assert_eq!(bounds(&Bounds { min: 999, max: 1001 }), "999 to 1,001");
        assert_eq!(bytes(&(3 << 20)), "3.00 MiB");
        assert_eq!(time(&180), "3 minutes");
        assert_eq!(date(&0), "1970-01-01 00:00:00");
        let times = [(&512, "512 µs"), (&2048, "2.05 ms"), (&1_500_000, "1.50 s")];
        for (number, expected) in times {
            assert_eq!(microseconds(number), expected);
        }
        assert_eq!((share(&1, &3), share(&0, &0)), ("33.3 %".into(), "–".into()));
    }
}
