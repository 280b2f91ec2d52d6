//! See [`hashfold_fuzz::wal`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::wal(bytes));
