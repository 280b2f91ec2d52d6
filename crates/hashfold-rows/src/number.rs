//! Conversion of values to numbers, where nothing is lost.

use crate::value::Value;

/// Integers up to this one have a float64 of their own.
const EXACT_MAX: f64 = (1u64 << 53) as f64;

/// Every decimal number of this many digits is told apart from the others by its nearest float64.
const DIGITS_KEPT: usize = 15;

/// Programs write a float64 with up to this many digits, which are enough to read it back.
const DIGITS_MAX: usize = 17;

pub(crate) fn to_integer(value: Value<'_>) -> Option<i128> {
    let whole =
        |value: f64| (value.fract() == 0.0 && value.abs() <= EXACT_MAX).then_some(value as i128);
    match value {
        Value::Int(value) => Some(value.into()),
        Value::Uint(value) => Some(value.into()),
        Value::Float32(value) => whole(value.into()),
        Value::Float64(value) => whole(value),
        _ => {
            let text = std::str::from_utf8(value.text()?).ok()?;
            text.parse().ok().or_else(|| Decimal::parse(text)?.to_integer())
        }
    }
}

pub(crate) fn to_f64(value: Value<'_>) -> Option<f64> {
    let exact = |value: i128| (value.unsigned_abs() <= 1 << 53).then_some(value as f64);
    match value {
        Value::Float32(value) => Some(value.into()),
        Value::Float64(value) => Some(value),
        Value::Int(value) => exact(value.into()),
        Value::Uint(value) => exact(value.into()),
        _ => parse_f64(std::str::from_utf8(value.text()?).ok()?),
    }
}

pub(crate) fn to_f32(value: Value<'_>) -> Option<f32> {
    if let Value::Float32(value) = value {
        return Some(value);
    }
    let wide = to_f64(value)?;
    let narrow = wide as f32;
    let is_exact = f64::from(narrow) == wide || wide.is_nan();
    // A decimal text like 0.1 has no exact number; it is kept if the nearest one has this text.
    let reads_alike = || value.text().is_some() && narrow.to_string().parse() == Ok(wide);
    (is_exact || reads_alike()).then_some(narrow)
}

/// Reads a decimal number. Refuses texts of more digits than a float64 keeps, and numbers that are too
/// large or too small for one.
fn parse_f64(text: &str) -> Option<f64> {
    let value: f64 = text.parse().ok()?;
    let Some(decimal) = Decimal::parse(text) else {
        // Infinity and NaN.
        return Some(value);
    };
    let digits = decimal.digits.len();
    // A whole number of many digits must be this very number; others may be the digits of a program
    // that writes more than it needs.
    let is_read_back = || decimal.to_integer().is_none_or(|whole| value as i128 == whole);
    let is_kept = digits <= DIGITS_KEPT || (digits <= DIGITS_MAX && is_read_back());
    let is_in_range = value.is_finite() && (digits == 0 || value != 0.0);
    (is_kept && is_in_range).then_some(value)
}

/// A decimal number: its digits, without zeros at the ends, times a power of ten.
struct Decimal {
    is_negative: bool,
    digits: String,
    power: i64,
}

impl Decimal {
    /// Returns the number in a text such as `-12.5e3`.
    fn parse(text: &str) -> Option<Decimal> {
        let (mantissa, power) = match text.split_once(['e', 'E']) {
            Some((mantissa, power)) => (mantissa, power.parse().ok()?),
            None => (text, 0_i32),
        };
        let unsigned = mantissa.strip_prefix(['+', '-']).unwrap_or(mantissa);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let mut digits = [whole, fraction].concat();
        if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        let all = digits.len();
        digits.truncate(digits.trim_end_matches('0').len());
        let zeros = (all - digits.len()) as i64;
        let digits = digits.trim_start_matches('0').to_owned();
        let power = i64::from(power) - fraction.len() as i64 + zeros;
        Some(Decimal { is_negative: mantissa.starts_with('-'), digits, power })
    }

    /// Returns the number if it is whole, and below 10^38.
    fn to_integer(&self) -> Option<i128> {
        if self.digits.is_empty() {
            return Some(0);
        }
        let digits: i128 = self.digits.parse().ok()?;
        let power = u32::try_from(self.power).ok()?;
        let value = digits.checked_mul(10_i128.checked_pow(power)?)?;
        Some(if self.is_negative { -value } else { value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integer(text: &str) -> Option<i128> {
        to_integer(Value::Bytes(text.as_bytes()))
    }

    fn float(text: &str) -> Option<f64> {
        to_f64(Value::Bytes(text.as_bytes()))
    }

    #[test]
    fn a_text_is_an_integer_if_it_is_exactly_one() {
        for (text, expected) in [
            ("7", Some(7)),
            ("-7.00", Some(-7)),
            ("1e3", Some(1000)),
            ("12.5e1", Some(125)),
            ("9007199254740993.0", Some(9_007_199_254_740_993)),
            ("18446744073709551615", Some(u64::MAX.into())),
            ("0.0", Some(0)),
            ("1e-400", None),
            ("1e400", None),
            ("1e99999999999", None),
            ("12.5", None),
            ("1e", None),
            ("", None),
            (".", None),
            ("inf", None),
        ] {
            assert_eq!(integer(text), expected, "{text}");
        }
    }

    #[test]
    fn a_text_is_a_float_if_no_digit_is_lost() {
        for (text, expected) in [
            ("0.1", Some(0.1)),
            ("1e30", Some(1e30)),
            ("0.10000000000000001", Some(0.1)),
            ("9007199254740992", Some(9_007_199_254_740_992.0)),
            ("-0.0", Some(-0.0)),
            ("0e999", Some(0.0)),
            ("inf", Some(f64::INFINITY)),
            ("9007199254740993", None),
            ("9007199254740993.0", None),
            ("0.123456789012345678", None),
            ("1e-400", None),
            ("1e400", None),
            ("1.2.3", None),
        ] {
            assert_eq!(float(text), expected, "{text}");
        }
        assert!(float("NaN").unwrap().is_nan());
    }
}
