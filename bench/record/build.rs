//! Tells the programs which commit they are built from, and for which processor.

#[path = "../../crates/hashfold-cli/commit.rs"]
mod commit;

/// What the programs are built from.
const SOURCES: [&str; 12] = [
    "../../crates/hashfold/src",
    "../../crates/hashfold/Cargo.toml",
    "../../Cargo.toml",
    "../record",
    "../peers",
    "../figures",
    "../voldemort",
    "../java_maps",
    "../.cargo",
    "../Cargo.toml",
    "../Cargo.lock",
    "../../rust-toolchain.toml",
];

fn main() {
    println!("cargo::rustc-env=RECORD_COMMIT={}", commit::commit(&SOURCES));
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let target = flags.split('\u{1f}').find_map(|flag| flag.split_once("target-cpu="));
    let target = target.map_or("baseline", |(_, target)| target);
    println!("cargo::rustc-env=RECORD_TARGET_CPU={target}");
    println!("cargo::rerun-if-env-changed=CARGO_ENCODED_RUSTFLAGS");
}
