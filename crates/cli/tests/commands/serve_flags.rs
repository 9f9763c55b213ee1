//! Every flag of `zoneplug serve` arrives where its effect is: a client, the socket or the device meets it.
//!
//! [`FLAGS`] names for each flag the tests or the guest that see its effect. Flags that are refused in a line prove only that they
//! are read.

use super::handover::serve;
use super::initiator::{Initiator, NAME};
use super::nvme_host::{BLOCK, HOST, INVALID_HOST, KEY, NQN, OTHER_KEY, Queue, pattern, steps};
use super::{Dir, json, ok};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use zoneplug_host::iscsi::Secret;
use zoneplug_nvme::initiator::{Options, connect, write};
use zoneplug_nvme::spec::fabrics::ANY_CONTROLLER;
use zoneplug_scsi::iscsi::{ChapHash, encode_binary};

/// For each flag, the place where its effect is seen: `FILE: TEST` of these tests, or a guest of `tests/vm`.
const FLAGS: &[(&str, &str)] = &[
    ("ublk", "guest/ublk"),
    ("nvme-tcp", "serve.rs: a_disk_is_served_at_two_addresses"),
    ("nqn", "serve.rs: a_disk_is_served_at_two_addresses"),
    ("allow-host", "serve_flags.rs: hosts_connect_by_name"),
    ("allow-any-host", "serve_flags.rs: hosts_connect_by_name"),
    ("dhchap-key", "serve_flags.rs: hosts_and_servers_prove_their_keys"),
    ("dhchap-ctrl-key", "serve_flags.rs: hosts_and_servers_prove_their_keys"),
    ("dhchap-dhgroup", "serve_flags.rs: hosts_and_servers_prove_their_keys"),
    ("iscsi", "serve_flags.rs: a_target_is_served_at_two_addresses"),
    ("iqn", "serve_flags.rs: a_target_is_served_at_two_addresses"),
    ("allow-initiator", "serve_flags.rs: initiators_log_in_by_name"),
    ("allow-any-initiator", "serve_flags.rs: initiators_log_in_by_name"),
    ("conventional-only", "serve_flags.rs: conventional_zones_are_a_plain_disk"),
    ("chap-secret", "serve_flags.rs: initiators_and_targets_prove_their_secrets"),
    ("chap-target-secret", "serve_flags.rs: initiators_and_targets_prove_their_secrets"),
    ("id", "guest/ublk"),
    ("queues", "guest/ublk"),
    ("depth", "guest/ublk"),
    ("no-recovery", "guest/ublk-recovery"),
    ("metrics", "serve_flags.rs: metrics_are_shown_to_other_machines"),
    ("metrics-public", "serve_flags.rs: metrics_are_shown_to_other_machines"),
    ("latency", "serve_flags.rs: each_door_measures_latencies"),
    ("takeover", "handover.rs: u9_a_server_hands_its_disks_over"),
    ("remove-on-exit", "guest/ublk-handover"),
    ("background", "serve.rs: a_server_in_the_background_lets_go_of_its_callers_output"),
    ("moved", "stamp.rs: l13_a_disk_that_is_not_what_hosts_know_is_refused"),
    (
        "forget-hosts",
        "stamp.rs: l13_a_disk_keeps_its_number_and_identifier_when_its_server_is_killed",
    ),
    ("join", "guest/ublk-many-zones"),
    ("socket", "handover.rs: u9_a_server_hands_its_disks_over"),
    ("socket-owner", "serve_flags.rs: the_socket_has_its_owner_and_rights"),
    ("socket-group", "serve.rs: members_of_the_sockets_group_may_ask"),
    ("socket-mode", "serve_flags.rs: the_socket_has_its_owner_and_rights"),
    ("log-level", "serve.rs: the_level_of_the_log_comes_from_the_flag_the_variable_or_the_file"),
    ("config", "serve.rs: a_file_is_checked_without_serving_it"),
    ("check-config", "serve.rs: a_file_is_checked_without_serving_it"),
    ("json", "serve.rs: a_file_is_checked_without_serving_it"),
    ("remove", "guest/ublk-recovery"),
    ("udev-rule", "serve.rs: the_rule_for_udev_is_printed"),
];

/// A new flag needs a line of [`FLAGS`], and a line needs a test that uses the flag, or its key in a file of settings.
#[test]
fn each_flag_has_a_test_that_sees_its_effect() {
    let help = ok(&["serve", "--help"]);
    let flags = help.lines().filter_map(|l| l.split_once("--").filter(|(l, _)| l.len() < 8));
    let flag = |(_, rest): (&str, &str)| {
        rest.split(|c: char| c != '-' && !c.is_ascii_lowercase()).next().unwrap().to_owned()
    };
    let mut flags: BTreeSet<String> = flags.map(flag).collect();
    // Every command has these.
    assert!(["help", "no-progress", "quiet"].iter().filter(|f| flags.remove(**f)).count() > 0);
    let rows: BTreeSet<String> = FLAGS.iter().map(|(flag, _)| (*flag).to_owned()).collect();
    assert_eq!(flags, rows);
    let root = env!("CARGO_MANIFEST_DIR");
    let read = |path: &str| std::fs::read_to_string(format!("{root}/{path}")).unwrap();
    for (flag, place) in FLAGS {
        let text = match place.split_once(": ") {
            None => read(&format!("../../tests/vm/{place}")),
            Some((file, test)) => {
                let text = read(&format!("tests/commands/{file}"));
                let (_, text) = text.split_once(&format!("fn {test}()")).unwrap();
                text.split_once("\n}\n").unwrap().0.to_owned()
            }
        };
        // A test writes a file of settings as a string, so that a key follows the escape of a newline.
        let used = text.contains(&format!("--{flag}")) || text.contains(&format!("\\n{flag} ="));
        assert!(used, "{place} does not use --{flag}");
    }
}

/// An address of every network of this machine, as seen from this machine.
fn local(address: SocketAddr) -> SocketAddr {
    assert!(address.ip().is_unspecified());
    SocketAddr::new([127, 0, 0, 1].into(), address.port())
}

const OTHER_HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:a5a5a5a5-5a5a-5a5a-5a5a-5a5a5a5a5a5a";

/// The status of a connect command of a host's admin queue.
fn connects(address: SocketAddr, host: &str) -> u16 {
    let mut q = Queue::open_at(address, Options::default());
    q.run(connect(0, 32, ANY_CONTROLLER, NQN, host)).completion.status
}

#[test]
fn hosts_connect_by_name() {
    let dir = Dir::new("flags-hosts");
    let disk = ["--nvme-tcp", "0.0.0.0:0", "mem,zones=4", "--nqn", NQN];
    let listed = [&disk[..], &["--allow-host", "nqn.other", "--allow-host", HOST]].concat();
    let (server, at) = serve(&dir, NQN, &listed);
    assert_eq!(connects(local(at), HOST), 0);
    assert_eq!(connects(local(at), OTHER_HOST), INVALID_HOST);
    drop(server);
    let (_server, at) = serve(&dir, NQN, &[&disk[..], &["--allow-any-host"]].concat());
    assert_eq!(connects(local(at), OTHER_HOST), 0);
}

#[test]
fn hosts_and_servers_prove_their_keys() {
    let dir = Dir::new("flags-keys");
    let key = format!("{HOST}={}", dir.private("key", KEY));
    let ctrl = dir.private("ctrl", OTHER_KEY);
    let disk = ["--nvme-tcp", "127.0.0.1:0", "mem,zones=4", "--nqn", NQN, "--dhchap-key", &key];
    let proves = |at: SocketAddr, key: &str, ctrl: Option<&str>| {
        let (mut q, result) = Queue::connected_at(at, 0, ANY_CONTROLLER);
        assert_eq!(result >> 17, 1, "authentication is required");
        q.authenticate(key, ctrl)
    };
    let (server, at) = serve(&dir, NQN, &disk);
    assert_eq!(proves(at, KEY, None), Ok(()));
    assert!(proves(at, OTHER_KEY, None).is_err(), "another key");
    assert!(proves(at, KEY, Some(OTHER_KEY)).is_err(), "a server without a key");
    drop(server);
    let (server, at) = serve(&dir, NQN, &[&disk[..], &["--dhchap-ctrl-key", &ctrl]].concat());
    assert_eq!(proves(at, KEY, Some(OTHER_KEY)), Ok(()));
    assert!(proves(at, KEY, Some(KEY)).is_err(), "a server with another key");
    drop(server);
    // The group is chosen by the server; each has its number in the challenge.
    for (group, number) in [("null", 0), ("ffdhe2048", 1), ("ffdhe3072", 2)] {
        let (_server, at) = serve(&dir, NQN, &[&disk[..], &["--dhchap-dhgroup", group]].concat());
        let (mut q, _) = Queue::connected_at(at, 0, ANY_CONTROLLER);
        assert_eq!(q.carry_out(&mut steps(None), 2)[9], number, "{group}");
    }
}

#[test]
fn a_target_is_served_at_two_addresses() {
    let dir = Dir::new("flags-target");
    let disks = ["mem,zones=4,zone-size=1M", "mem,zones=8,zone-size=1M"];
    let args = ["--iscsi", "127.0.0.1:0", disks[0], disks[1], "--iscsi", "127.0.0.2:0"];
    let (mut server, first) = serve(&dir, NAME, &[&args[..], &["--iqn", NAME]].concat());
    let second = server.address_of(NAME);
    assert_eq!([first, second].map(|at| at.ip().to_string()), ["127.0.0.1", "127.0.0.2"]);
    for (n, at) in [first, second].into_iter().enumerate() {
        let mut i = Initiator::connect_at(at);
        assert_eq!(i.log_in(&format!("iqn.2026-11.test:{n}"), 1), [0, 0], "{at}");
        assert_eq!([0, 1].map(|lun| blocks(&mut i, lun)), [1024, 2048], "{at}");
    }
    drop(server);
    // Without a name the target has one of the machine and the port, and not this one.
    let (_server, at) = serve(&dir, "iqn.2026-11.dev.zoneplug:", &args[..3]);
    assert_eq!(Initiator::connect_at(at).log_in("iqn.2026-11.test:1", 1), [2, 3], "not found");
}

/// The number of blocks of 4 KiB of a unit.
fn blocks(i: &mut Initiator, lun: u8) -> u32 {
    assert!(i.command(lun, &[0; 6], 0, &[]).is_some());
    let mut capacity = [0; 10];
    capacity[0] = 0x25;
    let (status, data) = i.command(lun, &capacity, 8, &[]).unwrap();
    assert_eq!((status, &data[4..8]), (0, &4096u32.to_be_bytes()[..]));
    u32::from_be_bytes(data[..4].try_into().unwrap()) + 1
}

#[test]
fn initiators_log_in_by_name() {
    const FORBIDDEN: [u8; 2] = [2, 2];
    let dir = Dir::new("flags-initiators");
    let disk = ["--iscsi", "0.0.0.0:0", "mem,zones=4,zone-size=1M", "--iqn", NAME];
    let logs_in = |at: SocketAddr, n: u8| {
        Initiator::connect_at(local(at)).log_in(&format!("iqn.2026-11.test:{n}"), 1)
    };
    let names =
        ["--allow-initiator", "iqn.2026-11.test:1", "--allow-initiator", "iqn.2026-11.test:2"];
    let (server, at) = serve(&dir, NAME, &[&disk[..], &names].concat());
    assert_eq!([1, 2, 3].map(|n| logs_in(at, n)), [[0, 0], [0, 0], FORBIDDEN]);
    drop(server);
    let (_server, at) = serve(&dir, NAME, &[&disk[..], &["--allow-any-initiator"]].concat());
    assert_eq!(logs_in(at, 3), [0, 0]);
}

#[test]
fn initiators_and_targets_prove_their_secrets() {
    const INITIATOR: &str = "iqn.2026-11.test:1";
    let dir = Dir::new("flags-secrets");
    let secret = format!("{INITIATOR}={}", dir.private("secret", "secret of initiator"));
    let disk = ["--iscsi", "127.0.0.1:0", "mem,zones=4,zone-size=1M", "--iqn", NAME];
    let one_way = [&disk[..], &["--chap-secret", &secret]].concat();
    let secret = |text: &str| Secret::parse(text).unwrap();
    let prove = |at: SocketAddr, text: &str, challenge: &[u8]| {
        Initiator::connect_at(at).prove(INITIATOR, &secret(text), challenge)
    };
    let (server, at) = serve(&dir, NAME, &one_way);
    assert_eq!(prove(at, "secret of initiator", &[]).0, [0, 0]);
    assert_eq!(prove(at, "secret of somebody", &[]).0, [2, 1]);
    assert_ne!(prove(at, "secret of initiator", &[7; 16]).0, [0, 0], "a target without a secret");
    drop(server);
    let target = dir.private("target", "secret of target");
    let mutual = [&one_way[..], &["--chap-target-secret", &target]].concat();
    let (_server, at) = serve(&dir, NAME, &mutual);
    let (status, response) = prove(at, "secret of initiator", &[7; 16]);
    assert_eq!(status, [0, 0]);
    let of_target = secret("secret of target").response(ChapHash::Md5, 9, &[7; 16]);
    assert_eq!(response, encode_binary(&of_target));
}

#[test]
fn conventional_zones_are_a_plain_disk() {
    let dir = Dir::new("flags-conventional");
    let disk = ["--iscsi", "127.0.0.1:0", "mem,zones=8,zone-size=1M,conv=2", "--iqn", NAME];
    for (more, kind, size) in [(&[][..], 0x14, 2048), (&["--conventional-only"][..], 0, 512)] {
        let (_server, at) = serve(&dir, NAME, &[&disk[..], more].concat());
        let mut i = Initiator::logged_in_at(at, "iqn.2026-11.test:1");
        let (status, inquiry) = i.command(0, &[0x12, 0, 0, 0, 96, 0], 96, &[]).unwrap();
        assert_eq!((status, inquiry[0], blocks(&mut i, 0)), (0, kind, size), "{more:?}");
    }
}

#[test]
fn metrics_are_shown_to_other_machines() {
    let dir = Dir::new("flags-metrics");
    let args = ["--nvme-tcp", "127.0.0.1:0", "null,zones=4", "--nqn", NQN];
    let metrics = ["--metrics", "0.0.0.0:0", "--metrics-public"];
    let (mut server, _) = serve(&dir, NQN, &[&args[..], &metrics].concat());
    let line = server.line_with("metrics at http://0.0.0.0:");
    let port = line.split(':').next_back().unwrap().trim_end_matches("/metrics");
    assert!(super::metrics::get(&format!("127.0.0.1:{port}")).contains("zoneplug_"));
}

/// The latencies of the writes of each disk, as the socket shows them.
fn latencies(dir: &Dir) -> Vec<Value> {
    let status = json(&["status", "--json", "--socket", &dir.path("s")]);
    let disks = status["disks"].as_array().unwrap_or_else(|| panic!("{status}"));
    let of = |disk: &Value| {
        let all = disk["operations"].as_array().unwrap_or_else(|| panic!("{disk}"));
        let write = all.iter().find(|o| o["op"] == "write").unwrap();
        assert_eq!(write["count"], 1, "{disk}");
        write["latency"].clone()
    };
    disks.iter().map(of).collect()
}

#[test]
fn each_door_measures_latencies() {
    let dir = Dir::new("flags-latency");
    let nvme = ["--nvme-tcp", "127.0.0.1:0", "mem,zones=4,zone-size=1M", "--nqn", NQN];
    let iscsi = ["--iscsi", "127.0.0.1:0", "mem,zones=8,zone-size=1M", "--iqn", NAME];
    for measured in [false, true] {
        let latency = if measured { &["--latency"][..] } else { &[] };
        let (mut server, at) = serve(&dir, NQN, &[&nvme[..], &iscsi, latency].concat());
        let target = server.address_of(NAME);
        let (_admin, mut io) = Queue::pair_at(&at.to_string(), NQN);
        io.ok(write(1, 0, pattern(BLOCK as usize, 1), BLOCK));
        let mut i = Initiator::logged_in_at(target, "iqn.2026-11.test:1");
        assert_eq!(i.write(0, &pattern(4096, 1)).0, 0);
        for latency in latencies(&dir) {
            assert_eq!(!latency.is_null(), measured, "{latency}");
        }
    }
}

/// Needs root, which may give a socket away.
#[test]
fn the_socket_has_its_owner_and_rights() {
    let dir = Dir::new("flags-socket");
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let disk = ["--nvme-tcp", "127.0.0.1:0", "null,zones=4", "--nqn", NQN];
    let owner = if is_root { &["--socket-owner", "54321"][..] } else { &[] };
    let (_server, _) = serve(&dir, NQN, &[&disk[..], owner, &["--socket-mode", "0640"]].concat());
    let socket = std::fs::metadata(dir.path("s")).unwrap();
    assert_eq!(socket.mode() & 0o777, 0o640);
    if is_root {
        assert_eq!(socket.uid(), 54321);
    } else {
        println!("the owner: skipped: this is not root");
    }
}
