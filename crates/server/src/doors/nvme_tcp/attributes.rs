//! Attributes of a disk that is served over the network: whether hosts see it (`enable`, as in Linux's nvmet), and
//! the ANA state of each address, if there are several (`ana_state@ADDRESS`). The ANA state of an address is one for all
//! disks: each disk shows it, and setting it at one disk sets it for all.

use crate::served::DoorAttributes;
use std::sync::Arc;
use zoneplug_control::Failure;
use zoneplug_control::client::{AttributeShown, PathShown};
use zoneplug_core::disk::AttributeError;
use zoneplug_core::{Error, plain};
use zoneplug_host::nvme_tcp::{AnaState, NvmeTcp};

const ENABLE: &str = "enable";
/// The beginning of the names of addresses' attributes.
const ANA_STATE: &str = "ana_state@";

/// Whether only disks that are served over the network have this attribute.
pub fn is_of_network(name: &str) -> bool {
    name == ENABLE || name.starts_with(ANA_STATE)
}

/// The attributes that the server adds to those of a disk.
pub(crate) struct NetworkAttributes {
    server: Arc<NvmeTcp>,
    /// The index of the disk among those of the server.
    disk: usize,
}

impl NetworkAttributes {
    pub(super) fn of(server: &Arc<NvmeTcp>, disk: usize) -> NetworkAttributes {
        NetworkAttributes { server: server.clone(), disk }
    }

    fn set_enabled(&self, value: &str) -> Result<String, Failure> {
        let was = flag(self.is_enabled());
        match value {
            "0" | "1" => self.server.set_enabled(self.disk, value == "1"),
            _ => {
                let hint = format!("{ENABLE} 1: hosts see the disk; {ENABLE} 0: they do not");
                return Err(Error::from(AttributeError::Value {
                    name: ENABLE,
                    value: plain(value).into_owned(),
                    allowed: "0 or 1".to_owned(),
                })
                .hint(hint)
                .into());
            }
        }
        Ok(was)
    }

    fn set_ana_state(&self, address: &str, value: &str) -> Result<String, Failure> {
        let shown = self.paths();
        let Some(n) = shown.iter().position(|path| path.address == address) else {
            let names = shown.iter().map(|path| format!("{ANA_STATE}{}", path.address));
            let hint = match names.collect::<Vec<_>>() {
                all if all.is_empty() => "--nvme-tcp with a second address".to_owned(),
                all => all.join(", "),
            };
            let what = format!("{} is not an address with an ANA state", plain(address));
            return Err(Failure::usage(what).hint(hint));
        };
        let Some(state) = AnaState::ALL.into_iter().find(|state| state.name() == value) else {
            let what = format!("{} is not an ANA state", plain(value));
            let hint = AnaState::ALL.map(AnaState::name).join(", ");
            let (name, value) = ("ana_state", plain(value).into_owned());
            let error = AttributeError::Value { name, value, allowed: hint.clone() };
            return Err(Error::from(error).worded(what).hint(hint).into());
        };
        self.server.set_ana_state(n, state);
        Ok(shown[n].ana_state.clone())
    }
}

impl DoorAttributes for NetworkAttributes {
    /// Whether hosts see the disk.
    fn is_enabled(&self) -> bool {
        self.server.is_enabled(self.disk)
    }

    /// The addresses with their ANA states; empty if there is only one.
    fn paths(&self) -> Vec<PathShown> {
        let all = self.server.addresses();
        let all = if all.len() > 1 { all } else { &[] };
        let shown = |(n, address): (usize, &std::net::SocketAddr)| PathShown {
            address: address.to_string(),
            ana_state: self.server.ana_state(n).name().to_owned(),
        };
        all.iter().enumerate().map(shown).collect()
    }

    /// All of these attributes.
    fn shown(&self) -> Vec<AttributeShown> {
        let enable = (ENABLE.to_owned(), flag(self.is_enabled()));
        let paths = self.paths().into_iter();
        let paths = paths.map(|path| (format!("{ANA_STATE}{}", path.address), path.ana_state));
        let all = [enable].into_iter().chain(paths);
        all.map(|(name, value)| AttributeShown { name, value, writable: true }).collect()
    }

    /// Sets an attribute and returns the previous value. `None`: the attribute is not one of these.
    fn set(&self, name: &str, value: &str) -> Option<Result<String, Failure>> {
        match name.strip_prefix(ANA_STATE) {
            Some(address) => Some(self.set_ana_state(address, value)),
            None => (name == ENABLE).then(|| self.set_enabled(value)),
        }
    }
}

fn flag(on: bool) -> String {
    u8::from(on).to_string()
}
