//! The messages of DH-HMAC-CHAP, as the controller reads and writes them.

use super::Refused;
use crate::dhchap::{DhGroup, Hash};
use crate::spec::auth::{
    AUTHENTICATION_FAILURE, Challenge, Failure, Negotiate, PROTOCOL_DHCHAP, ProtocolDescriptor,
    Reply, Success1, auth_id, auth_type, failure,
};

/// The controller's choice from the host's offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) hash: Hash,
    pub(super) group: DhGroup,
}

impl Chosen {
    /// Reads AUTH_Negotiate and chooses. Hash: the function as strong as the key, else the next stronger one, else
    /// the strongest offered. Group: the weakest offered one from `group` up to the next stronger one, and at least up
    /// to ffdhe3072. Without this bound, a peer that has no key could make this side compute in the strongest group, which
    /// takes a hundred times as long as the weakest. `key_hash`: the function for which the key was made.
    pub(super) fn of(data: &[u8], key_hash: Hash, group: DhGroup) -> Result<Chosen, Refused> {
        let negotiate = Negotiate::read(data).ok_or(failure::PAYLOAD)?;
        if negotiate.sc_c != 0 {
            return Err(failure::CONCATENATION);
        }
        let offers = &data[Negotiate::LEN..];
        let (offers, _) = offers.as_chunks::<{ ProtocolDescriptor::LEN }>();
        let offers = offers.get(..usize::from(negotiate.napd)).ok_or(failure::PAYLOAD)?;
        let mut offers = offers.iter().map(ProtocolDescriptor::decode);
        let offer = offers.find(|o| o.authid == PROTOCOL_DHCHAP).ok_or(failure::PROTOCOL)?;
        let hashes = offer.hashes.get(..usize::from(offer.halen)).ok_or(failure::PAYLOAD)?;
        let groups = offer.groups.get(..usize::from(offer.dhlen)).ok_or(failure::PAYLOAD)?;
        let hashes = || hashes.iter().filter_map(|id| Hash::from_id(*id));
        let groups = groups.iter().filter_map(|id| DhGroup::from_id(*id));
        let most = group.next().max(DhGroup::Ffdhe3072);
        Ok(Chosen {
            hash: hashes()
                .filter(|h| *h >= key_hash)
                .min()
                .or_else(|| hashes().max())
                .ok_or(failure::HASH)?,
            group: groups.filter(|g| (group..=most).contains(g)).min().ok_or(failure::GROUP)?,
        })
    }
}

/// The fields of DH-HMAC-CHAP_Reply.
#[derive(Debug)]
pub(super) struct HostReply<'a> {
    pub(super) response: &'a [u8],
    /// The host's challenge and its sequence number, if the controller must authenticate itself. With the number 0 it
    /// does not authenticate itself, whatever CVALID says.
    pub(super) challenge: Option<(&'a [u8], u32)>,
    /// The host's Diffie-Hellman value.
    pub(super) value: &'a [u8],
}

impl HostReply<'_> {
    /// Reads a reply. Its lengths must be those of `hash` and `group`.
    pub(super) fn of(data: &[u8], hash: Hash, group: DhGroup) -> Result<HostReply<'_>, Refused> {
        let reply = Reply::read(data).ok_or(failure::PAYLOAD)?;
        let (hl, dhvlen) = (usize::from(reply.hl), usize::from(reply.dhvlen));
        if hl != hash.len() || dhvlen != group.len() || reply.cvalid > 1 {
            return Err(failure::PAYLOAD);
        }
        let rest = &data[Reply::LEN..];
        let (response, rest) = rest.split_at_checked(hl).ok_or(failure::PAYLOAD)?;
        let (challenge, rest) = rest.split_at_checked(hl).ok_or(failure::PAYLOAD)?;
        let value = rest.get(..dhvlen).ok_or(failure::PAYLOAD)?;
        let two_ways = reply.cvalid == 1 && reply.seqnum != 0;
        Ok(HostReply { response, challenge: two_ways.then_some((challenge, reply.seqnum)), value })
    }
}

pub(super) fn challenge(
    t_id: u16,
    Chosen { hash, group }: Chosen,
    seqnum: u32,
    challenge: &[u8],
    value: &[u8],
) -> Vec<u8> {
    let head = Challenge {
        auth_type: auth_type::DHCHAP,
        auth_id: auth_id::CHALLENGE,
        t_id,
        hl: hash.len() as u8,
        hashid: hash.id(),
        dhgid: group.id(),
        dhvlen: value.len() as u16,
        seqnum,
    };
    [&head.encode(), challenge, value].concat()
}

pub(super) fn success1(t_id: u16, hash: Hash, response: Option<&[u8]>) -> Vec<u8> {
    let head = Success1 {
        auth_type: auth_type::DHCHAP,
        auth_id: auth_id::SUCCESS1,
        t_id,
        hl: hash.len() as u8,
        rvalid: u8::from(response.is_some()),
    };
    [&head.encode(), response.unwrap_or_default()].concat()
}

pub(super) fn failure1(t_id: u16, why: u8) -> Vec<u8> {
    let failure = Failure {
        auth_type: auth_type::COMMON,
        auth_id: auth_id::FAILURE1,
        t_id,
        rescode: AUTHENTICATION_FAILURE,
        rescode_exp: why,
    };
    failure.encode().to_vec()
}
