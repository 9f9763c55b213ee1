//! `scripts/fuzz device_spec`
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| zoneplug_fuzz::device_spec(data));
