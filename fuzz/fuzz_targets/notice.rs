//! libFuzzer over `bothends_fuzz::notice`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bothends_fuzz::notice(bytes));
