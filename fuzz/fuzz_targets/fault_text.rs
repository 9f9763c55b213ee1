//! `scripts/fuzz fault_text`
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| zoneplug_fuzz::fault_text(data));
