//! Zones: actions, reporting options, the header and the descriptors of a report (ZBC-2).

use super::bytes::put;
use zoneplug_core::zone::Condition;

/// The service action of a command that manages zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ZoneAction {
    /// CLOSE ZONE.
    Close = 1,
    /// FINISH ZONE.
    Finish = 2,
    /// OPEN ZONE.
    Open = 3,
    /// RESET WRITE POINTER.
    Reset = 4,
}

/// Which zones a report has: the field REPORTING OPTIONS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reporting {
    /// All zones. No unit has gap zones, so *all but gap zones* is the same.
    All,
    /// Zones in this condition.
    In(Condition),
    /// Zones with the attribute RESET or NON_SEQ. No zone has one.
    WithAttribute,
}

impl Reporting {
    /// Reads the field, six bits. `None`: no such option.
    pub const fn from_bits(bits: u8) -> Option<Reporting> {
        Some(match bits {
            0x00 | 0x3e => Reporting::All,
            0x01 => Reporting::In(Condition::Empty),
            0x02 => Reporting::In(Condition::ImpOpen),
            0x03 => Reporting::In(Condition::ExpOpen),
            0x04 => Reporting::In(Condition::Closed),
            0x05 => Reporting::In(Condition::Full),
            0x06 => Reporting::In(Condition::ReadOnly),
            0x07 => Reporting::In(Condition::Offline),
            0x10 | 0x11 => Reporting::WithAttribute,
            0x3f => Reporting::In(Condition::NotWp),
            _ => return None,
        })
    }

    /// Returns whether a report has a zone in this condition.
    pub fn selects(self, condition: Condition) -> bool {
        match self {
            Reporting::All => true,
            Reporting::In(c) => c == condition,
            Reporting::WithAttribute => false,
        }
    }
}

/// The field SAME: what the zones of a unit have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Same {
    /// Types and lengths differ.
    Nothing = 0,
    /// Types and lengths are the same.
    All = 1,
    /// Types are the same, and lengths but that of the last zone.
    AllButLastLength = 2,
    /// Lengths are the same, types differ.
    Length = 3,
}

/// The length of the header of a report.
pub const REPORT_HEADER_LEN: usize = 64;
/// The length of a descriptor of a report.
pub const DESCRIPTOR_LEN: usize = 64;
/// The write pointer of a zone that has none that is valid.
pub const NO_WRITE_POINTER: u64 = u64::MAX;

/// Encodes the header of a report. `zones`: the number of descriptors that it counts.
pub fn encode_report_header(zones: u32, same: Same, last_lba: u64) -> [u8; REPORT_HEADER_LEN] {
    let mut b = [0; REPORT_HEADER_LEN];
    put(&mut b, 0, &zones.saturating_mul(DESCRIPTOR_LEN as u32).to_be_bytes());
    b[4] = same as u8;
    put(&mut b, 8, &last_lba.to_be_bytes());
    b
}

/// The descriptor of a zone, in logical blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZoneDescriptor {
    /// Whether the zone is conventional. If not, it is sequential write required.
    pub conventional: bool,
    /// The condition of the zone.
    pub condition: Condition,
    /// The length of the zone.
    pub length: u64,
    /// The first block of the zone.
    pub start: u64,
    /// The write pointer, or [`NO_WRITE_POINTER`].
    pub write_pointer: u64,
}

impl ZoneDescriptor {
    /// Encodes the descriptor.
    pub fn encode(&self) -> [u8; DESCRIPTOR_LEN] {
        let mut b = [0; DESCRIPTOR_LEN];
        b[0] = if self.conventional { 1 } else { 2 };
        b[1] = (self.condition as u8) << 4;
        put(&mut b, 8, &self.length.to_be_bytes());
        put(&mut b, 16, &self.start.to_be_bytes());
        put(&mut b, 24, &self.write_pointer.to_be_bytes());
        b
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_its_fields_where_the_tables_have_them() {
        let b = encode_report_header(3, Same::AllButLastLength, 0x0102);
        assert_eq!((b[..5].to_vec(), b[14..16].to_vec()), (vec![0, 0, 0, 192, 2], vec![1, 2]));
        let d = ZoneDescriptor {
            conventional: false,
            condition: Condition::Full,
            length: 0x0102,
            start: 0x0304,
            write_pointer: NO_WRITE_POINTER,
        };
        let b = d.encode();
        assert_eq!((b[..2].to_vec(), b[14..16].to_vec()), (vec![2, 0xe0], vec![1, 2]));
        assert_eq!(
            (b[22..24].to_vec(), &b[24..33]),
            (vec![3, 4], &[255, 255, 255, 255, 255, 255, 255, 255, 0][..])
        );
    }

    #[test]
    fn options_are_those_of_the_standard() {
        let known: Vec<u8> = (0..64).filter(|n| Reporting::from_bits(*n).is_some()).collect();
        assert_eq!(known, [0, 1, 2, 3, 4, 5, 6, 7, 0x10, 0x11, 0x3e, 0x3f]);
        assert!(Reporting::In(Condition::NotWp).selects(Condition::NotWp));
        assert!(!Reporting::WithAttribute.selects(Condition::Empty));
    }
}
