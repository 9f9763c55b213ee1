//! A target with two ports: what its structures and logs report, and what hosts learn when a port is not to be used.

use super::testing::*;
use super::{AnaState, Connected, Hosts, SubsystemConfig, Target, TargetEvent};
use crate::spec::fabrics::{ANY_CONTROLLER, Configuration, ConnectData, DISCOVERY_NQN};
use crate::spec::identify::{
    IdentifyController, IdentifyNamespace, IdentifyNamespaceIndependent, cns,
};
use crate::spec::log::{AnaGroup, AnaHeader, DiscoveryEntry, DiscoveryHeader, lid};
use crate::spec::{Command, feature, opcode, status};
use crate::target::io::{CommandStep, Task};

const PORTS: [&str; 2] = ["10.0.2.2:4420", "10.0.2.3:4420"];

fn two_ports() -> Target {
    let mut t = Target::new(PORTS.map(|p| p.parse().unwrap()).to_vec());
    let config = SubsystemConfig { max_queues: 4, ..SubsystemConfig::new(nqn(NQN)) };
    t.add_subsystem(SubsystemConfig { hosts: Hosts::Any, ..config }).unwrap();
    t.add_namespaces(&nqn(NQN), mixed(0)).unwrap();
    t
}

/// Connects a controller of one host through a port, and its I/O queue.
fn connect_at(t: &mut Target, port: usize) -> (u16, Connected) {
    let send = |t: &mut Target, h: &Hello| {
        let c = with_data(h.fields.encode().with_cid(77), ConnectData::LEN as u32);
        t.connect(&c, &h.data.encode(), PORTS[port].parse().unwrap(), NOW).unwrap()
    };
    let id = send(t, &Hello::new(NQN, ANY_CONTROLLER, 0)).queue.controller;
    enable(t, id, Configuration::START);
    ok(t, id, set_feature(feature::QUEUES, 3 | 3 << 16));
    (id, send(t, &Hello::new(NQN, id, 1)))
}

fn controller(t: &mut Target, id: u16) -> IdentifyController {
    IdentifyController::read(&ok(t, id, identify(cns::CONTROLLER, 0, 0)).1).unwrap()
}

/// Reads the ANA log page: the group, its namespaces, and the number of changes.
fn ana(t: &mut Target, id: u16) -> (AnaGroup, Vec<u8>, u64) {
    let log = ok(t, id, log_page(lid::ANA, 64, 0)).1;
    let header = AnaHeader::read(&log).unwrap();
    assert_eq!(header.groups, 1);
    let group = AnaGroup::read(&log[16..]).unwrap();
    assert_eq!((group.id, group.change_count), (1, header.change_count));
    (group, log[48..].to_vec(), header.change_count)
}

/// J16: structures mention several ports only if there are several.
#[test]
fn what_is_said_of_several_ports() {
    let mut t = two_ports();
    let (id, _) = connect_at(&mut t, 0);
    let c = controller(&mut t, id);
    assert_eq!((c.cmic, c.anagrpmax, c.nanagrpid), (1 | 2 | 8, 1, 1));
    assert_eq!((c.anacap, c.anatt, c.oaes), (0x47, 1, 1 << 8 | 1 << 11));
    for nsid in [1, 2] {
        let of = |cns| identify(cns, 0, nsid);
        let n = IdentifyNamespace::read(&ok(&mut t, id, of(cns::NAMESPACE)).1).unwrap();
        assert_eq!((n.nmic, n.anagrpid), (1, 1));
        let n = ok(&mut t, id, of(cns::INDEPENDENT_NAMESPACE)).1;
        let n = IdentifyNamespaceIndependent::read(&n).unwrap();
        assert_eq!((n.nmic, n.anagrpid), (1, 1));
    }
    // The structure of a namespace that does not exist is all zeroes here, too.
    assert!(ok(&mut t, id, identify(cns::NAMESPACE, 0, 9)).1.iter().all(|b| *b == 0));
    let logs = ok(&mut t, id, log_page(lid::SUPPORTED, 1024, 0)).1;
    assert_eq!(logs[4 * usize::from(lid::ANA)], 1);

    let mut t = target();
    let id = connect(&mut t);
    let c = controller(&mut t, id);
    assert_eq!((c.cmic, c.anagrpmax, c.nanagrpid, c.anacap, c.anatt), (0, 0, 0, 0, 0));
    assert_eq!(c.oaes, 1 << 8);
    let n = ok(&mut t, id, identify(cns::NAMESPACE, 0, 1)).1;
    assert_eq!(IdentifyNamespace::read(&n).unwrap().nmic, 0);
    assert_eq!(fails(&mut t, id, log_page(lid::ANA, 64, 0)), status::INVALID_LOG | status::DNR);
    let refused = fails(&mut t, id, set_feature(feature::ASYNC_EVENTS, 1 << 11));
    assert_eq!(refused, status::INVALID_FIELD | status::DNR);
}

/// J16: the ANA log page of each port, with and without namespaces.
#[test]
fn the_log_of_ana() {
    let mut t = two_ports();
    let (first, _) = connect_at(&mut t, 0);
    let (second, _) = connect_at(&mut t, 1);
    assert_ne!(first, second, "a controller for each way");
    for id in [first, second] {
        let (group, numbers, changes) = ana(&mut t, id);
        assert_eq!((group.nsids, group.state, changes), (2, 1, 0));
        assert_eq!(numbers, [1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let c = log_page(lid::ANA, 64, 0);
        let groups_only = ok(&mut t, id, c.with_cdw(10, c.cdw(10) | 1 << 8)).1;
        assert_eq!(AnaGroup::read(&groups_only[16..]).unwrap().nsids, 0);
        assert!(groups_only[48..].iter().all(|b| *b == 0));
    }
    t.set_ana_state(1, AnaState::NonOptimized);
    let states = [first, second].map(|id| ana(&mut t, id).0.state);
    assert_eq!((states, t.ana_state(1)), ([1, 2], AnaState::NonOptimized));
    // Setting a state again is no change, and there is no third port.
    t.set_ana_state(1, AnaState::NonOptimized);
    t.set_ana_state(2, AnaState::Inaccessible);
    assert_eq!(ana(&mut t, first).2, 1);
    // A host that connects later finds the state of its port.
    let (third, _) = connect_at(&mut t, 1);
    assert_eq!(ana(&mut t, third).0.state, 2);
}

/// J16: hosts of the port get one event until they have read the log. Other events are independent of it.
#[test]
fn changes_are_announced() {
    let mut t = two_ports();
    let (first, _) = connect_at(&mut t, 0);
    let (second, _) = connect_at(&mut t, 1);
    for id in [first, second] {
        ok(&mut t, id, set_feature(feature::ASYNC_EVENTS, 1 << 8 | 1 << 11));
        (40..43).for_each(|cid| request_event(&mut t, id, cid));
    }
    let announced = |t: &mut Target| -> Vec<(u16, u16, u64)> {
        let complete = |e| match e {
            TargetEvent::Complete(id, c) => Some((id, c.cid, c.result)),
            _ => None,
        };
        t.take_events().into_iter().filter_map(complete).collect()
    };
    const ANA: u64 = 2 | 3 << 8 | 0x0c << 16;
    t.set_ana_state(1, AnaState::NonOptimized);
    assert_eq!(announced(&mut t), [(second, 40, ANA)]);
    t.set_ana_state(1, AnaState::Inaccessible);
    assert_eq!(announced(&mut t), [], "not read yet");
    // An event of the other kind still reaches the host.
    t.remove_namespaces(&nqn(NQN), 0).unwrap();
    let changed = 2 | 4 << 16;
    assert_eq!(announced(&mut t), [(first, 40, changed), (second, 41, changed)]);
    assert_eq!(ana(&mut t, second).0.state, 3);
    t.set_ana_state(1, AnaState::Optimized);
    assert_eq!(announced(&mut t), [(second, 42, ANA)]);
    // Reading one log does not rearm the event of the other.
    ana(&mut t, second);
    t.add_namespaces(&nqn(NQN), mixed(1)).unwrap();
    request_event(&mut t, second, 43);
    assert_eq!(announced(&mut t), [], "neither host has read of the last change");
    ok(&mut t, second, log_page(lid::CHANGED_NAMESPACES, 4096, 0));
    t.remove_namespaces(&nqn(NQN), 1).unwrap();
    assert_eq!(announced(&mut t), [(second, 43, changed)]);
}

/// J16: I/O at an inaccessible port fails so that hosts send it elsewhere, and queues learn of it at once.
#[test]
fn an_inaccessible_port_takes_no_io() {
    let mut t = two_ports();
    let (_, other) = connect_at(&mut t, 0);
    let (id, io) = connect_at(&mut t, 1);
    let read = with_data(Command::new(opcode::READ).with_nsid(1), 4096);
    let answer = |all: &super::Namespaces| match Task::begin(&read, all, None).1 {
        CommandStep::Submit(_) => 0,
        CommandStep::Answer(c, _) => c.status,
    };
    assert_eq!(answer(&io.namespaces.unwrap()), 0);
    t.set_ana_state(1, AnaState::Inaccessible);
    let events = t.take_events();
    let [TargetEvent::Namespaces(of, all)] = &events[..] else { panic!("{events:?}") };
    // The status comes without *do not retry*.
    assert_eq!((*of, answer(all)), (id, status::INACCESSIBLE));
    assert_eq!(answer(&other.namespaces.unwrap()), 0);
    // A namespace that does not exist still gives its own error.
    let none = with_data(Command::new(opcode::READ).with_nsid(9), 4096);
    let CommandStep::Answer(c, _) = Task::begin(&none, all, None).1 else { panic!("it is begun") };
    assert_eq!(c.status, status::INVALID_NAMESPACE | status::DNR);
    // A queue that connects now, or that learns of a disk, behaves the same.
    let (late, io) = connect_at(&mut t, 1);
    assert_eq!(answer(&io.namespaces.unwrap()), status::INACCESSIBLE);
    t.add_namespaces(&nqn(NQN), mixed(1)).unwrap();
    for e in t.take_events() {
        let TargetEvent::Namespaces(of, all) = e else { continue };
        let want = if [id, late].contains(&of) { status::INACCESSIBLE } else { 0 };
        assert_eq!(answer(&all), want, "{of}");
    }
    // Admin commands still work.
    assert_eq!(controller(&mut t, id).cmic, 11);
    t.set_ana_state(1, AnaState::Optimized);
    let events = t.take_events();
    let [TargetEvent::Namespaces(a, all), TargetEvent::Namespaces(b, _)] = &events[..] else {
        panic!()
    };
    assert_eq!(([*a, *b], answer(all)), ([id, late], 0));
}

/// J9, J16: discovery shows the subsystem at each port.
#[test]
fn discovery_lists_both_ports() {
    let mut t = two_ports();
    let id = discover(&mut t);
    let log = ok(&mut t, id, log_page(lid::DISCOVERY, 3072, 0)).1;
    assert_eq!(DiscoveryHeader::read(&log).unwrap().numrec, 2);
    let entries = [0, 1].map(|n| DiscoveryEntry::read(&log[1024 * (n + 1)..]).unwrap());
    let address = |e: &DiscoveryEntry| String::from_utf8(e.traddr[..8].to_vec()).unwrap();
    assert_eq!(
        entries.map(|e| (e.portid, address(&e))),
        [(1, "10.0.2.2".to_owned()), (2, "10.0.2.3".to_owned())]
    );
    assert!(t.hosts(&nqn(DISCOVERY_NQN)).next().is_none());
}
