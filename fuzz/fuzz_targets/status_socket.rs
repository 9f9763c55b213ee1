//! `scripts/fuzz status_socket`
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| zoneplug_fuzz::status_socket(data));
