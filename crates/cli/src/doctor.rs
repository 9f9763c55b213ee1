//! `zoneplug doctor`: what zoneplug can do on this machine, for this user, and what to try where it cannot. Most checks try
//! the thing itself, so they say what a server or a mount would say.

use crate::failure::Failure;
use crate::server_client::{self, LIST_LIMIT};
use crate::term::{self, paint};
use crate::{json, program};
use rustix::fs::{Access as Wanted, access};
use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use std::io::Write;
use std::path::Path;
use zoneplug_core::{Error, plain_lines};

/// The files that a server of many hosts has open: one for each connection that it takes, and some for itself.
const FILES: u64 = 4096 + 128;
/// The columns before the text of a check.
const BEFORE: usize = 21;
/// The block devices of Linux.
const BLOCK: &str = "/sys/block";

/// Flags of `zoneplug doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// Nothing is to be done.
    Ok,
    /// It works, but slower, or for less.
    Limited,
    /// It does not work.
    Missing,
}

/// A check.
#[derive(Debug, Serialize)]
struct Check {
    check: &'static str,
    state: State,
    what: String,
    hint: Option<String>,
}

impl Check {
    fn ok(check: &'static str, what: impl Into<String>) -> Check {
        Check { check, state: State::Ok, what: what.into(), hint: None }
    }

    /// A check that found `state`, with what to try.
    fn found(check: &'static str, state: State, what: String, hint: &str) -> Check {
        Check { check, state, what, hint: Some(hint.to_owned()) }
    }

    /// The check of something that was tried. `what`: what it is good for. `otherwise`: the state if it failed.
    fn tried<T>(
        check: &'static str,
        what: &str,
        tried: Result<T, Error>,
        otherwise: State,
    ) -> Check {
        match tried {
            Ok(_) => Check::ok(check, what),
            Err(e) => Check {
                check,
                state: otherwise,
                what: e.what().to_owned(),
                hint: e.what_to_try().map(str::to_owned),
            },
        }
    }
}

/// The first line of a file of the kernel.
fn line_of(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path).ok()?.lines().next().map(|line| line.trim().to_owned())
}

fn kernel() -> Check {
    let release = line_of("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned());
    Check::ok("kernel", format!("Linux {release}, {}", std::env::consts::ARCH))
}

/// Disks in files move data by io_uring or, without it, by threads.
fn ring() -> Check {
    let tried = zoneplug_host::file::check_ring();
    Check::tried("io_uring", "disks in files use it", tried, State::Limited)
}

fn ublk() -> Check {
    let tried = zoneplug_host::ublk::Ublk::open();
    Check::tried("ublk", "zoneplug serve --ublk makes block devices", tried, State::Missing)
}

#[cfg(feature = "mount")]
fn mounts() -> Check {
    let tried = zoneplug_zonefs::Mount::check(Path::new("/"));
    Check::tried("FUSE", "zoneplug mount shows zones as files", tried, State::Missing)
}

/// The zoned block devices of this machine, and whether this user may use them.
fn drives() -> Check {
    let all = std::fs::read_dir(BLOCK).into_iter().flatten().flatten();
    let is_zoned = |path: &Path| {
        line_of(path.join("queue/zoned")).is_some_and(|zoned| zoned.starts_with("host"))
    };
    let zoned = all.map(|entry| entry.path()).filter(|path| is_zoned(path));
    let names = zoned.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
    let mut devices: Vec<String> = names.map(|name| format!("/dev/{name}")).collect();
    devices.sort();
    let refused =
        |path: &&String| access(path.as_str(), Wanted::READ_OK | Wanted::WRITE_OK).is_err();
    let refused: Vec<_> = devices.iter().filter(refused).map(String::as_str).collect();
    match (&devices[..], &refused[..]) {
        ([], _) => {
            Check::ok("drives", "there is no zoned block device; create makes disks in files")
        }
        (all, []) => Check::ok("drives", all.join(", ")),
        (_, refused) => Check::found(
            "drives",
            State::Missing,
            format!("this user may not write {}", refused.join(", ")),
            "as root, or as a user of the group of the device",
        ),
    }
}

fn files() -> Check {
    match getrlimit(Resource::Nofile).maximum {
        Some(most) if most < FILES => Check::found(
            "open files",
            State::Limited,
            format!(
                "a process may open {most}; a server that 4,096 hosts may connect to needs {FILES}"
            ),
            "ulimit -Hn, LimitNOFILE= in the unit",
        ),
        Some(most) => Check::ok("open files", format!("a process may open {most}")),
        None => Check::ok("open files", "a process may open any number"),
    }
}

/// The instructions that the layer which encrypts is fast with.
fn processor() -> Option<Check> {
    #[cfg(target_arch = "x86_64")]
    let has_aes = std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    let has_aes = std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return None;
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    Some(match has_aes {
        true => Check::ok("processor", "it has instructions for AES, which crypt uses"),
        false => Check::found(
            "processor",
            State::Limited,
            "it has no instructions for AES: the layer crypt is slow".to_owned(),
            "in a virtual machine: the processor of the host (-cpu host)",
        ),
    })
}

fn servers() -> Check {
    let asked = server_client::disks_of_all(None, LIST_LIMIT);
    let disks: usize = asked.answered.iter().map(|(_, disks)| disks.len()).sum();
    let servers = asked.answered.len();
    match &asked.silent[..] {
        [] if servers == 0 => Check::ok("servers", "none runs"),
        [] => Check::ok("servers", format!("{servers} serve {disks} disks")),
        [silent, ..] => Check::found(
            "servers",
            State::Missing,
            silent.what().to_owned(),
            "zoneplug status names its disks and its process",
        ),
    }
}

fn checks() -> Vec<Check> {
    let mut all = vec![kernel(), ring(), ublk()];
    #[cfg(feature = "mount")]
    all.push(mounts());
    all.extend([drives(), files()]);
    all.extend(processor());
    all.push(servers());
    all
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let checks = checks();
    if args.json {
        #[derive(Serialize)]
        struct Document {
            version: &'static str,
            profile: &'static str,
            checks: Vec<Check>,
        }
        let version = env!("CARGO_PKG_VERSION");
        return json::print(out, &Document { version, profile: program::PROFILE, checks });
    }
    let (colours, room) = (term::colours(), term::width().saturating_sub(BEFORE).max(BEFORE));
    for Check { check, state, what, hint } in &checks {
        let (word, sgr) = match state {
            State::Ok => ("ok", "32"),
            State::Limited => ("limited", "33"),
            State::Missing => ("missing", "31"),
        };
        let said = hint.as_ref().map_or(what.clone(), |hint| format!("{what}\ntry: {hint}"));
        let said =
            term::fold(&plain_lines(&said), room).replace('\n', &format!("\n{:BEFORE$}", ""));
        let word = paint(&format!("{word:<7}"), sgr, colours);
        writeln!(out, "{check:<11} {word}  {said}")?;
    }
    Ok(out.flush()?)
}
