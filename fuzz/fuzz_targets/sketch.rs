//! See [`hashfold_fuzz::sketch`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::sketch(bytes));
