//! See [`hashfold_fuzz::header`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::header(bytes));
