//! libFuzzer over `bothends_fuzz::keys`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bothends_fuzz::keys(bytes));
