//! An initiator over sockets, and a server for it.

#![allow(dead_code)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use zoneplug_host::iscsi::{Disk, Iscsi, IscsiOptions, Secret};
use zoneplug_host::{HostedDisk, Specification};
use zoneplug_scsi::iscsi::{
    ChapHash, FrameLimits, Framer, Header, Pdu, encode_binary, encode_pdu, opcode, parse_binary,
    parse_text,
};

pub(crate) const NAME: &str = "iqn.2026-11.dev.zoneplug:test";
const LIMITS: FrameLimits =
    FrameLimits { max_data: 1 << 20, header_digest: false, data_digest: false };

pub(crate) fn options() -> IscsiOptions {
    IscsiOptions { threads: 2, ..IscsiOptions::new("127.0.0.1:0".parse().unwrap(), NAME) }
}

pub(crate) fn serve(options: &IscsiOptions) -> Iscsi {
    serve_disks(options, &["mem,zones=8,zone-size=1M,conv=2", "mem,zones=4,zone-size=1M"])
}

pub(crate) fn serve_disks(options: &IscsiOptions, specs: &[&str]) -> Iscsi {
    let disk = |spec: &&str| {
        let spec = Specification::parse(spec).unwrap();
        let disk = HostedDisk::open_named(spec.open().unwrap()).unwrap();
        Disk { disk, spec, tags: None }
    };
    Iscsi::start(options, specs.iter().map(disk).collect(), || ()).unwrap()
}

pub(crate) struct Initiator {
    pub(crate) stream: TcpStream,
    framer: Framer,
    bytes: Vec<u8>,
    cmd_sn: u32,
}

impl Initiator {
    pub(crate) fn connect(server: &Iscsi) -> Initiator {
        Initiator::connect_at(server.address())
    }

    pub(crate) fn connect_at(address: SocketAddr) -> Initiator {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        Initiator { stream, framer: Framer::new(LIMITS), bytes: Vec::new(), cmd_sn: 1 }
    }

    pub(crate) fn send(&mut self, header: Header, data: &[u8]) {
        self.stream.write_all(&encode_pdu(header, data, &LIMITS)).unwrap();
    }

    /// Receives a PDU. `None`: the connection was closed.
    pub(crate) fn receive(&mut self) -> Option<Pdu> {
        loop {
            let mut input = &self.bytes[..];
            let pdu = self.framer.receive(&mut input).unwrap();
            self.bytes = input.to_vec();
            if pdu.is_some() {
                return pdu;
            }
            let mut more = [0; 65_536];
            match self.stream.read(&mut more) {
                Ok(0) => return None,
                // The end of a ring of this thread interrupts it.
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return None,
                Ok(n) => self.bytes = more[..n].to_vec(),
            }
        }
    }

    /// Sends a login request and returns the answer.
    pub(crate) fn login(&mut self, flags: u8, keys: &str) -> Pdu {
        let h = Header::new(opcode::LOGIN | 0x40).with_flags(flags).with_word(24, self.cmd_sn);
        self.send(h, keys.as_bytes());
        self.receive().unwrap()
    }

    /// Logs in with CHAP: the secret of the initiator, and a challenge for the target. Returns the class and detail of
    /// the last answer, and the response of the target.
    pub(crate) fn prove(
        &mut self,
        initiator: &str,
        secret: &Secret,
        challenge: &[u8],
    ) -> ([u8; 2], String) {
        let names = format!("InitiatorName={initiator}\0TargetName={NAME}\0AuthMethod=CHAP\0");
        let value = |pdu: &Pdu, key: &str| {
            let pairs = parse_text(&pdu.data).unwrap();
            pairs.iter().find(|(k, _)| *k == key).map(|(_, v)| (*v).to_owned()).unwrap_or_default()
        };
        let status = |pdu: &Pdu| [pdu.header.0[36], pdu.header.0[37]];
        let begun = self.login(0x81, &names);
        if status(&begun) != [0, 0] {
            return (status(&begun), String::new());
        }
        assert_eq!(value(&begun, "AuthMethod"), "CHAP");
        let asked = self.login(0x00, "CHAP_A=5\0");
        let theirs = parse_binary(&value(&asked, "CHAP_C")).unwrap();
        let number = value(&asked, "CHAP_I").parse().unwrap();
        let response = encode_binary(&secret.response(ChapHash::Md5, number, &theirs));
        let mut keys = format!("CHAP_N={initiator}\0CHAP_R={response}\0");
        if !challenge.is_empty() {
            keys += &format!("CHAP_I=9\0CHAP_C={}\0", encode_binary(challenge));
        }
        let proven = self.login(0x81, &keys);
        if status(&proven) != [0, 0] {
            return (status(&proven), String::new());
        }
        (status(&self.login(0x87, "InitialR2T=No\0")), value(&proven, "CHAP_R"))
    }

    /// Logs in, and returns the class and detail of the answer.
    pub(crate) fn log_in(&mut self, initiator: &str, isid: u8) -> [u8; 2] {
        let keys = format!("InitiatorName={initiator}\0TargetName={NAME}\0InitialR2T=No\0");
        let mut h = Header::new(opcode::LOGIN | 0x40).with_flags(0x87).with_word(24, self.cmd_sn);
        h.0[13] = isid;
        self.send(h, keys.as_bytes());
        let answer = self.receive().unwrap().header;
        [answer.0[36], answer.0[37]]
    }

    /// Sends a command without waiting for its answer.
    pub(crate) fn begin(&mut self, lun: u8, cdb: &[u8], expected: u32, data: &[u8]) {
        let flags = if data.is_empty() { 0xc0 } else { 0xa0 };
        let mut h = Header::new(opcode::COMMAND).with_flags(flags);
        h = h.with_word(16, self.cmd_sn).with_word(20, expected).with_word(24, self.cmd_sn);
        h.0[9] = lun;
        h.0[32..32 + cdb.len()].copy_from_slice(cdb);
        self.cmd_sn += 1;
        self.send(h, data);
    }

    /// Logs in.
    pub(crate) fn logged_in(server: &Iscsi, initiator: &str) -> Initiator {
        Initiator::logged_in_at(server.address(), initiator)
    }

    /// Logs in at an address.
    pub(crate) fn logged_in_at(address: SocketAddr, initiator: &str) -> Initiator {
        let mut i = Initiator::connect_at(address);
        assert_eq!(i.log_in(initiator, 1), [0, 0]);
        assert_eq!(i.command(0, &[0; 6], 0, &[]).unwrap().0, 0, "nothing is owed to a new session");
        i
    }

    /// Writes blocks of 4 KiB, and returns the status and the sense.
    pub(crate) fn write(&mut self, lba: u32, data: &[u8]) -> (u8, Option<(u8, u8, u8)>) {
        let cdb = cdb(WRITE, lba, (data.len() / 4096) as u16);
        let (status, sense) = self.command(0, &cdb, data.len() as u32, data).unwrap();
        (status, sense_of(&sense))
    }

    /// Reads blocks of 4 KiB.
    pub(crate) fn read(&mut self, lba: u32, blocks: u16) -> Vec<u8> {
        let answer = self.command(0, &cdb(READ, lba, blocks), u32::from(blocks) * 4096, &[]);
        answer.unwrap().1
    }

    /// Carries out a command. Returns its status and data, or `None` if the connection was closed.
    pub(crate) fn command(
        &mut self,
        lun: u8,
        cdb: &[u8],
        expected: u32,
        data: &[u8],
    ) -> Option<(u8, Vec<u8>)> {
        self.begin(lun, cdb, expected, data);
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

pub(crate) fn cdb(code: u8, lba: u32, blocks: u16) -> [u8; 10] {
    let ([a, b, c, d], [e, f]) = (lba.to_be_bytes(), blocks.to_be_bytes());
    [code, 0, a, b, c, d, 0, e, f, 0]
}

pub(crate) const READ: u8 = 0x28;
pub(crate) const WRITE: u8 = 0x2a;

/// Returns the key, the code and the qualifier of sense data behind their length.
fn sense_of(data: &[u8]) -> Option<(u8, u8, u8)> {
    (data.len() >= 16).then(|| (data[4], data[14], data[15]))
}
