//! From PDUs to commands. Data of commands go to their buffers, those of other requests into a list of bytes.

use super::command::{Command, DataPlace, is_write};
use super::resend::client_key;
use super::{EXPECTED_DATA, Phase, Server, Session};
use crate::iscsi::framer::{Frame, FrameLimits};
use crate::iscsi::header::{Header, opcode};
use crate::iscsi::login::{LoginFailure, LoginReply};
use crate::iscsi::text::encode_text;
use zoneplug_buf::Shape;
use zoneplug_core::DiskClient;

/// The PDU that arrives.
#[derive(Debug)]
pub(super) struct Incoming {
    header: Header,
    place: DataPlace,
    list: Vec<u8>,
}

impl Default for Incoming {
    fn default() -> Incoming {
        Incoming { header: Header::new(0), place: DataPlace::Nowhere, list: Vec::new() }
    }
}

impl Incoming {
    /// Returns the rest of the buffer into which the next data go.
    pub(super) fn buffer<'a>(&self, commands: &'a mut [Option<Command>]) -> Option<&'a mut [u8]> {
        let DataPlace::Buffer(slot, at) = self.place else { return None };
        let buf = commands[usize::from(slot)].as_mut()?.data.as_mut()?;
        buf.as_mut_slice().get_mut(at..)
    }

    /// Puts the next data where they belong.
    fn put(&mut self, data: &[u8], commands: &mut [Option<Command>]) {
        match self.place {
            DataPlace::Nowhere => {}
            DataPlace::List => self.list.extend(data),
            DataPlace::Buffer(..) => {
                if let Some(buf) = self.buffer(commands) {
                    buf[..data.len()].copy_from_slice(data);
                }
                self.advance(data.len());
            }
        }
    }

    /// Notes that the next `n` bytes are in the buffer.
    pub(super) fn advance(&mut self, n: usize) {
        if let DataPlace::Buffer(_, at) = &mut self.place {
            *at += n;
        }
    }

    /// Takes the data away from a command that was aborted.
    pub(super) fn forget(&mut self, slot: u16) {
        if matches!(self.place, DataPlace::Buffer(s, _) if s == slot) {
            self.place = DataPlace::Nowhere;
        }
    }
}

impl<C: DiskClient> Session<C> {
    /// Takes all received bytes. Returns false if they are no part of a PDU that can be used yet.
    pub(super) fn take_bytes<S: Server<C>>(&mut self, server: &mut S) -> bool {
        let mut progress = false;
        while !self.is_closing() {
            let bytes = self.ahead.bytes();
            let mut input = bytes;
            let frame = self.framer.next(&mut input);
            let used = bytes.len() - input.len();
            match frame {
                Ok(Some(Frame::Header(header))) => {
                    self.ahead.take(used);
                    self.take_header(&header, server);
                }
                Ok(Some(Frame::Data(data))) => {
                    self.incoming.put(data, &mut self.commands);
                    self.ahead.take(used);
                }
                Ok(Some(Frame::End)) => {
                    self.ahead.take(used);
                    self.take_pdu(server);
                }
                Ok(None) => {
                    self.ahead.take(used);
                    // The next bytes may be in memory of their own, and not those of the write that was expected there.
                    if self.ahead.join(server.buffers()) {
                        continue;
                    }
                    break;
                }
                Err(_) => self.failed = true,
            }
            progress = true;
        }
        if self.is_closing() {
            self.ahead.join(server.buffers());
            self.ahead.clear();
        }
        progress
    }

    fn take_header<S: Server<C>>(&mut self, header: &Header, server: &mut S) {
        self.incoming.header = *header;
        self.incoming.list.clear();
        if matches!(self.phase, Phase::Full(_)) {
            self.answered.acknowledge(header.exp_stat_sn());
        }
        self.incoming.place = self.place(header, server);
        self.expect(header, server);
    }

    /// Notes what has come, for the next read, and takes the data of a command that a read has put into memory of their own.
    fn expect<S: Server<C>>(&mut self, h: &Header, server: &mut S) {
        let len = h.data_len() as u32;
        let writes = h.opcode() == opcode::COMMAND && is_write(h);
        let DataPlace::Buffer(slot, 0) = self.incoming.place else {
            return self.ahead.note_other(None);
        };
        if !writes || len != h.word20() || len == 0 || len > EXPECTED_DATA {
            return self.ahead.note_other(writes.then_some(h.word20() > EXPECTED_DATA));
        }
        let (head, tail) = (self.framer.header_bytes(), self.framer.behind_data());
        if let Some(c) = self.commands[usize::from(slot)].as_mut()
            && let Some(own) = &c.data
            && let Some((data, got)) = self.ahead.data_behind(0, len)
        {
            debug_assert_eq!(own.len(), data.len(), "one length has one class");
            self.framer.read_past(&data.as_slice()[..got as usize]);
            c.data.replace(data).into_iter().for_each(|own| server.buffers().put(own));
            self.incoming.advance(got as usize);
        }
        self.ahead.note_write(Shape { head, len, tail });
    }

    /// Returns the place of the data of a PDU.
    fn place<S: Server<C>>(&mut self, header: &Header, server: &mut S) -> DataPlace {
        match (&self.phase, header.opcode()) {
            (Phase::Full(_), opcode::COMMAND) => self.command_begins(header, server),
            (Phase::Full(_), opcode::DATA_OUT) => self.data_begin(header),
            _ => DataPlace::List,
        }
    }

    /// Takes a whole PDU.
    fn take_pdu<S: Server<C>>(&mut self, server: &mut S) {
        let Incoming { header, place, .. } = self.incoming;
        self.incoming.place = DataPlace::Nowhere;
        let list = std::mem::take(&mut self.incoming.list);
        match (&self.phase, header.opcode()) {
            (Phase::Login(_), opcode::LOGIN) => self.log_in(&header, &list, server),
            (Phase::Login(_), _) => self.failed = true,
            (Phase::Full(_), opcode::COMMAND | opcode::DATA_OUT) => match place {
                DataPlace::Buffer(slot, _) => self.data_arrived(slot, &header, server),
                // The command was refused at its header, or aborted.
                _ => self.data_discarded(&header, server),
            },
            _ => self.manage(&header, &list, server),
        }
        self.incoming.list = list;
    }

    fn log_in<S: Server<C>>(&mut self, header: &Header, data: &[u8], server: &mut S) {
        let Phase::Login(login) = &mut self.phase else { return };
        if login.names().is_none() {
            self.isid.copy_from_slice(&header.0[8..14]);
            self.window.begin(header.cmd_sn());
        }
        let result = match server.random() {
            Some(random) => server.target(|target| login.take(header, data, target, &random)),
            None => Err(LoginFailure::Authentication),
        };
        let same = header.0[8..14] == self.isid && header.is_immediate();
        match result {
            Ok(_) if !same => self.login_failed(header, LoginFailure::Initiator, server),
            Ok(reply) if reply.done && !self.takes_place(server) => {
                self.login_failed(header, LoginFailure::NoRoom, server);
            }
            Ok(reply) => self.login_goes_on(header, &reply, server),
            Err(failure) => self.login_failed(header, failure, server),
        }
    }

    /// Takes a place at the server for an initiator that has logged in. Returns false if there is none.
    fn takes_place<S: Server<C>>(&self, server: &mut S) -> bool {
        let Phase::Login(login) = &self.phase else { return true };
        let Some((initiator, target)) = login.names() else { return true };
        let is_session = target.is_some();
        let is_proven = is_session && server.target(|target| target.has_secret_of(initiator));
        server.take_place(initiator, is_session, is_proven)
    }

    /// Makes the header of an answer to a login request.
    fn login_header(&mut self, header: &Header, flags: u8) -> Header {
        let mut answer = Header::new(opcode::LOGIN_RESPONSE).with_flags(flags);
        answer.0[8..14].copy_from_slice(&self.isid);
        self.window.number_status(answer.with_word(16, header.task_tag()))
    }

    fn login_failed<S: Server<C>>(&mut self, header: &Header, why: LoginFailure, server: &mut S) {
        let Phase::Login(login) = &self.phase else { return };
        server.refused(login.names().map(|(initiator, _)| initiator), why);
        let mut answer = self.login_header(header, 0);
        answer.0[36..38].copy_from_slice(&(why as u16).to_be_bytes());
        self.output.push(answer, Vec::new());
        self.phase = Phase::Closing(None);
    }

    fn login_goes_on<S: Server<C>>(&mut self, header: &Header, reply: &LoginReply, server: &mut S) {
        let pairs = reply.pairs.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        let text = encode_text(pairs);
        let mut answer = self.login_header(header, reply.flags);
        let Phase::Login(login) = &mut self.phase else { return };
        let Some((initiator, target)) = login.names().filter(|_| reply.done) else {
            return self.output.push(answer, text);
        };
        let (initiator, discovery) = (initiator.to_owned(), target.is_none());
        self.agreed = *login.negotiation();
        if discovery {
            // A discovery session has a number too, but no second connection may name it.
            answer.0[15] = 1;
            self.phase = Phase::Discovery;
        } else {
            let (isid, key) = (self.isid, self.key);
            let member = server.target(|target| target.enter(&initiator, isid, key));
            answer.0[14..16].copy_from_slice(&member.tsih.to_be_bytes());
            self.phase = Phase::Full(member);
            self.ahead.grow();
        }
        self.client_key = client_key(&initiator);
        self.initiator = Some(initiator);
        self.output.push(answer, text);
        let (header_digest, data_digest) = (self.agreed.header_digest, self.agreed.data_digest);
        let max_data = self.config.offer.max_data as usize;
        let limits = FrameLimits { max_data, header_digest, data_digest };
        self.framer.set_limits(limits);
        self.output.set_limits(limits);
    }
}
