//! The server's data about a served disk.

use std::net::SocketAddr;
use std::sync::Weak;
use zoneplug_control::Failure;
use zoneplug_control::client::{AttributeShown, HostShown, IoShown, PathShown, StateShown};
use zoneplug_core::Device;
use zoneplug_host::{DiskMark, HeldDisks, HostedDisk, ServedCounters, Specification};

/// A served disk.
pub struct Served {
    /// The name of its door.
    pub door: &'static str,
    /// The name of the disk: `ublkb0`; `tcp4420n1` for namespace 1 at port 4420.
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
    /// Its network access, if it is served over the network.
    pub network: Option<Network>,
    /// The part that is passed on to the next server.
    pub passed: PassedDisk,
}

impl Served {
    /// A disk with this name and default properties: new, not over the network, without counters.
    pub fn new(
        door: &'static str,
        name: impl Into<String>,
        spec: &Specification,
        disk: &HostedDisk,
        passed: &PassedDisk,
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

/// An open disk, for doors.
#[derive(Clone)]
pub struct OpenDisk {
    /// The disk.
    pub disk: HostedDisk,
    /// Tags of each queue, if the specification gives them.
    pub tags: Option<u16>,
    /// The part that is passed on to the next server.
    pub passed: PassedDisk,
    /// The device below it, to see whether it is closed.
    pub device: Weak<dyn Device>,
}

/// The origin of a disk's open files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Origin {
    /// The server has opened them.
    #[default]
    Own,
    /// Another server has handed them over.
    HandedOver,
    /// The server has taken them back after a failed hand-over.
    TakenBack,
}

/// The part of an open disk that is passed on to the next server.
#[derive(Debug, Clone, Default)]
pub struct PassedDisk {
    /// Identifies the disk, even if its path names another one later.
    pub mark: DiskMark,
    /// Its open files.
    pub held: HeldDisks,
    /// The data path of each file and drive.
    pub io: Vec<IoShown>,
    /// The origin of the open files.
    pub origin: Origin,
}

/// Attributes that a door adds to those of a disk.
pub trait DoorAttributes: Send + Sync {
    /// Whether clients see the disk.
    fn is_enabled(&self) -> bool {
        true
    }

    /// The addresses with their ANA states; empty if there is only one.
    fn paths(&self) -> Vec<PathShown> {
        Vec::new()
    }

    /// All of the door's attributes.
    fn shown(&self) -> Vec<AttributeShown> {
        Vec::new()
    }

    /// Sets an attribute and returns the previous value. `None`: the attribute is not one of the door's.
    fn set(&self, _name: &str, _value: &str) -> Option<Result<String, Failure>> {
        None
    }
}

/// For a door without attributes.
impl DoorAttributes for () {}

/// The network access of a disk.
pub struct Network {
    /// The address for clients.
    pub address: String,
    /// The name of the subsystem.
    pub nqn: String,
    /// The UUID from which those of its namespaces are made, if clients know any.
    pub uuid: Option<[u8; 16]>,
    /// Lists the connected hosts.
    pub hosts: Box<dyn Fn() -> Vec<HostShown> + Send + Sync>,
    /// The number of failed authentications of hosts.
    pub failed_authentications: Box<dyn Fn() -> u64 + Send + Sync>,
    /// The attributes that the door adds to those of the disk.
    pub attributes: Box<dyn DoorAttributes>,
}

impl Network {
    /// Network access at an address, without any other data.
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

/// Adds the clients' knowledge of a door to the record for the next server.
pub type AddClients = Box<dyn Fn(&mut StateShown) + Send + Sync>;
