//! See [`hashfold_fuzz::salvage`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::salvage(bytes));
