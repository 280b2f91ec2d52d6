//! Numbers as people write them.

/// Returns a count in words if it is whole millions or billions, or else with commas: `16 million`,
/// `1 billion`, `59,055,800`.
pub fn count(count: u64) -> String {
    let words = [(1_000_000_000, "billion"), (1_000_000, "million")];
    let word = words.into_iter().find(|(unit, _)| count > 0 && count.is_multiple_of(*unit));
    match word {
        Some((unit, word)) => format!("{} {word}", count / unit),
        None => exact(count as f64, 0),
    }
}

/// Returns a number with three digits that count, and a unit of thousands above a million: `9.33 M`,
/// `118`, `0.0373`. Whole numbers below a million are exact.
pub fn short(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() < 1e6 {
        return exact(number, 0);
    }
    let units = [(1e12, " T"), (1e9, " G"), (1e6, " M")];
    let unit = units.into_iter().find(|(unit, _)| number.abs() >= unit * 0.9995);
    match unit {
        Some((unit, name)) => digits(number / unit) + name,
        None => digits(number),
    }
}

/// Returns a number with so many decimals, and commas between its thousands: `1,234.5`.
pub fn exact(number: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", number.abs());
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let is_zero = text.bytes().all(|byte| matches!(byte, b'0' | b'.'));
    let mut out = if number < 0.0 && !is_zero { "-".to_owned() } else { String::new() };
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + fraction
}

/// Returns a number with three digits that count, or more before the point.
fn digits(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    // Rounding first, so that 9.996 is 10.0.
    let rounded: f64 = format!("{number:.2e}").parse().unwrap_or(number);
    let before = rounded.abs().log10().floor() as i32;
    exact(number, (2 - before).clamp(0, 9) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_that_count() {
        let cases = [
            (0.0, "0"),
            (40_000.0, "40,000"),
            (999_999.0, "999,999"),
            (79_123.4, "79,123"),
            (118.4, "118"),
            (12.82, "12.8"),
            (9.996, "10.0"),
            (0.03731, "0.0373"),
            (-1.5, "-1.50"),
            (9_328_000.0, "9.33 M"),
            (59_055_800.0, "59.1 M"),
            (999_600.5, "1.00 M"),
            (8.59e9, "8.59 G"),
        ];
        for (number, text) in cases {
            assert_eq!(short(number), text);
        }
    }

    #[test]
    fn whole_millions_and_billions_are_words() {
        assert_eq!([0, 1_000_000, 16_000_001].map(count), ["0", "1 million", "16,000,001"]);
        assert_eq!([1_000_000_000, 2_500_000_000].map(count), ["1 billion", "2500 million"]);
    }

    #[test]
    fn thousands_are_set_apart() {
        for (number, text) in
            [(0.0, "0"), (999.0, "999"), (1000.0, "1,000"), (-1_234_567.0, "-1,234,567")]
        {
            assert_eq!(exact(number, 0), text);
        }
        assert_eq!(exact(-0.04, 1), "0.0");
        assert_eq!(exact(1234.56, 1), "1,234.6");
    }
}
