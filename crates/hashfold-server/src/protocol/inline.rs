//! The words of a request that is a line, with quotes as in `redis-cli`.

/// Splits a line into words. Returns `None` if a quote is not closed, or is followed by more than a
/// blank.
pub(super) fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii_start();
    while !rest.is_empty() {
        let (word, after) = word(rest)?;
        words.push(word);
        rest = after.trim_ascii_start();
    }
    Some(words)
}

/// Takes a word off the front of the line. Returns it, and what follows.
fn word(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    loop {
        match rest {
            [] => return Some((word, rest)),
            [b'"', inside @ ..] => return double_quoted(inside, word),
            [b'\'', inside @ ..] => return single_quoted(inside, word),
            [byte, ..] if byte.is_ascii_whitespace() || *byte == 0 => {
                return Some((word, &rest[1..]));
            }
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
        }
    }
}

fn double_quoted(mut rest: &[u8], mut word: Vec<u8>) -> Option<(Vec<u8>, &[u8])> {
    loop {
        let (byte, after) = match rest {
            [b'"', after @ ..] => return ends_word(after).then_some((word, after)),
            [b'\\', b'x', high, low, after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (hexadecimal(*high) << 4 | hexadecimal(*low), after)
            }
            [b'\\', escaped, after @ ..] => (unescaped(*escaped), after),
            [byte, after @ ..] => (*byte, after),
            [] => return None,
        };
        word.push(byte);
        rest = after;
    }
}

fn single_quoted(mut rest: &[u8], mut word: Vec<u8>) -> Option<(Vec<u8>, &[u8])> {
    loop {
        let (byte, after) = match rest {
            [b'\'', after @ ..] => return ends_word(after).then_some((word, after)),
            [b'\\', b'\'', after @ ..] => (b'\'', after),
            [byte, after @ ..] => (*byte, after),
            [] => return None,
        };
        word.push(byte);
        rest = after;
    }
}

/// Whether a word may end before these bytes.
fn ends_word(rest: &[u8]) -> bool {
    rest.first().is_none_or(u8::is_ascii_whitespace)
}

fn hexadecimal(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => digit.to_ascii_lowercase() - b'a' + 10,
    }
}

/// Returns the byte that a letter after a backslash stands for.
fn unescaped(letter: u8) -> u8 {
    match letter {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}
