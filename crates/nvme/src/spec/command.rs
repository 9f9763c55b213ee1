//! The submission queue entry and the completion queue entry (Base Specification, figures *Common Command Format* and
//! *Common Completion Queue Entry Layout*).

use super::opcode;

/// Bytes of a submission queue entry.
pub const COMMAND_LEN: usize = 64;
/// Bytes of a completion queue entry.
pub const COMPLETION_LEN: usize = 16;

/// A submission queue entry.
///
/// ```
/// use zoneplug_nvme::spec::{Command, opcode};
/// let c = Command::new(opcode::READ).with_cid(7).with_nsid(1).with_cdw(12, 15);
/// assert_eq!((c.opcode(), c.cid(), c.nsid(), c.cdw(12)), (opcode::READ, 7, 1, 15));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Command(pub [u8; COMMAND_LEN]);

impl Command {
    /// Makes a command whose other fields are 0.
    pub const fn new(opcode: u8) -> Command {
        let mut bytes = [0; COMMAND_LEN];
        bytes[0] = opcode;
        Command(bytes)
    }

    /// Returns the operation code.
    pub const fn opcode(&self) -> u8 {
        self.0[0]
    }

    /// Returns FUSE, PSDT and the bits between them.
    pub const fn flags(&self) -> u8 {
        self.0[1]
    }

    /// Returns the command identifier.
    pub const fn cid(&self) -> u16 {
        u16::from_le_bytes([self.0[2], self.0[3]])
    }

    /// Returns the namespace identifier.
    pub const fn nsid(&self) -> u32 {
        self.cdw(1)
    }

    /// Command dword `n`, 0 to 15.
    ///
    /// # Panics
    ///
    /// If `n` is above 15.
    pub const fn cdw(&self, n: usize) -> u32 {
        let b = &self.0;
        u32::from_le_bytes([b[4 * n], b[4 * n + 1], b[4 * n + 2], b[4 * n + 3]])
    }

    /// Command dwords `n` and `n + 1` as one number, such as the starting LBA at 10.
    ///
    /// # Panics
    ///
    /// If `n` is above 14.
    pub const fn cdw_pair(&self, n: usize) -> u64 {
        self.cdw(n) as u64 | (self.cdw(n + 1) as u64) << 32
    }

    /// Returns the command with this command identifier.
    #[must_use]
    pub const fn with_cid(mut self, cid: u16) -> Command {
        [self.0[2], self.0[3]] = cid.to_le_bytes();
        self
    }

    /// Returns the command with this namespace identifier.
    #[must_use]
    pub const fn with_nsid(self, nsid: u32) -> Command {
        self.with_cdw(1, nsid)
    }

    /// Returns the command with this command dword.
    ///
    /// # Panics
    ///
    /// If `n` is above 15.
    #[must_use]
    pub const fn with_cdw(mut self, n: usize, value: u32) -> Command {
        let v = value.to_le_bytes();
        [self.0[4 * n], self.0[4 * n + 1], self.0[4 * n + 2], self.0[4 * n + 3]] = v;
        self
    }

    /// Returns the command with `value` in command dwords `n` and `n + 1`.
    ///
    /// # Panics
    ///
    /// If `n` is above 14.
    #[must_use]
    pub const fn with_cdw_pair(self, n: usize, value: u64) -> Command {
        self.with_cdw(n, value as u32).with_cdw(n + 1, (value >> 32) as u32)
    }
}

/// The direction of a command's data: bits 1:0 of its opcode, or of its type if it is a fabrics command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// No data.
    NoData,
    /// From the host to the controller.
    ToController,
    /// From the controller to the host.
    ToHost,
}

/// The kind of an SGL descriptor: type and subtype.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SglKind {
    /// A data block at an address. On a fabric, the length must be 0: no data.
    Address,
    /// A data block at an offset in the capsule.
    InCapsule,
    /// A data block that the transport moves.
    Transport,
    /// Any other kind, with its byte.
    Other(u8),
}

/// The first SGL descriptor of a command: position and length of its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sgl {
    /// Address, or offset in the capsule.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// The kind of the descriptor.
    pub kind: SglKind,
}

impl SglKind {
    const fn number(self) -> u8 {
        match self {
            SglKind::Address => 0x00,
            SglKind::InCapsule => 0x01,
            SglKind::Transport => 0x5a,
            SglKind::Other(n) => n,
        }
    }
}

impl Command {
    /// Returns the direction of the data. `None`: both directions, which no fabrics command has.
    pub const fn direction(&self) -> Option<Direction> {
        let bits = if self.opcode() == opcode::FABRICS { self.fctype() } else { self.opcode() };
        Some(match bits & 3 {
            0 => Direction::NoData,
            1 => Direction::ToController,
            2 => Direction::ToHost,
            _ => return None,
        })
    }

    /// Returns the first SGL descriptor.
    pub const fn sgl(&self) -> Sgl {
        let kind = match self.0[39] {
            0x00 => SglKind::Address,
            0x01 => SglKind::InCapsule,
            0x5a => SglKind::Transport,
            n => SglKind::Other(n),
        };
        Sgl { address: self.cdw_pair(6), length: self.cdw(8), kind }
    }

    /// Returns the command with this SGL descriptor, and with PSDT set to SGL.
    #[must_use]
    pub const fn with_sgl(self, sgl: Sgl) -> Command {
        let mut c = self.with_cdw_pair(6, sgl.address).with_cdw(8, sgl.length);
        c.0[39] = sgl.kind.number();
        c.0[1] = c.0[1] & 0x3f | 0x40;
        c
    }
}

/// A completion queue entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Completion {
    /// Dwords 0 and 1: the command's result, such as the LBA of an append.
    pub result: u64,
    /// The head of the submission queue: the next entry that the controller reads.
    pub sq_head: u16,
    /// The submission queue. 0 on a fabric.
    pub sq_id: u16,
    /// The identifier of the command.
    pub cid: u16,
    /// Bits 7:0 the status code, 10:8 its type, 13 *more*, 14 *do not retry*. Without the phase bit.
    pub status: u16,
}

impl Completion {
    /// Encodes the entry for a queue, with a phase bit of 0.
    pub const fn encode(&self) -> [u8; COMPLETION_LEN] {
        let r = self.result.to_le_bytes();
        let [h, i, c] =
            [self.sq_head.to_le_bytes(), self.sq_id.to_le_bytes(), self.cid.to_le_bytes()];
        let s = (self.status << 1).to_le_bytes();
        [
            r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7], h[0], h[1], i[0], i[1], c[0], c[1],
            s[0], s[1],
        ]
    }

    /// Decodes an entry of a queue. The phase bit is ignored.
    pub const fn decode(b: &[u8; COMPLETION_LEN]) -> Completion {
        Completion {
            result: u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]),
            sq_head: u16::from_le_bytes([b[8], b[9]]),
            sq_id: u16::from_le_bytes([b[10], b[11]]),
            cid: u16::from_le_bytes([b[12], b[13]]),
            status: u16::from_le_bytes([b[14], b[15]]) >> 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_its_fields_where_the_figure_has_them() {
        let c = Command::new(0x7d).with_cid(0x0102).with_nsid(0x0304_0506);
        let c = c.with_cdw_pair(10, 0x1112_1314_1516_1718).with_cdw(15, 0x2122_2324);
        assert_eq!(c.0[..8], [0x7d, 0, 2, 1, 6, 5, 4, 3]);
        assert_eq!(c.0[40..48], [0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11]);
        assert_eq!(c.0[60..], [0x24, 0x23, 0x22, 0x21]);
        assert_eq!((c.cdw_pair(10), c.cdw(15)), (0x1112_1314_1516_1718, 0x2122_2324));
        assert_eq!((c.opcode(), c.flags(), c.cid(), c.nsid()), (0x7d, 0, 0x0102, 0x0304_0506));
    }

    #[test]
    fn an_sgl_descriptor_has_its_fields_where_the_figure_has_them() {
        let sgl = Sgl { address: 0x0102, length: 0x0304, kind: SglKind::Transport };
        let c = Command::new(opcode::READ).with_sgl(sgl);
        assert_eq!(c.0[24..40], [2, 1, 0, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0x5a]);
        assert_eq!((c.flags(), c.sgl()), (0x40, sgl));
        for kind in [SglKind::Address, SglKind::InCapsule, SglKind::Other(0x42)] {
            assert_eq!(c.with_sgl(Sgl { kind, ..sgl }).sgl().kind, kind);
        }
    }

    #[test]
    fn which_way_the_data_goes() {
        use Direction::{NoData as No, ToController, ToHost};
        let ways =
            [opcode::FLUSH, opcode::WRITE, opcode::READ, 3].map(|o| Command::new(o).direction());
        assert_eq!(ways, [Some(No), Some(ToController), Some(ToHost), None]);
        assert_eq!(Command::new(opcode::ZONE_APPEND).direction(), Some(ToController));
        assert_eq!(Command::new(opcode::ZONE_MANAGEMENT_RECEIVE).direction(), Some(ToHost));
        // 7Fh would be both directions.
        assert_eq!(Command::fabrics(6).direction(), Some(ToHost));
        assert_eq!(Command::fabrics(7).direction(), None);
    }

    #[test]
    fn a_completion_has_its_fields_where_the_figure_has_them() {
        let c = Completion {
            result: 0x0102,
            sq_head: 0x0304,
            sq_id: 0x0506,
            cid: 0x0708,
            status: 0x41bc,
        };
        let b = c.encode();
        assert_eq!(b, [2, 1, 0, 0, 0, 0, 0, 0, 4, 3, 6, 5, 8, 7, 0x78, 0x83]);
        assert_eq!(Completion::decode(&b), c);
        let mut phase = b;
        phase[14] |= 1;
        assert_eq!(Completion::decode(&phase), c);
    }
}
