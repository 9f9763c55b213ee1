//! iSCSI (RFC 7143): the formats of its PDUs and texts, the rules of each key, and sessions.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `header.rs` | the header of a PDU: its fields, by name |
//! | `framer.rs` | from bytes to PDUs: lengths, additional headers, digests |
//! | `text.rs` | lists of keys and values |
//! | `chap.rs` | CHAP: secrets, challenges, responses |
//! | `login.rs` | a login: names, authentication, keys |
//! | `negotiation.rs` | the operational keys: what each may be, and what two sides agree on |
//! | `target.rs` | a target: its units, its sessions, who may log in |
//! | `error.rs` | errors of names and secrets |
//! | `session/` | a session for its whole life |

mod chap;
mod error;
mod framer;
mod header;
mod login;
mod negotiation;
mod session;
mod target;
mod text;

pub use chap::{CHALLENGE_LEN, ChapHash, Secret, encode_binary, parse_binary};
pub use error::CredentialError;
pub use framer::{Frame, FrameError, FrameLimits, Framer, Pdu, encode_pdu};
pub use header::{HEADER_LEN, Header, NO_TAG, opcode};
pub use login::{Credentials, Login, LoginFailure, LoginPolicy, LoginReply, Proofs};
pub use negotiation::{Negotiation, Offer, Refused};
pub use session::{Random, Server, Session, SessionConfig};
pub use target::{Access, Initiator, Target, TargetEvent, check_name};
pub use text::{TextError, encode_text, parse_text};
