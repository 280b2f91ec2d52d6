//! See [`hashfold_fuzz::event_json`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::event_json(bytes));
