//! Peers that open connections and never connect.
#![cfg(feature = "nvme-tcp")]

use crate::nvme_host::{BLOCK, HOST, Host, MEM, NQN, Queue, disk, options, pattern, soon};
use std::io::{Read, Write};
use std::net::TcpStream;
use zoneplug_host::nvme_tcp::{KnownClient, NvmeTcp, NvmeTcpOptions};
use zoneplug_nvme::initiator::{Initiator, Options, connect};
use zoneplug_nvme::spec::fabrics::ANY_CONTROLLER;

const MAX: usize = 64;
/// Connections of a server of which hosts share the half.
const WIDE: usize = 128;

/// A connection with ICReq, that was answered, and nothing else.
fn stranger(server: &NvmeTcp) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let bytes = Initiator::new(Options::default()).take_output();
    stream.write_all(&bytes).unwrap();
    // A server that closes it at once may not answer.
    let _ = stream.read(&mut [0; 128]);
    stream
}

/// The admin queue of a host of an invented name. `None`: it was refused.
fn invented(server: &NvmeTcp, n: usize) -> Option<Queue> {
    let mut queue = Queue::open(server, Options::default());
    let name = format!("nqn.2014-08.org.example:invented{n}");
    let bytes = queue.host.take_output();
    queue.stream.write_all(&bytes).ok()?;
    queue.send(connect(0, 32, ANY_CONTROLLER, NQN, &name));
    let mut bytes = [0; 4096];
    loop {
        let out = queue.host.take_output();
        queue.stream.write_all(&out).ok()?;
        if let Some(done) = queue.host.done() {
            return (done.completion.status == 0).then_some(queue);
        }
        match queue.stream.read(&mut bytes) {
            Ok(n) if n > 0 => queue.host.received(&bytes[..n]).ok()?,
            _ => return None,
        }
    }
}

fn flooded(known: Vec<KnownClient>) -> NvmeTcp {
    let options =
        NvmeTcpOptions { threads: 2, max_connections: WIDE, known_hosts: known, ..options() };
    NvmeTcp::start(&options, vec![disk(MEM)], || ()).unwrap()
}

/// K3. A Connect that is refused gives its place back, and its host does not become a known one.
#[test]
fn k3_hosts_that_may_not_connect_take_no_places() {
    let only = Some(vec![HOST.to_owned()]);
    let options = NvmeTcpOptions { threads: 2, max_connections: MAX, hosts: only, ..options() };
    let server = NvmeTcp::start(&options, vec![disk(MEM)], || ()).unwrap();
    assert!((0..3 * MAX).all(|n| invented(&server, n).is_none()));
    let mut host = Host::new(&server, HOST);
    assert_eq!(host.write(0, &pattern(BLOCK as usize, 1)), 0);
    let known: Vec<String> = server.known_hosts().into_iter().map(|k| k.name).collect();
    assert_eq!(known, [HOST]);
}

/// K3. A peer that connects under invented names has its share of the places, and a host that was connected before gets in.
#[test]
fn k3_hosts_of_invented_names_keep_no_known_host_out() {
    let server = flooded(Vec::new());
    let host = Host::new(&server, HOST);
    drop(host);
    soon("it has gone", || server.hosts().is_empty());
    let mut flood: Vec<Queue> = (0..2 * WIDE).filter_map(|n| invented(&server, n)).collect();
    for n in 0..4 {
        let mut host = Host::new(&server, HOST);
        assert_eq!(host.write(n, &pattern(BLOCK as usize, n as u8)), 0);
        flood.extend((0..WIDE / 4).filter_map(|i| invented(&server, 1000 * i + n as usize)));
    }
    // One that was not connected before shares the places with the flood.
    assert!(flood.len() >= WIDE / 2, "{}", flood.len());
    assert!(invented(&server, 7777).is_none());
}

/// K3. After a takeover the next server knows the hosts of the last one, although the flood comes first.
#[test]
fn k3_all_hosts_get_in_after_a_takeover_during_a_flood() {
    let server = flooded(Vec::new());
    let names = [HOST, "nqn.2014-08.org.example:second", "nqn.2014-08.org.example:third"];
    let hosts = names.map(|name| Host::new(&server, name));
    let _flood: Vec<Queue> = (0..WIDE).filter_map(|n| invented(&server, n)).collect();
    let mut known = server.known_hosts();
    // A name that is no NQN becomes no host.
    let address = "192.0.2.9".parse().unwrap();
    known.push(KnownClient { name: "no name".repeat(99), address });
    drop((hosts, server));
    let server = flooded(known.clone());
    assert_eq!(server.known_hosts(), known[..known.len() - 1]);
    let mut strangers: Vec<TcpStream> = (0..WIDE / 4).map(|_| stranger(&server)).collect();
    let _flood: Vec<Queue> = (0..2 * WIDE).filter_map(|n| invented(&server, n)).collect();
    let mut hosts = names.map(|name| {
        strangers.extend((0..WIDE / 4).map(|_| stranger(&server)));
        Host::new(&server, name)
    });
    for (n, host) in hosts.iter_mut().enumerate() {
        assert_eq!(host.write(n as u64, &pattern(BLOCK as usize, n as u8)), 0);
    }
}

/// K3. Also when all places were taken before the host comes, and while more of them come.
#[test]
fn k3_connections_that_never_connect_keep_no_host_out() {
    let options = NvmeTcpOptions { threads: 2, max_connections: MAX, ..options() };
    let server = NvmeTcp::start(&options, vec![disk(MEM)], || ()).unwrap();
    let mut first = Host::new(&server, HOST);
    let mut flood: Vec<TcpStream> = (0..2 * MAX).map(|_| stranger(&server)).collect();
    for n in 0..8 {
        let mut host = Host::new(&server, HOST);
        assert_eq!(host.write(n, &pattern(BLOCK as usize, n as u8)), 0);
        flood.extend((0..MAX / 4).map(|_| stranger(&server)));
        // Hosts that are connected stay, the oldest too.
        assert_eq!(host.read(n, 1), pattern(BLOCK as usize, n as u8));
        assert_eq!(first.read(n, 1), pattern(BLOCK as usize, n as u8));
    }
    // The youngest stay, the oldest were closed.
    let is_open = |s: &mut TcpStream| {
        s.set_nonblocking(true).unwrap();
        s.read(&mut [0; 128]).is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock)
    };
    assert!(is_open(flood.last_mut().unwrap()));
    soon("the oldest is closed", || !is_open(&mut flood[0]));
}
