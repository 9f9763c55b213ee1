//! A server at several addresses, and a host that uses all of them.
#![cfg(feature = "nvme-tcp")]

use crate::nvme_host::{BLOCK, HOST, NQN, Queue, disk, options, pattern, soon};
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use zoneplug_host::nvme_tcp::{AnaState, NvmeTcp, NvmeTcpOptions};
use zoneplug_nvme::initiator::{
    Data, Initiator, Options, connect, read, set_queues, write, zone_append,
};
use zoneplug_nvme::spec::Command;
use zoneplug_nvme::spec::fabrics::{ANY_CONTROLLER, Configuration, property};
use zoneplug_nvme::spec::{admin, feature};

const INACCESSIBLE: u16 = 0x302;

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn two_addresses(spec: &str) -> NvmeTcp {
    let also_listen = vec![at("127.0.0.2:0")];
    let options = NvmeTcpOptions { also_listen, threads: 2, ..options() };
    NvmeTcp::start(&options, vec![disk(spec)], || ()).unwrap()
}

/// A way of a host: its admin queue and an I/O queue.
struct Path {
    admin: Queue,
    io: Queue,
}

impl Path {
    fn new(server: &NvmeTcp, address: usize) -> Path {
        let open = || {
            let stream = TcpStream::connect(server.addresses()[address]).unwrap();
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            Queue { stream, host: Initiator::new(Options::default()) }
        };
        let (mut admin, mut io) = (open(), open());
        let id = admin.ok(connect(0, 32, ANY_CONTROLLER, NQN, HOST)).completion.result as u16;
        let start = Command::property_set(property::CC, Configuration::START.encode());
        admin.ok((start, Data::None));
        admin.ok(set_queues(1));
        io.ok(connect(1, 128, id, NQN, HOST));
        Path { admin, io }
    }
}

/// J16. Writes of one zone, each other one through the other path, the last first: the order window holds them.
#[test]
fn writes_of_a_zone_over_two_paths_are_put_in_order() {
    let server = two_addresses("mem,zones=8,zone-size=4M,order_window=10s");
    let mut paths = [0, 1].map(|n| Path::new(&server, n));
    assert_eq!(server.hosts().len(), 2, "a controller for each path");
    let data = |i: u64| pattern(16_384, i as u8);
    for i in (0..64).rev() {
        let io = &mut paths[i as usize % 2].io;
        io.send(write(1, i * 4, data(i), BLOCK));
        io.flush();
    }
    for _ in 0..32 {
        for path in &mut paths {
            assert_eq!(path.io.next().completion.status, 0);
        }
    }
    for path in &mut paths {
        let all = path.io.ok(read(1, 0, 64 * 4, BLOCK)).data;
        assert!(all.chunks(16_384).zip(0..).all(|(part, i)| part == data(i)));
    }
}

/// J16. One path is cut with writes on their way; the host sends them over the other. Each is written once.
#[test]
fn a_path_that_is_cut_leaves_its_work_to_the_other() {
    let server = two_addresses("delay,write=200ms@mem,zones=8,zone-size=4M,order_window=10s");
    for round in 0..3u64 {
        let zone = round * 1024;
        let (mut dying, mut lives) = (Path::new(&server, 0), Path::new(&server, 1));
        for i in 0..16 {
            dying.io.send(write(1, zone + i, pattern(4096, i as u8), BLOCK));
        }
        dying.io.flush();
        // They are at the disk, which answers none of them yet.
        std::thread::sleep(Duration::from_millis(5 + 20 * round));
        drop(dying);
        soon("its controller is gone", || server.hosts().len() == 1);
        for i in (0..32).rev() {
            lives.io.send(write(1, zone + i, pattern(4096, i as u8), BLOCK));
        }
        for _ in 0..32 {
            assert_eq!(lives.io.next().completion.status, 0, "round {round}");
        }
        let all = lives.io.ok(read(1, zone, 32, BLOCK)).data;
        assert!(all.chunks(4096).zip(0..).all(|(part, i)| part == pattern(4096, i)));
        lives.io.ok(zone_append(1, zone, pattern(4096, 32), BLOCK));
        drop(lives);
        soon("the host is gone", || server.hosts().is_empty());
    }
}

/// J16. An address that is made inaccessible refuses what begins from then on, and its hosts are told.
#[test]
fn an_address_is_taken_out_of_use() {
    let server = two_addresses("mem,zones=8,zone-size=4M");
    let mut paths = [0, 1].map(|n| Path::new(&server, n));
    let events = Command::new(admin::SET_FEATURES).with_cdw(10, u32::from(feature::ASYNC_EVENTS));
    let second = &mut paths[1].admin;
    second.ok((events.with_cdw(11, 1 << 11), Data::None));
    second.send((Command::new(admin::ASYNC_EVENT_REQUEST), Data::None));
    second.flush();
    // Behind the request on the same queue: the request is there.
    second.send((Command::new(admin::KEEP_ALIVE), Data::None));
    assert_eq!(second.next().completion.status, 0);
    server.set_ana_state(1, AnaState::Inaccessible);
    assert_eq!(second.next().completion.result, 2 | 3 << 8 | 0x0c << 16);
    let mut ask = |n: usize| paths[n].io.run(read(1, 0, 1, BLOCK)).completion.status;
    soon("it refuses", || ask(1) == INACCESSIBLE);
    assert_eq!(ask(0), 0);
    server.set_ana_state(1, AnaState::NonOptimized);
    soon("it takes commands again", || ask(1) == 0);
    assert_eq!([0, 1].map(|n| server.ana_state(n)), [AnaState::Optimized, AnaState::NonOptimized]);
}

/// J16. All addresses or none; one that other machines reach counts, whichever it is.
#[test]
fn addresses_that_cannot_be_had() {
    let with = |first: &str, second: &str| {
        let also_listen = vec![at(second)];
        let listen = at(first);
        let options = NvmeTcpOptions { listen, also_listen, threads: 1, ..options() };
        NvmeTcp::start(&options, vec![disk("mem,zones=8,zone-size=4M")], || ())
    };
    let e = with("127.0.0.1:0", "192.0.2.1:0").unwrap_err();
    assert!(e.to_string().contains("192.0.2.1:0 is reached from other machines"), "{e}");
    let taken = with("127.0.0.1:0", "127.0.0.2:0").unwrap();
    let e = with("127.0.0.3:0", &taken.addresses()[1].to_string()).unwrap_err();
    assert!(e.to_string().contains("cannot listen"), "{e}");
    // The end closes both.
    let addresses = taken.addresses().to_vec();
    let mut idle = addresses.iter().map(|a| TcpStream::connect(a).unwrap()).collect::<Vec<_>>();
    drop(taken);
    assert!(idle.iter_mut().all(|s| s.read(&mut [0; 8]).unwrap_or(0) == 0));
    assert!(addresses.iter().all(|a| TcpStream::connect(a).is_err()));
}
