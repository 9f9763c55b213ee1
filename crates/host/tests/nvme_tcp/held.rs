//! Writes that wait in the order window while the server has yet to take the data of the write before them.
#![cfg(feature = "nvme-tcp")]

use crate::kept_log::Kept;
use crate::nvme_host::{BLOCK, HOST, Host, Queue, options, pattern, soon};
use std::io::{Read, Write};
use std::time::Duration;
use zoneplug_core::{Nanos, Op};
use zoneplug_host::HostedDisk;
use zoneplug_host::nvme_tcp::{AnaState, Disk, NvmeTcp, NvmeTcpOptions};
use zoneplug_nvme::initiator::{Options, read, write};
use zoneplug_nvme::spec::status;

/// A disk that outlives its servers.
struct Served(HostedDisk);

impl Served {
    fn new(window: &str) -> Served {
        let spec = format!("mem,zones=8,zone-size=4M,order_window={window}");
        Served(HostedDisk::open_spec(&spec).unwrap())
    }

    fn serve(&self) -> NvmeTcp {
        let disk = Disk {
            disk: self.0.clone(),
            spec: "/disk.zbd".parse().unwrap(),
            tags: None,
            known: None,
        };
        let options = NvmeTcpOptions { latencies: true, ..options() };
        NvmeTcp::start(&options, vec![disk], || ()).unwrap()
    }

    /// How many writes the order window has held so far, how many of them are held now, and how many it has given up.
    fn window(&self) -> (u64, u64, u64) {
        let w = self.0.disk().counters().window;
        (w.held, w.writes, w.expired)
    }

    /// Sends a write whose data the server has to ask for, and a write behind it, which comes with its data and is held.
    /// Returns their identifiers, and the bytes that the server has asked for and that were not sent.
    fn send_held(&self, q: &mut Queue) -> (u16, u16, Vec<u8>) {
        let (first, asked) = asked_for_data(q);
        let held = self.window().0;
        let second = q.send(write(1, 4, pattern(BLOCK as usize, 2), BLOCK));
        q.flush();
        soon("the write is held", || self.window().0 > held);
        (first, second, asked)
    }
}

/// Sends a write of the first four blocks, whose data the server has to ask for. Returns its identifier, and the bytes that
/// the server has asked for and that were not sent.
fn asked_for_data(q: &mut Queue) -> (u16, Vec<u8>) {
    let first = q.send(write(1, 0, pattern(4 * BLOCK as usize, 1), BLOCK));
    q.flush();
    let (mut bytes, mut asked) = ([0; 4096], Vec::new());
    while asked.is_empty() {
        let n = q.stream.read(&mut bytes).unwrap();
        q.host.received(&bytes[..n]).unwrap();
        asked = q.host.take_output();
    }
    (first, asked)
}

/// Commands that are answered until the server closes the connection.
fn answered(q: &mut Queue) -> Vec<(u16, u16)> {
    let (mut bytes, mut all) = ([0; 4096], Vec::new());
    loop {
        let n = q.stream.read(&mut bytes).unwrap_or(0);
        q.host.received(&bytes[..n]).unwrap();
        while let Some(done) = q.host.done() {
            all.push((done.completion.cid, done.completion.status));
        }
        if n == 0 {
            return all;
        }
    }
}

/// L11. The window ends within the time that a server has to end. Its host sends again what was not answered.
#[test]
fn l11_a_server_that_ends_refuses_no_write_that_waits_for_another() {
    let served = Served::new("300ms");
    let server = served.serve();
    let (_admin, id) = Queue::admin(&server, Options::default());
    let [mut q, mut other] = [1, 2].map(|qid| Queue::io(&server, id, qid, Options::default()));
    let (_, _, asked) = served.send_held(&mut q);
    // One that waits for the writes of the first queue.
    other.send(write(1, 5, pattern(BLOCK as usize, 3), BLOCK));
    other.flush();
    soon("it is held too", || served.window().1 == 2);
    drop(server);
    // They come too late.
    let _ = q.stream.write_all(&asked);
    assert_eq!((answered(&mut q), answered(&mut other)), (vec![], vec![]));
    let (_, held, expired) = served.window();
    assert_eq!((held, expired), (0, 0), "it was taken back");
    let server = served.serve();
    let mut host = Host::new(&server, HOST);
    assert_eq!(host.write(0, &pattern(4 * BLOCK as usize, 1)), 0);
    assert_eq!(host.write(4, &pattern(BLOCK as usize, 2)), 0);
    assert_eq!(host.read(4, 1), pattern(BLOCK as usize, 2));
}

/// L12. The window is over while the server waits for data that it has asked for.
#[test]
fn l12_a_write_is_not_refused_while_the_server_waits_for_the_data_of_one_before_it() {
    let served = Served::new("20ms");
    let server = served.serve();
    let mut host = Host::new(&server, HOST);
    // A queue that has begun two operations in 4 ms does not time each.
    std::thread::sleep(Duration::from_millis(10));
    let (first, second, asked) = served.send_held(&mut host.io);
    soon("its time is over", || served.window().2 == 1);
    // An answer that is sent for it comes before this one.
    assert_eq!(host.read(0, 1), [0; BLOCK as usize]);
    std::thread::sleep(Duration::from_millis(60));
    host.io.stream.write_all(&asked).unwrap();
    let done = [host.io.next(), host.io.next()].map(|d| (d.completion.cid, d.completion.status));
    assert_eq!(done, [(first, 0), (second, 0)]);
    assert_eq!(host.read(4, 1), pattern(BLOCK as usize, 2));
    // Each is one operation. The disk has refused the second, which began before that and took longer than the window.
    let operations = server.counters(0).operations;
    let latency = operations.iter().find(|o| o.op == Op::Write).unwrap().latency.unwrap();
    assert_eq!(latency.count(), 2);
    assert!(latency.sum >= Nanos(80_000_000), "{:?}", latency.sum);
    // Behind a gap whose write has not come, one is refused when its time is over.
    assert_eq!(host.write(6, &pattern(BLOCK as usize, 3)), 0x41bc);
}

/// L12. The same with two connections, as an initiator with a queue for each processor has them. The disk is new to the queue
/// whose data are awaited.
#[test]
fn l12_a_write_is_not_refused_while_another_connection_waits_for_the_data_of_one_before_it() {
    let served = Served::new("20ms");
    let server = served.serve();
    let (_admin, id) = Queue::admin(&server, Options::default());
    let [mut first, mut second] = [1, 2].map(|qid| Queue::io(&server, id, qid, Options::default()));
    let (long, asked) = asked_for_data(&mut first);
    let short = second.send(write(1, 4, pattern(BLOCK as usize, 2), BLOCK));
    second.flush();
    soon("its time is over", || served.window().2 == 1);
    // An answer that is sent for it comes before this one.
    assert_eq!(second.ok(read(1, 0, 1, BLOCK)).data, [0; BLOCK as usize]);
    first.stream.write_all(&asked).unwrap();
    let done = [first.next(), second.next()].map(|d| (d.completion.cid, d.completion.status));
    assert_eq!(done, [(long, 0), (short, 0)]);
    assert_eq!(first.ok(read(1, 4, 1, BLOCK)).data, pattern(BLOCK as usize, 2));
    // Behind a gap whose write has not come, one is refused when its time is over, after one window.
    let refused = second.run(write(1, 6, pattern(BLOCK as usize, 3), BLOCK)).completion.status;
    assert_eq!(refused, 0x41bc);
}

/// A program that has a logger hears of a write that was held in vain and what helps, and not of one that is refused at once.
#[test]
fn a_write_that_was_held_in_vain_is_logged() {
    let kept = Kept::warnings();
    // Other tests of this program have other windows.
    let said = || kept.lines("within 21 ms");
    let served = Served::new("21ms");
    let server = served.serve();
    let mut host = Host::new(&server, HOST);
    assert_eq!(host.write(0, &pattern(BLOCK as usize, 1)), 0);
    assert_eq!(host.write(0, &pattern(BLOCK as usize, 1)), 0x41bc);
    assert_eq!(said().len(), 0);
    assert_eq!(host.write(6, &pattern(BLOCK as usize, 1)), 0x41bc);
    assert_eq!(said().len(), 1);
    let line = &said()[0];
    assert!(
        line.starts_with("WARN held-in-vain: /disk.zbd: a write at sector 48 was refused"),
        "{line}"
    );
    assert!(line.contains("order_window"), "{line}");
    assert_eq!(host.write(0, &pattern(BLOCK as usize, 1)), 0x41bc);
    assert_eq!(said().len(), 1);
}

/// L12. The connection whose data are awaited ends.
#[test]
fn l12_a_write_is_refused_when_the_connection_with_the_one_before_it_has_ended() {
    let served = Served::new("20ms");
    let server = served.serve();
    let (_admin, id) = Queue::admin(&server, Options::default());
    let [mut first, mut second] = [1, 2].map(|qid| Queue::io(&server, id, qid, Options::default()));
    asked_for_data(&mut first);
    second.send(write(1, 4, pattern(BLOCK as usize, 2), BLOCK));
    second.flush();
    soon("its time is over", || served.window().2 == 1);
    drop(first);
    assert_eq!(second.next().completion.status, 0x41bc);
}

/// A write whose write before it has not come does not wait at an address that has become inaccessible.
#[test]
fn a_held_write_does_not_wait_at_an_address_that_becomes_inaccessible() {
    let served = Served::new("20s");
    let server = served.serve();
    let mut host = Host::new(&server, HOST);
    let held = host.io.send(write(1, 4, pattern(BLOCK as usize, 2), BLOCK));
    host.io.flush();
    soon("the write is held", || served.window().1 == 1);
    let began = std::time::Instant::now();
    server.set_ana_state(0, AnaState::Inaccessible);
    let done = host.io.next().completion;
    assert_eq!((done.cid, done.status), (held, status::INACCESSIBLE));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

/// At an address that has become inaccessible the write before it does not begin any more.
#[test]
fn a_write_that_waits_at_an_address_that_becomes_inaccessible_may_go_to_another() {
    let served = Served::new("20s");
    let server = served.serve();
    let mut host = Host::new(&server, HOST);
    let (first, second, asked) = served.send_held(&mut host.io);
    server.set_ana_state(0, AnaState::Inaccessible);
    let next = |q: &mut Queue| {
        let done = q.next().completion;
        (done.cid, done.status)
    };
    assert_eq!(next(&mut host.io), (second, status::INACCESSIBLE));
    host.io.stream.write_all(&asked).unwrap();
    assert_eq!(next(&mut host.io), (first, status::INACCESSIBLE));
}
