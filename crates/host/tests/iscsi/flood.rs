//! Peers that open connections and do not log in, and peers that log in under invented names (S9).

use crate::initiator::{Initiator, NAME, options, serve};
use crate::soon::soon;
use std::net::TcpStream;
use zoneplug_host::iscsi::{Iscsi, IscsiOptions, KnownClient, Secret};

/// Connections of a server of which initiators share the half.
const WIDE: usize = 128;
const KNOWN: &str = "iqn.2026-11.test:known";

fn name(n: usize) -> String {
    format!("iqn.2026-11.test:invented{n}")
}

/// A session under an invented name. `None`: the target has no room for it.
fn invented(server: &Iscsi, n: usize) -> Option<Initiator> {
    let mut initiator = Initiator::connect(server);
    match initiator.log_in(&name(n), 1) {
        [0, 0] => Some(initiator),
        refused => {
            assert_eq!(refused, [3, 2], "out of resources");
            None
        }
    }
}

fn flooded(known: Vec<KnownClient>) -> Iscsi {
    serve(&IscsiOptions { max_connections: WIDE, known_initiators: known, ..options() })
}

/// S9. Each new connection of a peer that does not log in closes one of its old ones. Initiators stay, and get in.
#[test]
fn s9_connections_that_never_log_in_keep_no_initiator_out() {
    let server = serve(&IscsiOptions { max_connections: 16, threads: 1, ..options() });
    let mut first = Initiator::connect(&server);
    assert_eq!(first.log_in("iqn.2026-11.test:1", 1), [0, 0]);
    let flood: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    let mut second = Initiator::connect(&server);
    assert_eq!(second.log_in("iqn.2026-11.test:2", 1), [0, 0]);
    for i in [&mut first, &mut second] {
        assert_eq!(i.command(0, &[0; 6], 0, &[]).unwrap().0, 0);
    }
    drop(flood);
}

/// S9. A peer that logs in under invented names has its share of the places. An initiator that was there before gets in.
#[test]
fn s9_invented_names_keep_no_known_initiator_out() {
    let server = flooded(Vec::new());
    drop(Initiator::logged_in(&server, KNOWN));
    soon("it has gone", || server.initiators().is_empty());
    let mut flood: Vec<Initiator> = (0..2 * WIDE).filter_map(|n| invented(&server, n)).collect();
    for n in 0..4 {
        let mut initiator = Initiator::logged_in(&server, KNOWN);
        assert_eq!(initiator.write(n, &[n as u8; 4096]), (0, None));
        flood.extend((0..WIDE / 4).filter_map(|i| invented(&server, 1000 * i + n as usize)));
    }
    // One that was not there before shares the places with the flood.
    assert!(flood.len() >= WIDE / 2, "{}", flood.len());
    assert!(invented(&server, 7777).is_none());
    // A place that is given back can be taken again.
    drop(flood);
    soon("another gets in", || invented(&server, 7777).is_some());
}

/// S9. After a takeover the next server knows the initiators of the last one, although the flood comes first.
#[test]
fn s9_all_initiators_get_in_after_a_takeover_during_a_flood() {
    let server = flooded(Vec::new());
    let names = [KNOWN, "iqn.2026-11.test:second", "iqn.2026-11.test:third"];
    let initiators = names.map(|name| Initiator::logged_in(&server, name));
    let _flood: Vec<Initiator> = (0..WIDE).filter_map(|n| invented(&server, n)).collect();
    let mut known = server.known_initiators();
    // A name that is none becomes no initiator.
    let address = "192.0.2.9".parse().unwrap();
    known.push(KnownClient { name: "no name".repeat(99), address });
    drop((initiators, server));
    let server = flooded(known.clone());
    assert_eq!(server.known_initiators(), known[..known.len() - 1]);
    let stranger = |_| TcpStream::connect(server.address()).unwrap();
    let mut strangers: Vec<TcpStream> = (0..WIDE / 8).map(stranger).collect();
    let _flood: Vec<Initiator> = (0..2 * WIDE).filter_map(|n| invented(&server, n)).collect();
    for (n, name) in names.iter().enumerate() {
        strangers.extend((0..WIDE / 8).map(stranger));
        let mut initiator = Initiator::logged_in(&server, name);
        assert_eq!(initiator.write(n as u32, &[n as u8; 4096]), (0, None));
    }
}

/// S9. An initiator that proves who it is needs no place among those that do not.
#[test]
fn s9_invented_names_keep_no_initiator_with_a_secret_out() {
    let secret = Secret::parse("twelve or more").unwrap();
    let server = serve(&IscsiOptions {
        max_connections: WIDE,
        initiators: Some((0..WIDE).map(name).collect()),
        secrets: vec![(KNOWN.to_owned(), secret.clone())],
        ..options()
    });
    let flood: Vec<Initiator> = (0..WIDE).filter_map(|n| invented(&server, n)).collect();
    assert!((WIDE / 2..WIDE * 3 / 4).contains(&flood.len()), "{}", flood.len());
    for _ in 0..4 {
        let mut initiator = Initiator::connect(&server);
        assert_eq!(initiator.prove(KNOWN, &secret, &[]).0, [0, 0], "{NAME}");
    }
    assert!(server.known_initiators().iter().all(|k| k.name != KNOWN));
}
