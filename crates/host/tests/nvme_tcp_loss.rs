//! Hosts that lose their connections while commands are in flight, and send them again.
#![cfg(feature = "nvme-tcp")]
#![allow(clippy::unwrap_used)]

#[path = "common/nvme_host.rs"]
mod nvme_host;

use nvme_host::{BLOCK, HOST, NQN, Queue, ZONE, options, pattern, server, soon};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use zoneplug_host::HostedDisk;
use zoneplug_host::file::{CreateOptions, create};
use zoneplug_host::nvme_tcp::{Disk, NvmeTcp, NvmeTcpOptions};
use zoneplug_nvme::initiator::{
    Data, Options, connect, read, report_zones, reset_zone, write, zone_append,
};
use zoneplug_nvme::spec::Command;
use zoneplug_nvme::spec::fabrics::{Configuration, csts, property};

/// A host that is not the usual one.
const OTHER: &str = "nqn.2014-08.org.nvmexpress:uuid:0b0b0b0b-0b0b-0b0b-0b0b-0b0b0b0b0b0b";
const INVALID_WRITE: u16 = 0x41bc;
/// Writes and appends take their time.
const SLOW: &str = "delay,write=300ms@mem,zones=8,zone-size=4M";

/// A controller with one I/O queue.
struct Host {
    admin: Queue,
    io: Queue,
}

impl Host {
    fn new(server: &NvmeTcp, nqn: &str) -> Host {
        let (admin, id) = Queue::admin_of(server, nqn, Options::default());
        let io = Queue::io_of(server, nqn, id, 1, Options::default());
        Host { admin, io }
    }

    /// The write pointer of zone `n`, in blocks from its start.
    fn written(&mut self, n: u64) -> u64 {
        let report = self.io.ok(report_zones(1, n * ZONE, 128)).data;
        u64::from_le_bytes(report[64 + 24..64 + 32].try_into().unwrap()) - n * ZONE
    }

    fn write(&mut self, at: u64, data: &[u8]) -> u16 {
        self.io.run(write(1, at, data.to_vec(), BLOCK)).completion.status
    }

    fn append(&mut self, at: u64, data: &[u8]) -> u64 {
        self.io.ok(zone_append(1, at, data.to_vec(), BLOCK)).completion.result
    }

    fn read(&mut self, at: u64, blocks: u32) -> Vec<u8> {
        self.io.ok(read(1, at, blocks, BLOCK)).data
    }

    /// Sends commands with data in their capsules, and ends both connections before they are answered. The server reads what
    /// was sent before it sees the end.
    fn lose(mut self, server: &NvmeTcp, commands: Vec<(Command, Data)>) {
        commands.into_iter().for_each(|c| _ = self.io.send(c));
        self.io.flush();
        let queues = || server.hosts().iter().map(|h| h.queues).sum::<usize>();
        let before = queues();
        drop(self.io);
        soon("its end was seen", || queues() < before);
        drop(self.admin);
    }
}

fn replayed(server: &NvmeTcp) -> u64 {
    server.counters(0).replayed
}

/// L1. Nothing of a new connection is carried out before the old write has ended, here by the deadline of the disk. Another
/// host does not wait.
#[test]
fn l1_a_new_connection_waits_for_the_commands_of_the_old_one() {
    let server = server(&["mem,zones=8,zone-size=4M,timeout=2s,fault=write/lost/count=1"], 2);
    Host::new(&server, HOST).lose(&server, vec![write(1, 0, pattern(8192, 1), BLOCK)]);
    let mut host = Host::new(&server, HOST);
    host.io.send(read(1, ZONE, 1, BLOCK));
    host.io.flush();
    Host::new(&server, OTHER).read(ZONE, 1);
    let stream = &mut host.io.stream;
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(stream.peek(&mut [0; 1]).is_err(), "it waits");
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(host.io.next().completion.status, 0);
}

/// L2, L3. A write that landed is answered when it is sent again, by its host; what follows it is written.
#[test]
fn l2_a_write_that_landed_is_not_refused_when_it_is_sent_again() {
    let server = server(&[SLOW], 2);
    let data: Vec<Vec<u8>> = (0..4).map(|i| pattern(8192, i)).collect();
    let all = |n: usize| (0..n).map(|i| write(1, 2 * i as u64, data[i].clone(), BLOCK)).collect();
    Host::new(&server, HOST).lose(&server, all(3));
    let mut host = Host::new(&server, HOST);
    // In another order, and with one that is new.
    for i in [2, 0, 3, 1] {
        assert_eq!(host.write(2 * i as u64, &data[i]), 0, "{i}");
    }
    assert_eq!((replayed(&server), host.written(0)), (3, 8));
    assert!(host.read(0, 8) == data.concat());
    assert_eq!(host.write(0, &pattern(8192, 9)), INVALID_WRITE, "other data");
    assert_eq!(host.write(6, &data[3]), INVALID_WRITE, "its answer was not lost");
    assert_eq!(Host::new(&server, OTHER).write(0, &data[0]), INVALID_WRITE, "another host");
    // The zone is no longer as it was.
    host.io.ok(reset_zone(1, 0));
    assert_eq!(host.write(0, &data[0]), 0);
    assert_eq!(host.write(0, &data[0]), INVALID_WRITE);
    assert_eq!(replayed(&server), 3);
}

/// Without a loss nothing is forgiven.
#[test]
fn l3_a_host_that_writes_twice_is_refused() {
    let server = server(&["mem,zones=8,zone-size=4M"], 1);
    let mut host = Host::new(&server, HOST);
    assert_eq!(host.write(0, &pattern(4096, 1)), 0);
    assert_eq!(host.write(0, &pattern(4096, 1)), INVALID_WRITE);
    // It goes with everything answered, and comes back. An append that was answered is another one.
    assert_eq!(host.append(ZONE, &pattern(4096, 1)), ZONE);
    drop(host);
    soon("it is gone", || server.hosts().is_empty());
    let mut host = Host::new(&server, HOST);
    assert_eq!(host.append(ZONE, &pattern(4096, 1)), ZONE + 1);
    assert_eq!(host.write(0, &pattern(4096, 2)), INVALID_WRITE);
    assert_eq!((replayed(&server), server.counters(0).errors), (0, 2));
}

/// A write of which a part is on the disk: the rest is written.
#[test]
fn l2_the_rest_of_a_write_is_written() {
    let spec = "delay,write=300ms@mem,zones=8,zone-size=4M,fault=write/torn/count=1";
    let server = server(&[spec], 1);
    let data = pattern(8192, 1);
    Host::new(&server, HOST).lose(&server, vec![write(1, 0, data.clone(), BLOCK)]);
    let mut host = Host::new(&server, HOST);
    let there = host.written(0);
    assert!(there == 1, "{there}");
    assert_eq!(host.write(0, &data), 0);
    assert_eq!((replayed(&server), host.written(0)), (1, 2));
    assert!(host.read(0, 2) == data);
}

/// L4. Each append gets its place, each place one append, whatever their order; another host's does not get it.
#[test]
fn l4_an_append_that_landed_gets_its_place_when_it_is_sent_again() {
    for append in ["native", "emulated"] {
        let server = server(&[&format!("{SLOW},append={append}")], 2);
        let data: Vec<Vec<u8>> = [1, 2, 2, 3].iter().map(|seed| pattern(8192, *seed)).collect();
        let all = data.iter().map(|d| zone_append(1, ZONE, d.clone(), BLOCK)).collect();
        Host::new(&server, HOST).lose(&server, all);
        let mut host = Host::new(&server, HOST);
        assert_eq!(host.written(1), 8);
        assert_eq!(Host::new(&server, OTHER).append(ZONE, &data[0]), ZONE + 8, "another host's");
        let mut places: Vec<u64> =
            [3, 1, 0, 2].map(|i: usize| host.append(ZONE, &data[i])).to_vec();
        assert_eq!([places[0], places[2]], [ZONE + 6, ZONE]);
        places.sort_unstable();
        assert_eq!(places, [ZONE, ZONE + 2, ZONE + 4, ZONE + 6]);
        assert_eq!((replayed(&server), host.written(1)), (4, 10));
        assert_eq!(host.append(ZONE, &data[1]), ZONE + 10, "a new one");
        assert!(host.read(ZONE, 8) == data.concat());
    }
}

/// L10. A host that goes on by another controller is ahead of the server, which knows of no loss. What it sends again is found,
/// in flight or answered, and its workers are woken for it. The write of another host is refused.
#[test]
fn l10_a_write_that_comes_by_another_controller_first_is_found() {
    let server = server(&[SLOW], 2);
    let (mut left, mut other, mut stranger) =
        (Host::new(&server, HOST), Host::new(&server, HOST), Host::new(&server, OTHER));
    let data: Vec<Vec<u8>> = (0..3).map(|i| pattern(8192, i)).collect();
    let blocks = 8192 / u64::from(BLOCK);
    for (n, data) in data.iter().enumerate() {
        let at = n as u64 * blocks;
        left.io.send(write(1, at, data.clone(), BLOCK));
        left.io.flush();
        // The second one is answered before it is sent again.
        std::thread::sleep(Duration::from_millis(if n == 1 { 600 } else { 50 }));
        let begun = std::time::Instant::now();
        assert_eq!(other.write(at, data), 0);
        assert!(begun.elapsed() < Duration::from_millis(900), "nobody waits for a look around");
        assert_eq!(stranger.write(at, data), INVALID_WRITE);
        assert_eq!(other.write(at, &pattern(8192, 9)), INVALID_WRITE);
    }
    assert_eq!((replayed(&server), other.written(0)), (3, 3 * blocks));
    assert!(other.read(0, 3 * blocks as u32) == data.concat());
}

/// L10. An append on an open queue waits for the commands of a closed connection, and no other command of the queue does.
#[test]
fn l10_only_an_append_waits_on_an_open_queue() {
    let server = server(&["delay,write=1500ms@mem,zones=8,zone-size=4M"], 2);
    let mut host = Host::new(&server, HOST);
    host.read(0, 1);
    Host::new(&server, HOST).lose(&server, vec![write(1, 0, pattern(8192, 1), BLOCK)]);
    let begun = std::time::Instant::now();
    let append = host.io.send(zone_append(1, ZONE, pattern(8192, 2), BLOCK));
    let read = host.io.send(read(1, 0, 1, BLOCK));
    host.io.flush();
    let c = host.io.next().completion;
    assert_eq!((c.cid, c.status), (read, 0));
    assert!(begun.elapsed() < Duration::from_secs(1), "it did not wait");
    let c = host.io.next().completion;
    assert_eq!((c.cid, c.status), (append, 0));
    assert!(begun.elapsed() > Duration::from_secs(2), "it waited");
}

/// L5. What was lost is forgotten when its zone is reset, also by another host.
#[test]
fn l5_after_a_reset_nothing_is_found() {
    let server = server(&[SLOW], 1);
    let data = pattern(8192, 1);
    let lost = vec![
        zone_append(1, ZONE, data.clone(), BLOCK),
        write(1, 0, data.clone(), BLOCK),
        zone_append(1, 2 * ZONE, data.clone(), BLOCK),
    ];
    Host::new(&server, HOST).lose(&server, lost);
    let mut host = Host::new(&server, HOST);
    assert_eq!([0, 1, 2].map(|n| host.written(n)), [2, 2, 2]);
    let mut other = Host::new(&server, OTHER);
    for zone in [0, ZONE] {
        other.io.ok(reset_zone(1, zone));
        assert_eq!(other.append(zone, &data), zone);
    }
    assert_eq!(host.append(ZONE, &data), ZONE + 2, "what is there is another host's");
    assert_eq!(host.write(0, &data), INVALID_WRITE);
    assert_eq!(host.append(2 * ZONE, &data), 2 * ZONE, "of the other zone it is found");
    assert_eq!(replayed(&server), 1);
}

/// L6. Answers that were sent and that the host's machine has not acknowledged, when both connections end, and when only that of
/// the admin queue does: then the acknowledgement is waited for in vain.
#[test]
fn l6_what_was_answered_in_vain_is_found_when_it_is_sent_again() {
    for all_end in [true, false] {
        let server = server(&["mem,zones=8,zone-size=4M"], 2);
        let data = pattern(8192, 1);
        let mut host = Host::new(&server, HOST);
        assert_eq!(host.append(0, &data), 0);
        host.io.ok(write(1, ZONE, pattern(1 << 20, 5), BLOCK));
        // Nothing is read any more, so these fill all buffers on the way.
        let mut stuck: Vec<_> = (0..32).map(|_| read(1, ZONE, 256, BLOCK)).collect();
        stuck.push(zone_append(1, 0, data.clone(), BLOCK));
        stuck.push(write(1, ZONE + 256, data.clone(), BLOCK));
        let writes = server.counters(0).writes;
        stuck.into_iter().for_each(|c| _ = host.io.send(c));
        host.io.flush();
        soon("they are done", || server.counters(0).writes == writes + 2);
        let Host { admin, io } = host;
        let open = (!all_end).then_some(io);
        drop(admin);
        let mut host = Host::new(&server, HOST);
        assert_eq!(host.append(0, &data), 2, "not the one that was answered");
        assert_eq!(host.write(ZONE + 256, &data), 0);
        assert_eq!(replayed(&server), 2);
        assert_eq!(host.append(0, &data), 4);
        drop(open);
    }
}

/// L6. The controller has ended while the host's machine delays its acknowledgement. It comes, and the append was answered: the
/// next one with the same data gets a place of its own. Nothing of the host is carried out before it is known.
#[test]
fn l6_an_answer_may_be_acknowledged_after_the_controller_has_ended() {
    let server = server(&["mem,zones=8,zone-size=4M"], 2);
    let data = pattern(8192, 1);
    let mut host = Host::new(&server, HOST);
    delay_acknowledgements(&host.io.stream);
    assert_eq!(host.append(ZONE, &data), ZONE);
    let Host { admin, io } = host;
    drop(admin);
    soon("the controller has ended", || server.hosts().is_empty());
    let late = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(5));
        // The end of its connection acknowledges what was received.
        drop(io);
    });
    let mut host = Host::new(&server, HOST);
    assert_eq!(host.append(ZONE, &data), ZONE + 2);
    late.join().unwrap();
    assert_eq!(replayed(&server), 0);
}

/// Has the host's machine wait with each acknowledgement for bytes of its own to send it with (TCP_QUICKACK, tcp(7)).
fn delay_acknowledgements(stream: &TcpStream) {
    let off: libc::c_int = 0;
    let len = size_of_val(&off) as libc::socklen_t;
    // SAFETY: `off` has this length and lives across the call.
    let done = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_QUICKACK,
            (&raw const off).cast(),
            len,
        )
    };
    assert_eq!(done, 0);
}

/// L6. The host's machine has acknowledged the answer, and the host has gone without it.
#[test]
fn l6_a_write_that_the_host_has_not_seen_answered_is_found() {
    let server = server(&["mem,zones=8,zone-size=4M"], 2);
    let data = pattern(8192, 1);
    let mut host = Host::new(&server, HOST);
    assert_eq!(host.write(0, &data), 0);
    drop(host);
    soon("it is gone", || server.hosts().is_empty());
    let mut host = Host::new(&server, HOST);
    assert_eq!(host.write(0, &data), 0);
    assert_eq!((replayed(&server), host.written(0)), (1, 2));
    assert_eq!(host.write(0, &pattern(8192, 2)), INVALID_WRITE);
}

/// L7. What hosts of the last server have written is answered, for a while, and nothing else.
#[test]
fn l7_a_write_that_the_last_server_carried_out_is_not_refused() {
    let hosted = HostedDisk::open_spec("mem,zones=8,zone-size=4M").unwrap();
    // A disk that outlives its servers.
    let serve = |spec: &str| {
        let disk = Disk { disk: hosted.clone(), spec: spec.to_owned(), tags: None };
        NvmeTcp::start(&options(), vec![disk], || ()).unwrap()
    };
    let data: Vec<Vec<u8>> = (0..3).map(|i| pattern(8192, i)).collect();
    let first = serve("/disk.zbd");
    let mut host = Host::new(&first, HOST);
    assert_eq!([0, 1].map(|i| host.write(2 * i as u64, &data[i])), [0, 0]);
    assert_eq!(host.write(ZONE, &data[0]), 0);
    drop(first);
    let server = serve("/disk.zbd");
    let mut host = Host::new(&server, HOST);
    // One that was on its way, one that was half there, one that is new.
    assert_eq!(host.write(2, &data[1]), 0);
    assert_eq!(host.write(2, &[data[1].clone(), data[2].clone()].concat()), 0);
    assert_eq!((replayed(&server), host.written(0)), (2, 6));
    assert_eq!(host.write(2, &data[2]), INVALID_WRITE, "other data");
    assert_eq!(host.write(4, &data[2]), INVALID_WRITE, "this server has answered it");
    host.io.ok(reset_zone(1, ZONE));
    assert_eq!(host.write(ZONE, &data[0]), 0);
    assert_eq!(host.write(ZONE, &data[0]), INVALID_WRITE);
    // A disk in memory has no last server.
    drop(server);
    let server = serve("mem");
    assert_eq!(Host::new(&server, HOST).write(0, &data[0]), INVALID_WRITE);
}

/// A directory in memory, removed with its test.
struct Memory(PathBuf);

impl Memory {
    fn new(name: &str) -> Memory {
        let name = format!("zoneplug-{name}-{}", std::process::id());
        let dir = Path::new("/dev/shm").join(name);
        std::fs::create_dir_all(&dir).unwrap();
        Memory(dir)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// L9. The journal of the last server says which appends were answered. What else landed is given to the append that is sent
/// again; a journal is believed only if no other program has opened the disk for writing since.
#[test]
fn l9_an_append_that_the_last_server_carried_out_is_found() {
    for (opened, found) in [(false, true), (true, false)] {
        let dir = Memory::new(&format!("journal-{opened}"));
        let path = dir.0.join("disk.zbd");
        let size =
            CreateOptions { zones: Some(8), zone_size: Some(4 << 20), ..CreateOptions::default() };
        create(&path, &size, false).unwrap();
        // The answers of the first server do not arrive, because it has ended.
        let serve = || {
            let spec = format!("delay,write=200ms,append=200ms@{}", path.display());
            let disk = Disk { disk: HostedDisk::open_spec(&spec).unwrap(), spec, tags: None };
            let options = NvmeTcpOptions { records: Some(dir.0.clone()), threads: 2, ..options() };
            NvmeTcp::start(&options, vec![disk], || ()).unwrap()
        };
        let first = serve();
        assert_eq!(first.unjournaled(), []);
        let [told, lost, long] =
            [(8192, 1), (8192, 2), (8192, 3)].map(|(n, seed)| pattern(n, seed));
        let mut host = Host::new(&first, HOST);
        assert_eq!(host.append(ZONE, &told), ZONE);
        drop(first);
        let slow = serve();
        let mut host = Host::new(&slow, HOST);
        for data in [&lost, &told, &long] {
            host.io.send(zone_append(1, ZONE, data.clone(), BLOCK));
        }
        host.io.flush();
        std::thread::sleep(Duration::from_millis(100));
        drop(slow);
        if opened {
            drop(HostedDisk::open_spec(path.to_str().unwrap()).unwrap());
        }
        let server = serve();
        let mut host = Host::new(&server, HOST);
        assert_eq!(host.written(1), 8, "all have landed");
        let places = [&long, &told, &lost, &told].map(|data| host.append(ZONE, data));
        if found {
            // The first copy of what was sent twice was answered.
            assert_eq!(places, [ZONE + 6, ZONE + 4, ZONE + 2, ZONE + 8]);
        } else {
            assert_eq!(places, [ZONE + 8, ZONE + 10, ZONE + 12, ZONE + 14]);
        }
        assert_eq!(replayed(&server), if found { 3 } else { 0 });
    }
}

/// L8. CSTS.RDY stays set until the commands in flight have ended.
#[test]
fn l8_a_controller_reset_waits_for_the_commands_in_flight() {
    let server = server(&[SLOW], 2);
    let mut host = Host::new(&server, HOST);
    host.io.send(write(1, 0, pattern(8192, 1), BLOCK));
    host.io.flush();
    std::thread::sleep(Duration::from_millis(50));
    let off = Configuration { enable: false, ..Configuration::START };
    host.admin.ok((Command::property_set(property::CC, off.encode()), Data::None));
    let mut state = || {
        let get = Command::property_get(property::CSTS, 4);
        host.admin.ok((get, Data::None)).completion.result as u32
    };
    let mut waited = 0;
    while state() & csts::READY != 0 {
        assert_eq!(server.counters(0).writes, 0);
        waited += 1;
        std::thread::sleep(Duration::from_millis(2));
        assert!(waited < 5000);
    }
    assert!(waited > 10, "{waited}");
    // The same controller goes on.
    let on = Configuration::START;
    host.admin.ok((Command::property_set(property::CC, on.encode()), Data::None));
    host.admin.ok(zoneplug_nvme::initiator::set_queues(16));
    let id = server.hosts()[0].controller;
    let mut io = Queue::open(&server, Options::default());
    io.ok(connect(1, 128, id, (NQN, HOST)));
    let report = io.ok(report_zones(1, 0, 128)).data;
    assert_eq!(report[64 + 24], 2, "it has landed");
}
