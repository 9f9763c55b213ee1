//! Transactions against those of another implementation, and attempts of a hostile peer.

mod slow;

use super::*;
use crate::dhchap::testing::{Vector, transactions};
use crate::initiator::{Authenticate, Data};
use crate::spec::auth::{
    Challenge, Failure, Negotiate, ProtocolDescriptor, Reply, Success1, Success2,
};
use crate::spec::{Sgl, SglKind};
use proptest::prelude::*;

const DNR: u16 = status::DNR;

fn nqn(text: &str) -> Nqn {
    Nqn::new(text).unwrap()
}

/// The controller's side of a transaction.
fn controller(v: &Vector) -> Authentication {
    let host = nqn(v.text("host"));
    let keys = Keys {
        hosts: vec![(host.clone(), v.key("host_key").unwrap())],
        controller: v.key("controller_key"),
        group: v.group(),
    };
    Authentication::of(&host, &nqn(v.text("subsystem")), &keys).unwrap()
}

fn host(v: &Vector) -> Authenticate {
    let (subsystem, host) = (v.text("subsystem"), v.text("host"));
    let (key, t_id) = (v.key("host_key").unwrap(), v.text("t_id").parse().unwrap());
    let (controller_key, random) = (v.key("controller_key"), v.random("host_random"));
    Authenticate::new(subsystem, host, &key, controller_key.as_ref(), t_id, random)
}

/// Two transactions: mutual authentication without Diffie-Hellman, and one-way authentication with it.
fn two() -> [Vector; 2] {
    let mut all = transactions();
    let one_way = all.swap_remove(5);
    [all.swap_remove(1), one_way]
}

impl Authentication {
    /// Runs a command from its beginning to its answer.
    fn command(&mut self, c: &Command, data: &[u8], random: &Random) -> AuthReply {
        match self.begin(c, data, random) {
            Begun::Answer(reply) => reply,
            Begun::Job(job) => self.finish(job.run()),
        }
    }
}

fn with_sgl(c: Command, length: u32) -> Command {
    c.with_cid(3).with_sgl(Sgl { address: 0, length, kind: SglKind::Transport })
}

fn send(a: &mut Authentication, message: &[u8]) -> (u16, Option<Change>) {
    let n = message.len() as u32;
    let reply =
        a.command(&with_sgl(Command::authentication_send(n), n), message, &Random::new(&[9; 132]));
    assert!(reply.data.is_empty() && reply.completion.cid == 3);
    (reply.completion.status, reply.change)
}

fn receive_as(a: &mut Authentication, random: &Random) -> (Vec<u8>, Option<Change>) {
    let reply = a.command(&with_sgl(Command::authentication_receive(4096), 4096), &[], random);
    assert_eq!((reply.completion.status, reply.data.len()), (0, 4096));
    (reply.data, reply.change)
}

fn receive(a: &mut Authentication) -> (Vec<u8>, Option<Change>) {
    receive_as(a, &Random::new(&[9; 132]))
}

/// Sends the host's messages of a transaction up to the challenge.
fn challenged(v: &Vector) -> Authentication {
    let mut a = controller(v);
    assert_eq!(send(&mut a, &v.bytes("negotiate")), (0, None));
    receive_as(&mut a, &v.random("controller_random"));
    a
}

/// Checks that the host gets AUTH_Failure1 with this code once, and that the queue is over then.
fn fails(a: &mut Authentication, t_id: u16, why: u8) {
    assert!(!a.is_admitted() && !a.is_over());
    let (message, change) = receive(a);
    let failure = Failure::read(&message).unwrap();
    let want =
        Failure { auth_type: 0, auth_id: auth_id::FAILURE1, t_id, rescode: 1, rescode_exp: why };
    assert_eq!((failure, change), (want, None));
    assert!(a.is_over() && !a.is_admitted());
    let again = with_sgl(Command::authentication_receive(4096), 4096);
    let again = a.command(&again, &[], &Random::new(&[9; 132])).completion.status;
    assert_eq!(again, status::SEQUENCE | DNR);
}

/// Checks that a message fails with this code.
fn refused(mut a: Authentication, message: &[u8], why: u8) {
    let t_id = MessageHeader::read(message).map_or(0, |h| h.t_id);
    assert_eq!(send(&mut a, message), (0, Some(Change::Failed)), "{message:x?}");
    fails(&mut a, t_id, why);
}

/// J13, J14: every byte of both sides equals that of the other implementation.
#[test]
fn transactions_of_another_implementation() {
    for v in transactions() {
        let (mut a, mut h) = (controller(&v), host(&v));
        let mut received = Vec::new();
        let mut sent = Vec::new();
        let mut got = Vec::new();
        while let Some((command, data)) = h.next(&received).unwrap() {
            assert!(a.concerns(&command) && !a.is_admitted());
            let (message, length) = match &data {
                Data::Out(m) => (&m[..], m.len() as u32),
                Data::In(n) => (&[][..], *n),
                Data::None => panic!("no data"),
            };
            let random = v.random("controller_random");
            let reply = a.command(&with_sgl(command, length), message, &random);
            assert_eq!(reply.completion.status, 0);
            if let Data::Out(m) = data {
                sent.push(m);
            } else {
                got.push(reply.data.clone());
            }
            received = reply.data;
        }
        let two_ways = v.text("controller_key") != "-";
        let mut from_host = vec![v.bytes("negotiate"), v.bytes("reply")];
        if two_ways {
            from_host.push(v.bytes("success2"));
        }
        assert_eq!(sent, from_host, "{}", v.text("t_id"));
        for (message, name) in got.iter().zip(["challenge", "success1"]) {
            let want = v.bytes(name);
            assert_eq!(message[..want.len()], want, "{name} of {}", v.text("t_id"));
            assert!(message[want.len()..].iter().all(|b| *b == 0));
        }
        assert_eq!((got.len(), a.is_admitted(), a.is_over()), (2, true, false));
    }
}

/// J13: an unauthenticated queue handles authentication commands only and refuses all others.
#[test]
fn a_queue_takes_nothing_else_before() {
    let [v, _] = two();
    let mut a = controller(&v);
    let random = Random::new(&[1; 132]);
    let io = Command::new(opcode::READ);
    let others = [
        (io, status::AUTHENTICATION_REQUIRED),
        (Command::new(0x06), status::AUTHENTICATION_REQUIRED),
        (Command::property_set(0x14, 1), status::AUTHENTICATION_REQUIRED),
        (Command::property_get(0, 8), status::AUTHENTICATION_REQUIRED),
        (Command::fabrics(fctype::DISCONNECT), status::AUTHENTICATION_REQUIRED),
        (Command::fabrics(fctype::CONNECT), status::SEQUENCE),
        // An I/O command whose namespace number equals the type of an authentication command.
        (Command::new(opcode::WRITE).with_nsid(5), status::AUTHENTICATION_REQUIRED),
    ];
    for (c, want) in others {
        assert!(a.concerns(&c));
        let reply = a.command(&c, &[], &random);
        assert_eq!((reply.completion.status, reply.change), (want | DNR, None), "{c:?}");
    }
    // None of these commands has changed the state.
    assert_eq!(send(&mut a, &v.bytes("negotiate")), (0, None));
    receive_as(&mut a, &v.random("controller_random"));
    assert!(a.concerns(&io));
    assert_eq!(send(&mut a, &v.bytes("reply")), (0, None));
    assert!(a.concerns(&io), "the controller has to authenticate itself first");
    assert_eq!(receive(&mut a).1, None);
    assert!(a.concerns(&io) && !a.is_admitted());
    assert_eq!(send(&mut a, &v.bytes("success2")), (0, Some(Change::Admitted)));
    assert!(!a.concerns(&io) && !a.concerns(&Command::new(opcode::WRITE).with_nsid(5)));
    assert!(a.concerns(&Command::authentication_send(8)), "the host may do so again");
}

/// J13: wrong fields of the authentication commands.
#[test]
fn commands_that_are_wrong() {
    let [v, _] = two();
    let mut a = controller(&v);
    let random = Random::new(&[1; 132]);
    let message = v.bytes("negotiate");
    let n = message.len() as u32;
    let good = with_sgl(Command::authentication_send(n), n);
    let mut wrong = vec![(with_sgl(Command::authentication_send(n), n + 4), status::SGL_LENGTH)];
    for (byte, value) in [(41, 0), (42, 2), (43, 0xea), (43, 0)] {
        let mut c = good;
        c.0[byte] = value;
        wrong.push((c, status::INVALID_FIELD));
    }
    for n in [0, 4097, u32::MAX] {
        wrong.push((with_sgl(Command::authentication_send(n), n), status::INVALID_FIELD));
        wrong.push((with_sgl(Command::authentication_receive(n), n), status::INVALID_FIELD));
    }
    let mut fused = good;
    fused.0[1] |= 1;
    wrong.push((fused, status::INVALID_FIELD));
    for (c, want) in wrong {
        let reply = a.command(&c, &message, &random);
        assert_eq!((reply.completion.status, reply.change), (want | DNR, None), "{c:?}");
        assert!(reply.data.is_empty());
    }
    let short = a.command(&good, &message[..71], &random);
    assert_eq!(short.completion.status, status::SGL_LENGTH | DNR);
    assert_eq!(send(&mut a, &message), (0, None));
    // The host's buffer is too short for the challenge; the host may retry.
    let len = v.bytes("challenge").len() as u32;
    for room in [1, 8, len - 1] {
        let c = with_sgl(Command::authentication_receive(room), room);
        assert_eq!(a.command(&c, &[], &random).completion.status, status::INVALID_FIELD | DNR);
    }
    let c = with_sgl(Command::authentication_receive(len), len);
    let reply = a.command(&c, &[], &v.random("controller_random"));
    assert_eq!(reply.data, v.bytes("challenge"));
}

/// J14: offers of a host, and the controller's choice.
#[test]
fn negotiation() {
    use DhGroup::*;
    let offer = |hashes: &[u8], groups: &[u8]| {
        let mut p = ProtocolDescriptor { authid: 1, ..ProtocolDescriptor::default() };
        (p.halen, p.dhlen) = (hashes.len() as u8, groups.len() as u8);
        p.hashes[..hashes.len()].copy_from_slice(hashes);
        p.groups[..groups.len()].copy_from_slice(groups);
        p
    };
    let message = |sc_c, napd, offers: &[ProtocolDescriptor]| {
        let head = Negotiate { t_id: 7, sc_c, napd, ..Negotiate::default() };
        let offers: Vec<_> = offers.iter().flat_map(|o| o.encode()).collect();
        [&head.encode()[..], &offers].concat()
    };
    let all = [1, 2, 3];
    type Offer<'a> = (&'a [u8], &'a [u8]);
    let good: [(Hash, DhGroup, Offer<'_>, Hash, DhGroup); 11] = [
        (Hash::Sha256, Null, (&all, &[0, 1]), Hash::Sha256, Null),
        (Hash::Sha384, Null, (&[3, 2, 1], &[1]), Hash::Sha384, Ffdhe2048),
        (Hash::Sha256, Ffdhe2048, (&[3, 2], &[0, 5, 3, 2]), Hash::Sha384, Ffdhe3072),
        (Hash::Sha512, Ffdhe8192, (&[1, 2], &[0, 1, 2, 3, 4, 5]), Hash::Sha384, Ffdhe8192),
        // Unknown numbers are ignored.
        (Hash::Sha256, Null, (&[0, 4, 255, 1], &[6, 255, 0]), Hash::Sha256, Null),
        (Hash::Sha256, Ffdhe4096, (&all, &[255, 3]), Hash::Sha256, Ffdhe4096),
        (Hash::Sha256, Null, (&[1; 30], &[0; 30]), Hash::Sha256, Null),
        (Hash::Sha512, Ffdhe3072, (&all, &[4, 2, 5]), Hash::Sha512, Ffdhe3072),
        (Hash::Sha256, Null, (&all, &[5, 2]), Hash::Sha256, Ffdhe3072),
        (Hash::Sha256, Ffdhe3072, (&all, &[5, 3]), Hash::Sha256, Ffdhe4096),
        (Hash::Sha512, Null, (&[1], &[0]), Hash::Sha256, Null),
    ];
    for (key, least, (hashes, groups), hash, group) in good {
        let m = message(0, 1, &[offer(hashes, groups)]);
        assert_eq!(Chosen::of(&m, key, least), Ok(Chosen { hash, group }), "{hashes:?} {groups:?}");
    }
    let usual = offer(&all, &[0, 1]);
    let other = ProtocolDescriptor { authid: 2, ..usual };
    let m = message(0, 2, &[other, usual]);
    assert!(Chosen::of(&m, Hash::Sha256, Null).is_ok(), "another protocol before it");
    let bad = [
        (Null, message(1, 1, &[usual]), failure::CONCATENATION),
        (Null, message(2, 1, &[usual]), failure::CONCATENATION),
        (Null, message(0, 0, &[usual]), failure::PROTOCOL),
        (Null, message(0, 1, &[other]), failure::PROTOCOL),
        (Null, message(0, 2, &[usual]), failure::PAYLOAD),
        (Null, message(0, 255, &[usual]), failure::PAYLOAD),
        (Null, message(0, 1, &[]), failure::PAYLOAD),
        (Null, message(0, 1, &[usual])[..71].to_vec(), failure::PAYLOAD),
        (Null, message(0, 1, &[usual])[..7].to_vec(), failure::PAYLOAD),
        (Null, message(0, 1, &[ProtocolDescriptor { halen: 31, ..usual }]), failure::PAYLOAD),
        (Null, message(0, 1, &[ProtocolDescriptor { dhlen: 31, ..usual }]), failure::PAYLOAD),
        (Null, message(0, 1, &[offer(&[], &[0])]), failure::HASH),
        (Null, message(0, 1, &[offer(&[0, 4], &[0])]), failure::HASH),
        (Null, message(0, 1, &[offer(&all, &[])]), failure::GROUP),
        (Null, message(0, 1, &[offer(&all, &[6])]), failure::GROUP),
        (Ffdhe2048, message(0, 1, &[offer(&all, &[0])]), failure::GROUP),
        (Ffdhe8192, message(0, 1, &[offer(&all, &[0, 1, 2, 3, 4])]), failure::GROUP),
        // A peer cannot choose a group that takes long.
        (Null, message(0, 1, &[offer(&all, &[3, 4, 5])]), failure::GROUP),
        (Ffdhe2048, message(0, 1, &[offer(&all, &[3, 4, 5])]), failure::GROUP),
        (Ffdhe3072, message(0, 1, &[offer(&all, &[4, 5])]), failure::GROUP),
    ];
    let [v, _] = two();
    for (group, m, why) in bad {
        let a = Authentication { group, ..controller(&v) };
        refused(a, &m, why);
    }
}

/// J14: messages out of order, of another transaction, of another kind, or too short.
#[test]
fn messages_out_of_turn() {
    let [v, _] = two();
    let [negotiate, reply, success2] = ["negotiate", "reply", "success2"].map(|n| v.bytes(n));
    let failure2 = |t_id| {
        Failure { auth_id: auth_id::FAILURE2, t_id, rescode: 1, rescode_exp: 1, auth_type: 0 }
            .encode()
            .to_vec()
    };
    let t_id = MessageHeader::read(&negotiate).unwrap().t_id;
    let replied = || {
        let mut a = challenged(&v);
        assert_eq!(send(&mut a, &reply), (0, None));
        a
    };
    let told = || {
        let mut a = replied();
        receive(&mut a);
        a
    };
    // The first message must be AUTH_Negotiate.
    refused(controller(&v), &reply, failure::MESSAGE);
    refused(controller(&v), &success2, failure::MESSAGE);
    refused(controller(&v), &v.bytes("challenge"), failure::MESSAGE);
    refused(controller(&v), &[0; 5], failure::PAYLOAD);
    let mut other = negotiate.clone();
    other[0] = 1;
    refused(controller(&v), &other, failure::MESSAGE);
    // A message while the host must receive.
    let mut a = controller(&v);
    send(&mut a, &negotiate);
    refused(a, &negotiate, failure::MESSAGE);
    let mut a = controller(&v);
    send(&mut a, &negotiate);
    refused(a, &reply, failure::MESSAGE);
    refused(replied(), &reply, failure::MESSAGE);
    refused(replied(), &success2, failure::MESSAGE);
    // AUTH_Negotiate instead of the reply.
    refused(challenged(&v), &negotiate, failure::MESSAGE);
    refused(challenged(&v), &success2, failure::MESSAGE);
    // Other messages instead of Success2, among them the same reply again.
    refused(told(), &reply, failure::MESSAGE);
    refused(told(), &negotiate, failure::MESSAGE);
    // A reply of another transaction.
    let mut other = reply.clone();
    other[4] ^= 1;
    refused(challenged(&v), &other, failure::PAYLOAD);
    let mut other = success2;
    other[5] ^= 1;
    refused(told(), &other, failure::PAYLOAD);
    refused(challenged(&v), &failure2(t_id ^ 1), failure::MESSAGE);
    // The host gives up.
    for mut a in [challenged(&v), told()] {
        assert_eq!(send(&mut a, &failure2(t_id)), (0, Some(Change::Failed)));
        assert!(a.is_over() && !a.is_admitted());
    }
    // The host receives while no message is due.
    for mut a in [controller(&v), challenged(&v), told()] {
        let (message, change) = receive(&mut a);
        let failure = Failure::read(&message).unwrap();
        assert_eq!((failure.auth_id, failure.rescode_exp), (auth_id::FAILURE1, failure::MESSAGE));
        assert!(change == Some(Change::Failed) && a.is_over() && !a.is_admitted());
    }
    // A failed queue stays failed.
    let mut a = challenged(&v);
    send(&mut a, &negotiate);
    assert_eq!(send(&mut a, &negotiate), (status::SEQUENCE | DNR, None));
    fails(&mut a, t_id, failure::MESSAGE);
    assert_eq!(send(&mut a, &negotiate), (status::SEQUENCE | DNR, None));
}

/// J14: the sequence number of a challenge is random and never 0, which means no challenge.
#[test]
fn sequence_numbers() {
    for v in two() {
        for (bytes, want) in [([0; 4], 1), ([0xff; 4], u32::MAX), ([5, 0, 0, 0x80], 0x8000_0005)] {
            let mut a = controller(&v);
            send(&mut a, &v.bytes("negotiate"));
            let random = Random { seqnum: bytes, ..v.random("controller_random") };
            let challenge = receive_as(&mut a, &random).0;
            assert_eq!(Challenge::read(&challenge).unwrap().seqnum, want);
        }
    }
}

/// J14: each wrong field of a reply, and each wrong byte of a response.
#[test]
fn replies_that_are_wrong() {
    let [v, one_way] = two();
    for v in [&v, &one_way] {
        let good = v.bytes("reply");
        let hl = usize::from(good[6]);
        let change = |f: &dyn Fn(&mut Vec<u8>)| {
            let mut m = good.clone();
            f(&mut m);
            m
        };
        for byte in 16..16 + hl {
            refused(challenged(v), &change(&|m| m[byte] ^= 0x10), failure::FAILED);
        }
        let head = |f: &dyn Fn(&mut Reply)| {
            change(&|m| {
                let mut head = Reply::read(m).unwrap();
                f(&mut head);
                m[..Reply::LEN].copy_from_slice(&head.encode());
            })
        };
        for hl in [0, 31, 33, 64, 255] {
            refused(challenged(v), &head(&|h| h.hl = hl), failure::PAYLOAD);
        }
        for n in [1, 255, 257, u16::MAX] {
            refused(challenged(v), &head(&|h| h.dhvlen = n), failure::PAYLOAD);
        }
        refused(challenged(v), &head(&|h| h.dhvlen = 256 - h.dhvlen), failure::PAYLOAD);
        refused(challenged(v), &head(&|h| h.cvalid = 2), failure::PAYLOAD);
        for len in [6, 15, 16, 16 + hl, good.len() - 1] {
            refused(challenged(v), &good[..len], failure::PAYLOAD);
        }
    }
    // Diffie-Hellman values whose shared result anybody could compute.
    let good = one_way.bytes("reply");
    let hl = usize::from(good[6]);
    for value in [[0; 256], [0xff; 256]] {
        let m = [&good[..16 + 2 * hl], &value].concat();
        refused(challenged(&one_way), &m, failure::PAYLOAD);
    }
}

/// J14: a reply fits one challenge of one transaction of one host.
#[test]
fn replies_do_not_fit_another_challenge() {
    let [v, _] = two();
    let mut a = controller(&v);
    send(&mut a, &v.bytes("negotiate"));
    receive_as(&mut a, &Random::new(&[1; 132]));
    refused(a, &v.bytes("reply"), failure::FAILED);
    // Repeats the challenge with another sequence number.
    let mut random = v.random("controller_random");
    random.seqnum[0] ^= 1;
    let mut a = controller(&v);
    send(&mut a, &v.bytes("negotiate"));
    receive_as(&mut a, &random);
    refused(a, &v.bytes("reply"), failure::FAILED);
    // Repeats the challenge in another transaction.
    let mut other = controller(&v);
    let (mut negotiate, mut reply) = (v.bytes("negotiate"), v.bytes("reply"));
    negotiate[4] ^= 1;
    reply[4] ^= 1;
    send(&mut other, &negotiate);
    receive_as(&mut other, &v.random("controller_random"));
    refused(other, &reply, failure::FAILED);
    // Another host with the same key, and another subsystem.
    let a = Authentication { host: nqn("nqn.other"), ..challenged(&v) };
    refused(a, &v.bytes("reply"), failure::FAILED);
    let a = Authentication { subsystem: nqn("nqn.other"), ..challenged(&v) };
    refused(a, &v.bytes("reply"), failure::FAILED);
}

/// J14: the host's own challenge.
#[test]
fn challenges_of_the_host() {
    let [v, _] = two();
    // Without a key of its own, the controller does not authenticate itself.
    let a = Authentication { controller_key: None, ..challenged(&v) };
    refused(a, &v.bytes("reply"), failure::FAILED);
    // The host sends the controller's challenge back.
    let mut reflected = v.bytes("reply");
    let hl = usize::from(reflected[6]);
    let own = v.bytes("challenge")[Challenge::LEN..Challenge::LEN + hl].to_vec();
    reflected[16 + hl..16 + 2 * hl].copy_from_slice(&own);
    refused(challenged(&v), &reflected, failure::FAILED);
    // Sequence number 0, or no challenge: the controller does not authenticate itself.
    for byte in [8, 12] {
        let mut m = v.bytes("reply");
        m[byte..byte + if byte == 8 { 1 } else { 4 }].fill(0);
        let mut a = challenged(&v);
        assert_eq!(send(&mut a, &m), (0, None));
        let (success, change) = receive(&mut a);
        assert_eq!(Success1::read(&success).unwrap().rvalid, 0);
        assert!(success[16..].iter().all(|b| *b == 0));
        assert_eq!((change, a.is_admitted()), (Some(Change::Admitted), true));
    }
}

/// J14: the messages of a controller that an initiator accepts.
#[test]
fn a_host_that_wants_to_know_its_controller() {
    let [v, _] = two();
    let until_success1 = |success1: &[u8]| {
        let mut h = host(&v);
        let (challenge, none) = (v.bytes("challenge"), Vec::new());
        for received in [&none, &none, &challenge, &none] {
            assert!(h.next(received).unwrap().is_some());
        }
        let next = h.next(success1);
        (h, next)
    };
    let good = v.bytes("success1");
    let (mut h, next) = until_success1(&good);
    assert_eq!(next.unwrap().unwrap().1, Data::Out(v.bytes("success2")));
    assert_eq!(h.next(&[]), Ok(None));
    // A controller that sends no response, or a wrong one.
    let mut silent = good.clone();
    silent[8] = 0;
    let mut wrong = good.clone();
    wrong[20] ^= 1;
    for message in [silent, wrong, good[..40].to_vec()] {
        let (mut h, next) = until_success1(&message);
        let Ok(Some((_, Data::Out(failure)))) = next else { panic!("{next:?}") };
        assert_eq!(Failure::read(&failure).unwrap().auth_id, auth_id::FAILURE2);
        assert!(h.next(&[]).is_err());
    }
    let mut other = good;
    other[4] ^= 1;
    assert!(until_success1(&other).1.is_err(), "another transaction");
    assert!(until_success1(&messages::failure1(1, 1)).1.is_err());
    assert!(until_success1(&[]).1.is_err());
}

/// J13: a host authenticates again. Its queue goes on meanwhile, and ends if that fails.
#[test]
fn authentication_again() {
    let [v, _] = two();
    let read = Command::new(opcode::READ);
    let mut a = challenged(&v);
    for message in ["reply", "success2"] {
        send(&mut a, &v.bytes(message));
        if message == "reply" {
            receive(&mut a);
        }
    }
    assert!(a.is_admitted());
    assert_eq!(send(&mut a, &v.bytes("negotiate")), (0, None));
    receive_as(&mut a, &v.random("controller_random"));
    assert!(a.is_admitted() && !a.concerns(&read), "commands go on");
    assert_eq!(send(&mut a, &v.bytes("reply")), (0, None));
    receive(&mut a);
    assert_eq!(send(&mut a, &v.bytes("success2")), (0, Some(Change::Admitted)));
    // Each transaction has a new challenge.
    send(&mut a, &v.bytes("negotiate"));
    receive(&mut a);
    assert_eq!(send(&mut a, &v.bytes("reply")), (0, Some(Change::Failed)));
    assert!(!a.is_admitted() && a.concerns(&read));
    let t_id = MessageHeader::read(&v.bytes("reply")).unwrap().t_id;
    fails(&mut a, t_id, failure::FAILED);
    assert_eq!(Success2::LEN, v.bytes("success2").len());
}

proptest! {
    /// J14: no sequence of messages admits a host that does not know the key.
    #[test]
    fn messages_of_a_stranger(
        steps in prop::collection::vec((0..6usize, any::<u16>(), any::<u8>(), 0..80usize), 1..12),
    ) {
        for v in two() {
            let mut a = controller(&v);
            // The list has no correct reply: its reply belongs to a challenge that the controller does not send here.
            let messages = ["negotiate", "reply", "success2", "challenge", "success1"];
            let mut messages: Vec<_> = messages.map(|m| v.text(m)).into_iter().collect();
            messages.retain(|m| *m != "-");
            for (which, at, bits, cut) in &steps {
                let Some(name) = messages.get(*which) else {
                    let c = with_sgl(Command::authentication_receive(4096), 4096);
                    a.command(&c, &[], &Random::new(&[*bits; 132]));
                    prop_assert!(!a.is_admitted());
                    continue;
                };
                let mut m: Vec<u8> = name.as_bytes().as_chunks::<2>().0.iter()
                    .map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap())
                    .collect();
                let at = usize::from(*at) % m.len();
                m[at] ^= bits;
                m.truncate(m.len().max(*cut) - cut.saturating_sub(40).min(m.len() - 1));
                send(&mut a, &m);
                prop_assert!(!a.is_admitted());
            }
        }
    }
}
