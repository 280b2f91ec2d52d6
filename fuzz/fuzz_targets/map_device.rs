//! See [`hashfold_fuzz::map_device`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::map_device(bytes));
