//! What two servers compare before one hands its disks over to the other.

use super::bases::{Bases, LastServer, hash};
use crate::{HostedDisk, Specification};

/// The version of what a server leaves to the next: the words that a driver keeps for it, its journals, and what it says
/// of its disks. A server asks none of another version for its disks. It takes over the devices of a dead server of
/// version 2, whose words it still reads (`ublk/takeover/identity.rs`).
pub const STATE_VERSION: u64 = 3;

/// What is served, in a form that two servers can compare.
///
/// ```
/// use zoneplug_host::{DiskMark, Specification};
/// let of = |text| DiskMark::of(&Specification::parse(text).unwrap());
/// assert_eq!(of("/dev/sda,qd1=1"), of("/dev/sda,qd1=0"), "the same drive");
/// assert_eq!(of("delay,write=1ms@/dev/sda"), of("/dev/sda"), "the same data, later");
/// assert_ne!(of("/dev/sda").layers, of("po2@/dev/sda").layers, "clients would see other zones");
/// assert_ne!(of("/dev/sda").disks, of("/dev/sdb").disks);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskMark {
    /// The disks at the bottom, by their UUIDs or paths, in whatever order.
    pub disks: u64,
    /// The layers above them that decide what clients see and what the bytes on the disks mean: also the order of the
    /// disks, and a check value of each key.
    pub layers: u64,
    /// Where they are: another file with the same UUID is a copy.
    pub place: u64,
    /// How often disks in files were opened for writing: a copy of an earlier time was opened less often.
    pub opened: u64,
}

impl DiskMark {
    /// Of what is at the paths of a specification now. It opens disks in files for reading, reads keys, and changes
    /// nothing.
    pub fn of(spec: &Specification) -> DiskMark {
        Self::of_bases(&Bases::look(spec))
    }

    /// Of what `disk`, which was opened from `spec`, has open, whatever is at its paths by now.
    pub fn held(disk: &HostedDisk, spec: &Specification) -> DiskMark {
        Self::of_bases(&Bases::held(disk, spec))
    }

    /// Whether both are of the same disks, at the same places, with the same layers and keys; at whatever times.
    pub fn is_same_disk(&self, other: DiskMark) -> bool {
        DiskMark { opened: other.opened, ..*self } == other
    }

    /// The paths of the disks at the bottom of a specification, for messages.
    pub fn paths(spec: &Specification) -> String {
        Bases::look(spec).left().paths
    }

    fn of_bases(bases: &Bases) -> DiskMark {
        let LastServer { place, opened, .. } = bases.left();
        DiskMark { disks: bases.name(), layers: hash(bases.layers()), place, opened }
    }
}
