//! The types of keys. A key is always stored as text, so that one text finds it everywhere; its type
//! says how it was meant.

use crate::value::Value;
use serde::{Deserialize, Serialize};

/// The type of a data set's keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum KeyType {
    /// Text, bytes, or a mixture of types.
    #[default]
    Text,
    /// Integers of 64 bits, as decimal text.
    Int64,
    /// Integers from 0 to 2^64 - 1, as decimal text.
    Uint64,
}

impl KeyType {
    /// Returns whether keys are text, which is the type of data sets without this field.
    pub fn is_text(&self) -> bool {
        *self == KeyType::Text
    }

    /// Returns the value of a stored key. A key that is not of the type is text.
    pub fn value(self, key: &[u8]) -> Value<'_> {
        let number = if self.is_text() { None } else { integer(key) };
        match (self, number) {
            (KeyType::Int64, Some(number)) => i64::try_from(number).map(Value::Int).ok(),
            (KeyType::Uint64, Some(number)) => u64::try_from(number).map(Value::Uint).ok(),
            _ => None,
        }
        .unwrap_or(Value::Bytes(key))
    }

    /// Returns whether a key is of the type.
    #[inline]
    pub fn accepts(self, key: &[u8]) -> bool {
        match self {
            KeyType::Text => true,
            KeyType::Int64 => integer(key).is_some_and(|number| i64::try_from(number).is_ok()),
            KeyType::Uint64 => integer(key).is_some_and(|number| u64::try_from(number).is_ok()),
        }
    }
}

/// The types of keys of several inputs, joined to the narrowest type for all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyTypes {
    is_text: bool,
    has_int64: bool,
    /// Whether there are integers above those of 64 bits with a sign.
    has_large: bool,
    has_negative: bool,
}

impl KeyTypes {
    /// Adds all keys of an input whose type is known.
    pub fn add(&mut self, key_type: KeyType) {
        match key_type {
            KeyType::Text => self.is_text = true,
            KeyType::Int64 => (self.has_int64, self.has_negative) = (true, true),
            KeyType::Uint64 => (self.has_int64, self.has_large) = (true, true),
        }
    }

    /// Adds a key that is a number if its text is that of an integer.
    #[inline]
    pub fn add_key(&mut self, key: &[u8]) {
        match integer(key) {
            Some(number) => {
                self.has_int64 = true;
                self.has_negative |= number < 0;
                self.has_large |= number > i128::from(i64::MAX);
                self.is_text |= number < i128::from(i64::MIN) || number > i128::from(u64::MAX);
            }
            None => self.is_text = true,
        }
    }

    /// Returns the type for all keys so far; text if there are none.
    pub fn key_type(&self) -> KeyType {
        match (self.is_text, self.has_negative, self.has_large) {
            (true, _, _) | (_, true, true) => KeyType::Text,
            (_, _, true) => KeyType::Uint64,
            _ if self.has_int64 => KeyType::Int64,
            _ => KeyType::Text,
        }
    }
}

/// Returns the integer with exactly this text: no sign but `-`, no zeros in front.
fn integer(text: &[u8]) -> Option<i128> {
    const DIGITS_MAX: usize = 20;
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_canonical = match digits {
        [] => false,
        [b'0'] => digits.len() == text.len(),
        [first, ..] => *first != b'0' && digits.len() <= DIGITS_MAX,
    };
    if !is_canonical {
        return None;
    }
    let magnitude = digits.iter().try_fold(0i128, |value, digit| {
        digit.is_ascii_digit().then(|| value * 10 + i128::from(digit - b'0'))
    })?;
    Some(if digits.len() < text.len() { -magnitude } else { magnitude })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(keys: &[&str], expected: KeyType) {
        let mut types = KeyTypes::default();
        keys.iter().for_each(|key| types.add_key(key.as_bytes()));
        assert_eq!(types.key_type(), expected, "{keys:?}");
        assert!(keys.iter().all(|key| expected.accepts(key.as_bytes())));
    }

    #[test]
    fn keys_are_integers_if_each_text_is_that_of_its_number() {
        check(&["1", "-7", "0", "9223372036854775807"], KeyType::Int64);
        check(&["1", "18446744073709551615"], KeyType::Uint64);
        check(&["-1", "18446744073709551615"], KeyType::Text);
        for text in ["", "-", "-0", "007", "+1", "1.0", "1e3", "x", "18446744073709551616"] {
            check(&["1", text], KeyType::Text);
        }
        check(&[], KeyType::Text);
    }

    #[test]
    fn a_key_of_another_type_is_text() {
        assert_eq!(KeyType::Int64.value(b"-5"), Value::Int(-5));
        assert_eq!(KeyType::Int64.value(b"05"), Value::Bytes(b"05"));
        assert_eq!(KeyType::Uint64.value(b"5"), Value::Uint(5));
        assert_eq!(KeyType::Text.value(b"5"), Value::Bytes(b"5"));
    }
}
