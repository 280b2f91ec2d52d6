//! The source files of the library, and the modules that they hold.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A source file.
pub(super) struct Source {
    /// The path, relative to the crate's `src`.
    pub(super) path: PathBuf,
    pub(super) text: String,
}

impl Source {
    pub(super) fn new(name: &str, text: &str) -> Source {
        Source { path: name.into(), text: text.to_owned() }
    }

    pub(super) fn name(&self) -> &str {
        self.path.to_str().expect("source files have plain names")
    }

    /// Returns the top-level module of the file.
    pub(super) fn module(&self) -> &str {
        let name = self.name();
        name.split_once('/').map_or(name.trim_end_matches(".rs"), |(folder, _)| folder)
    }

    /// Returns the path of the file's module from the crate's root: `a::b` for `a/b/mod.rs` and
    /// `a/b.rs`, and an empty path for the roots.
    pub(super) fn module_path(&self) -> Vec<String> {
        let mut path: Vec<String> =
            self.name().trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if self.is_front() {
            path.pop();
        }
        path
    }

    /// Whether the file is a front page: a table of contents that re-exports names of the files
    /// beside it.
    pub(super) fn is_front(&self) -> bool {
        self.path.ends_with("mod.rs") || self.path.ends_with("lib.rs")
    }
}

/// Returns the source files of the library, sorted by path.
pub(super) fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![root.clone()];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = fs::read_to_string(&path).unwrap();
                sources.push(Source { path: path.strip_prefix(&root).unwrap().into(), text });
            }
        }
    }
    assert!(sources.len() > 20, "the sources are in {}", root.display());
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    sources
}

#[track_caller]
pub(super) fn check(offences: &[String]) {
    assert!(offences.is_empty(), "\n{}\n", offences.join("\n"));
}
