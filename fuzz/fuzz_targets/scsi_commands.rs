//! `scripts/fuzz scsi_commands`
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| zoneplug_fuzz::scsi_commands(data));
