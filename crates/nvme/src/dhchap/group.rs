//! Diffie-Hellman in the groups of RFC 7919.

use super::primes;
use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd, Resize};
use std::fmt;
use std::str::FromStr;
use zeroize::Zeroizing;
use zoneplug_core::Error;

/// A Diffie-Hellman group (DHGID), from the weakest to the strongest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum DhGroup {
    /// No Diffie-Hellman: a response is only as hard to guess as the secret.
    Null = 0,
    /// 2048 bits.
    #[default]
    Ffdhe2048 = 1,
    /// 3072 bits.
    Ffdhe3072 = 2,
    /// 4096 bits.
    Ffdhe4096 = 3,
    /// 6144 bits.
    Ffdhe6144 = 4,
    /// 8192 bits.
    Ffdhe8192 = 5,
}

/// Name, bytes of the prime, bytes of a private value, last digits of the prime. Private values are longer than the
/// minimum of RFC 7919, appendix A (225, 275, 325, 375, 400 bits); longer ones would cost time and add no strength.
const GROUPS: [(&str, usize, usize, &str); 6] = [
    ("null", 0, 0, ""),
    ("ffdhe2048", 256, 32, "285c97ffffffffffffffff"),
    ("ffdhe3072", 384, 36, "c62e37ffffffffffffffff"),
    ("ffdhe4096", 512, 42, "655f6affffffffffffffff"),
    ("ffdhe6144", 768, 48, "d0e40e65ffffffffffffffff"),
    ("ffdhe8192", 1024, 52, "c6424cffffffffffffffff"),
];

impl DhGroup {
    /// All groups, from the weakest to the strongest.
    pub const ALL: [DhGroup; 6] = [
        DhGroup::Null,
        DhGroup::Ffdhe2048,
        DhGroup::Ffdhe3072,
        DhGroup::Ffdhe4096,
        DhGroup::Ffdhe6144,
        DhGroup::Ffdhe8192,
    ];

    /// Returns the group's name as Linux spells it.
    pub const fn name(self) -> &'static str {
        GROUPS[self as usize].0
    }

    pub(crate) const fn id(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_id(id: u8) -> Option<DhGroup> {
        DhGroup::ALL.get(usize::from(id)).copied()
    }

    /// Returns the next stronger group, if there is one.
    pub(crate) fn next(self) -> DhGroup {
        DhGroup::from_id(self.id() + 1).unwrap_or(self)
    }

    /// Returns the length of a value in bytes (DHVLEN).
    pub(crate) const fn len(self) -> usize {
        GROUPS[self as usize].1
    }

    pub(super) fn prime(self) -> String {
        primes::prime(self.len() * 2, GROUPS[self as usize].3)
    }

    fn params(self) -> Option<BoxedMontyParams> {
        let prime = BoxedUint::from_be_hex(&self.prime(), self.len() as u32 * 8).into_option()?;
        Some(BoxedMontyParams::new_vartime(Odd::new(prime).into_option()?))
    }
}

impl fmt::Display for DhGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DhGroup {
    type Err = Error;

    fn from_str(text: &str) -> Result<DhGroup, Error> {
        let names = DhGroup::ALL.map(DhGroup::name);
        names.iter().position(|n| *n == text).map(|n| DhGroup::ALL[n]).ok_or_else(|| {
            Error::invalid(format!("{text:?} is no Diffie-Hellman group")).hint(names.join(", "))
        })
    }
}

/// A side's private value in a group. Its memory is cleared.
pub(crate) struct PrivateValue {
    group: DhGroup,
    exponent: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for PrivateValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateValue({})", self.group)
    }
}

impl PrivateValue {
    /// Makes a private value of random bytes. The highest bit is set, so the value is never short.
    pub(crate) fn new(group: DhGroup, random: &[u8; 64]) -> PrivateValue {
        let mut exponent = Zeroizing::new(random[..GROUPS[group as usize].2].to_vec());
        if let Some(first) = exponent.first_mut() {
            *first |= 0x80;
        }
        PrivateValue { group, exponent }
    }

    /// Returns the public value for the other side; empty in the group NULL.
    pub(crate) fn public(&self) -> Vec<u8> {
        let generator = BoxedUint::from(2u8).resize(self.group.len() as u32 * 8);
        self.power(generator).map_or_else(Vec::new, |v| v.to_vec())
    }

    /// Computes the shared value from the other side's public value. Returns `None` if that value has the wrong
    /// length or lies outside 1 to p - 1, where anybody could compute the result.
    pub(crate) fn shared(&self, other: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        if other.len() != self.group.len() {
            return None;
        }
        let prime = self.group.params()?.modulus().as_ref().clone();
        let value = BoxedUint::from_be_slice(other, self.group.len() as u32 * 8).ok()?;
        let one = BoxedUint::one_with_precision(value.bits_precision());
        if value <= one || value >= prime.wrapping_sub(&one) {
            return None;
        }
        self.power(value)
    }

    fn power(&self, base: BoxedUint) -> Option<Zeroizing<Vec<u8>>> {
        let params = self.group.params()?;
        let bits = self.exponent.len() as u32 * 8;
        let exponent = Zeroizing::new(BoxedUint::from_be_slice(&self.exponent, bits).ok()?);
        let power = BoxedMontyForm::new(base, &params).pow_bounded_exp(&exponent, bits);
        Some(Zeroizing::new(power.retrieve().to_be_bytes().to_vec()))
    }
}
