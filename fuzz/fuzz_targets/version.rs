//! See [`hashfold_fuzz::version`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::version(bytes));
