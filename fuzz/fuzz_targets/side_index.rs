//! libFuzzer over `bothends_fuzz::side_index`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bothends_fuzz::side_index(bytes));
