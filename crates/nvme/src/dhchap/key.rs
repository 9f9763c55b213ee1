//! A secret as text: `DHHC-1:HH:base64(secret, CRC-32 of it):` (Base Specification, section 8.13.5.8, *Secret
//! Representation*). HH says how the secret becomes the key of a name: 00 as it is, 01 to 03 by a hash function.

use super::hash::{Hash, same};
use base64ct::{Base64, Encoding};
use std::fmt;
use zeroize::Zeroizing;
use zoneplug_core::Error;

/// A secret of DH-HMAC-CHAP, of a host or of a subsystem. Nothing prints it, and its memory is cleared.
///
/// ```
/// use zoneplug_nvme::dhchap::Key;
/// let text = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
/// assert_eq!(format!("{:?}", Key::parse(text)?), "Key");
/// assert!(Key::parse(&text.replace("AAEC", "AAED")).is_err(), "the checksum is wrong");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Key {
    secret: Zeroizing<Vec<u8>>,
    transform: Option<Hash>,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// Reads a key as `nvme gen-dhchap-key` writes it. Surrounding white space is ignored. The error does not repeat
    /// the text.
    pub fn parse(text: &str) -> Result<Key, Error> {
        let wrong = |what: &str| {
            Error::invalid(format!("no key of DH-HMAC-CHAP: {what}"))
                .hint("nvme gen-dhchap-key --hmac 1 > FILE, with no other text in the file")
        };
        let rest = text.trim().strip_prefix("DHHC-1:");
        let rest = rest.ok_or_else(|| wrong("it does not begin with DHHC-1:"))?;
        let (transform, rest) = rest.split_once(':').ok_or_else(|| wrong("it is too short"))?;
        let transform = match transform {
            "00" => None,
            "01" => Some(Hash::Sha256),
            "02" => Some(Hash::Sha384),
            "03" => Some(Hash::Sha512),
            _ => return Err(wrong("its second part is none of 00, 01, 02, 03")),
        };
        let encoded =
            rest.strip_suffix(':').ok_or_else(|| wrong("it does not end with a colon"))?;
        let bytes =
            Base64::decode_vec(encoded).map_err(|_| wrong("its third part is no base64"))?;
        let bytes = Zeroizing::new(bytes);
        let Some((secret, crc)) = bytes.split_last_chunk::<4>() else {
            return Err(wrong("its third part is too short"));
        };
        if !matches!(secret.len(), 32 | 48 | 64) {
            return Err(wrong("its secret has neither 32, 48 nor 64 bytes"));
        }
        if crc32fast::hash(secret) != u32::from_le_bytes(*crc) {
            return Err(wrong("its checksum is wrong"));
        }
        Ok(Key { secret: Zeroizing::new(secret.to_vec()), transform })
    }

    /// Derives the key of the host or subsystem with this name (section 8.13.5.7).
    pub(crate) fn of(&self, nqn: &str) -> Zeroizing<Vec<u8>> {
        match self.transform {
            None => self.secret.clone(),
            Some(hash) => {
                Zeroizing::new(hash.hmac(&self.secret, &[nqn.as_bytes(), b"NVMe-over-Fabrics"]))
            }
        }
    }

    /// Returns the hash function whose digest is as long as the secret.
    pub(crate) fn hash(&self) -> Hash {
        match self.secret.len() {
            64 => Hash::Sha512,
            48 => Hash::Sha384,
            _ => Hash::Sha256,
        }
    }

    /// A text that is the same for the same key and `salt`, and from which the key cannot be found.
    ///
    /// ```
    /// # use zoneplug_nvme::dhchap::Key;
    /// let key = Key::parse("DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:")?;
    /// assert_eq!(key.check("nqn.a"), key.clone().check("nqn.a"));
    /// assert_ne!(key.check("nqn.a"), key.check("nqn.b"));
    /// # Ok::<(), zoneplug_core::Error>(())
    /// ```
    pub fn check(&self, salt: &str) -> String {
        let transform = self.transform.map_or(0, |hash| hash as u8);
        let parts = [salt.as_bytes(), b"zoneplug key check", &[transform]];
        let mac = Hash::Sha256.hmac(&self.secret, &parts);
        mac.iter().take(16).map(|b| format!("{b:02x}")).collect()
    }

    /// Returns whether `other` has the same secret. A host and a subsystem must not share one.
    pub fn is_secret_of(&self, other: &Key) -> bool {
        same(&self.secret, &other.secret)
    }
}
