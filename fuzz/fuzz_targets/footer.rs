//! See [`hashfold_fuzz::footer`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::footer(bytes));
