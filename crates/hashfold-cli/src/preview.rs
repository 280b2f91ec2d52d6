//! The user's names, keys and lists in messages, shortened.

use crate::units;
use std::{borrow::Cow, fmt};

/// Maximum number of characters shown of a name or key.
const NAME_CHARS_MAX: usize = 80;

/// Maximum number of characters shown of a decoder's message, which may quote its input.
const REASON_CHARS_MAX: usize = 400;

/// Maximum number of items shown of a list.
const ITEMS_MAX: usize = 20;

/// Returns a name, or its first characters and three dots.
pub(crate) fn name(name: &str) -> Cow<'_, str> {
    cut(name, NAME_CHARS_MAX)
}

/// Returns a decoder's message, or its first characters and three dots.
pub(crate) fn reason(reason: &impl fmt::Display) -> String {
    cut(&reason.to_string(), REASON_CHARS_MAX).into_owned()
}

/// Returns the first characters of a key in quotes, with escapes for unprintable ones.
pub(crate) fn key(key: &[u8]) -> String {
    // A character takes at most four bytes.
    let shown = String::from_utf8_lossy(&key[..key.len().min(4 * NAME_CHARS_MAX + 4)]);
    format!("{:?}", name(&shown))
}

/// Joins items with commas: `a, b, c`, or `a, b, ... and 19,980 more`.
pub(crate) fn list<T: fmt::Display>(items: impl ExactSizeIterator<Item = T>) -> String {
    let more = items.len().saturating_sub(ITEMS_MAX);
    let mut shown: Vec<_> =
        items.take(ITEMS_MAX).map(|item| name(&item.to_string()).into_owned()).collect();
    if more > 0 {
        shown.push(format!("... and {} more", units::count(more as u64)));
    }
    shown.join(", ")
}

fn cut(text: &str, chars_max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => Cow::Owned(format!("{}...", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_and_lists_are_cut() {
        assert_eq!(name("caf\u{e9}"), "caf\u{e9}");
        assert_eq!(name(&"\u{e9}".repeat(80)), "\u{e9}".repeat(80));
        assert_eq!(name(&"\u{e9}".repeat(81)), format!("{}...", "\u{e9}".repeat(80)));
        assert_eq!(key(b"a\"\n\xff"), "\"a\\\"\\n\u{fffd}\"");
        assert_eq!(key(&[b'x'; 65_535]), format!("\"{}...\"", "x".repeat(80)));
        assert_eq!(list(["a", "b"].iter()), "a, b");
        assert!(list(0..20).ends_with(", 18, 19"));
        assert!(list(0..20_000).ends_with(", 18, 19, ... and 19,980 more"));
    }
}
