//! libFuzzer over `bothends_fuzz::answers`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bothends_fuzz::answers(bytes));
