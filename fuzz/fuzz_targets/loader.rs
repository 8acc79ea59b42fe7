//! libFuzzer over `bothends_fuzz::loader`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bothends_fuzz::loader(bytes));
