//! `zoneplug status` shows of a disk what its clients did, through each door.

use super::handover::{Server, serve};
use super::initiator::{Initiator, NAME};
use super::nvme_host::{BLOCK, HOST, KEY, NQN, OTHER_KEY, Queue, enable, pattern};
use super::{Dir, json, state};
use serde_json::{Value, json as value};
use std::net::SocketAddr;
use zoneplug_host::iscsi::Secret;
use zoneplug_nvme::initiator::{Data, read, set_queues, write};
use zoneplug_nvme::spec::fabrics::ANY_CONTROLLER;
use zoneplug_nvme::spec::identify::cns;
use zoneplug_nvme::spec::{Command, admin as opcode};

/// The disk `name` at this address after two writes, one of two blocks, a read, and a write at a wrong place of a client that has
/// authenticated, and another client that was refused. `of`: the subsystem or target.
fn expected(at: SocketAddr, name: &str, of: &str, client: &str) -> Value {
    let operation = |op: &str, count: u64, bytes: u64, errors: u64| value!({"op": op, "count": count, "bytes": bytes, "errors": errors, "latency": null});
    value!({
        "aborted": 0,
        "address": at.to_string(),
        "capacity_bytes": 4 << 20,
        "conditions": {
            "active": 1, "conventional": 0, "empty": 3, "full": 0, "offline": 0, "read_only": 0, "stale": 0,
        },
        "enabled": true,
        "errors": 1,
        "events": {
            "data_missing": 0, "failed": 0, "late_back": 0, "queue_died": 0, "recovered": 0, "revalidated": 0, "stale": 0,
        },
        "failed_authentications": 1,
        "file_changed": null,
        "handed_over": false,
        "held": 0,
        "held_expired": 0,
        "held_total": 0,
        "hosts": [{"nqn": client, "queues": 1, "authenticated": true}],
        "issued": 2,
        "late": 0,
        "live_plugs": 1,
        "merged": 0,
        "name": name,
        "nqn": of,
        "operations": [operation("read", 1, 4096, 0), operation("write", 2, 12288, 1)],
        "others": 0,
        "parked": 0,
        "read_bytes": 4096,
        "reads": 1,
        "recovered": false,
        "replayed": 0,
        "slow_zones": [],
        "spec": SPEC,
        "timeouts": 0,
        "waiting": 0,
        "waiting_zones": [],
        "writes": 2,
        "written_bytes": 12288,
        "zone_bytes": 1 << 20,
        "zones": 4,
    })
}

/// The disk that a server shows, without what differs from run to run.
fn shown(dir: &Dir, server: &Server) -> Value {
    let mut status = json(&["status", "--json", "--socket", &dir.path("s")]);
    let disk = status["disks"][0].take();
    let mut disk = disk.as_object().unwrap_or_else(|| panic!("{status}")).clone();
    assert_eq!(disk.remove("pid").unwrap(), server.0.id());
    assert_eq!(disk.remove("version").unwrap(), env!("CARGO_PKG_VERSION"));
    assert!(disk.remove("started_unix_s").unwrap().as_u64() > Some(1_700_000_000));
    Value::Object(disk)
}

/// The UUID of the served disk, as the next server would be told.
fn uuid(dir: &Dir) -> String {
    state(&dir.path("s"))["disks"][0]["uuid"].as_str().unwrap().to_owned()
}

/// Bytes as the record has those of a UUID.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

const SPEC: &str = "mem,zones=4,zone-size=1M,order_window=0";

#[test]
fn a_namespace_is_shown_with_what_its_hosts_did() {
    let dir = Dir::new("status-namespace");
    let key = format!("{HOST}={}", dir.private("key", KEY));
    let args = ["--nvme-tcp", "127.0.0.1:0", SPEC, "--nqn", NQN, "--dhchap-key", &key];
    let (server, at) = serve(&dir, NQN, &args);
    let connected = |qid, id| Queue::connected_at(at, qid, id);
    connected(0, ANY_CONTROLLER).0.authenticate(OTHER_KEY, None).unwrap_err();
    let (mut admin, id) = connected(0, ANY_CONTROLLER);
    admin.authenticate(KEY, None).unwrap();
    admin.ok(enable());
    admin.ok(set_queues(4));
    let (mut io, _) = connected(1, id as u16);
    io.authenticate(KEY, None).unwrap();
    io.ok(write(1, 0, pattern(4096, 1), BLOCK));
    io.ok(write(1, 1, pattern(8192, 2), BLOCK));
    assert_eq!(io.ok(read(1, 0, 1, BLOCK)).data, pattern(4096, 1));
    assert_ne!(io.run(write(1, 9, pattern(4096, 1), BLOCK)).completion.status, 0);
    let name = format!("tcp{}n1", at.port());
    assert_eq!(shown(&dir, &server), expected(at, &name, NQN, HOST));
    let mut identify = Command::new(opcode::IDENTIFY).with_nsid(1);
    identify.0[40] = cns::NAMESPACE_DESCRIPTORS;
    assert!(hex(&admin.ok((identify, Data::In(4096))).data).contains(&uuid(&dir)));
}

#[test]
fn a_unit_is_shown_with_what_its_initiators_did() {
    const INITIATOR: &str = "iqn.2026-11.test:1";
    let dir = Dir::new("status-unit");
    let secret = format!("{INITIATOR}={}", dir.private("secret", "secret of initiator"));
    let args = ["--iscsi", "127.0.0.1:0", SPEC, "--iqn", NAME, "--chap-secret", &secret];
    let (server, at) = serve(&dir, NAME, &args);
    let prove = |i: &mut Initiator, text| i.prove(INITIATOR, &Secret::parse(text).unwrap(), &[]).0;
    assert_eq!(prove(&mut Initiator::connect_at(at), "secret of another"), [2, 1]);
    let mut i = Initiator::connect_at(at);
    assert_eq!(prove(&mut i, "secret of initiator"), [0, 0]);
    assert_eq!(i.write(0, &pattern(4096, 1)).0, 0);
    assert_eq!(i.write(1, &pattern(8192, 2)).0, 0);
    assert_eq!(i.read(0, 1), pattern(4096, 1));
    assert_ne!(i.write(9, &pattern(4096, 1)).0, 0);
    let name = format!("iscsi{}l0", at.port());
    assert_eq!(shown(&dir, &server), expected(at, &name, NAME, INITIATOR));
    let (status, designators) = i.command(0, &[0x12, 1, 0x83, 0, 255, 0], 255, &[]).unwrap();
    assert!(status == 0 && hex(&designators).contains(&uuid(&dir)));
}
