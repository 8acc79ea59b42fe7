//! libFuzzer over `bothends_fuzz::recipe`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bothends_fuzz::recipe(bytes));
