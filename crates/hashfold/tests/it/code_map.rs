//! `docs/code-map.md` has the first sentence of every source file.
//!
//! `HASHFOLD_WRITE_CODE_MAP=1 cargo test -p hashfold --test it -- code_map` writes it anew.

use crate::documents::{CRATES, files, repository, text};
use std::{collections::BTreeMap, env, fmt::Write as _, fs};

const PAGE: &str = "docs/code-map.md";

const HEAD: &str = "# Code map

Every source file with the first sentence of its front page, by folder. [ARCHITECTURE.md](../ARCHITECTURE.md) says what the folders
are for. This page is written by a test; `crates/hashfold/tests/it/code_map.rs` says how.
";

/// Returns the first sentence of the documentation at the beginning of a file.
fn first_sentence(source: &str) -> String {
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    let paragraph: Vec<&str> = lines
        .map(str::trim)
        .take_while(|line| !line.is_empty() && !line.starts_with("```"))
        .collect();
    let paragraph = paragraph.join(" ");
    let sentence = paragraph.split_once(". ").map_or(&paragraph[..], |(sentence, _)| sentence);
    without_links(sentence.trim_end_matches('.')).replace('|', "\\|")
}

/// Removes the targets of links, which lead nowhere from a page.
fn without_links(text: &str) -> String {
    let mut out = text.replace("[`", "`").replace("`]", "`");
    while let Some(start) = out.find("`(") {
        let Some(len) = out[start..].find(')') else { break };
        out.replace_range(start + 1..=start + len, "");
    }
    out
}

fn map() -> String {
    let mut page = HEAD.to_owned();
    for name in CRATES {
        let root = format!("crates/{name}/src");
        let mut folders: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
        for path in files(&root).into_iter().filter(|path| path.ends_with(".rs")) {
            let (folder, file) = path.rsplit_once('/').expect("it is in a folder");
            let sentence = first_sentence(&text(&path));
            assert!(!sentence.is_empty(), "{path} begins with no documentation");
            folders.entry(folder.to_owned()).or_default().push((file.to_owned(), sentence));
        }
        for (folder, mut files) in folders {
            // A front page comes first.
            files.sort_by_key(|(file, _)| {
                (!["lib.rs", "main.rs", "mod.rs"].contains(&&file[..]), file.clone())
            });
            write!(page, "\n## `{folder}`\n\n| file | |\n|---|---|\n").unwrap();
            for (file, sentence) in files {
                writeln!(page, "| `{file}` | {sentence} |").unwrap();
            }
        }
    }
    page
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a page of the repository, not a data set")]
fn the_code_map_has_every_source_file() {
    let map = map();
    if env::var_os("HASHFOLD_WRITE_CODE_MAP").is_some() {
        fs::write(repository().join(PAGE), &map).unwrap();
    }
    let is_same = fs::read_to_string(repository().join(PAGE)).is_ok_and(|page| page == map);
    assert!(
        is_same,
        "write {PAGE} anew: HASHFOLD_WRITE_CODE_MAP=1 cargo test -p hashfold --test it -- code_map"
    );
}

#[test]
fn a_sentence_ends_at_its_full_stop() {
    let source = "//! A [`Run`](super::Run) of `x.y` entries,\n//! in order. More.\n//!\n//! Other.\nuse a;\n";
    assert_eq!(first_sentence(source), "A `Run` of `x.y` entries, in order");
}
