//! See [`hashfold_fuzz::checkpoint`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::checkpoint(bytes));
