//! Finds the native peers.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for (feature, library, package) in [
        ("ROCKSDB", "rocksdb", "librocksdb-dev"),
        ("CDB", "libcdb", "libcdb-dev"),
        ("CMPH", "cmph", "libcmph-dev"),
        ("TKRZW", "tkrzw", "libtkrzw-dev"),
    ] {
        if std::env::var_os(format!("CARGO_FEATURE_{feature}")).is_none() {
            continue;
        }
        if let Err(error) = pkg_config::probe_library(library) {
            let feature = feature.to_lowercase();
            panic!(
                "{library} was not found: install {package} (apt-get install {package}) or build \
                 without the feature `{feature}`: see bench/README.md\n{error}"
            );
        }
    }
}
