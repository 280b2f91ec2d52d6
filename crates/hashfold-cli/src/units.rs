//! Reading and writing numbers with units: `1GiB`, `64k`, `1e9`, `10%`, `7d`.

use hashfold::run::MEMORY_BYTES_MIN;
use indicatif::{BinaryBytes, HumanCount};
use std::{fmt, ops::RangeInclusive, time::Duration};

/// Reads a size in bytes: a number, perhaps with a fraction or an exponent, and a unit.
pub(crate) fn parse_bytes(text: &str) -> Result<usize, String> {
    let lower = text.trim().to_lowercase();
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    // The letter in `1e9` is not a unit.
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
        _ => {
            let units = "B, KiB, MiB, GiB, TiB, kB, MB, GB, TB";
            return Err(format!("expected a size like 512MiB or 1e9; the unit is one of {units}"));
        }
    };
    match number.parse::<f64>() {
        Ok(number) if number * factor < 2f64.powi(63) => Ok((number * factor) as usize),
        _ => Err("expected a size like 512MiB or 1e9".into()),
    }
}

/// Reads a number that fits into `T`.
pub(crate) fn parse_number<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let number = text.trim().parse::<u64>().ok().and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| {
        let largest = u64::MAX >> (u64::BITS as usize - 8 * size_of::<T>());
        format!("expected a whole number from 0 to {largest}")
    })
}

/// Reads a memory budget for sorting.
pub(crate) fn parse_memory(text: &str) -> Result<usize, String> {
    match parse_bytes(text)? {
        MEMORY_BYTES_MIN.. => parse_bytes(text),
        _ => Err(format!("expected at least {}", bytes(MEMORY_BYTES_MIN as u64))),
    }
}

/// Reads a number of things: `1000`, `1e9`, `10M`, `1.5G`; at least 1.
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    let text = text.trim();
    if let Ok(count @ 1..) = text.parse::<u64>() {
        return Ok(count);
    }
    let powers = [('k', 1e3), ('m', 1e6), ('g', 1e9), ('t', 1e12)];
    let lower = text.to_lowercase();
    let unit = powers.iter().find_map(|&(unit, power)| Some((lower.strip_suffix(unit)?, power)));
    let (number, factor) = unit.unwrap_or((&lower, 1.0));
    match number.trim().parse::<f64>() {
        Ok(number) if (1.0..2f64.powi(64)).contains(&(number * factor)) => {
            Ok((number * factor).round() as u64)
        }
        _ => Err("expected a number from 1 to 2^64 - 1, like 1000000, 10M or 1e9".into()),
    }
}

/// Maximum number of threads: more threads make nothing faster, and systems refuse them at some
/// number.
const THREADS_MAX: usize = 1024;

/// Reads a number of threads.
pub(crate) fn parse_threads(text: &str) -> Result<usize, String> {
    let threads = text.trim().parse().ok().filter(|threads| (1..=THREADS_MAX).contains(threads));
    threads.ok_or_else(|| format!("expected a number of threads from 1 to {THREADS_MAX}"))
}

/// Reads a rate: between 0 and 1, both excluded, or in percent.
pub(crate) fn parse_rate(text: &str) -> Result<f64, String> {
    match parse_fraction(text) {
        Ok(rate) if rate > 0.0 && rate < 1.0 => Ok(rate),
        _ => Err("expected a rate between 0 and 1, both excluded, like 0.0004 or 0.1%".into()),
    }
}

/// Reads a fraction: `0.1` or `10%`.
pub(crate) fn parse_fraction(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.trim().strip_suffix('%') {
        Some(percent) => (percent, 0.01),
        None => (text.trim(), 1.0),
    };
    match number.trim().parse::<f64>() {
        Ok(number) if (0.0..=1.0).contains(&(number * unit)) => Ok(number * unit),
        _ => Err("expected a fraction: 0.1 or 10%".into()),
    }
}

/// Returns a part in percent, with three digits: `0.0123 %`, `42 %`, `6,000 %`.
pub(crate) fn percent(part: f64) -> String {
    let percent = part * 100.0;
    if percent >= 1000.0 {
        return format!("{} %", count(percent.round() as u64));
    }
    // With the third digit rounded, 9.999 becomes 10.00.
    let decimals = (2.0 - percent.max(1e-12).log10().floor()).clamp(0.0, 14.0) as usize;
    let text = format!("{percent:.decimals$}");
    let text = if decimals > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} %")
}

/// Reads a time in seconds: a number, and `s`, `m`, `h` or `d`.
pub(crate) fn parse_seconds(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = match unit.trim() {
        "s" => 1,
        "" if number == "0" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err("expected a unit after the number: s, m, h or d".into()),
    };
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    seconds.ok_or_else(|| "expected a time like 90s, 15m, 2h or 7d".into())
}

/// Reads a short time as [`parse_seconds`] does, or in milliseconds: `500ms`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let milliseconds = text.trim().strip_suffix("ms").map(|number| number.trim().parse());
    match milliseconds {
        Some(Ok(milliseconds)) => Ok(Duration::from_millis(milliseconds)),
        _ => match parse_seconds(text) {
            Ok(seconds) => Ok(Duration::from_secs(seconds)),
            Err(_) => {
                Err("expected a number and a unit: ms, s, m, h or d, like 500ms or 15m".into())
            }
        },
    }
}

/// Reads a time to wait, in seconds: a number of seconds, or a number with a unit.
pub(crate) fn parse_wait(text: &str) -> Result<u64, String> {
    text.trim().parse().or_else(|_| parse_seconds(text))
}

/// With fewer keys than these, the fixed part of an index is most of it, and bits per key say nothing.
pub(crate) const FEW_KEYS: u64 = 1000;

/// `1.20 MiB, 2.61 bits per key`, or only the size for a handful of keys.
pub(crate) fn index_size(size: u64, bits_per_key: f64, keys: u64) -> String {
    match keys {
        FEW_KEYS.. => format!("{}, {bits_per_key:.2} bits per key", bytes(size)),
        _ => bytes(size).to_string(),
    }
}

/// `7d`, `3h 25m`: a time in seconds, in its largest unit and the next.
pub(crate) fn seconds(seconds: u64) -> String {
    let units = [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];
    let first = units.iter().position(|unit| seconds >= unit.1).unwrap_or(units.len() - 1);
    let (name, length) = units[first];
    let main = format!("{}{name}", seconds / length);
    match units.get(first + 1).map(|(next, part)| (next, seconds % length / part)) {
        None | Some((_, 0)) => main,
        Some((next, more)) => format!("{main} {more}{next}"),
    }
}

/// `12`, or `12 to 15` where only bounds are known.
pub(crate) fn range(range: &RangeInclusive<u64>) -> String {
    match range.start() == range.end() {
        true => count(*range.start()).to_string(),
        false => format!("{} to {}", count(*range.start()), count(*range.end())),
    }
}

/// `12 entries`, `1 entry`, `12 to 15 entries`.
pub(crate) fn entries(number: &RangeInclusive<u64>) -> String {
    match number.start() == number.end() {
        true => counted(*number.start(), "entry", "entries"),
        false => format!("{} entries", range(number)),
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

/// Returns a rate, for people; a time of 0 counts as a tiny time.
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

    #[test]
    fn counts_and_rates_are_read_as_people_write_them() {
        let check = |text, count| assert_eq!(parse_count(text), Ok(count), "{text}");
        check("1", 1);
        check("18446744073709551615", u64::MAX);
        check("10M", 10_000_000);
        check("1.5 k", 1500);
        check("1e9", 1_000_000_000);
        for text in ["", "0", "-1", "nan", "1e20", "18446744073709551616", "1x", "M", "0.4"] {
            assert!(parse_count(text).is_err(), "{text}");
        }
        assert_eq!(parse_rate("0.0004"), Ok(0.0004));
        assert_eq!(parse_rate("50%"), Ok(0.5));
        for text in ["", "0", "1", "100%", "nan", "-0.1", "2"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_fit_their_type() {
        assert_eq!(parse_number::<u64>("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parse_number::<u32>(" 7 "), Ok(7));
        for text in ["", "-1", "x", "1.5", "4294967296"] {
            let expected = "expected a whole number from 0 to 4294967295";
            assert_eq!(parse_number::<u32>(text), Err(expected.into()), "{text}");
        }
    }

    #[test]
    fn times_are_printed_in_two_units() {
        let cases = [(0, "0s"), (59, "59s"), (61, "1m 1s"), (604_800, "7d"), (86_400 + 3599, "1d")];
        cases.iter().for_each(|&(time, text)| assert_eq!(seconds(time), text));
        assert_eq!(seconds(12_343), "3h 25m");
    }

    #[test]
    fn parts_are_printed_with_three_digits() {
        let cases = [
            (0.0, "0 %"),
            (0.0004, "0.04 %"),
            (0.000_123_45, "0.0123 %"),
            (0.009_999_9, "1 %"),
            (0.42, "42 %"),
            (1.0, "100 %"),
            (1.2345, "123 %"),
            (60.0, "6,000 %"),
            (1e-9, "0.0000001 %"),
        ];
        for (part, text) in cases {
            assert_eq!(percent(part), text);
        }
    }

    #[test]
    fn threads_have_bounds() {
        for (text, threads) in [("1", 1), (" 8 ", 8), ("1024", 1024)] {
            assert_eq!(parse_threads(text), Ok(threads));
        }
        for text in ["", "0", "-1", "1025", "1e3", "18446744073709551616"] {
            assert!(parse_threads(text).is_err(), "{text}");
        }
    }

    #[test]
    fn parts_and_times_are_read_as_people_write_them() {
        assert_eq!(parse_fraction("0.1"), Ok(0.1));
        assert_eq!(parse_fraction("10 %"), Ok(0.1));
        for text in ["", "%", "-1", "nan", "ten"] {
            assert!(parse_fraction(text).is_err(), "{text}");
        }
        for (text, seconds) in [("0", 0), ("90s", 90), ("15m", 900), ("2h", 7200), ("7d", 604_800)]
        {
            assert_eq!(parse_seconds(text), Ok(seconds), "{text}");
        }
        for (text, milliseconds) in [("0", 0), ("500ms", 500), ("2s", 2000)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        assert!(parse_duration("5x").unwrap_err().contains("ms, s, m, h or d"));
        assert!(parse_duration("ms").is_err() && parse_duration("7").is_err());
        for text in ["", "7", "h", "-1s", "1.5h", "1y", "99999999999999999999"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }
}
