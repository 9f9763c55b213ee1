//! Hosts that authenticate (DH-HMAC-CHAP), through a real socket.
#![cfg(feature = "nvme-tcp")]
#![allow(clippy::unwrap_used)]

#[path = "common/nvme_host.rs"]
mod nvme_host;

use nvme_host::{BLOCK, HOST, MEM, NQN, Queue, disk, options, pattern, soon};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use zoneplug_host::nvme_tcp::{DhGroup, Key, read_key};
use zoneplug_host::nvme_tcp::{NvmeTcp, NvmeTcpOptions};
use zoneplug_nvme::dhchap::Random;
use zoneplug_nvme::initiator::Authenticate;
use zoneplug_nvme::initiator::{Data, Options, connect, read, set_queues, write};
use zoneplug_nvme::spec::Command;
use zoneplug_nvme::spec::fabrics::{ANY_CONTROLLER, Configuration, property};

const KEY: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const OTHER_KEY: &str =
    "DHHC-1:02:ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoOEhYaHiImKi4yNjo+QkZKTvGwQfg==:";
const REQUIRED: u16 = 0x4191;

fn key(text: &str) -> Key {
    Key::parse(text).unwrap()
}

fn keyed(ctrl_key: Option<&str>, group: DhGroup) -> NvmeTcp {
    let options = NvmeTcpOptions {
        dhchap_keys: vec![(HOST.to_owned(), key(KEY))],
        dhchap_ctrl_key: ctrl_key.map(key),
        dhchap_dhgroup: group,
        threads: 1,
        ..options()
    };
    NvmeTcp::start(&options, vec![disk(MEM)], || ()).unwrap()
}

/// Authenticates on a queue. The error is what the host or the server found wrong.
fn authenticate(q: &mut Queue, own: &str, ctrl: Option<&str>) -> Result<(), String> {
    let mut bytes = [0; 132];
    for (i, b) in bytes.iter_mut().enumerate() {
        *b = (i as u8).wrapping_mul(37) ^ own.as_bytes()[i % own.len()];
    }
    let (own, ctrl) = (key(own), ctrl.map(key));
    let random = Random::new(&bytes);
    let mut a = Authenticate::new((NQN, HOST), &own, ctrl.as_ref(), 5, random);
    let mut received = Vec::new();
    while let Some(command) = a.next(&received)? {
        received = q.ok(command).data;
    }
    Ok(())
}

fn start() -> (Command, Data) {
    (Command::property_set(property::CC, Configuration::START.encode()), Data::None)
}

/// A queue that is connected, and the result of that.
fn connected(server: &NvmeTcp, qid: u16, id: u16) -> (Queue, u64) {
    let mut q = Queue::open(server, Options::default());
    let result = q.ok(connect(qid, 32, id, (NQN, HOST))).completion.result;
    (q, result)
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
        authenticate(&mut admin, KEY, ctrl).unwrap();
        admin.ok(start());
        admin.ok(set_queues(4));
        let (mut q, result) = connected(&server, 1, id);
        assert_eq!(result, u64::from(id) | 1 << 17, "each queue authenticates");
        authenticate(&mut q, KEY, ctrl).unwrap();
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
    assert_eq!(admin.run(start()).completion.status, REQUIRED);
    assert_eq!(admin.run(set_queues(4)).completion.status, REQUIRED);
    let get = (Command::property_get(property::CAP, 8), Data::None);
    assert_eq!(admin.run(get).completion.status, REQUIRED);
    let mut q = Queue::open(&server, Options::default());
    let refused = q.run(connect(1, 32, id, (NQN, HOST))).completion.status;
    assert_eq!(refused, REQUIRED, "no I/O queue before the admin queue has authenticated");
    authenticate(&mut admin, KEY, None).unwrap();
    admin.ok(start());
    admin.ok(set_queues(4));
    let (mut q, _) = connected(&server, 1, id);
    assert_eq!(q.run(write(1, 0, pattern(4096, 1), BLOCK)).completion.status, REQUIRED);
    assert_eq!(q.run(read(1, 0, 1, BLOCK)).completion.status, REQUIRED);
    // More data than a message: the memory for them is not taken.
    let long = q.run(write(1, 0, pattern(64 << 10, 1), BLOCK)).completion.status;
    assert!(long != 0 && long != REQUIRED, "{long:x}");
    authenticate(&mut q, KEY, None).unwrap();
    assert!(q.ok(read(1, 0, 1, BLOCK)).data.iter().all(|b| *b == 0), "nothing was written");
    // Another host has no key, and may not connect at all.
    let mut q = Queue::open(&server, Options::default());
    let other = connect(0, 32, ANY_CONTROLLER, (NQN, "nqn.other"));
    assert_eq!(q.run(other).completion.status, 0x4184);
}

/// J13. A peer that knows all names and numbers keeps no queue from the host, and what it does to its own ends nothing else.
#[test]
fn a_stranger_takes_no_queue() {
    let server = keyed(None, DhGroup::Null);
    let (mut admin, result) = connected(&server, 0, ANY_CONTROLLER);
    let id = result as u16;
    authenticate(&mut admin, KEY, None).unwrap();
    admin.ok(start());
    admin.ok(set_queues(4));
    let (mut stranger, _) = connected(&server, 1, id);
    let (mut silent, _) = connected(&server, 1, id);
    let (mut twice, _) = connected(&server, 1, id);
    let (mut q, _) = connected(&server, 1, id);
    assert_eq!(server.hosts()[0].queues, 0, "it is not known yet whose they are");
    authenticate(&mut q, KEY, None).unwrap();
    assert_eq!(server.hosts()[0].queues, 1);
    assert!(authenticate(&mut stranger, OTHER_KEY, None).is_err());
    assert!(is_closed(&mut stranger));
    assert_eq!(silent.run(read(1, 0, 1, BLOCK)).completion.status, REQUIRED);
    drop(silent);
    // The queue is connected by now, although its host asks.
    let mut steps = Authenticate::new((NQN, HOST), &key(KEY), None, 5, Random::new(&[7; 132]));
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
    authenticate(&mut q, KEY, None).unwrap();
    assert!(q.ok(read(1, 0, 1, BLOCK)).data == pattern(4096, 9));
}

/// J13, J14. A key that is wrong, on either side.
#[test]
fn a_wrong_key_ends_the_connection() {
    let server = keyed(Some(OTHER_KEY), DhGroup::Null);
    let (mut admin, _) = connected(&server, 0, ANY_CONTROLLER);
    let error = authenticate(&mut admin, OTHER_KEY, None).unwrap_err();
    assert!(error.contains("code 1"), "{error}");
    assert!(is_closed(&mut admin));
    soon("it is counted", || server.failed_authentications() == 1);
    // The host finds that the server does not know its key.
    let (mut admin, _) = connected(&server, 0, ANY_CONTROLLER);
    let error = authenticate(&mut admin, KEY, Some(KEY)).unwrap_err();
    assert!(error.contains("does not know its key"), "{error}");
    assert!(is_closed(&mut admin));
    soon("it is counted", || server.failed_authentications() == 2);
    // A server without a key does not pretend.
    let server = keyed(None, DhGroup::Null);
    let (mut admin, _) = connected(&server, 0, ANY_CONTROLLER);
    assert!(authenticate(&mut admin, KEY, Some(OTHER_KEY)).is_err());
    assert!(is_closed(&mut admin));
    assert!(server.hosts().is_empty());
}

/// J13. Authentication again, while I/O goes on; one that fails ends the association.
#[test]
fn a_host_authenticates_again() {
    let server = keyed(None, DhGroup::Null);
    let (mut admin, result) = connected(&server, 0, ANY_CONTROLLER);
    authenticate(&mut admin, KEY, None).unwrap();
    admin.ok(start());
    admin.ok(set_queues(4));
    let (mut q, _) = connected(&server, 1, result as u16);
    authenticate(&mut q, KEY, None).unwrap();
    for i in 0..3 {
        authenticate(&mut admin, KEY, None).unwrap();
        q.ok(write(1, i, pattern(4096, i as u8), BLOCK));
        authenticate(&mut q, KEY, None).unwrap();
        assert!(q.ok(read(1, i, 1, BLOCK)).data == pattern(4096, i as u8));
    }
    assert!(authenticate(&mut admin, OTHER_KEY, None).is_err());
    assert!(is_closed(&mut admin) && is_closed(&mut q));
    soon("the host is gone", || server.hosts().is_empty());
    assert_eq!(server.failed_authentications(), 1);
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
        let c = q.run(connect(0, 32, ANY_CONTROLLER, (NQN, host))).completion;
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
    assert!(read_key(&path).unwrap_err().to_string().contains("gen-dhchap-key"));
}
