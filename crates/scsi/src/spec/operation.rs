//! The one table of commands: what a unit takes, and what REPORT SUPPORTED OPERATION CODES says of it.
//!
//! The usage of a command has a bit for each bit of the command that the unit looks at or may ignore. All other bits
//! are reserved: a command that sets one is refused, and its sense points to the bit. So the report is true by
//! construction.

use super::bytes::put;

/// The longest command that the target knows.
pub const MAX_COMMAND_LEN: usize = 16;
/// The CONTROL byte. No unit supports NACA, its one bit with a meaning, as NORMACA of standard INQUIRY data says.
const CONTROL: u8 = 0;

/// A command of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// TEST UNIT READY.
    TestUnitReady,
    /// REQUEST SENSE.
    RequestSense,
    /// INQUIRY.
    Inquiry,
    /// MODE SENSE(6).
    ModeSense6,
    /// START STOP UNIT.
    StartStopUnit,
    /// READ CAPACITY(10).
    ReadCapacity10,
    /// READ(10).
    Read10,
    /// WRITE(10).
    Write10,
    /// VERIFY(10).
    Verify10,
    /// SYNCHRONIZE CACHE(10).
    SynchronizeCache10,
    /// WRITE SAME(10).
    WriteSame10,
    /// UNMAP.
    Unmap,
    /// LOG SENSE.
    LogSense,
    /// MODE SENSE(10).
    ModeSense10,
    /// PERSISTENT RESERVE IN: the service action says what is read.
    ReserveIn,
    /// PERSISTENT RESERVE OUT: the service action says what is done.
    ReserveOut,
    /// READ(16).
    Read16,
    /// WRITE(16).
    Write16,
    /// VERIFY(16).
    Verify16,
    /// SYNCHRONIZE CACHE(16).
    SynchronizeCache16,
    /// WRITE SAME(16).
    WriteSame16,
    /// CLOSE ZONE.
    CloseZone,
    /// FINISH ZONE.
    FinishZone,
    /// OPEN ZONE.
    OpenZone,
    /// RESET WRITE POINTER.
    ResetWritePointer,
    /// REPORT ZONES.
    ReportZones,
    /// READ CAPACITY(16).
    ReadCapacity16,
    /// REPORT LUNS.
    ReportLuns,
    /// REPORT SUPPORTED OPERATION CODES.
    ReportOperations,
    /// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS.
    ReportTaskManagement,
    /// READ(12).
    Read12,
    /// WRITE(12).
    Write12,
}

/// The effect of a persistent reservation of another initiator on a command (SPC-6 and SBC-4, *Commands allowed in the
/// presence of various reservations*).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Allowed always.
    Free,
    /// Allowed to registered initiators, and to all if the reservation is for writes.
    Read,
    /// Allowed to initiators that the reservation lets write.
    Write,
}

/// Which units have a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Only {
    /// Every unit.
    All,
    /// Host-managed units.
    Zoned,
    /// Units that forget data on demand.
    Unmap,
    /// Units with a command for zeroes.
    Zeroes,
    /// Units that keep persistent reservations.
    Reservations,
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct OperationInfo {
    /// The command.
    pub operation: Operation,
    /// The operation code.
    pub opcode: u8,
    /// The service action, for an operation code that has several.
    pub action: Option<u8>,
    /// The name in the standards.
    pub name: &'static str,
    /// The units that have the command.
    pub only: Only,
    /// The effect of reservations on the command.
    pub access: Access,
    /// The bits in use. The operation code and the service action stand for themselves.
    pub usage: &'static [u8],
    /// The bits that a command may set, its first byte in the highest eight.
    usable: u128,
}

const fn row(
    operation: Operation,
    opcode: u8,
    action: Option<u8>,
    name: &'static str,
    only: Only,
    access: Access,
    usage: &'static [u8],
) -> OperationInfo {
    let (mut usable, mut at) = (0, 0);
    while at < usage.len() {
        let bits = match (at, action) {
            (0, _) => F,
            (1, Some(_)) => usage[1] | 0x1f,
            _ => usage[at],
        };
        usable |= (bits as u128) << (120 - 8 * at);
        at += 1;
    }
    OperationInfo { operation, opcode, action, name, only, access, usage, usable }
}

use Access::{Free, Read, Write};
use Only::{All, Reservations, Unmap, Zeroes, Zoned};
use Operation as O;

/// Bits of READ and WRITE: DPO and FUA.
const DPO_FUA: u8 = 0x18;
/// Bits of VERIFY: DPO, and the bit of BYTCHK that asks for a comparison of all blocks.
const DPO_BYTCHK: u8 = 0x12;
/// GROUP NUMBER, which any unit may ignore.
const GROUP: u8 = 0x3f;
const F: u8 = 0xff;

#[rustfmt::skip]
/// Every command, in ascending order of its numbers.
pub const OPERATIONS: &[OperationInfo] = &[
    row(O::TestUnitReady, 0x00, None, "TEST UNIT READY", All, Free, &[0x00, 0, 0, 0, 0, CONTROL]),
    row(O::RequestSense, 0x03, None, "REQUEST SENSE", All, Free, &[0x03, 1, 0, 0, F, CONTROL]),
    row(O::Inquiry, 0x12, None, "INQUIRY", All, Free, &[0x12, 1, F, F, F, CONTROL]),
    row(O::ModeSense6, 0x1a, None, "MODE SENSE(6)", All, Read, &[0x1a, 0x08, F, F, F, CONTROL]),
    row(O::StartStopUnit, 0x1b, None, "START STOP UNIT", All, Free, &[0x1b, 1, 0, 0x0f, 0xf7, CONTROL]),
    row(O::ReadCapacity10, 0x25, None, "READ CAPACITY(10)", All, Free, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, CONTROL]),
    row(O::Read10, 0x28, None, "READ(10)", All, Read, &[0x28, DPO_FUA, F, F, F, F, GROUP, F, F, CONTROL]),
    row(O::Write10, 0x2a, None, "WRITE(10)", All, Write, &[0x2a, DPO_FUA, F, F, F, F, GROUP, F, F, CONTROL]),
    row(O::Verify10, 0x2f, None, "VERIFY(10)", All, Read, &[0x2f, DPO_BYTCHK, F, F, F, F, GROUP, F, F, CONTROL]),
    row(O::SynchronizeCache10, 0x35, None, "SYNCHRONIZE CACHE(10)", All, Write, &[0x35, 2, F, F, F, F, GROUP, F, F, CONTROL]),
    row(O::WriteSame10, 0x41, None, "WRITE SAME(10)", Zeroes, Write, &[0x41, 0, F, F, F, F, GROUP, F, F, CONTROL]),
    row(O::Unmap, 0x42, None, "UNMAP", Unmap, Write, &[0x42, 0, 0, 0, 0, 0, GROUP, F, F, CONTROL]),
    row(O::LogSense, 0x4d, None, "LOG SENSE", All, Free, &[0x4d, 0, F, F, 0, F, F, F, F, CONTROL]),
    row(O::ModeSense10, 0x5a, None, "MODE SENSE(10)", All, Read, &[0x5a, 0x18, F, F, 0, 0, 0, F, F, CONTROL]),
    row(O::ReserveIn, 0x5e, Some(0), "PERSISTENT RESERVE IN, READ KEYS", Reservations, Free, &[0x5e, 0, 0, 0, 0, 0, 0, F, F, CONTROL]),
    row(O::ReserveIn, 0x5e, Some(1), "PERSISTENT RESERVE IN, READ RESERVATION", Reservations, Free, &[0x5e, 1, 0, 0, 0, 0, 0, F, F, CONTROL]),
    row(O::ReserveIn, 0x5e, Some(2), "PERSISTENT RESERVE IN, REPORT CAPABILITIES", Reservations, Free, &[0x5e, 2, 0, 0, 0, 0, 0, F, F, CONTROL]),
    row(O::ReserveIn, 0x5e, Some(3), "PERSISTENT RESERVE IN, READ FULL STATUS", Reservations, Free, &[0x5e, 3, 0, 0, 0, 0, 0, F, F, CONTROL]),
    row(O::ReserveOut, 0x5f, Some(0), "PERSISTENT RESERVE OUT, REGISTER", Reservations, Free, &[0x5f, 0, F, 0, 0, F, F, F, F, CONTROL]),
    row(O::ReserveOut, 0x5f, Some(1), "PERSISTENT RESERVE OUT, RESERVE", Reservations, Free, &[0x5f, 1, F, 0, 0, F, F, F, F, CONTROL]),
    row(O::ReserveOut, 0x5f, Some(2), "PERSISTENT RESERVE OUT, RELEASE", Reservations, Free, &[0x5f, 2, F, 0, 0, F, F, F, F, CONTROL]),
    row(O::ReserveOut, 0x5f, Some(3), "PERSISTENT RESERVE OUT, CLEAR", Reservations, Free, &[0x5f, 3, F, 0, 0, F, F, F, F, CONTROL]),
    row(O::ReserveOut, 0x5f, Some(4), "PERSISTENT RESERVE OUT, PREEMPT", Reservations, Free, &[0x5f, 4, F, 0, 0, F, F, F, F, CONTROL]),
    row(O::ReserveOut, 0x5f, Some(6), "PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY", Reservations, Free, &[0x5f, 6, F, 0, 0, F, F, F, F, CONTROL]),
    row(O::Read16, 0x88, None, "READ(16)", All, Read, &[0x88, DPO_FUA, F, F, F, F, F, F, F, F, F, F, F, F, GROUP, CONTROL]),
    row(O::Write16, 0x8a, None, "WRITE(16)", All, Write, &[0x8a, DPO_FUA, F, F, F, F, F, F, F, F, F, F, F, F, GROUP, CONTROL]),
    row(O::Verify16, 0x8f, None, "VERIFY(16)", All, Read, &[0x8f, DPO_BYTCHK, F, F, F, F, F, F, F, F, F, F, F, F, GROUP, CONTROL]),
    row(O::SynchronizeCache16, 0x91, None, "SYNCHRONIZE CACHE(16)", All, Write, &[0x91, 2, F, F, F, F, F, F, F, F, F, F, F, F, GROUP, CONTROL]),
    row(O::WriteSame16, 0x93, None, "WRITE SAME(16)", Zeroes, Write, &[0x93, 1, F, F, F, F, F, F, F, F, F, F, F, F, GROUP, CONTROL]),
    row(O::CloseZone, 0x94, Some(1), "CLOSE ZONE", Zoned, Write, &[0x94, 1, F, F, F, F, F, F, F, F, 0, 0, F, F, 1, CONTROL]),
    row(O::FinishZone, 0x94, Some(2), "FINISH ZONE", Zoned, Write, &[0x94, 2, F, F, F, F, F, F, F, F, 0, 0, F, F, 1, CONTROL]),
    row(O::OpenZone, 0x94, Some(3), "OPEN ZONE", Zoned, Write, &[0x94, 3, F, F, F, F, F, F, F, F, 0, 0, F, F, 1, CONTROL]),
    row(O::ResetWritePointer, 0x94, Some(4), "RESET WRITE POINTER", Zoned, Write, &[0x94, 4, F, F, F, F, F, F, F, F, 0, 0, F, F, 1, CONTROL]),
    row(O::ReportZones, 0x95, Some(0), "REPORT ZONES", Zoned, Read, &[0x95, 0, F, F, F, F, F, F, F, F, F, F, F, F, 0xbf, CONTROL]),
    row(O::ReadCapacity16, 0x9e, Some(0x10), "READ CAPACITY(16)", All, Free, &[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, CONTROL]),
    row(O::ReportLuns, 0xa0, None, "REPORT LUNS", All, Free, &[0xa0, 0, F, 0, 0, 0, F, F, F, F, 0, CONTROL]),
    row(O::ReportOperations, 0xa3, Some(0x0c), "REPORT SUPPORTED OPERATION CODES", All, Read, &[0xa3, 0x0c, 0x87, F, F, F, F, F, F, F, 0, CONTROL]),
    row(O::ReportTaskManagement, 0xa3, Some(0x0d), "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS", All, Read, &[0xa3, 0x0d, 0x80, 0, 0, 0, F, F, F, F, 0, CONTROL]),
    row(O::Read12, 0xa8, None, "READ(12)", All, Read, &[0xa8, DPO_FUA, F, F, F, F, F, F, F, F, GROUP, CONTROL]),
    row(O::Write12, 0xaa, None, "WRITE(12)", All, Write, &[0xaa, DPO_FUA, F, F, F, F, F, F, F, F, GROUP, CONTROL]),
];

/// Returns the length of the commands with this operation code (SPC-6, *The fixed length command descriptor block
/// formats*). `None`: the code stands for no length.
pub const fn command_len(opcode: u8) -> Option<usize> {
    match opcode >> 5 {
        0 => Some(6),
        1 | 2 => Some(10),
        4 => Some(16),
        5 => Some(12),
        _ => None,
    }
}

/// A set of the optional commands of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Abilities {
    /// The unit is host-managed.
    pub zoned: bool,
    /// The unit forgets data on demand.
    pub unmap: bool,
    /// The unit has a command for zeroes.
    pub zeroes: bool,
    /// The unit keeps persistent reservations.
    pub reservations: bool,
}

impl OperationInfo {
    /// Returns whether a unit with these abilities has the command.
    pub const fn is_in(&self, abilities: Abilities) -> bool {
        match self.only {
            All => true,
            Zoned => abilities.zoned,
            Unmap => abilities.unmap,
            Zeroes => abilities.zeroes,
            Reservations => abilities.reservations,
        }
    }

    /// Returns the bits of byte `at` that a command may set.
    pub fn usable_bits(&self, at: usize) -> u8 {
        (self.usable >> (120 - 8 * at)) as u8
    }

    /// Returns the first bit of a command that it must not set: its byte, and its number in that.
    pub fn reserved_bit(&self, cdb: &[u8; MAX_COMMAND_LEN]) -> Option<(u16, u8)> {
        let reserved = u128::from_be_bytes(*cdb) & !self.usable;
        let bit = 127 - reserved.checked_ilog2()?;
        Some(((bit / 8) as u16, 7 - (bit % 8) as u8))
    }
}

/// How many rows have smaller operation codes, for each code and one more.
const BEFORE: [u8; 257] = {
    let (mut before, mut row) = ([0; 257], 0);
    while row < OPERATIONS.len() {
        let mut code = OPERATIONS[row].opcode as usize + 1;
        while code < before.len() {
            before[code] += 1;
            code += 1;
        }
        row += 1;
    }
    before
};

/// Returns the commands with an operation code, in the order of their service actions.
pub fn commands_of(opcode: u8) -> &'static [OperationInfo] {
    let opcode = usize::from(opcode);
    &OPERATIONS[usize::from(BEFORE[opcode])..usize::from(BEFORE[opcode + 1])]
}

/// Encodes a descriptor of all commands (SPC-6, *Command descriptor*), 8 bytes, or 20 with a timeouts descriptor.
pub fn encode_command_descriptor(info: &OperationInfo, timeouts: bool) -> Vec<u8> {
    let mut b = vec![0; 8];
    b[0] = info.opcode;
    b[3] = info.action.unwrap_or(0);
    b[5] = u8::from(info.action.is_some()) | if timeouts { 2 } else { 0 };
    put(&mut b, 6, &(info.usage.len() as u16).to_be_bytes());
    if timeouts {
        b.extend(NO_TIMEOUTS);
    }
    b
}

/// Encodes the parameter data for one command (SPC-6, *One command parameter data format*). `None`: the unit has no
/// such command.
pub fn encode_one_command(info: Option<&OperationInfo>, timeouts: bool) -> Vec<u8> {
    let Some(info) = info else { return vec![0, 1, 0, 0] };
    let mut b = vec![0, 3 | if timeouts { 0x80 } else { 0 }, 0, info.usage.len() as u8];
    b.extend(info.usage);
    if timeouts {
        b.extend(NO_TIMEOUTS);
    }
    b
}

/// A command timeouts descriptor that names no times: its length behind itself, then zeroes.
const NO_TIMEOUTS: [u8; 12] = [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_agree_with_the_numbers_of_the_standards() {
        for info in OPERATIONS {
            assert_eq!(Some(info.usage.len()), command_len(info.opcode), "{}", info.name);
            assert_eq!(info.usage[0], info.opcode, "{}", info.name);
            if let Some(action) = info.action {
                assert_eq!(info.usage[1] & 0x1f, action, "{}", info.name);
            }
        }
        let numbers = |i: &OperationInfo| (i.opcode, i.action);
        assert!(OPERATIONS.is_sorted_by(|a, b| numbers(a) < numbers(b)), "each once, in order");
        assert_eq!((command_len(0x7f), command_len(0xc0)), (None, None));
    }

    #[test]
    fn reports_have_the_forms_of_the_standard() {
        let open = OPERATIONS.iter().find(|i| i.operation == O::OpenZone);
        let b = encode_command_descriptor(open.unwrap(), false);
        assert_eq!(b, [0x94, 0, 0, 3, 0, 1, 0, 16]);
        assert_eq!(encode_command_descriptor(open.unwrap(), true).len(), 20);
        let one = encode_one_command(open, false);
        assert_eq!(one[..6], [0, 3, 0, 16, 0x94, 3]);
        assert_eq!(one.len(), 20);
        assert_eq!(encode_one_command(open, true)[20..22], [0, 10]);
        assert_eq!(encode_one_command(None, true), [0, 1, 0, 0]);
    }
}
