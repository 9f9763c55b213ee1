//! DH-HMAC-CHAP (Base Specification, section 8.13.5): the computations of a host and a controller. The module draws
//! no random numbers and reads no clock: random bytes are arguments.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `key.rs` | a secret as `nvme gen-dhchap-key` writes it, and its transform for a name |
//! | `hash.rs` | hash functions, HMAC, the responses |
//! | `group.rs`, `primes.rs` | Diffie-Hellman groups |

mod group;
mod hash;
mod key;
mod primes;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use group::DhGroup;
pub(crate) use group::PrivateValue;
pub(crate) use hash::{Exchange, Hash, same};
pub use key::Key;

/// Most bytes of a message, and of the data of an authentication command. Leaves room beyond the longest message for
/// hosts that offer several protocols.
pub const MAX_MESSAGE: u32 = 4096;

/// Random bytes for one message. Each message needs new ones.
#[derive(Clone)]
pub struct Random {
    /// The bytes for a challenge.
    pub challenge: [u8; 64],
    /// The bytes for a private value of Diffie-Hellman.
    pub exponent: [u8; 64],
    /// The bytes for a sequence number.
    pub seqnum: [u8; 4],
}

impl Random {
    /// Takes random bytes that nothing else uses.
    pub fn new(bytes: &[u8; 132]) -> Random {
        let (mut challenge, mut exponent, mut seqnum) = ([0; 64], [0; 64], [0; 4]);
        challenge.copy_from_slice(&bytes[..64]);
        exponent.copy_from_slice(&bytes[64..128]);
        seqnum.copy_from_slice(&bytes[128..]);
        Random { challenge, exponent, seqnum }
    }

    /// Returns a sequence number, never 0: 0 means that the controller does not authenticate itself.
    pub(crate) fn seqnum(&self) -> u32 {
        u32::from_le_bytes(self.seqnum).max(1)
    }
}

impl std::fmt::Debug for Random {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Random")
    }
}
