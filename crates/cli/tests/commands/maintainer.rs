//! The scripts of the Debian package that run when it is removed, in a folder that stands for the machine.

use super::{Dir, text};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output};

const PRERM: &str = include_str!("../../../../debian/zoneplug.prerm");
const POSTRM: &str = include_str!("../../../../debian/zoneplug.postrm");

/// A machine with a server of a package that is on it, or was. The server has the device ublkb3.
struct Machine {
    dir: Dir,
}

impl Machine {
    fn new(name: &str, program: &str) -> Machine {
        let machine = Machine { dir: Dir::new(name) };
        machine.link("proc/77/exe", program);
        machine.link("proc/77/fd/4", "/dev/ublkc3");
        // Another program's device, and one that only reads from the served one's neighbour.
        machine.link("proc/78/exe", "/usr/bin/rublk");
        machine.link("proc/78/fd/4", "/dev/ublkc5");
        machine.link("proc/79/fd/1", "/dev/ublkb33");
        machine.stub("deb-systemd-invoke", r#"echo "$@" >"$STOPPED""#);
        std::fs::create_dir_all(machine.at("run/systemd/system")).unwrap();
        std::fs::create_dir_all(machine.at("run/zoneplug")).unwrap();
        machine
    }

    fn at(&self, path: &str) -> PathBuf {
        PathBuf::from(self.dir.path(path))
    }

    fn link(&self, path: &str, to: &str) {
        let path = self.at(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(to, path).unwrap();
    }

    /// The device ublkc3 with the stamp that a server of the package has left there.
    fn stamp(&self) {
        let device = self.at("sys/class/ublk-char/ublkc3");
        std::fs::create_dir_all(&device).unwrap();
        let touched = Command::new("touch").args(["-d", "@11016000000"]).arg(&device).status();
        assert!(touched.unwrap().success());
    }

    /// The server dies, or was stopped while its device was in use.
    fn end_server(&self) {
        std::fs::remove_dir_all(self.at("proc/77")).unwrap();
    }

    fn stub(&self, name: &str, body: &str) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.at(&format!("bin/{name}"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A file system on this device is mounted; none, if there is no name.
    fn mount(&self, device: &str) {
        let of = self.at("proc/1");
        std::fs::create_dir_all(&of).unwrap();
        let mut table = String::new();
        if !device.is_empty() {
            let dev = self.at(&format!("sys/class/block/{device}"));
            std::fs::create_dir_all(&dev).unwrap();
            std::fs::write(dev.join("dev"), "259:9\n").unwrap();
            table = format!("60 1 259:9 / /mnt rw - xfs /dev/{device} rw\n");
        }
        std::fs::write(of.join("mountinfo"), table).unwrap();
    }

    /// Runs a script with the folders of the machine in place of the real ones.
    fn run(&self, script: &str, action: &str, mounted: &str) -> Output {
        let mut script = script.to_owned();
        for folder in ["/proc/", "/sys/", "/run/", "/etc/"] {
            let own = format!("{}/", self.at(folder.trim_matches('/')).display());
            script = script.replace(folder, &own);
        }
        self.mount(mounted);
        let path = format!("{}:/usr/bin:/bin", self.at("bin").display());
        let sh = ["-c", &script, "script", action];
        let stopped = self.at("stopped");
        Command::new("sh").args(sh).env("PATH", path).env("STOPPED", stopped).output().unwrap()
    }

    /// The removal ends the servers of the unit.
    fn is_removed(&self, mounted: &str) {
        let out = self.run(PRERM, "remove", mounted);
        assert!(out.status.success(), "{}", text(&out.stderr));
        let stopped = std::fs::read_to_string(self.at("stopped")).unwrap();
        assert_eq!(stopped, "stop zoneplug@*.service\n");
    }

    /// The removal is refused, and no server ends.
    fn is_kept(&self, mounted: &str, why: &str) {
        let out = self.run(PRERM, "remove", mounted);
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{err}");
        let lines: Vec<&str> = err.lines().collect();
        let [what, try_this] = lines[..] else { panic!("{err}") };
        assert!(what.starts_with("zoneplug: /dev/ublkb3 ") && what.contains(why), "{err}");
        assert!(try_this.starts_with("zoneplug: try: "), "{err}");
        assert!(!self.at("stopped").exists());
    }
}

const INSTALLED: &str = "/usr/bin/zoneplug";
const REPLACED: &str = "/usr/bin/zoneplug (deleted)";

#[test]
fn a_package_is_removed_if_no_device_of_a_server_is_in_use() {
    for program in [INSTALLED, REPLACED] {
        Machine::new("removed", program).is_removed("");
        Machine::new("removed-other", program).is_removed("ublkb5");
    }
}

/// The server is not asked: it may have another socket, or may not answer.
#[test]
fn a_package_with_a_device_in_use_is_not_removed() {
    for program in [INSTALLED, REPLACED] {
        let machine = Machine::new("kept-mounted", program);
        machine.is_kept("ublkb3", "is mounted");
        let machine = Machine::new("kept-btrfs", program);
        machine.link("sys/fs/btrfs/0b5e/devices/ublkb3", "../ublkb3");
        machine.is_kept("", "is part of a btrfs that is mounted");
        let machine = Machine::new("kept-holder", program);
        machine.link("sys/block/ublkb3/holders/dm-0", "../dm-0");
        machine.is_kept("", "is used by another block device");
        for swap in ["/dev/ublkb3", "/dev/ublkb3p2"] {
            let machine = Machine::new("kept-swap", program);
            let table =
                format!("Filename\t\t\tType\n/dev/ublkb33 partition 9\n{swap}   partition 8\n");
            std::fs::write(machine.at("proc/swaps"), table).unwrap();
            machine.is_kept("", "is swap space");
        }
        for open in ["/dev/ublkb3", "/dev/ublkb3p1"] {
            let machine = Machine::new("kept-open", program);
            machine.link("proc/90/fd/7", open);
            machine.is_kept("", "is open in a program");
        }
    }
    // Without systemd nothing ends the servers, and they would have no program to start again.
    let machine = Machine::new("kept-alone", INSTALLED);
    std::fs::remove_dir_all(machine.at("run/systemd")).unwrap();
    machine.is_kept("ublkb3", "is mounted");
}

/// A file system in a mount namespace of its own, such as a container's, is not in the table of mounts of dpkg.
#[test]
fn a_device_that_is_mounted_elsewhere_is_in_use() {
    let machine = Machine::new("kept-namespace", INSTALLED);
    for (device, numbers) in [("ublkb3", "259:7\n"), ("ublkb33", "259:70\n")] {
        let of = machine.at(&format!("sys/class/block/{device}"));
        std::fs::create_dir_all(&of).unwrap();
        std::fs::write(of.join("dev"), numbers).unwrap();
    }
    let table = |numbers: &str| format!("60 1 {numbers} / /data rw - xfs /dev/ublkb3 rw\n");
    std::fs::create_dir_all(machine.at("proc/95")).unwrap();
    let mountinfo = machine.at("proc/95/mountinfo");
    std::fs::write(&mountinfo, table("259:7")).unwrap();
    machine.is_kept("", "is mounted");
    std::fs::write(&mountinfo, table("259:70")).unwrap();
    machine.is_removed("");
}

/// `systemctl stop` leaves a device that is in use to the next server, and so does a server that dies. Its I/O waits.
#[test]
fn a_package_whose_server_left_a_device_in_use_is_not_removed() {
    let machine = Machine::new("kept-left", INSTALLED);
    machine.stamp();
    machine.end_server();
    machine.is_kept("ublkb3", "is mounted");
    let err = text(&machine.run(PRERM, "remove", "ublkb3").stderr);
    assert!(err.contains("try: start its server again (systemctl start zoneplug@NAME)"), "{err}");
    machine.is_removed("");
    // One that runs is asked to give the device up.
    let machine = Machine::new("kept-served", INSTALLED);
    machine.stamp();
    machine.is_kept("ublkb3", "is mounted");
    let err = text(&machine.run(PRERM, "remove", "ublkb3").stderr);
    assert!(err.contains("try: unmount or close it"), "{err}");
    // A device of another program has no stamp.
    let machine = Machine::new("removed-left", INSTALLED);
    std::fs::create_dir_all(machine.at("sys/class/ublk-char/ublkc5")).unwrap();
    machine.end_server();
    machine.is_removed("ublkb5");
}

#[test]
fn an_upgrade_ends_nothing() {
    let machine = Machine::new("upgraded", INSTALLED);
    assert!(machine.run(PRERM, "upgrade", "ublkb3").status.success());
    assert!(!machine.at("stopped").exists());
}

#[test]
fn a_purge_leaves_a_server_that_runs_its_files() {
    let machine = Machine::new("purged", REPLACED);
    machine.link("etc/systemd/system/multi-user.target.wants/zoneplug@a.service", "/usr/lib/x");
    machine.link("etc/systemd/system/multi-user.target.wants/other.service", "/usr/lib/y");
    let wants = |name: &str| {
        machine
            .at(&format!("etc/systemd/system/multi-user.target.wants/{name}.service"))
            .symlink_metadata()
            .is_ok()
    };
    assert!(machine.run(POSTRM, "remove", "").status.success());
    assert!(wants("zoneplug@a") && machine.at("run/zoneplug").exists());
    assert!(machine.run(POSTRM, "purge", "").status.success());
    assert!(!wants("zoneplug@a") && wants("other"));
    assert!(machine.at("run/zoneplug").exists(), "a server still has its socket there");
    std::fs::remove_dir_all(machine.at("proc/77")).unwrap();
    assert!(machine.run(POSTRM, "purge", "").status.success());
    assert!(!machine.at("run/zoneplug").exists());
}
