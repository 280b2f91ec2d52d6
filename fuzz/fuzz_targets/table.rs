//! See [`hashfold_fuzz::table`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::table(bytes));
