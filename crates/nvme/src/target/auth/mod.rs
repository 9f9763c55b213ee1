//! The controller's side of DH-HMAC-CHAP on one queue (Base Specification, section 8.13.5). The caller hands over the
//! Fabrics commands of the queue and random bytes; this module has no clock, socket or thread. Diffie-Hellman takes
//! up to a tenth of a second, so its values are not computed here: a command that needs one returns a [`Job`].
//!
//! | message | from | the controller then |
//! | --- | --- | --- |
//! | AUTH_Negotiate | host | has chosen hash and group |
//! | Challenge | controller | waits for the reply |
//! | Reply | host | has compared the response |
//! | Success1 | controller | has admitted the host, unless the host also authenticates the controller |
//! | Success2 | host | has admitted the host |
//!
//! If a message is wrong, the host's next Authentication Receive returns AUTH_Failure1 with the reason. That ends the
//! queue. An admitted queue keeps taking commands while its host authenticates again.

mod job;
mod messages;
#[cfg(test)]
mod queue_tests;
mod queues;
#[cfg(test)]
mod tests;

use super::controller::check_flags;
use super::keys::Keys;
use super::nqn::Nqn;
use crate::dhchap::{DhGroup, Exchange, Hash, Key, MAX_MESSAGE, PrivateValue, Random, same};
use crate::spec::auth::{MessageHeader, auth_id, auth_type, failure};
use crate::spec::fabrics::fctype;
use crate::spec::{Command, Completion, opcode, status};
pub use job::{Computed, Job};
use messages::{Chosen, HostReply};
use zeroize::Zeroizing;

/// A change in the state of a queue's authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The host has proved its identity, for the first time or again: the queue takes all commands.
    Admitted,
    /// The authentication has failed. The queue takes no other commands any more.
    Failed,
}

/// The answer to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthReply {
    /// The completion.
    pub completion: Completion,
    /// The data to send before the completion: empty, or as long as the command's SGL.
    pub data: Vec<u8>,
    /// A change of the queue's state, if any.
    pub change: Option<Change>,
}

/// The result of beginning a command.
#[derive(Debug)]
pub enum Begun {
    /// Its answer.
    Answer(AuthReply),
    /// A Diffie-Hellman value to compute. [`Authentication::finish`] then answers the command.
    Job(Box<Job>),
}

/// The immediate result of a command: data for the host and a change, or a value that must be computed first.
enum Step {
    Done(Vec<u8>, Option<Change>),
    Job(Box<Job>),
}

/// The state of a transaction, named by its next event.
#[derive(Debug)]
enum State {
    /// The host sends AUTH_Negotiate.
    Idle,
    /// The host receives the challenge.
    Challenge(Transaction),
    /// The caller computes the public value for the challenge.
    ComputingChallenge { of: Transaction, challenged: Box<Challenged>, room: usize },
    /// The host replies to the challenge.
    Reply(Transaction, Box<Challenged>),
    /// The caller computes the shared value for the response in this reply.
    ComputingResponse { of: Transaction, challenged: Box<Challenged>, reply: Vec<u8> },
    /// The host receives Success1, with the response to its own challenge.
    Success1 { of: Transaction, response: Option<Vec<u8>> },
    /// The host confirms the controller's response.
    Success2(Transaction),
    /// The host receives AUTH_Failure1 with the reason.
    Failure { t_id: u16, why: u8 },
    /// The transaction and the queue have ended.
    Over,
}

/// A transaction: its identifier and the chosen algorithms.
#[derive(Debug, Clone, Copy)]
struct Transaction {
    t_id: u16,
    chosen: Chosen,
}

/// The challenge that the host was sent.
#[derive(Debug)]
struct Challenged {
    challenge: Vec<u8>,
    seqnum: u32,
    /// `None` in the group NULL, and while a [`Job`] has it.
    private: Option<PrivateValue>,
}

/// The authentication of a queue.
#[derive(Debug)]
pub struct Authentication {
    host: Nqn,
    subsystem: Nqn,
    key: Key,
    controller_key: Option<Key>,
    group: DhGroup,
    state: State,
    admitted: bool,
}

/// Why a message is refused: a code of [`failure`].
type Refused = u8;

impl Authentication {
    /// Starts the authentication of a queue of `host`. Returns `None` if the host has no key.
    pub(super) fn of(host: &Nqn, subsystem: &Nqn, keys: &Keys) -> Option<Authentication> {
        Some(Authentication {
            host: host.clone(),
            subsystem: subsystem.clone(),
            key: keys.of(host)?.clone(),
            controller_key: keys.controller.clone(),
            group: keys.group,
            state: State::Idle,
            admitted: false,
        })
    }

    /// Returns whether the queue takes all commands.
    pub fn is_admitted(&self) -> bool {
        self.admitted
    }

    /// Returns whether the queue must be closed once the answer is sent.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Returns whether [`Authentication::begin`] must handle a command of the queue: the authentication commands, and
    /// every command while the host is not admitted.
    pub fn concerns(&self, c: &Command) -> bool {
        let types = [fctype::AUTHENTICATION_SEND, fctype::AUTHENTICATION_RECEIVE];
        !self.admitted || c.opcode() == opcode::FABRICS && types.contains(&c.fctype())
    }

    /// Returns whether the host has begun to authenticate and has neither been admitted nor refused.
    pub fn is_underway(&self) -> bool {
        !matches!(self.state, State::Idle | State::Failure { .. } | State::Over)
    }

    /// Fails a transaction that has taken too long, as if the response were wrong.
    pub fn time_out(&mut self) -> Option<Change> {
        let t_id = match &self.state {
            State::Challenge(of)
            | State::ComputingChallenge { of, .. }
            | State::Reply(of, _)
            | State::ComputingResponse { of, .. }
            | State::Success1 { of, .. }
            | State::Success2(of) => of.t_id,
            State::Idle | State::Failure { .. } | State::Over => return None,
        };
        self.fail(t_id, failure::FAILED);
        Some(Change::Failed)
    }

    /// Takes a command. `data` is the data that came with it. After a [`Begun::Job`] the next call must be
    /// [`Authentication::finish`].
    pub fn begin(&mut self, c: &Command, data: &[u8], random: &Random) -> Begun {
        let step = match c.fctype() {
            _ if self.is_computing() => Err(status::SEQUENCE),
            _ if c.opcode() != opcode::FABRICS => Err(status::AUTHENTICATION_REQUIRED),
            fctype::AUTHENTICATION_SEND => self.send(c, data),
            fctype::AUTHENTICATION_RECEIVE => self.receive(c, random),
            fctype::CONNECT => Err(status::SEQUENCE),
            _ => Err(status::AUTHENTICATION_REQUIRED),
        };
        let (data, change, status) = match step {
            Ok(Step::Job(job)) => return Begun::Job(job),
            Ok(Step::Done(data, change)) => (data, change, status::SUCCESS),
            Err(status) => (Vec::new(), None, status | status::DNR),
        };
        let completion = Completion { cid: c.cid(), status, ..Completion::default() };
        Begun::Answer(AuthReply { completion, data, change })
    }

    /// Answers the command that the job belongs to.
    pub fn finish(&mut self, computed: Computed) -> AuthReply {
        let Computed { cid, private, value } = computed;
        let completion = Completion { cid, ..Completion::default() };
        let (mut data, mut change) = (Vec::new(), None);
        match std::mem::replace(&mut self.state, State::Idle) {
            State::ComputingChallenge { of, mut challenged, room } => {
                challenged.private = Some(private);
                let value = value.as_ref().map_or(&[][..], |v| &v[..]);
                data = self.challenge(of, challenged, value);
                data.resize(room, 0);
            }
            State::ComputingResponse { of, challenged, reply } => {
                let compared = match &value {
                    Some(value) => self.compare(&reply, of, &challenged, Some(value)),
                    None => Err(failure::PAYLOAD),
                };
                change = self.compared(of, compared);
            }
            // The transaction has timed out meanwhile, or no job was requested: an Authentication Receive gets no
            // data.
            other => {
                self.state = other;
                let completion =
                    Completion { status: status::SEQUENCE | status::DNR, ..completion };
                return AuthReply { completion, data, change };
            }
        }
        AuthReply { completion, data, change }
    }

    fn is_computing(&self) -> bool {
        matches!(self.state, State::ComputingChallenge { .. } | State::ComputingResponse { .. })
    }

    fn check(c: &Command) -> Result<(), u16> {
        check_flags(c)?;
        let len = c.authentication_len();
        if !c.is_nvme_authentication() || len == 0 || len > MAX_MESSAGE {
            return Err(status::INVALID_FIELD);
        }
        if c.sgl().length == len { Ok(()) } else { Err(status::SGL_LENGTH) }
    }

    /// Handles Authentication Send.
    fn send(&mut self, c: &Command, data: &[u8]) -> Result<Step, u16> {
        Authentication::check(c)?;
        if data.len() != c.authentication_len() as usize {
            return Err(status::SGL_LENGTH);
        }
        if matches!(self.state, State::Failure { .. } | State::Over) {
            return Err(status::SEQUENCE);
        }
        let t_id = MessageHeader::read(data).map_or(0, |h| h.t_id);
        Ok(self.message(c.cid(), data).unwrap_or_else(|why| {
            self.fail(t_id, why);
            Step::Done(Vec::new(), Some(Change::Failed))
        }))
    }

    fn fail(&mut self, t_id: u16, why: u8) {
        self.admitted = false;
        self.state = State::Failure { t_id, why };
    }

    /// Handles a message of the host.
    fn message(&mut self, cid: u16, data: &[u8]) -> Result<Step, Refused> {
        let done = |change| Ok(Step::Done(Vec::new(), change));
        let header = MessageHeader::read(data).ok_or(failure::PAYLOAD)?;
        let expected = match &self.state {
            State::Idle => (auth_type::COMMON, auth_id::NEGOTIATE),
            State::Reply(..) => (auth_type::DHCHAP, auth_id::REPLY),
            State::Success2(_) => (auth_type::DHCHAP, auth_id::SUCCESS2),
            // The host must receive now.
            _ => return Err(failure::MESSAGE),
        };
        let t_id = match &self.state {
            State::Reply(t, _) | State::Success2(t) => Some(t.t_id),
            _ => None,
        };
        let is = (header.auth_type, header.auth_id);
        if is == (auth_type::COMMON, auth_id::FAILURE2) && t_id.is_none_or(|t| t == header.t_id) {
            // The host has refused the controller's message.
            self.admitted = false;
            self.state = State::Over;
            return done(Some(Change::Failed));
        }
        if is != expected {
            return Err(failure::MESSAGE);
        }
        if t_id.is_some_and(|t| t != header.t_id) {
            return Err(failure::PAYLOAD);
        }
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Idle => {
                let chosen = Chosen::of(data, self.key.hash(), self.group)?;
                self.state = State::Challenge(Transaction { t_id: header.t_id, chosen });
                done(None)
            }
            State::Reply(of, mut challenged) => {
                let value = HostReply::of(data, of.chosen.hash, of.chosen.group)?.value;
                if let Some(private) = challenged.private.take() {
                    let job = Job { cid, private, other: Some(value.to_vec()) };
                    let reply = data.to_vec();
                    self.state = State::ComputingResponse { of, challenged, reply };
                    return Ok(Step::Job(Box::new(job)));
                }
                let compared = self.compare(data, of, &challenged, None);
                done(self.compared(of, compared))
            }
            _ => {
                self.admitted = true;
                done(Some(Change::Admitted))
            }
        }
    }

    /// Continues after the comparison of a response.
    fn compared(
        &mut self,
        of: Transaction,
        compared: Result<Option<Vec<u8>>, Refused>,
    ) -> Option<Change> {
        match compared {
            Ok(response) => {
                self.state = State::Success1 { of, response };
                None
            }
            Err(why) => {
                self.fail(of.t_id, why);
                Some(Change::Failed)
            }
        }
    }

    /// Compares the response in a reply. `shared` is the Diffie-Hellman value, unless the group is NULL. Returns the
    /// response to the host's challenge, if it sent a valid one.
    fn compare(
        &self,
        data: &[u8],
        Transaction { t_id, chosen: Chosen { hash, group } }: Transaction,
        challenged: &Challenged,
        shared: Option<&Zeroizing<Vec<u8>>>,
    ) -> Result<Option<Vec<u8>>, Refused> {
        let reply = HostReply::of(data, hash, group)?;
        let exchange = self.exchange(hash, t_id, shared);
        let key = self.key.of(self.host.as_str());
        let expected = exchange.host_response(&key, &challenged.challenge, challenged.seqnum);
        if !same(&expected, reply.response) {
            return Err(failure::FAILED);
        }
        let Some((challenge, seqnum)) = reply.challenge else { return Ok(None) };
        // The host sends the controller's own challenge back, perhaps to use the answer elsewhere.
        if challenge == challenged.challenge {
            return Err(failure::FAILED);
        }
        let key = self.controller_key.as_ref().ok_or(failure::FAILED)?;
        let key = key.of(self.subsystem.as_str());
        Ok(Some(exchange.controller_response(&key, challenge, seqnum)))
    }

    fn exchange<'a>(
        &'a self,
        hash: Hash,
        t_id: u16,
        shared: Option<&'a Zeroizing<Vec<u8>>>,
    ) -> Exchange<'a> {
        let (host, subsystem) = (self.host.as_str(), self.subsystem.as_str());
        Exchange { hash, t_id, host, subsystem, shared: shared.map(|s| &s[..]) }
    }

    /// Handles Authentication Receive: returns the message, padded with zeroes.
    fn receive(&mut self, c: &Command, random: &Random) -> Result<Step, u16> {
        Authentication::check(c)?;
        if matches!(self.state, State::Over) {
            return Err(status::SEQUENCE);
        }
        let room = c.authentication_len() as usize;
        if room < self.message_len() {
            // The state is unchanged, so the host may retry with a longer buffer.
            return Err(status::INVALID_FIELD);
        }
        let (mut message, change) = match std::mem::replace(&mut self.state, State::Idle) {
            State::Challenge(of) => {
                let Chosen { hash, group } = of.chosen;
                let challenge = random.challenge[..hash.len()].to_vec();
                let challenged =
                    Box::new(Challenged { challenge, seqnum: random.seqnum(), private: None });
                if group != DhGroup::Null {
                    let private = PrivateValue::new(group, &random.exponent);
                    self.state = State::ComputingChallenge { of, challenged, room };
                    return Ok(Step::Job(Box::new(Job { cid: c.cid(), private, other: None })));
                }
                (self.challenge(of, challenged, &[]), None)
            }
            State::Success1 { of, response } => {
                let message = messages::success1(of.t_id, of.chosen.hash, response.as_deref());
                if response.is_some() {
                    self.state = State::Success2(of);
                    (message, None)
                } else {
                    self.admitted = true;
                    (message, Some(Change::Admitted))
                }
            }
            State::Failure { t_id, why } => {
                self.state = State::Over;
                (messages::failure1(t_id, why), None)
            }
            // The host must send now.
            State::Reply(t, _) | State::Success2(t) => {
                self.admitted = false;
                self.state = State::Over;
                (messages::failure1(t.t_id, failure::MESSAGE), Some(Change::Failed))
            }
            _ => {
                self.admitted = false;
                self.state = State::Over;
                (messages::failure1(0, failure::MESSAGE), Some(Change::Failed))
            }
        };
        message.resize(room, 0);
        Ok(Step::Done(message, change))
    }

    /// Returns the length of the message that the host receives next.
    fn message_len(&self) -> usize {
        match &self.state {
            State::Challenge(Transaction { chosen: Chosen { hash, group }, .. }) => {
                16 + hash.len() + group.len()
            }
            State::Success1 { response, .. } => 16 + response.as_ref().map_or(0, Vec::len),
            _ => 8,
        }
    }

    /// Makes the challenge for the host. `value` is the public Diffie-Hellman value, if there is one.
    fn challenge(&mut self, of: Transaction, challenged: Box<Challenged>, value: &[u8]) -> Vec<u8> {
        let Challenged { challenge, seqnum, .. } = &*challenged;
        let message = messages::challenge(of.t_id, of.chosen, *seqnum, challenge, value);
        self.state = State::Reply(of, challenged);
        message
    }
}
