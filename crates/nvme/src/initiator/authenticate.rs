//! The host's side of DH-HMAC-CHAP on one queue (Base Specification, section 8.13.5). The host trusts no message of
//! the controller: if the controller was to authenticate itself and does not, the authentication fails.

use super::Data;
use crate::dhchap::{DhGroup, Exchange, Hash, Key, MAX_MESSAGE, PrivateValue, Random, same};
use crate::spec::Command;
use crate::spec::auth::{
    AUTHENTICATION_FAILURE, Challenge, Failure, Negotiate, PROTOCOL_DHCHAP, ProtocolDescriptor,
    Reply, Success1, Success2, auth_id, auth_type, failure,
};

/// The message that the host waits for.
#[derive(Debug)]
enum State {
    Begin,
    /// The controller's acceptance of AUTH_Negotiate.
    Negotiated,
    Challenge,
    /// The controller's acceptance of the reply.
    Replied(Expected),
    Success1(Expected),
    /// The controller's acceptance of Success2.
    Confirmed,
    /// The controller's acceptance of AUTH_Failure2. The text is the host's error.
    Refused(String),
    Done,
}

/// The values that Success1 must carry.
#[derive(Debug, Clone)]
struct Expected {
    hash: Hash,
    response: Option<Vec<u8>>,
}

/// An authentication. Each step is a command and its data; the next needs the answer to it.
#[derive(Debug)]
pub struct Authenticate {
    subsystem: String,
    host: String,
    key: Key,
    controller_key: Option<Key>,
    t_id: u16,
    random: Random,
    state: State,
}

impl Authenticate {
    /// Starts an authentication of `host` with its key. With `controller_key` the controller must authenticate itself
    /// too. `t_id` distinguishes transactions.
    pub fn new(
        subsystem: &str,
        host: &str,
        key: &Key,
        controller_key: Option<&Key>,
        t_id: u16,
        random: Random,
    ) -> Authenticate {
        Authenticate {
            subsystem: subsystem.to_owned(),
            host: host.to_owned(),
            key: key.clone(),
            controller_key: controller_key.cloned(),
            t_id,
            random,
            state: State::Begin,
        }
    }

    /// Returns the next command, after the previous one has succeeded with this data. `None`: both sides have proved
    /// their identity.
    ///
    /// # Errors
    ///
    /// The controller's refusal, or its violation of the protocol.
    pub fn next(&mut self, received: &[u8]) -> Result<Option<(Command, Data)>, String> {
        let next = match std::mem::replace(&mut self.state, State::Done) {
            State::Begin => {
                self.state = State::Negotiated;
                send(self.negotiate())
            }
            State::Negotiated => {
                self.state = State::Challenge;
                receive()
            }
            State::Challenge => {
                self.message(received, auth_id::CHALLENGE)?;
                match self.reply(received) {
                    Ok((reply, expected)) => {
                        self.state = State::Replied(expected);
                        send(reply)
                    }
                    Err(why) => self.refuse(failure::PAYLOAD, why),
                }
            }
            State::Replied(expected) => {
                self.state = State::Success1(expected);
                receive()
            }
            State::Success1(expected) => {
                self.message(received, auth_id::SUCCESS1)?;
                match &expected.response {
                    _ if !is_success(received, &expected) => {
                        let why = "the controller does not know its key".to_owned();
                        self.refuse(failure::FAILED, why)
                    }
                    None => return Ok(None),
                    Some(_) => {
                        self.state = State::Confirmed;
                        let success = Success2 {
                            auth_type: auth_type::DHCHAP,
                            auth_id: auth_id::SUCCESS2,
                            t_id: self.t_id,
                        };
                        send(success.encode().to_vec())
                    }
                }
            }
            State::Confirmed | State::Done => return Ok(None),
            State::Refused(why) => return Err(why),
        };
        Ok(Some(next))
    }

    fn refuse(&mut self, code: u8, why: String) -> (Command, Data) {
        self.state = State::Refused(why);
        let failure = Failure {
            auth_type: auth_type::COMMON,
            auth_id: auth_id::FAILURE2,
            t_id: self.t_id,
            rescode: AUTHENTICATION_FAILURE,
            rescode_exp: code,
        };
        send(failure.encode().to_vec())
    }

    fn negotiate(&self) -> Vec<u8> {
        let mut offer = ProtocolDescriptor {
            authid: PROTOCOL_DHCHAP,
            halen: Hash::ALL.len() as u8,
            dhlen: DhGroup::ALL.len() as u8,
            ..ProtocolDescriptor::default()
        };
        for (to, hash) in offer.hashes.iter_mut().zip(Hash::ALL) {
            *to = hash.id();
        }
        for (to, group) in offer.groups.iter_mut().zip(DhGroup::ALL) {
            *to = group.id();
        }
        let head = Negotiate {
            auth_type: auth_type::COMMON,
            auth_id: auth_id::NEGOTIATE,
            t_id: self.t_id,
            sc_c: 0,
            napd: 1,
        };
        [&head.encode()[..], &offer.encode()].concat()
    }

    /// Checks the header of a message from the controller.
    fn message(&self, received: &[u8], id: u8) -> Result<(), String> {
        let head = Failure::read(received).ok_or("a short message")?;
        match (head.auth_type, head.auth_id) {
            (auth_type::COMMON, auth_id::FAILURE1) => {
                Err(format!("the controller refuses: code {}", head.rescode_exp))
            }
            (auth_type::DHCHAP, is) if is == id && head.t_id == self.t_id => Ok(()),
            _ => Err(format!("instead of message {id}: {head:?}")),
        }
    }

    /// Returns the reply to a challenge and the response expected next, or why the challenge is refused.
    fn reply(&self, received: &[u8]) -> Result<(Vec<u8>, Expected), String> {
        let head = Challenge::read(received).ok_or("a short challenge")?;
        let (hash, group) = (Hash::from_id(head.hashid), DhGroup::from_id(head.dhgid));
        let (Some(hash), Some(group)) = (hash, group) else {
            return Err(format!("not offered: {head:?}"));
        };
        let (hl, dhvlen) = (usize::from(head.hl), usize::from(head.dhvlen));
        let rest = received[Challenge::LEN..].split_at_checked(hash.len());
        let parts = rest.and_then(|(challenge, rest)| Some((challenge, rest.get(..group.len())?)));
        let (Some((challenge, value)), true) = (parts, hl == hash.len() && dhvlen == group.len())
        else {
            return Err(format!("lengths of {head:?}"));
        };
        let private =
            (group != DhGroup::Null).then(|| PrivateValue::new(group, &self.random.exponent));
        let shared = match &private {
            None => None,
            Some(private) => match private.shared(value) {
                None => return Err("a wrong Diffie-Hellman value".to_owned()),
                shared => shared,
            },
        };
        let exchange = Exchange {
            hash,
            t_id: self.t_id,
            host: &self.host,
            subsystem: &self.subsystem,
            shared: shared.as_ref().map(|s| &s[..]),
        };
        let response = exchange.host_response(&self.key.of(&self.host), challenge, head.seqnum);
        let own = match &self.controller_key {
            Some(key) => {
                let (own, seqnum) = (&self.random.challenge[..hl], self.random.seqnum());
                let key = key.of(&self.subsystem);
                Some((own, seqnum, exchange.controller_response(&key, own, seqnum)))
            }
            None => None,
        };
        let reply = Reply {
            auth_type: auth_type::DHCHAP,
            auth_id: auth_id::REPLY,
            t_id: self.t_id,
            hl: head.hl,
            cvalid: u8::from(own.is_some()),
            dhvlen: head.dhvlen,
            seqnum: own.as_ref().map_or(0, |(_, seqnum, _)| *seqnum),
        };
        let none = vec![0; hl];
        let challenge = own.as_ref().map_or(&none[..], |(own, ..)| own);
        let value = private.as_ref().map_or_else(Vec::new, PrivateValue::public);
        let message = [&reply.encode(), &response[..], challenge, &value].concat();
        Ok((message, Expected { hash, response: own.map(|(.., response)| response) }))
    }
}

/// Returns whether Success1 carries the expected response, if one is expected.
fn is_success(received: &[u8], expected: &Expected) -> bool {
    let Some(head) = Success1::read(received) else { return false };
    let response = received.get(Success1::LEN..Success1::LEN + expected.hash.len());
    match (&expected.response, response) {
        (None, _) => true,
        (Some(want), Some(got)) => head.rvalid == 1 && same(want, got),
        (Some(_), None) => false,
    }
}

fn send(message: Vec<u8>) -> (Command, Data) {
    (Command::authentication_send(message.len() as u32), Data::Out(message))
}

fn receive() -> (Command, Data) {
    (Command::authentication_receive(MAX_MESSAGE), Data::In(MAX_MESSAGE))
}
