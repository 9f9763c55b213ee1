//! `zoneplug doctor`: what zoneplug can do on this machine, for this user, and what to try where it cannot. Most checks try
//! the thing itself, so they say what a server or a mount would say.

use crate::disk::{Opened, Use};
use crate::failure::{Failure, FailureParts};
use crate::server_client::{self, LIST_LIMIT, Silent};
use crate::term::{self, paint};
use crate::{json, program};
use serde::Serialize;
use std::io::Write;
use std::path::Path;
use zoneplug_core::{Bytes, Error, one_line, plain_lines};
use zoneplug_host::OpenFiles;
use zoneplug_host::nvme_tcp::NvmeTcpOptions;

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
    /// The thing works, but slower, or for less.
    Limited,
    /// The thing does not work.
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
            Err(e) => Check { state: otherwise, ..failed(check, &e.into()) },
        }
    }
}

/// The check of something that has failed.
fn failed(check: &'static str, failure: &Failure) -> Check {
    let FailureParts { what, hint, .. } = failure.parts();
    Check::found(check, State::Missing, one_line(what).into_owned(), hint)
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
fn mounts() -> Option<Check> {
    let tried = zoneplug_zonefs::Mount::check(Path::new("/"));
    Some(Check::tried("FUSE", "zoneplug mount shows zones as files", tried, State::Missing))
}

#[cfg(not(feature = "mount"))]
fn mounts() -> Option<Check> {
    None
}

/// The zoned block devices of this machine. Each is opened as `zoneplug info` opens it.
fn drives() -> Vec<Check> {
    let all = match std::fs::read_dir(BLOCK) {
        Ok(all) => all.flatten().map(|entry| entry.path()),
        Err(e) => {
            let what = format!("which block devices there are is not known: {BLOCK}: {e}");
            return vec![Check::found("drives", State::Missing, what, "mount -t sysfs sysfs /sys")];
        }
    };
    let is_zoned = |path: &Path| {
        // The paths of a multipath device have no node of their own.
        let hidden = line_of(path.join("hidden")).is_some_and(|hidden| hidden == "1");
        !hidden && line_of(path.join("queue/zoned")).is_some_and(|zoned| zoned.starts_with("host"))
    };
    let zoned = all.filter(|path| is_zoned(path));
    let names = zoned.filter_map(|path| Some(path.file_name()?.to_str()?.replace('!', "/")));
    let mut devices: Vec<String> = names.map(|name| format!("/dev/{name}")).collect();
    devices.sort();
    if devices.is_empty() {
        let what = "there is no zoned block device. A ZNS drive that Linux refuses is a character \
                    device, as in zoneplug info /dev/ng0n1; zoneplug create makes a disk in a file";
        return vec![Check::ok("drives", what)];
    }
    devices.iter().map(|device| drive(device)).collect()
}

fn drive(device: &str) -> Check {
    match Opened::new(device, Use::Look) {
        Ok(opened) => {
            let (g, bytes) = (&opened.geometry, |n: u32| Bytes(u64::from(n) * 512));
            let what = format!("{device}: {} zones of {}", g.nr_zones(), bytes(g.zone_sectors()));
            Check::ok("drives", what)
        }
        Err(e) => failed("drives", &e),
    }
}

fn files() -> Check {
    let (name, way) = ("open files", OpenFiles::WAY);
    let connections = NvmeTcpOptions::MAX_CONNECTIONS;
    let needed = OpenFiles::needed_for(connections);
    // A server raises its limit to the maximum.
    match OpenFiles::of_this_process().map(|files| files.maximum) {
        Ok(most) if most < needed => {
            let what = format!(
                "a process may open {most}: a server of NVMe/TCP takes fewer than {connections} connections, for \
                 which it needs {needed}"
            );
            Check::found(name, State::Limited, what, way)
        }
        Ok(most) => Check::ok(name, format!("a process may open {most}")),
        Err(e) => {
            let what = format!("how many a process may open is not known: {e}");
            Check::found(name, State::Limited, what, way)
        }
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
    let what = match asked.answered.len() {
        0 => "none runs".to_owned(),
        1 => format!("one runs, disks: {disks}"),
        n => format!("{n} run, disks: {disks}"),
    };
    match Silent::failure(asked.silent) {
        None => Check::ok("servers", what),
        Some(failure) => failed("servers", &failure),
    }
}

/// The checks, each made when it is asked for: some wait. A drive that does not answer keeps the last ones waiting.
fn checks() -> impl Iterator<Item = Check> {
    let each: [fn() -> Option<Check>; 7] = [
        || Some(kernel()),
        || Some(ring()),
        || Some(ublk()),
        mounts,
        || Some(files()),
        processor,
        || Some(servers()),
    ];
    each.into_iter().filter_map(|check| check()).chain(std::iter::once_with(drives).flatten())
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    if args.json {
        #[derive(Serialize)]
        struct Document {
            version: &'static str,
            profile: &'static str,
            checks: Vec<Check>,
        }
        let (version, checks) = (env!("CARGO_PKG_VERSION"), checks().collect());
        return json::print(out, &Document { version, profile: program::PROFILE, checks });
    }
    let (colours, room) = (term::colours(), term::width().saturating_sub(BEFORE).max(BEFORE));
    for Check { check, state, what, hint } in checks() {
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
        // The next check may wait.
        out.flush()?;
    }
    Ok(())
}
