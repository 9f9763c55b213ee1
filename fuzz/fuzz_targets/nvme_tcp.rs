//! `scripts/fuzz nvme_tcp`
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| zoneplug_fuzz::nvme_tcp(data));
