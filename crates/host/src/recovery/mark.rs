//! The mark that two servers compare before one hands its disks over to the other.

use super::bases::{Bases, DiskState, hash};
use crate::{HostedDisk, Specification};

/// The version of the state that a server leaves to the next: the words that a driver keeps for it, its journals, and
/// its mark. A server does not ask a server of another version for its disks. It can take over the devices of a dead
/// server of version 2, because it still reads that version's words (`ublk/takeover/identity.rs`).
pub const STATE_VERSION: u64 = 3;

/// Describes a served disk in a form that two servers can compare.
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
    /// The disks at the bottom, by their UUIDs or paths, independent of their order.
    pub disks: u64,
    /// The layers above the disks that decide what clients see and what the bytes mean. Includes the order of the
    /// disks, and a check value of each key.
    pub layers: u64,
    /// The places of the disks: another file with the same UUID is a copy.
    pub place: u64,
    /// How often disks in files were opened for writing. An older copy was opened less often.
    pub opened: u64,
}

impl DiskMark {
    /// The mark of the disks that are at the paths of a specification now. Opens disks in files for reading, reads
    /// keys, and changes nothing.
    pub fn of(spec: &Specification) -> DiskMark {
        Self::of_bases(&Bases::at_paths_of(spec))
    }

    /// The mark of the disks that `disk` has open, whatever is at their paths by now. `disk` was opened from `spec`.
    pub fn held(disk: &HostedDisk, spec: &Specification) -> DiskMark {
        Self::of_bases(&Bases::held(disk, spec))
    }

    /// Whether both marks are of the same disks, at the same places, with the same layers and keys. Ignores how often
    /// the disks were opened.
    pub fn is_same_disk(&self, other: DiskMark) -> bool {
        DiskMark { opened: other.opened, ..*self } == other
    }

    /// The paths of the disks at the bottom of a specification, for messages.
    pub fn paths(spec: &Specification) -> String {
        Bases::at_paths_of(spec).disk_state().paths
    }

    fn of_bases(bases: &Bases) -> DiskMark {
        let DiskState { place, opened, .. } = bases.disk_state();
        DiskMark { disks: bases.name(), layers: hash(bases.layers()), place, opened }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that was opened once more is the same disk; another place, other layers or other disks are another one.
    #[test]
    fn a_mark_is_of_the_same_disk_however_often_it_was_opened() {
        let mark = DiskMark { disks: 1, layers: 2, place: 3, opened: 4 };
        assert!(mark.is_same_disk(mark) && mark.is_same_disk(DiskMark { opened: 5, ..mark }));
        for other in [
            DiskMark { disks: 9, ..mark },
            DiskMark { layers: 9, ..mark },
            DiskMark { place: 9, ..mark },
        ] {
            assert!(!mark.is_same_disk(other), "{other:?}");
        }
    }
}
