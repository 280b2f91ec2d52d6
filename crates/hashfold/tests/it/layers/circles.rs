//! No import cycles between files, also inside a part.
//!
//! An arrow runs from a file to another file whose item it names, in a `use` or in a path. A front
//! page (`mod.rs`, `lib.rs`) is a table of contents: a name that it re-exports with `pub use
//! self::x::…` counts as an item of `x.rs`. Re-exporting is not an arrow, and naming only the front
//! page's module is not one either. A front page with its own code is treated like any other file.
//! Test code does not count.

use super::{
    sources::{Source, check, sources},
    tokens::{Token, tokens},
};
use std::collections::{BTreeMap, BTreeSet};

/// A module or an item: its path from the crate's root on.
type Path = Vec<String>;

/// The files that each file uses, with the names it uses.
type Arrows = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// A path as written in a file.
struct Named {
    /// The path from the crate's root, unless `is_relative`.
    path: Path,
    /// Whether the first name is a module or an import of the file, or another crate.
    is_relative: bool,
    /// The name that a `use` item imports; `None` for a path in code and in a module in braces.
    import: Option<String>,
    /// Whether the `use` item is public.
    is_public: bool,
}

/// The names in a file.
struct File {
    name: String,
    is_front: bool,
    named: Vec<Named>,
    /// All words outside of `use` items.
    words: BTreeSet<String>,
}

impl File {
    fn new(source: &Source) -> File {
        let is_front = source.is_front();
        let mut reader = Reader {
            tokens: &tokens(&source.text),
            at: 0,
            scopes: vec![(source.module_path(), 0)],
            depth: 0,
            file: File {
                name: source.name().to_owned(),
                is_front,
                named: Vec::new(),
                words: BTreeSet::new(),
            },
        };
        reader.read();
        reader.file
    }

    /// Returns the origin of an imported name.
    fn import(&self, name: &str) -> Option<&Named> {
        self.named.iter().find(|named| named.import.as_deref() == Some(name))
    }
}

/// Reads the paths in a file.
struct Reader<'a> {
    tokens: &'a [Token],
    at: usize,
    /// The modules around the current token, each with the depth of its braces.
    scopes: Vec<(Path, usize)>,
    depth: usize,
    file: File,
}

impl Reader<'_> {
    fn read(&mut self) {
        while self.at < self.tokens.len() {
            match self.word(0) {
                Some("mod") if self.is(2, '{') => self.enter(),
                Some("use") => self.read_use(),
                Some(_) => self.read_path(),
                None => self.read_punctuation(),
            }
        }
    }

    fn word(&self, ahead: usize) -> Option<&str> {
        self.tokens.get(self.at + ahead)?.word()
    }

    fn is(&self, ahead: usize, punctuation: char) -> bool {
        self.tokens.get(self.at + ahead).is_some_and(|token| token.is(punctuation))
    }

    /// Whether the next token is `::`.
    fn is_step(&self) -> bool {
        self.is(0, ':') && self.is(1, ':')
    }

    /// Steps into `mod name {`.
    fn enter(&mut self) {
        let mut path = self.scope().clone();
        path.extend(self.word(1).map(str::to_owned));
        self.depth += 1;
        self.scopes.push((path, self.depth));
        self.at += 3;
    }

    fn scope(&self) -> &Path {
        &self.scopes.last().expect("the file's own module is never left").0
    }

    fn read_punctuation(&mut self) {
        if self.is(0, '{') {
            self.depth += 1;
        } else if self.is(0, '}') {
            if self.scopes.len() > 1 && self.scopes.last().is_some_and(|s| s.1 == self.depth) {
                self.scopes.pop();
            }
            self.depth = self.depth.saturating_sub(1);
        }
        self.at += 1;
    }

    /// Reads a path in code; a single word is stored as a word.
    fn read_path(&mut self) {
        let mut written = vec![self.take_word()];
        while self.is_step() && self.tokens.get(self.at + 2).is_some_and(|t| t.word().is_some()) {
            self.at += 2;
            written.push(self.take_word());
        }
        self.file.words.insert(written[0].clone());
        if written.len() > 1 {
            self.add(&written, None, false);
        }
    }

    fn take_word(&mut self) -> String {
        let word = self.word(0).expect("the caller saw a word").to_owned();
        self.at += 1;
        word
    }

    fn read_use(&mut self) {
        let before = &self.tokens[..self.at];
        let is_public = before.last().is_some_and(|t| t.word() == Some("pub") || t.is(')'));
        self.at += 1;
        self.read_tree(&mut Vec::new(), is_public);
    }

    /// Reads one tree of a `use` item, after `prefix`, up to the next `,`, `}` or `;`.
    fn read_tree(&mut self, prefix: &mut Path, is_public: bool) {
        let len = prefix.len();
        while self.at < self.tokens.len() {
            if self.is_step() {
                self.at += 2;
            } else if self.is(0, '{') {
                self.at += 1;
                while !self.is(0, '}') && self.at < self.tokens.len() {
                    self.read_tree(prefix, is_public);
                    self.at += usize::from(self.is(0, ','));
                }
                self.at += 1;
                break;
            } else if self.is(0, '*') {
                self.at += 1;
                self.add(prefix, Some("*"), is_public);
                break;
            } else if self.word(0).is_some() {
                let word = self.take_word();
                prefix.push(word);
                if !self.is_step() {
                    self.read_leaf(prefix, is_public);
                    break;
                }
            } else {
                break;
            }
        }
        prefix.truncate(len);
    }

    /// Reads the end of a branch: `name`, `name as other`, or `self`.
    fn read_leaf(&mut self, path: &mut Path, is_public: bool) {
        if path.len() > 1 && path.last().is_some_and(|name| name == "self") {
            path.pop();
        }
        let mut name = path.last().cloned().unwrap_or_default();
        if self.word(0) == Some("as") {
            self.at += 1;
            name = self.take_word();
        }
        self.add(path, Some(&name), is_public);
    }

    fn add(&mut self, written: &[String], import: Option<&str>, is_public: bool) {
        let mut is_relative = false;
        let mut path = match written.first().map(String::as_str) {
            Some("crate") => Path::new(),
            Some("self" | "super") => self.scope().clone(),
            _ => {
                is_relative = true;
                Path::new()
            }
        };
        for name in written {
            match name.as_str() {
                "crate" | "self" => {}
                "super" => drop(path.pop()),
                _ => path.push(name.clone()),
            }
        }
        let import = import.filter(|_| self.scopes.len() == 1).map(str::to_owned);
        self.file.named.push(Named { path, is_relative, import, is_public });
    }
}

/// The files of a crate, by the paths of their modules.
struct Files(BTreeMap<Path, File>);

impl Files {
    fn new(sources: &[Source]) -> Files {
        let files = sources.iter().map(|source| (source.module_path(), File::new(source)));
        Files(files.collect())
    }

    /// Returns the file of an item. `None` for a path to a front page's module, or out of the
    /// crate.
    fn owner(&self, path: &[String]) -> Option<&File> {
        let mut module = Path::new();
        for (i, name) in path.iter().enumerate() {
            module.push(name.clone());
            if self.0.contains_key(&module) {
                continue;
            }
            module.pop();
            let file = self.0.get(&module)?;
            let handed_on = file.import(name).filter(|_| file.is_front);
            return match handed_on.map(|import| self.absolute(&module, import)) {
                Some(Some(mut target)) => {
                    target.extend_from_slice(&path[i + 1..]);
                    self.owner(&target)
                }
                _ => Some(file),
            };
        }
        self.0.get(&module).filter(|file| !file.is_front)
    }

    /// Returns the path from the crate's root; `None` if it leads out of the crate.
    fn absolute(&self, module: &Path, named: &Named) -> Option<Path> {
        if !named.is_relative {
            return Some(named.path.clone());
        }
        let mut child = module.clone();
        child.push(named.path[0].clone());
        let file = self.0.get(module)?;
        let start = match file.import(&named.path[0]) {
            _ if self.0.contains_key(&child) => child,
            Some(import) if !import.is_relative => import.path.clone(),
            _ => return None,
        };
        Some([start, named.path[1..].to_vec()].concat())
    }

    fn arrows(&self) -> Arrows {
        let mut arrows = Arrows::new();
        for (module, file) in &self.0 {
            let targets = arrows.entry(file.name.clone()).or_default();
            for named in &file.named {
                let only_handed_on = file.is_front && named.is_public;
                let is_used = named.import.as_ref().is_none_or(|name| file.words.contains(name));
                let path = self.absolute(module, named).filter(|_| is_used || !only_handed_on);
                let Some(owner) = path.as_ref().and_then(|path| self.owner(path)) else { continue };
                if owner.name != file.name {
                    let name = path.iter().flatten().last().cloned().unwrap_or_default();
                    targets.entry(owner.name.clone()).or_default().insert(name);
                }
            }
        }
        arrows
    }
}

/// Returns the files that can be reached from a file by one or more arrows.
fn reached<'a>(arrows: &'a Arrows, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = arrows[from].keys().map(String::as_str).collect();
    while let Some(file) = open.pop() {
        if reached.insert(file) {
            open.extend(arrows[file].keys().map(String::as_str));
        }
    }
    reached
}

/// Returns the files that reach each other, cycle by cycle.
fn circles(arrows: &Arrows) -> BTreeSet<Vec<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        arrows.keys().map(|file| (file.as_str(), reached(arrows, file))).collect();
    let circle = |file: &str| -> Vec<&str> {
        reached[file].iter().filter(|other| reached[*other].contains(file)).copied().collect()
    };
    reached.keys().map(|file| circle(file)).filter(|circle| !circle.is_empty()).collect()
}

/// Describes a cycle: a line per file, with its arrows in the cycle and the names it uses.
fn describe(circle: &[&str], arrows: &Arrows) -> String {
    let mut lines = vec![format!("a circle: {circle:?}")];
    for from in circle {
        for (to, names) in arrows[*from].iter().filter(|(to, _)| circle.contains(&to.as_str())) {
            let names = names.iter().cloned().collect::<Vec<_>>().join(", ");
            lines.push(format!("    {from} takes from {to}: {names}"));
        }
    }
    lines.join("\n")
}

#[test]
fn files_use_each_other_in_no_circle() {
    let arrows = Files::new(&sources()).arrows();
    let offences = circles(&arrows).into_iter().map(|circle| describe(&circle, &arrows));
    check(&offences.collect::<Vec<_>>());
}

#[track_caller]
fn check_circles(files: &[(&str, &str)], expected: &[&[&str]]) {
    let sources: Vec<Source> = files.iter().map(|(name, text)| Source::new(name, text)).collect();
    let arrows = Files::new(&sources).arrows();
    let expected: BTreeSet<Vec<&str>> = expected.iter().map(|circle| circle.to_vec()).collect();
    assert_eq!(circles(&arrows), expected, "{arrows:?}");
}

#[test]
fn imports_paths_and_groups_are_arrows() {
    let circle: &[&[&str]] = &[&["a.rs", "b.rs"]];
    let front = ("lib.rs", "mod a; mod b;");
    check_circles(&[front, ("a.rs", "use super::b::B;"), ("b.rs", "")], &[]);
    check_circles(&[front, ("a.rs", "use super::b::B;"), ("b.rs", "use crate::a::A;")], circle);
    let group = "use crate::{\n    a::{self, A as Other},\n};";
    check_circles(&[front, ("a.rs", "fn f() { super::b::g() }"), ("b.rs", group)], circle);
    let alias = "use crate::{a as other, x};\nfn g() { other::f() }";
    check_circles(&[front, ("a.rs", "use crate::b::*;"), ("b.rs", alias)], circle);
    let inner = "mod inner { use super::super::a::A; }";
    check_circles(&[front, ("a.rs", "use crate::b;"), ("b.rs", inner)], circle);
}

#[test]
fn tests_strings_and_comments_are_no_arrows() {
    let quiet = "// use crate::a;\n#[cfg(test)]\nmod tests { use crate::a::A; }\n\
                 fn f() { \"crate::a::A\"; }";
    let front = ("lib.rs", "mod a; mod b;");
    check_circles(&[front, ("a.rs", "use crate::b::B;"), ("b.rs", quiet)], &[]);
}

#[test]
fn a_table_of_contents_stands_in_no_circle() {
    let lib = ("lib.rs", "pub mod a;");
    let front = ("a/mod.rs", "mod x; mod y; pub use self::{x::X, y::Y};");
    check_circles(&[lib, front, ("a/x.rs", "use super::Y;"), ("a/y.rs", "")], &[]);
    let files = [lib, front, ("a/x.rs", "use super::Y;"), ("a/y.rs", "use crate::a::X;")];
    check_circles(&files, &[&["a/x.rs", "a/y.rs"]]);
}

#[test]
fn a_front_page_with_code_is_a_file_like_any_other() {
    let lib = ("lib.rs", "pub mod a;");
    let x = ("a/x.rs", "use super::Mine;");
    let circle: &[&[&str]] = &[&["a/mod.rs", "a/x.rs"]];
    check_circles(&[lib, ("a/mod.rs", "mod x; pub use self::x::X; struct Mine;"), x], &[]);
    check_circles(&[lib, ("a/mod.rs", "mod x; use self::x::X; struct Mine(X);"), x], circle);
    check_circles(&[lib, ("a/mod.rs", "mod x; pub use self::x::X; struct Mine(X);"), x], circle);
    check_circles(&[lib, ("a/mod.rs", "mod x; struct Mine(x::X);"), x], circle);
}
