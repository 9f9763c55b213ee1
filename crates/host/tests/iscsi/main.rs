//! The server of iSCSI with an initiator over sockets. The rules of a session are tested in `zoneplug-scsi`, without them.

#![cfg(feature = "iscsi")]
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpStream;
use zoneplug_host::iscsi::{Disk, Iscsi, IscsiOptions, Secret, check};
use zoneplug_host::{HostedDisk, Specification};
use zoneplug_scsi::iscsi::{FrameLimits, Framer, Header, Pdu, encode_pdu, opcode};

const NAME: &str = "iqn.2026-11.dev.zoneplug:test";
const LIMITS: FrameLimits =
    FrameLimits { max_data: 1 << 20, header_digest: false, data_digest: false };

fn options() -> IscsiOptions {
    IscsiOptions { threads: 2, ..IscsiOptions::new("127.0.0.1:0".parse().unwrap(), NAME) }
}

fn serve(options: &IscsiOptions) -> Iscsi {
    let disk = |spec: &str| {
        let spec = Specification::parse(spec).unwrap();
        let disk = HostedDisk::open_named(spec.open().unwrap()).unwrap();
        Disk { disk, spec, tags: None }
    };
    let disks = vec![disk("mem,zones=8,zone-size=1M,conv=2"), disk("mem,zones=4,zone-size=1M")];
    Iscsi::start(options, disks, || ()).unwrap()
}

struct Initiator {
    stream: TcpStream,
    framer: Framer,
    bytes: Vec<u8>,
    cmd_sn: u32,
}

impl Initiator {
    fn connect(server: &Iscsi) -> Initiator {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        Initiator { stream, framer: Framer::new(LIMITS), bytes: Vec::new(), cmd_sn: 1 }
    }

    fn send(&mut self, header: Header, data: &[u8]) {
        self.stream.write_all(&encode_pdu(header, data, &LIMITS)).unwrap();
    }

    /// Receives a PDU. `None`: the connection was closed.
    fn receive(&mut self) -> Option<Pdu> {
        loop {
            let mut input = &self.bytes[..];
            let pdu = self.framer.receive(&mut input).unwrap();
            self.bytes = input.to_vec();
            if pdu.is_some() {
                return pdu;
            }
            let mut more = [0; 65_536];
            match self.stream.read(&mut more) {
                Ok(0) | Err(_) => return None,
                Ok(n) => self.bytes = more[..n].to_vec(),
            }
        }
    }

    /// Logs in, and returns the class and detail of the answer.
    fn log_in(&mut self, initiator: &str, isid: u8) -> [u8; 2] {
        let keys = format!("InitiatorName={initiator}\0TargetName={NAME}\0InitialR2T=No\0");
        let mut h = Header::new(opcode::LOGIN | 0x40).with_flags(0x87).with_word(24, self.cmd_sn);
        h.0[13] = isid;
        self.send(h, keys.as_bytes());
        let answer = self.receive().unwrap().header;
        [answer.0[36], answer.0[37]]
    }

    /// Carries out a command. Returns its status and data, or `None` if the connection was closed.
    fn command(
        &mut self,
        lun: u8,
        cdb: &[u8],
        expected: u32,
        data: &[u8],
    ) -> Option<(u8, Vec<u8>)> {
        let flags = if data.is_empty() { 0xc0 } else { 0xa0 };
        let mut h = Header::new(opcode::COMMAND).with_flags(flags);
        h = h.with_word(16, self.cmd_sn).with_word(20, expected).with_word(24, self.cmd_sn);
        h.0[9] = lun;
        h.0[32..32 + cdb.len()].copy_from_slice(cdb);
        self.cmd_sn += 1;
        self.send(h, data);
        let mut all = Vec::new();
        loop {
            let pdu = self.receive()?;
            match pdu.header.opcode() {
                opcode::DATA_IN => {
                    all.extend(pdu.data);
                    if pdu.header.flags() & 1 != 0 {
                        return Some((pdu.header.0[3], all));
                    }
                }
                opcode::RESPONSE => return Some((pdu.header.0[3], pdu.data)),
                other => panic!("{other:x}"),
            }
        }
    }
}

fn cdb(code: u8, lba: u32, blocks: u16) -> [u8; 10] {
    let ([a, b, c, d], [e, f]) = (lba.to_be_bytes(), blocks.to_be_bytes());
    [code, 0, a, b, c, d, 0, e, f, 0]
}

const READ: u8 = 0x28;
const WRITE: u8 = 0x2a;

/// Two initiators use two units of one target. Their writes are on the disks, and counted.
#[test]
fn initiators_read_what_they_have_written() {
    let server = serve(&options());
    let data: Vec<u8> = (0..65_536u32).map(|i| (i / 11) as u8).collect();
    let mut all = Vec::new();
    for n in 0..2u8 {
        let mut i = Initiator::connect(&server);
        assert_eq!(i.log_in(&format!("iqn.2026-11.test:{n}"), 1), [0, 0]);
        assert_eq!(i.command(n, &[0; 6], 0, &[]).unwrap().0, 2, "power on");
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
    assert_eq!(server.failed_logins(), 1);
    let mut first = Initiator::connect(&server);
    assert_eq!(first.log_in("iqn.2026-11.test:1", 1), [0, 0]);
    let mut other_port = Initiator::connect(&server);
    assert_eq!(other_port.log_in("iqn.2026-11.test:1", 2), [0, 0]);
    let mut again = Initiator::connect(&server);
    assert_eq!(again.log_in("iqn.2026-11.test:1", 1), [0, 0]);
    assert_eq!(first.receive(), None, "the session has a new connection");
    for i in [&mut again, &mut other_port] {
        assert_eq!(i.command(0, &[0; 6], 0, &[]).unwrap().0, 2, "power on");
        assert_eq!(i.command(0, &[0; 6], 0, &[]).unwrap().0, 0);
    }
    assert_eq!(server.initiators().len(), 2);
}

/// S10. No address that other machines reach is opened to any initiator unless an option says so.
#[test]
fn s10_other_machines_need_permission() {
    let outside = IscsiOptions::new("192.0.2.1:3260".parse().unwrap(), NAME);
    assert!(outside.check().unwrap_err().to_string().contains("any initiator could log in"));
    IscsiOptions { any_initiator: true, ..outside.clone() }.check().unwrap();
    let initiators = Some(vec!["iqn.2026-11.test:1".to_owned()]);
    IscsiOptions { initiators, ..outside.clone() }.check().unwrap();
    let secret = Secret::parse("twelve bytes").unwrap();
    let secrets = vec![("iqn.2026-11.test:1".to_owned(), secret.clone())];
    let with = IscsiOptions { secrets, ..outside };
    with.check().unwrap();
    let same = IscsiOptions { own_secret: Some(secret.clone()), ..with.clone() };
    assert!(same.check().is_err(), "one secret for both sides");
    assert!(IscsiOptions { any_initiator: true, ..with }.check().is_err());
    assert!(IscsiOptions { own_secret: Some(secret), ..options() }.check().is_err());
    assert!(IscsiOptions { name: "disk".to_owned(), ..options() }.check().is_err());
}

/// S1. SCSI has no zones with less capacity than length.
#[test]
fn s1_a_disk_that_scsi_cannot_describe_is_refused() {
    let spec = Specification::parse("mem,zones=4,zone-size=2M,zone-capacity=1M").unwrap();
    let device = spec.open_to_look().unwrap().device;
    let e = check(device.geometry(), device.limits()).unwrap_err();
    assert!(e.to_string().contains("can be written to its end"), "{e}");
}

/// S9. Each new connection of a peer that does not log in closes one of its old ones. Initiators stay, and get in.
#[test]
fn s9_connections_that_never_log_in_keep_no_initiator_out() {
    let server = serve(&IscsiOptions { max_connections: 16, threads: 1, ..options() });
    let mut first = Initiator::connect(&server);
    assert_eq!(first.log_in("iqn.2026-11.test:1", 1), [0, 0]);
    let flood: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    let mut second = Initiator::connect(&server);
    assert_eq!(second.log_in("iqn.2026-11.test:2", 1), [0, 0]);
    for i in [&mut first, &mut second] {
        assert_eq!(i.command(0, &[0; 6], 0, &[]).unwrap().0, 2, "power on");
    }
    drop(flood);
}
