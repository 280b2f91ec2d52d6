//! See [`hashfold_fuzz::event_csv`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::event_csv(bytes));
