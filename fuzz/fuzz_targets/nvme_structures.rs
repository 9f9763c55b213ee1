//! `scripts/fuzz nvme_structures`
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| zoneplug_fuzz::nvme_structures(data));
