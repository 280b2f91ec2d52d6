//! See [`hashfold_fuzz::restored`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::restored(bytes));
