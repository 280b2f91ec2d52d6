//! See [`hashfold_fuzz::files`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::files(bytes));
