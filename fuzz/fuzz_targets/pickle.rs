//! libFuzzer over `bothends_fuzz::pickle`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bothends_fuzz::pickle(bytes));
