//! See [`hashfold_fuzz::rows`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::rows(bytes));
