//! Hash functions, HMAC, and the responses to challenges.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha384, Sha512};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// A hash function of DH-HMAC-CHAP (HASHID).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hash {
    Sha256 = 1,
    Sha384 = 2,
    Sha512 = 3,
}

/// Compares two secrets in constant time.
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    a.ct_eq(b).into()
}

impl Hash {
    pub(crate) const ALL: [Hash; 3] = [Hash::Sha256, Hash::Sha384, Hash::Sha512];

    pub(crate) fn from_id(id: u8) -> Option<Hash> {
        Hash::ALL.into_iter().find(|h| h.id() == id)
    }

    pub(crate) const fn id(self) -> u8 {
        self as u8
    }

    /// Returns the length of a digest, and of a challenge, in bytes.
    pub(crate) const fn len(self) -> usize {
        match self {
            Hash::Sha256 => 32,
            Hash::Sha384 => 48,
            Hash::Sha512 => 64,
        }
    }

    fn digest(self, bytes: &[u8]) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(match self {
            Hash::Sha256 => Sha256::digest(bytes).to_vec(),
            Hash::Sha384 => Sha384::digest(bytes).to_vec(),
            Hash::Sha512 => Sha512::digest(bytes).to_vec(),
        })
    }

    /// Returns the HMAC of `parts`, concatenated.
    pub(crate) fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        fn of<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
            // HMAC takes a key of any length.
            let Ok(mut mac) = <M as KeyInit>::new_from_slice(key) else { return Vec::new() };
            parts.iter().for_each(|part| mac.update(part));
            mac.finalize().into_bytes().to_vec()
        }
        match self {
            Hash::Sha256 => of::<Hmac<Sha256>>(key, parts),
            Hash::Sha384 => of::<Hmac<Sha384>>(key, parts),
            Hash::Sha512 => of::<Hmac<Sha512>>(key, parts),
        }
    }
}

/// The values that all responses of one transaction are computed from.
#[derive(Debug)]
pub(crate) struct Exchange<'a> {
    pub(crate) hash: Hash,
    pub(crate) t_id: u16,
    pub(crate) host: &'a str,
    pub(crate) subsystem: &'a str,
    /// The shared Diffie-Hellman value; `None` for the group NULL.
    pub(crate) shared: Option<&'a [u8]>,
}

impl Exchange<'_> {
    /// Returns the host's response to the controller's challenge (DH-HMAC-CHAP_Reply, *Response Value*).
    pub(crate) fn host_response(&self, key: &[u8], challenge: &[u8], seqnum: u32) -> Vec<u8> {
        self.response(key, challenge, seqnum, b"HostHost", [self.host, self.subsystem])
    }

    /// Returns the controller's response to the host's challenge (DH-HMAC-CHAP_Success1, *Response Value*).
    pub(crate) fn controller_response(&self, key: &[u8], challenge: &[u8], seqnum: u32) -> Vec<u8> {
        self.response(key, challenge, seqnum, b"Controller", [self.subsystem, self.host])
    }

    fn response(
        &self,
        key: &[u8],
        challenge: &[u8],
        seqnum: u32,
        role: &[u8],
        names: [&str; 2],
    ) -> Vec<u8> {
        // With Diffie-Hellman, the challenge is augmented by the shared value.
        let augmented = self.shared.map(|s| self.hash.hmac(&self.hash.digest(s), &[challenge]));
        let parts: [&[u8]; 8] = [
            augmented.as_deref().unwrap_or(challenge),
            &seqnum.to_le_bytes(),
            &self.t_id.to_le_bytes(),
            // SC_C: no secure channel.
            &[0],
            role,
            names[0].as_bytes(),
            &[0],
            names[1].as_bytes(),
        ];
        self.hash.hmac(key, &parts)
    }
}
