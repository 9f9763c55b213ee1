//! `scripts/fuzz ublk_requests`
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| zoneplug_fuzz::ublk_requests(data));
