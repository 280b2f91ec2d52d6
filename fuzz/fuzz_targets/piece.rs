//! See [`hashfold_fuzz::piece`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::piece(bytes));
