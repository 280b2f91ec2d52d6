//! See [`hashfold_fuzz::group_pointer`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::group_pointer(bytes));
