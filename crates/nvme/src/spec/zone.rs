//! Zones: actions, reports and their descriptors (Zoned Namespace Command Set Specification, *Zone Management Send*,
//! *Zone Management Receive*).

use super::structure::structure;

/// The action of Zone Management Send, bits 7:0 of command dword 13.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ZoneAction {
    /// Close.
    Close = 1,
    /// Finish.
    Finish = 2,
    /// Open explicitly.
    Open = 3,
    /// Reset.
    Reset = 4,
    /// Make a read-only or offline zone offline.
    Offline = 5,
}

impl ZoneAction {
    /// Returns the action with this number.
    pub const fn from_u8(n: u8) -> Option<ZoneAction> {
        Some(match n {
            1 => ZoneAction::Close,
            2 => ZoneAction::Finish,
            3 => ZoneAction::Open,
            4 => ZoneAction::Reset,
            5 => ZoneAction::Offline,
            _ => return None,
        })
    }
}

/// Select all: command dword 13 of Zone Management Send.
pub const SELECT_ALL: u32 = 1 << 8;
/// Partial report: command dword 13 of Zone Management Receive. The report then counts the descriptors that it
/// contains, not all matching zones.
pub const PARTIAL_REPORT: u32 = 1 << 16;

/// Report Zones: the action of Zone Management Receive, bits 7:0 of command dword 13.
pub const REPORT_ZONES: u8 = 0;
/// Extended Report Zones: with the zone descriptor extensions.
pub const EXTENDED_REPORT_ZONES: u8 = 1;

/// The one type of zones: sequential write required.
pub const SEQUENTIAL_ZONE: u8 = 2;

/// The state of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ZoneState {
    /// Nothing written.
    Empty = 0x1,
    /// Opened by a write.
    ImplicitlyOpened = 0x2,
    /// Opened by a command.
    ExplicitlyOpened = 0x3,
    /// Partly written and closed.
    Closed = 0x4,
    /// Can be read, not written.
    ReadOnly = 0xd,
    /// Full.
    Full = 0xe,
    /// Can be neither read nor written.
    Offline = 0xf,
}

impl ZoneState {
    /// Returns the state with this number, if there is one.
    pub const fn from_u8(n: u8) -> Option<ZoneState> {
        Some(match n {
            0x1 => ZoneState::Empty,
            0x2 => ZoneState::ImplicitlyOpened,
            0x3 => ZoneState::ExplicitlyOpened,
            0x4 => ZoneState::Closed,
            0xd => ZoneState::ReadOnly,
            0xe => ZoneState::Full,
            0xf => ZoneState::Offline,
            _ => return None,
        })
    }

    /// Returns the state that a report with this filter selects: bits 15:8 of command dword 13 of Zone Management
    /// Receive, 1 to 7. `None`: all states (0), or no such filter.
    pub const fn from_filter(n: u8) -> Option<ZoneState> {
        Some(match n {
            1 => ZoneState::Empty,
            2 => ZoneState::ImplicitlyOpened,
            3 => ZoneState::ExplicitlyOpened,
            4 => ZoneState::Closed,
            5 => ZoneState::Full,
            6 => ZoneState::ReadOnly,
            7 => ZoneState::Offline,
            _ => return None,
        })
    }
}

structure! {
    /// The header of a zone report.
    ZoneReportHeader: 64 {
        /// The number of zones in a partial report; otherwise the number of all matching zones.
        nr_zones: u64 = 0,
    }
}

structure! {
    /// One zone of a report, in logical blocks.
    ZoneDescriptor: 64 {
        /// Bits 3:0: the type of the zone.
        zt: u8 = 0,
        /// Bits 7:4: the state of the zone.
        zs: u8 = 1,
        /// Attributes.
        za: u8 = 2,
        /// Information about the attributes.
        zai: u8 = 3,
        /// Capacity.
        zcap: u64 = 8,
        /// The first block.
        zslba: u64 = 16,
        /// The write pointer. Not valid in a full, read-only or offline zone.
        wp: u64 = 24,
    }
}

impl ZoneDescriptor {
    /// Returns the type of the zone.
    pub const fn zone_type(&self) -> u8 {
        self.zt & 0xf
    }

    /// Returns the number of the zone's state.
    pub const fn state(&self) -> u8 {
        self.zs >> 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Y3. A descriptor has its fields at the offsets of the figure.
    #[test]
    fn a_descriptor_has_its_fields_where_the_figure_has_them() {
        let d = ZoneDescriptor {
            zt: SEQUENTIAL_ZONE,
            zs: (ZoneState::Full as u8) << 4,
            zcap: 0x0102,
            zslba: 0x0304,
            wp: 0x0506,
            ..Default::default()
        };
        let b = d.encode();
        assert_eq!((b[..2].to_vec(), b[8..10].to_vec()), (vec![2, 0xe0], vec![2, 1]));
        assert_eq!((b[16..18].to_vec(), b[24..26].to_vec()), (vec![4, 3], vec![6, 5]));
        assert_eq!(ZoneState::from_u8(d.state()), Some(ZoneState::Full));
        assert_eq!(ZoneReportHeader { nr_zones: 7 }.encode()[..8], 7u64.to_le_bytes());
    }

    #[test]
    fn numbers_of_states_and_filters() {
        let states: Vec<_> = (0..=16).filter_map(ZoneState::from_u8).collect();
        assert_eq!(states.iter().map(|s| *s as u8).collect::<Vec<_>>(), [1, 2, 3, 4, 13, 14, 15]);
        let filters: Vec<_> = (0..=8).map(ZoneState::from_filter).collect();
        assert_eq!((filters[0], filters[5], filters[8]), (None, Some(ZoneState::Full), None));
        assert_eq!(filters.iter().flatten().count(), 7);
    }
}
