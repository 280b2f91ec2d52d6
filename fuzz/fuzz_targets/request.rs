//! See [`hashfold_fuzz::request`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::request(bytes));
