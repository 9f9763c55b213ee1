//! Access to the socket of a server: its owner, group and mode. The kernel checks the file when a client connects;
//! the server checks again, in case the file was changed.

use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

/// The owner, group and mode of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// The owner of the file. `None`: the default of the process.
    pub owner: Option<u32>,
    /// The group of the file. `None`: the default of the process.
    pub group: Option<u32>,
    /// The mode of the file, as chmod(1) takes it.
    pub mode: u32,
}

impl Default for Access {
    /// Admits only the user that runs the server, and root.
    fn default() -> Self {
        Access { owner: None, group: None, mode: 0o600 }
    }
}

/// A connected process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peer {
    pub(crate) uid: u32,
    /// The groups that it is a member of, including its own.
    pub groups: Vec<u32>,
}

impl Access {
    /// Whether the file must be given to another user or group, which needs a capability.
    pub fn gives_away(self) -> bool {
        let me = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        self.owner.is_some_and(|o| o != me.0) || self.group.is_some_and(|g| g != me.1)
    }

    /// Sets the owner, group and mode of a new socket, which other users cannot reach yet.
    pub(crate) fn set(self, path: &Path) -> io::Result<()> {
        // Only the owner of a file may change its mode.
        std::fs::set_permissions(path, PermissionsExt::from_mode(self.mode))?;
        if self.gives_away() {
            chown(path, self.owner, self.group).map_err(|e| {
                let why = "to another owner or group: CAP_CHOWN, which a unit may deny, or Group= in the unit";
                io::Error::new(e.kind(), format!("{e} (it is given {why})"))
            })?;
        }
        Ok(())
    }

    /// Whether a client is the user of this process or root, for requests that others may not send.
    pub(crate) fn is_owner(peer: &Peer) -> bool {
        peer.uid == 0 || peer.uid == rustix::process::geteuid().as_raw()
    }

    /// Whether a client may send requests.
    pub(crate) fn admits(self, peer: &Peer) -> bool {
        let group = self.group.unwrap_or_else(|| rustix::process::getegid().as_raw());
        Access::is_owner(peer)
            || self.mode & 0o002 != 0
            || self.mode & 0o020 != 0 && peer.groups.contains(&group)
            || self.mode & 0o200 != 0 && self.owner == Some(peer.uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_group_and_others_may_ask_as_the_mode_says() {
        let me = rustix::process::geteuid().as_raw();
        let peer = |uid: u32, groups: &[u32]| Peer { uid, groups: groups.to_vec() };
        let of = |mode| Access { owner: Some(7001), group: Some(7002), mode };
        for access in [of(0), of(0o600), of(0o660), of(0o666), Access::default()] {
            assert!(access.admits(&peer(0, &[])) && access.admits(&peer(me, &[])), "{access:?}");
        }
        let (owner, member, other) = (peer(7001, &[]), peer(7009, &[5, 7002]), peer(7009, &[5]));
        for (mode, admitted) in [
            (0, [false; 3]),
            (0o600, [true, false, false]),
            (0o440, [false; 3]),
            (0o060, [false, true, false]),
            (0o660, [true, true, false]),
            (0o662, [true; 3]),
        ] {
            let got = [&owner, &member, &other].map(|p| of(mode).admits(p));
            assert_eq!(got, admitted, "{mode:o}");
        }
        // No group was named, and mode 0600 does not admit the group of the process.
        let own = rustix::process::getegid().as_raw();
        assert!(!Access::default().admits(&peer(7009, &[own])));
    }
}
