//! Tokens of Rust source text, as far as the rules need them.

/// A token, and the number of its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) line: usize,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An identifier, a keyword or a number.
    Word(String),
    /// A single character of punctuation; brackets and `::` come as their characters.
    Punctuation(char),
    /// A line of a documentation comment, `///` or `//!`, without these marks.
    Documentation(String),
    /// A string, a character or a lifetime.
    Literal,
}

impl Token {
    pub(super) fn word(&self) -> Option<&str> {
        match &self.kind {
            Kind::Word(word) => Some(word),
            _ => None,
        }
    }

    pub(super) fn is(&self, punctuation: char) -> bool {
        self.kind == Kind::Punctuation(punctuation)
    }
}

/// Returns the tokens of a source text, without ordinary comments and without items that are
/// compiled for tests only (`#[cfg(test)]`).
pub(super) fn tokens(text: &str) -> Vec<Token> {
    without_tests(&all_tokens(text))
}

fn all_tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let (len, kind) = match first {
            _ if rest.starts_with("//") => comment(rest),
            _ if rest.starts_with("/*") => (rest.find("*/").map_or(rest.len(), |at| at + 2), None),
            _ if string_len(rest).is_some() => (string_len(rest).unwrap(), Some(Kind::Literal)),
            '\'' => (quoted_len(rest), Some(Kind::Literal)),
            _ if is_part(first) => {
                let len = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                (len, Some(Kind::Word(rest[..len].to_owned())))
            }
            _ if first.is_whitespace() => (first.len_utf8(), None),
            _ => (first.len_utf8(), Some(Kind::Punctuation(first))),
        };
        tokens.extend(kind.map(|kind| Token { line, kind }));
        line += rest[..len].matches('\n').count();
        rest = &rest[len..];
    }
    tokens
}

fn is_part(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Returns the length of a comment line, and its kind if it documents an item.
fn comment(rest: &str) -> (usize, Option<Kind>) {
    let line = rest.lines().next().unwrap_or_default();
    let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
    let text = text.filter(|text| !text.starts_with('/'));
    let kind = text.map(|text| Kind::Documentation(text.trim().to_owned()));
    (line.len(), kind)
}

/// Returns the length of the string at the start of the text, if there is one: plain, raw, or
/// bytes.
fn string_len(rest: &str) -> Option<usize> {
    let prefix = ["br", "b", "r", ""].into_iter().find(|prefix| {
        let body = rest.strip_prefix(prefix).unwrap_or_default();
        let hashes = if prefix.ends_with('r') { body.trim_start_matches('#') } else { body };
        hashes.starts_with('"')
    })?;
    let body = &rest[prefix.len()..];
    if prefix.ends_with('r') {
        let hashes = body.len() - body.trim_start_matches('#').len();
        let end = format!("\"{}", "#".repeat(hashes));
        let start = hashes + 1;
        let len = body[start..].find(&end).map_or(body.len(), |at| start + at + end.len());
        return Some(prefix.len() + len);
    }
    Some(prefix.len() + escaped_len(body, '"'))
}

/// Returns the length of a quoted text, with both quotes.
fn escaped_len(body: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, character) in body.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == quote => return at + 1,
            _ => {}
        }
    }
    body.len()
}

/// Returns the length of the character or the lifetime at the start of the text.
fn quoted_len(rest: &str) -> usize {
    let mut characters = rest.chars().skip(1);
    let first = characters.next();
    if first == Some('\\') || characters.next() == Some('\'') {
        return escaped_len(rest, '\'');
    }
    1 + rest[1..].find(|c| !is_part(c)).unwrap_or(rest.len() - 1)
}

/// Removes each item after `#[cfg(test)]`, up to its `;`, its `,` or the end of its braces.
fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut kept: Vec<Token> = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if is_cfg_test(&tokens[at..]) {
            at += item_len(&tokens[at..]);
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    kept
}

fn is_cfg_test(tokens: &[Token]) -> bool {
    let words = [("#", false), ("[", false), ("cfg", true), ("(", false), ("test", true)];
    tokens.len() > words.len()
        && words.iter().zip(tokens).all(|((text, is_word), token)| match is_word {
            true => token.word() == Some(*text),
            false => text.chars().next().is_some_and(|character| token.is(character)),
        })
}

/// Returns the number of tokens of an item, attributes included.
fn item_len(tokens: &[Token]) -> usize {
    let (mut depth, mut is_generic) = (0, false);
    for (at, token) in tokens.iter().enumerate() {
        match &token.kind {
            Kind::Punctuation('(' | '[' | '{') => depth += 1,
            Kind::Punctuation(')' | ']' | '}') => depth -= 1,
            Kind::Word(word) => is_generic |= ["fn", "impl", "struct"].contains(&word.as_str()),
            _ => {}
        }
        // A field or a variant ends at a comma or at the end of its list.
        let ends = depth == 0 && (token.is(';') || token.is('}') || token.is(',') && !is_generic);
        if ends || depth < 0 {
            let semicolon = tokens.get(at + 1).is_some_and(|next| token.is('}') && next.is(';'));
            return at + usize::from(ends) + usize::from(semicolon);
        }
    }
    tokens.len()
}

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let found: Vec<String> = tokens(text)
        .into_iter()
        .map(|token| match token.kind {
            Kind::Word(word) => word,
            Kind::Punctuation(character) => character.to_string(),
            Kind::Documentation(text) => format!("/{text}"),
            Kind::Literal => "lit".to_owned(),
        })
        .collect();
    assert_eq!(found, expected, "of {text}");
}

#[test]
fn strings_characters_and_comments_hide_what_is_in_them() {
    check("a(\"b // \\\" c\")", &["a", "(", "lit", ")"]);
    check(
        "r#\"use \" a\"# b'x' '\\'' 'a: '{' b",
        &["lit", "b", "lit", "lit", "lit", ":", "lit", "b"],
    );
    check("// use a\n/// Text.\nb /* use c */ d", &["/Text.", "b", "d"]);
}

#[test]
fn items_for_tests_are_left_out() {
    check("#[cfg(test)]\nmod tests { use a; }\nb", &["b"]);
    check("#[cfg(test)]\nuse a::{b, c};\nd", &["d"]);
    check("#[cfg(test)]\n#[path = \"x\"]\nmod tests;\nd;", &["d", ";"]);
    check("#[cfg(unix)]\nd", &["#", "[", "cfg", "(", "unix", ")", "]", "d"]);
}

#[test]
fn lines_are_counted_from_one() {
    let lines: Vec<usize> = tokens("a\n\"x\ny\" b\nc").iter().map(|token| token.line).collect();
    assert_eq!(lines, [1, 2, 3, 4]);
}
