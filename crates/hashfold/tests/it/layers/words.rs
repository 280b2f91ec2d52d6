//! Public names and documentation comments use the words of the field.
//!
//! A public name is that of a `pub` item or field, of a variant of a `pub` enum and its fields, or
//! of an item in a `pub` trait. Each word of a name is checked: `room_left` and `RoomLeft` have
//! two. A documentation comment, public or not, must stand alone in an editor's hover, so it must
//! not begin with a pronoun or half a sentence.

use super::{
    sources::{check, sources},
    tokens::{Kind, Token, tokens},
};

/// Words that no public name may contain, and their replacements.
const REPLACED: &[(&[&str], &str)] = &[
    (&["told", "tell", "tells"], "insert, remove or apply; seq or durable_seq for a number"),
    (&["ask", "asks", "asked"], "query or look_up"),
    (&["whoever", "somebody", "nobody", "others"], "caller, reader, writer or user"),
    (&["pace", "paced", "polite", "hurry"], "backpressure or rate limit"),
    (&["errand", "errands"], "background job or job queue"),
    (&["room", "rooms"], "capacity, budget or buffer"),
    (&["fold", "folds", "melt", "melts", "settle", "settled"], "merge or apply"),
    (&["frozen"], "immutable"),
];

/// Forbidden openings of documentation comments.
const OPENINGS: &[&str] = &[
    "Of", "The same", "Likewise", "It", "Its", "They", "What", "Whoever", "Nobody", "Somebody",
    "So many", "So much",
];

/// Returns the public names of a source text, with their lines.
fn public_names(text: &str) -> Vec<(usize, String)> {
    let tokens = tokens(text);
    let mut reader =
        Reader { tokens: &tokens, at: 0, bodies: Vec::new(), next: Body::Other, names: Vec::new() };
    while reader.at < tokens.len() {
        reader.step();
    }
    reader.names
}

/// The kind of the braces around a token.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Body {
    /// The variants of a `pub` enum.
    Variants,
    /// The fields of a variant of a `pub` enum.
    Fields,
    /// The items of a `pub` trait.
    Trait,
    Other,
}

/// Reads the public names in a file.
struct Reader<'a> {
    tokens: &'a [Token],
    at: usize,
    bodies: Vec<Body>,
    /// The kind of the braces that open next.
    next: Body,
    names: Vec<(usize, String)>,
}

impl Reader<'_> {
    /// Reads a token, or several that belong together.
    fn step(&mut self) {
        let body = self.bodies.last().copied().unwrap_or(Body::Other);
        let token = &self.tokens[self.at];
        self.at += 1;
        match &token.kind {
            Kind::Punctuation('{') => {
                self.bodies.push(self.next);
                self.next = Body::Other;
            }
            Kind::Punctuation('}') => drop(self.bodies.pop()),
            Kind::Punctuation(';') => self.next = Body::Other,
            Kind::Punctuation('(' | '[') => self.skip_brackets(),
            Kind::Word(word) if word == "pub" && !self.is('(') => self.item(),
            Kind::Word(word) if body == Body::Trait && is_item(word) => {
                self.at -= 1;
                self.item();
            }
            Kind::Word(word) if body == Body::Variants => {
                self.names.push((token.line, word.clone()));
                self.next = Body::Fields;
                self.skip_discriminant();
            }
            Kind::Word(word) if body == Body::Fields && self.is_type_next() => {
                self.names.push((token.line, word.clone()));
            }
            _ => {}
        }
    }

    fn is(&self, punctuation: char) -> bool {
        self.tokens.get(self.at).is_some_and(|token| token.is(punctuation))
    }

    /// Whether the next token is a single `:`.
    fn is_type_next(&self) -> bool {
        self.is(':') && !self.tokens.get(self.at + 1).is_some_and(|token| token.is(':'))
    }

    /// Skips to the end of the current `(` or `[`.
    fn skip_brackets(&mut self) {
        let mut depth = 1;
        while depth > 0 && self.at < self.tokens.len() {
            match self.tokens[self.at].kind {
                Kind::Punctuation('(' | '[') => depth += 1,
                Kind::Punctuation(')' | ']') => depth -= 1,
                _ => {}
            }
            self.at += 1;
        }
    }

    fn skip_discriminant(&mut self) {
        while self.is('=') || self.at > 0 && self.tokens[self.at - 1].is('=') {
            self.at += 1;
        }
    }

    /// Reads the name of an item or a field, after `pub` or in a trait.
    fn item(&mut self) {
        while let Some((line, word)) = self.word() {
            self.at += 1;
            let is_modifier = ["unsafe", "async", "extern", "mut"].contains(&word.as_str());
            let is_const_fn = word == "const" && self.word().is_some_and(|next| next.1 == "fn");
            if is_modifier || is_const_fn {
                continue;
            }
            if !is_item(&word) {
                // A field has a type; the rest is `pub use`, which introduces no new item.
                self.names.extend(self.is_type_next().then_some((line, word)));
                return;
            }
            self.next = match word.as_str() {
                "enum" => Body::Variants,
                "trait" => Body::Trait,
                _ => Body::Other,
            };
            self.names.extend(self.word());
            self.at += 1;
            return;
        }
    }

    fn word(&self) -> Option<(usize, String)> {
        let token = self.tokens.get(self.at)?;
        token.word().map(|word| (token.line, word.to_owned()))
    }
}

fn is_item(word: &str) -> bool {
    ["fn", "struct", "enum", "trait", "const", "static", "type", "mod"].contains(&word)
}

/// Returns the words of a name, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut spaced = String::new();
    let mut before = '_';
    for character in name.chars() {
        if character.is_uppercase() && before.is_lowercase() {
            spaced.push('_');
        }
        spaced.extend(character.to_lowercase());
        before = character;
    }
    spaced.split('_').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Returns the forbidden word of a name, and its replacement.
fn replaced(name: &str) -> Option<(String, &'static str)> {
    words(name).into_iter().find_map(|word| {
        let (_, instead) = REPLACED.iter().find(|(refused, _)| refused.contains(&word.as_str()))?;
        Some((word, *instead))
    })
}

/// Returns the documentation comments with a forbidden opening, with their lines.
fn bad_openings(text: &str) -> Vec<(usize, String)> {
    let mut before = None;
    let mut found = Vec::new();
    for token in tokens(text) {
        let Kind::Documentation(line) = token.kind else { continue };
        let is_first = before != Some(token.line - 1);
        before = Some(token.line);
        let begins = |opening: &&str| {
            let rest = line.strip_prefix(*opening);
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
        };
        if is_first && OPENINGS.iter().any(begins) {
            found.push((token.line, line));
        }
    }
    found
}

#[test]
fn public_names_use_the_words_of_the_field() {
    let mut offences = Vec::new();
    for source in sources() {
        for (line, name) in public_names(&source.text) {
            if let Some((word, instead)) = replaced(&name) {
                let place = format!("src/{}:{line}", source.name());
                offences.push(format!("{place}: `{name}` says {word}; write {instead}"));
            }
        }
    }
    check(&offences);
}

#[test]
fn documentation_stands_alone() {
    let mut offences = Vec::new();
    for source in sources() {
        for (line, text) in bad_openings(&source.text) {
            offences
                .push(format!("src/{}:{line}: begins with half a sentence: {text}", source.name()));
        }
    }
    check(&offences);
}

#[test]
fn names_of_all_kinds_are_found() {
    let text = "pub struct S { a: u8, pub b: m::T }\npub(crate) fn no() {}\n\
                pub enum E<T> {\n #[x] A = 1,\n B(u8, T),\n C { c: m::T, d: [u8; 2] },\n}\n\
                pub trait T: U { fn f(&self, no: u8) -> u8 { no() } const K: u8; }\n\
                enum No { No }\npub const fn g() { let no: u8 = 0; }\npub use no::No;\npub mod m {}";
    let names: Vec<String> = public_names(text).into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["S", "b", "E", "A", "B", "C", "c", "d", "T", "f", "K", "g", "m"]);
}

#[test]
fn each_word_of_a_name_is_checked() {
    assert_eq!(words("RoomLeft"), ["room", "left"]);
    assert_eq!(words("ROOM_LEFT"), ["room", "left"]);
    assert!(replaced("told_by").is_some() && replaced("ToldBy").is_some());
    assert!(replaced("toldest").is_none());
}

#[test]
fn openings_are_found_in_first_lines_only() {
    let text = "//! Likewise.\n\n/// Of the hashes.\n/// It is.\nfn f() {}\n/// Offset.\n/// Of.\nx\n\
                // It\n/// Items\n";
    let lines: Vec<usize> = bad_openings(text).into_iter().map(|(line, _)| line).collect();
    assert_eq!(lines, [1, 3]);
}
