//! libFuzzer over `bothends_fuzz::nvme`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bothends_fuzz::nvme(bytes));
