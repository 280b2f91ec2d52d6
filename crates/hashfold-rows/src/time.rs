//! Dates and times as text, in the form of ISO 8601.

use crate::kind::Unit;
use std::io::Write as _;

const SECONDS_A_DAY: i64 = 86_400;
const DAYS_AN_ERA: i64 = 146_097;
const DAYS_BEFORE_1970: i64 = 719_468;
/// Size of a date such as `2026-01-31`.
const DATE_BYTES: usize = 10;

/// `2026-01-31T12:00:00Z`, from seconds since 1970.
pub fn utc(seconds: u64) -> String {
    let mut text = Vec::new();
    put_timestamp(i64::try_from(seconds).unwrap_or(i64::MAX), Unit::Second, &mut text);
    text.push(b'Z');
    String::from_utf8(text).expect("times are written in ASCII")
}

/// `2026-01-31T12:00:00Z`, or `2026-01-31T12:00:00.250Z`, from milliseconds since 1970.
pub fn utc_of_ms(ms: i64) -> String {
    let mut text = Vec::new();
    match ms.rem_euclid(1000) {
        0 => put_timestamp(ms.div_euclid(1000), Unit::Second, &mut text),
        _ => put_timestamp(ms, Unit::Millisecond, &mut text),
    }
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

/// Returns the milliseconds since 1970 of a time as in RFC 3339, `2026-01-31T12:00:00.123456+01:00`, between the years 0000
/// and 9999. A space may stand in place of the T; finer parts than milliseconds are cut off. A leap second, `23:59:60` in
/// UTC, is in the second before it, so that it is in its day. `None` if the text is no such time, or has no zone.
pub fn unix_ms(text: &[u8]) -> Option<i64> {
    let (local, offset_s) = split_offset(text)?;
    local_ms(local, offset_s)
}

/// Returns the milliseconds since 1970 of a time as [`unix_ms`] reads it, or of one without a zone, which is in UTC.
pub fn unix_ms_or_utc(text: &[u8]) -> Option<i64> {
    let (local, offset_s) = split_offset(text).unwrap_or((text, 0));
    local_ms(local, offset_s)
}

/// Splits the zone off a time: what is before it, and its offset from UTC in seconds.
fn split_offset(text: &[u8]) -> Option<(&[u8], i64)> {
    match text {
        [local @ .., b'Z' | b'z'] => Some((local, 0)),
        // A date has the same signs.
        [local @ .., sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] if local.len() > DATE_BYTES => {
            let (hours, minutes) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let offset_s = hours * 3600 + minutes * 60;
            Some((local, if *sign == b'-' { -offset_s } else { offset_s }))
        }
        _ => None,
    }
}

/// Returns the milliseconds since 1970 of a time without its zone, whose offset from UTC is given.
fn local_ms(local: &[u8], offset_s: i64) -> Option<i64> {
    let (date, time) = local.split_at_checked(DATE_BYTES)?;
    let [b'T' | b't' | b' ', h1, h2, b':', m1, m2, b':', s1, s2, fraction @ ..] = time else {
        return None;
    };
    let (hour, minute, second) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?, number(&[*s1, *s2])?);
    let has_sign = !date[0].is_ascii_digit();
    if has_sign || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = i64::from(parse_date(date)?) * SECONDS_A_DAY + hour * 3600 + minute * 60;
    let seconds = seconds + second.min(59) - offset_s;
    if second == 60 && seconds.rem_euclid(SECONDS_A_DAY) != SECONDS_A_DAY - 1 {
        return None;
    }
    Some(seconds * 1000 + fraction_ms(fraction)?)
}

/// Returns the milliseconds of a fraction of a second, `.5`, of any number of digits.
fn fraction_ms(text: &[u8]) -> Option<i64> {
    let digits = match text {
        [] => return Some(0),
        [b'.', digits @ ..] if !digits.is_empty() => digits,
        _ => return None,
    };
    let is_number = digits.iter().all(u8::is_ascii_digit);
    let three = digits.iter().chain(b"000").take(3);
    is_number.then(|| three.fold(0, |value, digit| value * 10 + i64::from(*digit - b'0')))
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

    #[track_caller]
    fn check(text: &str, expected: Option<i64>) {
        assert_eq!(unix_ms(text.as_bytes()), expected, "{text}");
        assert_eq!(unix_ms_or_utc(text.as_bytes()), expected, "{text}");
    }

    #[test]
    fn times_with_offsets_are_counted_from_1970() {
        check("1970-01-01T00:00:01Z", Some(1000));
        check("1970-01-01t00:00:01z", Some(1000));
        check("1970-01-01 00:00:01.2345678901Z", Some(1234));
        check("1970-01-01T00:00:00.07Z", Some(70));
        check("1970-01-01T01:00:00+01:00", Some(0));
        check("1969-12-31T23:30:00.5-00:30", Some(500));
        check("1969-12-31T23:59:59.9999Z", Some(-1));
        check("0000-01-01T00:00:00Z", Some(-62_167_219_200_000));
        check("9999-12-31T23:59:59.999Z", Some(253_402_300_799_999));
        for bad in [
            "",
            "Z",
            "+01:00",
            "1970-01-01Z",
            "1970-01-01T00:00:00+1:00",
            "1970-01-01T00:00:00+24:00",
            "1970-01-01T00:00:00+00:60",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:60:00Z",
            "1970-01-01T00:00:61Z",
            "1970-02-29T00:00:00Z",
            "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00:00.5xZ",
            "1970-01-01T00:00Z",
            "-970-01-01T00:00:00Z",
            "10000-01-01T00:00:00Z",
            "1970-01-01T00:00:00ZZ",
        ] {
            check(bad, None);
        }
    }

    /// A local time cannot be told from one in UTC: it is refused unless it is known to be in UTC.
    #[test]
    fn times_without_a_zone_are_read_only_as_utc() {
        for (text, expected) in [
            ("1970-01-01T00:00:01", 1000),
            ("1970-01-01 00:00:01.5", 1500),
            ("9999-01-01T00:00:00", 253_370_764_800_000),
        ] {
            assert_eq!(unix_ms(text.as_bytes()), None, "{text}");
            assert_eq!(unix_ms_or_utc(text.as_bytes()), Some(expected), "{text}");
        }
    }

    /// The second stays in its minute, hour and day.
    #[test]
    fn a_leap_second_is_the_second_before_it() {
        let end_of_2016 = 1_483_228_799_000;
        check("2016-12-31T23:59:59Z", Some(end_of_2016));
        check("2016-12-31T23:59:60Z", Some(end_of_2016));
        check("2016-12-31T23:59:60.25Z", Some(end_of_2016 + 250));
        check("2016-12-31T15:59:60-08:00", Some(end_of_2016));
        check("2017-01-01T00:59:60+01:00", Some(end_of_2016));
        check("2016-12-31T12:00:60Z", None);
        check("2016-12-31T23:59:60+01:00", None);
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
