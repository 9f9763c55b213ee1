//! Options of a server, and who may log in.

use super::KnownClient;
use super::error::IscsiError;
use crate::network::listeners::reachable;
use crate::network::secret_file::{SecretFileError, read_secret};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use zoneplug_core::Error;
use zoneplug_scsi::iscsi::{Access, Secret, check_name};

/// The most connections of a server, unless its options set another number.
const MAX_CONNECTIONS: usize = 1024;

/// Reads the secret in a file, for CHAP. A file that every user can read is refused. No error has the secret.
///
/// # Errors
///
/// The file cannot be read, every user of the machine can read it, or it holds no secret of 12 bytes or more.
pub fn read_chap_secret(path: &Path) -> Result<Secret, Error> {
    let name = path.display();
    let form = "a file with the secret alone: 12 to 16 random characters";
    let text = read_secret(path, "secret", form).map_err(|e| match e {
        SecretFileError::Readable => IscsiError::SecretReadable { path: name.to_string() }.into(),
        SecretFileError::Unread(e) => e,
    })?;
    Secret::parse(&text).map_err(|e| {
        let what = format!("{name}: {}", e.what());
        e.worded(what)
    })
}

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
    /// Shows only the conventional zones at the beginning of each disk, as a plain disk (device type 0).
    pub conventional_only: bool,
    /// Initiators that may log in and have to prove themselves (CHAP), by their names, with their secrets.
    pub secrets: Vec<(String, Secret)>,
    /// The secret by which the target proves itself to initiators that ask for it.
    pub own_secret: Option<Secret>,
    /// Threads that serve connections.
    pub threads: usize,
    /// Most connections at a time; further ones are closed at once.
    pub max_connections: usize,
    /// How long an initiator may be silent before it is asked for a sign of life. Its connection ends if none comes in
    /// the same time again. The server looks about each second.
    pub silence: Duration,
    /// Initiators that the last server knew: [`Iscsi::known_initiators`](super::Iscsi::known_initiators).
    pub known_initiators: Vec<KnownClient>,
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
            conventional_only: false,
            secrets: Vec::new(),
            own_secret: None,
            threads: cpus.min(4),
            max_connections: MAX_CONNECTIONS,
            silence: Duration::from_secs(30),
            known_initiators: Vec::new(),
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
        let mut named = BTreeSet::new();
        if let Some((name, _)) = self.secrets.iter().find(|(name, _)| !named.insert(name)) {
            return Err(IscsiError::TwoSecrets { initiator: name.clone() }.into());
        }
        if self.any_initiator && (self.initiators.is_some() || !self.secrets.is_empty()) {
            return Err(IscsiError::ListedAndAny.into());
        }
        let is_shared = |s: &Secret| self.own_secret.as_ref().is_some_and(|own| own.is_same(s));
        if let Some((name, _)) = self.secrets.iter().find(|(_, s)| is_shared(s)) {
            return Err(IscsiError::SharedSecret { initiator: name.clone() }.into());
        }
        if self.own_secret.is_some() && self.secrets.is_empty() {
            return Err(IscsiError::TargetSecretAlone.into());
        }
        let open = self.initiators.is_none() && self.secrets.is_empty() && !self.any_initiator;
        match reachable(self.addresses()).filter(|_| open) {
            None => Ok(()),
            Some(address) => Err(IscsiError::Open { address }.into()),
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
