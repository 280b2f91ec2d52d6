//! Tells the program which commit it is built from, for benchmarks.

use std::process::Command;

/// What the program is built from.
const SOURCES: [&str; 4] = ["../hashfold/src", "../hashfold-rows/src", "src", "../../Cargo.lock"];

fn main() {
    let commit = git(&["rev-parse", "--short=12", "HEAD"]);
    let changes = git(&[&["status", "--porcelain", "--"], &SOURCES[..]].concat());
    let commit = match (commit.as_deref(), changes.as_deref()) {
        (Some(commit), Some("")) => commit.to_owned(),
        (Some(commit), _) => format!("{commit}-dirty"),
        (None, _) => "unknown".to_owned(),
    };
    println!("cargo::rustc-env=HASHFOLD_COMMIT={commit}");
    for path in ["../../.git/HEAD", "../../.git/refs/heads"].iter().chain(&SOURCES) {
        println!("cargo::rerun-if-changed={path}");
    }
}

/// Returns what `git` prints, if it succeeds.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
