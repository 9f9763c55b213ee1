//! Files of served disks that another program writes over or cuts.

use super::handover::{Server, last_is, nqn, two_disks};
use super::nvme_host::{BLOCK, Queue};
use super::{ZONEPLUG, ok, soon, text};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use zoneplug_nvme::initiator::{Data, read, write};
use zoneplug_nvme::spec::{Command as Nvme, opcode};

fn flush() -> (Nvme, Data) {
    (Nvme::new(opcode::FLUSH).with_nsid(1), Data::None)
}

/// A process that does not outlive its test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// U17. A server whose file is not its disk any more says so, fails I/O, hands nothing over, and writes nothing into it.
#[test]
fn u17_a_backup_over_the_file_of_a_running_server_is_not_mixed_with_its_disk() {
    let (dir, a, other, socket) = two_disks("file-changed");
    let backup = dir.path("backup.zbd");
    std::fs::copy(&a, &backup).unwrap();
    let whole = std::fs::metadata(&a).unwrap().len();
    let over = |from: &str| {
        let bytes = std::fs::read(from).unwrap();
        std::fs::copy(from, &a).unwrap();
        bytes
    };
    type Change<'a> = &'a dyn Fn() -> Option<Vec<u8>>;
    let changes: [(&str, Change<'_>); 3] = [
        ("overwritten", &|| Some(over(&other))),
        ("this file was overwritten", &|| Some(over(&backup))),
        ("was truncated to", &|| {
            let file = std::fs::File::options().write(true).open(&a).unwrap();
            file.set_len(whole / 2).unwrap();
            None
        }),
    ];
    for (what, change) in changes {
        ok(&["create", "--force", &a, "--size", "64M", "--zone-size", "8M"]);
        std::fs::copy(&a, &backup).unwrap();
        let mut command = Command::new(&*ZONEPLUG);
        let command =
            command.args(["serve", "--nqn", nqn(), "--socket", &socket, "--forget-hosts"]);
        let command = command.args(["--nvme-tcp", "127.0.0.1:0", &a]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = Ends(child.unwrap());
        let end = Instant::now() + Duration::from_secs(20);
        let status = || soon(Command::new(&*ZONEPLUG).args(["status", "--socket", &socket]));
        let shown = loop {
            let shown = status();
            if shown.status.success() {
                break text(&shown.stdout);
            }
            assert!(Instant::now() < end, "it does not serve");
            std::thread::sleep(Duration::from_millis(10));
        };
        let address = shown.lines().nth(1).unwrap().trim().split_once("  ").unwrap().0.to_owned();
        {
            let (_admin, mut io) = Queue::pair_at(&address, nqn());
            let data = |seed| vec![seed; BLOCK as usize];
            io.ok(write(1, 0, data(1), BLOCK));
            io.ok(flush());
            let left = change();
            let says = loop {
                let shown = text(&status().stdout);
                if shown.contains("its I/O fails") {
                    break shown;
                }
                assert!(Instant::now() < end, "it does not say that {what}: {shown}");
                std::thread::sleep(Duration::from_millis(20));
            };
            // A copy that is under way is short.
            let what = if says.contains(what) { what } else { "was truncated to" };
            assert!(says.contains(what), "{says}");
            for (n, command) in
                [read(1, 0, 1, BLOCK), write(1, 1, data(2), BLOCK), flush()].into_iter().enumerate()
            {
                assert_ne!(io.run(command).completion.status, 0, "command {n} succeeds: {what}");
            }
            let next = ["serve", "--nqn", nqn(), "--takeover", "--socket", &socket];
            let takeover = [&next[..], &["--nvme-tcp", &address, &a]].concat();
            let refused = soon(Command::new(&*ZONEPLUG).args(&takeover));
            assert!(!refused.status.success(), "{}", text(&refused.stdout));
            assert_eq!(last_is(&socket), child.0.id());
            if left.is_some() {
                assert!(
                    left == Some(std::fs::read(&a).unwrap()),
                    "the server has written to {what}"
                );
            }
            kill_process(Pid::from_child(&child.0), Signal::TERM).unwrap();
            let ended = child.0.wait().unwrap();
            let mut said = String::new();
            child.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            assert!(said.contains(what), "{said}");
            assert_eq!(ended.code(), Some(1), "what was written is not durable: {said}");
            if left.is_some() {
                assert!(left == Some(std::fs::read(&a).unwrap()), "the end has written to {what}");
            }
        }
        let _ = std::fs::remove_file(format!("/run/zoneplug/{}.hosts", nqn()));
    }
}

/// U17. The disk that was handed over is the one that was left, not what was copied over its file meanwhile.
#[test]
fn u17_a_hand_over_is_refused_when_the_file_was_changed_before() {
    let (dir, a, _, socket) = two_disks("file-changed-handover");
    let backup = dir.path("backup.zbd");
    std::fs::copy(&a, &backup).unwrap();
    let (server, address) = Server::start(&["--nvme-tcp", "127.0.0.1:0", &a, "--socket", &socket]);
    std::fs::copy(&backup, &a).unwrap();
    let next = ["serve", "--nqn", nqn(), "--takeover", "--socket", &socket, "--nvme-tcp", &address];
    let refused = soon(Command::new(&*ZONEPLUG).args(next).arg(&a));
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    let is_said = ["this file was overwritten", "this file was truncated to"];
    assert!(is_said.iter().any(|what| said.contains(what)), "{said}");
    assert_eq!(last_is(&socket), server.0.id());
}
