//! The name of an initiator.

use std::sync::Arc;

/// An initiator as a unit knows it: the initiator port and the port of
/// the target. The caller makes the number, the same after a new login of the same initiator port, because registrations
/// outlive sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nexus(pub u64);

/// The name of an initiator port as READ FULL STATUS returns it: a TransportID of its protocol.
pub type TransportId = Arc<[u8]>;
