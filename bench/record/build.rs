//! Tells the programs which commit they are built from, and for which processor.

use std::process::Command;

/// What the programs are built from.
const SOURCES: [&str; 6] = [
    "../../crates/hashfold/src",
    "../../crates/hashfold/Cargo.toml",
    "../record",
    "../peers",
    "../figures",
    "../Cargo.lock",
];

fn main() {
    let commit = git(&["rev-parse", "--short=12", "HEAD"]);
    let changes = git(&[&["status", "--porcelain", "--"], &SOURCES[..]].concat());
    let commit = match (commit.as_deref(), changes.as_deref()) {
        (Some(commit), Some("")) => commit.to_owned(),
        (Some(commit), _) => format!("{commit}-dirty"),
        (None, _) => "unknown".to_owned(),
    };
    println!("cargo::rustc-env=RECORD_COMMIT={commit}");
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let target = flags.split('\u{1f}').find_map(|flag| flag.split_once("target-cpu="));
    let target = target.map_or("baseline", |(_, target)| target);
    println!("cargo::rustc-env=RECORD_TARGET_CPU={target}");
    println!("cargo::rerun-if-env-changed=CARGO_ENCODED_RUSTFLAGS");
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
