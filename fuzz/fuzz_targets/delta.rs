//! See [`hashfold_fuzz::delta`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::delta(bytes));
