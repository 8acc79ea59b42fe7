//! libFuzzer over `bothends_fuzz::remote`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bothends_fuzz::remote(bytes));
