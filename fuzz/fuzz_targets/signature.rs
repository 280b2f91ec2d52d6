//! See [`hashfold_fuzz::signature`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::signature(bytes));
