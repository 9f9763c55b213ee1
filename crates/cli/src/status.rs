//! `zoneplug status`: shows the disks that servers of this machine serve.

mod watch;

use crate::failure::Failure;
use crate::server_client::{self, Shown, Silent};
use crate::{json, term};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use zoneplug_control::figures::about;
use zoneplug_control::names::name_of;
use zoneplug_core::Bytes;
use zoneplug_core::plain;

/// Flags of `zoneplug status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A disk, as in ublkb0; all without one
    #[arg(value_name = "DISK")]
    disk: Option<String>,

    /// The socket of one server, instead of all in /run/zoneplug
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Show what each disk does, again and again after so many seconds
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = seconds, conflicts_with = "json")]
    watch: Option<Duration>,
}

/// An interval: 0.1 to 86,400 seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if (0.1..=86_400.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("not from 0.1 to 86400".to_owned())
    }
}

/// The disks of the servers that answered, and the servers that did not.
struct Seen {
    disks: Vec<Shown>,
    silent: Vec<Silent>,
}

/// A server that has not answered, for JSON.
#[derive(Serialize)]
struct SilentShown {
    pid: Option<i32>,
    socket: String,
    what: String,
}

impl SilentShown {
    fn of(s: &Silent) -> SilentShown {
        let socket = s.socket.to_string_lossy().into_owned();
        SilentShown { pid: s.pid, socket, what: s.what().to_owned() }
    }
}

/// Runs the command. If a server does not answer, shows the others' disks, and fails.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    if let Some(interval) = args.watch {
        let patience = interval.clamp(Duration::from_secs(1), server_client::LIST_LIMIT);
        return watch::watch(interval, || see(args, patience), out);
    }
    let Seen { disks, silent } = see(args, server_client::LIST_LIMIT)?;
    if args.json {
        #[derive(Serialize)]
        struct Document {
            disks: Vec<Shown>,
            silent: Vec<SilentShown>,
        }
        let shown = silent.iter().map(SilentShown::of).collect();
        return json::end(out, &Document { disks, silent: shown }, Silent::failure(silent));
    }
    if disks.is_empty() && silent.is_empty() {
        let elsewhere = match &args.socket {
            Some(_) => "",
            None => "; --socket PATH asks a server that has its socket elsewhere",
        };
        let text = "nothing is served; zoneplug serve serves a disk";
        return term::print(out, &format!("{text}{elsewhere}\n"));
    }
    for d in &disks {
        show(d, out)?;
    }
    out.flush()?;
    Silent::failure(silent).map_or(Ok(()), Err)
}

/// The requested ones of all disks, and the servers that do not answer: these matter only if none is found.
fn requested<D, S>(
    mut disks: Vec<D>,
    silent: Vec<S>,
    is_requested: impl Fn(&D) -> bool,
) -> (Vec<D>, Vec<S>) {
    disks.retain(is_requested);
    let matter = disks.is_empty();
    (disks, if matter { silent } else { Vec::new() })
}

/// The requested disks.
fn see(args: &Args, patience: Duration) -> Result<Seen, Failure> {
    let asked = server_client::disks_of_all(args.socket.as_deref(), patience);
    let mut disks: Vec<Shown> = asked.answered.into_iter().flat_map(|(_, disks)| disks).collect();
    disks.sort_by(|a, b| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name)));
    let Some(disk) = &args.disk else { return Ok(Seen { disks, silent: asked.silent }) };
    let name = name_of(disk);
    let (disks, silent) = requested(disks, asked.silent, |d| d.name == name);
    if disks.is_empty() {
        return Err(Silent::failure(silent).unwrap_or_else(|| server_client::not_served(disk)));
    }
    Ok(Seen { disks, silent })
}

/// The name by which users find a disk: the path of a block device, else the name.
fn named(d: &Shown) -> String {
    let dev = if d.nqn.is_none() { "/dev/" } else { "" };
    format!("{dev}{}", plain(&d.name))
}

fn show(d: &Shown, out: &mut dyn Write) -> Result<(), Failure> {
    let (size, zone) = (Bytes(d.capacity_bytes), Bytes(d.zone_bytes));
    let mut text = format!("{}  {}\n", named(d), plain(&d.spec));
    if let (Some(address), Some(nqn)) = (&d.address, &d.nqn) {
        text += &format!("  {}  {}\n", plain(address), plain(nqn));
    }
    let taken = match (d.handed_over, d.recovered) {
        (true, _) => ", handed over by the server before it",
        (false, true) => ", taken over from a server that had ended or died",
        (false, false) => "",
    };
    text += &format!("  {size}, {} zones of {zone}, process {}{taken}\n", d.zones, d.pid);
    text += &format!(
        "  {} reads ({}), {} writes ({}), {} others, {} errors\n",
        d.reads,
        about(d.read_bytes),
        d.writes,
        about(d.written_bytes),
        d.others,
        d.errors
    );
    let replayed = match d.replayed {
        0 => String::new(),
        n => format!(", {n} found done by the last server"),
    };
    text += &format!("  {} plugs, {} BIOs wait in them{replayed}\n", d.live_plugs, d.waiting);
    let several = d.io.len() > 1;
    for io in &d.io {
        let of = if several { format!(" ({})", plain(&io.device)) } else { String::new() };
        text += &format!("  I/O by {}{of}\n", io.shown());
    }
    if let Some(what) = &d.file_changed {
        text += &format!("  its I/O fails: {}\n", plain(what));
    }
    if d.held_total > 0 {
        let writes = if d.held_total == 1 {
            "1 early write was"
        } else {
            &format!("{} early writes were", d.held_total)
        };
        text += &format!("  {writes} held: {} now, {} expired\n", d.held, d.held_expired);
    }
    let events = d.measured.events.iter().filter(|(_, n)| **n > 0);
    let events: Vec<String> = events.map(|(event, n)| format!("{n} {event}")).collect();
    if !events.is_empty() {
        text += &format!("  events: {}\n", plain(&events.join(", ")));
    }
    if !d.enabled {
        text += &format!(
            "  hosts do not see it: enable is 0 (zoneplug attr {} enable 1)\n",
            plain(&d.name)
        );
    }
    for path in &d.paths {
        text += &format!("  at {}, {}\n", plain(&path.address), plain(&path.ana_state));
    }
    for host in d.hosts.iter().flatten() {
        let known = if host.authenticated { ", authenticated" } else { "" };
        text += &format!("  host {}, {} I/O queues{known}\n", plain(&host.nqn), host.queues);
    }
    if d.failed_authentications > 0 {
        text += &format!("  {} failed authentications\n", d.failed_authentications);
    }
    term::print(out, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T7. A server that does not answer may have the disk that was not found, and has not the one that was.
    #[test]
    fn t7_servers_that_do_not_answer_matter_if_the_disk_is_not_found() {
        let of = |name| requested(vec!["a", "b"], vec!["silent"], |d| *d == name);
        assert_eq!(of("b"), (vec!["b"], vec![]));
        assert_eq!(of("c"), (vec![], vec!["silent"]));
    }

    #[test]
    fn a_hand_over_is_no_death() {
        let said = |handed_over, recovered| {
            let mut out = Vec::new();
            show(&Shown { handed_over, recovered, ..Shown::default() }, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert!(said(true, true).contains(", handed over by the server before it\n"));
        assert!(said(false, true).contains(", taken over from a server that had ended or died\n"));
        assert!(!said(false, false).contains("over"));
    }
}
