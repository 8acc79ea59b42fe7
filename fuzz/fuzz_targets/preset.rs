//! libFuzzer over `bothends_fuzz::preset`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bothends_fuzz::preset(bytes));
