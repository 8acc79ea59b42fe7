//! libFuzzer over `bothends_fuzz::compressed`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bothends_fuzz::compressed(bytes));
