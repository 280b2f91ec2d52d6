//! Compiles the functions around C++ tables, and finds the native peers.

/// Functions that Rust calls, around tables of C++.
const TABLES: &str = "src/memory/tables.cc";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Before the libraries that it calls: the linker wants them in this order.
    compile_tables();
    for (feature, library, package) in [
        ("ROCKSDB", "rocksdb", "librocksdb-dev"),
        ("CDB", "libcdb", "libcdb-dev"),
        ("CMPH", "cmph", "libcmph-dev"),
        ("TKRZW", "tkrzw", "libtkrzw-dev"),
        ("ABSL", "absl_flat_hash_map", "libabsl-dev"),
        ("KYOTOCABINET", "kyotocabinet", "libkyotocabinet-dev"),
    ] {
        if !is_on(feature) {
            continue;
        }
        if let Err(error) = pkg_config::probe_library(library) {
            panic!("{library} was not found: {}\n{error}", what_to_do(feature, package));
        }
    }
    if is_on("BERKELEY") {
        println!("cargo::rustc-link-lib=db");
    }
}

fn is_on(feature: &str) -> bool {
    std::env::var_os(format!("CARGO_FEATURE_{feature}")).is_some()
}

fn what_to_do(feature: &str, package: &str) -> String {
    let feature = feature.to_lowercase();
    format!(
        "install {package} (apt-get install {package}) or build without the feature `{feature}`: see \
         bench/README.md"
    )
}

/// Compiles the functions around the tables whose features are on.
fn compile_tables() {
    println!("cargo::rerun-if-changed={TABLES}");
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").opt_level(3).file(TABLES);
    let mut advice = Vec::new();
    for (feature, package) in [
        ("ABSL", "libabsl-dev"),
        ("BOOST", "libboost1.81-dev"),
        ("SPARSEHASH", "libsparsehash-dev"),
        ("BERKELEY", "libdb-dev"),
    ] {
        if is_on(feature) {
            build.define(&format!("WITH_{feature}"), None);
            advice.push(what_to_do(feature, package));
        }
    }
    if advice.is_empty() {
        return;
    }
    if let Err(error) = build.try_compile("memory_tables") {
        panic!("{TABLES} cannot be compiled:\n{}\n{error}", advice.join("\n"));
    }
}
