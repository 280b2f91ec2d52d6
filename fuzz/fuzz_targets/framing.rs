//! See [`hashfold_fuzz::framing`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::framing(bytes));
