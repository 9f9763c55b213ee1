//! Commands as an initiator sends them. Addresses and lengths are in logical blocks.

use super::Data;
use crate::spec::fabrics::{Connect, ConnectData};
use crate::spec::{Command, ZoneAction, admin, feature, opcode};

/// Makes a Connect of queue `qid` with `entries` entries to the controller `cntlid` of a subsystem, for the host.
pub fn connect(
    qid: u16,
    entries: u16,
    cntlid: u16,
    subsystem: &str,
    host: &str,
) -> (Command, Data) {
    let name = |text: &str| {
        let mut b = [0; 256];
        let n = text.len().min(b.len());
        b[..n].copy_from_slice(&text.as_bytes()[..n]);
        b
    };
    let connect = Connect { recfmt: 0, qid, sqsize: entries.saturating_sub(1), cattr: 0, kato: 0 };
    let data = ConnectData {
        // Any identifier but 0 works.
        hostid: [0x5a; 16],
        cntlid,
        subnqn: name(subsystem),
        hostnqn: name(host),
    };
    (connect.encode(), Data::Out(data.encode().to_vec()))
}

/// Makes a Set Features that requests this many I/O queues, at least one.
pub const fn set_queues(queues: u16) -> (Command, Data) {
    let n = queues as u32 - 1;
    let c = Command::new(admin::SET_FEATURES).with_cdw(10, feature::QUEUES as u32);
    (c.with_cdw(11, n | n << 16), Data::None)
}

const fn blocks(c: Command, lba: u64, count: u32) -> Command {
    c.with_cdw_pair(10, lba).with_cdw(12, (count - 1) & 0xffff)
}

/// Makes a read of `count` blocks of `block` bytes, at least one.
pub const fn read(nsid: u32, lba: u64, count: u32, block: u32) -> (Command, Data) {
    (blocks(Command::new(opcode::READ).with_nsid(nsid), lba, count), Data::In(count * block))
}

/// Makes a write of whole blocks of `block` bytes, at least one.
pub const fn write(nsid: u32, lba: u64, data: Vec<u8>, block: u32) -> (Command, Data) {
    let count = data.len() as u32 / block;
    (blocks(Command::new(opcode::WRITE).with_nsid(nsid), lba, count), Data::Out(data))
}

/// Makes a Zone Append of whole blocks to the zone that starts at `lba`.
pub const fn zone_append(nsid: u32, lba: u64, data: Vec<u8>, block: u32) -> (Command, Data) {
    let count = data.len() as u32 / block;
    (blocks(Command::new(opcode::ZONE_APPEND).with_nsid(nsid), lba, count), Data::Out(data))
}

/// Makes a reset of the zone that starts at `lba`.
pub const fn reset_zone(nsid: u32, lba: u64) -> (Command, Data) {
    let c = Command::new(opcode::ZONE_MANAGEMENT_SEND).with_nsid(nsid).with_cdw_pair(10, lba);
    (c.with_cdw(13, ZoneAction::Reset as u32), Data::None)
}

/// Makes a report of zones from `lba` on, of `len` bytes, a multiple of 4.
pub const fn report_zones(nsid: u32, lba: u64, len: u32) -> (Command, Data) {
    let c = Command::new(opcode::ZONE_MANAGEMENT_RECEIVE).with_nsid(nsid).with_cdw_pair(10, lba);
    (c.with_cdw(12, len / 4 - 1), Data::In(len))
}
