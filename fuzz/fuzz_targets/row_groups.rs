//! libFuzzer over `bothends_fuzz::row_groups`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bothends_fuzz::row_groups(bytes));
