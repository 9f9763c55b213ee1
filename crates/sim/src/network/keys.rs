//! The names and keys of hosts.

use zoneplug_core::Random;
use zoneplug_nvme::dhchap::{self, DhGroup, Key};
use zoneplug_nvme::target::{Keys, Nqn};

/// The key of all hosts, and another one.
pub(super) const RIGHT_KEY: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
pub(super) const WRONG_KEY: &str = "DHHC-1:00:VVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVXP/9dE:";

/// Returns the key of a text.
pub(super) fn key(text: &str) -> Key {
    Key::parse(text).expect("a key")
}

/// Returns the weakest Diffie-Hellman group of a world's hosts, if they have keys. Few worlds have more than the group
/// NULL, because its values take time on this machine.
pub(super) fn group(seed: u64) -> Option<DhGroup> {
    match seed % 200 {
        38 => Some(DhGroup::Ffdhe2048),
        n if n % 10 == 8 => Some(DhGroup::Null),
        _ => None,
    }
}

/// Returns the keys of the target.
pub(super) fn keys(group: DhGroup) -> Keys {
    let host = |n| (Nqn::new(&host_name(n)).expect("a name"), key(RIGHT_KEY));
    Keys { hosts: (0..2).map(host).collect(), controller: None, group }
}

/// Returns the name of a host.
pub(super) fn host_name(number: u32) -> String {
    format!("nqn.2014-08.org.nvmexpress:host{number}")
}

/// Draws the random bytes of a message.
pub(super) fn random(rng: &mut Random) -> dhchap::Random {
    let mut bytes = [0; 132];
    bytes.iter_mut().for_each(|b| *b = rng.draw() as u8);
    dhchap::Random::new(&bytes)
}
