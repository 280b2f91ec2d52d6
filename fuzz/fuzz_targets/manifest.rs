//! See [`hashfold_fuzz::manifest`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::manifest(bytes));
