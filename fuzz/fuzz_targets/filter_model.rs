//! See [`hashfold_fuzz::filter_model`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::filter_model(bytes));
