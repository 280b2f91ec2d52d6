//! Requests whole, in pieces, and damaged; replies.

use super::{request::number, *};

/// The arguments of a request, and the bytes that it takes.
type Found = (Vec<Vec<u8>>, usize);

/// Parses the first request; returns its arguments, and the bytes that it takes.
fn request(input: &[u8], limits: &Limits) -> Result<Option<Found>, String> {
    let mut places = Vec::new();
    match parse(input, limits, &mut places).map_err(|error| error.to_string())? {
        Parsed::Needs(bytes) => {
            assert!(bytes > input.len(), "{bytes} of {}", input.len());
            Ok(None)
        }
        Parsed::Line(size, words) => Ok(Some((words, size))),
        Parsed::Request(size) => {
            Ok(Some((places.into_iter().map(|place| input[place].to_vec()).collect(), size)))
        }
    }
}

#[track_caller]
fn check(input: &str, expected: &[&str]) {
    let (arguments, size) = request(input.as_bytes(), &Limits::CLIENT).unwrap().unwrap();
    assert_eq!(arguments, expected.iter().map(|text| text.as_bytes()).collect::<Vec<_>>());
    assert_eq!(size, input.len());
    for end in 0..input.len() {
        assert_eq!(request(&input.as_bytes()[..end], &Limits::CLIENT), Ok(None), "{end}");
    }
    let more = [input.as_bytes(), b"*1\r\n"].concat();
    assert_eq!(request(&more, &Limits::CLIENT).unwrap().unwrap().1, input.len());
}

#[track_caller]
fn refuse(input: &[u8], limits: &Limits, message: &str) {
    let expected = format!("ERR Protocol error: {message}");
    let shown = input[..input.len().min(100)].escape_ascii();
    assert_eq!(request(input, limits), Err(expected), "{shown}");
}

#[test]
fn requests_are_found_wherever_the_input_is_cut() {
    check("*2\r\n$3\r\nGET\r\n$4\r\n4711\r\n", &["GET", "4711"]);
    check("*1\r\n$0\r\n\r\n", &[""]);
    check("*1\r\n$4\r\n\r\n\r\n\r\n", &["\r\n\r\n"]);
    check("*0\r\n", &[]);
    check("*-1\r\n", &[]);
    check("\r\n", &[]);
    check("GET 4711\r\n", &["GET", "4711"]);
    check("  set  \"a b\" 'c\\'d' \"\\x41\\n\"\n", &["set", "a b", "c'd", "A\n"]);
}

#[test]
fn violations_are_refused_in_the_words_of_redis() {
    let client = &Limits::CLIENT;
    refuse(b"*x\r\n", client, "invalid multibulk length");
    refuse(b"*20003\r\n", client, "invalid multibulk length");
    refuse(b"*99999999999999999999\r\n", client, "invalid multibulk length");
    refuse(b"*1\r\n+OK\r\n", client, "expected '$', got '+'");
    refuse(b"*1\r\n$-1\r\n", client, "invalid bulk length");
    refuse(b"*1\r\n$1048577\r\n", client, "invalid bulk length");
    refuse(&[b"*".as_slice(), &[b'1'; 40]].concat(), client, "too big mbulk count string");
    refuse(&[b"*1\r\n$".as_slice(), &[b'1'; 40]].concat(), client, "too big bulk count string");
    refuse(&[b'a'; 65_537], client, "too big inline request");
    refuse(b"GET \"a\n", client, "unbalanced quotes in request");
    refuse(b"GET \"a\"b\n", client, "unbalanced quotes in request");
    let large = [
        b"*20\r\n".to_vec(),
        [b"$1048576\r\n".to_vec(), vec![b'a'; 1 << 20], b"\r\n".to_vec()].concat().repeat(17),
    ];
    refuse(&large.concat(), client, "a request has at most 16777216 bytes");
    let needs = parse(b"*2\r\n$1048577\r\n", &Limits::MAP, &mut Vec::new()).unwrap();
    assert_eq!(needs, Parsed::Needs(14 + 1_048_577 + 2 + 6));
    refuse(b"*1\r\n$67108865\r\n", &Limits::MAP, "invalid bulk length");
    let stranger = &Limits::STRANGER;
    refuse(b"*11\r\n", stranger, "unauthenticated multibulk length");
    refuse(b"*1\r\n$16385\r\n", stranger, "unauthenticated bulk length");
}

#[test]
fn numbers_are_canonical_and_bounded() {
    for right in [0, 1, -1, 10, i64::MAX, i64::MIN] {
        assert_eq!(number(right.to_string().as_bytes()), Some(right));
    }
    for wrong in ["", "-", "-0", "01", "+1", " 1", "1 ", "9223372036854775808", "1a", "1:"] {
        assert_eq!(number(wrong.as_bytes()), None, "{wrong}");
    }
}

/// Arbitrary bytes of the protocol's alphabet neither panic nor ask for less than they have.
#[test]
fn arbitrary_bytes_do_no_harm() {
    let alphabet = b"*$\r\n019-\"'\\x a";
    let mut state: u64 = 1;
    for _ in 0..100_000 {
        let mut input = Vec::new();
        for _ in 0..12 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            input.push(alphabet[(state >> 33) as usize % alphabet.len()]);
        }
        if let Ok(Some((_, size))) = request(&input, &Limits::CLIENT) {
            assert!(0 < size && size <= input.len());
        }
    }
}

/// Patterns over two letters, against the definition.
#[test]
fn every_small_pattern_agrees_with_the_definition() {
    fn naive(pattern: &[u8], bytes: &[u8]) -> bool {
        match (pattern, bytes) {
            ([], _) => bytes.is_empty(),
            ([b'*', rest @ ..], _) => (0..=bytes.len()).any(|n| naive(rest, &bytes[n..])),
            ([b'?', rest @ ..], [_, more @ ..]) => naive(rest, more),
            ([letter, rest @ ..], [byte, more @ ..]) => letter == byte && naive(rest, more),
            (_, []) => false,
        }
    }
    let words = |letters: &[u8], sizes: std::ops::Range<u32>| -> Vec<Vec<u8>> {
        let count = letters.len();
        let word = |size: u32, n: usize| {
            (0..size).map(|i| letters[n / count.pow(i) % count]).collect::<Vec<u8>>()
        };
        sizes
            .flat_map(|size| (0..count.pow(size)).map(move |n| (size, n)))
            .map(|(s, n)| word(s, n))
            .collect()
    };
    for pattern in words(b"ab*?", 0..5) {
        for text in words(b"ab", 0..6) {
            assert_eq!(matches(&pattern, &text), naive(&pattern, &text), "{pattern:?} {text:?}");
        }
    }
}

#[test]
fn sets_in_patterns_are_ranges_and_escapes() {
    for (pattern, text, expected) in [
        ("h[ae]llo", "hallo", true),
        ("h[ae]llo", "hillo", false),
        ("h[^e]llo", "hello", false),
        ("h[^e]llo", "hallo", true),
        ("h[a-c]llo", "hbllo", true),
        ("h[c-a]llo", "hbllo", true),
        ("h\\*", "h*", true),
        ("h\\*", "hx", false),
        ("[\\]]", "]", true),
        ("[a", "a", true),
        ("[", "a", false),
        ("\\", "\\", true),
    ] {
        assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
    }
    // Many stars take no exponential time.
    assert!(!matches(&b"*a".repeat(200), &[b'a'; 150]));
}

#[test]
fn replies_have_the_form_of_their_protocol() {
    fn written(protocol: Protocol, write: impl FnOnce(&mut Reply<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut Reply::new(&mut out, protocol));
        String::from_utf8(out).unwrap()
    }
    #[track_caller]
    fn check(write: impl Fn(&mut Reply<'_>), resp2: &str, resp3: &str) {
        assert_eq!(written(Protocol::Resp2, &write), resp2);
        assert_eq!(written(Protocol::Resp3, &write), resp3);
    }
    check(|reply| reply.simple("OK"), "+OK\r\n", "+OK\r\n");
    check(|reply| reply.error("ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n");
    check(|reply| reply.integer(-7), ":-7\r\n", ":-7\r\n");
    check(|reply| reply.bulk(b"a\r\n"), "$3\r\na\r\n\r\n", "$3\r\na\r\n\r\n");
    let null = |reply: &mut Reply<'_>| {
        reply.null();
    };
    check(null, "$-1\r\n", "_\r\n");
    let null_array = |reply: &mut Reply<'_>| {
        reply.null_array();
    };
    check(null_array, "*-1\r\n", "_\r\n");
    check(|reply| reply.map(2), "*4\r\n", "%2\r\n");
    check(|reply| reply.set(2), "*2\r\n", "~2\r\n");
    check(|reply| reply.boolean(true), ":1\r\n", "#t\r\n");
    check(|reply| reply.double(0.5), "$3\r\n0.5\r\n", ",0.5\r\n");
    check(|reply| reply.verbatim("ab"), "$2\r\nab\r\n", "=6\r\ntxt:ab\r\n");
    check(|reply| reply.bulks(["a"]), "*1\r\n$1\r\na\r\n", "*1\r\n$1\r\na\r\n");
}

#[test]
fn the_buffer_of_a_large_value_does_not_double_for_the_end_of_its_line() {
    let mut out = Vec::new();
    Reply::new(&mut out, Protocol::Resp2).bulk(&vec![0; 1 << 20]);
    assert!(out.len() > 1 << 20 && out.capacity() < (1 << 20) + 100, "{}", out.capacity());
}
