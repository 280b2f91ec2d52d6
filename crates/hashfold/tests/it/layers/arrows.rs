//! Modules use each other as `ARCHITECTURE.md` shows; `unsafe` occurs only where it is allowed.

use super::sources::{Source, check, sources};
use std::collections::BTreeSet;

/// The core: each module may use itself and the modules before it.
const CORE: [&str; 15] = [
    "key",
    "error",
    "verify",
    "codec",
    "checksum",
    "cpu",
    "work",
    "io",
    "env",
    "options",
    "run",
    "fingerprints",
    "manifest",
    "folder",
    "wal",
];

/// The parts, and the modules that each may use besides the core.
const PARTS: [(&str, &[&str]); 8] = [
    ("table", &[]),
    ("filter", &[]),
    ("map", &[]),
    ("sketch", &[]),
    ("memory", &[]),
    ("store", &["table", "filter"]),
    ("pipeline", &["memory", "sketch"]),
    ("data_set", &["table", "filter", "map", "store"]),
];

/// Files and folders with `unsafe` code.
const UNSAFE: [&str; 11] = [
    "filter/quotient/kernel.rs",
    "filter/cascade/kernel.rs",
    "io/",
    "run/prefetch.rs",
    "table/tags.rs",
    "table/trie/kernel.rs",
    "table/trie/read.rs",
    "filter/block/kernel.rs",
    "filter/merge/kernel.rs",
    "sketch/kernel.rs",
    "memory/kernel.rs",
];

/// Returns the modules that a module may use.
fn allowed(module: &str) -> BTreeSet<&str> {
    let mut allowed = BTreeSet::from([module]);
    if let Some(position) = CORE.iter().position(|core| *core == module) {
        allowed.extend(&CORE[..position]);
        return allowed;
    }
    let part = PARTS.iter().find(|(part, _)| *part == module);
    let (_, others) = part.unwrap_or_else(|| panic!("the module {module} is in no layer"));
    allowed.extend(CORE);
    allowed.extend(*others);
    allowed
}

/// Returns the first names of all `crate::` paths in a text, with their line numbers.
fn crate_paths(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, word) in text.match_indices("crate::") {
        let line = text[..at].matches('\n').count() + 1;
        let rest = &text[at + word.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            found.push((line, first_name(rest)));
            continue;
        };
        let mut depth = 1;
        let mut starts = true;
        for (i, character) in group.char_indices() {
            match character {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 1 => starts = true,
                _ if character.is_whitespace() => {}
                _ if starts => {
                    let line = line + group[..i].matches('\n').count();
                    found.push((line, first_name(&group[i..])));
                    starts = false;
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    found
}

fn first_name(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// Returns the line without a comment.
fn code(line: &str) -> &str {
    line.split_once("//").map_or(line, |(code, _)| code)
}

fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(is_part) && !line[at + word.len()..].starts_with(is_part)
    })
}

#[test]
fn every_path_leads_to_a_lower_layer() {
    let mut offences = Vec::new();
    for source in sources().iter().filter(|source| source.name() != "lib.rs") {
        let allowed = allowed(source.module());
        for (line, target) in crate_paths(&source.text) {
            if !allowed.contains(target.as_str()) {
                let (name, module) = (source.name(), source.module());
                offences.push(format!("src/{name}:{line}: {module} must not use {target}"));
            }
        }
    }
    check(&offences);
}

#[test]
fn unsafe_code_is_where_it_may_be() {
    let mut offences = Vec::new();
    for source in sources() {
        let may = UNSAFE.iter().any(|place| match place.ends_with('/') {
            true => source.name().starts_with(place),
            false => source.name() == *place,
        });
        for (i, line) in source.text.lines().enumerate() {
            if !may && has_word(code(line), "unsafe") {
                offences.push(format!("src/{}:{}: unsafe code", source.name(), i + 1));
            }
        }
    }
    check(&offences);
}

#[test]
fn the_front_page_holds_no_code() {
    let sources = sources();
    let front = sources.iter().find(|source| source.name() == "lib.rs").unwrap();
    let words = ["fn", "struct", "enum", "impl", "trait", "const", "static"];
    let offences = front.text.lines().enumerate().filter_map(|(i, line)| {
        let word = words.iter().find(|word| has_word(code(line), word))?;
        Some(format!("src/lib.rs:{}: `{word}` belongs in a module", i + 1))
    });
    check(&offences.collect::<Vec<_>>());
}

#[test]
fn every_file_is_part_of_the_library() {
    let sources = sources();
    let mut offences = Vec::new();
    for source in sources.iter().filter(|source| source.name() != "lib.rs") {
        let is_front = source.path.ends_with("mod.rs");
        let own = if is_front { source.path.parent().unwrap() } else { &source.path };
        let module = own.file_stem().and_then(|stem| stem.to_str()).unwrap();
        let folder = own.parent().unwrap();
        let declares = |parent: &Source| {
            let declared = format!("mod {module};");
            parent.text.lines().any(|line| code(line).contains(&declared))
        };
        let parents = [folder.join("lib.rs"), folder.join("mod.rs"), folder.with_extension("rs")];
        let parent = sources.iter().find(|other| parents.contains(&other.path));
        if !parent.is_some_and(declares) {
            offences.push(format!("src/{}: no `mod {module};` names it", source.name()));
        }
    }
    check(&offences);
}

#[test]
fn paths_in_groups_are_found() {
    let text = "use crate::{\n    a::{b, c},\n    d,\n};\nfn f() { crate::e::g(); }";
    let found = crate_paths(text);
    let expected = [(2, "a"), (3, "d"), (5, "e")];
    assert_eq!(found, expected.map(|(line, name)| (line, name.to_owned())));
}
