//! `scripts/fuzz iscsi`
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| zoneplug_fuzz::iscsi(data));
