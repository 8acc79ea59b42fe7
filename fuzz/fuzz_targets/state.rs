//! libFuzzer over `bothends_fuzz::state`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bothends_fuzz::state(bytes));
