//! A disk that is served, as the server knows it.

use crate::client::{AttributeShown, HostShown, IoShown, PathShown, StateShown};
use crate::failure::Failure;
use std::net::SocketAddr;
use std::sync::Weak;
use zoneplug_core::Device;
use zoneplug_host::{DiskMark, HeldDisks, HostedDisk, ServedCounters, Specification};

/// A disk that is served.
pub struct Served {
    /// The name of its door.
    pub door: &'static str,
    /// `ublkb0`; `tcp4420n1` for namespace 1 at port 4420.
    pub name: String,
    /// Its specification.
    pub spec: String,
    /// The disk.
    pub disk: HostedDisk,
    /// Whether it was taken over from another server.
    pub recovered: bool,
    /// Whether another server can take it over.
    pub outlives: bool,
    /// Reads the counters of the door.
    pub counters: Box<dyn Fn() -> ServedCounters + Send + Sync>,
    /// How it is reached, if it is served over the network.
    pub network: Option<Network>,
    /// The part that the next server gets.
    pub passed: Passed,
}

impl Served {
    /// A disk as its door shows it, under this name: of no server before, not over the network, and without counters.
    pub fn new(
        door: &'static str,
        name: impl Into<String>,
        spec: &Specification,
        (disk, passed): (&HostedDisk, &Passed),
    ) -> Served {
        Served {
            door,
            name: name.into(),
            spec: spec.to_string(),
            disk: disk.clone(),
            recovered: false,
            outlives: !spec.is_volatile(),
            counters: Box::new(ServedCounters::default),
            network: None,
            passed: passed.clone(),
        }
    }
}

/// An open disk, as doors find it.
#[derive(Clone)]
pub struct OpenDisk {
    /// The disk.
    pub disk: HostedDisk,
    /// Tags of a queue, if the specification says how many.
    pub tags: Option<u16>,
    /// The part that the next server gets.
    pub passed: Passed,
    /// The device below it, to see whether it is closed.
    pub device: Weak<dyn Device>,
}

/// From where a server has the open files of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Origin {
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
pub struct Passed {
    /// Identifies the disk, whatever its path names later.
    pub mark: DiskMark,
    /// Its open files.
    pub held: HeldDisks,
    /// How its data moves.
    pub io: Vec<IoShown>,
    /// From where these are.
    pub origin: Origin,
}

/// Attributes that a door adds to those of a disk.
pub trait DoorAttributes: Send + Sync {
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
pub struct Network {
    /// Where clients reach it.
    pub address: String,
    /// The name of what clients connect to.
    pub nqn: String,
    /// The identifier from which those that clients know are made, if they know any.
    pub uuid: Option<[u8; 16]>,
    /// The hosts that are connected.
    pub hosts: Box<dyn Fn() -> Vec<HostShown> + Send + Sync>,
    /// How often a host has failed to authenticate.
    pub failed_authentications: Box<dyn Fn() -> u64 + Send + Sync>,
    /// The attributes that the door adds to those of the disk.
    pub attributes: Box<dyn DoorAttributes>,
}

impl Network {
    /// Clients reach the disk at an address, which is all that is known of them.
    pub fn at(address: SocketAddr) -> Network {
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
pub type OfClients = Box<dyn Fn(&mut StateShown) + Send + Sync>;
