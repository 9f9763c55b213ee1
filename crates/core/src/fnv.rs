//! A hash that is the same in every process and on every machine, for identifiers and records.

/// The start value of the standard hash.
pub const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a with 64 bits. Another start than [`FNV_START`] gives another hash of the same bytes.
///
/// ```
/// use zoneplug_core::{FNV_START, fnv1a};
/// assert_eq!(fnv1a(FNV_START, "a".bytes()), 0xaf63_dc4c_8601_ec8c);
/// assert_eq!(fnv1a(fnv1a(FNV_START, "a".bytes()), "b".bytes()), fnv1a(FNV_START, "ab".bytes()));
/// ```
pub fn fnv1a(start: u64, bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(start, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}
