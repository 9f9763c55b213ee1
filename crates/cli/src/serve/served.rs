//! What a server knows of a disk that it serves.

use crate::failure::Failure;
use crate::server_client::{AttributeShown, HostShown, IoShown, PathShown, StateShown};
use std::net::SocketAddr;
use std::sync::Weak;
use zoneplug_core::Device;
use zoneplug_host::{DiskMark, HeldDisks, HostedDisk, ServedCounters, is_volatile};

/// A disk that is served.
pub(crate) struct Served {
    /// The name of its door.
    pub(crate) door: &'static str,
    /// `ublkb0`; `tcp4420n1` for namespace 1 at port 4420.
    pub(crate) name: String,
    pub(crate) spec: String,
    pub(crate) disk: HostedDisk,
    pub(crate) recovered: bool,
    /// Whether another server can take it over.
    pub(crate) outlives: bool,
    /// What the door has counted.
    pub(crate) counters: Box<dyn Fn() -> ServedCounters + Send + Sync>,
    /// How it is reached, if it is served over the network.
    pub(crate) network: Option<Network>,
    pub(crate) passed: Passed,
}

impl Served {
    /// A disk as its door shows it, under this name: of no server before, not over the network, and without counters.
    pub(crate) fn new(
        door: &'static str,
        name: impl Into<String>,
        spec: &str,
        (disk, passed): (&HostedDisk, &Passed),
    ) -> Served {
        Served {
            door,
            name: name.into(),
            spec: spec.to_owned(),
            disk: disk.clone(),
            recovered: false,
            outlives: !is_volatile(spec),
            counters: Box::new(ServedCounters::default),
            network: None,
            passed: passed.clone(),
        }
    }
}

/// An open disk, as doors find it.
#[derive(Clone)]
pub(crate) struct OpenDisk {
    pub(crate) disk: HostedDisk,
    pub(crate) tags: Option<u16>,
    pub(crate) passed: Passed,
    /// The device below it, to see whether it is closed.
    pub(crate) device: Weak<dyn Device>,
}

/// From where a server has the open files of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Origin {
    /// The server has opened them.
    #[default]
    Own,
    /// The server before it has handed them over.
    HandedOver,
    /// From itself: a hand-over came to nothing.
    TakenBack,
}

/// The part of a disk that a server passes to the next one, as it was opened.
#[derive(Debug, Clone, Default)]
pub(crate) struct Passed {
    pub(crate) mark: DiskMark,
    pub(crate) held: HeldDisks,
    /// How its data moves.
    pub(crate) io: Vec<IoShown>,
    pub(crate) origin: Origin,
}

/// Attributes that a door adds to those of a disk.
pub(crate) trait DoorAttributes: Send + Sync {
    /// Whether clients see the disk.
    fn is_enabled(&self) -> bool {
        true
    }

    /// The addresses and their states; none if there is one only.
    fn paths(&self) -> Vec<PathShown> {
        Vec::new()
    }

    /// All.
    fn shown(&self) -> Vec<AttributeShown> {
        Vec::new()
    }

    /// Sets one and returns what it was. `None`: no attribute of the door.
    fn set(&self, _name: &str, _value: &str) -> Option<Result<String, Failure>> {
        None
    }
}

/// A door that adds none.
impl DoorAttributes for () {}

/// How a disk is reached over the network.
pub(crate) struct Network {
    pub(crate) address: String,
    /// The name of what clients connect to.
    pub(crate) nqn: String,
    /// The identifier from which those that clients know are made, if they know any.
    pub(crate) uuid: Option<[u8; 16]>,
    pub(crate) hosts: Box<dyn Fn() -> Vec<HostShown> + Send + Sync>,
    pub(crate) failed_authentications: Box<dyn Fn() -> u64 + Send + Sync>,
    pub(crate) attributes: Box<dyn DoorAttributes>,
}

impl Network {
    /// Clients reach the disk at an address, which is all that is known of them.
    pub(crate) fn at(address: SocketAddr) -> Network {
        Network {
            address: address.to_string(),
            nqn: String::new(),
            uuid: None,
            hosts: Box::new(Vec::new),
            failed_authentications: Box::new(|| 0),
            attributes: Box::new(()),
        }
    }
}

/// Adds what a door's clients know to what the next server is told.
pub(crate) type OfClients = Box<dyn Fn(&mut StateShown) + Send + Sync>;
