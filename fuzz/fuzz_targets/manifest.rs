//! libFuzzer over `bothends_fuzz::manifest`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bothends_fuzz::manifest(bytes));
