//! The ways to a disk that is served at several addresses: an attribute for each, `ana_state@ADDRESS`.

use crate::failure::{Failure, Kind};
use crate::plain::plain;
use crate::server_client::{AttributeShown, PathShown};
use std::sync::Arc;
use zoneplug_host::nvme_tcp::{AnaState, NvmeTcp};

/// What the names of these attributes begin with.
const NAME: &str = "ana_state@";

/// The addresses of a server.
pub(crate) struct Paths {
    server: Arc<NvmeTcp>,
}

impl Paths {
    pub(super) fn of(server: &Arc<NvmeTcp>) -> Paths {
        Paths { server: server.clone() }
    }

    /// The addresses and their states; none if there is one only.
    pub(super) fn shown(&self) -> Vec<PathShown> {
        let all = self.server.addresses();
        let all = if all.len() > 1 { all } else { &[] };
        let shown = |(n, address): (usize, &std::net::SocketAddr)| PathShown {
            address: address.to_string(),
            ana_state: self.server.ana_state(n).name().to_owned(),
        };
        all.iter().enumerate().map(shown).collect()
    }

    pub(super) fn attributes(&self) -> impl Iterator<Item = AttributeShown> {
        self.shown().into_iter().map(|path| AttributeShown {
            name: format!("{NAME}{}", path.address),
            value: path.ana_state,
            writable: true,
        })
    }

    /// Sets the state of an address and returns what it was. `None`: no attribute of this kind.
    pub(super) fn set(&self, name: &str, value: &str) -> Option<Result<String, Failure>> {
        let address = name.strip_prefix(NAME)?;
        let shown = self.shown();
        let Some(n) = shown.iter().position(|path| path.address == address) else {
            let names = shown.iter().map(|path| format!("{NAME}{}", path.address));
            let hint = match names.collect::<Vec<_>>() {
                all if all.is_empty() => "--nvme-tcp with a second address".to_owned(),
                all => all.join(", "),
            };
            let what = format!("{} is no address of several", plain(address));
            return Some(Err(Failure::new(Kind::Usage, what).hint(hint)));
        };
        let Some(state) = AnaState::ALL.into_iter().find(|state| state.name() == value) else {
            let what = format!("{} is no ANA state", plain(value));
            let hint = AnaState::ALL.map(AnaState::name).join(", ");
            return Some(Err(Failure::new(Kind::Usage, what).hint(hint)));
        };
        self.server.set_ana_state(n, state);
        Some(Ok(shown[n].ana_state.clone()))
    }
}
