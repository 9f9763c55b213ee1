//! An initiator, and the bytes between it and a session. The fuzzing targets use this file, too.

use hardware::{Hardware, QueueClient, Side};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::Arc;
use zoneplug_buf::Buffers;
use zoneplug_core::Nanos;
use zoneplug_devices::emu::EmuDisk;
use zoneplug_scsi::iscsi::{
    FrameLimits, Framer, Header, NO_TAG, Pdu, Session, SessionConfig, TargetEvent, encode_pdu,
    opcode, parse_text,
};

#[path = "hardware.rs"]
pub(crate) mod hardware;

/// The silence after which a target asks for a sign of life, in seconds.
pub(crate) const WAIT_FOR_TARGET: u64 = 30;

const MEMORY: u32 = 16 << 20;

/// The lengths of the pieces in which bytes arrive.
#[derive(Clone)]
pub(crate) struct Fragments(Option<u64>);

impl Fragments {
    pub(crate) fn whole() -> Fragments {
        Fragments(None)
    }

    pub(crate) fn random(seed: u64) -> Fragments {
        Fragments(Some(seed | 1))
    }

    fn next(&mut self) -> usize {
        let Some(x) = &mut self.0 else { return usize::MAX };
        *x ^= *x << 13;
        *x ^= *x >> 7;
        *x ^= *x << 17;
        match *x % 4 {
            0 => 1 + (*x >> 8) as usize % 8,
            1 => 1 + (*x >> 8) as usize % 100,
            _ => 1 + (*x >> 8) as usize % 9000,
        }
    }
}

/// Returns four bytes of a header.
pub(crate) fn word(h: &Header, at: usize) -> u32 {
    u32::from_be_bytes(h.0[at..at + 4].try_into().unwrap())
}

/// The answer to a command.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u8,
    pub(crate) flags: u8,
    pub(crate) residual: u32,
    pub(crate) sense: Option<(u8, u8, u8)>,
    pub(crate) data: Vec<u8>,
}

/// An initiator with its session.
pub(crate) struct Peer {
    hardware: Rc<Hardware>,
    side: Side,
    session: Option<Session<QueueClient>>,
    pub(crate) key: u64,
    fragments: Fragments,
    /// Bytes on their way to the session.
    sent: VecDeque<u8>,
    framer: Framer,
    limits: FrameLimits,
    /// The digests on which the login has agreed so far.
    agreed: FrameLimits,
    pub(crate) pdus: VecDeque<Pdu>,
    pub(crate) cmd_sn: u32,
    stat_sn: Option<u32>,
    pub(crate) next_tag: u32,
    max_data: usize,
    first_burst: usize,
    immediate: bool,
    unsolicited: bool,
    /// MaxCmdSN of the last PDU.
    max_cmd_sn: u32,
}

impl Peer {
    fn connect(hardware: &Rc<Hardware>, memory: u32, fragments: Fragments) -> Peer {
        let key = hardware.keys.get();
        hardware.keys.set(key + 1);
        let limits = FrameLimits { max_data: 1 << 20, header_digest: false, data_digest: false };
        let config = SessionConfig { memory, ..SessionConfig::default() };
        let at = "192.0.2.1:3260".parse().unwrap();
        Peer {
            side: Side {
                hardware: hardware.clone(),
                opened: 0,
                buffers: Buffers::new(1 << 20),
                now: Nanos(0),
            },
            session: Some(Session::new(config, key, at, Nanos(0))),
            hardware: hardware.clone(),
            key,
            fragments,
            sent: VecDeque::new(),
            framer: Framer::new(limits),
            limits,
            agreed: limits,
            pdus: VecDeque::new(),
            cmd_sn: u32::MAX - 1,
            stat_sn: None,
            next_tag: 1,
            max_data: 8192,
            first_burst: 65_536,
            immediate: true,
            unsolicited: false,
            max_cmd_sn: 0,
        }
    }

    fn log_in_to(hardware: &Rc<Hardware>, keys: &str, memory: u32, fragments: Fragments) -> Peer {
        let mut peer = Peer::connect(hardware, memory, fragments);
        let names =
            "InitiatorName=iqn.2026-11.test:peer\0TargetName=iqn.2026-11.dev.zoneplug:test\0";
        let reply = peer.login(&format!("{names}SessionType=Normal\0{keys}"));
        assert_eq!(reply.header.0[36..38], [0, 0], "{reply:?}");
        assert_ne!(reply.header.0[14..16], [0, 0], "a session has a number");
        let pairs = parse_text(&reply.data).unwrap();
        let value = |key: &str| pairs.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
        assert_eq!(value("TargetPortalGroupTag"), Some("1"));
        peer.max_data = value("MaxRecvDataSegmentLength").unwrap().parse().unwrap();
        peer.first_burst = value("FirstBurstLength").map_or(65_536, |v| v.parse().unwrap());
        // The shorter of the two, whatever their order was.
        let burst = value("MaxBurstLength").map_or(262_144, |v| v.parse().unwrap());
        peer.first_burst = peer.first_burst.min(burst);
        peer.immediate = value("ImmediateData") != Some("No");
        peer.unsolicited = value("InitialR2T") == Some("No");
        peer
    }

    pub(crate) fn log_in(keys: &str, fragments: Fragments) -> Peer {
        Peer::log_in_with(keys, MEMORY, fragments)
    }

    /// Logs in at a target whose commands have so many bytes of memory.
    pub(crate) fn log_in_with(keys: &str, memory: u32, fragments: Fragments) -> Peer {
        let mut peer = Peer::log_in_to(&Hardware::new(), keys, memory, fragments);
        for lun in 0..2 {
            let tag = peer.command_at(lun, 0x80, &[0; 16], 0, &[]);
            assert_eq!(peer.answer(tag).status, 0);
        }
        peer
    }

    /// Logs in again, by another connection.
    pub(crate) fn again(&self, keys: &str) -> Peer {
        Peer::log_in_to(&self.hardware, keys, MEMORY, Fragments::whole())
    }

    /// Connects, and does not log in.
    pub(crate) fn stranger(fragments: Fragments) -> Peer {
        Peer::connect(&Hardware::new(), MEMORY, fragments)
    }

    /// For the fuzzing targets alone.
    #[allow(dead_code)]
    pub(crate) fn device(&self) -> &Arc<EmuDisk> {
        &self.hardware.device
    }

    pub(crate) fn discover(fragments: Fragments) -> Peer {
        let mut peer = Peer::stranger(fragments);
        let keys = "InitiatorName=iqn.2026-11.test:peer\0SessionType=Discovery\0MaxRecvDataSegmentLength=512\0";
        assert_eq!(peer.login(keys).header.0[36..38], [0, 0]);
        peer.max_data = 512;
        peer
    }

    fn login(&mut self, keys: &str) -> Pdu {
        let mut h = Header::new(opcode::LOGIN | 0x40).with_flags(0x87).with_word(16, 1);
        h.0[8..14].copy_from_slice(&[0x40, 0, 0, 1, 2, 3]);
        self.push(h.with_word(24, self.cmd_sn), keys.as_bytes());
        self.exchange();
        self.take(opcode::LOGIN_RESPONSE).unwrap()
    }

    /// Sends a PDU.
    pub(crate) fn push(&mut self, header: Header, data: &[u8]) {
        self.push_bytes(&encode_pdu(header, data, &self.limits));
    }

    /// Sends bytes that need not be a PDU.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        self.sent.extend(bytes);
    }

    /// Moves bytes until nothing happens any more.
    pub(crate) fn exchange(&mut self) {
        let Some(mut session) = self.session.take() else { return };
        loop {
            let mut progress = false;
            if !self.sent.is_empty() && session.wants_input() {
                let most = self.fragments.next();
                let sent = &mut self.sent;
                let (_, _) = session
                    .receive_with(&mut self.side.buffers, self.side.now, |slices| {
                        let mut n = 0;
                        for slice in slices.iter_mut() {
                            for byte in slice.iter_mut() {
                                if n == most {
                                    break;
                                }
                                let Some(b) = sent.pop_front() else { break };
                                *byte = b;
                                n += 1;
                            }
                        }
                        Ok::<_, ()>(n)
                    })
                    .unwrap();
                progress = true;
            }
            progress |= session.run(&mut self.side);
            while session.has_output() {
                let mut slices = [IoSlice::new(&[]); 9];
                let filled = session.output(&mut slices);
                let mut bytes: Vec<u8> = slices[..filled].iter().flat_map(|s| s.to_vec()).collect();
                bytes.truncate(self.fragments.next());
                session.sent(bytes.len(), &mut self.side.buffers);
                self.receive(&bytes);
                progress = true;
            }
            if !progress {
                break;
            }
        }
        self.session = Some(session);
    }

    fn receive(&mut self, mut bytes: &[u8]) {
        while let Some(pdu) = self.framer.receive(&mut bytes).unwrap() {
            let h = pdu.header;
            let word = |at: usize| word(&h, at);
            // The numbers of statuses have no gaps.
            let has_status = match h.opcode() {
                opcode::R2T => false,
                opcode::NOP_IN => h.task_tag() != NO_TAG,
                opcode::DATA_IN => h.flags() & 1 != 0,
                _ => true,
            };
            if has_status {
                let next = self.stat_sn.unwrap_or(word(24));
                assert_eq!(word(24), next, "StatSN");
                self.stat_sn = Some(next.wrapping_add(1));
            }
            if h.opcode() != opcode::LOGIN_RESPONSE && self.max_cmd_sn != 0 {
                let ahead = word(32).wrapping_sub(self.max_cmd_sn) as i32;
                assert!(ahead >= 0, "MaxCmdSN never goes back");
            }
            self.max_cmd_sn = word(32);
            if h.opcode() == opcode::LOGIN_RESPONSE {
                self.agree(&pdu);
            }
            self.pdus.push_back(pdu);
        }
    }

    /// Learns of digests. They begin when the target agrees to the full feature phase.
    fn agree(&mut self, response: &Pdu) {
        /// The transit bit, and the full feature phase as the next stage.
        const TO_FULL_FEATURE: u8 = 0x83;
        for (key, value) in parse_text(&response.data).unwrap() {
            match key {
                "HeaderDigest" => self.agreed.header_digest = value == "CRC32C",
                "DataDigest" => self.agreed.data_digest = value == "CRC32C",
                _ => {}
            }
        }
        if response.header.flags() & TO_FULL_FEATURE == TO_FULL_FEATURE {
            self.limits = self.agreed;
            self.framer.set_limits(self.limits);
        }
    }

    /// Takes the first PDU of this kind that has come.
    pub(crate) fn take(&mut self, opcode: u8) -> Option<Pdu> {
        let n = self.pdus.iter().position(|p| p.header.opcode() == opcode)?;
        self.pdus.remove(n)
    }

    pub(crate) fn command(&mut self, flags: u8, cdb: &[u8; 16], expected: u32, data: &[u8]) -> u32 {
        self.command_at(0, flags, cdb, expected, data)
    }

    pub(crate) fn command_at(
        &mut self,
        lun: u8,
        flags: u8,
        cdb: &[u8; 16],
        expected: u32,
        data: &[u8],
    ) -> u32 {
        let tag = self.next_tag;
        self.next_tag += 1;
        let mut h = Header::new(opcode::COMMAND).with_flags(flags).with_word(16, tag);
        h = h.with_word(20, expected).with_word(24, self.cmd_sn);
        h = h.with_word(28, self.stat_sn.unwrap_or(0));
        h.0[9] = lun;
        h.0[32..48].copy_from_slice(cdb);
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        self.push(h, data);
        tag
    }

    pub(crate) fn read(&mut self, cdb: &[u8; 16], expected: u32) -> u32 {
        self.command(0xc0, cdb, expected, &[])
    }

    /// Sends a write with as many data as both sides have agreed on. The others are sent when they are asked for.
    pub(crate) fn write(&mut self, cdb: &[u8; 16], data: &[u8]) -> u32 {
        let first = self.first_burst.min(data.len());
        let immediate = if self.immediate { first.min(self.max_data) } else { 0 };
        let unsolicited = self.unsolicited && first > immediate;
        let flags = if unsolicited { 0x20 } else { 0xa0 };
        let tag = self.command(flags, cdb, data.len() as u32, &data[..immediate]);
        if unsolicited {
            self.sequence(tag, NO_TAG, immediate, &data[..first]);
        }
        self.exchange();
        while let Some(r2t) = self.take(opcode::R2T) {
            let h = r2t.header;
            let word = |at: usize| word(&h, at) as usize;
            self.sequence(tag, h.word20(), word(40), &data[..word(40) + word(44)]);
            self.exchange();
        }
        tag
    }

    /// Sends data from an offset on.
    fn sequence(&mut self, tag: u32, transfer: u32, mut at: usize, data: &[u8]) {
        let mut sn = 0;
        while at < data.len() {
            let end = (at + self.max_data.min(5000)).min(data.len());
            self.data_out((tag, transfer, sn), at as u32, &data[at..end], end == data.len());
            (at, sn) = (end, sn + 1);
        }
    }

    /// Sends the only data of a sequence.
    pub(crate) fn data(&mut self, tag: u32, transfer: u32, at: u32, data: &[u8], last: bool) {
        self.data_out((tag, transfer, 0), at, data, last);
    }

    /// Sends data of a command, by their tags and DataSN.
    pub(crate) fn data_out(
        &mut self,
        (tag, transfer, sn): (u32, u32, u32),
        at: u32,
        data: &[u8],
        last: bool,
    ) {
        let h = Header::new(opcode::DATA_OUT).with_flags(if last { 0x80 } else { 0 });
        let h = h.with_word(16, tag).with_word(20, transfer).with_word(36, sn);
        self.push(h.with_word(40, at), data);
    }

    /// Waits for the answer to a command.
    pub(crate) fn answer(&mut self, tag: u32) -> Answer {
        self.exchange();
        let mut data = Vec::new();
        loop {
            let n = self.pdus.iter().position(|p| p.header.task_tag() == tag).expect("an answer");
            let Pdu { header: h, data: bytes } = self.pdus.remove(n).unwrap();
            let word = |at: usize| word(&h, at);
            let mut sense = None;
            if h.opcode() == opcode::DATA_IN {
                assert_eq!(h.buffer_offset() as usize, data.len());
                data.extend(bytes);
                if h.flags() & 1 == 0 {
                    continue;
                }
            } else {
                assert_eq!(h.opcode(), opcode::RESPONSE);
                sense = (!bytes.is_empty()).then(|| (bytes[4], bytes[14], bytes[15]));
            }
            let (status, flags, residual) = (h.0[3], h.flags(), word(44));
            return Answer { status, flags, residual, sense, data };
        }
    }

    pub(crate) fn send_manage(&mut self, function: u8, of: u32) -> u32 {
        let tag = self.next_tag;
        self.next_tag += 1;
        let h = Header::new(opcode::TASK_MANAGEMENT | 0x40).with_flags(0x80 | function);
        self.push(h.with_word(16, tag).with_word(20, of).with_word(24, self.cmd_sn), &[]);
        tag
    }

    /// Returns the answer to task management.
    pub(crate) fn manage(&mut self, function: u8, of: u32) -> u8 {
        self.send_manage(function, of);
        self.exchange();
        self.take(opcode::TASK_MANAGEMENT_RESPONSE).unwrap().header.0[2]
    }

    /// Returns the whole answer to a text request.
    pub(crate) fn text(&mut self, data: &[u8]) -> String {
        let (mut all, mut transfer, mut data) = (Vec::new(), NO_TAG, data.to_vec());
        loop {
            let h = Header::new(opcode::TEXT | 0x40).with_flags(0x80).with_word(16, 9);
            self.push(h.with_word(20, transfer).with_word(24, self.cmd_sn), &data);
            self.exchange();
            let part = self.take(opcode::TEXT_RESPONSE).unwrap();
            assert!(part.data.len() <= self.max_data);
            all.extend(part.data);
            if part.header.is_final() {
                return String::from_utf8(all).unwrap();
            }
            (transfer, data) = (part.header.word20(), Vec::new());
        }
    }

    /// Lets the disk give no results, or all.
    pub(crate) fn holds_disk(&self, holds: bool) {
        self.hardware.results.set(if holds { 0 } else { usize::MAX });
    }

    /// Lets the disk give so many results, and then none.
    pub(crate) fn results(&mut self, n: usize) {
        self.hardware.results.set(n);
        self.exchange();
        self.hardware.results.set(0);
    }

    /// Returns how many commands the disk had carried out already when they were sent again.
    pub(crate) fn replayed(&self) -> u32 {
        self.hardware.replayed.get()
    }

    /// Lets time pass.
    pub(crate) fn wait(&mut self, seconds: u64) {
        self.side.now = self.side.now.plus(Nanos(seconds * 1_000_000_000));
    }

    /// Loses the connection, lets the disk give its results, and logs in again when it has no command of the old session.
    pub(crate) fn lose(&mut self, keys: &str) -> Peer {
        self.end();
        self.holds_disk(false);
        self.drain();
        let mut next = self.again(keys);
        next.side.now = self.side.now;
        next
    }

    pub(crate) fn events(&self) -> Vec<String> {
        let name = |event: TargetEvent| match event {
            TargetEvent::Close(key) => format!("close {key}"),
            TargetEvent::Run(key) => format!("run {key}"),
            other => format!("{other:?}"),
        };
        self.hardware.events.borrow_mut().drain(..).map(name).collect()
    }

    pub(crate) fn expire(&mut self, seconds: u64) -> bool {
        self.side.now = Nanos(seconds * 1_000_000_000);
        self.session.as_mut().unwrap().expire(self.side.now)
    }

    pub(crate) fn stop(&mut self) {
        let mut session = self.session.take().unwrap();
        session.stop(&mut self.side);
        self.session = Some(session);
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.session.as_ref().unwrap().is_answered()
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.session.as_ref().unwrap().is_finished()
    }

    /// Closes the connection.
    pub(crate) fn end(&mut self) {
        let mut session = self.session.take().unwrap();
        session.end(&mut self.side);
        self.session = Some(session);
    }

    /// Runs an ended session until the disk has none of its commands.
    pub(crate) fn drain(&mut self) {
        let mut session = self.session.take().unwrap();
        while !session.is_drained() {
            session.run(&mut self.side);
        }
        assert_eq!(session.into_clients(&mut self.side).len(), self.side.opened);
    }
}
