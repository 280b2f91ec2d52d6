//! Durations and sizes as a configuration has them.

use serde::{Deserialize, Deserializer, de::Error as _};

/// A duration such as `250ms`, `10s`, `5m`, `1h` or `1d`, in milliseconds, more than 0 only if it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DurationMs(pub(crate) i64);

/// A size such as `64KiB`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) = units
        .iter()
        .find_map(|(name, unit)| text.strip_suffix(name).map(|number| (number.trim(), unit)))?;
    number.parse::<u64>().ok()?.checked_mul(*unit)
}

impl<'de> Deserialize<'de> for DurationMs {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<DurationMs, D::Error> {
        const UNITS: [(&str, u64); 5] =
            [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
        // The largest times of events, so that sums do not overflow.
        const MAX: u64 = 1 << 53;
        let text = String::deserialize(from)?;
        match parse(&text, &UNITS) {
            Some(ms @ 0..=MAX) => Ok(DurationMs(ms as i64)),
            _ => Err(D::Error::custom(format!(
                "expected a duration such as \"250ms\", \"10s\", \"5m\", \"1h\" or \"1d\", got \"{text}\""
            ))),
        }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Size, D::Error> {
        const UNITS: [(&str, u64); 4] =
            [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
        let text = String::deserialize(from)?;
        parse(&text, &UNITS).map(Size).ok_or_else(|| {
            D::Error::custom(format!("expected a size such as \"64KiB\", got \"{text}\""))
        })
    }
}
