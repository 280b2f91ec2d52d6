//! Commands that count: `INCR` and its relatives, `INCRBYFLOAT`.

use super::{
    NOT_AN_INTEGER,
    entry::{Change, Command, Group, Run, StringCall},
};

pub(super) const COMMANDS: &[Command] = &[
    one("incr", 2, "Adds 1.", |call| add(call, 1)),
    one("decr", 2, "Subtracts 1.", |call| add(call, -1)),
    one("incrby", 3, "Adds an integer.", |call| add(call, call.arguments.integer(2)?)),
    one("decrby", 3, "Subtracts an integer.", subtract),
    one("incrbyfloat", 3, "Adds a number with a fraction.", add_decimal),
];

const fn one(name: &'static str, arity: i32, summary: &'static str, run: Change) -> Command {
    Command::new(name, arity, Group::Strings, summary, Run::Change(run))
        .writes()
        .fast()
        .keys(1, 1, 1)
}

fn subtract(call: &mut StringCall<'_, '_>) -> Result<(), String> {
    let less = call.arguments.integer(2)?;
    add(call, less.checked_neg().ok_or("ERR decrement would overflow")?)
}

fn add(call: &mut StringCall<'_, '_>, more: i64) -> Result<(), String> {
    let key = call.arguments.at(1);
    let (before, expires_at) = match call.strings.get(key)? {
        None => (0, None),
        Some(old) => {
            let number = crate::protocol::number(&old.value).ok_or(NOT_AN_INTEGER)?;
            (number, old.expires_at)
        }
    };
    let sum = before.checked_add(more).ok_or("ERR increment or decrement would overflow")?;
    call.strings.put(key, sum.to_string().into_bytes(), expires_at)?;
    call.integer(sum)
}

fn add_decimal(call: &mut StringCall<'_, '_>) -> Result<(), String> {
    let key = call.arguments.at(1);
    let old = call.strings.get(key)?;
    let expires_at = old.and_then(|old| old.expires_at);
    let before = old.map_or(Some(Number::Decimal(0)), |old| Number::parse(&old.value));
    let more = Number::parse(call.arguments.at(2));
    let (Some(before), Some(more)) = (before, more) else {
        return Err("ERR value is not a valid float".into());
    };
    let sum = before.plus(more).ok_or("ERR increment would produce NaN or Infinity")?;
    call.strings.put(key, sum.clone().into_bytes(), expires_at)?;
    call.reply.bulk(sum.as_bytes());
    Ok(())
}

/// Number of digits after the point.
const PLACES: i32 = 17;
const ONE: i128 = 10_i128.pow(PLACES as u32);
/// Numbers below this are added as decimals.
const DECIMAL_MAX: i128 = ONE * 10_i128.pow(20);

/// A number with a fraction.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Number {
    /// A multiple of 10⁻¹⁷.
    Decimal(i128),
    /// One that is too large for that.
    Binary(f64),
}

impl Number {
    fn parse(text: &[u8]) -> Option<Number> {
        let text = std::str::from_utf8(text).ok()?;
        let binary: f64 = text.parse().ok().filter(|number: &f64| !number.is_nan())?;
        Some(decimal(text).map_or(Number::Binary(binary), Number::Decimal))
    }

    fn binary(self) -> f64 {
        match self {
            Number::Decimal(scaled) => scaled as f64 / ONE as f64,
            Number::Binary(number) => number,
        }
    }

    /// Returns the sum as text, without zeros at its end; `None` if it is infinite.
    fn plus(self, other: Number) -> Option<String> {
        let text = match (self, other) {
            (Number::Decimal(a), Number::Decimal(b)) => {
                let sum = a + b;
                let (whole, part) =
                    (sum.unsigned_abs() / ONE as u128, sum.unsigned_abs() % ONE as u128);
                let sign = if sum < 0 { "-" } else { "" };
                format!("{sign}{whole}.{part:017}")
            }
            _ => {
                let sum = self.binary() + other.binary();
                if !sum.is_finite() {
                    return None;
                }
                format!("{sum:.17}")
            }
        };
        let text = text.trim_end_matches('0').trim_end_matches('.');
        Some(if text == "-0" { "0" } else { text }.to_owned())
    }
}

/// Returns a number such as `-1.5e3` as a multiple of 10⁻¹⁷, rounded; `None` if it is too large, or written in
/// another way.
fn decimal(text: &str) -> Option<i128> {
    let (is_negative, text) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (digits, exponent) = match text.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    // The place of each digit: 0 for that of the units.
    let mut place = i32::try_from(whole.len()).ok()?.checked_add(exponent)?;
    let mut scaled: i128 = 0;
    for digit in whole.bytes().chain(part.bytes()) {
        place = place.saturating_sub(1);
        let digit = i128::from(digit.is_ascii_digit().then_some(digit - b'0')?);
        if digit == 0 {
            continue;
        }
        if place >= 20 {
            return None;
        }
        match place + PLACES {
            power @ 0.. => scaled += digit * 10_i128.pow(power as u32),
            -1 if digit >= 5 => scaled += 1,
            _ => {}
        }
    }
    let scaled = if is_negative { -scaled } else { scaled };
    (scaled.abs() < DECIMAL_MAX).then_some(scaled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(a: &str, b: &str, expected: Option<&str>) {
        let [a, b] = [a, b].map(|text| Number::parse(text.as_bytes()).unwrap());
        assert_eq!(a.plus(b).as_deref(), expected, "{a:?} {b:?}");
    }

    #[test]
    fn fractions_are_added_as_people_do() {
        check("1", "-1.1", Some("-0.1"));
        check("10.50", "0.1", Some("10.6"));
        check("5.0e3", "2.0e2", Some("5200"));
        check("0.1", "0.2", Some("0.3"));
        check("-0.00000000000000001", "0", Some("-0.00000000000000001"));
        check("0.000000000000000005", "0", Some("0.00000000000000001"));
        check("-1e-30", "0", Some("0"));
        check("12345678901234567890", "0.5", Some("12345678901234567890.5"));
        check(".1e-2147483648", "0", Some("0"));
        check(".5", "+5.", Some("5.5"));
        check("1e20", "1e20", Some("200000000000000000000"));
        check("1e308", "1e308", None);
        check("inf", "1", None);
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for wrong in ["", " 1", "1 ", "x", "nan", "1e", "1.2.3", "--1", "1e5x"] {
            assert_eq!(Number::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
