//! libFuzzer over `bothends_fuzz::jpeg`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bothends_fuzz::jpeg(bytes));
