//! libFuzzer over `bothends_fuzz::block_cache`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bothends_fuzz::block_cache(bytes));
