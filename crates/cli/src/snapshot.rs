//! `zoneplug snapshot`: a consistent copy of a disk in a file, even while it is served.
//!
//! The command makes the copy itself, with the rights of its user. The server only makes acknowledged data durable,
//! and holds I/O back while the last part is copied. If this command dies, the server goes on.

use crate::create::say_how_it_is_named;
use crate::failure::{Failure, Kind};
use crate::server_client::{self, Asked, Request, Server, Shown, Silent, StateShown};
use crate::{interrupt, json, term};
use serde::Serialize;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use zoneplug_control::names::{is_name, name_of};
use zoneplug_core::form;
use zoneplug_core::plain;
use zoneplug_core::{Bytes, Error, ErrorKind};
use zoneplug_host::file::{Identity, Made, Snapshot, WritesPrevented};
use zoneplug_host::{DiskMark, Specification};

/// Flags of `zoneplug snapshot`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file of a disk, or a disk that is served: ublkb0
    #[arg(value_name = "DISK")]
    disk: String,

    /// The file to make; it must not exist
    #[arg(value_name = "FILE")]
    to: PathBuf,

    /// The longest time that I/O of a served disk may wait, up to 60s
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = pause)]
    pause: Duration,

    /// Keep the UUID of the disk, instead of one of its own: for a copy that takes the place of the disk
    #[arg(long)]
    keep_uuid: bool,

    /// The socket of the server, instead of all in /run/zoneplug
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

fn pause(text: &str) -> Result<Duration, Error> {
    form::parse_time(text)
        .filter(|n| (1_000_000..=60_000_000_000).contains(n))
        .map(Duration::from_nanos)
        .ok_or_else(|| Error::invalid("not a time from 1ms to 60s").hint("as in 500ms or 10s"))
}

#[derive(Debug, Serialize)]
struct Document {
    path: String,
    of: String,
    #[serde(flatten)]
    identity: Identity,
    blocks_shared: bool,
    copied_bytes: u64,
    /// How long I/O waited; `None` if the disk is not served.
    pause_ns: Option<u64>,
    notices: Vec<String>,
}

/// A server that has the disk, and the disk's name there.
struct Served {
    server: Server,
    name: String,
    /// The open file that the server has passed on, if it has.
    _file: Option<OwnedFd>,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let new = Specification::of_new_file(&args.to)?;
    let (path, served) = find(args)?;
    let (made, paused) = match served {
        None => (offline(&path, args)?, None),
        Some(served) => {
            let (made, paused) = online(&path, served, args)?;
            (made, Some(paused))
        }
    };
    let Made { identity, notices, shared, copied } = made;
    if args.json {
        return json::print(
            out,
            &Document {
                path: args.to.display().to_string(),
                of: args.disk.clone(),
                identity,
                blocks_shared: shared,
                copied_bytes: copied,
                pause_ns: paused.map(|p| p.as_nanos() as u64),
                notices,
            },
        );
    }
    let to = args.to.display().to_string();
    let (to, of, uuid) = (plain(&to), plain(&args.disk), &identity.uuid);
    let how = if shared {
        "its blocks are shared".to_owned()
    } else {
        format!("{} of data were copied", Bytes(copied))
    };
    let waited = paused
        .map_or_else(String::new, |p| format!("; I/O waited {:.1} ms", p.as_secs_f64() * 1e3));
    term::print(out, &format!("{to}: a snapshot of {of}, UUID {uuid}\n{how}{waited}\n"))?;
    for line in notices {
        term::print(out, &format!("{}\n", plain(&line)))?;
    }
    say_how_it_is_named(&args.to, &new);
    Ok(())
}

/// Copies a disk that no process has open for writing.
fn offline(path: &Path, args: &Args) -> Result<Made, Failure> {
    let mut snapshot =
        Snapshot::begin(path, &args.to, WritesPrevented::ByLock).map_err(|e| busy(e, args))?;
    snapshot.copy_rest()?;
    interrupt::completes();
    Ok(snapshot.finish(!args.keep_uuid)?)
}

/// The failure to begin. Suggests `--socket` if the file is in use: its server may have another socket.
fn busy(e: Error, args: &Args) -> Failure {
    let is_held = e.kind() == ErrorKind::Busy && args.socket.is_none() && !args.to.exists();
    let failure = Failure::from(e);
    if !is_held {
        return failure;
    }
    let way = format!(
        "--socket PATH, if a server has it with that --socket; or {}",
        failure.parts().hint
    );
    failure.hint(way)
}

/// Copies a disk that a server has open. Also returns how long its I/O waited.
fn online(path: &Path, mut served: Served, args: &Args) -> Result<(Made, Duration), Failure> {
    let mut snapshot = Snapshot::begin(path, &args.to, WritesPrevented::ByCaller)?;
    snapshot.catch_up()?;
    let most_ms = args.pause.as_millis() as u64;
    served.server.ask(&Request::Pause { disk: served.name, most_ms })?;
    snapshot.copy_rest()?;
    let late = |f: Failure| {
        let hint = format!("a longer --pause than {:?}, or less load", args.pause);
        let what = f.parts().what;
        Failure::io(format!("the disk was not kept still to the end of the copy: {what}"))
            .hint(hint)
    };
    let ended = served.server.ask(&Request::Resume {}).map_err(late)?;
    let paused = ended.get("pause_ns").and_then(serde_json::Value::as_u64).unwrap_or_default();
    interrupt::completes();
    Ok((snapshot.finish(!args.keep_uuid)?, Duration::from_nanos(paused)))
}

/// Finds the file of the disk, and its server if there is one.
fn find(args: &Args) -> Result<(PathBuf, Option<Served>), Failure> {
    if is_name(&args.disk) {
        let Some(mut server) = server_client::find(&args.disk, args.socket.as_deref())? else {
            return Err(server_client::not_served(&args.disk));
        };
        let name = name_of(&args.disk).to_owned();
        let disks = server.disks()?;
        let Some(shown) = disks.iter().find(|d| d.name == name) else {
            return Err(server_client::not_served(&args.disk));
        };
        let (path, file) = held(&mut server, shown)?;
        return Ok((path, Some(Served { server, name, _file: file })));
    }
    let spec = Specification::parse(&args.disk)?;
    let Some(path) = spec.file() else {
        // If the specification names no disk, opening it reports that error.
        spec.open()?;
        return Err(not_in_a_file(&args.disk));
    };
    let place = |p: &Path| std::fs::metadata(p).ok().map(|m| (m.dev(), m.ino()));
    let here = place(path);
    let Asked { answered, silent } =
        server_client::disks_of_all(args.socket.as_deref(), server_client::LIST_LIMIT);
    for (mut server, disks) in answered {
        for shown in disks {
            // A server of another version may write specifications that this one cannot read.
            let Ok(spec) = Specification::parse(&shown.spec) else { continue };
            let mut files = spec.files().map(|f| seen_by(shown.pid, f));
            if here.is_some()
                && files.any(|f| place(&f) == here)
                && is_held(&mut server, &shown, path)?
            {
                only_file(&shown, &spec)?;
                let name = shown.name;
                return Ok((path.to_owned(), Some(Served { server, name, _file: None })));
            }
        }
    }
    // Servers that do not answer are ignored, because most do not have this disk. If one has it, the lock of the file
    // refuses the copy.
    if args.socket.is_some()
        && let Some(failure) = Silent::failure(silent)
    {
        return Err(failure);
    }
    Ok((path.to_owned(), None))
}

/// The path of the file that a server has open. The server passes the file itself to its own user and to root, even
/// if the path of the disk names another file now. For other users the path must still name the served file.
fn held(server: &mut Server, shown: &Shown) -> Result<(PathBuf, Option<OwnedFd>), Failure> {
    let path = only_file(shown, &Specification::parse(&shown.spec)?)?;
    let pass = Request::Pass { disk: Some(shown.name.clone()) };
    if let Ok((_, files)) = server.ask_for_files(&pass)
        && let Some(file) = files.into_iter().next()
    {
        return Ok((PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())), Some(file)));
    }
    match is_held(server, shown, &path)? {
        true => Ok((path, None)),
        false => {
            let what =
                format!("{} is not the file that {} is served from", path.display(), shown.name);
            let hint = "as the user of the server or as root, who get that file from it";
            Err(Failure::new(Kind::Device, what).hint(hint))
        }
    }
}

/// Whether the file at `path` is the one that a server has open for a disk.
fn is_held(server: &mut Server, shown: &Shown, path: &Path) -> Result<bool, Failure> {
    let state: StateShown = serde_json::from_value(server.ask(&Request::State {})?)?;
    let served = state.disks.iter().find(|d| d.name == shown.name);
    let mark = Specification::of_path(path).map(|spec| DiskMark::of(&spec)).unwrap_or_default();
    Ok(served.is_some_and(|d| (d.disks, d.place) == (mark.disks, mark.place)))
}

/// The path as another process sees it: a relative path begins at that process's working directory.
fn seen_by(pid: u32, path: &Path) -> PathBuf {
    if path.is_absolute() {
        path.to_owned()
    } else {
        Path::new(&format!("/proc/{pid}/cwd")).join(path)
    }
}

/// The file of a served disk, which must be in a single file. `spec`: its specification.
fn only_file(shown: &Shown, spec: &Specification) -> Result<PathBuf, Failure> {
    let files: Vec<&Path> = spec.files().collect();
    match (spec.file(), &files[..]) {
        (Some(file), [_]) => Ok(seen_by(shown.pid, file)),
        (_, []) => Err(not_in_a_file(&shown.spec)),
        _ => {
            let what = format!("{} is made of several devices: {}", shown.name, shown.spec);
            let hint = "end its server, and make a snapshot of each file";
            Err(Failure::new(Kind::NotSupported, what).hint(hint))
        }
    }
}

fn not_in_a_file(spec: &str) -> Failure {
    Failure::new(Kind::NotSupported, format!("{spec} is not in a file"))
        .hint("a disk that zoneplug create made; a drive is copied with zoneplug read")
}
