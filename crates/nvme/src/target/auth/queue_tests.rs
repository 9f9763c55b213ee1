//! Attacks of peers that do not authenticate, on a target and on the hosts that do.

use crate::dhchap::Key;
use crate::spec::fabrics::{ANY_CONTROLLER, Configuration};
use crate::spec::{feature, status, text};
use crate::target::room::MAX_CONTROLLERS;
use crate::target::testing::*;
use crate::target::{Hosts, Keys, Namespace, QueueId, SubsystemConfig, Target, TargetEvent};
use zoneplug_core::Nanos;
use zoneplug_core::zone::{Geometry, Limits};

const SECOND: u64 = 1_000_000_000;

/// A target whose host has a key.
fn keyed() -> Target {
    keyed_for(Hosts::Listed(Vec::new()))
}

/// A target whose host has a key, with other hosts that need none.
fn keyed_for(hosts: Hosts) -> Target {
    let key = Key::parse("DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:").unwrap();
    let mut t = Target::new(vec![local()]);
    let keys = Keys { hosts: vec![(nqn(HOST), key)], ..Keys::default() };
    t.add_subsystem(SubsystemConfig { hosts, keys, ..SubsystemConfig::new(nqn(NQN)) }).unwrap();
    t.add_namespaces(&nqn(NQN), zoned(0)).unwrap();
    t
}

/// Connects an admin queue whose host has yet to authenticate.
fn stranger(t: &mut Target) -> u16 {
    let connected = Hello::new(NQN, ANY_CONTROLLER, 0).send(t).unwrap();
    assert!(connected.authentication.is_some());
    connected.queue.controller
}

fn queue(controller: u16, qid: u16) -> QueueId {
    QueueId { controller, qid }
}

/// A controller whose host has authenticated and may have 4 I/O queues.
fn admitted(t: &mut Target) -> u16 {
    let id = stranger(t);
    assert_eq!(t.admitted(queue(id, 0), NOW), Ok(None));
    enable(t, id, Configuration::START);
    ok(t, id, set_feature(feature::QUEUES, 3 | 3 << 16));
    id
}

/// J11: peers that know the name of a host but not its key leave room for the host.
#[test]
fn strangers_take_no_room_from_a_host() {
    let mut t = keyed();
    let host = admitted(&mut t);
    let strangers: Vec<u16> = (1..MAX_CONTROLLERS).map(|_| stranger(&mut t)).collect();
    // Commands of an unauthenticated peer do not protect it from being the oldest.
    t.heard(strangers[0], NOW.plus(Nanos(SECOND)));
    for gone in &strangers[..3] {
        stranger(&mut t);
        assert_eq!(t.take_events(), [TargetEvent::Close(*gone)]);
    }
    assert_eq!(t.hosts(&nqn(NQN)).map(|(id, _)| id).collect::<Vec<_>>(), [host]);
    // Controllers of authenticated hosts stay.
    let mut t = keyed();
    for _ in 0..MAX_CONTROLLERS {
        admitted(&mut t);
    }
    let full = Hello::new(NQN, ANY_CONTROLLER, 0).send(&mut t).unwrap_err();
    assert_eq!(full.status, status::CONNECT_BUSY);
    assert!(t.take_events().is_empty());
}

/// J11: where some hosts have keys, hosts without one leave them a quarter of the controllers.
#[test]
fn j11_hosts_without_keys_leave_room_for_those_with_one() {
    let mut t = keyed_for(Hosts::Any);
    let mut without = Hello::new(NQN, ANY_CONTROLLER, 0);
    without.data.hostnqn = text("nqn.without", 0);
    let connected = (0..300).filter(|_| without.send(&mut t).is_ok()).count();
    assert_eq!(connected, MAX_CONTROLLERS / 4 * 3);
    for _ in 0..MAX_CONTROLLERS / 4 {
        stranger(&mut t);
        assert!(t.take_events().is_empty(), "no other ends for it");
    }
}

/// J13: an I/O queue whose host does not authenticate occupies no queue number and keeps no controller alive.
#[test]
fn strangers_take_no_queue_from_a_host() {
    let mut t = keyed();
    let id = admitted(&mut t);
    let deadline = t.next_deadline();
    let hello = Hello::new(NQN, id, 1);
    let [first, second] = [(); 2].map(|()| hello.send(&mut t).unwrap());
    assert!(first.authentication.is_some() && second.authentication.is_some());
    assert_eq!(t.next_deadline(), deadline);
    assert!(t.admitted(second.queue, NOW).unwrap().is_some(), "the namespaces");
    assert_eq!(t.admitted(first.queue, NOW), Err(status::SEQUENCE), "it is connected now");
    assert_eq!(hello.send(&mut t).unwrap_err().status, status::SEQUENCE | status::DNR);
    // The controller's state at the admission counts, not that at the Connect.
    let late = Hello::new(NQN, id, 2).send(&mut t).unwrap();
    enable(&mut t, id, Configuration::default());
    assert_eq!(t.take_events(), [TargetEvent::CloseIo(id)]);
    assert_eq!(t.admitted(late.queue, NOW), Err(status::SEQUENCE));
    t.disconnected(queue(id, 0));
    assert_eq!(t.admitted(late.queue, NOW), Err(status::SEQUENCE));
}

/// J13: an admin queue that fails to authenticate again ends its I/O queues at once.
#[test]
fn a_host_that_fails_again_loses_its_queues() {
    let mut t = keyed();
    let id = admitted(&mut t);
    let io = Hello::new(NQN, id, 1).send(&mut t).unwrap().queue;
    let late = Hello::new(NQN, id, 2).send(&mut t).unwrap().queue;
    t.admitted(io, NOW).unwrap();
    // The failure of an I/O queue ends only that queue.
    t.refused(io);
    assert!(t.take_events().is_empty());
    t.refused(queue(id, 0));
    assert_eq!(t.take_events(), [TargetEvent::CloseIo(id)]);
    assert_eq!(t.hosts(&nqn(NQN)).count(), 0);
    assert_eq!(t.admitted(late, NOW), Err(status::SEQUENCE));
    let refused = Hello::new(NQN, id, 1).send(&mut t).unwrap_err().status;
    assert_eq!(refused, status::CONNECT_PARAMETERS | status::DNR);
}

/// J12: a peer that has not authenticated was told no values that a later disk must respect.
#[test]
fn strangers_keep_no_disk_away() {
    let mut t = keyed();
    stranger(&mut t);
    let g = Geometry::new(8, 256, 192).unwrap();
    let shorter = Limits { zone_append_max_sectors: 16, ..Limits::default() };
    let shorter = || Namespace::of(3, [3; 16], &g, &shorter).unwrap();
    t.add_namespaces(&nqn(NQN), shorter()).unwrap();
}
