//! The commit that a program is built from: part of the build scripts of the command and of the
//! benchmarks.

use std::process::Command;

/// Returns the commit of these sources: with "-dirty" if it lacks changes of them, "unknown" outside
/// of a repository. Tells cargo to ask again when it may have changed.
pub(crate) fn commit(sources: &[&str]) -> String {
    for path in ["../../.git/HEAD", "../../.git/refs/heads"].iter().chain(sources) {
        println!("cargo::rerun-if-changed={path}");
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"]);
    let changes = git(&[&["status", "--porcelain", "--"], sources].concat());
    match (commit, changes.as_deref()) {
        (Some(commit), Some("")) => commit,
        (Some(commit), _) => format!("{commit}-dirty"),
        (None, _) => "unknown".to_owned(),
    }
}

/// Returns what `git` prints, if it succeeds.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
