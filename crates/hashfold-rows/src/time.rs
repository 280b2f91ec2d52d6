//! Dates and times as text, in the form of ISO 8601.

use crate::kind::Unit;
use std::io::Write as _;

const SECONDS_A_DAY: i64 = 86_400;
const DAYS_AN_ERA: i64 = 146_097;
const DAYS_BEFORE_1970: i64 = 719_468;

/// `2026-01-31T12:00:00Z`, from seconds since 1970.
pub fn utc(seconds: u64) -> String {
    let mut text = Vec::new();
    put_timestamp(i64::try_from(seconds).unwrap_or(i64::MAX), Unit::Second, &mut text);
    text.push(b'Z');
    String::from_utf8(text).expect("times are written in ASCII")
}

/// Appends a time without its time zone: `2026-01-31T12:00:00.000`.
pub(crate) fn put_timestamp(count: i64, unit: Unit, out: &mut Vec<u8>) {
    let seconds = count.div_euclid(unit.per_second());
    put_date(seconds.div_euclid(SECONDS_A_DAY), out);
    let second = seconds.rem_euclid(SECONDS_A_DAY);
    put(out, format_args!("T{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60));
    let digits = unit.digits();
    if digits > 0 {
        put(out, format_args!(".{:0digits$}", count.rem_euclid(unit.per_second())));
    }
}

/// Appends the civil date of a day, by Howard Hinnant's `civil_from_days`:
/// <https://howardhinnant.github.io/date_algorithms.html>.
pub(crate) fn put_date(days: i64, out: &mut Vec<u8>) {
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

/// Returns the day of a date like `2026-01-31`, counted from 1970-01-01.
pub(crate) fn parse_date(text: &[u8]) -> Option<i32> {
    let [year @ .., b'-', m1, m2, b'-', d1, d2] = text else { return None };
    let year = if let [b'-', year @ ..] = year { -number(year)? } else { number(year)? };
    let (month, day) = (number(&[*m1, *m2])?, number(&[*d1, *d2])?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let days = days_from_civil(year, month, day);
    // Refuses days that a month does not have.
    let mut again = Vec::with_capacity(text.len());
    put_date(days, &mut again);
    i32::try_from(days).ok().filter(|_| again == text)
}

/// Returns a time like `2026-01-31T12:00:00.5Z` in this unit, and whether it is in UTC. A space may
/// stand in place of the T. `None` if the text is no time, or its fraction is finer than the unit.
pub(crate) fn parse_timestamp(text: &[u8], unit: Unit) -> Option<(i64, bool)> {
    let (text, utc) = match text.strip_suffix(b"Z") {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let place = text.iter().position(|byte| matches!(byte, b'T' | b' '))?;
    let (date, time) = (parse_date(&text[..place])?, &text[place + 1..]);
    let [h1, h2, b':', m1, m2, b':', s1, s2, fraction @ ..] = time else { return None };
    let (hour, minute, second) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?, number(&[*s1, *s2])?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = i64::from(date) * SECONDS_A_DAY + hour * 3600 + minute * 60 + second;
    let parts = parse_fraction(fraction, unit.digits())?;
    let count = seconds.checked_mul(unit.per_second())?.checked_add(parts)?;
    Some((count, utc))
}

/// Returns the milliseconds since 1970 of a time as in RFC 3339, `2026-01-31T12:00:00.123456+01:00`; without an
/// offset, the time is in UTC. `None` if the text is no time, or not between the years 1678 and 2261.
pub fn unix_ms(text: &[u8]) -> Option<i64> {
    const NANOSECONDS_A_MS: i64 = 1_000_000;
    let (text, offset_s) = match text {
        [local @ .., sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] if local.len() > 10 => {
            let (hours, minutes) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?);
            let offset_s = hours * 3600 + minutes * 60;
            (local, if *sign == b'-' { -offset_s } else { offset_s })
        }
        _ => (text, 0),
    };
    let (count, _) = parse_timestamp(text, Unit::Nanosecond)?;
    Some(count.div_euclid(NANOSECONDS_A_MS) - offset_s * 1000)
}

/// Returns the fraction of a second, `.5`, in units of `digits` decimal digits.
fn parse_fraction(text: &[u8], digits: usize) -> Option<i64> {
    let fraction = match text {
        [] => return Some(0),
        [b'.', fraction @ ..] if (1..=9).contains(&fraction.len()) => fraction,
        _ => return None,
    };
    let value = number(fraction)?;
    match fraction.len() {
        len if len <= digits => Some(value * 10i64.pow((digits - len) as u32)),
        len => {
            let finer = 10i64.pow((len - digits) as u32);
            (value % finer == 0).then_some(value / finer)
        }
    }
}

/// The inverse of [`put_date`]: Howard Hinnant's `days_from_civil`.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * DAYS_AN_ERA + day_of_era - DAYS_BEFORE_1970
}

/// Returns the value of up to nine digits.
fn number(digits: &[u8]) -> Option<i64> {
    if digits.is_empty() || digits.len() > 9 {
        return None;
    }
    digits.iter().try_fold(0, |value, digit| {
        digit.is_ascii_digit().then(|| value * 10 + i64::from(digit - b'0'))
    })
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a vector takes all bytes");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
    }

    #[test]
    fn dates_and_times_come_back_from_their_text() {
        for days in (-800_000..800_000).step_by(997).chain([0, -1, 11_016]) {
            let mut text = Vec::new();
            put_date(days.into(), &mut text);
            assert_eq!(parse_date(&text), Some(days), "{}", text.escape_ascii());
        }
        for unit in [Unit::Second, Unit::Millisecond, Unit::Microsecond, Unit::Nanosecond] {
            for count in [-1, 0, 1, 951_782_400, -86_400_001] {
                let mut text = Vec::new();
                put_timestamp(count, unit, &mut text);
                assert_eq!(parse_timestamp(&text, unit), Some((count, false)));
                text.push(b'Z');
                assert_eq!(parse_timestamp(&text, unit), Some((count, true)));
            }
        }
        assert_eq!(
            parse_timestamp(b"1970-01-01 00:00:01.50", Unit::Millisecond),
            Some((1500, false))
        );
    }

    #[test]
    fn times_with_offsets_are_counted_from_1970() {
        let check = |text: &str, expected| assert_eq!(unix_ms(text.as_bytes()), expected, "{text}");
        check("1970-01-01T00:00:01Z", Some(1000));
        check("1970-01-01 00:00:01.2345678", Some(1234));
        check("1970-01-01T01:00:00+01:00", Some(0));
        check("1969-12-31T23:30:00.5-00:30", Some(500));
        for bad in ["", "+01:00", "1970-01-01", "1970-01-01T00:00:00+1:00", "9999-01-01T00:00:00Z"]
        {
            check(bad, None);
        }
    }

    #[test]
    fn what_is_no_date_or_time_is_refused() {
        for text in ["", "2026-02-30", "2026-13-01", "2026-1-1", "26-01-01", "2026-01-00", "x"] {
            assert_eq!(parse_date(text.as_bytes()), None, "{text}");
        }
        for text in ["2026-01-01", "2026-01-01T24:00:00", "2026-01-01T00:00:00.1234", "T00:00:00"] {
            assert_eq!(parse_timestamp(text.as_bytes(), Unit::Millisecond), None, "{text}");
        }
    }
}
