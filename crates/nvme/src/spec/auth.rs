//! In-band authentication: Authentication Send and Receive (Base Specification, *Fabrics Command Set*) and the messages of
//! DH-HMAC-CHAP (Base Specification, section 8.13, *NVMe In-band Authentication*).

use super::command::Command;
use super::fabrics::fctype;
use super::structure::structure;

/// SECP: authentication of NVMe over Fabrics.
pub const SECURITY_PROTOCOL: u8 = 0xe9;
/// SPSP0 and SPSP1.
pub const PROTOCOL_SPECIFIC: u8 = 0x01;
/// Bit of the result of Connect (AUTHREQ): the host has to authenticate on this queue.
pub const AUTHENTICATION_REQUIRED: u64 = 1 << 17;

/// AUTH_TYPE of a message.
pub mod auth_type {
    /// Messages of every protocol: negotiation, failures.
    pub const COMMON: u8 = 0x00;
    /// Messages of DH-HMAC-CHAP.
    pub const DHCHAP: u8 = 0x01;
}

/// AUTH_ID of a message.
pub mod auth_id {
    /// AUTH_Negotiate, from the host.
    pub const NEGOTIATE: u8 = 0x00;
    /// DH-HMAC-CHAP_Challenge, from the controller.
    pub const CHALLENGE: u8 = 0x01;
    /// DH-HMAC-CHAP_Reply, from the host.
    pub const REPLY: u8 = 0x02;
    /// DH-HMAC-CHAP_Success1, from the controller.
    pub const SUCCESS1: u8 = 0x03;
    /// DH-HMAC-CHAP_Success2, from the host.
    pub const SUCCESS2: u8 = 0x04;
    /// AUTH_Failure2, from the host.
    pub const FAILURE2: u8 = 0xf0;
    /// AUTH_Failure1, from the controller.
    pub const FAILURE1: u8 = 0xf1;
}

/// AUTHID of DH-HMAC-CHAP in a [`ProtocolDescriptor`].
pub const PROTOCOL_DHCHAP: u8 = 0x01;

/// RESCODE of a failure: authentication failed. The specification has no other.
pub const AUTHENTICATION_FAILURE: u8 = 0x01;

/// RESCODEEXP of a failure: why.
pub mod failure {
    /// The response is wrong.
    pub const FAILED: u8 = 0x01;
    /// The two sides have no common protocol.
    pub const PROTOCOL: u8 = 0x02;
    /// The host requested secure channel concatenation, which is not offered.
    pub const CONCATENATION: u8 = 0x03;
    /// The two sides have no common hash function.
    pub const HASH: u8 = 0x04;
    /// The two sides have no common Diffie-Hellman group.
    pub const GROUP: u8 = 0x05;
    /// A field of the message is wrong.
    pub const PAYLOAD: u8 = 0x06;
    /// The message does not fit the state of the transaction.
    pub const MESSAGE: u8 = 0x07;
}

structure! {
    /// The beginning of every message.
    MessageHeader: 6 {
        /// [`auth_type`].
        auth_type: u8 = 0,
        /// [`auth_id`].
        auth_id: u8 = 1,
        /// T_ID: the transaction.
        t_id: u16 = 4,
    }
}

structure! {
    /// AUTH_Negotiate, before its protocol descriptors.
    Negotiate: 8 {
        /// [`auth_type`].
        auth_type: u8 = 0,
        /// [`auth_id`].
        auth_id: u8 = 1,
        /// T_ID: the host's choice.
        t_id: u16 = 4,
        /// SC_C: the secure channel that follows; 0: none.
        sc_c: u8 = 6,
        /// NAPD: number of protocol descriptors.
        napd: u8 = 7,
    }
}

structure! {
    /// A protocol that the host offers.
    ProtocolDescriptor: 64 {
        /// AUTHID: [`PROTOCOL_DHCHAP`].
        authid: u8 = 0,
        /// HALEN: number of hash functions.
        halen: u8 = 2,
        /// DHLEN: number of Diffie-Hellman groups.
        dhlen: u8 = 3,
        /// Hash functions, the host's favourite first.
        hashes: [u8; 30] = 4,
        /// Diffie-Hellman groups.
        groups: [u8; 30] = 34,
    }
}

structure! {
    /// DH-HMAC-CHAP_Challenge. The challenge (HL bytes) and the controller's Diffie-Hellman value follow.
    Challenge: 16 {
        /// [`auth_type`].
        auth_type: u8 = 0,
        /// [`auth_id`].
        auth_id: u8 = 1,
        /// T_ID.
        t_id: u16 = 4,
        /// HL: length of a digest of the hash function in bytes.
        hl: u8 = 6,
        /// HASHID: the hash function.
        hashid: u8 = 8,
        /// DHGID: the Diffie-Hellman group.
        dhgid: u8 = 9,
        /// DHVLEN: bytes of the Diffie-Hellman value.
        dhvlen: u16 = 10,
        /// SEQNUM of the controller.
        seqnum: u32 = 12,
    }
}

structure! {
    /// DH-HMAC-CHAP_Reply. The response (HL bytes), the host's challenge (HL bytes, used or not) and the host's
    /// Diffie-Hellman value follow.
    Reply: 16 {
        /// [`auth_type`].
        auth_type: u8 = 0,
        /// [`auth_id`].
        auth_id: u8 = 1,
        /// T_ID.
        t_id: u16 = 4,
        /// HL.
        hl: u8 = 6,
        /// CVALID: 1 if the controller is to authenticate itself.
        cvalid: u8 = 8,
        /// DHVLEN.
        dhvlen: u16 = 10,
        /// SEQNUM of the host.
        seqnum: u32 = 12,
    }
}

structure! {
    /// DH-HMAC-CHAP_Success1. The response (HL bytes) follows, if there is one.
    Success1: 16 {
        /// [`auth_type`].
        auth_type: u8 = 0,
        /// [`auth_id`].
        auth_id: u8 = 1,
        /// T_ID.
        t_id: u16 = 4,
        /// HL.
        hl: u8 = 6,
        /// RVALID: 1 if there is a response.
        rvalid: u8 = 8,
    }
}

structure! {
    /// DH-HMAC-CHAP_Success2.
    Success2: 16 {
        /// [`auth_type`].
        auth_type: u8 = 0,
        /// [`auth_id`].
        auth_id: u8 = 1,
        /// T_ID.
        t_id: u16 = 4,
    }
}

structure! {
    /// AUTH_Failure1 and AUTH_Failure2.
    Failure: 8 {
        /// [`auth_type`].
        auth_type: u8 = 0,
        /// [`auth_id`].
        auth_id: u8 = 1,
        /// T_ID.
        t_id: u16 = 4,
        /// RESCODE: [`AUTHENTICATION_FAILURE`].
        rescode: u8 = 6,
        /// RESCODEEXP: [`failure`].
        rescode_exp: u8 = 7,
    }
}

impl Command {
    /// Makes an Authentication Send of a message of `len` bytes.
    pub const fn authentication_send(len: u32) -> Command {
        Command::authentication(fctype::AUTHENTICATION_SEND, len)
    }

    /// Makes an Authentication Receive into `len` bytes.
    pub const fn authentication_receive(len: u32) -> Command {
        Command::authentication(fctype::AUTHENTICATION_RECEIVE, len)
    }

    const fn authentication(fctype: u8, len: u32) -> Command {
        let secp = (SECURITY_PROTOCOL as u32) << 24;
        let specific = (PROTOCOL_SPECIFIC as u32) << 16 | (PROTOCOL_SPECIFIC as u32) << 8;
        Command::fabrics(fctype).with_cdw(10, secp | specific).with_cdw(11, len)
    }

    /// Returns whether SECP, SPSP1 and SPSP0 (bytes 43 to 41) of an authentication command are those of NVMe over
    /// Fabrics.
    pub const fn is_nvme_authentication(&self) -> bool {
        self.cdw(10) >> 8 == Command::authentication(0, 0).cdw(10) >> 8
    }

    /// Returns TL or AL of an authentication command: the length of the message, or the room for it, in bytes.
    pub const fn authentication_len(&self) -> u32 {
        self.cdw(11)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_their_fields_where_the_figures_have_them() {
        let c = Command::authentication_send(0x0102);
        assert_eq!((c.0[0], c.0[4]), (0x7f, 5));
        assert_eq!(c.0[40..48], [0, 1, 1, 0xe9, 2, 1, 0, 0]);
        assert!(c.is_nvme_authentication() && c.authentication_len() == 0x0102);
        assert_eq!(Command::authentication_receive(4).fctype(), 6);
        for byte in 41..44 {
            let mut other = c;
            other.0[byte] ^= 2;
            assert!(!other.is_nvme_authentication(), "{byte}");
        }
    }
}
