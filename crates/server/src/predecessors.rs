//! Finds the running servers that have disks which this one is to serve, and takes over their open files.

use crate::compare::{WantedDoor, compare};
use crate::config::Config;
use crate::error::ServeError;
use crate::handover::process_id;
use crate::inherited::Inherited;
use crate::running::{Running, log_death};
use rustix::process::Pid;
use serde_json::Value;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use zoneplug_control::client::{self, Request, Server, StateShown};
use zoneplug_control::place;
use zoneplug_control::{Attempt, Failure};
use zoneplug_core::plain;
use zoneplug_host::{HeldDisk, STATE_VERSION, Specification};

/// Finds the servers that have disks of `wanted`, and receives what they pass on. Fails if one cannot hand its disks
/// over. Changes nothing for them. `only`: the process that must be the only such server.
pub(crate) fn find(
    wanted: &[WantedDoor<'_>],
    config: &Config,
    only: Option<u32>,
) -> Result<Inherited, Failure> {
    let mut found = Inherited::default();
    let mut has_answered = false;
    // A socket without a server, even a named one, is ignored.
    let (socket, note) = (config.socket.as_deref(), config.note);
    let sockets = sockets(socket);
    let asked = client::ask_at(&sockets, false, &Request::State {}, client::LIST_LIMIT);
    for silent in asked.silent {
        note(&format!("{}: if it has one of the disks, this server cannot", silent.what()));
    }
    for (mut server, answer) in asked.answered {
        let path = server.path().to_owned();
        let Some(pid) = server.pid() else { continue };
        let is_meant = only.is_none_or(|only| process_id(pid) == only);
        has_answered |= is_meant;
        let Some(state) = state_of(&mut server, answer, pid, note, wanted)? else { continue };
        if !compare(&state, wanted, pid)? {
            continue;
        }
        if !is_meant {
            return Err(ServeError::OtherServer { process: process_id(pid) }.into());
        }
        if let Some(next) = state.handed_over_to {
            return Err(ServeError::UnderWay { process: process_id(pid), next }.into());
        }
        let Some(mut running) = Running::new(server, pid)? else {
            // Its files are free, and its socket is closed.
            log_death(pid);
            continue;
        };
        let passed = match take_over(&mut running, &state) {
            Err(_) if running.has_died() => {
                log_death(pid);
                continue;
            }
            passed => passed?,
        };
        found.disks.add_all(&passed.disks);
        found.sockets.extend(passed.sockets);
        found.replaced.extend(place::Id::of(&path));
        found.states.push(state);
        found.running.push(running);
    }
    match only.filter(|_| found.running.is_empty()) {
        Some(only) => Err(no_server(only, has_answered, socket)),
        None => Ok(found),
    }
}

/// The sockets of servers that may have the disks: the one that this server will use, and all in the usual place,
/// because the running server may have been started without `--socket`.
fn sockets(named: Option<&Path>) -> Vec<PathBuf> {
    let mut all = client::sockets();
    if let Some(path) = named {
        let id = place::Id::of(path);
        all.retain(|p| p != path && (id.is_none() || place::Id::of(p) != id));
        all.insert(0, path.to_owned());
    }
    all
}

/// The failure if the named process has none of the disks, or cannot be asked.
fn no_server(process: u32, has_answered: bool, socket: Option<&Path>) -> Failure {
    if has_answered {
        return ServeError::OtherDisks { process }.into();
    }
    let socket = socket.map(|path| path.display().to_string());
    ServeError::Unreachable { process, socket }.into()
}

/// Receives the open files and sockets of a server.
fn take_over(running: &mut Running, state: &StateShown) -> Result<Inherited, Failure> {
    let (mut found, server) = (Inherited::default(), running.connection());
    let no = |e: std::io::Error| {
        Failure::of_system(Attempt::Descriptor, "what the server passes on cannot be used", e)
    };
    for disk in &state.disks {
        let (counts, files) =
            server.ask_for_files(&Request::Pass { disk: Some(disk.name.clone()) })?;
        let counts: Vec<usize> = serde_json::from_value(counts)?;
        let mut files = files.into_iter().map(File::from);
        for count in counts {
            let files = files.by_ref().take(count).collect();
            found.disks.add(HeldDisk::new(files).map_err(no)?);
        }
    }
    let (_, sockets) = server.ask_for_files(&Request::Pass { disk: None })?;
    found.sockets.extend(sockets.into_iter().map(TcpListener::from));
    Ok(found)
}

/// Reads the record of a server from its answer. `None`: it has no disk of `wanted`, as far as can be told.
fn state_of(
    server: &mut Server,
    answer: Result<Value, Failure>,
    pid: Pid,
    note: fn(&str),
    wanted: &[WantedDoor<'_>],
) -> Result<Option<StateShown>, Failure> {
    let process = process_id(pid);
    let is_named = |text: &str| {
        let canonical = Specification::parse(text).map(|spec| spec.canonical());
        let mut all = wanted.iter().flat_map(|door| &door.disks);
        all.any(|d| canonical.as_ref().map_or(*d.spec == *text, |c| *c == d.spec.canonical()))
    };
    let value = match answer {
        Ok(value) => value,
        Err(f) => {
            // A server that does not list its disks may have any of them. Opening such a disk fails.
            let Ok(disks) = server.disks() else {
                let what = plain(f.parts().what);
                note(&format!(
                    "process {pid}: {what}; if it has one of the disks, this server cannot"
                ));
                return Ok(None);
            };
            if !disks.iter().any(|d| is_named(&d.spec)) {
                return Ok(None);
            }
            let because = f.parts().what.to_owned();
            return Err(ServeError::NotHandedOver { process, because }.into());
        }
    };
    // The record of another version may have a different form.
    let version = value["version"].as_str().unwrap_or("unknown").to_owned();
    let (state, passes_on) = (value["state"].as_u64(), value["passes_on"].as_bool());
    if state != Some(STATE_VERSION) || passes_on != Some(true) {
        let mut served = value["disks"].as_array().into_iter().flatten();
        if !served.any(|d| d["spec"].as_str().is_some_and(is_named)) {
            return Ok(None);
        }
        let is_readable = state == Some(STATE_VERSION);
        return Err(ServeError::OtherVersion { process, version, is_readable }.into());
    }
    serde_json::from_value(value)
        .map(Some)
        .map_err(|e| ServeError::NoRecord { process, because: e.to_string() }.into())
}
