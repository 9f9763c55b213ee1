//! Sense data (SPC-6, *Sense data*): why a command was refused or failed.

use super::bytes::put;
use zoneplug_core::Sense;

/// Makes a sense from its three numbers.
const fn sense(key: u8, code: u8, qualifier: u8) -> Sense {
    Sense { key, code, qualifier }
}

/// NO SENSE: nothing to report.
pub const NONE: Sense = sense(0, 0, 0);
/// ILLEGAL REQUEST, INVALID COMMAND OPERATION CODE.
pub const INVALID_OPCODE: Sense = sense(5, 0x20, 0);
/// ILLEGAL REQUEST, LOGICAL BLOCK ADDRESS OUT OF RANGE.
pub const OUT_OF_RANGE: Sense = sense(5, 0x21, 0);
/// ILLEGAL REQUEST, UNALIGNED WRITE COMMAND.
pub const UNALIGNED_WRITE: Sense = sense(5, 0x21, 4);
/// ILLEGAL REQUEST, WRITE BOUNDARY VIOLATION.
pub const WRITE_BOUNDARY: Sense = sense(5, 0x21, 5);
/// ILLEGAL REQUEST, ATTEMPT TO READ INVALID DATA.
pub const READ_INVALID: Sense = sense(5, 0x21, 6);
/// ILLEGAL REQUEST, READ BOUNDARY VIOLATION.
pub const READ_BOUNDARY: Sense = sense(5, 0x21, 7);
/// ILLEGAL REQUEST, INVALID FIELD IN CDB.
pub const INVALID_FIELD: Sense = sense(5, 0x24, 0);
/// ILLEGAL REQUEST, INVALID FIELD IN COMMAND INFORMATION UNIT: fewer data come than the command needs.
pub const TOO_FEW_DATA: Sense = sense(5, 0x0e, 3);
/// MISCOMPARE, MISCOMPARE DURING VERIFY OPERATION.
pub const MISCOMPARE: Sense = sense(0x0e, 0x1d, 0);
/// ILLEGAL REQUEST, LOGICAL UNIT NOT SUPPORTED.
pub const NO_UNIT: Sense = sense(5, 0x25, 0);
/// ILLEGAL REQUEST, INVALID FIELD IN PARAMETER LIST.
pub const INVALID_PARAMETER: Sense = sense(5, 0x26, 0);
/// ILLEGAL REQUEST, INVALID RELEASE OF PERSISTENT RESERVATION.
pub const INVALID_RELEASE: Sense = sense(5, 0x26, 4);
/// ILLEGAL REQUEST, PARAMETER LIST LENGTH ERROR.
pub const PARAMETER_LENGTH: Sense = sense(5, 0x1a, 0);
/// ILLEGAL REQUEST, SAVING PARAMETERS NOT SUPPORTED.
pub const NO_SAVING: Sense = sense(5, 0x39, 0);
/// ILLEGAL REQUEST, INSUFFICIENT REGISTRATION RESOURCES.
pub const NO_REGISTRATIONS: Sense = sense(5, 0x55, 4);
/// DATA PROTECT, INSUFFICIENT ZONE RESOURCES.
pub const NO_ZONE_RESOURCES: Sense = sense(7, 0x55, 0x0e);
/// DATA PROTECT, WRITE PROTECTED.
pub const WRITE_PROTECTED: Sense = sense(7, 0x27, 0);
/// MEDIUM ERROR, UNRECOVERED READ ERROR.
pub const UNRECOVERED_READ: Sense = sense(3, 0x11, 0);
/// ABORTED COMMAND, INTERNAL TARGET FAILURE.
pub const INTERNAL: Sense = sense(0xb, 0x44, 0);
/// UNIT ATTENTION, BUS DEVICE RESET FUNCTION OCCURRED: the unit was reset.
pub const UNIT_RESET: Sense = sense(6, 0x29, 3);
/// UNIT ATTENTION, RESERVATIONS PREEMPTED.
pub const RESERVATIONS_PREEMPTED: Sense = sense(6, 0x2a, 3);
/// UNIT ATTENTION, RESERVATIONS RELEASED.
pub const RESERVATIONS_RELEASED: Sense = sense(6, 0x2a, 4);
/// UNIT ATTENTION, REGISTRATIONS PREEMPTED.
pub const REGISTRATIONS_PREEMPTED: Sense = sense(6, 0x2a, 5);
/// UNIT ATTENTION, CAPACITY DATA HAS CHANGED.
pub const CAPACITY_CHANGED: Sense = sense(6, 0x2a, 9);
/// UNIT ATTENTION, REPORTED LUNS DATA HAS CHANGED.
pub const LUNS_CHANGED: Sense = sense(6, 0x3f, 0x0e);

/// The place of the field that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldPointer {
    /// Whether the field is in the command (C/D), not in its parameter list.
    pub in_command: bool,
    /// The first byte of the field.
    pub byte: u16,
    /// The most significant bit of the field, if the field does not begin with a byte.
    pub bit: Option<u8>,
}

impl FieldPointer {
    /// Returns the sense-key specific bytes, with SKSV set.
    fn encode(self) -> [u8; 3] {
        let c_d = if self.in_command { 0x40 } else { 0 };
        let bit = self.bit.map_or(0, |bit| 0x08 | (bit & 7));
        let [high, low] = self.byte.to_be_bytes();
        [0x80 | c_d | bit, high, low]
    }
}

/// The sense data of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenseData {
    /// The key and the code.
    pub sense: Sense,
    /// The refused field, if the sense is about one.
    pub pointer: Option<FieldPointer>,
    /// A block address that the sense is about.
    pub information: Option<u64>,
}

impl From<Sense> for SenseData {
    fn from(sense: Sense) -> SenseData {
        SenseData { sense, pointer: None, information: None }
    }
}

impl SenseData {
    /// The length of sense data in the fixed format.
    pub const FIXED_LEN: usize = 18;

    /// Refuses a field of the command.
    pub fn field(byte: u16, bit: Option<u8>) -> SenseData {
        let pointer = Some(FieldPointer { in_command: true, byte, bit });
        SenseData { sense: INVALID_FIELD, pointer, information: None }
    }

    /// Refuses a field of the parameter list.
    pub fn parameter(byte: u16, bit: Option<u8>) -> SenseData {
        let pointer = Some(FieldPointer { in_command: false, byte, bit });
        SenseData { sense: INVALID_PARAMETER, pointer, information: None }
    }

    /// Encodes the fixed format of a current error, response code 70h. A block address beyond 32 bits does not fit and
    /// is left out.
    pub fn encode_fixed(&self) -> [u8; SenseData::FIXED_LEN] {
        let mut b = [0; SenseData::FIXED_LEN];
        b[0] = 0x70;
        if let Some(Ok(information)) = self.information.map(u32::try_from) {
            b[0] |= 0x80;
            put(&mut b, 3, &information.to_be_bytes());
        }
        b[2] = self.sense.key;
        b[7] = (SenseData::FIXED_LEN - 8) as u8;
        (b[12], b[13]) = (self.sense.code, self.sense.qualifier);
        if let Some(pointer) = self.pointer {
            put(&mut b, 15, &pointer.encode());
        }
        b
    }

    /// Encodes the descriptor format of a current error, response code 72h.
    pub fn encode_descriptors(&self) -> Vec<u8> {
        let mut b = vec![0x72, self.sense.key, self.sense.code, self.sense.qualifier, 0, 0, 0, 0];
        if let Some(information) = self.information {
            b.extend([0, 0x0a, 0x80, 0]);
            b.extend(information.to_be_bytes());
        }
        if let Some(pointer) = self.pointer {
            b.extend([2, 6, 0, 0]);
            b.extend(pointer.encode());
            b.push(0);
        }
        b[7] = (b.len() - 8) as u8;
        b
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fixed_format_has_its_fields_where_the_table_has_them() {
        let b = SenseData::field(14, Some(5)).encode_fixed();
        let want =
            [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 0, 0, 0x80 | 0x40 | 0x08 | 5, 0, 14];
        assert_eq!(b, want);
        let with = SenseData { information: Some(0x01020304), ..UNALIGNED_WRITE.into() };
        assert_eq!(with.encode_fixed()[..7], [0xf0, 0, 5, 1, 2, 3, 4]);
        let beyond = SenseData { information: Some(1 << 32), ..with };
        assert_eq!(beyond.encode_fixed()[..7], [0x70, 0, 5, 0, 0, 0, 0]);
    }

    #[test]
    fn the_descriptor_format_has_a_descriptor_for_each_field() {
        let plain: SenseData = NO_ZONE_RESOURCES.into();
        assert_eq!(plain.encode_descriptors(), [0x72, 7, 0x55, 0x0e, 0, 0, 0, 0]);
        let all = SenseData { information: Some(1 << 40), ..SenseData::parameter(0x0102, None) };
        let want = [
            0x72, 5, 0x26, 0, 0, 0, 0, 20, //
            0, 10, 0x80, 0, 0, 0, 1, 0, 0, 0, 0, 0, //
            2, 6, 0, 0, 0x80, 1, 2, 0,
        ];
        assert_eq!(all.encode_descriptors(), want);
    }
}
