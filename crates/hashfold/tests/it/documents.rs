//! The documents agree with the repository.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The crates of the workspace.
pub(crate) const CRATES: [&str; 6] = [
    "hashfold",
    "hashfold-cli",
    "hashfold-deploy",
    "hashfold-rows",
    "hashfold-server",
    "hashfold-summarize",
];

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn text(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The paths of all files in a folder and its subfolders, relative to the repository.
pub(crate) fn files(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(repository().join(folder)).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        if repository().join(&path).is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

fn documents() -> Vec<String> {
    let mut found = files("docs");
    found.extend(files("examples"));
    found
        .extend(["README", "ARCHITECTURE", "CONTRIBUTING", "CHANGELOG"].map(|n| format!("{n}.md")));
    found.retain(|path| path.ends_with(".md"));
    found
}

#[test]
fn the_example_in_the_readme_is_the_one_that_runs() {
    let example = text("crates/hashfold/examples/build_and_get.rs");
    let (_, code) = example.split_once("\n\n").expect("a front page, then code");
    assert!(text("README.md").contains(&format!("```rust\n{code}```\n")));
}

#[test]
fn links_between_documents_lead_somewhere() {
    for path in documents() {
        let document = text(&path);
        let targets = document.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://")) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let folder = Path::new(&path).parent().expect("a file is in a folder");
            let file = match file {
                "" => path.clone(),
                file => folder.join(file).to_string_lossy().into_owned(),
            };
            assert!(repository().join(&file).exists(), "{path}: there is no {target}");
            let anchor = |line: &str| {
                let line = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
                line.replace(|c: char| !c.is_alphanumeric() && c != '-', "")
            };
            let anchors = |document: String| {
                let headings = document.lines().filter(|line| line.starts_with('#'));
                headings.map(anchor).collect::<Vec<_>>()
            };
            let known = heading.is_empty() || anchors(text(&file)).iter().any(|a| a == heading);
            assert!(known, "{path}: there is no heading {target}");
        }
    }
}

#[test]
fn the_map_names_every_folder_and_fits_its_page() {
    let map = text("ARCHITECTURE.md");
    assert!(map.lines().count() <= 300, "a map that is too long is not read");
    for name in CRATES {
        let root = format!("crates/{name}/src");
        let (_, part) = map
            .split_once(&format!("| `crates/{name}`: "))
            .unwrap_or_else(|| panic!("ARCHITECTURE.md has no table of {name}"));
        let part = part.split("| `crates/").next().expect("a text has a first part");
        for path in files(&root) {
            let (folder, _) = path.rsplit_once('/').expect("it is in the folder");
            let folder = folder.strip_prefix(&root).expect("it is in the folder");
            let folder = folder.trim_start_matches('/');
            let is_named = folder.is_empty() || part.contains(&format!("`{folder}`"));
            assert!(is_named, "ARCHITECTURE.md does not name {folder} of {name}");
        }
    }
    let named = map.split('`').skip(1).step_by(2);
    for path in named.filter(|name| name.ends_with(".rs") && *name != "tests.rs") {
        let roots = [
            "",
            "crates/hashfold/",
            "crates/hashfold/src/",
            "crates/hashfold/tests/it/",
            "crates/hashfold-cli/src/",
            "crates/hashfold-deploy/src/",
            "crates/hashfold-rows/src/",
            "crates/hashfold-server/src/",
            "crates/hashfold-summarize/src/",
        ];
        let known = roots.iter().any(|root| repository().join(root).join(path).exists());
        assert!(known, "ARCHITECTURE.md names {path}, which is not there");
    }
}
