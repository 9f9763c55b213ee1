//! Big-endian numbers in bytes, at fixed offsets.

/// Returns the `N` bytes at `at`. The caller has checked the length.
fn array<const N: usize>(b: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&b[at..at + N]);
    bytes
}

/// Reads two bytes.
pub(crate) fn be16(b: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array(b, at))
}

/// Reads four bytes.
pub(crate) fn be32(b: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(b, at))
}

/// Reads eight bytes.
pub(crate) fn be64(b: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array(b, at))
}

/// Writes `bytes` at `at`.
pub(crate) fn put(b: &mut [u8], at: usize, bytes: &[u8]) {
    b[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Returns `text` as a field of `N` bytes, truncated or padded with spaces.
pub(crate) fn text<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_significant_byte_is_first() {
        let b = [0, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!((be16(&b, 1), be32(&b, 1)), (0x102, 0x1020304));
        assert_eq!(be64(&b, 1), 0x102_0304_0506_0708);
        let mut to = [0; 4];
        put(&mut to, 1, &0x0102u16.to_be_bytes());
        assert_eq!(to, [0, 1, 2, 0]);
        assert_eq!((text::<4>("ab"), text::<1>("ab")), (*b"ab  ", *b"a"));
    }
}
