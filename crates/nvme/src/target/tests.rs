//! Connect, and what concerns several controllers.

use super::testing::*;
use super::{Event, Hosts, QueueId, SubsystemConfig, Target};
use crate::spec::fabrics::{ANY_CONTROLLER, Configuration, DISCOVERY_NQN};
use crate::spec::log::{DiscoveryEntry, DiscoveryHeader, lid};
use crate::spec::{Command, admin, feature, opcode, status, text};
use zoneplug_core::Nanos;

const DNR: u16 = status::DNR;

/// J1.
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
    // Another association has a controller of its own.
    assert_eq!(Hello::new(NQN, ANY_CONTROLLER, 0).send(&mut t).unwrap().queue.controller, 2);
    let hosts: Vec<_> = t.hosts(&nqn(NQN)).map(|(id, h)| (id, h.as_str().to_owned())).collect();
    assert_eq!(hosts, [(1, HOST.to_owned()), (2, HOST.to_owned())]);
}

/// J1: each wrong field and the status that it gets; the result names the field of *invalid parameters*.
#[test]
fn a_connect_that_is_wrong_says_what_is() {
    const PARAMETERS: u16 = status::CONNECT_PARAMETERS | DNR;
    type Change = fn(&mut Hello);
    let admin: [(Change, u16, u64); 13] = [
        (|h| h.fields.recfmt = 1, status::CONNECT_FORMAT | DNR, 0),
        (|h| h.fields.sqsize = 0, PARAMETERS, 44),
        (|h| h.fields.sqsize = 128, PARAMETERS, 44),
        (|h| h.data.cntlid = 1, PARAMETERS, 1 << 16 | 16),
        (|h| h.data.subnqn = text("nqn.other", 0), PARAMETERS, 1 << 16 | 256),
        (|h| h.data.subnqn = [b'n'; 256], PARAMETERS, 1 << 16 | 256),
        (|h| h.data.hostnqn = text("", 0), PARAMETERS, 1 << 16 | 512),
        (|h| h.data.hostnqn = text("nqn.\u{7f}", 0), PARAMETERS, 1 << 16 | 512),
        (|h| h.data.hostnqn = text("nqn.stranger", 0), status::CONNECT_HOST | DNR, 0),
        (|h| h.fields.qid = 1, PARAMETERS, 1 << 16 | 16),
        (|h| (h.fields.qid, h.data.cntlid) = (1, 99), PARAMETERS, 1 << 16 | 16),
        (|h| (h.fields.qid, h.data.subnqn) = (1, text(DISCOVERY_NQN, 0)), PARAMETERS, 42),
        (|h| (h.fields.sqsize, h.data.subnqn) = (128, text(DISCOVERY_NQN, 0)), PARAMETERS, 44),
    ];
    let mut t = target();
    for (i, (change, status, result)) in admin.into_iter().enumerate() {
        let mut h = Hello::new(NQN, ANY_CONTROLLER, 0);
        change(&mut h);
        let c = h.send(&mut t).unwrap_err();
        assert_eq!((c.status, c.result, c.cid), (status, result, 77), "{i}");
    }
    // Nothing was made of them.
    assert_eq!(t.next_deadline(), None);
    assert_eq!(t.controllers.len(), 0);

    let id = connect(&mut t);
    let io: [(Change, u16, u64); 5] = [
        // No queues were granted.
        (|_| {}, PARAMETERS, 42),
        (|h| h.data.hostid = [8; 16], status::CONNECT_HOST | DNR, 0),
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
    io_queue(&mut t, id);
    let again = |qid| Hello::new(NQN, id, qid);
    assert_eq!(again(1).send(&mut t).unwrap_err().status, status::SEQUENCE | DNR, "twice");
    assert_eq!(again(5).send(&mut t).unwrap_err().result, 42, "four were granted");
    t.disconnected(QueueId { controller: id, qid: 1 });
    assert!(again(1).send(&mut t).is_ok(), "it was gone");
}

/// J1.
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
    assert_eq!(Hello::new(NQN, id, 1).send(&mut t).unwrap_err().status, status::SEQUENCE | DNR);
}

/// J6.
#[test]
fn a_host_that_is_silent_is_given_up() {
    const SECOND: u64 = 1_000_000_000;
    let mut t = target();
    let mut h = Hello::new(NQN, ANY_CONTROLLER, 0);
    h.fields.kato = 1500;
    let id = h.send(&mut t).unwrap().queue.controller;
    // Whole seconds.
    assert_eq!(t.next_deadline(), Some(NOW.plus(Nanos(2 * SECOND))));
    enable(&mut t, id, Configuration::START);
    let at = |n| NOW.plus(Nanos(n * SECOND));
    let alive = without_data(Command::new(admin::KEEP_ALIVE));
    t.admin(id, &alive, at(1));
    assert_eq!(t.next_deadline(), Some(at(3)));
    // Other commands are no keep alive.
    t.admin(id, &get_feature(feature::QUEUES), at(2));
    t.admin(id, &set_feature(feature::KEEP_ALIVE_TIMER, 5000), at(2));
    assert_eq!(
        (t.next_deadline(), ok(&mut t, id, get_feature(feature::KEEP_ALIVE_TIMER)).0),
        (Some(at(7)), 5000)
    );
    t.expire(Nanos(at(7).0 - 1));
    assert_eq!(t.take_events(), []);
    t.expire(at(7));
    assert_eq!((t.take_events(), t.next_deadline()), (vec![Event::Close(id)], None));
    assert_eq!(fails(&mut t, id, alive), status::ABORTED | DNR);
    // A discovery controller without keep alive lives as long as it is asked.
    let id = discover(&mut t);
    assert_eq!(t.next_deadline(), Some(at(120)));
    t.admin(id, &log_page(lid::DISCOVERY, 1024, 0), at(60));
    assert_eq!(t.next_deadline(), Some(at(180)));
}

/// J5, J9: hosts learn of disks that come and go.
#[test]
fn namespaces_come_and_go() {
    let mut t = target();
    let (id, other) = (connect(&mut t), connect(&mut t));
    io_queue(&mut t, id);
    ok(&mut t, id, set_feature(feature::ASYNC_EVENTS, 1 << 8));
    request_event(&mut t, id, 40);
    assert_eq!(t.add_namespaces(&nqn(NQN), mixed(1)).unwrap(), [2, 3]);
    let events = t.take_events();
    let [Event::Namespaces(of, list), Event::Complete(at, event)] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((*of, *at, event.cid, event.result), (id, id, 40, 2 | 4 << 16));
    assert_eq!(list.iter().map(|(i, _)| i).collect::<Vec<_>>(), [1, 2, 3]);
    // Announced once, until the log page is read.
    request_event(&mut t, id, 41);
    assert_eq!(t.remove_namespaces(&nqn(NQN), 0).unwrap(), [1]);
    assert!(matches!(&t.take_events()[..], [Event::Namespaces(..)]));
    let changed = ok(&mut t, id, log_page(lid::CHANGED_NAMESPACES, 4096, 0)).1;
    assert_eq!(changed[..16], [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(ok(&mut t, id, log_page(lid::CHANGED_NAMESPACES, 4, 0)).1, [0; 4]);
    // The other host hears of it when it asks, and has no I/O queue to tell.
    ok(&mut t, other, set_feature(feature::ASYNC_EVENTS, 1 << 8));
    request_event(&mut t, other, 42);
    assert_eq!(completions(&mut t), [(other, 42, 2 | 4 << 16)]);
    t.remove_namespaces(&nqn(NQN), 1).unwrap();
    assert!(matches!(&t.take_events()[..], [Event::Namespaces(..), Event::Complete(..)]));
}

/// J9.
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
    // The port of every address is where this host came in.
    assert_eq!(e.traddr, text("10.0.2.2", b' '));

    ok(&mut t, id, set_feature(feature::ASYNC_EVENTS, 1 << 31));
    request_event(&mut t, id, 7);
    let hidden = Hosts::Listed(vec![nqn("nqn.other")]);
    t.add_subsystem(SubsystemConfig { hosts: hidden, ..SubsystemConfig::new(nqn("nqn.hidden")) })
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
    assert_eq!(t.take_events(), [Event::Close(user)]);
    assert!(t.remove_subsystem(&nqn(NQN)).is_err());
    log(&mut t, id, 1);
}

#[test]
fn a_controller_ends_with_its_admin_queue() {
    let mut t = target();
    let id = connect(&mut t);
    let io = io_queue(&mut t, id).queue;
    t.disconnected(QueueId { controller: id, qid: 0 });
    assert_eq!(t.take_events(), [Event::Close(id)]);
    t.disconnected(io);
    assert_eq!(t.take_events(), []);
    // Its number does not come back at once.
    assert_eq!(connect(&mut t), id + 1);
}

/// Numbers of controllers are bounded; one more may come when another has gone.
#[test]
fn more_hosts_than_there_is_room_for() {
    let mut t = target();
    let hello = Hello::new(DISCOVERY_NQN, ANY_CONTROLLER, 0);
    for _ in 0..super::MAX_CONTROLLERS {
        hello.send(&mut t).unwrap();
    }
    assert_eq!(hello.send(&mut t).unwrap_err().status, status::CONNECT_BUSY);
    t.disconnected(QueueId { controller: 7, qid: 0 });
    assert!(hello.send(&mut t).is_ok());
    t.last = super::LAST_CONTROLLER;
    t.disconnected(QueueId { controller: 3, qid: 0 });
    assert_eq!(hello.send(&mut t).unwrap().queue.controller, 3, "after the last comes the first");
}
