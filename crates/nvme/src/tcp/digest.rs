//! CRC32C, the digest of headers and data (TCP Transport Specification, *Digests*).

/// Bytes of a digest. It is sent with the least significant byte first.
pub const DIGEST_LEN: usize = 4;

/// A digest that is computed in parts, in the order of the bytes.
///
/// ```
/// use zoneplug_nvme::tcp::Digest;
/// let mut d = Digest::default();
/// d.update(b"1234");
/// d.update(b"56789");
/// assert_eq!(d.bytes(), 0xe306_9283u32.to_le_bytes());
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Digest(u32);

impl Digest {
    /// Returns the digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(crc32c::crc32c(bytes))
    }

    /// Adds `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }

    /// Returns the digest in transmission order.
    pub fn bytes(self) -> [u8; DIGEST_LEN] {
        self.0.to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720, B.4.
    #[test]
    fn known_digests() {
        assert_eq!(Digest::of(&[0; 32]).bytes(), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(Digest::of(&[0xff; 32]).bytes(), [0x43, 0xab, 0xa8, 0x62]);
        let up: Vec<u8> = (0..32).collect();
        assert_eq!(Digest::of(&up).bytes(), [0x4e, 0x79, 0xdd, 0x46]);
    }
}
