//! Values of single columns, written as text (in CSV and keys) or as JSON.

use crate::schema::Unit;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::value::RawValue;
use std::io::Write as _;

/// The value of one column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cell<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float32(f32),
    Float64(f64),
    /// Days since 1970-01-01.
    Date(i32),
    /// Units since 1970-01-01 00:00:00.
    Timestamp {
        count: i64,
        unit: Unit,
        utc: bool,
    },
    /// Text or binary.
    Bytes(&'a [u8]),
    /// The text of a JSON value.
    Json(&'a [u8]),
}

impl Cell<'_> {
    /// Appends the value as text: numbers in decimal, dates and times as ISO 8601, text as it is,
    /// JSON strings without their quotes, null as nothing.
    pub(crate) fn write_text(&self, out: &mut Vec<u8>) {
        match *self {
            Cell::Null => {}
            Cell::Bytes(bytes) => out.extend_from_slice(bytes),
            Cell::Json(json) => match serde_json::from_slice::<String>(json) {
                Ok(text) => out.extend_from_slice(text.as_bytes()),
                Err(_) => out.extend_from_slice(json),
            },
            Cell::Bool(value) => put(out, format_args!("{value}")),
            Cell::Int(value) => put(out, format_args!("{value}")),
            Cell::Uint(value) => put(out, format_args!("{value}")),
            Cell::Float32(value) => put(out, format_args!("{value}")),
            Cell::Float64(value) => put(out, format_args!("{value}")),
            Cell::Date(days) => write_date(days.into(), out),
            Cell::Timestamp { count, unit, utc } => {
                write_timestamp(count, unit, out);
                if utc {
                    out.push(b'Z');
                }
            }
        }
    }

    /// Appends the value as JSON, without loss: bytes that are not UTF-8 become
    /// `{"base64":"..."}`, floats that are not numbers become strings.
    pub(crate) fn write_json(&self, out: &mut Vec<u8>) {
        match *self {
            Cell::Null => out.extend_from_slice(b"null"),
            Cell::Bytes(bytes) => write_json_bytes(bytes, out),
            Cell::Json(json) if is_json(json) => out.extend_from_slice(json),
            Cell::Json(damaged) => write_json_bytes(damaged, out),
            Cell::Bool(_) | Cell::Int(_) | Cell::Uint(_) => self.write_text(out),
            Cell::Float32(value) if value.is_finite() => self.write_text(out),
            Cell::Float64(value) if value.is_finite() => self.write_text(out),
            Cell::Float32(_) | Cell::Float64(_) | Cell::Date(_) | Cell::Timestamp { .. } => {
                out.push(b'"');
                self.write_text(out);
                out.push(b'"');
            }
        }
    }
}

/// `2026-01-31T12:00:00Z`, from seconds since 1970.
pub(crate) fn utc(seconds: u64) -> String {
    let count = i64::try_from(seconds).unwrap_or(i64::MAX);
    let mut text = Vec::new();
    Cell::Timestamp { count, unit: Unit::Second, utc: true }.write_text(&mut text);
    String::from_utf8(text).expect("times are written in ASCII")
}

/// Appends bytes as a JSON string, or as `{"base64":"..."}` if they are not UTF-8.
pub(crate) fn write_json_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => serde_json::to_writer(out, text).expect("a vector takes all bytes"),
        Err(_) => put(out, format_args!(r#"{{"base64":"{}"}}"#, BASE64_STANDARD.encode(bytes))),
    }
}

/// Returns whether the bytes are the text of one JSON value.
pub(crate) fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<&RawValue>(bytes).is_ok()
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a vector takes all bytes");
}

const SECONDS_A_DAY: i64 = 86_400;

fn write_timestamp(count: i64, unit: Unit, out: &mut Vec<u8>) {
    let (per_second, digits) = match unit {
        Unit::Second => (1, 0),
        Unit::Millisecond => (1_000, 3),
        Unit::Microsecond => (1_000_000, 6),
        Unit::Nanosecond => (1_000_000_000, 9),
    };
    let seconds = count.div_euclid(per_second);
    write_date(seconds.div_euclid(SECONDS_A_DAY), out);
    let second = seconds.rem_euclid(SECONDS_A_DAY);
    put(out, format_args!("T{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60));
    if digits > 0 {
        put(out, format_args!(".{:0digits$}", count.rem_euclid(per_second)));
    }
}

/// Returns the civil date of a day, by Howard Hinnant's `civil_from_days`:
/// <https://howardhinnant.github.io/date_algorithms.html>.
fn write_date(days: i64, out: &mut Vec<u8>) {
    const DAYS_AN_ERA: i64 = 146_097;
    const DAYS_BEFORE_1970: i64 = 719_468;
    let day = days + DAYS_BEFORE_1970;
    let era = day.div_euclid(DAYS_AN_ERA);
    let day_of_era = day.rem_euclid(DAYS_AN_ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    put(out, format_args!("{year:04}-{month:02}-{day_of_month:02}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cell: Cell<'_>, text: &str, json: &str) {
        let mut out = Vec::new();
        cell.write_text(&mut out);
        assert_eq!(String::from_utf8_lossy(&out), text);
        out.clear();
        cell.write_json(&mut out);
        assert_eq!(String::from_utf8_lossy(&out), json);
    }

    fn time(count: i64, unit: Unit) -> Cell<'static> {
        Cell::Timestamp { count, unit, utc: true }
    }

    #[test]
    fn cells_read_well() {
        check(Cell::Null, "", "null");
        check(Cell::Bool(true), "true", "true");
        check(Cell::Int(-7), "-7", "-7");
        check(Cell::Uint(u64::MAX), "18446744073709551615", "18446744073709551615");
        check(Cell::Float64(0.1), "0.1", "0.1");
        check(Cell::Float32(f32::NAN), "NaN", "\"NaN\"");
        check(Cell::Bytes(b"a\"b"), "a\"b", r#""a\"b""#);
        check(Cell::Json(br#""a""#), "a", r#""a""#);
        check(Cell::Json(b"[1, 2]"), "[1, 2]", "[1, 2]");
        check(Cell::Json(b"[1, "), "[1, ", r#""[1, ""#);
    }

    #[test]
    fn bytes_that_are_not_text_become_base64() {
        let mut out = Vec::new();
        Cell::Bytes(&[0xff, 0]).write_json(&mut out);
        assert_eq!(out, br#"{"base64":"/wA="}"#);
    }

    #[test]
    fn dates_and_times_are_iso_8601() {
        check(Cell::Date(0), "1970-01-01", "\"1970-01-01\"");
        check(Cell::Date(-1), "1969-12-31", "\"1969-12-31\"");
        check(Cell::Date(11_016), "2000-02-29", "\"2000-02-29\"");
        check(
            time(-1, Unit::Millisecond),
            "1969-12-31T23:59:59.999Z",
            "\"1969-12-31T23:59:59.999Z\"",
        );
        check(time(951_782_400, Unit::Second), "2000-02-29T00:00:00Z", "\"2000-02-29T00:00:00Z\"");
        for unit in [Unit::Second, Unit::Millisecond, Unit::Microsecond, Unit::Nanosecond] {
            for count in [i64::MIN, i64::MAX] {
                time(count, unit).write_text(&mut Vec::new());
            }
        }
        Cell::Date(i32::MIN).write_text(&mut Vec::new());
    }

    #[test]
    fn times_are_written_in_utc() {
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
    }
}
