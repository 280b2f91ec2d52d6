//! See [`hashfold_fuzz::model`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::model(bytes));
