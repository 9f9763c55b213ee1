//! Hosts whose server ends while they use it, and that send again to the next one what was not answered.
#![cfg(feature = "nvme-tcp")]

use crate::lost_writes::lose_writes;
use crate::nvme_host::{BLOCK, HOST, Host, ZONE, options, pattern, replayed, server, soon};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use zoneplug_host::HostedDisk;
use zoneplug_host::file::{CreateOptions, create};
use zoneplug_host::nvme_tcp::{Disk, NvmeTcp, NvmeTcpOptions};
use zoneplug_nvme::initiator::{Data, reset_zone, write, zone_append};
use zoneplug_nvme::spec::{Command, opcode};

const INVALID_WRITE: u16 = 0x41bc;

/// L7. What hosts of the last server have written is answered, for a while, and nothing else.
#[test]
fn l7_a_write_that_the_last_server_carried_out_is_not_refused() {
    let hosted = HostedDisk::open_spec("mem,zones=8,zone-size=4M").unwrap();
    // A disk that outlives its servers.
    let serve = |spec: &str| {
        let disk =
            Disk { disk: hosted.clone(), spec: spec.parse().unwrap(), tags: None, known: None };
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

/// A directory in memory with a disk and its journal, removed with its test.
struct Memory(PathBuf);

impl Memory {
    fn new(name: &str) -> Memory {
        let name = format!("zoneplug-{name}-{}", std::process::id());
        let dir = Path::new("/dev/shm").join(name);
        std::fs::create_dir_all(&dir).unwrap();
        let memory = Memory(dir);
        Memory::create(&memory.disk());
        memory
    }

    fn create(path: &Path) {
        let size =
            CreateOptions { zones: Some(8), zone_size: Some(4 << 20), ..CreateOptions::default() };
        create(path, &size, false).unwrap();
    }

    fn disk(&self) -> PathBuf {
        self.0.join("disk.zbd")
    }

    /// Makes two more disks. Returns the layer that joins them with the disk.
    fn joined(&self) -> String {
        let more = ["one.zbd", "two.zbd"].map(|name| self.0.join(name));
        more.iter().for_each(|path| Memory::create(path));
        format!("linear@{}%{}%", more[0].display(), more[1].display())
    }

    /// Serves the disk below these layers, with a journal.
    fn serve(&self, layers: &str) -> NvmeTcp {
        self.serve_behind(&[], layers)
    }

    /// Serves the disk below these layers, behind other disks.
    fn serve_behind(&self, others: &[&str], layers: &str) -> NvmeTcp {
        let spec = format!("{layers}{}", self.disk().display());
        let open = |spec: &str| Disk {
            disk: HostedDisk::open_spec(spec).unwrap(),
            spec: spec.parse().unwrap(),
            tags: None,
            known: None,
        };
        let disks = others.iter().copied().chain([&*spec]).map(open).collect();
        let options = NvmeTcpOptions { records: Some(self.0.clone()), threads: 2, ..options() };
        let server = NvmeTcp::start(&options, disks, || ()).unwrap();
        assert_eq!(server.unjournaled(), []);
        server
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
    let find_append = |opened, found| {
        let dir = Memory::new(&format!("journal-{opened}"));
        // Longer than a server waits when it ends.
        let serve = || dir.serve("delay,write=1500ms@");
        let first = serve();
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
            drop(HostedDisk::open_spec(dir.disk().to_str().unwrap()).unwrap());
        }
        let server = serve();
        let mut host = Host::new(&server, HOST);
        assert_eq!(host.written(1), 8, "all have landed");
        let mut again = |data: &[&Vec<u8>]| -> Vec<u64> {
            data.iter().map(|data| host.append(ZONE, data)).collect()
        };
        if found {
            // The first copy of what was sent twice was answered.
            let places = again(&[&long, &told, &lost, &told]);
            assert_eq!(places, [ZONE + 6, ZONE + 4, ZONE + 2, ZONE + 8]);
        } else {
            assert_eq!(again(&[&long, &told]), [ZONE + 8, ZONE + 10]);
        }
        assert_eq!(replayed(&server), if found { 3 } else { 0 });
    };
    std::thread::scope(|threads| {
        threads.spawn(|| find_append(false, true));
        threads.spawn(|| find_append(true, false));
    });
}

/// L9. What a host has written where it likes is no append of the last server, also zeroes: an append with the same data is a new one.
#[test]
fn l9_what_was_written_is_not_found_for_an_append() {
    let zeroes = Command::new(opcode::WRITE_ZEROES).with_nsid(1).with_cdw_pair(10, ZONE);
    let zeroes = (zeroes.with_cdw(12, 1), Data::None);
    for (n, (written, data)) in
        [(write(1, ZONE, pattern(8192, 1), BLOCK), pattern(8192, 1)), (zeroes, vec![0; 8192])]
            .into_iter()
            .enumerate()
    {
        let dir = Memory::new(&format!("written-{n}"));
        let first = dir.serve("");
        Host::new(&first, HOST).io.ok(written);
        drop(first);
        let next = dir.serve("");
        let mut host = Host::new(&next, HOST);
        assert_eq!(host.append(ZONE, &data), ZONE + 2, "{n}");
        assert_eq!(replayed(&next), 0, "{n}");
    }
}

/// L11. One host that may still look at the answer to an append is enough for a server to wait, whatever the others had.
#[test]
fn l11_a_server_waits_for_each_host_that_was_told_of_an_append() {
    let server = server(&["mem,zones=8,zone-size=4M"], 1);
    let mut first = Host::new(&server, HOST);
    assert_eq!(first.append(ZONE, &pattern(4096, 1)), ZONE);
    let _second = Host::new(&server, &HOST.replace("5a5a5a5a-", "6b6b6b6b-"));
    let begun = Instant::now();
    drop(server);
    assert!(begun.elapsed() >= Duration::from_millis(100), "{:?}", begun.elapsed());
}

/// L9. After a reset that failed, data that hosts were told of are theirs as before: the next server does not take them for
/// those of an append that is new.
#[test]
fn l9_a_reset_that_failed_leaves_what_hosts_were_told_of() {
    let dir = Memory::new("failed-reset");
    let serve = || dir.serve("po2,fault=reset/io/count=1@");
    let (first, data) = (serve(), pattern(8192, 1));
    let mut host = Host::new(&first, HOST);
    assert_eq!(host.append(ZONE, &data), ZONE);
    assert_ne!(host.io.run(reset_zone(1, ZONE)).completion.status, 0);
    drop(first);
    let next = serve();
    let mut host = Host::new(&next, HOST);
    assert_eq!(host.append(ZONE, &data), ZONE + 2);
    assert_eq!((replayed(&next), host.written(1)), (0, 4));
}

/// Whether the peer has ended a connection, whatever is left to read of it.
fn has_ended(stream: &TcpStream) -> bool {
    let mut fd = libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one descriptor, which lives across the call.
    assert!(unsafe { libc::poll(&raw mut fd, 1, 0) } >= 0);
    fd.revents != 0
}

/// L11. A server that ends gives its host time to look at the last answers. This host does what Linux does: once one of
/// its connections has ended it looks at nothing any more, although its TCP has acknowledged the answers.
#[test]
fn l11_a_host_sees_the_last_answers_of_a_server_that_ends() {
    for (layers, n) in [("", 8), ("delay,write=200ms@", 1)] {
        let seen = || {
            let dir = Memory::new(&format!("end-{}", layers.len()));
            let first = dir.serve(layers);
            let mut host = Host::new(&first, HOST);
            for seed in 0..n {
                host.io.send(zone_append(1, ZONE, pattern(8192, seed), BLOCK));
            }
            host.io.flush();
            if layers.is_empty() {
                soon("they have landed", || first.counters(0).writes == u64::from(n));
            } else {
                std::thread::sleep(Duration::from_millis(50));
            }
            let end = std::thread::spawn(move || drop(first));
            assert!(host.io.stream.peek(&mut [0; 1]).is_ok());
            let there = Instant::now();
            std::thread::sleep(Duration::from_millis(60));
            let mut answered = 0;
            // The two connections have two workers.
            let ended = |host: &Host| [&host.admin, &host.io].iter().any(|q| has_ended(&q.stream));
            while answered < n && !ended(&host) {
                assert_eq!(host.io.next().completion.status, 0);
                answered += 1;
            }
            let looked = there.elapsed();
            end.join().unwrap();
            let next = dir.serve("");
            let written = Host::new(&next, HOST).written(1);
            (looked < Duration::from_millis(90)).then_some((answered, written))
        };
        // A round in which this machine stalled says nothing.
        let seen = (0..20).find_map(|_| seen());
        assert_eq!(seen, Some((n, 2 * u64::from(n))), "{layers:?}");
    }
}

/// L11. What a host's machine has not acknowledged when the server ends is not answered, for the next server.
#[test]
fn l11_an_append_that_was_answered_in_vain_is_found_by_the_next_server() {
    let mem: &[&str] = &["mem,zones=8,zone-size=4M"];
    for (others, is_joined) in [(&[][..], false), (mem, false), (&[], true)] {
        let dir = Memory::new(&format!("vain-{}-{is_joined}", others.len()));
        // The journal of a disk of several files is that of all of them.
        let layers = if is_joined { dir.joined() } else { String::new() };
        let first = dir.serve_behind(others, &layers);
        let (data, nsid) = (pattern(8192, 1), others.len() as u32 + 1);
        let mut host = Host::new(&first, HOST);
        assert_eq!(host.append_to(nsid, 0, &data), 0);
        let append = zone_append(nsid, 0, data.clone(), BLOCK);
        host.send_in_vain(&first, others.len(), vec![append]);
        let begun = Instant::now();
        drop(first);
        assert!(begun.elapsed() < Duration::from_secs(3), "it does not wait for ever");
        let next = dir.serve_behind(others, &layers);
        let mut host = Host::new(&next, HOST);
        assert_eq!(host.append_to(nsid, 0, &data), 2, "not the one that was answered");
        assert_eq!(host.append_to(nsid, 0, &data), 4);
        assert_eq!(next.counters(others.len()).replayed, 1);
    }
}

/// L11. A server may be killed at any moment, so an append is in its journal before it is answered.
#[test]
fn l11_an_append_is_in_the_journal_when_its_host_is_told() {
    let dir = Memory::new("told");
    let server = dir.serve("");
    let mut host = Host::new(&server, HOST);
    let all = std::fs::read_dir(&dir.0).unwrap().map(|e| e.unwrap().path());
    let told = all.filter(|path| path.extension().is_some_and(|e| e == "told")).collect::<Vec<_>>();
    let [told] = &told[..] else { panic!("{told:?}") };
    let data = pattern(4096, 1);
    let mut last = std::fs::read(told).unwrap();
    for n in 0..500 {
        host.append(0, &data);
        let at_once = std::fs::read(told).unwrap();
        assert!(at_once != last, "append {n} is not in the journal");
        std::thread::sleep(Duration::from_micros(200));
        last = std::fs::read(told).unwrap();
        assert!(at_once == last, "append {n} came into the journal after its answer");
    }
}

/// U11. Each host whose acknowledged writes were lost below a server is told once, whichever server it is that it flushes.
#[test]
fn u11_each_host_is_told_of_a_loss_by_the_next_server() {
    // A write fault that the host does not send again.
    let (io, ok) = (0x4280, 0);
    let flush = Command::new(opcode::FLUSH).with_nsid(1);
    let flushed = |host: &mut Host| host.io.run((flush, Data::None)).completion.status;
    let dir = Memory::new("owed");
    drop(dir.serve(""));
    lose_writes(&dir.disk());
    let server = dir.serve("po2@");
    let mut host = Host::new(&server, HOST);
    assert_eq!(host.write(0, &pattern(8192, 1)), ok, "a write that is not to be durable yet");
    assert_eq!([0; 3].map(|_| flushed(&mut host)), [io, ok, ok]);
    drop(server);
    let server = dir.serve("po2@");
    assert_eq!(flushed(&mut Host::new(&server, HOST)), ok, "it knows");
    let other = &HOST.replace("5a5a5a5a-", "6b6b6b6b-");
    let mut other = Host::new(&server, other);
    assert_eq!([0; 2].map(|_| flushed(&mut other)), [io, ok]);
}
