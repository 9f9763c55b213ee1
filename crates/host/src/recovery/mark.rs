//! What two servers compare before one hands its disks over to the other.

use super::bases::{Bases, hash};
use super::journal;

/// The version of what a server leaves to the next: the words that a driver keeps for it, and its journals. A server
/// cannot go on with what a server of another version has left.
pub const STATE_VERSION: u64 = journal::VERSION;

/// What is served, in a form that two servers can compare. It opens disks in files for reading, and changes nothing.
///
/// ```
/// let of = zoneplug_host::DiskMark::of;
/// assert_eq!(of("/dev/sda,qd1=1"), of("/dev/sda,qd1=0"), "the same drive");
/// assert_ne!(of("/dev/sda").layers, of("po2@/dev/sda").layers, "clients would see other zones");
/// assert_ne!(of("/dev/sda").disks, of("/dev/sdb").disks);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskMark {
    /// The disks at the bottom, by their UUIDs or paths.
    pub disks: u64,
    /// The layers above them.
    pub layers: u64,
    /// Where they are: another file with the same UUID is a copy.
    pub place: u64,
}

impl DiskMark {
    /// Of what a specification names.
    pub fn of(spec: &str) -> DiskMark {
        let bases = Bases::look(spec);
        let layers = hash(&bases.layers(spec));
        DiskMark { disks: bases.name(), layers, place: bases.left().place }
    }
}
