//! The target's side of a login (RFC 7143, section 6.3): an authentication, then keys, then the full feature phase.
//!
//! The owner passes the requests in, sends the answers, and closes the connection after a failure. It decides who may
//! log in where ([`LoginPolicy`]), and draws the random numbers.

use super::chap::{CHALLENGE_LEN, ChapHash, Secret, encode_binary, parse_binary};
use super::header::Header;
use super::negotiation::{Negotiation, Offer};
use super::text::parse_text;

/// Most bytes of keys in a request that is sent in parts.
const MAX_TEXT: usize = 16 << 10;

/// A failure: its class and its detail, as Login Response has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum LoginFailure {
    /// The request is wrong.
    Initiator = 0x0200,
    /// The initiator has not proven who it is.
    Authentication = 0x0201,
    /// The initiator may not use the target.
    Authorization = 0x0202,
    /// There is no such target.
    NotFound = 0x0203,
    /// No common version.
    Version = 0x0205,
    /// A key is missing.
    Missing = 0x0207,
    /// There is no such session.
    NoSession = 0x020a,
    /// The target has no room for another connection of this initiator. The initiator may try again.
    NoRoom = 0x0302,
}

/// The name and the secret of one side.
pub type Credentials = (String, Secret);

/// The credentials that initiator and target prove to each other.
#[derive(Debug, Clone, Default)]
pub struct Proofs {
    /// The initiator's. `None`: it proves nothing.
    pub initiator: Option<Credentials>,
    /// The target's, if an initiator asks.
    pub target: Option<Credentials>,
}

/// Who may log in where.
pub trait LoginPolicy {
    /// Returns the proofs for an initiator that logs in to a target; `None`: to discovery.
    fn proofs(&self, initiator: &str, target: Option<&str>) -> Result<Proofs, LoginFailure>;
}

/// The answer to a request: flags and keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginReply {
    /// The flags of Login Response.
    pub flags: u8,
    /// The keys, in the form of [`encode_text`](super::encode_text).
    pub pairs: Vec<(String, String)>,
    /// Whether the login is complete.
    pub done: bool,
}

/// How far an authentication is.
#[derive(Debug)]
enum Chap {
    Method,
    Algorithm,
    Response(ChapHash, u8, [u8; CHALLENGE_LEN]),
    Done,
}

/// A login that goes on.
#[derive(Debug)]
pub struct Login {
    offer: Offer,
    negotiation: Negotiation,
    names: Option<(String, Option<String>)>,
    proofs: Proofs,
    chap: Chap,
    text: Vec<u8>,
    /// The stage: 0 for the authentication, 1 for the keys.
    stage: u8,
}

const TRANSIT: u8 = 0x80;
const CONTINUE: u8 = 0x40;
/// The stage after a login.
const FULL_FEATURE: u8 = 3;

impl Login {
    /// Begins a login.
    pub fn new(offer: Offer) -> Login {
        Login {
            offer,
            negotiation: Negotiation::default(),
            names: None,
            proofs: Proofs::default(),
            chap: Chap::Method,
            text: Vec::new(),
            stage: 0,
        }
    }

    /// Returns what was agreed on.
    pub fn negotiation(&self) -> &Negotiation {
        &self.negotiation
    }

    /// Returns the name of the initiator and that of the target, if the session is not for discovery.
    pub fn names(&self) -> Option<(&str, Option<&str>)> {
        self.names.as_ref().map(|(i, t)| (i.as_str(), t.as_deref()))
    }

    /// Takes a request. `random`: unpredictable bytes, new ones each time.
    pub fn take(
        &mut self,
        header: &Header,
        data: &[u8],
        policy: &impl LoginPolicy,
        random: &[u8; CHALLENGE_LEN + 1],
    ) -> Result<LoginReply, LoginFailure> {
        let (flags, stage) = (header.flags(), header.flags() >> 2 & 3);
        // The lowest version that the initiator takes.
        if header.0[3] > 0 {
            return Err(LoginFailure::Version);
        }
        if header.0[14..16] != [0, 0] {
            return Err(LoginFailure::NoSession);
        }
        if self.text.len() + data.len() > MAX_TEXT || flags & TRANSIT != 0 && flags & CONTINUE != 0
        {
            return Err(LoginFailure::Initiator);
        }
        self.text.extend(data);
        if flags & CONTINUE != 0 {
            return Ok(LoginReply { flags: stage << 2, pairs: vec![], done: false });
        }
        let text = std::mem::take(&mut self.text);
        let keys = parse_text(&text).map_err(|_| LoginFailure::Initiator)?;
        let mut pairs = Vec::new();
        if self.names.is_none() {
            self.begin(&keys, policy)?;
            self.stage = stage;
            if matches!(self.names, Some((_, Some(_)))) {
                pairs.push(("TargetPortalGroupTag".to_owned(), "1".to_owned()));
            }
        }
        if stage != self.stage || stage > 1 {
            return Err(LoginFailure::Initiator);
        }
        let proven = self.proofs.initiator.is_none() || matches!(self.chap, Chap::Done);
        if stage == 1 && !proven {
            return Err(LoginFailure::Authentication);
        }
        let named = |k: &str| {
            matches!(k, "InitiatorName" | "InitiatorAlias" | "TargetName" | "SessionType")
        };
        let keys: Vec<_> = keys.into_iter().filter(|(k, _)| !named(k)).collect();
        let ready = if stage == 0 {
            self.authenticate(&keys, random, &mut pairs)?
        } else {
            for (key, value) in keys {
                let answer = self.negotiation.take(key, value, &self.offer);
                let answer = answer.map_err(|_| LoginFailure::Initiator)?;
                pairs.extend(answer.map(|a| (key.to_owned(), a)));
            }
            pairs.extend(self.negotiation.declare(&self.offer).map(|(k, v)| (k.to_owned(), v)));
            true
        };
        let next = flags & 3;
        if flags & TRANSIT == 0 || !ready {
            return Ok(LoginReply { flags: stage << 2, pairs, done: false });
        }
        if next == 2 || next <= stage {
            return Err(LoginFailure::Initiator);
        }
        self.stage = next;
        Ok(LoginReply { flags: TRANSIT | stage << 2 | next, pairs, done: next == FULL_FEATURE })
    }

    /// Takes the names of the first request.
    fn begin(
        &mut self,
        keys: &[(&str, &str)],
        policy: &impl LoginPolicy,
    ) -> Result<(), LoginFailure> {
        let value = |key: &str| keys.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
        let initiator = value("InitiatorName").ok_or(LoginFailure::Missing)?;
        let target = match value("SessionType") {
            Some("Discovery") => None,
            None | Some("Normal") => Some(value("TargetName").ok_or(LoginFailure::Missing)?),
            Some(_) => return Err(LoginFailure::Initiator),
        };
        let proofs = policy.proofs(initiator, target);
        // The log names an initiator that is refused, too. Requests in this stage are refused, so that it cannot go on.
        self.names = Some((initiator.to_owned(), target.map(str::to_owned)));
        self.stage = FULL_FEATURE;
        self.proofs = proofs?;
        Ok(())
    }

    /// Takes keys of the authentication. Returns whether the initiator may go on.
    fn authenticate(
        &mut self,
        keys: &[(&str, &str)],
        random: &[u8; CHALLENGE_LEN + 1],
        pairs: &mut Vec<(String, String)>,
    ) -> Result<bool, LoginFailure> {
        let value = |key: &str| keys.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
        let mut say = |key: &str, value: &str| pairs.push((key.to_owned(), value.to_owned()));
        let wrong = LoginFailure::Authentication;
        let Some((name, secret)) = &self.proofs.initiator else {
            if let Some(methods) = value("AuthMethod") {
                if !methods.split(',').any(|m| m == "None") {
                    return Err(wrong);
                }
                say("AuthMethod", "None");
            }
            return Ok(true);
        };
        match self.chap {
            Chap::Method => {
                let methods = value("AuthMethod").ok_or(wrong)?;
                if !methods.split(',').any(|m| m == "CHAP") {
                    return Err(wrong);
                }
                say("AuthMethod", "CHAP");
                self.chap = Chap::Algorithm;
            }
            Chap::Algorithm => {
                let hash = value("CHAP_A").and_then(ChapHash::choose).ok_or(wrong)?;
                let [identifier, challenge @ ..] = *random;
                say("CHAP_A", hash.number());
                say("CHAP_I", &identifier.to_string());
                say("CHAP_C", &encode_binary(&challenge));
                self.chap = Chap::Response(hash, identifier, challenge);
            }
            Chap::Response(hash, identifier, challenge) => {
                let response = value("CHAP_R").and_then(parse_binary).ok_or(wrong)?;
                let known = value("CHAP_N") == Some(name);
                if !secret.proves(hash, identifier, &challenge, &response) || !known {
                    return Err(wrong);
                }
                if let Some(theirs) = value("CHAP_C") {
                    let theirs = parse_binary(theirs).ok_or(wrong)?;
                    let number = value("CHAP_I").and_then(|i| i.parse().ok()).ok_or(wrong)?;
                    let (name, own) = self.proofs.target.as_ref().ok_or(wrong)?;
                    // A challenge that comes back would be answered for the initiator.
                    if theirs == challenge || own.is_same(secret) {
                        return Err(wrong);
                    }
                    say("CHAP_N", name);
                    say("CHAP_R", &encode_binary(&own.response(hash, number, &theirs)));
                }
                self.chap = Chap::Done;
            }
            Chap::Done => {}
        }
        Ok(matches!(self.chap, Chap::Done))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::iscsi::opcode;

    struct Policy(bool);

    fn secret(text: &str) -> Secret {
        Secret::parse(text).unwrap()
    }

    impl LoginPolicy for Policy {
        fn proofs(&self, _: &str, target: Option<&str>) -> Result<Proofs, LoginFailure> {
            if target.is_some_and(|t| t != "iqn.t") {
                return Err(LoginFailure::NotFound);
            }
            let with = |name: &str, s: &str| self.0.then(|| (name.to_owned(), secret(s)));
            let (initiator, target) =
                (with("host", "initiator-secret"), with("disk", "target-secret-1"));
            Ok(Proofs { initiator, target })
        }
    }

    const OFFER: Offer = Offer {
        digests: true,
        immediate_data: true,
        unsolicited_data: true,
        max_data: 65_536,
        max_burst: 262_144,
        first_burst: 65_536,
        max_outstanding_r2t: 1,
    };
    const RANDOM: [u8; 17] = [7; 17];
    const NAMES: &str = "InitiatorName=iqn.i\0TargetName=iqn.t\0";

    fn take(
        login: &mut Login,
        auth: bool,
        flags: u8,
        text: &str,
    ) -> Result<LoginReply, LoginFailure> {
        let header = Header::new(opcode::LOGIN).with_flags(flags);
        login.take(&header, text.as_bytes(), &Policy(auth), &RANDOM)
    }

    fn value<'a>(reply: &'a LoginReply, key: &str) -> Option<&'a str> {
        reply.pairs.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    #[test]
    fn without_a_secret_keys_are_enough() {
        let mut login = Login::new(OFFER);
        let text = format!("{NAMES}MaxRecvDataSegmentLength=1024\0HeaderDigest=CRC32C\0");
        let reply = take(&mut login, false, 0x87, &text).unwrap();
        assert_eq!((reply.flags, reply.done), (0x87, true));
        assert_eq!(value(&reply, "TargetPortalGroupTag"), Some("1"));
        assert_eq!(value(&reply, "MaxRecvDataSegmentLength"), Some("65536"));
        assert!(login.negotiation().header_digest);
        assert_eq!(login.names(), Some(("iqn.i", Some("iqn.t"))));
        let mut login = Login::new(OFFER);
        take(&mut login, false, 0x87, "InitiatorName=iqn.i\0SessionType=Discovery\0").unwrap();
        assert_eq!(login.names(), Some(("iqn.i", None)));
    }

    /// A login that was refused has the name of its initiator, for the log, and cannot go on.
    #[test]
    fn a_refused_login_has_a_name() {
        let mut login = Login::new(OFFER);
        let other = "InitiatorName=iqn.i\0TargetName=iqn.other\0";
        assert_eq!(take(&mut login, false, 0x87, other).unwrap_err(), LoginFailure::NotFound);
        assert_eq!(login.names(), Some(("iqn.i", Some("iqn.other"))));
        for flags in [0x81, 0x87, 0x8f] {
            let again = take(&mut login, false, flags, NAMES);
            assert_eq!(again.unwrap_err(), LoginFailure::Initiator, "{flags:x}");
        }
    }

    #[test]
    fn each_side_proves_its_secret() {
        let mut login = Login::new(OFFER);
        let reply =
            take(&mut login, true, 0x81, &format!("{NAMES}AuthMethod=CHAP,None\0")).unwrap();
        assert_eq!((reply.flags, value(&reply, "AuthMethod")), (0, Some("CHAP")), "not yet");
        let reply = take(&mut login, true, 0x00, "CHAP_A=5\0").unwrap();
        let challenge = parse_binary(value(&reply, "CHAP_C").unwrap()).unwrap();
        let response = secret("initiator-secret").response(ChapHash::Md5, 7, &challenge);
        let text =
            format!("CHAP_N=host\0CHAP_R={}\0CHAP_I=9\0CHAP_C=0x0102\0", encode_binary(&response));
        let reply = take(&mut login, true, 0x81, &text).unwrap();
        assert_eq!(reply.flags, 0x81);
        let own = secret("target-secret-1").response(ChapHash::Md5, 9, &[1, 2]);
        assert_eq!(value(&reply, "CHAP_R"), Some(encode_binary(&own).as_str()));
        assert!(take(&mut login, true, 0x87, "").unwrap().done);
    }

    #[test]
    fn who_does_not_prove_it_stays_out() {
        use LoginFailure as F;
        let mut login = Login::new(OFFER);
        assert_eq!(take(&mut login, true, 0x87, NAMES), Err(F::Authentication), "skips it");
        let mut login = Login::new(OFFER);
        let none = format!("{NAMES}AuthMethod=None\0");
        assert_eq!(take(&mut login, true, 0x81, &none), Err(F::Authentication));
        for text in ["CHAP_N=host\0CHAP_R=0x00\0", "CHAP_N=host\0", ""] {
            let mut login = Login::new(OFFER);
            take(&mut login, true, 0, &format!("{NAMES}AuthMethod=CHAP\0")).unwrap();
            take(&mut login, true, 0, "CHAP_A=7\0").unwrap();
            assert_eq!(take(&mut login, true, 0x81, text), Err(F::Authentication));
        }
        let fails = |text: &str| take(&mut Login::new(OFFER), false, 0x87, text).unwrap_err();
        assert_eq!(fails("TargetName=iqn.t\0"), F::Missing);
        assert_eq!(fails("InitiatorName=a\0"), F::Missing);
        assert_eq!(fails("InitiatorName=a\0TargetName=iqn.x\0"), F::NotFound);
        assert_eq!(fails(&format!("{NAMES}InitialR2T=maybe\0")), F::Initiator);
        let mut login = Login::new(OFFER);
        assert_eq!(take(&mut login, false, 0x86, NAMES), Err(F::Initiator), "stage 2");
    }

    /// Keys that come in parts are read when the last part has come.
    #[test]
    fn keys_come_in_parts() {
        let mut login = Login::new(OFFER);
        assert_eq!(take(&mut login, false, 0x44, &NAMES[..10]).unwrap().pairs, []);
        assert!(take(&mut login, false, 0x87, &NAMES[10..]).unwrap().done);
    }
}
