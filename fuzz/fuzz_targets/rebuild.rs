//! libFuzzer over `bothends_fuzz::rebuild`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bothends_fuzz::rebuild(bytes));
