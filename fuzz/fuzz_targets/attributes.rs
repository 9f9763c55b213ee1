//! `scripts/fuzz attributes`
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| zoneplug_fuzz::attributes(data));
