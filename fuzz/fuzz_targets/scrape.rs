//! See [`hashfold_fuzz::scrape`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hashfold_fuzz::scrape(bytes));
