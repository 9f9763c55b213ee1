//! CHAP (RFC 1994, and RFC 7143, section 12.1.3): proofs that a side knows a secret.
//!
//! The response to a challenge is the hash of the identifier, the secret and the challenge. A target asks the initiator
//! for one. If the initiator wants to know the target too, it sends a challenge of its own with its response.

use super::error::CredentialError;
use base64ct::{Base64, Encoding};
use md5::Md5;
use sha2::{Digest, Sha256};
use std::fmt;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;
use zoneplug_core::Error;

/// The length of a challenge of this side, in bytes.
pub const CHALLENGE_LEN: usize = 16;
/// The longest challenge or response of the other side, in bytes (RFC 7143).
const MAX_BINARY: usize = 1024;
/// The shortest secret, in bytes: RFC 7143 asks for 96 bits without IPsec.
const MIN_SECRET: usize = 12;

/// A hash of CHAP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChapHash {
    /// MD5, which each initiator has.
    Md5 = 5,
    /// SHA-256, of newer initiators.
    Sha256 = 7,
}

impl ChapHash {
    /// Chooses from the list of an initiator, `CHAP_A`: the first that both have (RFC 7143, section 6.2.1).
    pub fn choose(list: &str) -> Option<ChapHash> {
        let known = |n| [ChapHash::Md5, ChapHash::Sha256].into_iter().find(|h| h.number() == n);
        list.split(',').find_map(known)
    }

    /// Returns the number in `CHAP_A`.
    pub const fn number(self) -> &'static str {
        match self {
            ChapHash::Md5 => "5",
            ChapHash::Sha256 => "7",
        }
    }
}

/// A secret of an initiator or of a target. Nothing prints it, and its memory is cleared.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Makes a secret. Surrounding white space is no part of it. The error does not repeat the text.
    ///
    /// ```
    /// use zoneplug_scsi::iscsi::Secret;
    /// assert_eq!(format!("{:?}", Secret::parse("twelve bytes\n")?), "Secret");
    /// assert!(Secret::parse("short").is_err());
    /// # Ok::<(), zoneplug_core::Error>(())
    /// ```
    pub fn parse(text: &str) -> Result<Secret, Error> {
        let secret = text.trim();
        if secret.len() < MIN_SECRET || secret.len() > MAX_BINARY {
            return Err(CredentialError::SecretLength.into());
        }
        Ok(Secret(Zeroizing::new(secret.as_bytes().to_vec())))
    }

    /// Returns the response to a challenge.
    pub fn response(&self, hash: ChapHash, identifier: u8, challenge: &[u8]) -> Vec<u8> {
        fn of<D: Digest>(parts: [&[u8]; 3]) -> Vec<u8> {
            let mut digest = D::new();
            parts.iter().for_each(|part| digest.update(part));
            digest.finalize().to_vec()
        }
        let parts = [&[identifier][..], &self.0, challenge];
        match hash {
            ChapHash::Md5 => of::<Md5>(parts),
            ChapHash::Sha256 => of::<Sha256>(parts),
        }
    }

    /// Returns whether a response proves that its sender knows this secret. Takes constant time.
    pub fn proves(
        &self,
        hash: ChapHash,
        identifier: u8,
        challenge: &[u8],
        response: &[u8],
    ) -> bool {
        self.response(hash, identifier, challenge).ct_eq(response).into()
    }

    /// Returns whether `other` is the same secret. The two sides must not share one: a side could send a challenge back.
    pub fn is_same(&self, other: &Secret) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// Reads a binary value, `0x` with hexadecimal digits or `0b` with base64. `None`: it is none, or too long.
pub fn parse_binary(text: &str) -> Option<Vec<u8>> {
    let (kind, digits) = text.split_at_checked(2)?;
    let bytes = match kind {
        "0x" | "0X" => hexadecimal(digits)?,
        "0b" | "0B" => Base64::decode_vec(digits).ok()?,
        _ => return None,
    };
    (!bytes.is_empty() && bytes.len() <= MAX_BINARY).then_some(bytes)
}

fn hexadecimal(digits: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> =
        digits.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    // An odd number of digits would leave half of a byte.
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

/// Prints a binary value.
pub fn encode_binary(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |text, b| format!("{text}{b:02x}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const CHALLENGE: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

    /// The values were computed by another program.
    #[test]
    fn known_responses() {
        let secret = Secret::parse("secret-of-12b").unwrap();
        let md5 = "0xb279965660a92651467acaf96f60072f";
        let sha = "0x6557404250f9302fb97008c78ba9fc8a6d5d8ebd82ca91d8e74d7a679141edd3";
        for (hash, want) in [(ChapHash::Md5, md5), (ChapHash::Sha256, sha)] {
            let response = secret.response(hash, 0x2a, &CHALLENGE);
            assert_eq!(encode_binary(&response), want);
            assert!(secret.proves(hash, 0x2a, &CHALLENGE, &parse_binary(want).unwrap()));
            assert!(!secret.proves(hash, 0x2b, &CHALLENGE, &response), "another identifier");
            assert!(!secret.proves(hash, 0x2a, &CHALLENGE, &response[1..]), "a byte less");
            assert!(!secret.proves(hash, 0x2a, &CHALLENGE, &[]));
        }
        assert!(secret.is_same(&secret.clone()));
        assert!(!secret.is_same(&Secret::parse("secret-of-13b").unwrap()));
    }

    #[test]
    fn s12_the_first_hash_that_both_have_is_chosen() {
        assert_eq!(ChapHash::choose("5"), Some(ChapHash::Md5));
        assert_eq!(ChapHash::choose("5,7"), Some(ChapHash::Md5));
        assert_eq!(ChapHash::choose("8,7,5"), Some(ChapHash::Sha256));
        assert_eq!(ChapHash::choose("56"), None);
        assert_eq!(ChapHash::choose("6,8"), None);
        assert_eq!(ChapHash::choose(""), None);
    }

    #[test]
    fn binary_values_are_hexadecimal_or_base64() {
        assert_eq!(parse_binary("0x00fF"), Some(vec![0, 255]));
        assert_eq!(parse_binary("0bAP8="), Some(vec![0, 255]));
        assert_eq!(parse_binary("0bAAEC"), Some(vec![0, 1, 2]));
        for wrong in ["", "0", "0x", "00ff", "0xf", "0x0g", "0bAP8", "0bAP9=", "0b====", "0bA*8="] {
            assert_eq!(parse_binary(wrong), None, "{wrong}");
        }
        assert_eq!(parse_binary(&encode_binary(&[1; 1024])).unwrap().len(), 1024);
        assert_eq!(parse_binary(&encode_binary(&[1; 1025])), None);
    }
}
