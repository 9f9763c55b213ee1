//! From the bytes of a command to its checked fields.
//!
//! [`parse`] looks the command up in the one table, [`OPERATIONS`](crate::spec::operation::OPERATIONS), and refuses bits
//! that the table does not have. The sense of a refusal points to the field. What a field means for a certain unit, such
//! as the range of an address, is checked later.

use crate::spec::bytes::{be16, be32, be64};
use crate::spec::mode::{ModeForm, PageControl};
use crate::spec::operation::{
    Abilities, MAX_COMMAND_LEN, Operation, OperationInfo, command_len, commands_of,
};
use crate::spec::sense::{INVALID_OPCODE, SenseData};
use crate::spec::zone::{Reporting, ZoneAction};

/// A range of logical blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRange {
    /// The first block.
    pub lba: u64,
    /// How many.
    pub blocks: u32,
}

/// The service action of PERSISTENT RESERVE IN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReserveIn {
    /// READ KEYS.
    Keys,
    /// READ RESERVATION.
    Reservation,
    /// REPORT CAPABILITIES.
    Capabilities,
    /// READ FULL STATUS.
    FullStatus,
}

/// The service action of PERSISTENT RESERVE OUT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReserveOut {
    /// REGISTER.
    Register,
    /// RESERVE.
    Reserve,
    /// RELEASE.
    Release,
    /// CLEAR.
    Clear,
    /// PREEMPT.
    Preempt,
    /// REGISTER AND IGNORE EXISTING KEY.
    RegisterAndIgnore,
}

/// Which commands REPORT SUPPORTED OPERATION CODES reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportedOperations {
    /// All.
    All,
    /// The one with this operation code, which has no service actions.
    Opcode(u8),
    /// The one with this operation code and service action.
    Action(u8, u16),
    /// The one with this operation code, and with this service action if it has service actions.
    Either(u8, u16),
}

/// A command. `allocation` is the most bytes that the initiator wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ScsiCommand {
    TestUnitReady,
    RequestSense {
        descriptors: bool,
        allocation: u32,
    },
    /// `page`: a page of vital product data; `None`: standard data.
    Inquiry {
        page: Option<u8>,
        allocation: u32,
    },
    ModeSense {
        form: ModeForm,
        control: PageControl,
        page: u8,
        subpage: u8,
        allocation: u32,
    },
    StartStopUnit {
        start: bool,
        condition: u8,
    },
    ReadCapacity10,
    ReadCapacity16 {
        allocation: u32,
    },
    Read {
        range: BlockRange,
        fua: bool,
    },
    Write {
        range: BlockRange,
        fua: bool,
    },
    /// `compare`: the blocks are compared with the data of the command (BYTCHK).
    Verify {
        range: BlockRange,
        compare: bool,
    },
    SynchronizeCache(BlockRange),
    /// `without_data`: zeroes are written (NDOB).
    WriteSame {
        range: BlockRange,
        without_data: bool,
    },
    Unmap {
        list_len: u32,
    },
    LogSense {
        page: u8,
        subpage: u8,
        parameter: u16,
        allocation: u32,
    },
    ReserveIn {
        action: ReserveIn,
        allocation: u32,
    },
    /// `scope` and `kind` are not checked, because some actions ignore them.
    ReserveOut {
        action: ReserveOut,
        scope: u8,
        kind: u8,
        list_len: u32,
    },
    /// `count` zones from that at `lba` on, or all.
    ManageZones {
        action: ZoneAction,
        lba: u64,
        count: u16,
        all: bool,
    },
    ReportZones {
        lba: u64,
        reporting: Reporting,
        partial: bool,
        allocation: u32,
    },
    ReportLuns {
        select: u8,
        allocation: u32,
    },
    ReportOperations {
        which: ReportedOperations,
        timeouts: bool,
        allocation: u32,
    },
    ReportTaskManagement {
        extended: bool,
        allocation: u32,
    },
}

impl ScsiCommand {
    /// Returns how many bytes of data the command brings, for blocks of this length.
    pub fn data_out(&self, block_len: u32) -> u64 {
        match *self {
            ScsiCommand::Write { range, .. } | ScsiCommand::Verify { range, compare: true } => {
                u64::from(range.blocks) * u64::from(block_len)
            }
            ScsiCommand::WriteSame { without_data: false, .. } => u64::from(block_len),
            ScsiCommand::Unmap { list_len } | ScsiCommand::ReserveOut { list_len, .. } => {
                u64::from(list_len)
            }
            _ => 0,
        }
    }
}

/// Parses a command of a unit with these abilities. `cdb` may be padded, as iSCSI does.
///
/// ```
/// use zoneplug_scsi::command::{BlockRange, ScsiCommand, parse};
/// use zoneplug_scsi::spec::operation::Abilities;
/// let read = [0x28, 0x08, 0, 0, 0, 5, 0, 0, 2, 0];
/// let (command, _) = parse(&read, Abilities::default())?;
/// assert_eq!(command, ScsiCommand::Read { range: BlockRange { lba: 5, blocks: 2 }, fua: true });
/// let reserved = [0x28, 0x01, 0, 0, 0, 5, 0, 0, 2, 0];
/// let sense = parse(&reserved, Abilities::default()).unwrap_err();
/// assert_eq!((sense.sense.code, sense.pointer.unwrap().byte), (0x24, 1));
/// # Ok::<(), zoneplug_scsi::spec::sense::SenseData>(())
/// ```
pub fn parse(
    cdb: &[u8],
    abilities: Abilities,
) -> Result<(ScsiCommand, &'static OperationInfo), SenseData> {
    let unknown = SenseData::from(INVALID_OPCODE);
    let opcode = *cdb.first().ok_or(unknown)?;
    let len = command_len(opcode).filter(|len| *len <= cdb.len()).ok_or(unknown)?;
    let mut c = [0; MAX_COMMAND_LEN];
    c[..len].copy_from_slice(&cdb[..len]);
    let info = find(opcode, c[1] & 0x1f, abilities)?;
    if let Some((byte, bit)) = info.reserved_bit(&c) {
        return Err(SenseData::field(byte, Some(bit)));
    }
    Ok((fields(info, &c)?, info))
}

/// Finds the row of a command.
fn find(opcode: u8, action: u8, abilities: Abilities) -> Result<&'static OperationInfo, SenseData> {
    let mut rows = commands_of(opcode).iter().filter(|i| i.is_in(abilities)).peekable();
    if rows.peek().is_none() {
        return Err(INVALID_OPCODE.into());
    }
    rows.find(|i| i.action.is_none_or(|a| a == action)).ok_or(SenseData::field(1, Some(4)))
}

/// Returns the fields of a command without reserved bits.
fn fields(info: &OperationInfo, c: &[u8; MAX_COMMAND_LEN]) -> Result<ScsiCommand, SenseData> {
    use Operation as O;
    use ScsiCommand as C;
    let short = BlockRange { lba: u64::from(be32(c, 2)), blocks: u32::from(be16(c, 7)) };
    let middle = BlockRange { lba: u64::from(be32(c, 2)), blocks: be32(c, 6) };
    let long = BlockRange { lba: be64(c, 2), blocks: be32(c, 10) };
    let (fua, compare) = (c[1] & 0x08 != 0, c[1] & 0x02 != 0);
    // The allocation lengths of commands with 6, 10, 12 and 16 bytes.
    let (in6, in10, in12, in16) = (u32::from(c[4]), u32::from(be16(c, 7)), be32(c, 6), be32(c, 10));
    Ok(match info.operation {
        O::TestUnitReady => C::TestUnitReady,
        O::RequestSense => C::RequestSense { descriptors: c[1] & 1 != 0, allocation: in6 },
        O::Inquiry => {
            let page = (c[1] & 1 != 0).then_some(c[2]);
            if page.is_none() && c[2] != 0 {
                return Err(SenseData::field(2, None));
            }
            C::Inquiry { page, allocation: u32::from(be16(c, 3)) }
        }
        O::ModeSense6 | O::ModeSense10 => {
            let ten = info.operation == O::ModeSense10;
            let (without_descriptor, long) = (c[1] & 0x08 != 0, c[1] & 0x10 != 0);
            C::ModeSense {
                form: ModeForm { ten, without_descriptor, long },
                control: PageControl::from_bits(c[2] >> 6),
                page: c[2] & 0x3f,
                subpage: c[3],
                allocation: if ten { in10 } else { in6 },
            }
        }
        O::StartStopUnit => C::StartStopUnit { start: c[4] & 1 != 0, condition: c[4] >> 4 },
        O::ReadCapacity10 => C::ReadCapacity10,
        O::ReadCapacity16 => C::ReadCapacity16 { allocation: in16 },
        O::Read10 => C::Read { range: short, fua },
        O::Read12 => C::Read { range: middle, fua },
        O::Read16 => C::Read { range: long, fua },
        O::Write10 => C::Write { range: short, fua },
        O::Write12 => C::Write { range: middle, fua },
        O::Write16 => C::Write { range: long, fua },
        O::Verify10 => C::Verify { range: short, compare },
        O::Verify16 => C::Verify { range: long, compare },
        O::SynchronizeCache10 => C::SynchronizeCache(short),
        O::SynchronizeCache16 => C::SynchronizeCache(long),
        O::WriteSame10 => C::WriteSame { range: short, without_data: false },
        O::WriteSame16 => C::WriteSame { range: long, without_data: c[1] & 1 != 0 },
        O::Unmap => C::Unmap { list_len: in10 },
        O::LogSense => C::LogSense {
            page: c[2] & 0x3f,
            subpage: c[3],
            parameter: be16(c, 5),
            allocation: in10,
        },
        O::ReserveIn => {
            let action = match info.action {
                Some(0) => ReserveIn::Keys,
                Some(1) => ReserveIn::Reservation,
                Some(2) => ReserveIn::Capabilities,
                _ => ReserveIn::FullStatus,
            };
            C::ReserveIn { action, allocation: in10 }
        }
        O::ReserveOut => {
            let action = match info.action {
                Some(0) => ReserveOut::Register,
                Some(1) => ReserveOut::Reserve,
                Some(2) => ReserveOut::Release,
                Some(3) => ReserveOut::Clear,
                Some(4) => ReserveOut::Preempt,
                _ => ReserveOut::RegisterAndIgnore,
            };
            C::ReserveOut { action, scope: c[2] >> 4, kind: c[2] & 0x0f, list_len: be32(c, 5) }
        }
        O::CloseZone => manage(ZoneAction::Close, c),
        O::FinishZone => manage(ZoneAction::Finish, c),
        O::OpenZone => manage(ZoneAction::Open, c),
        O::ResetWritePointer => manage(ZoneAction::Reset, c),
        O::ReportZones => {
            let reporting =
                Reporting::from_bits(c[14] & 0x3f).ok_or(SenseData::field(14, Some(5)))?;
            C::ReportZones {
                lba: long.lba,
                reporting,
                partial: c[14] & 0x80 != 0,
                allocation: in16,
            }
        }
        O::ReportLuns => C::ReportLuns { select: c[2], allocation: in12 },
        O::ReportOperations => {
            let (opcode, action) = (c[3], be16(c, 4));
            let which = match c[2] & 7 {
                0 => ReportedOperations::All,
                1 => ReportedOperations::Opcode(opcode),
                2 => ReportedOperations::Action(opcode, action),
                3 => ReportedOperations::Either(opcode, action),
                _ => return Err(SenseData::field(2, Some(2))),
            };
            C::ReportOperations { which, timeouts: c[2] & 0x80 != 0, allocation: in12 }
        }
        O::ReportTaskManagement => {
            C::ReportTaskManagement { extended: c[2] & 0x80 != 0, allocation: in12 }
        }
    })
}

/// Returns the fields of a command that changes zones. A count of 0 stands for 1.
fn manage(action: ZoneAction, c: &[u8; MAX_COMMAND_LEN]) -> ScsiCommand {
    let count = be16(c, 12).max(1);
    ScsiCommand::ManageZones { action, lba: be64(c, 2), count, all: c[14] & 1 != 0 }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::spec::operation::OPERATIONS;
    use proptest::prelude::*;

    const ALL: Abilities = Abilities { zoned: true, unmap: true, zeroes: true, reservations: true };

    fn sense(cdb: &[u8]) -> (u8, Option<(u16, Option<u8>)>) {
        let s = parse(cdb, ALL).unwrap_err();
        (s.sense.code, s.pointer.map(|p| (p.byte, p.bit)))
    }

    #[test]
    fn fields_come_from_their_bytes() {
        let write = [0x8a, 0x08, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0];
        let range = BlockRange { lba: 0x0102_0304_0506_0708, blocks: 0x090a_0b0c };
        assert_eq!(parse(&write, ALL).unwrap().0, ScsiCommand::Write { range, fua: true });
        let reset = [0x94, 4, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0];
        let want =
            ScsiCommand::ManageZones { action: ZoneAction::Reset, lba: 256, count: 1, all: true };
        assert_eq!(parse(&reset, ALL).unwrap().0, want);
        let report = [0x95, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0x85, 0];
        let ScsiCommand::ReportZones { partial: true, allocation: 512, reporting, .. } =
            parse(&report, ALL).unwrap().0
        else {
            panic!("no report")
        };
        assert_eq!(Some(reporting), Reporting::from_bits(5));
        assert_eq!(parse(&write, ALL).unwrap().0.data_out(4096), 0x090a_0b0c * 4096);
    }

    #[test]
    fn a_refusal_points_to_its_field() {
        assert_eq!(sense(&[0x15, 0, 0, 0, 0, 0]), (0x20, None), "MODE SELECT");
        assert_eq!(sense(&[]), (0x20, None));
        assert_eq!(sense(&[0x28, 0]), (0x20, None), "too short");
        assert_eq!(
            sense(&[0x12, 0, 0x80, 0, 255, 0]),
            (0x24, Some((2, None))),
            "page without EVPD"
        );
        assert_eq!(sense(&[0x12, 2, 0, 0, 255, 0]), (0x24, Some((1, Some(1)))), "CMDDT");
        assert_eq!(sense(&[0, 0, 0, 0, 0, 4]), (0x24, Some((5, Some(2)))), "NACA");
        assert_eq!(
            sense(&[0x28, 0x20, 0, 0, 0, 0, 0, 0, 1, 0]),
            (0x24, Some((1, Some(5)))),
            "RDPROTECT"
        );
        let mut cdb = [0; 16];
        (cdb[0], cdb[1]) = (0x94, 5);
        assert_eq!(sense(&cdb), (0x24, Some((1, Some(4)))), "service action");
        (cdb[0], cdb[1], cdb[14]) = (0x95, 0, 0x08);
        assert_eq!(sense(&cdb), (0x24, Some((14, Some(5)))), "reporting options");
        let conventional = parse(&cdb, Abilities::default()).unwrap_err();
        assert_eq!(conventional.sense, INVALID_OPCODE, "no zones, no such command");
    }

    proptest! {
        /// Any bytes are parsed or refused. What is parsed has no bit that the report of supported commands leaves out,
        /// and a refused bit is one that it leaves out.
        #[test]
        fn the_report_of_commands_is_true(mut cdb in any::<[u8; 16]>(), row in 0..OPERATIONS.len(), bit in 0usize..128, raw in any::<bool>()) {
            let info = &OPERATIONS[row];
            if !raw {
                for (at, usage) in info.usage.iter().enumerate() {
                    cdb[at] &= usage;
                }
                cdb[0] = info.opcode;
                if let Some(a) = info.action {
                    cdb[1] = cdb[1] & !0x1f | a;
                }
                let parsed = parse(&cdb, ALL);
                let checked = [O::Inquiry, O::ReportZones, O::ReportOperations].contains(&info.operation);
                prop_assert!(parsed.is_ok() || checked, "{parsed:?}");
                let at = bit / 8;
                let mask = 1 << (bit % 8);
                if at > 0 && at < info.usage.len() && info.usable_bits(at) & mask == 0 {
                    cdb[at] |= mask;
                    let pointer = parse(&cdb, ALL).unwrap_err().pointer.unwrap();
                    prop_assert_eq!((usize::from(pointer.byte), pointer.bit), (at, Some((bit % 8) as u8)));
                }
            } else if let Ok((_, found)) = parse(&cdb, ALL) {
                prop_assert!((1..found.usage.len()).all(|at| cdb[at] & !found.usable_bits(at) == 0));
            }
        }
    }
    use Operation as O;
}
