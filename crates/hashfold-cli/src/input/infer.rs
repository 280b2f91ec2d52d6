//! Kinds of columns, inferred from the first rows of CSV and JSON Lines.

use hashfold_rows::{Item, Kind, RowEncoder, Unit, Value};

/// The kinds that all values of a column so far have, the narrowest first.
#[derive(Clone, Debug)]
pub(super) struct Guess {
    left: Vec<Kind>,
    /// The kind of a column without values.
    default: Kind,
    has_values: bool,
}

impl Guess {
    /// Starts a guess for text.
    pub(super) fn of_text() -> Guess {
        let time = |unit, utc| Kind::Timestamp { unit, utc };
        let (us, ns) = (Unit::Microsecond, Unit::Nanosecond);
        let times = [time(us, false), time(us, true), time(ns, false), time(ns, true)];
        let left = [Kind::Bool, Kind::Int64, Kind::Float64, Kind::Date].into_iter().chain(times);
        Guess { left: left.collect(), default: Kind::Text, has_values: false }
    }

    /// Starts a guess for JSON values.
    pub(super) fn of_json() -> Guess {
        let list = |item| Kind::List { item };
        let lists = [list(Item::Int64), list(Item::Float64)];
        let left = [Kind::Bool, Kind::Int64, Kind::Float64].into_iter().chain(lists);
        Guess { left: left.chain([Kind::Text]).collect(), default: Kind::Json, has_values: false }
    }

    /// Takes a value. Null and empty text have every kind.
    pub(super) fn see(&mut self, value: Value<'_>) {
        if value.is_null() || value == Value::Bytes(b"") {
            return;
        }
        self.has_values = true;
        self.left.retain(|kind| is_of(*kind, value));
    }

    /// Returns the kind of all values.
    pub(super) fn kind(&self) -> Kind {
        let first = self.left.first().filter(|_| self.has_values);
        first.copied().unwrap_or(self.default)
    }
}

/// Returns whether a value was meant as this kind. Stricter than a conversion: text with zeros in
/// front is no number, and neither is a JSON string.
fn is_of(kind: Kind, value: Value<'_>) -> bool {
    let looks_so = match (kind, value) {
        (Kind::Text, Value::Json(json)) => json.starts_with(b"\""),
        (Kind::Int64 | Kind::List { item: Item::Int64 }, Value::Json(json)) => is_whole(json),
        (_, Value::Json(json)) => !json.starts_with(b"\""),
        (Kind::Int64, Value::Bytes(text)) => is_number(text) && is_whole(text),
        (Kind::Float64, Value::Bytes(text)) => is_number(text),
        _ => true,
    };
    looks_so && RowEncoder::new(&mut Vec::new(), 1).value(kind, value).is_ok()
}

/// Returns whether numbers in a text were written without a fraction or an exponent.
fn is_whole(text: &[u8]) -> bool {
    !text.iter().any(|byte| b"\".eE".contains(byte))
}

/// Returns whether a text is a decimal number without a plus or zeros in front.
fn is_number(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        [b'0', b'0'..=b'9', ..] => false,
        [b'0'..=b'9', rest @ ..] => rest.iter().all(|byte| b"0123456789.eE+-".contains(byte)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(texts: &[&str], expected: &str) {
        let mut guess = Guess::of_text();
        texts.iter().for_each(|text| guess.see(Value::Bytes(text.as_bytes())));
        assert_eq!(guess.kind().to_string(), expected, "{texts:?}");
    }

    #[track_caller]
    fn check_json(texts: &[&str], expected: &str) {
        let mut guess = Guess::of_json();
        texts.iter().for_each(|text| guess.see(Value::Json(text.as_bytes())));
        assert_eq!(guess.kind().to_string(), expected, "{texts:?}");
    }

    #[test]
    fn the_narrowest_kind_of_all_values_is_taken() {
        check(&["1", "", "-7"], "int64");
        check(&["1", "2.5"], "float64");
        check(&["1", "1e3"], "float64");
        check(&["true", "false"], "bool");
        check(&["2026-01-31", ""], "date");
        check(&["2026-01-31T12:00:00Z", "2026-01-31 12:00:00.5Z"], "timestamp[us, UTC]");
        check(&["2026-01-31T12:00:00.123456789"], "timestamp[ns]");
        for text in ["007", "+1", "nan", "inf", "0x1", "1_0", "12345678901234567890", "-", "x"] {
            check(&["1", text], "text");
        }
        check(&["", ""], "text");
    }

    #[test]
    fn json_has_numbers_lists_of_numbers_and_text() {
        check_json(&["1", "null"], "int64");
        check_json(&["1", "2.5"], "float64");
        check_json(&["[1]", "[0.5,null]"], "list[float64]");
        check_json(&["[1]", "[]"], "list[int64]");
        check_json(&["1", "2.0"], "float64");
        check_json(&["[1,2.0]", "[1e3]"], "list[float64]");
        check_json(&["\"1\"", "\"x\""], "text");
        check_json(&["1", "\"1\""], "json");
        check_json(&["[[1]]"], "json");
        check_json(&["null"], "json");
    }
}
