//! Commands of NVMe over Fabrics and the properties of a controller (Base Specification, *Fabrics Command Set*,
//! *Controller Properties*).

use super::command::Command;
use super::opcode;
use super::structure::structure;

/// The NQN of every discovery subsystem.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// Most bytes of an NQN, without the zero behind it.
pub const MAX_NQN: usize = 223;

/// The type of a fabrics command: byte 4 of the command. Bits 1:0 give the direction of the data, as in an opcode.
pub mod fctype {
    /// Property Set.
    pub const PROPERTY_SET: u8 = 0x00;
    /// Connect.
    pub const CONNECT: u8 = 0x01;
    /// Property Get.
    pub const PROPERTY_GET: u8 = 0x04;
    /// Authentication Send.
    pub const AUTHENTICATION_SEND: u8 = 0x05;
    /// Authentication Receive.
    pub const AUTHENTICATION_RECEIVE: u8 = 0x06;
    /// Disconnect.
    pub const DISCONNECT: u8 = 0x08;
}

/// Offsets of properties.
pub mod property {
    /// Capabilities, 8 bytes.
    pub const CAP: u32 = 0x00;
    /// Version, 4 bytes.
    pub const VS: u32 = 0x08;
    /// Configuration, 4 bytes.
    pub const CC: u32 = 0x14;
    /// Status, 4 bytes.
    pub const CSTS: u32 = 0x1c;
}

/// Any controller: the number in the data of the Connect of an admin queue.
pub const ANY_CONTROLLER: u16 = 0xffff;

/// Base Specification 2.0 (property VS).
pub const VERSION: u32 = 0x0002_0000;

structure! {
    /// The data of Connect.
    ConnectData: 1024 {
        /// The host's identifier.
        hostid: [u8; 16] = 0,
        /// The controller; [`ANY_CONTROLLER`].
        cntlid: u16 = 16,
        /// The subsystem's NQN, zeroes behind it.
        subnqn: [u8; 256] = 256,
        /// The host's NQN, zeroes behind it.
        hostnqn: [u8; 256] = 512,
    }
}

/// The fields of Connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connect {
    /// Format of the data: 0.
    pub recfmt: u16,
    /// The queue, 0 for the admin queue.
    pub qid: u16,
    /// Entries of the submission queue, less one.
    pub sqsize: u16,
    /// Attributes: [`Connect::NO_SQ_FLOW_CONTROL`].
    pub cattr: u8,
    /// Keep alive timeout in milliseconds; 0: none.
    pub kato: u32,
}

/// Byte offsets of fields of Connect, for the answer *Connect Invalid Parameters*.
pub mod connect_offset {
    /// The bit of the result that says that the field is in the data, and not in the command.
    pub const IN_DATA: u64 = 1 << 16;
    /// QID.
    pub const QID: u16 = 42;
    /// SQSIZE.
    pub const SQSIZE: u16 = 44;
    /// HOSTID in the data.
    pub const HOSTID: u16 = 0;
    /// CNTLID in the data.
    pub const CNTLID: u16 = 16;
    /// SUBNQN in the data.
    pub const SUBNQN: u16 = 256;
    /// HOSTNQN in the data.
    pub const HOSTNQN: u16 = 512;
}

impl Connect {
    /// CATTR: the host requests no flow control of the submission queue.
    pub const NO_SQ_FLOW_CONTROL: u8 = 1 << 2;

    /// Decodes the fields of `c`.
    pub const fn decode(c: &Command) -> Connect {
        Connect {
            recfmt: c.cdw(10) as u16,
            qid: (c.cdw(10) >> 16) as u16,
            sqsize: c.cdw(11) as u16,
            cattr: (c.cdw(11) >> 16) as u8,
            kato: c.cdw(12),
        }
    }

    /// Encodes the command.
    pub const fn encode(&self) -> Command {
        Command::fabrics(fctype::CONNECT)
            .with_cdw(10, self.recfmt as u32 | (self.qid as u32) << 16)
            .with_cdw(11, self.sqsize as u32 | (self.cattr as u32) << 16)
            .with_cdw(12, self.kato)
    }
}

impl Command {
    /// Makes a fabrics command of this type whose other fields are 0.
    pub const fn fabrics(fctype: u8) -> Command {
        Command::new(opcode::FABRICS).with_cdw(1, fctype as u32)
    }

    /// Returns the type of a fabrics command.
    pub const fn fctype(&self) -> u8 {
        self.0[4]
    }

    /// Makes a Property Get of `bytes`, 4 or 8.
    pub const fn property_get(offset: u32, bytes: u32) -> Command {
        let c = Command::fabrics(fctype::PROPERTY_GET);
        c.with_cdw(10, (bytes == 8) as u32).with_cdw(11, offset)
    }

    /// Makes a Property Set of 4 bytes.
    pub const fn property_set(offset: u32, value: u32) -> Command {
        Command::fabrics(fctype::PROPERTY_SET).with_cdw(11, offset).with_cdw(12, value)
    }
}

/// The property CAP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// Entries of a queue, less one.
    pub mqes: u16,
    /// Longest time until the controller is ready, in 500 ms.
    pub to: u8,
    /// Command sets. Bit 0 NVM, 6 those of Identify, 7 admin commands only.
    pub css: u8,
}

impl Capabilities {
    /// Encodes the property. Queues are contiguous (CQR), and pages have 4096 bytes (MPSMIN, MPSMAX).
    pub const fn encode(&self) -> u64 {
        self.mqes as u64 | 1 << 16 | (self.to as u64) << 24 | (self.css as u64) << 37
    }

    /// Decodes the property.
    pub const fn decode(cap: u64) -> Capabilities {
        Capabilities { mqes: cap as u16, to: (cap >> 24) as u8, css: (cap >> 37) as u8 }
    }
}

/// The property CC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Configuration {
    /// EN: the controller is enabled.
    pub enable: bool,
    /// The command sets: 0 NVM, 6 those of Identify, 7 admin commands only.
    pub css: u8,
    /// log2 of a page, less 12.
    pub mps: u8,
    /// Arbitration.
    pub ams: u8,
    /// Shutdown: 0 none, 1 normal, 2 abrupt.
    pub shn: u8,
    /// log2 of an entry of I/O submission queues.
    pub iosqes: u8,
    /// log2 of an entry of I/O completion queues.
    pub iocqes: u8,
}

impl Configuration {
    /// The configuration with which a host starts a controller with all command sets.
    pub const START: Configuration =
        Configuration { enable: true, css: 6, mps: 0, ams: 0, shn: 0, iosqes: 6, iocqes: 4 };

    /// Encodes the property.
    pub const fn encode(&self) -> u32 {
        self.enable as u32
            | (self.css as u32) << 4
            | (self.mps as u32) << 7
            | (self.ams as u32) << 11
            | (self.shn as u32) << 14
            | (self.iosqes as u32) << 16
            | (self.iocqes as u32) << 20
    }

    /// Decodes the property.
    pub const fn decode(cc: u32) -> Configuration {
        Configuration {
            enable: cc & 1 != 0,
            css: (cc >> 4 & 7) as u8,
            mps: (cc >> 7 & 15) as u8,
            ams: (cc >> 11 & 7) as u8,
            shn: (cc >> 14 & 3) as u8,
            iosqes: (cc >> 16 & 15) as u8,
            iocqes: (cc >> 20 & 15) as u8,
        }
    }
}

/// Bits of the property CSTS.
pub mod csts {
    /// Ready.
    pub const READY: u32 = 1;
    /// Fatal error: the host resets the controller.
    pub const FATAL: u32 = 2;
    /// Shutdown processing occurring.
    pub const SHUTDOWN_OCCURRING: u32 = 1 << 2;
    /// Shutdown complete.
    pub const SHUTDOWN_COMPLETE: u32 = 2 << 2;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Direction;

    #[test]
    fn connect_has_its_fields_where_the_figure_has_them() {
        let want = Connect { recfmt: 0x0102, qid: 0x0304, sqsize: 0x0506, cattr: 7, kato: 0x0809 };
        let c = want.encode();
        assert_eq!((c.0[0], c.0[4]), (0x7f, 1));
        assert_eq!(c.0[40..52], [2, 1, 4, 3, 6, 5, 7, 0, 9, 8, 0, 0]);
        assert_eq!(Connect::decode(&c), want);
        let d = ConnectData {
            hostid: [1; 16],
            cntlid: ANY_CONTROLLER,
            subnqn: [2; 256],
            hostnqn: [3; 256],
        };
        let b = d.encode();
        assert_eq!((b[0], b[15], b[16], b[18], b[256], b[512]), (1, 1, 255, 0, 2, 3));
        assert_eq!((b[255], b[511], b[767], b[768]), (0, 2, 3, 0));
    }

    #[test]
    fn properties_have_their_bits_where_the_figures_have_them() {
        let cap = Capabilities { mqes: 127, to: 20, css: 0x41 };
        assert_eq!(cap.encode(), 127 | 1 << 16 | 20 << 24 | 1 << 37 | 1 << 43);
        assert_eq!(Capabilities::decode(cap.encode()), cap);
        // Linux sets the same value.
        assert_eq!(Configuration::START.encode(), 0x0046_0061);
        let cc =
            Configuration { enable: false, css: 5, mps: 9, ams: 3, shn: 2, iosqes: 7, iocqes: 8 };
        assert_eq!(Configuration::decode(cc.encode()), cc);
    }

    #[test]
    fn properties_are_read_and_set_by_commands() {
        let c = Command::property_get(property::CAP, 8);
        assert_eq!((c.fctype(), c.0[40], c.cdw(11)), (4, 1, 0));
        assert_eq!(c.direction(), Some(Direction::NoData));
        let c = Command::property_set(property::CC, 0x0102);
        assert_eq!((c.fctype(), c.0[40], c.cdw(11), c.cdw_pair(12)), (0, 0, 0x14, 0x0102));
        assert_eq!(Command::fabrics(fctype::CONNECT).direction(), Some(Direction::ToController));
    }
}
