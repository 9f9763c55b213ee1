//! zoneplug for C: the external engine for stock fio.

pub mod fio;
