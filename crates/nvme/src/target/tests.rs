//! Connect, and behaviour that involves several controllers. Codes such as J1 are requirements of docs/requirements.md.

use super::TargetEvent::{Close, CloseIo, Complete, Namespaces};
use super::testing::*;
use super::{Hosts, Namespace, QueueId, Reply, SubsystemConfig, Target};
use crate::spec::fabrics::{ANY_CONTROLLER, Configuration, ConnectData, DISCOVERY_NQN, property};
use crate::spec::identify::decode_namespace_list;
use crate::spec::log::{DiscoveryEntry, DiscoveryHeader, lid};
use crate::spec::{Command, admin, feature, opcode, status, text};
use proptest::prelude::*;
use zoneplug_core::Nanos;
use zoneplug_core::zone::{Geometry, Limits};

const DNR: u16 = status::DNR;

/// J1. A host connects an admin queue and I/O queues.
#[test]
fn a_host_connects_its_queues() {
    let mut t = target();
    let admin = Hello::new(NQN, ANY_CONTROLLER, 0).send(&mut t).unwrap();
    assert_eq!((admin.queue, admin.entries), (QueueId { controller: 1, qid: 0 }, 32));
    assert_eq!(
        (admin.completion.result, admin.completion.cid, admin.completion.status),
        (1, 77, 0)
    );
    assert!(admin.namespaces.is_none());
    enable(&mut t, 1, Configuration::START);
    let io = io_queue(&mut t, 1);
    assert_eq!((io.queue, io.completion.result), (QueueId { controller: 1, qid: 1 }, 1));
    assert_eq!(io.namespaces.unwrap().iter().map(|(i, _)| i).collect::<Vec<_>>(), [1]);
    assert_eq!((io.max_data, io.in_capsule, io.sq_flow_control), (1 << 20, 8192, true));
    let mut without = Hello::new(NQN, 1, 2);
    without.fields.cattr = 4;
    assert!(!without.send(&mut t).unwrap().sq_flow_control);
    // Another association gets its own controller.
    assert_eq!(Hello::new(NQN, ANY_CONTROLLER, 0).send(&mut t).unwrap().queue.controller, 2);
    let hosts: Vec<_> = t.hosts(&nqn(NQN)).map(|(id, h)| (id, h.as_str().to_owned())).collect();
    assert_eq!(hosts, [(1, HOST.to_owned()), (2, HOST.to_owned())]);
}

/// J1: each wrong field and the status that it gets; the result of *invalid parameters* has the offset of the field.
#[test]
fn a_wrong_connect_is_refused_with_the_offset_of_the_field() {
    const PARAMETERS: u16 = status::CONNECT_PARAMETERS | DNR;
    type Change = fn(&mut Hello);
    let without_controller: [(Change, u16, u64); 13] = [
        (|h| h.fields.recfmt = 1, status::CONNECT_FORMAT | DNR, 0),
        (|h| h.fields.sqsize = 0, PARAMETERS, 44),
        (|h| h.fields.sqsize = 1024, PARAMETERS, 44),
        (|h| h.data.cntlid = 1, PARAMETERS, 1 << 16 | 16),
        (|h| h.data.subnqn = text("nqn.other", 0), PARAMETERS, 1 << 16 | 256),
        (|h| h.data.subnqn = [b'n'; 256], PARAMETERS, 1 << 16 | 256),
        (|h| h.data.hostnqn = text("", 0), PARAMETERS, 1 << 16 | 512),
        (|h| h.data.hostnqn = text("nqn.\u{7f}", 0), PARAMETERS, 1 << 16 | 512),
        (|h| h.data.hostnqn = text("nqn.stranger", 0), status::CONNECT_HOST | DNR, 0),
        (|h| h.fields.qid = 1, PARAMETERS, 1 << 16 | 16),
        (|h| (h.fields.qid, h.data.cntlid) = (1, 99), PARAMETERS, 1 << 16 | 16),
        (|h| (h.fields.qid, h.data.subnqn) = (1, text(DISCOVERY_NQN, 0)), PARAMETERS, 42),
        (|h| (h.fields.sqsize, h.data.subnqn) = (1024, text(DISCOVERY_NQN, 0)), PARAMETERS, 44),
    ];
    let mut t = target();
    for (i, (change, status, result)) in without_controller.into_iter().enumerate() {
        let mut h = Hello::new(NQN, ANY_CONTROLLER, 0);
        change(&mut h);
        let c = h.send(&mut t).unwrap_err();
        assert_eq!((c.status, c.result, c.cid), (status, result, 77), "{i}");
    }
    // No controller was made.
    assert_eq!(t.controllers.len(), 0);

    let id = connect(&mut t);
    let io: [(Change, u16, u64); 5] = [
        // The host has requested no queues.
        (|_| {}, PARAMETERS, 42),
        (|h| h.data.hostid = [8; 16], PARAMETERS, 1 << 16),
        (|h| h.data.hostnqn = text("nqn.stranger", 0), status::CONNECT_HOST | DNR, 0),
        (|h| h.data.cntlid += 1, PARAMETERS, 1 << 16 | 16),
        (|h| h.fields.sqsize = 0, PARAMETERS, 44),
    ];
    for (i, (change, status, result)) in io.into_iter().enumerate() {
        let mut h = Hello::new(NQN, id, 1);
        change(&mut h);
        let c = h.send(&mut t).unwrap_err();
        assert_eq!((c.status, c.result), (status, result), "I/O {i}");
    }
    // This host may connect, but the controller belongs to another host.
    t.add_subsystem(SubsystemConfig::new(nqn("nqn.other"))).unwrap();
    let other = Hello::new("nqn.other", ANY_CONTROLLER, 0).send(&mut t).unwrap();
    let mut h = Hello::new("nqn.other", other.queue.controller, 1);
    h.data.hostnqn = text("nqn.stranger", 0);
    let c = h.send(&mut t).unwrap_err();
    assert_eq!((c.status, c.result), (PARAMETERS, 1 << 16 | 512));
    t.disconnected(other.queue);
    // The controller belongs to another subsystem.
    let mut h = Hello::new("nqn.other", id, 1);
    assert_eq!(h.send(&mut t).unwrap_err().result, 1 << 16 | 16);
    ok(&mut t, id, set_feature(feature::QUEUES, 0));
    assert_eq!(h.send(&mut t).unwrap_err().result, 1 << 16 | 16);
    h.data.subnqn = text(DISCOVERY_NQN, 0);
    assert_eq!(h.send(&mut t).unwrap_err().result, 42, "discovery has no I/O queues");
    io_queue(&mut t, id);
    let again = |qid| Hello::new(NQN, id, qid);
    assert_eq!(again(1).send(&mut t).unwrap_err().status, status::SEQUENCE | DNR, "twice");
    assert_eq!(again(5).send(&mut t).unwrap_err().result, 42, "four were granted");
    t.disconnected(QueueId { controller: id, qid: 1 });
    assert!(again(1).send(&mut t).is_ok(), "it was gone");
}

/// J1. Any first command but Connect is refused.
#[test]
fn the_first_command_is_connect() {
    let mut t = target();
    let first = |t: &mut Target, c: Command, data: &[u8]| {
        t.connect(&c, data, local(), NOW).unwrap_err().status
    };
    let h = Hello::new(NQN, ANY_CONTROLLER, 0);
    let (c, data) = (with_data(h.fields.encode(), 1024), h.data.encode());
    assert_eq!(first(&mut t, Command::new(opcode::READ), &data), status::SEQUENCE | DNR);
    assert_eq!(first(&mut t, Command::property_get(0, 8), &data), status::SEQUENCE | DNR);
    assert_eq!(first(&mut t, c, &data[..1023]), status::SGL_LENGTH | DNR);
    assert_eq!(first(&mut t, with_data(c, 1023), &data), status::SGL_LENGTH | DNR);
    let id = connect(&mut t);
    assert_eq!(fails(&mut t, id, c), status::SEQUENCE | DNR, "and only the first");
}

/// J1: an I/O queue needs a controller that is ready.
#[test]
fn queues_of_a_controller_that_is_not_ready() {
    let mut t = target();
    let id = Hello::new(NQN, ANY_CONTROLLER, 0).send(&mut t).unwrap().queue.controller;
    let c = Hello::new(NQN, id, 1).send(&mut t).unwrap_err();
    assert_eq!((c.status, c.result), (status::CONNECT_PARAMETERS | DNR, 42));
}

/// J6. A controller ends at the second check that finds its host late, whatever other hosts do.
#[test]
fn a_controller_ends_at_the_second_check_that_finds_its_host_late() {
    let at = |ms: u64| NOW.plus(Nanos(ms * 1_000_000));
    let mut t = target();
    let mut host = |kato| {
        let mut h = Hello::new(NQN, ANY_CONTROLLER, 0);
        h.fields.kato = kato;
        let id = h.send(&mut t).unwrap().queue.controller;
        enable(&mut t, id, Configuration::START);
        id
    };
    let (a, b, c) = (host(1000), host(2000), host(2000));
    let mut check = |ms, keep_alive_of: Option<u16>| {
        if let Some(id) = keep_alive_of {
            t.admin(id, &without_data(Command::new(admin::KEEP_ALIVE)), at(ms));
        }
        t.expire_at_second_look(at(ms));
        t.take_events()
    };
    assert_eq!(check(900, None), []);
    assert_eq!(check(1500, None), [], "the first is late");
    assert_eq!(check(2100, None), [Close(a)], "and the others are late for the first time");
    assert_eq!(check(2600, Some(c)), [Close(b)], "the other one was heard of meanwhile");
    assert_eq!(check(4599, None), []);
    assert_eq!(check(4700, None), []);
    assert_eq!(check(5300, None), [Close(c)]);
}

/// J6. The controller of a host that is silent for too long ends.
#[test]
fn the_controller_of_a_silent_host_ends() {
    const SECOND: u64 = 1_000_000_000;
    let at = |n| NOW.plus(Nanos(n * SECOND));
    let mut t = target();
    let mut h = Hello::new(NQN, ANY_CONTROLLER, 0);
    h.fields.kato = 1500;
    let id = h.send(&mut t).unwrap().queue.controller;
    assert_eq!(t.next_deadline(), Some(at(120)), "until it is ready");
    // The timeout runs from this command on, rounded up to whole seconds.
    enable(&mut t, id, Configuration::START);
    assert_eq!(t.next_deadline(), Some(at(2)));
    let alive = without_data(Command::new(admin::KEEP_ALIVE));
    t.admin(id, &alive, at(1));
    assert_eq!(t.next_deadline(), Some(at(3)));
    // Every command counts as a sign of life.
    t.admin(id, &set_feature(feature::QUEUES, 0), at(2));
    assert_eq!(t.next_deadline(), Some(at(4)));
    let h = Hello::new(NQN, id, 1);
    let c = with_data(h.fields.encode(), 1024);
    t.connect(&c, &h.data.encode(), local(), at(3)).unwrap();
    assert_eq!(t.next_deadline(), Some(at(5)));
    t.admin(id, &set_feature(feature::KEEP_ALIVE_TIMER, 5000), at(4));
    assert_eq!(t.next_deadline(), Some(at(9)));
    t.expire(Nanos(at(9).0 - 1));
    assert_eq!(t.take_events(), []);
    t.expire(at(9));
    assert_eq!((t.take_events(), t.next_deadline()), (vec![Close(id)], None));
    assert_eq!(fails(&mut t, id, alive), status::ABORTED | DNR);

    // Without keep alive, a controller that is ready has no time limit, and one that is shut down has one.
    let id = connect(&mut t);
    assert_eq!(t.next_deadline(), None);
    enable(&mut t, id, Configuration { shn: 1, ..Configuration::START });
    assert_eq!(t.next_deadline(), Some(at(120)));
    t.disconnected(QueueId { controller: id, qid: 0 });
    // A discovery controller without keep alive lives as long as its host sends commands.
    let id = discover(&mut t);
    assert_eq!(t.next_deadline(), Some(at(120)));
    t.admin(id, &log_page(lid::DISCOVERY, 1024, 0), at(60));
    assert_eq!(t.next_deadline(), Some(at(180)));
}

/// J5, J9: hosts learn of disks that are added and removed.
#[test]
fn namespaces_come_and_go() {
    let mut t = target();
    let (id, other) = (connect(&mut t), connect(&mut t));
    io_queue(&mut t, id);
    ok(&mut t, id, set_feature(feature::ASYNC_EVENTS, 1 << 8));
    request_event(&mut t, id, 40);
    assert_eq!(t.add_namespaces(&nqn(NQN), mixed(1)).unwrap(), [2, 3]);
    let events = t.take_events();
    let [Namespaces(of, list), Complete(at, event)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((*of, *at, event.cid, event.result), (id, id, 40, 2 | 4 << 16));
    assert_eq!(list.iter().map(|(i, _)| i).collect::<Vec<_>>(), [1, 2, 3]);
    // The subsystem does not have this disk, so nothing changes.
    assert_eq!(t.remove_namespaces(&nqn(NQN), 77).unwrap(), []);
    assert_eq!(t.take_events(), []);
    // The event comes again only after the log page was read.
    request_event(&mut t, id, 41);
    assert_eq!(t.remove_namespaces(&nqn(NQN), 0).unwrap(), [1]);
    assert!(matches!(&t.take_events()[..], [Namespaces(..)]));
    let changed = ok(&mut t, id, log_page(lid::CHANGED_NAMESPACES, 4096, 0)).1;
    assert_eq!(changed[..16], [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(ok(&mut t, id, log_page(lid::CHANGED_NAMESPACES, 4, 0)).1, [0; 4]);
    // The other controller sends the event when its host requests one. It has no I/O queue.
    ok(&mut t, other, set_feature(feature::ASYNC_EVENTS, 1 << 8));
    request_event(&mut t, other, 42);
    assert_eq!(completions(&mut t), [(other, 42, 2 | 4 << 16)]);
    t.remove_namespaces(&nqn(NQN), 1).unwrap();
    assert!(matches!(&t.take_events()[..], [Namespaces(..), Complete(..)]));
}

/// J17. A disk that is not enabled keeps its namespace identifiers.
#[test]
fn j17_a_disk_that_is_not_enabled_keeps_its_identifiers() {
    let mut t = target();
    t.add_namespaces(&nqn(NQN), mixed(1)).unwrap();
    let id = connect(&mut t);
    io_queue(&mut t, id);
    ok(&mut t, id, set_feature(feature::ASYNC_EVENTS, 1 << 8));
    request_event(&mut t, id, 40);
    let shown =
        |t: &Target| t.namespaces(&nqn(NQN)).unwrap().iter().map(|(n, _)| n).collect::<Vec<_>>();
    assert_eq!(t.enable_namespaces(&nqn(NQN), 1, false).unwrap(), [2, 3]);
    let events = t.take_events();
    let [Namespaces(_, list), Complete(_, event)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((list.iter().count(), event.cid), (1, 40));
    assert!(list.get(2).is_none() && list.get(3).is_none() && shown(&t) == [1]);
    let all = ok(&mut t, id, identify(crate::spec::identify::cns::ACTIVE_NAMESPACES, 0, 0)).1;
    assert_eq!(decode_namespace_list(&all), [1]);
    assert_eq!(t.enable_namespaces(&nqn(NQN), 1, false).unwrap(), [], "nothing has changed");
    assert_eq!(t.take_events(), []);
    // A disk that is added meanwhile gets other identifiers.
    assert_eq!(t.add_namespaces(&nqn(NQN), mixed(2)).unwrap(), [4, 5]);
    assert_eq!(t.enable_namespaces(&nqn(NQN), 1, true).unwrap(), [2, 3]);
    assert_eq!(shown(&t), [1, 2, 3, 4, 5]);
    assert_eq!(t.namespaces(&nqn(NQN)).unwrap().get(3).unwrap().disk(), 1);
    // A disk that is removed gives its identifiers up, enabled or not.
    t.enable_namespaces(&nqn(NQN), 1, false).unwrap();
    assert_eq!(t.remove_namespaces(&nqn(NQN), 1).unwrap(), [2, 3]);
    assert_eq!(t.enable_namespaces(&nqn(NQN), 1, true).unwrap(), []);
}

/// J9. The discovery log lists the subsystems to which the host may connect.
#[test]
fn the_discovery_log_has_what_the_host_may_connect_to() {
    let mut t = target();
    let id = discover(&mut t);
    let log = |t: &mut Target, id, n: usize| {
        let log = ok(t, id, log_page(lid::DISCOVERY, 1024 * (n as u32 + 1), 0)).1;
        let entries = log[1024..].as_chunks().0;
        let header = DiscoveryHeader::read(&log).unwrap();
        assert_eq!(header.numrec as usize, n);
        (header.genctr, entries.iter().map(DiscoveryEntry::decode).collect::<Vec<_>>())
    };
    let (before, entries) = log(&mut t, id, 1);
    let e = &entries[0];
    assert_eq!((e.trtype, e.adrfam, e.subtype, e.cntlid, e.portid), (3, 1, 2, 0xffff, 1));
    assert_eq!((e.subnqn, e.trsvcid), (text(NQN, 0), text("4420", b' ')));
    // For a wildcard address the entry has the address at which this host came in.
    assert_eq!(e.traddr, text("10.0.2.2", b' '));

    ok(&mut t, id, set_feature(feature::ASYNC_EVENTS, 1 << 31));
    request_event(&mut t, id, 7);
    let others = Hosts::Listed(vec![nqn("nqn.other")]);
    t.add_subsystem(SubsystemConfig { hosts: others, ..SubsystemConfig::new(nqn("nqn.closed")) })
        .unwrap();
    t.add_subsystem(SubsystemConfig::new(nqn("nqn.open"))).unwrap();
    assert_eq!(completions(&mut t), [(id, 7, 2 | 0xf0 << 8 | 0x70 << 16)]);
    let (after, entries) = log(&mut t, id, 2);
    assert!(after > before);
    assert_eq!(entries[1].subnqn, text("nqn.open", 0));
    assert!(t.add_subsystem(SubsystemConfig::new(nqn("nqn.open"))).is_err());
    assert!(t.add_subsystem(SubsystemConfig::new(nqn(DISCOVERY_NQN))).is_err());

    let user = connect(&mut t);
    t.remove_subsystem(&nqn(NQN)).unwrap();
    assert_eq!(t.take_events(), [Close(user)]);
    assert!(t.remove_subsystem(&nqn(NQN)).is_err());
    log(&mut t, id, 1);
}

#[test]
fn a_controller_ends_with_its_admin_queue() {
    let mut t = target();
    let id = connect(&mut t);
    let io = io_queue(&mut t, id).queue;
    t.disconnected(QueueId { controller: id, qid: 0 });
    assert_eq!(t.take_events(), [Close(id)]);
    t.disconnected(io);
    assert_eq!(t.take_events(), []);
    // A controller's identifier is not reused at once.
    assert_eq!(connect(&mut t), id + 1);
}

/// J11: the number of controllers is limited for each subsystem and for discovery. When one has gone, another may
/// come.
#[test]
fn more_hosts_than_there_is_room_for() {
    let mut t = target();
    let hello = Hello::new(NQN, ANY_CONTROLLER, 0);
    for _ in 0..super::room::MAX_CONTROLLERS {
        hello.send(&mut t).unwrap();
    }
    assert_eq!(hello.send(&mut t).unwrap_err().status, status::CONNECT_BUSY);
    discover(&mut t);
    t.disconnected(QueueId { controller: 7, qid: 0 });
    assert!(hello.send(&mut t).is_ok());
    t.last = super::room::LAST_CONTROLLER;
    t.disconnected(QueueId { controller: 3, qid: 0 });
    assert_eq!(
        hello.send(&mut t).unwrap().queue.controller,
        3,
        "after the last comes the first free one"
    );
}

/// J11: hosts for which no place is kept have half of the controllers; the others remain for known hosts.
#[test]
fn j11_half_of_the_controllers_are_kept_for_known_hosts() {
    let mut t = target();
    let hello = Hello::new(NQN, ANY_CONTROLLER, 0);
    let c = with_data(hello.fields.encode().with_cid(77), ConnectData::LEN as u32);
    let mut send = |kept| t.connect_as(&c, &hello.data.encode(), local(), kept, NOW);
    let others = (0..300).filter(|_| send(false).is_ok()).count();
    assert_eq!(others, super::room::MAX_CONTROLLERS / 2);
    assert_eq!(send(false).unwrap_err().status, status::CONNECT_BUSY, "without DNR");
    let known = (0..300).filter(|_| send(true).is_ok()).count();
    assert_eq!(known, super::room::MAX_CONTROLLERS / 2);
}

/// J11: hosts that stay in discovery do not keep others out. The longest silent one must go.
#[test]
fn discovery_has_room_for_one_more_host() {
    let mut t = target();
    let io = connect(&mut t);
    let hello = Hello::new(DISCOVERY_NQN, ANY_CONTROLLER, 0);
    let all: Vec<u16> = (0..super::room::MAX_CONTROLLERS)
        .map(|_| hello.send(&mut t).unwrap().queue.controller)
        .collect();
    // All but the eighth send a command a second later.
    let later = NOW.plus(Nanos(1_000_000_000));
    for id in all.iter().filter(|id| **id != all[7]) {
        t.admin(*id, &Command::property_get(property::VS, 4), later);
    }
    t.take_events();
    hello.send(&mut t).unwrap();
    assert_eq!(t.take_events(), [Close(all[7])]);
    assert_eq!(t.hosts(&nqn(NQN)).map(|(id, _)| id).collect::<Vec<_>>(), [io]);
}

/// J12: values that hosts read only once hold for disks that are added later. Linux reads the cache and the longest
/// append when it connects.
#[test]
fn a_disk_that_comes_later_keeps_what_hosts_were_told() {
    let mut t = target();
    let zasl = |t: &mut Target, id| ok(t, id, identify(0x06, 2, 0)).1[0];
    let long = |disk| {
        let g = Geometry::new(8, 0x8000, 0x8000).unwrap();
        Namespace::of(disk, [9; 16], &g, &Limits::default()).unwrap()
    };
    t.add_namespaces(&nqn(NQN), long(1)).unwrap();
    let id = connect(&mut t);
    assert_eq!(zasl(&mut t, id), 3, "64 sectors");
    t.add_namespaces(&nqn(NQN), zoned(2)).unwrap();
    let g = Geometry::new(8, 256, 192).unwrap();
    let shorter = Limits { zone_append_max_sectors: 16, ..Limits::default() };
    let shorter = || Namespace::of(3, [3; 16], &g, &shorter).unwrap();
    let e = t.add_namespaces(&nqn(NQN), shorter()).unwrap_err();
    assert!(e.to_string().contains("shorter than"), "{e}");
    t.remove_namespaces(&nqn(NQN), 0).unwrap();
    t.remove_namespaces(&nqn(NQN), 2).unwrap();
    assert_eq!(zasl(&mut t, id), 3, "it stays");
    t.disconnected(QueueId { controller: id, qid: 0 });
    t.add_namespaces(&nqn(NQN), shorter()).unwrap();
    let id = connect(&mut t);
    assert_eq!(zasl(&mut t, id), 1);
    // The cache: the controller says that it may have one, and the namespace that it has none.
    let vwc = ok(&mut t, id, identify(0x01, 0, 0)).1[525];
    let of_namespace = |t: &mut Target, nsid| ok(t, id, identify(0x08, 0, nsid)).1[0];
    let all = t.namespaces(&nqn(NQN)).unwrap();
    let of_disk = |d| all.iter().find(|(_, n)| n.disk() == d).unwrap().0;
    assert_eq!((vwc & 1, of_namespace(&mut t, of_disk(1))), (1, 1 << 5));
    let cached = t.add_namespaces(&nqn(NQN), zoned(4)).unwrap();
    assert_eq!(of_namespace(&mut t, cached[0]), 0);
}

/// J12: a namespace identifier is not reused while hosts may still use it for another disk.
#[test]
fn a_namespace_identifier_is_not_reused_at_once() {
    let mut t = target();
    let id = connect(&mut t);
    let mut nsids = vec![];
    for disk in 1..5 {
        t.remove_namespaces(&nqn(NQN), disk - 1).unwrap();
        nsids.extend(t.add_namespaces(&nqn(NQN), zoned(disk)).unwrap());
    }
    assert_eq!(nsids, [2, 3, 4, 5]);
    let list = ok(&mut t, id, identify(0x02, 0, 0)).1;
    assert_eq!(list[..8], [5, 0, 0, 0, 0, 0, 0, 0]);
    let many = (6..6 + 1023).map(|disk| zoned(disk)[0]).collect();
    t.add_namespaces(&nqn(NQN), many).unwrap();
    assert!(t.add_namespaces(&nqn(NQN), zoned(9999)).is_err(), "1024 at a time");
    // The list is in ascending order, of the identifiers above the given one.
    let list = decode_namespace_list(&ok(&mut t, id, identify(0x02, 0, 1000)).1);
    assert_eq!(list, (1001..=1028).collect::<Vec<_>>());
}

/// J12: hosts may know a lower number as a disk that is no longer there, so a new disk gets none below a known number,
/// whatever the order in which known disks come back.
#[test]
fn a_new_disk_has_a_higher_number_than_all_known_ones() {
    for known in [[4, 7], [7, 4]] {
        let mut t = target();
        for (disk, nsid) in [(1, known[0]), (2, known[1])] {
            t.add_known_namespaces(&nqn(NQN), zoned(disk), &[nsid]).unwrap();
        }
        assert_eq!(t.add_namespaces(&nqn(NQN), zoned(3)).unwrap(), [8], "behind {known:?}");
    }
}

/// An admin queue has 32 entries even if I/O queues have fewer, because Linux requests 32.
#[test]
fn short_io_queues() {
    let mut t = target();
    let short = SubsystemConfig { queue_entries: 8, ..SubsystemConfig::new(nqn("nqn.short")) };
    t.add_subsystem(short).unwrap();
    let admin = Hello::new("nqn.short", ANY_CONTROLLER, 0).send(&mut t).unwrap();
    assert_eq!(admin.entries, 32);
    let id = admin.queue.controller;
    enable(&mut t, id, Configuration::START);
    ok(&mut t, id, set_feature(feature::QUEUES, 0));
    let mut io = Hello::new("nqn.short", id, 1);
    assert_eq!(io.send(&mut t).unwrap_err().result, 44);
    io.fields.sqsize = 7;
    assert_eq!(io.send(&mut t).unwrap().entries, 8);
    let cap = ok(&mut t, id, Command::property_get(0, 8)).0;
    assert_eq!(cap & 0xffff, 7);
}

#[test]
fn a_wrong_config_of_a_subsystem_is_refused_with_the_reason() {
    let mut t = target();
    type Change = fn(&mut SubsystemConfig);
    let table: [(Change, &str); 7] = [
        (|c| c.serial = "x".repeat(21), "serial"),
        (|c| c.serial = "\u{e9}".to_owned(), "serial"),
        (|c| c.max_queues = 0, "number of queues"),
        (|c| c.queue_entries = 1, "queue size"),
        (|c| c.max_data = 2048, "longest transfer"),
        (|c| c.max_data = 3 << 20, "longest transfer"),
        // The transport takes at most 8 KiB.
        (|c| c.in_capsule = 16384, "capsule"),
    ];
    for (change, what) in table {
        let mut config = SubsystemConfig::new(nqn("nqn.new"));
        change(&mut config);
        let e = t.add_subsystem(config).unwrap_err();
        assert!(e.to_string().contains(what), "{e}");
    }
}

/// One of the calls that hosts and the server can cause.
#[derive(Debug, Clone)]
enum Call {
    Connect { discovery: bool, qid: u16, cntlid: u16, kato: u32 },
    Admin { controller: u16, command: Command },
    Disconnect(u16, u16),
    Add(u32),
    Remove(u32),
    Wait(u64),
}

fn any_command() -> impl Strategy<Value = Command> {
    let small = |n: u32| prop_oneof![3 => 0..n, 1 => any::<u32>()];
    let opcodes = vec![0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18, 0x7f, 0x7f, 0x80];
    let fields = (small(0x140), small(0x100), small(5000), small(5), any::<u32>());
    let rest = (small(5), small(1 << 13), prop::bool::weighted(0.9));
    (prop::sample::select(opcodes), fields, rest).prop_map(
        |(opcode, (c10, c11, c12, c13, c14), (nsid, length, usual))| {
            let length = match (usual, opcode) {
                (false, _) => length,
                (_, 0x06) => 4096,
                (_, 0x02) => (c10 >> 16 | c11 << 16).wrapping_add(1).wrapping_mul(4),
                _ => 0,
            };
            let cdws = [(10, c10), (11, c11), (12, c12), (13, c13), (14, c14)];
            let c = with_data(Command::new(opcode).with_nsid(nsid), length);
            cdws.into_iter().fold(c, |c, (n, v)| c.with_cdw(n, v))
        },
    )
}

fn any_call() -> impl Strategy<Value = Call> {
    let id = 0u16..5;
    prop_oneof![
        2 => (any::<bool>(), 0u16..3, prop_oneof![Just(ANY_CONTROLLER), 0u16..5], prop_oneof![Just(0), any::<u32>()])
            .prop_map(|(discovery, qid, cntlid, kato)| Call::Connect { discovery, qid, cntlid, kato }),
        9 => (id.clone(), any_command()).prop_map(|(controller, command)| Call::Admin { controller, command }),
        3 => id.clone().prop_map(|controller| Call::Admin {
            controller,
            command: Command::property_set(0x14, Configuration::START.encode()),
        }),
        1 => (id, 0u16..3).prop_map(|(id, qid)| Call::Disconnect(id, qid)),
        1 => (0u32..6).prop_map(Call::Add),
        1 => (0u32..6).prop_map(Call::Remove),
        1 => prop_oneof![0u64..300_000_000_000, any::<u64>().prop_map(|n| n >> 2)].prop_map(Call::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// J1, J5, J6: for any sequence of calls, the target does not panic, answers each command once with all requested
    /// data or none, and completes only requests that it has kept.
    #[test]
    fn any_calls(calls in prop::collection::vec(any_call(), 1..60)) {
        let mut t = target();
        let mut now = NOW;
        let mut kept = std::collections::BTreeSet::new();
        for (cid, call) in (0u16..).zip(calls) {
            match call {
                Call::Connect { discovery, qid, cntlid, kato } => {
                    let nqn = if discovery { DISCOVERY_NQN } else { NQN };
                    let mut h = Hello::new(nqn, cntlid, qid);
                    h.fields.kato = kato;
                    let c = with_data(h.fields.encode().with_cid(cid), 1024);
                    match t.connect(&c, &h.data.encode(), local(), now) {
                        Ok(c) => {
                            prop_assert_eq!((c.completion.status, c.queue.qid), (0, qid));
                            prop_assert_eq!(c.namespaces.is_some(), qid != 0);
                        }
                        Err(c) => prop_assert!(c.status != 0 && c.cid == cid),
                    }
                }
                Call::Admin { controller, command } => {
                    match t.admin(controller, &command.with_cid(cid), now) {
                        Reply::Now(c, data) => {
                            prop_assert_eq!(c.cid, cid);
                            prop_assert!(data.is_empty() || c.status == 0);
                            prop_assert!(data.is_empty() || data.len() as u32 == command.sgl().length);
                        }
                        Reply::Later => prop_assert!(kept.insert((controller, cid))),
                    }
                }
                Call::Disconnect(controller, qid) => t.disconnected(QueueId { controller, qid }),
                Call::Add(disk) => _ = t.add_namespaces(&nqn(NQN), mixed(disk)),
                Call::Remove(disk) => _ = t.remove_namespaces(&nqn(NQN), disk),
                Call::Wait(span) => {
                    now = Nanos(now.0.saturating_add(span).min(u64::MAX >> 1));
                    t.expire(now);
                    prop_assert!(t.next_deadline().is_none_or(|d| d > now));
                }
            }
            for event in t.take_events() {
                match event {
                    Complete(id, c) => {
                        prop_assert!(kept.remove(&(id, c.cid)), "{id} {c:?}");
                    }
                    Close(id) => kept.retain(|(of, _)| *of != id),
                    CloseIo(_) | Namespaces(..) => {}
                }
            }
        }
    }
}
