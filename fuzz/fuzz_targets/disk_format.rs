//! `scripts/fuzz disk_format`
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| zoneplug_fuzz::disk_format(data));
