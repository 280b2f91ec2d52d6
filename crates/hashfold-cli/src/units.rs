//! Numbers as people write them: `1GiB`, `64k`, `1e9`.

use indicatif::{BinaryBytes, HumanCount};
use std::fmt;

/// Reads a size in bytes: a number, perhaps with a fraction or an exponent, and a unit.
pub(crate) fn parse_bytes(text: &str) -> Result<usize, String> {
    let lower = text.trim().to_lowercase();
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    // `1e9` has a letter that is no unit.
    let end = match lower.split_once('e') {
        Some((number, power)) if !number.is_empty() && power.parse::<u8>().is_ok() => lower.len(),
        _ => lower.find(|c| !is_number(c)).unwrap_or(lower.len()),
    };
    let (number, unit) = lower.split_at(end);
    let factor = match unit.trim() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1024f64.powi(2),
        "g" | "gib" => 1024f64.powi(3),
        "t" | "tib" => 1024f64.powi(4),
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        _ => return Err("the unit is one of B, KiB, MiB, GiB, TiB, kB, MB, GB, TB".into()),
    };
    match number.parse::<f64>() {
        Ok(number) if number * factor < 2f64.powi(63) => Ok((number * factor) as usize),
        _ => Err("expected a size like 512MiB or 1e9".into()),
    }
}

/// `1.50 GiB`.
pub(crate) fn bytes(count: u64) -> impl fmt::Display {
    BinaryBytes(count)
}

/// `1,234,567`.
pub(crate) fn count(count: u64) -> impl fmt::Display {
    HumanCount(count)
}

/// `1,234 entries`, `1 entry`.
pub(crate) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// A rate, for people; any time is longer than none.
pub(crate) fn per_second(amount: u64, seconds: f64) -> u64 {
    (amount as f64 / seconds.max(1e-9)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let check = |text, bytes| assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        check("0", 0);
        check("4096", 4096);
        check("64k", 64 << 10);
        check("1.5 GiB", 3 << 29);
        check("2MB", 2_000_000);
        check("1e9", 1_000_000_000);
        for text in ["", "x", "1x", "-1", "1e99", "e9", "GiB"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
