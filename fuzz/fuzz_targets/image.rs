//! libFuzzer over `bothends_fuzz::image`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bothends_fuzz::image(bytes));
