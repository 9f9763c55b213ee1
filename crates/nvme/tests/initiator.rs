//! What the model of an initiator takes from a controller that breaks the protocol.

#![allow(clippy::unwrap_used)]

use zoneplug_nvme::initiator::{self, Initiator, Options};
use zoneplug_nvme::tcp::pdu::{Common, Initialize, Kind, Transfer, flag};

/// An initiator with a write of 8192 bytes in flight, whose data the controller has to ask for.
fn with_a_write() -> (Initiator, u16) {
    let mut host = Initiator::new(Options { in_capsule: 0, ..Options::default() });
    let agree = Initialize { version: 0, align: 0, digests: 0, max: 4096 };
    host.received(&agree.encode(Kind::IcResp)).unwrap();
    let (command, data) = initiator::write(1, 0, vec![7; 8192], 512);
    let cid = host.send(command, data);
    host.take_output();
    (host, cid)
}

fn asks(cid: u16, offset: u32, len: u32) -> [u8; 24] {
    let common = Common { kind: Kind::R2t as u8, flags: 0, hlen: 24, pdo: 0, plen: 24 };
    Transfer { cid, tag: 3, offset, len }.encode(common)
}

#[test]
fn data_are_asked_for_in_order_and_within_the_command() {
    for (offset, len) in [(0, 0), (512, 512), (512, 0), (0, 8704), (512, 8192)] {
        let (mut host, cid) = with_a_write();
        assert!(host.received(&asks(cid, offset, len)).is_err(), "{len} bytes at {offset}");
        assert!(host.take_output().is_empty());
    }
    let (mut host, cid) = with_a_write();
    assert!(host.received(&asks(cid + 1, 0, 512)).is_err(), "no such command");
    let (mut host, cid) = with_a_write();
    host.received(&asks(cid, 0, 512)).unwrap();
    assert_eq!(host.take_output().len(), 24 + 512);
    assert!(host.received(&asks(cid, 0, 512)).is_err(), "these were sent");
    let (mut host, cid) = with_a_write();
    host.received(&asks(cid, 0, 8192)).unwrap();
    assert_eq!(host.take_output().len(), 2 * (24 + 4096), "PDUs as long as may be");
}

/// Data that say that their command has succeeded stand for a completion. It has no place in the queue.
#[test]
fn data_with_success_complete_a_command() {
    let (mut host, _) = with_a_write();
    let (command, data) = initiator::read(1, 0, 1, 512);
    let cid = host.send(command, data);
    let data = |flags| {
        let common = Common { kind: Kind::C2hData as u8, flags, hlen: 24, pdo: 24, plen: 24 + 512 };
        let header = Transfer { cid, tag: 0, offset: 0, len: 512 }.encode(common);
        [&header[..], &[9; 512]].concat()
    };
    host.received(&data(flag::LAST | flag::SUCCESS)).unwrap();
    let done = host.done().unwrap();
    assert_eq!((done.completion.cid, done.completion.status), (cid, 0));
    assert_eq!((done.completion.sq_head, done.data), (u16::MAX, vec![9; 512]));
}
