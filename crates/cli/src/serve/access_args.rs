//! The flags of `zoneplug serve` for its socket.

use crate::failure::{Failure, Kind};
use nix::unistd::{Group, User};
use zoneplug_core::plain;
use zoneplug_server::Access;

/// Flags for the socket.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct AccessArgs {
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

/// Looks up the number of a user or group by name or number.
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
    /// Looks up the user and group. An error comes with the name of its flag.
    pub(crate) fn access(&self) -> Result<Access, (&'static str, Failure)> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
