//! See [`hashfold_fuzz::tree`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::tree(bytes));
