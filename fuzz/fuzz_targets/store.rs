//! libFuzzer over `bothends_fuzz::store`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bothends_fuzz::store(bytes));
