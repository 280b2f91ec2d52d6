//! Tells the program which commit it is built from, for benchmarks.

mod commit;

/// What the program is built from.
const SOURCES: [&str; 9] = [
    "../hashfold/src",
    "../hashfold/Cargo.toml",
    "../hashfold-rows/src",
    "../hashfold-rows/Cargo.toml",
    "src",
    "Cargo.toml",
    "../../Cargo.toml",
    "../../Cargo.lock",
    "../../rust-toolchain.toml",
];

fn main() {
    println!("cargo::rustc-env=HASHFOLD_COMMIT={}", commit::commit(&SOURCES));
}
