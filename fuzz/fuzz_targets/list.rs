//! libFuzzer over `bothends_fuzz::list`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bothends_fuzz::list(bytes));
