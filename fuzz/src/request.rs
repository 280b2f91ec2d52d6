//! Requests of Redis clients.

use hashfold_server::protocol::{Limits, Parsed, matches, parse};

/// Requests in arbitrary bytes, as a server reads them: whole ones are inside the input, parts ask for more
/// than there is, and whatever is found is found again when more bytes follow.
pub fn request(bytes: &[u8]) {
    for limits in [Limits::STRANGER, Limits::CLIENT, Limits::MAP] {
        let (mut places, mut rest) = (Vec::new(), bytes);
        while let Ok(parsed) = parse(rest, &limits, &mut places) {
            let size = match &parsed {
                Parsed::Needs(needed) => {
                    assert!(*needed > rest.len());
                    break;
                }
                Parsed::Line(size, words) => {
                    assert!(words.iter().map(Vec::len).sum::<usize>() <= *size);
                    *size
                }
                Parsed::Request(size) => {
                    assert!(places.len() <= limits.arguments);
                    assert!(places.iter().all(|place| place.end <= *size));
                    *size
                }
            };
            assert!(0 < size && size <= rest.len());
            let found = places.clone();
            assert_eq!(parse(&rest[..size], &limits, &mut places), Ok(parsed));
            assert_eq!(places, found);
            rest = &rest[size..];
        }
    }
    let (pattern, text) = bytes.split_at(bytes.len() / 2);
    assert!(matches(b"*", text));
    let is_match = matches(pattern, text);
    let is_plain = !pattern.iter().any(|byte| b"*?[\\".contains(byte));
    assert!(!is_plain || is_match == (pattern == text));
}
