//! Hosts that authenticate (DH-HMAC-CHAP), through a real socket.
#![cfg(feature = "nvme-tcp")]

use crate::kept_log::Kept;
use crate::nvme_host::{
    BLOCK, HOST, KEY, MEM, NQN, OTHER_KEY, Queue, disk, enable, options, pattern, soon, steps,
};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use zoneplug_core::{ErrorKind, Nanos};
use zoneplug_host::nvme_tcp::{DhGroup, Key, NvmeTcp, NvmeTcpOptions, read_key, testing};
use zoneplug_nvme::initiator::{Data, Options, connect, read, set_queues, write};
use zoneplug_nvme::spec::Command;
use zoneplug_nvme::spec::fabrics::{ANY_CONTROLLER, property};
use zoneplug_nvme::tcp::Config;

const REQUIRED: u16 = 0x4191;

fn key(text: &str) -> Key {
    Key::parse(text).unwrap()
}

fn keyed(ctrl_key: Option<&str>, group: DhGroup) -> NvmeTcp {
    bounded(ctrl_key, group, Config::default())
}

fn bounded(ctrl_key: Option<&str>, group: DhGroup, bounds: Config) -> NvmeTcp {
    let options = NvmeTcpOptions {
        dhchap_keys: vec![(HOST.to_owned(), key(KEY))],
        dhchap_ctrl_key: ctrl_key.map(key),
        dhchap_dhgroup: group,
        threads: 1,
        ..options()
    };
    testing::start(&options, vec![disk(MEM)], bounds).unwrap()
}

/// A server whose hosts have little time to authenticate.
fn hurried() -> NvmeTcp {
    let connect = Nanos(1_500_000_000);
    bounded(Some(OTHER_KEY), DhGroup::Null, Config { connect, ..Config::default() })
}

/// An admin queue and an I/O queue of a host that has authenticated.
fn admitted(server: &NvmeTcp, ctrl: Option<&str>) -> (Queue, Queue) {
    let (mut admin, result) = connected(server, 0, ANY_CONTROLLER);
    admin.authenticate(KEY, ctrl).unwrap();
    admin.ok(enable());
    admin.ok(set_queues(4));
    let (mut q, _) = connected(server, 1, result as u16);
    q.authenticate(KEY, ctrl).unwrap();
    (admin, q)
}

/// A stranger that has sent the command which makes the server compute, and has no answer.
fn computes(server: &NvmeTcp) -> Queue {
    let (mut stranger, _) = connected(server, 0, ANY_CONTROLLER);
    let mut steps = steps(None);
    stranger.carry_out(&mut steps, 1);
    stranger.send(steps.next(&[]).unwrap().unwrap());
    stranger.flush();
    stranger
}

/// Whether a byte has come.
fn has_come(q: &Queue) -> bool {
    q.stream.set_nonblocking(true).unwrap();
    let n = q.stream.peek(&mut [0]);
    q.stream.set_nonblocking(false).unwrap();
    n.is_ok_and(|n| n > 0)
}

/// A queue that is connected, and the result of that.
fn connected(server: &NvmeTcp, qid: u16, id: u16) -> (Queue, u64) {
    Queue::connected_at(server.address(), qid, id)
}

fn is_closed(q: &mut Queue) -> bool {
    q.flush();
    q.stream.read(&mut [0; 8]).unwrap_or(0) == 0
}

/// J13. One way and two ways, without Diffie-Hellman and with it.
#[test]
fn a_host_that_knows_its_key_is_served() {
    for (ctrl, group) in [(None, DhGroup::Null), (Some(OTHER_KEY), DhGroup::Ffdhe2048)] {
        let server = keyed(ctrl, group);
        let (mut admin, result) = connected(&server, 0, ANY_CONTROLLER);
        let id = result as u16;
        assert_eq!(result, u64::from(id) | 1 << 17, "authentication is required");
        assert!(server.hosts().is_empty(), "it is not known yet who that is");
        admin.authenticate(KEY, ctrl).unwrap();
        admin.ok(enable());
        admin.ok(set_queues(4));
        let (mut q, result) = connected(&server, 1, id);
        assert_eq!(result, u64::from(id) | 1 << 17, "each queue authenticates");
        q.authenticate(KEY, ctrl).unwrap();
        q.ok(write(1, 0, pattern(300 << 10, 3), BLOCK));
        assert!(q.ok(read(1, 0, 75, BLOCK)).data == pattern(300 << 10, 3));
        let hosts = server.hosts();
        assert!(hosts.len() == 1 && hosts[0].authenticated && hosts[0].queues == 1);
        assert_eq!(server.failed_authentications(), 0);
    }
}

/// J13. Nothing is done for a host that does not authenticate.
#[test]
fn a_host_that_leaves_it_out_gets_nothing() {
    let server = keyed(None, DhGroup::Null);
    let (mut admin, result) = connected(&server, 0, ANY_CONTROLLER);
    let id = result as u16;
    assert_eq!(admin.run(enable()).completion.status, REQUIRED);
    assert_eq!(admin.run(set_queues(4)).completion.status, REQUIRED);
    let get = (Command::property_get(property::CAP, 8), Data::None);
    assert_eq!(admin.run(get).completion.status, REQUIRED);
    let mut q = Queue::open(&server, Options::default());
    let refused = q.run(connect(1, 32, id, NQN, HOST)).completion.status;
    // A Connect is never told to authenticate first; the controller is disabled until its host has.
    assert_eq!(refused, 0x4182, "no I/O queue before the admin queue has authenticated");
    admin.authenticate(KEY, None).unwrap();
    admin.ok(enable());
    admin.ok(set_queues(4));
    let (mut q, _) = connected(&server, 1, id);
    assert_eq!(q.run(write(1, 0, pattern(4096, 1), BLOCK)).completion.status, REQUIRED);
    assert_eq!(q.run(read(1, 0, 1, BLOCK)).completion.status, REQUIRED);
    // More data than a message: the memory for them is not taken.
    let long = q.run(write(1, 0, pattern(64 << 10, 1), BLOCK)).completion.status;
    assert!(long != 0 && long != REQUIRED, "{long:x}");
    q.authenticate(KEY, None).unwrap();
    assert!(q.ok(read(1, 0, 1, BLOCK)).data.iter().all(|b| *b == 0), "nothing was written");
    // Another host has no key, and may not connect at all.
    let mut q = Queue::open(&server, Options::default());
    let other = connect(0, 32, ANY_CONTROLLER, NQN, "nqn.other");
    assert_eq!(q.run(other).completion.status, 0x4184);
}

/// J13. A peer that knows all names and numbers keeps no queue from the host, and what it does to its own ends nothing else.
#[test]
fn a_stranger_takes_no_queue() {
    let server = keyed(None, DhGroup::Null);
    let (mut admin, result) = connected(&server, 0, ANY_CONTROLLER);
    let id = result as u16;
    admin.authenticate(KEY, None).unwrap();
    admin.ok(enable());
    admin.ok(set_queues(4));
    let (mut stranger, _) = connected(&server, 1, id);
    let (mut silent, _) = connected(&server, 1, id);
    let (mut twice, _) = connected(&server, 1, id);
    let (mut q, _) = connected(&server, 1, id);
    assert_eq!(server.hosts()[0].queues, 0, "it is not known yet whose they are");
    q.authenticate(KEY, None).unwrap();
    assert_eq!(server.hosts()[0].queues, 1);
    assert!(stranger.authenticate(OTHER_KEY, None).is_err());
    assert!(is_closed(&mut stranger));
    assert_eq!(silent.run(read(1, 0, 1, BLOCK)).completion.status, REQUIRED);
    drop(silent);
    // The queue is connected by now, although its host asks.
    let mut steps = steps(None);
    let mut last = twice.run(steps.next(&[]).unwrap().unwrap());
    while last.completion.status == 0 {
        last = twice.run(steps.next(&last.data).unwrap().unwrap());
    }
    assert_eq!(last.completion.status, 0x400c);
    assert!(is_closed(&mut twice));
    q.ok(write(1, 0, pattern(4096, 9), BLOCK));
    assert!(q.ok(read(1, 0, 1, BLOCK)).data == pattern(4096, 9));
    // The number is free again once the host's own queue has ended.
    drop(q);
    soon("it has ended", || server.hosts()[0].queues == 0);
    let (mut q, _) = connected(&server, 1, id);
    q.authenticate(KEY, None).unwrap();
    assert!(q.ok(read(1, 0, 1, BLOCK)).data == pattern(4096, 9));
}

/// J13, J14. A key that is wrong, on either side.
#[test]
fn a_wrong_key_ends_the_connection() {
    let server = keyed(Some(OTHER_KEY), DhGroup::Null);
    let (mut admin, _) = connected(&server, 0, ANY_CONTROLLER);
    let error = admin.authenticate(OTHER_KEY, None).unwrap_err();
    assert!(error.contains("code 1"), "{error}");
    assert!(is_closed(&mut admin));
    soon("it is counted", || server.failed_authentications() == 1);
    // The host finds that the server does not know its key.
    let (mut admin, _) = connected(&server, 0, ANY_CONTROLLER);
    let error = admin.authenticate(KEY, Some(KEY)).unwrap_err();
    assert!(error.contains("does not know its key"), "{error}");
    assert!(is_closed(&mut admin));
    soon("it is counted", || server.failed_authentications() == 2);
    // A server without a key does not pretend.
    let server = keyed(None, DhGroup::Null);
    let (mut admin, _) = connected(&server, 0, ANY_CONTROLLER);
    assert!(admin.authenticate(KEY, Some(OTHER_KEY)).is_err());
    assert!(is_closed(&mut admin));
    assert!(server.hosts().is_empty());
}

/// A program that has a logger hears which host was refused, and from where.
#[test]
fn refused_hosts_are_logged() {
    let kept = Kept::warnings();
    let said = |line: &str| kept.lines(line).iter().any(|l| l == line);
    let server = keyed(None, DhGroup::Null);
    let (mut admin, _) = connected(&server, 0, ANY_CONTROLLER);
    admin.authenticate(OTHER_KEY, None).unwrap_err();
    let line = format!(
        "WARN host-refused: the host {HOST} at 127.0.0.1 did not prove that it knows its key"
    );
    soon("it is logged", || said(&line));
    let others = Some(vec!["nqn.2014-08.org.example:other".to_owned()]);
    let options = NvmeTcpOptions { hosts: others, ..options() };
    let server = NvmeTcp::start(&options, vec![disk(MEM)], || {}).unwrap();
    let mut queue = Queue::open(&server, Options::default());
    let refused = queue.run(connect(0, 32, ANY_CONTROLLER, NQN, HOST)).completion.status;
    assert_eq!(refused & 0xfff, 0x184);
    let line = format!("WARN host-refused: the host {HOST} at 127.0.0.1 may not connect");
    soon("it is logged", || said(&line));
    for (nqn, host, line) in [
        (NQN, "", "a host at 127.0.0.1 gave a name that is no NQN".to_owned()),
        (
            "nqn.2014-08.org.example:none",
            HOST,
            format!("the host {HOST} at 127.0.0.1 asked for a subsystem that is not here"),
        ),
    ] {
        let mut queue = Queue::open(&server, Options::default());
        let refused = queue.run(connect(0, 32, ANY_CONTROLLER, nqn, host)).completion.status;
        assert_eq!(refused & 0xfff, 0x182);
        soon("it is logged", || said(&format!("WARN host-refused: {line}")));
    }
}

/// K3. Hosts with keys get in while peers open connections of each kind: without Connect, with the name of a host that has no key
/// and is listed, and with the name of the host that has one.
#[test]
fn k3_a_host_with_a_key_gets_in_during_a_flood() {
    const MAX: usize = 128;
    const LISTED: &str = "nqn.2014-08.org.example:listed";
    let options = NvmeTcpOptions {
        hosts: Some(vec![LISTED.to_owned()]),
        dhchap_keys: vec![(HOST.to_owned(), key(KEY))],
        dhchap_dhgroup: DhGroup::Null,
        threads: 2,
        max_connections: MAX,
        ..options()
    };
    let server = NvmeTcp::start(&options, vec![disk(MEM)], || ()).unwrap();
    let mut flood = Vec::new();
    let mut listed = 0;
    for n in 0..3 {
        for i in 0..2 * MAX {
            let mut q = Queue::open(&server, Options::default());
            match i % 3 {
                0 => _ = q.stream.write_all(&q.host.take_output()),
                1 => {
                    q.send(connect(0, 32, ANY_CONTROLLER, NQN, LISTED));
                    listed += usize::from(q.next().completion.status == 0);
                }
                _ => {
                    q.send(connect(0, 32, ANY_CONTROLLER, NQN, HOST));
                    q.next();
                }
            }
            flood.push(q);
        }
        let (_admin, mut q) = admitted(&server, None);
        let data = pattern(BLOCK as usize, n as u8);
        q.ok(write(1, n, data.clone(), BLOCK));
        assert_eq!(q.ok(read(1, n, 1, BLOCK)).data, data);
    }
    assert_eq!(listed, 4 + MAX / 2, "they have their share, and no more");
}

/// J13. Authentication again, while I/O goes on; one that fails ends the association.
#[test]
fn a_host_authenticates_again() {
    let server = keyed(None, DhGroup::Null);
    let (mut admin, result) = connected(&server, 0, ANY_CONTROLLER);
    admin.authenticate(KEY, None).unwrap();
    admin.ok(enable());
    admin.ok(set_queues(4));
    let (mut q, _) = connected(&server, 1, result as u16);
    q.authenticate(KEY, None).unwrap();
    for i in 0..3 {
        admin.authenticate(KEY, None).unwrap();
        q.ok(write(1, i, pattern(4096, i as u8), BLOCK));
        q.authenticate(KEY, None).unwrap();
        assert!(q.ok(read(1, i, 1, BLOCK)).data == pattern(4096, i as u8));
    }
    assert!(admin.authenticate(OTHER_KEY, None).is_err());
    assert!(is_closed(&mut admin) && is_closed(&mut q));
    soon("the host is gone", || server.hosts().is_empty());
    assert_eq!(server.failed_authentications(), 1);
}

/// J18. While values of Diffie-Hellman are computed, the only worker answers other connections, and other commands of a host
/// that authenticates again.
#[test]
fn a_worker_does_not_wait_for_diffie_hellman() {
    let server = keyed(None, DhGroup::Ffdhe8192);
    let (_admin, mut q) = admitted(&server, None);
    let stranger = computes(&server);
    let mut reads = 0;
    while !has_come(&stranger) {
        q.ok(read(1, 0, 1, BLOCK));
        reads += 1;
    }
    assert!(reads > 5, "{reads} reads were answered meanwhile");
    // The queue from before authenticates again.
    let mut again = steps(None);
    q.carry_out(&mut again, 1);
    let challenge = q.send(again.next(&[]).unwrap().unwrap());
    let other = q.send(read(1, 0, 1, BLOCK));
    assert_eq!(q.next().completion.cid, other);
    let done = q.next();
    assert_eq!((done.completion.cid, done.completion.status), (challenge, 0));
    // Commands of authentication wait for it, in their order.
    let reply = q.send(again.next(&done.data).unwrap().unwrap());
    let success = q.send(again.next(&[]).unwrap().unwrap());
    for cid in [reply, success] {
        let done = q.next();
        assert_eq!((done.completion.cid, done.completion.status), (cid, 0));
        assert!(cid == reply || again.next(&done.data).unwrap().is_none());
    }
    q.ok(write(1, 0, pattern(4096, 1), BLOCK));
    assert_eq!(server.failed_authentications(), 0);
}

/// J18. Connections that have ended are not computed for, and neither are any when the server ends.
#[test]
fn values_that_are_not_needed_any_more() {
    let server = keyed(None, DhGroup::Ffdhe8192);
    let begun = Instant::now();
    let stranger = computes(&server);
    while !has_come(&stranger) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let one = begun.elapsed();
    let strangers: Vec<_> = (0..20).map(|_| computes(&server)).collect();
    let begun = Instant::now();
    drop(strangers);
    let mut q = computes(&server);
    q.next();
    assert!(begun.elapsed() < one * 8, "{:?}, of which one takes {one:?}", begun.elapsed());
    let strangers: Vec<_> = (0..20).map(|_| computes(&server)).collect();
    let begun = Instant::now();
    drop(server);
    assert!(begun.elapsed() < one * 8, "{:?}, of which one takes {one:?}", begun.elapsed());
    drop(strangers);
}

/// J13. A host that begins to authenticate again has as long for it as for the first time.
#[test]
fn a_host_that_does_not_end_what_it_has_begun_again() {
    let server = hurried();
    let (mut admin, mut q) = admitted(&server, Some(OTHER_KEY));
    // Within its time, and long after.
    admin.authenticate(KEY, Some(OTHER_KEY)).unwrap();
    std::thread::sleep(Duration::from_secs(3));
    q.ok(read(1, 0, 1, BLOCK));
    assert_eq!(server.failed_authentications(), 0);
    // An I/O queue is refused for itself.
    q.carry_out(&mut steps(None), 2);
    soon("it is counted", || server.failed_authentications() == 1);
    assert_eq!(q.run(read(1, 0, 1, BLOCK)).completion.status, REQUIRED);
    let told = q.ok((Command::authentication_receive(64), Data::In(64))).data;
    assert_eq!(told[..8], [0, 0xf1, 0, 0, 5, 0, 1, 1], "AUTH_Failure1");
    assert!(is_closed(&mut q));
    assert_eq!(server.hosts().len(), 1);
    // Success2 is the last message.
    let mut late = steps(Some(OTHER_KEY));
    let success1 = admin.carry_out(&mut late, 4);
    soon("it is counted", || server.failed_authentications() == 2);
    // The thread of the host counts before it ends the controller.
    soon("its controller has ended", || server.hosts().is_empty());
    let refused = admin.run(late.next(&success1).unwrap().unwrap()).completion.status;
    assert_eq!(refused, 0x400c);
}

/// J13. All messages of a second authentication have one time limit, however fast each comes after the last.
#[test]
fn a_host_that_takes_its_time_for_each_message_of_a_second_authentication() {
    let server = hurried();
    let (_admin, mut q) = admitted(&server, Some(OTHER_KEY));
    let (mut again, mut data) = (steps(None), Vec::new());
    for n in 0..4 {
        std::thread::sleep(Duration::from_millis(if n == 0 { 0 } else { 1200 }));
        let Ok(Some(c)) = again.next(&data) else { break };
        let done = q.run(c);
        if done.completion.status != 0 {
            break;
        }
        data = done.data;
    }
    soon("it is counted", || server.failed_authentications() == 1);
}

/// J13. Of the hosts that the time limit ends before they are admitted, those that had begun count.
#[test]
fn hosts_that_are_too_slow_to_authenticate_are_counted() {
    let server = hurried();
    let mut queues = Vec::new();
    // The first is silent; the others stop before the last message.
    for (n, ctrl) in [(0, None), (1, None), (2, None), (4, Some(OTHER_KEY))] {
        let (mut slow, _) = connected(&server, 0, ANY_CONTROLLER);
        slow.carry_out(&mut steps(ctrl), n);
        queues.push(slow);
    }
    assert_eq!(server.failed_authentications(), 0);
    assert!(queues.iter_mut().all(is_closed));
    soon("they are counted", || server.failed_authentications() >= 3);
    // A failure that was counted is not counted again when its connection ends.
    let (mut wrong, _) = connected(&server, 0, ANY_CONTROLLER);
    wrong.carry_out(&mut steps(None), 1);
    wrong.ok((Command::authentication_send(8), Data::Out(vec![0; 8])));
    assert_eq!(server.failed_authentications(), 4);
    assert!(is_closed(&mut wrong));
    assert_eq!(server.failed_authentications(), 4);
}

/// J15. What options contradict each other, and what they mean for hosts without a key.
#[test]
fn options_of_keys() {
    let with = |f: fn(&mut NvmeTcpOptions)| {
        let mut o =
            NvmeTcpOptions { listen: "0.0.0.0:0".parse().unwrap(), threads: 1, ..options() };
        o.dhchap_keys = vec![(HOST.to_owned(), key(KEY))];
        f(&mut o);
        o.check().map_err(|e| e.to_string())
    };
    let refused = |f, why: &str| {
        let e = with(f).unwrap_err();
        assert!(e.contains(why), "{e}");
        assert!(!e.contains("AAEC"), "{e}");
    };
    with(|_| ()).unwrap();
    with(|o| o.hosts = Some(vec!["nqn.b".to_owned()])).unwrap();
    with(|o| o.dhchap_ctrl_key = Some(key(OTHER_KEY))).unwrap();
    refused(|o| o.any_host = true, "any host");
    refused(|o| o.dhchap_keys[0].0 = "host".to_owned(), "no NVMe qualified name");
    refused(|o| o.dhchap_keys.push((HOST.to_owned(), key(OTHER_KEY))), "two keys");
    refused(|o| o.dhchap_ctrl_key = Some(key(KEY)), "that of the subsystem");
    refused(
        |o| (o.dhchap_keys, o.dhchap_ctrl_key) = (Vec::new(), Some(key(KEY))),
        "none of a host",
    );
    let debug = NvmeTcpOptions { dhchap_keys: vec![(HOST.to_owned(), key(KEY))], ..options() };
    assert!(!format!("{debug:?}").contains("AAEC"));
    // A host that is listed besides needs no key, on a loopback address too.
    let hosts = Some(vec!["nqn.b".to_owned()]);
    let keys = vec![(HOST.to_owned(), key(KEY))];
    let server = NvmeTcpOptions { hosts, dhchap_keys: keys, threads: 1, ..options() };
    let server = NvmeTcp::start(&server, vec![disk(MEM)], || ()).unwrap();
    for (host, want) in [("nqn.b", 0), ("nqn.c", 0x4184)] {
        let mut q = Queue::open(&server, Options::default());
        let c = q.run(connect(0, 32, ANY_CONTROLLER, NQN, host)).completion;
        assert_eq!((c.status, c.result >> 16), (want, 0));
    }
}

/// J15. Files with keys.
#[test]
fn files_of_keys() {
    let path = std::env::temp_dir().join(format!("zoneplug-key-{}", std::process::id()));
    let write = |text: &str, mode| {
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        read_key(&path).map_err(|e| e.to_string())
    };
    assert!(write(&format!("{KEY}\n"), 0o600).unwrap().is_secret_of(&key(KEY)));
    assert!(write(KEY, 0o640).is_ok());
    for mode in [0o604, 0o666, 0o602] {
        assert!(write(KEY, mode).unwrap_err().contains("every user"), "{mode:o}");
    }
    assert!(write("", 0o600).unwrap_err().contains("DHHC-1"));
    let e = write(&KEY.replace("AAEC", "AAED"), 0o600).unwrap_err();
    assert!(e.contains("checksum") && !e.contains("AAED"), "{e}");
    std::fs::remove_file(&path).unwrap();
    let missing = read_key(&path).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(missing.to_string().contains("check the path"), "{missing}");
    // A key in place of the path of its file is secret too.
    let e = read_key(Path::new(KEY)).unwrap_err().to_string();
    assert!(e.contains("gen-dhchap-key") && !e.contains("AAEC"), "{e}");
}
