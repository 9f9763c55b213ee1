//! Who may use the socket of a server: its owner, its group, its rights. The kernel asks the file when a client
//! connects; the server asks again, in case the file was changed.

use crate::failure::{Failure, Kind};
use nix::unistd::{Group, User};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use zoneplug_core::plain;

/// Flags for the socket.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct AccessArgs {
    /// The user that owns the socket, by name or number; without it the one that runs the server
    #[arg(long, value_name = "USER")]
    socket_owner: Option<String>,

    /// The group whose members may look at the disks and set attributes through the socket, by name or number
    #[arg(long, value_name = "GROUP")]
    socket_group: Option<String>,

    /// The rights of the socket, as chmod(1) takes them: 0600, or 0660 with a group
    #[arg(long, value_name = "MODE", value_parser = mode)]
    socket_mode: Option<u32>,
}

fn mode(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    let octal = digits.bytes().all(|b| b.is_ascii_digit());
    let mode = u32::from_str_radix(digits, 8).ok().filter(|m| octal && *m <= 0o777);
    mode.ok_or_else(|| "rights are three octal digits, as in 0660".to_owned())
}

/// The rights of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    /// `None`: as the process makes files.
    pub(super) owner: Option<u32>,
    pub(super) group: Option<u32>,
    pub(super) mode: u32,
}

impl Default for Access {
    /// For the user that runs the server, and for root.
    fn default() -> Self {
        Access { owner: None, group: None, mode: 0o600 }
    }
}

/// A process that has connected.
#[derive(Debug, Clone, Default)]
pub(super) struct Peer {
    pub(super) uid: u32,
    /// Its group, and those that it is a member of.
    pub(super) groups: Vec<u32>,
}

/// The number of a user or group, which may be its name.
fn number<T>(
    what: &str,
    name: &str,
    find: impl Fn(&str) -> nix::Result<Option<T>>,
    id: impl Fn(T) -> u32,
) -> Result<u32, Failure> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    match find(name) {
        Ok(Some(found)) => Ok(id(found)),
        Ok(None) => {
            let failure = Failure::new(Kind::Device, format!("there is no {what} {}", plain(name)));
            Err(failure.hint(format!(
                "getent {} lists them",
                if what == "user" { "passwd" } else { what }
            )))
        }
        Err(e) => Err(Failure::io(format!("the {what} {}: {e}", plain(name))).hint("its number")),
    }
}

impl AccessArgs {
    /// Looks up the names. An error comes with the flag that it is of.
    pub(super) fn access(&self) -> Result<Access, (&'static str, Failure)> {
        let owner = |n: &String| number("user", n, User::from_name, |u| u.uid.as_raw());
        let group = |n: &String| number("group", n, Group::from_name, |g| g.gid.as_raw());
        let usual = if self.socket_group.is_some() { 0o660 } else { 0o600 };
        let owner = self.socket_owner.as_ref().map(owner).transpose();
        let group = self.socket_group.as_ref().map(group).transpose();
        Ok(Access {
            owner: owner.map_err(|f| ("socket-owner", f))?,
            group: group.map_err(|f| ("socket-group", f))?,
            mode: self.socket_mode.unwrap_or(usual),
        })
    }
}

impl Access {
    /// Whether the file has to be given to another user or group, which is a right of its own.
    pub(super) fn gives_away(self) -> bool {
        let me = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        self.owner.is_some_and(|o| o != me.0) || self.group.is_some_and(|g| g != me.1)
    }

    /// Sets the rights of a new socket, to which no other user has a way yet.
    pub(super) fn set(self, path: &Path) -> io::Result<()> {
        // Only its owner may change its mode.
        std::fs::set_permissions(path, PermissionsExt::from_mode(self.mode))?;
        if self.gives_away() {
            chown(path, self.owner, self.group).map_err(|e| {
                let why = "to another owner or group: CAP_CHOWN, which a unit may deny, or Group= in the unit";
                io::Error::new(e.kind(), format!("{e} (it is given {why})"))
            })?;
        }
        Ok(())
    }

    /// Whether a client may ask what only the user of this process and root may ask.
    pub(super) fn is_owner(peer: &Peer) -> bool {
        peer.uid == 0 || peer.uid == rustix::process::geteuid().as_raw()
    }

    /// Whether a client may ask.
    pub(super) fn admits(self, peer: &Peer) -> bool {
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
        // Nobody was named: the group of the process does not count at 0600.
        let own = rustix::process::getegid().as_raw();
        assert!(!Access::default().admits(&peer(7009, &[own])));
    }

    #[test]
    fn names_numbers_and_modes() {
        let args = |owner: &str, group: &str| AccessArgs {
            socket_owner: Some(owner.to_owned()),
            socket_group: Some(group.to_owned()),
            socket_mode: None,
        };
        let access = args("root", "12345").access().unwrap();
        assert_eq!(access, Access { owner: Some(0), group: Some(12345), mode: 0o660 });
        let (key, e) = args("root", "no such group").access().unwrap_err();
        assert_eq!(key, "socket-group");
        let e = e.to_string();
        assert!(e.contains("no group no such group") && e.contains("getent group"), "{e}");
        assert_eq!([mode("0660"), mode("600"), mode("0o640")], [Ok(0o660), Ok(0o600), Ok(0o640)]);
        for bad in ["", "888", "1777", "+7", "-1", "rw"] {
            assert!(mode(bad).is_err(), "{bad}");
        }
    }
}
