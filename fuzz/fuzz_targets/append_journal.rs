//! `scripts/fuzz append_journal`
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| zoneplug_fuzz::append_journal(data));
