//! From text and numbers to the values of fields and to times.

use crate::config::TimeFormat;
use hashfold::pipeline::{FieldKind, TIME_MS_MAX, Value};
use hashfold_rows::{unix_ms, unix_ms_or_utc};

/// Why a field of numbers is wrong.
pub(crate) const NO_INT: &str = "a field is no integer of 64 bits";
pub(crate) const NO_FLOAT: &str = "a field is no finite number";
pub(crate) const NO_VALUE: &str = "a field is a list or an object";
pub(crate) const NO_TIME: &str = "the time is missing or wrong";
pub(crate) const NO_ZONE: &str = "the time has no zone, such as Z for UTC";

/// Integers up to this, from 0, have each a float of 64 bits.
const EXACT_MAX: f64 = (1_u64 << 53) as f64;

/// Returns the value of a field from its text; empty text is null.
pub(crate) fn of_text(kind: FieldKind, text: &[u8]) -> Result<Value<'_>, &'static str> {
    match kind {
        _ if text.is_empty() => Ok(Value::Null),
        FieldKind::Text => Ok(Value::Text(text)),
        FieldKind::Int => parse::<i64>(text).map(Value::Int).ok_or(NO_INT),
        FieldKind::Float => finite(parse::<f64>(text)).map(Value::Float).ok_or(NO_FLOAT),
    }
}

pub(crate) fn finite(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite())
}

/// Returns the integer that a float is, if it is one.
pub(crate) fn whole(value: f64) -> Option<i64> {
    (value.fract() == 0.0 && value.abs() <= EXACT_MAX).then_some(value as i64)
}

fn parse<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Returns the time in milliseconds since 1970 from its text.
pub(crate) fn time_of_text(format: TimeFormat, text: &[u8]) -> Result<i64, &'static str> {
    match format {
        TimeFormat::Rfc3339 => match unix_ms(text) {
            None if unix_ms_or_utc(text).is_some() => Err(NO_ZONE),
            time_ms => check_time(time_ms),
        },
        TimeFormat::Utc => check_time(unix_ms_or_utc(text)),
        _ => match parse::<i64>(text) {
            Some(count) => time_of_int(format, count),
            None if format == TimeFormat::S => {
                time_of_float(format, parse(text).unwrap_or(f64::NAN))
            }
            None => Err(NO_TIME),
        },
    }
}

/// Returns the time in milliseconds since 1970 from a number of units.
pub(crate) fn time_of_int(format: TimeFormat, count: i64) -> Result<i64, &'static str> {
    check_time(match format {
        TimeFormat::S => count.checked_mul(1000),
        TimeFormat::Ms => Some(count),
        TimeFormat::Us => Some(count.div_euclid(1000)),
        TimeFormat::Ns => Some(count.div_euclid(1_000_000)),
        TimeFormat::Rfc3339 | TimeFormat::Utc => None,
    })
}

/// Returns the time in milliseconds since 1970 from a number of seconds with a fraction.
pub(crate) fn time_of_float(format: TimeFormat, count: f64) -> Result<i64, &'static str> {
    let ms = (count * 1000.0).floor();
    let is_good = format == TimeFormat::S && ms.abs() <= TIME_MS_MAX as f64;
    check_time(is_good.then_some(ms as i64))
}

fn check_time(time_ms: Option<i64>) -> Result<i64, &'static str> {
    time_ms.filter(|time_ms| time_ms.unsigned_abs() <= TIME_MS_MAX as u64).ok_or(NO_TIME)
}
