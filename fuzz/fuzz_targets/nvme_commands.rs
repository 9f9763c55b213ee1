//! `scripts/fuzz nvme_commands`
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| zoneplug_fuzz::nvme_commands(data));
