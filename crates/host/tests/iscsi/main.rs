//! The server of iSCSI with an initiator over sockets. The rules of a session are tested in `zoneplug-scsi`, without them.

#![cfg(feature = "iscsi")]
#![allow(clippy::unwrap_used)]

mod flood;
#[path = "../common/iscsi_initiator.rs"]
mod initiator;
mod loss;
#[path = "../common/lost_writes.rs"]
mod lost_writes;
#[path = "../common/soon.rs"]
mod soon;

use initiator::{Initiator, NAME, READ, WRITE, cdb, options, serve, serve_disks};
use std::time::Duration;
use zoneplug_host::Specification;
use zoneplug_host::iscsi::{CredentialError, IscsiError, IscsiOptions, Secret, check};
use zoneplug_scsi::iscsi::{ChapHash, Header, encode_binary, opcode};

/// Two initiators use two units of one target. Their writes are on the disks, and counted.
#[test]
fn initiators_read_what_they_have_written() {
    let server = serve(&options());
    let data: Vec<u8> = (0..65_536u32).map(|i| (i / 11) as u8).collect();
    let mut all = Vec::new();
    for n in 0..2u8 {
        let mut i = Initiator::connect(&server);
        assert_eq!(i.log_in(&format!("iqn.2026-11.test:{n}"), 1), [0, 0]);
        assert_eq!(i.command(n, &[0; 6], 0, &[]).unwrap().0, 0);
        let (status, inquiry) = i.command(n, &[0x12, 0, 0, 0, 96, 0], 96, &[]).unwrap();
        assert_eq!((status, inquiry[0]), (0, 0x14), "host-managed");
        // The first zone of unit 0 is conventional.
        assert_eq!(i.command(n, &cdb(WRITE, 0, 16), 65_536, &data).unwrap().0, 0);
        assert_eq!(i.command(n, &cdb(READ, 0, 16), 65_536, &[]).unwrap(), (0, data.clone()));
        all.push(i);
    }
    let names: Vec<String> = server.initiators().into_iter().map(|i| i.name).collect();
    assert_eq!(names, ["iqn.2026-11.test:0", "iqn.2026-11.test:1"]);
    for disk in 0..2 {
        let c = server.counters(disk);
        assert_eq!((c.reads, c.writes, c.written_bytes), (1, 1, 65_536));
    }
    // S11. The server ends while they are connected.
    drop(server);
    assert_eq!(all[0].command(0, &[0; 6], 0, &[]), None);
}

/// S7, S10. An initiator that may not log in is told so. One that logs in again ends its session.
#[test]
fn s10_logins_are_checked() {
    let listed = vec!["iqn.2026-11.test:1".to_owned()];
    let server = serve(&IscsiOptions { initiators: Some(listed), ..options() });
    assert_eq!(Initiator::connect(&server).log_in("iqn.2026-11.test:2", 1), [2, 2]);
    assert_eq!(server.failed_logins(), 0, "it had nothing to prove");
    let mut first = Initiator::connect(&server);
    assert_eq!(first.log_in("iqn.2026-11.test:1", 1), [0, 0]);
    let mut other_port = Initiator::connect(&server);
    assert_eq!(other_port.log_in("iqn.2026-11.test:1", 2), [0, 0]);
    let mut again = Initiator::connect(&server);
    assert_eq!(again.log_in("iqn.2026-11.test:1", 1), [0, 0]);
    assert_eq!(first.receive(), None, "the session has a new connection");
    for i in [&mut again, &mut other_port] {
        assert_eq!(i.command(0, &[0; 6], 0, &[]).unwrap().0, 0);
    }
    assert_eq!(server.initiators().len(), 2);
}

/// S12. An initiator that has a secret proves it, and the target does if the initiator asks for that. A response that
/// is not of the target's own challenge, a wrong secret, and no proof at all are refused.
#[test]
fn s12_both_sides_prove_their_secrets() {
    let [own, theirs, wrong] = ["secret of the disk", "secret of a host", "something else!"]
        .map(|s| Secret::parse(s).unwrap());
    let name = "iqn.2026-11.test:1";
    let secrets = vec![(name.to_owned(), theirs.clone())];
    let server = serve(&IscsiOptions { secrets, own_secret: Some(own.clone()), ..options() });
    let challenge = [7; 16];
    let mut i = Initiator::connect(&server);
    let (status, response) = i.prove(name, &theirs, &challenge);
    assert_eq!(status, [0, 0]);
    assert_eq!(response, encode_binary(&own.response(ChapHash::Md5, 9, &challenge)));
    assert_eq!(i.command(0, &[0; 6], 0, &[]).unwrap().0, 0);
    assert!(server.initiators().iter().all(|i| i.authenticated));
    // One way: the target proves nothing.
    let mut i = Initiator::connect(&server);
    assert_eq!(i.prove(name, &theirs, &[]), ([0, 0], String::new()));
    assert_eq!(Initiator::connect(&server).prove(name, &wrong, &[]).0, [2, 1]);
    assert_eq!(Initiator::connect(&server).prove("iqn.2026-11.test:2", &theirs, &[]).0, [2, 2]);
    assert_eq!(Initiator::connect(&server).log_in(name, 1), [2, 1], "no proof");
    assert_eq!(server.failed_logins(), 2, "one was refused for its name");
}

/// S10. No address that other machines reach is opened to any initiator unless an option says so.
#[test]
fn s10_other_machines_need_permission() {
    let outside = IscsiOptions::new("192.0.2.1:3260".parse().unwrap(), NAME);
    let e = outside.check().unwrap_err();
    assert!(e.to_string().contains("any initiator could log in"), "{e}");
    assert_eq!(e.detail(), Some(&IscsiError::Open { address: outside.listen }));
    IscsiOptions { any_initiator: true, ..outside.clone() }.check().unwrap();
    // An address that other machines reach counts, whichever it is.
    let second = IscsiOptions { also_listen: vec![outside.listen], ..options() };
    assert_eq!(second.check().unwrap_err().to_string(), e.to_string());
    let initiators = Some(vec!["iqn.2026-11.test:1".to_owned()]);
    IscsiOptions { initiators, ..outside.clone() }.check().unwrap();
    let secret = Secret::parse("twelve bytes").unwrap();
    let secrets = vec![("iqn.2026-11.test:1".to_owned(), secret.clone())];
    let with = IscsiOptions { secrets, ..outside };
    with.check().unwrap();
    let reason = |o: IscsiOptions| o.check().unwrap_err().detail::<IscsiError>().cloned().unwrap();
    let initiator = "iqn.2026-11.test:1".to_owned();
    let own = Some(secret);
    assert_eq!(
        reason(IscsiOptions { own_secret: own.clone(), ..with.clone() }),
        IscsiError::SharedSecret { initiator: initiator.clone() }
    );
    let secrets = [with.secrets.clone(), with.secrets.clone()].concat();
    assert_eq!(
        reason(IscsiOptions { secrets, ..with.clone() }),
        IscsiError::TwoSecrets { initiator }
    );
    assert_eq!(reason(IscsiOptions { any_initiator: true, ..with }), IscsiError::ListedAndAny);
    assert_eq!(
        reason(IscsiOptions { own_secret: own, ..options() }),
        IscsiError::TargetSecretAlone
    );
    let e = IscsiOptions { name: "disk".to_owned(), ..options() }.check().unwrap_err();
    assert_eq!(e.detail(), Some(&CredentialError::InvalidName { name: "disk".to_owned() }));
}

/// S1. SCSI has no zones with less capacity than length.
#[test]
fn s1_a_disk_that_scsi_cannot_describe_is_refused() {
    let spec = Specification::parse("mem,zones=4,zone-size=2M,zone-capacity=1M").unwrap();
    let device = spec.open_to_look().unwrap().device;
    let e = check(device.geometry(), device.limits(), &options()).unwrap_err();
    assert!(e.to_string().contains("can be written to its end"), "{e}");
    let plain = IscsiOptions { conventional_only: true, ..options() };
    let e = check(device.geometry(), device.limits(), &plain).unwrap_err();
    assert!(e.to_string().contains("does not begin with whole conventional zones"), "{e}");
    assert_eq!(e.detail(), Some(&IscsiError::NoConventionalZones));
}

/// S1. The conventional zones at the beginning of a disk are a plain disk, which ends where they end.
#[test]
fn s1_conventional_zones_are_a_plain_disk() {
    let plain = IscsiOptions { conventional_only: true, ..options() };
    let server = serve_disks(&plain, &["mem,zones=8,zone-size=1M,conv=2"]);
    let mut i = Initiator::logged_in(&server, "iqn.2026-11.test:1");
    assert_eq!(i.command(0, &[0x12, 0, 0, 0, 96, 0], 96, &[]).unwrap().1[0], 0, "device type");
    let capacity = i.command(0, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8, &[]).unwrap().1;
    assert_eq!(capacity, [0, 0, 1, 0xff, 0, 0, 0x10, 0]);
    let data = vec![7; 8192];
    assert_eq!(i.write(300, &data), (0, None), "anywhere, and across zones");
    assert_eq!(i.write(255, &data), (0, None));
    assert_eq!(i.write(511, &data), (2, Some((5, 0x21, 0))), "behind the end");
    assert_eq!(
        i.command(0, &[0x95, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], 256, &[]).unwrap().0,
        2
    );
}

/// S9. An initiator that has nothing to do is asked for a sign of life. It stays if it gives one, and is closed if not.
#[test]
fn an_idle_initiator_is_asked_for_a_sign_of_life() {
    let silence = Duration::from_millis(1500);
    let server = serve(&IscsiOptions { silence, ..options() });
    let mut idle = Initiator::logged_in(&server, "iqn.2026-11.test:idle");
    let mut dead = Initiator::logged_in(&server, "iqn.2026-11.test:dead");
    for _ in 0..2 {
        let ping = idle.receive().unwrap().header;
        assert_eq!(ping.opcode(), opcode::NOP_IN);
        let pong = Header::new(opcode::NOP_OUT | 0x40).with_flags(0x80);
        // No tag of the initiator: this answers the tag of the target.
        idle.send(pong.with_word(16, u32::MAX).with_word(20, ping.word20()), &[]);
    }
    assert_eq!(dead.receive().unwrap().header.opcode(), opcode::NOP_IN);
    assert!(dead.receive().is_none(), "the connection of a dead initiator ends");
    assert_eq!(idle.command(0, &[0; 6], 0, &[]).unwrap().0, 0);
}
