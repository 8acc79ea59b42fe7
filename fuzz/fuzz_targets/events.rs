//! libFuzzer over `bothends_fuzz::events`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bothends_fuzz::events(bytes));
