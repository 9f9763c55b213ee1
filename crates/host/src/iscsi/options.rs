//! Options of a server, and who may log in.

use crate::network::listeners::reachable;
use std::net::SocketAddr;
use zoneplug_core::{Error, Hint};
use zoneplug_scsi::iscsi::{Access, Secret, check_name};

/// The most connections of a server, unless its options set another number.
const MAX_CONNECTIONS: usize = 1024;

/// Options of a server.
#[derive(Debug, Clone)]
pub struct IscsiOptions {
    /// The address to listen at. Port 0: any free one, see [`Iscsi::address`](super::Iscsi::address).
    pub listen: SocketAddr,
    /// Further addresses to listen at: more ways to the same disks.
    pub also_listen: Vec<SocketAddr>,
    /// The name of the target, as `iqn.2026-11.dev.zoneplug:disk`.
    pub name: String,
    /// The initiators that may log in without a secret, by their names. `None`: those that have a secret, or any if
    /// there are no secrets. Any initiator is refused for an address that other machines reach, unless
    /// [`IscsiOptions::any_initiator`] is set: there is no other protection.
    pub initiators: Option<Vec<String>>,
    /// Whether any initiator may log in, from anywhere.
    pub any_initiator: bool,
    /// Initiators that may log in and have to prove themselves (CHAP), by their names, with their secrets.
    pub secrets: Vec<(String, Secret)>,
    /// The secret by which the target proves itself to initiators that ask for it.
    pub own_secret: Option<Secret>,
    /// Threads that serve connections.
    pub threads: usize,
    /// Most connections at a time; further ones are closed at once.
    pub max_connections: usize,
    /// Whether to measure how long operations take: [`ServedOperation::latency`](crate::ServedOperation).
    pub latencies: bool,
}

impl IscsiOptions {
    /// A server at `listen` for the target `name`, with one thread for each processor, but at most four.
    pub fn new(listen: SocketAddr, name: &str) -> IscsiOptions {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        IscsiOptions {
            listen,
            also_listen: Vec::new(),
            name: name.to_owned(),
            initiators: None,
            any_initiator: false,
            secrets: Vec::new(),
            own_secret: None,
            threads: cpus.min(4),
            max_connections: MAX_CONNECTIONS,
            latencies: false,
        }
    }

    /// All addresses to listen at.
    pub(super) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        [self.listen].into_iter().chain(self.also_listen.iter().copied())
    }

    /// Checks the names, and refuses an address that other machines can reach if no option says who may log in.
    pub fn check(&self) -> Result<(), Error> {
        check_name(&self.name)?;
        let with_secrets = self.secrets.iter().map(|(name, _)| name);
        self.initiators.iter().flatten().chain(with_secrets).try_for_each(|n| check_name(n))?;
        if self.any_initiator && (self.initiators.is_some() || !self.secrets.is_empty()) {
            return Err(Error::invalid("some initiators, and any initiator")
                .hint("either a list of initiators, or any"));
        }
        if let Some((name, _)) = self
            .secrets
            .iter()
            .find(|(_, s)| self.own_secret.as_ref().is_some_and(|o| o.is_same(s)))
        {
            return Err(Error::invalid(format!("the secret of {name} is that of the target too"))
                .hint("a secret of its own: an initiator could pretend to be the target"));
        }
        if self.own_secret.is_some() && self.secrets.is_empty() {
            return Err(Error::invalid("a secret of the target, and none of an initiator")
                .hint("a secret of an initiator: the target proves itself to those that do"));
        }
        let open = self.initiators.is_none() && self.secrets.is_empty() && !self.any_initiator;
        match reachable(self.addresses()).filter(|_| open) {
            None => Ok(()),
            Some(address) => Err(Error::invalid(format!(
                "{address} is reached from other machines, and any initiator could log in"
            ))
            .hint(
                Hint::from("")
                    .option_with("allow-initiator", "IQN")
                    .text(" (on the initiator: cat /etc/iscsi/initiatorname.iscsi); ")
                    .option("allow-any-initiator"),
            )),
        }
    }

    /// Returns who may log in.
    pub(super) fn access(&self) -> Access {
        Access {
            initiators: self.initiators.clone(),
            secrets: self.secrets.clone(),
            own_secret: self.own_secret.clone(),
        }
    }
}
