//! Decides which hosts may connect, and reads the keys of those that have to authenticate.

use super::AccessError;
use super::NvmeTcpOptions;
use crate::network::listeners::reachable;
use crate::os_error::{Attempt, os_error};
use crate::paths::open_regular;
use std::collections::BTreeSet;
use std::io::{ErrorKind as IoErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use zeroize::Zeroizing;
use zoneplug_core::Error;
use zoneplug_nvme::dhchap::Key;
use zoneplug_nvme::target::{Hosts, Keys, Nqn};

/// A key is one line of less than 120 bytes.
const MAX_FILE: u64 = 4096;
/// The bits of other users in the mode of a file.
const OTHERS: u32 = 0o007;

/// Reads the key in a file, as `nvme gen-dhchap-key` writes it. A file that every user can read is refused.
pub fn read_key(path: &Path) -> Result<Key, Error> {
    if path.as_os_str().as_bytes().starts_with(b"DHHC-1:") {
        // The key is secret: no message has it.
        return Err(AccessError::KeyInPlaceOfPath.into());
    }
    let name = path.display();
    let failed = |e: std::io::Error| match e.kind() {
        // A pipe or a device has no key, nor has a file whose bytes are not text.
        IoErrorKind::InvalidInput | IoErrorKind::InvalidData => {
            Error::invalid(format!("{name}: {e}"))
                .hint("a file with the key alone, as nvme gen-dhchap-key --hmac 1 prints it")
                .source(e)
        }
        _ => os_error(Attempt::ReadFile, format!("the key {name}"), e),
    };
    let file = open_regular(path).map_err(failed)?;
    // The mode is that of the open file: the path may lead to another file by now.
    if file.metadata().map_err(failed)?.mode() & OTHERS != 0 {
        return Err(AccessError::KeyReadable { path: name.to_string() }.into());
    }
    let mut text = Zeroizing::new(String::with_capacity(MAX_FILE as usize));
    file.take(MAX_FILE).read_to_string(&mut text).map_err(failed)?;
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
