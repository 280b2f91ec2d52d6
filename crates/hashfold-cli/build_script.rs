//! Tells the program which commit it is built from, for benchmarks.

mod commit;

/// What the program is built from.
const SOURCES: [&str; 6] = [
    "../hashfold/src",
    "../hashfold-rows/src",
    "src",
    "../../Cargo.toml",
    "../../Cargo.lock",
    "../../rust-toolchain.toml",
];

fn main() {
    println!("cargo::rustc-env=HASHFOLD_COMMIT={}", commit::commit(&SOURCES));
}
