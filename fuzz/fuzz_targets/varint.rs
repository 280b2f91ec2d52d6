//! See [`hashfold_fuzz::varint`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::varint(bytes));
