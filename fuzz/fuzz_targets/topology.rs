//! See [`hashfold_fuzz::topology`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::topology(bytes));
