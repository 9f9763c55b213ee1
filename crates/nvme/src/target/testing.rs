//! A target with one subsystem, and a host that talks to it.

use super::{Connected, Hosts, Namespace, Nqn, Reply, SubsystemConfig, Target, TargetEvent};
use crate::spec::fabrics::{
    ANY_CONTROLLER, Configuration, Connect, ConnectData, DISCOVERY_NQN, property,
};
use crate::spec::{Command, Completion, Sgl, SglKind, admin, feature, text};
use std::net::SocketAddr;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Nanos, ZoneNo};

pub(super) const NQN: &str = "nqn.2026-11.dev.zoneplug:test";
pub(super) const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:host";
pub(super) const NOW: Nanos = Nanos(5_000_000_000);

pub(super) fn nqn(name: &str) -> Nqn {
    Nqn::new(name).unwrap()
}

pub(super) fn local() -> SocketAddr {
    "10.0.2.2:4420".parse().unwrap()
}

/// A disk with 8 zones of 32 blocks of 4096 bytes, 24 of which can be written.
pub(super) fn zoned(disk: u32) -> Vec<Namespace> {
    let g = Geometry::new(8, 256, 192).unwrap();
    let l = Limits { write_cache: true, zone_append_max_sectors: 64, ..Limits::default() };
    Namespace::of(disk, [disk as u8; 16], &g, &l).unwrap()
}

/// A disk like `zoned`, with two conventional zones.
pub(super) fn mixed(disk: u32) -> Vec<Namespace> {
    let g = Geometry::new(8, 256, 192).unwrap().with_conventional([ZoneNo(0), ZoneNo(1)]).unwrap();
    Namespace::of(disk, [disk as u8; 16], &g, &Limits::default()).unwrap()
}

/// A target with a zoned namespace.
pub(super) fn target() -> Target {
    let mut t = Target::new(vec!["0.0.0.0:4420".parse().unwrap()]);
    let hosts = Hosts::Listed(vec![nqn(HOST)]);
    t.add_subsystem(SubsystemConfig { hosts, max_queues: 4, ..SubsystemConfig::new(nqn(NQN)) })
        .unwrap();
    t.add_namespaces(&nqn(NQN), zoned(0)).unwrap();
    t
}

/// A command with data that the transport moves.
pub(super) fn with_data(c: Command, bytes: u32) -> Command {
    c.with_sgl(Sgl { address: 0, length: bytes, kind: SglKind::Transport })
}

pub(super) fn without_data(c: Command) -> Command {
    c.with_sgl(Sgl { address: 0, length: 0, kind: SglKind::Address })
}

/// Connect and its data, which a test changes.
pub(super) struct Hello {
    pub(super) fields: Connect,
    pub(super) data: ConnectData,
}

impl Hello {
    pub(super) fn new(subsystem: &str, cntlid: u16, qid: u16) -> Hello {
        Hello {
            fields: Connect { recfmt: 0, qid, sqsize: 31, cattr: 0, kato: 0 },
            data: ConnectData {
                hostid: [9; 16],
                cntlid,
                subnqn: text(subsystem, 0),
                hostnqn: text(HOST, 0),
            },
        }
    }

    pub(super) fn send(&self, t: &mut Target) -> Result<Connected, Completion> {
        let c = with_data(self.fields.encode().with_cid(77), ConnectData::LEN as u32);
        t.connect(&c, &self.data.encode(), local(), NOW)
    }
}

/// Connects and enables an I/O controller.
pub(super) fn connect(t: &mut Target) -> u16 {
    let id = Hello::new(NQN, ANY_CONTROLLER, 0).send(t).unwrap().queue.controller;
    enable(t, id, Configuration::START);
    id
}

/// Connects and enables a discovery controller.
pub(super) fn discover(t: &mut Target) -> u16 {
    let id = Hello::new(DISCOVERY_NQN, ANY_CONTROLLER, 0).send(t).unwrap().queue.controller;
    enable(t, id, Configuration::START);
    id
}

pub(super) fn enable(t: &mut Target, id: u16, cc: Configuration) {
    ok(t, id, Command::property_set(property::CC, cc.encode()));
}

/// Grants I/O queues and connects the first.
pub(super) fn io_queue(t: &mut Target, id: u16) -> Connected {
    ok(t, id, set_feature(feature::QUEUES, 3 | 3 << 16));
    Hello::new(NQN, id, 1).send(t).unwrap()
}

pub(super) fn set_feature(id: u8, value: u32) -> Command {
    without_data(Command::new(admin::SET_FEATURES)).with_cdw(10, u32::from(id)).with_cdw(11, value)
}

pub(super) fn get_feature(id: u8) -> Command {
    without_data(Command::new(admin::GET_FEATURES)).with_cdw(10, u32::from(id))
}

pub(super) fn identify(cns: u8, csi: u8, nsid: u32) -> Command {
    with_data(Command::new(admin::IDENTIFY), 4096)
        .with_nsid(nsid)
        .with_cdw(10, u32::from(cns))
        .with_cdw(11, u32::from(csi) << 24)
}

pub(super) fn log_page(lid: u8, bytes: u32, offset: u64) -> Command {
    let dwords = bytes / 4 - 1;
    with_data(Command::new(admin::GET_LOG_PAGE), bytes)
        .with_cdw(10, u32::from(lid) | dwords << 16)
        .with_cdw(11, dwords >> 16)
        .with_cdw_pair(12, offset)
}

/// Returns the answer to an admin command.
pub(super) fn ask(t: &mut Target, id: u16, c: Command) -> (Completion, Vec<u8>) {
    match t.admin(id, &c.with_cid(5), NOW) {
        Reply::Now(completion, data) => {
            assert_eq!(completion.cid, 5);
            let sent = data.len();
            assert!(sent == 0 || sent == c.sgl().length as usize, "{sent} bytes");
            (completion, data)
        }
        Reply::Later => panic!("{c:?} is kept"),
    }
}

/// Returns the status of a command that must fail without data.
pub(super) fn fails(t: &mut Target, id: u16, c: Command) -> u16 {
    let (completion, data) = ask(t, id, c);
    assert!(completion.status != 0 && data.is_empty(), "{c:?}");
    completion.status
}

/// Returns the result and the data of a command that must succeed.
pub(super) fn ok(t: &mut Target, id: u16, c: Command) -> (u64, Vec<u8>) {
    let (completion, data) = ask(t, id, c);
    assert_eq!(completion.status, 0, "{c:?}");
    (completion.result, data)
}

/// Puts an asynchronous event request in flight.
pub(super) fn request_event(t: &mut Target, id: u16, cid: u16) {
    let c = without_data(Command::new(admin::ASYNC_EVENT_REQUEST)).with_cid(cid);
    assert_eq!(t.admin(id, &c, NOW), Reply::Later);
}

/// Takes the completions among the events; there must be no other events.
pub(super) fn completions(t: &mut Target) -> Vec<(u16, u16, u64)> {
    let complete = |e| match e {
        TargetEvent::Complete(id, c) => (id, c.cid, c.result),
        e => panic!("{e:?}"),
    };
    t.take_events().into_iter().map(complete).collect()
}
