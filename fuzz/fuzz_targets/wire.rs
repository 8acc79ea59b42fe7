//! libFuzzer over `bothends_fuzz::wire`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bothends_fuzz::wire(bytes));
