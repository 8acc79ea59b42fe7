//! libFuzzer over `bothends_fuzz::capi`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bothends_fuzz::capi(bytes));
