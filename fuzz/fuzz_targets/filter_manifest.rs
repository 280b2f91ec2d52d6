//! See [`hashfold_fuzz::filter_manifest`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::filter_manifest(bytes));
