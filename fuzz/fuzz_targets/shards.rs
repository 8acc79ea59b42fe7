//! libFuzzer over `bothends_fuzz::shards`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bothends_fuzz::shards(bytes));
