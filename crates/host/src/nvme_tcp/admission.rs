//! Decides which hosts may connect, and reads the keys of those that have to authenticate.

use super::AccessError;
use super::NvmeTcpOptions;
use crate::network::listeners::reachable;
use crate::network::secret_file::{SecretFileError, read_secret};
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use zoneplug_core::Error;
use zoneplug_nvme::dhchap::Key;
use zoneplug_nvme::target::{Hosts, Keys, Nqn};

/// Reads the key in a file, as `nvme gen-dhchap-key` writes it. A file that every user can read is refused.
pub fn read_key(path: &Path) -> Result<Key, Error> {
    if path.as_os_str().as_bytes().starts_with(b"DHHC-1:") {
        // The key is secret: no message has it.
        return Err(AccessError::KeyInPlaceOfPath.into());
    }
    let name = path.display();
    let form = "a file with the key alone, as nvme gen-dhchap-key --hmac 1 prints it";
    let text = read_secret(path, "key", form).map_err(|e| match e {
        SecretFileError::Readable => AccessError::KeyReadable { path: name.to_string() }.into(),
        SecretFileError::Unread(e) => e,
    })?;
    Key::parse(&text).map_err(|e| {
        let error = Error::invalid(format!("{name}: {}", e.what()));
        e.what_to_try().into_iter().fold(error, Error::hint)
    })
}

impl NvmeTcpOptions {
    /// Checks the names, and refuses an address that other machines can reach if no option says which hosts may
    /// connect.
    pub fn check(&self) -> Result<(), Error> {
        Nqn::own(&self.nqn)?;
        admitted(self).map(drop)
    }
}

/// The hosts that may connect, and the keys.
pub(super) fn admitted(options: &NvmeTcpOptions) -> Result<(Hosts, Keys), Error> {
    let keys = keys(options)?;
    let has_keys = !keys.hosts.is_empty();
    let hosts = match &options.hosts {
        Some(_) if options.any_host => {
            return Err(AccessError::ListedAndAny.into());
        }
        // A host with a key could connect under another name, and would need none.
        None if options.any_host && has_keys => {
            return Err(AccessError::KeysAndAny.into());
        }
        Some(list) => Hosts::Listed(list.iter().map(|h| Nqn::new(h)).collect::<Result<_, _>>()?),
        None if has_keys => Hosts::Listed(Vec::new()),
        None if options.any_host => Hosts::Any,
        None => {
            let Some(address) = reachable(options.addresses()) else {
                return Ok((Hosts::Any, keys));
            };
            return Err(AccessError::Open { address }.into());
        }
    };
    Ok((hosts, keys))
}

fn keys(options: &NvmeTcpOptions) -> Result<Keys, Error> {
    let (mut hosts, mut named) = (Vec::new(), BTreeSet::new());
    for (nqn, key) in &options.dhchap_keys {
        let nqn = Nqn::new(nqn)?;
        if !named.insert(nqn.clone()) {
            return Err(AccessError::TwoKeys { host: nqn.to_string() }.into());
        }
        if options.dhchap_ctrl_key.as_ref().is_some_and(|own| own.is_secret_of(key)) {
            return Err(AccessError::SharedKey { host: nqn.to_string() }.into());
        }
        hosts.push((nqn, key.clone()));
    }
    if hosts.is_empty() && options.dhchap_ctrl_key.is_some() {
        return Err(AccessError::SubsystemKeyAlone.into());
    }
    let (controller, group) = (options.dhchap_ctrl_key.clone(), options.dhchap_dhgroup);
    Ok(Keys { hosts, controller, group })
}
