//! Patterns of `KEYS`, `SCAN` and `CONFIG GET`.

/// Whether bytes match a pattern: `*` is any bytes, `?` any byte, `[a-c]` and `[^a-c]` are sets, `\` takes
/// the next byte as it is. Takes time in proportion to the product of both lengths at most.
#[must_use]
pub fn matches(pattern: &[u8], bytes: &[u8]) -> bool {
    let (mut p, mut b) = (0, 0);
    // The place after the last `*`, and the first byte that it has not taken yet.
    let mut star = None;
    loop {
        let step = match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, b));
                p += 1;
                continue;
            }
            None if b == bytes.len() => return true,
            None => None,
            Some(_) => bytes.get(b).and_then(|byte| one(&pattern[p..], *byte)),
        };
        match (step, star) {
            (Some(used), _) => (p, b) = (p + used, b + 1),
            (None, Some((after, taken))) if taken < bytes.len() => {
                (p, b) = (after, taken + 1);
                star = Some((after, taken + 1));
            }
            (None, _) => return false,
        }
    }
}

/// Whether a byte matches the first element of a pattern, which is not `*`. Returns the element's size.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', set @ ..] => in_set(set, byte),
        [plain, ..] => (*plain == byte).then_some(1),
        [] => None,
    }
}

/// Whether a byte is in the set after a `[`. Returns the size of the whole element. A set that is not
/// closed ends with the pattern.
fn in_set(set: &[u8], byte: u8) -> Option<usize> {
    let is_negated = set.first() == Some(&b'^');
    let mut at = usize::from(is_negated);
    let mut is_in = false;
    loop {
        match &set[at.min(set.len())..] {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                is_in |= *escaped == byte;
                at += 2;
            }
            [first, b'-', last, ..] => {
                is_in |= (*first.min(last)..=*first.max(last)).contains(&byte);
                at += 3;
            }
            [plain, ..] => {
                is_in |= *plain == byte;
                at += 1;
            }
        }
    }
    (is_in != is_negated).then_some(at + 1)
}
