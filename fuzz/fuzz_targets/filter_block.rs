//! See [`hashfold_fuzz::filter_block`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::filter_block(bytes));
