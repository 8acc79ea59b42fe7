//! libFuzzer over `bothends_fuzz::serving`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bothends_fuzz::serving(bytes));
