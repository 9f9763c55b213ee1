//! `scripts/fuzz trace_text`
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| zoneplug_fuzz::trace_text(data));
