//! Writes the tables of measurements in the documents from the files in `bench/results`, so that no
//! number is typed by hand.
//!
//! ```text
//!  bench/results/*.jsonl ─ sheet ─→ rows ─ page ─→ tables in README.md and docs/benchmarks.md
//! ```
//!
//! `cargo run -p pages`, in the folder `bench`, brings the documents up to date; a test fails if they
//! are not. Text between the tables is edited in the documents themselves.

mod page;
mod sheet;
#[cfg(test)]
mod tests;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// A message for the person who runs the command.
type Result<T> = std::result::Result<T, String>;

/// Documents with tables of measurements.
const DOCUMENTS: [&str; 2] = ["README.md", "docs/benchmarks.md"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(repository().join(path)).map_err(|error| format!("{path}: {error}"))
}

/// Reads a file of results; `None` if nothing was measured yet.
fn read_results(path: &str) -> Result<Option<String>> {
    let exists = repository().join(path).exists();
    exists.then(|| read(path)).transpose()
}

/// Brings one document up to date; returns whether it changed.
fn refresh(path: &str) -> Result<bool> {
    let old = read(path)?;
    let new = page::refresh(&old, &read_results).map_err(|error| format!("{path}: {error}"))?;
    if new != old {
        fs::write(repository().join(path), &new).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(new != old)
}

fn main() -> ExitCode {
    for path in DOCUMENTS {
        match refresh(path) {
            Ok(true) => println!("{path}: written"),
            Ok(false) => println!("{path}: up to date"),
            Err(error) => {
                eprintln!("pages: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
