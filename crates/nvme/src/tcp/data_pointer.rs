//! The position of a command's data: SGL descriptor 1, bytes 24 to 39 of a command (Base Specification, *Scatter
//! Gather List*; TCP Transport Specification, *Data Transfers*).

use crate::spec::fabrics::fctype;
use crate::spec::status::{
    CONNECT_PARAMETERS, DNR, INVALID_FIELD, SGL_LENGTH, SGL_OFFSET, SGL_TYPE,
};
use crate::spec::{Command, Direction, Sgl, SglKind, opcode};

/// The data of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataPointer {
    /// No data.
    None,
    /// This many bytes in the capsule, behind the command.
    InCapsule(u32),
    /// This many bytes that the controller requests by R2T.
    Fetch(u32),
    /// At most this many bytes that the controller sends.
    Send(u32),
}

impl DataPointer {
    /// Reads the data pointer of a command that came with `in_capsule` bytes of data. Commands may have up to
    /// `max_data` bytes. The error is the status of the command.
    pub fn of(command: &Command, in_capsule: u32, max_data: u32) -> Result<DataPointer, u16> {
        let connect = command.opcode() == opcode::FABRICS && command.fctype() == fctype::CONNECT;
        Self::read(command, in_capsule, max_data).map_err(|status| match status {
            // A Connect never ends with *Invalid Field in Command* (Base Specification, *Connect Command and Response*).
            INVALID_FIELD if connect => DNR | CONNECT_PARAMETERS,
            status => DNR | status,
        })
    }

    fn read(command: &Command, in_capsule: u32, max_data: u32) -> Result<DataPointer, u16> {
        // PSDT: fabrics must use SGLs.
        if command.flags() >> 6 != 1 {
            return Err(INVALID_FIELD);
        }
        let Sgl { address, length: len, kind } = command.sgl();
        let to_controller = match command.direction() {
            Some(Direction::ToController) => true,
            Some(Direction::ToHost) => false,
            // No command has data in both directions; the target refuses the operation code.
            Some(Direction::NoData) | None if in_capsule == 0 => return Ok(DataPointer::None),
            Some(Direction::NoData) | None => return Err(SGL_LENGTH),
        };
        match kind {
            SglKind::InCapsule if !to_controller => Err(SGL_TYPE),
            SglKind::InCapsule if address != 0 => Err(SGL_OFFSET),
            SglKind::InCapsule if len != in_capsule => Err(SGL_LENGTH),
            SglKind::Transport | SglKind::Address if in_capsule != 0 => Err(SGL_LENGTH),
            SglKind::Address if len != 0 => Err(SGL_TYPE),
            SglKind::Other(_) => Err(SGL_TYPE),
            _ if len > max_data => Err(INVALID_FIELD),
            _ if len == 0 => Ok(DataPointer::None),
            SglKind::InCapsule => Ok(DataPointer::InCapsule(len)),
            _ if to_controller => Ok(DataPointer::Fetch(len)),
            _ => Ok(DataPointer::Send(len)),
        }
    }
}

impl Command {
    /// Returns the command with data of `len` bytes in the capsule.
    #[must_use]
    pub const fn with_data_in_capsule(self, len: u32) -> Command {
        self.with_sgl(Sgl { address: 0, length: len, kind: SglKind::InCapsule })
    }

    /// Returns the command with `len` bytes of data that are transferred apart from the capsule. 0: no data.
    #[must_use]
    pub const fn with_data_apart(self, len: u32) -> Command {
        self.with_sgl(Sgl { address: 0, length: len, kind: SglKind::Transport })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::opcode;

    const MAX: u32 = 1 << 20;

    #[test]
    fn each_pointer_is_read_or_refused() {
        let fabrics = |kind: u8| Command::fabrics(kind);
        let (write, read, flush) =
            (Command::new(opcode::WRITE), Command::new(opcode::READ), Command::new(opcode::FLUSH));
        let both = Command::new(3);
        let mut prp = write.with_data_apart(4096);
        prp.0[1] = 0;
        let of_kind = |kind| write.with_sgl(Sgl { address: 0, length: 4096, kind });
        use DataPointer as D;
        let table = [
            (write.with_data_in_capsule(4096), 4096, Ok(D::InCapsule(4096))),
            (write.with_data_apart(MAX), 0, Ok(D::Fetch(MAX))),
            (read.with_data_apart(8192), 0, Ok(D::Send(8192))),
            (flush.with_data_apart(0), 0, Ok(D::None)),
            (flush.with_data_apart(512), 0, Ok(D::None)),
            (write.with_data_apart(0), 0, Ok(D::None)),
            (both.with_data_apart(512), 0, Ok(D::None)),
            (fabrics(1).with_data_in_capsule(1024), 1024, Ok(D::InCapsule(1024))),
            (fabrics(0).with_data_apart(0), 0, Ok(D::None)),
            (fabrics(6).with_data_apart(64), 0, Ok(D::Send(64))),
            (prp, 0, Err(0x4002)),
            (fabrics(1).with_data_apart(MAX + 1), 0, Err(0x4182)),
            (write.with_data_apart(MAX + 1), 0, Err(0x4002)),
            (read.with_data_apart(MAX + 1), 0, Err(0x4002)),
            (write.with_data_apart(u32::MAX), 0, Err(0x4002)),
            (write.with_data_in_capsule(MAX + 1), MAX + 1, Err(0x4002)),
            (write.with_data_in_capsule(4096), 4092, Err(0x400f)),
            (write.with_data_in_capsule(4096), 0, Err(0x400f)),
            (write.with_data_apart(4096), 4096, Err(0x400f)),
            (flush.with_data_apart(0), 4, Err(0x400f)),
            (read.with_data_in_capsule(4096), 0, Err(0x4011)),
            (of_kind(SglKind::Address), 0, Err(0x4011)),
            (of_kind(SglKind::Other(0x5b)), 0, Err(0x4011)),
            (write.with_data_in_capsule(64).with_cdw(6, 4), 64, Err(0x4016)),
            (write.with_data_in_capsule(64).with_cdw(7, 1), 64, Err(0x4016)),
        ];
        for (command, in_capsule, expected) in table {
            assert_eq!(DataPointer::of(&command, in_capsule, MAX), expected, "{command:?}");
        }
    }
}
