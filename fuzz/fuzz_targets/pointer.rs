//! See [`hashfold_fuzz::pointer`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::pointer(bytes));
