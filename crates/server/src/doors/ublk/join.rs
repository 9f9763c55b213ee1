//! Disks with more zones than Linux accepts in one ublk device: the device mapper joins several devices (`linear`).
//! Uses `dmsetup` to make and remove the joined device.

use crate::error::ServeError;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use zoneplug_control::Failure;

/// The devices of one disk, in the order of its zones, each with its sectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parts(pub(super) Vec<(PathBuf, u64)>);

impl Parts {
    /// The name of the joined device: `zoneplug-ublkb0`.
    pub(super) fn name(&self) -> String {
        let first = self.0.first().and_then(|(path, _)| path.file_name());
        format!("zoneplug-{}", first.and_then(|n| n.to_str()).unwrap_or_default())
    }

    /// The first and the last device, for a message.
    pub(super) fn names(&self) -> String {
        let name = |p: Option<&(PathBuf, u64)>| p.map(|(p, _)| p.display().to_string());
        let [first, last] = [self.0.first(), self.0.last()].map(|p| name(p).unwrap_or_default());
        format!("{first} to {last}")
    }

    pub(super) fn path(&self) -> PathBuf {
        Path::new("/dev/mapper").join(self.name())
    }

    /// The table of the device mapper, with a line for each device: `0 33554432 linear /dev/ublkb0 0`.
    pub(super) fn table(&self) -> String {
        let (mut at, mut table) = (0, String::new());
        for (path, sectors) in &self.0 {
            table += &format!("{at} {sectors} linear {} 0\n", path.display());
            at += sectors;
        }
        table
    }

    /// The shell command that joins the devices.
    pub(super) fn command(&self) -> String {
        format!("dmsetup create {} <<'END'\n{}END", self.name(), self.table())
    }

    /// Joins the devices. If the joined device exists, the last server made it from these devices, and it stays in
    /// use.
    pub(super) fn join(&self) -> Result<Joined, Failure> {
        let name = self.name();
        let is_new = dmsetup(&["info", &name], "").is_err();
        if is_new {
            dmsetup(&["create", &name], &self.table())?;
        }
        // Without udev, dmsetup makes the device node, which needs a capability that a server gives up. The kernel
        // has made its own node for the device.
        if !self.path().exists() {
            let columns = ["info", "-c", "--noheadings", "-o", "blkdevname", &name];
            let node = Path::new("..").join(dmsetup(&columns, "")?.trim());
            link(&self.path(), &node)?;
        }
        // The child removes the device when it reads a word. If the server is killed, the child reads none and removes
        // nothing.
        let script = "trap '' TERM INT HUP; read -r _ && exec dmsetup remove --deferred \"$0\"";
        let mut remover = Command::new("sh");
        let remover = remover.args(["-c", script, &name]).stdin(Stdio::piped());
        let remover = remover.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        match remover {
            Ok(remover) => Ok(Joined { path: self.path(), is_new, remover }),
            Err(e) => Err(Failure::io(format!("sh: {e}")).hint("without --join")),
        }
    }
}

/// Joined devices, and the child process that removes the joined device. The child is started in advance, because a
/// server may start no process once it serves.
pub(super) struct Joined {
    pub(super) path: PathBuf,
    /// Whether this server has made the joined device.
    pub(super) is_new: bool,
    remover: Child,
}

impl Joined {
    /// Removes the joined device, now or when its last user closes it.
    pub(super) fn part(mut self) -> Result<(), Failure> {
        if let Some(mut stdin) = self.remover.stdin.take() {
            // If the child is gone, its status shows that.
            let _ = stdin.write_all(b"\n");
        }
        match self.remover.wait() {
            Ok(status) if status.success() => {
                remove_dangling(&self.path);
                Ok(())
            }
            _ => {
                let path = self.path.display().to_string();
                Err(ServeError::NotRemoved { path }.into())
            }
        }
    }
}

/// Makes the link to a joined device. Replaces a link without a target.
fn link(path: &Path, node: &Path) -> Result<(), Failure> {
    remove_dangling(path);
    std::os::unix::fs::symlink(node, path).map_err(|e| {
        let what = format!("{} cannot be made: {e}", path.display());
        Failure::io(what).hint("without --join, and the table that is printed then")
    })
}

/// Removes a link whose device is gone. udev may do it first. A device that is still open is removed when it is
/// closed; the next server then removes its link.
fn remove_dangling(path: &Path) {
    if path.is_symlink() && !path.exists() {
        let _ = std::fs::remove_file(path);
    }
}

/// Runs dmsetup with `input` on its standard input. Returns its output.
fn dmsetup(args: &[&str], input: &str) -> Result<String, Failure> {
    let failed = |because: &str| {
        let (command, because) = (args.join(" "), because.to_owned());
        Failure::from(ServeError::DeviceMapper { command, because })
    };
    let piped = |c: &mut Command| {
        c.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    };
    let mut child = piped(&mut Command::new("dmsetup")).map_err(|e| failed(&e.to_string()))?;
    if let Some(mut stdin) = child.stdin.take() {
        // If dmsetup does not read, its status shows why.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(|e| failed(&e.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(failed(said.lines().next().unwrap_or("it failed, and does not say why")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_parts_end_to_end() {
        let parts = [("/dev/ublkb3", 800), ("/dev/ublkb4", 200)];
        let parts = Parts(parts.map(|(p, n)| (PathBuf::from(p), n)).to_vec());
        assert_eq!(parts.path(), Path::new("/dev/mapper/zoneplug-ublkb3"));
        let table = "0 800 linear /dev/ublkb3 0\n800 200 linear /dev/ublkb4 0\n";
        assert_eq!(parts.table(), table);
        assert_eq!(parts.command(), format!("dmsetup create zoneplug-ublkb3 <<'END'\n{table}END"));
    }

    /// The case of a system without udev.
    #[test]
    fn a_joined_device_leaves_no_link_that_leads_nowhere() {
        let dir = std::env::temp_dir().join(format!("zoneplug-join-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (node, path) = (dir.join("dm-0"), dir.join("zoneplug-ublkb0"));
        // A killed server has left a link without a target.
        link(&path, &node).unwrap();
        std::fs::write(&node, b"").unwrap();
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(dir.join("dm-9"), &path).unwrap();
        link(&path, &node).unwrap();
        assert!(path.exists());
        let joined = |script: &str| {
            let mut remover = Command::new("sh");
            let remover = remover.args(["-c", script]).arg(&node).stdin(Stdio::piped());
            Joined { path: path.clone(), is_new: true, remover: remover.spawn().unwrap() }
        };
        // The device stays while it is open, and so does the link.
        joined("read -r _").part().unwrap();
        assert!(path.exists());
        joined("read -r _ && rm \"$0\"").part().unwrap();
        assert!(!path.is_symlink(), "it leads nowhere");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
